package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// process is a worker as its parent sees it. It is for one goroutine.
type process struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	orders  *json.Encoder
	answers chan answer // closed when the process ends
	errs    tail
	timeout time.Duration
}

// tail keeps the end of what a process prints.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if n := len(t.buf) - 2000; n > 0 {
		t.buf = bytes.Clone(t.buf[n:])
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.buf))
}

// start runs a worker and connects its client.
func (p *Plan) start(ctx context.Context, t Target, c Case, key string) (*process, error) {
	w := &process{cmd: exec.Command(p.Worker[0], p.Worker[1:]...), answers: make(chan answer, 2), timeout: p.Timeout}
	w.cmd.Stderr = &w.errs
	in, err := w.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := w.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a worker: %w", err)
	}
	w.in, w.orders = in, json.NewEncoder(in)
	go func() {
		defer close(w.answers)
		for d := json.NewDecoder(out); ; {
			var a answer
			if d.Decode(&a) != nil {
				return
			}
			w.answers <- a
		}
	}()
	if _, err := w.ask(ctx, order{Op: "open", Client: t.Client, URL: t.URL, Case: c, Key: key}); err != nil {
		w.end()
		return nil, err
	}
	return w, nil
}

// tell sends an order; its answer is to be read.
func (w *process) tell(o order) error {
	o.Timeout = w.timeout
	if err := w.orders.Encode(o); err != nil {
		return w.died()
	}
	return nil
}

// read waits for an answer, for d more than the timeout at most.
func (w *process) read(ctx context.Context, d time.Duration) (answer, error) {
	limit := time.NewTimer(w.timeout + d + 2*time.Second)
	defer limit.Stop()
	select {
	case a, ok := <-w.answers:
		switch {
		case !ok:
			return a, w.died()
		case a.None:
			return a, ErrNone
		case a.Err != "":
			return a, errors.New(a.Err)
		}
		return a, nil
	case <-limit.C:
		return answer{}, errors.New("no answer in time")
	case <-ctx.Done():
		return answer{}, context.Cause(ctx)
	}
}

func (w *process) ask(ctx context.Context, o order) (answer, error) {
	if err := w.tell(o); err != nil {
		return answer{}, err
	}
	return w.read(ctx, o.For)
}

func (w *process) died() error {
	if text := w.errs.String(); text != "" {
		first, _, _ := strings.Cut(text, "\n")
		return fmt.Errorf("the worker ended: %s", first)
	}
	return errors.New("the worker ended")
}

// end stops the worker. What it holds is its TTL's.
func (w *process) end() {
	w.in.Close()
	quit := time.AfterFunc(100*time.Millisecond, func() { w.cmd.Process.Kill() })
	defer quit.Stop()
	for range w.answers { // until its output ends
	}
	w.cmd.Wait()
}
