package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// worker is one process with one client.
type worker struct {
	openers map[string]Opener
	session *Session
	c       Case

	outMu sync.Mutex
	out   *json.Encoder

	held    []Unlocker
	keys    []string           // of what is held next
	room    []Unlocker         // for it
	cancel  context.CancelFunc // of those who wait
	waiting sync.WaitGroup
}

// Worker makes this process one that a Plan's Worker command starts: it does what it is told on in, until in ends. It
// answers when the process should exit.
func Worker(in io.Reader, out io.Writer, openers map[string]Opener) {
	signal.Ignore(os.Interrupt) // of the terminal: the parent gets it too, and ends in
	w := &worker{openers: openers, out: json.NewEncoder(out)}
	for d := json.NewDecoder(bufio.NewReader(in)); ; {
		var o order
		if d.Decode(&o) != nil {
			return
		}
		a, err := w.do(o)
		if err != nil {
			a.Err, a.None = err.Error(), errors.Is(err, ErrNone)
		}
		w.say(a)
	}
}

func (w *worker) say(a answer) {
	w.outMu.Lock()
	defer w.outMu.Unlock()
	w.out.Encode(a)
}

func (w *worker) do(o order) (a answer, err error) {
	// Some clients give a lock back when the context of its acquisition ends: it ends only when the time is over.
	ctx, stop := context.WithCancel(context.Background())
	limit := time.AfterFunc(o.Timeout+o.For, stop)
	defer limit.Stop()
	switch o.Op {
	case "open":
		return a, w.open(ctx, o)
	case "prime": // lock and unlock each key once
		err = w.prime(ctx, o)
	case "run":
		a.Cycle, err = w.run(o)
	case "lock": // and keep it
		var u Unlocker
		if u, err = w.session.Lock(ctx, o.Key); err == nil {
			a.At = now()
			w.held = append(w.held, u)
		}
	case "unlock": // the last one
		u := w.held[len(w.held)-1]
		w.held = w.held[:len(w.held)-1]
		a.At = now()
		err = u.Unlock()
	case "keys": // for many: what the caller keeps himself is no cost of a lease
		w.keys, w.room = make([]string, o.N), make([]Unlocker, o.N)
		for i := range w.keys {
			w.keys[i] = o.Key + ":" + strconv.Itoa(i)
		}
	case "hold": // many
		err = w.hold(ctx, o)
	case "wait":
		err = w.wait(ctx, o)
	case "stand":
		s := w.stand(o.For)
		a.Stat = &s
	case "leave": // the waiters, and what is held
		w.leave()
	default:
		err = fmt.Errorf("unknown order %q", o.Op)
	}
	return a, err
}

// open connects, and takes one lock to have everything set up.
func (w *worker) open(ctx context.Context, o order) error {
	open := w.openers[o.Client]
	if open == nil {
		return fmt.Errorf("no client is called %q", o.Client)
	}
	s, err := open(ctx, o.URL, o.Case)
	if err != nil {
		return err
	}
	w.session, w.c = s, o.Case
	if s.Batch != nil {
		return s.Batch(ctx, []string{o.Key})
	}
	if o.Case.Reads > 0 && s.Read == nil || o.Case.Permits > 0 && s.Permit == nil {
		return ErrNone
	}
	u, err := s.Lock(ctx, o.Key)
	if err != nil {
		return err
	}
	return u.Unlock()
}

// prime uses all keys of a run once.
func (w *worker) prime(ctx context.Context, o order) error {
	step := w.step(o)
	if w.session.Batch != nil {
		_, err := step(ctx, 0, 0)
		return err
	}
	var failed atomic.Pointer[error]
	var wg sync.WaitGroup
	for i := range o.N {
		wg.Go(func() {
			if _, err := step(ctx, i, 0); err != nil {
				failed.CompareAndSwap(nil, &err)
			}
		})
	}
	wg.Wait()
	if e := failed.Load(); e != nil {
		return *e
	}
	return nil
}

// hold takes N leases, from 64 goroutines.
func (w *worker) hold(ctx context.Context, o order) error {
	keys, got := w.keys, w.room // which stay, as they were when the heap was looked at
	var failed atomic.Pointer[error]
	var wg sync.WaitGroup
	for g := range 64 {
		wg.Go(func() {
			for i := g; i < len(keys); i += 64 {
				u, err := w.session.Lock(ctx, keys[i])
				if err != nil {
					failed.CompareAndSwap(nil, &err)
					return
				}
				got[i] = u
			}
		})
	}
	wg.Wait()
	w.held = slices.DeleteFunc(got, func(u Unlocker) bool { return u == nil })
	if e := failed.Load(); e != nil {
		return *e
	}
	return nil
}

// wait starts N goroutines that wait for a key that somebody else holds.
func (w *worker) wait(limit context.Context, o order) error {
	ctx, cancel := context.WithCancel(context.Background())
	w.cancel = cancel
	failed := make(chan error, o.N)
	for range o.N {
		w.waiting.Go(func() {
			u, err := w.session.Lock(ctx, o.Key)
			switch {
			case err == nil:
				failed <- errors.New("a waiter got a lock that is held")
				u.Unlock()
			case ctx.Err() == nil:
				failed <- err
			}
		})
	}
	select { // a client that cannot have so many waiters says so soon
	case err := <-failed:
		return err
	case <-limit.Done():
	case <-time.After(o.For):
	}
	return nil
}

func (w *worker) leave() {
	if w.cancel != nil {
		w.cancel()
	}
	var wg sync.WaitGroup
	for g := range min(64, len(w.held)) {
		wg.Go(func() {
			for i := g; i < len(w.held); i += 64 {
				w.held[i].Unlock()
			}
		})
	}
	wg.Wait()
	w.held = nil
}

// stand samples for d.
func (w *worker) stand(d time.Duration) standing {
	s := standing{CPU: cpu(), Calls: w.calls()}
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	s.Heap, s.Stack = int64(m.HeapAlloc), int64(m.StackInuse)
	samples := []int{runtime.NumGoroutine()}
	for end := time.Now().Add(d); time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond)
		samples = append(samples, runtime.NumGoroutine())
	}
	slices.Sort(samples)
	s.Goroutines = samples[len(samples)/2]
	return s
}

func (w *worker) calls() int64 {
	if w.session.Calls == nil {
		return -1
	}
	return w.session.Calls()
}
