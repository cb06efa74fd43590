package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/redislock"
)

type plan struct {
	rounds     int
	per        time.Duration
	goroutines int
	leases     int
	watch      time.Duration // how long the held leases are watched
}

type result struct {
	Hot   []hot   `json:"hot_key"`
	Ratio float64 `json:"hot_key_ratio"` // of the medians of cycles per second, pawl to classic
	Held  held    `json:"held"`
}

// hot is one client on the hot key: medians over the rounds.
type hot struct {
	Client            string  `json:"client"`
	CyclesPerSecond   float64 `json:"cycles_per_s"`
	Lowest            float64 `json:"lowest"`
	Highest           float64 `json:"highest"`
	CommandsPerCycle  float64 `json:"commands_per_cycle"`
	Jain              float64 `json:"jain"` // fairness over the goroutines: 1 is equal, 1/n is one for all
	StarvedGoroutines int     `json:"starved_goroutines"`
}

type held struct {
	Leases              int     `json:"leases"`
	RenewalCommandsPerS float64 `json:"renewal_commands_per_s"`
	Goroutines          int     `json:"goroutines_above_idle"` // the median of samples
	MostGoroutines      int     `json:"most_goroutines_above_idle"`
	HeapBytesPerLease   float64 `json:"heap_bytes_per_lease"`
	TakenPerSecond      float64 `json:"taken_per_s"`
	Lost                int64   `json:"lost"`
}

func run(ctx context.Context, p plan, progress io.Writer) (*result, error) {
	s, err := startServer(ctx)
	if err != nil {
		return nil, err
	}
	defer s.stop()
	c1, err := s.client()
	if err != nil {
		return nil, err
	}
	defer c1.Close()
	c2, err := s.client()
	if err != nil {
		return nil, err
	}
	defer c2.Close()
	locks := pawl.New(redislock.New(c1, nil))
	defer locks.Close()
	plain := newClassic(c2)
	clients := []struct {
		name  string
		cycle func(ctx context.Context, key string) error
	}{
		{"pawl", func(ctx context.Context, key string) error {
			l, err := locks.Mutex(key).Lock(ctx)
			if err != nil {
				return err
			}
			return l.Unlock()
		}},
		{"SET NX PX, polled every 10 ms", plain.cycle},
	}
	rounds := make([][]hot, len(clients))
	for i := range p.rounds {
		for j, c := range clients {
			fmt.Fprintf(progress, "round %d of %d: %s\n", i+1, p.rounds, c.name)
			// A key of its own for each round: what the plain lock won with a request that was cut off at the end of one, it
			// never gives back.
			key := fmt.Sprintf("bench:hot:%d:%d", j, i)
			h, err := hotRound(ctx, s, p, func(ctx context.Context) error { return c.cycle(ctx, key) })
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
			h.Client = c.name
			rounds[j] = append(rounds[j], h)
		}
	}
	r := &result{}
	for _, hs := range rounds {
		r.Hot = append(r.Hot, median(hs))
	}
	r.Ratio = r.Hot[0].CyclesPerSecond / r.Hot[1].CyclesPerSecond
	fmt.Fprintf(progress, "%d leases held\n", p.leases)
	r.Held, err = heldRound(ctx, s, p)
	return r, err
}

func hotRound(ctx context.Context, s *server, p plan, cycle func(context.Context) error) (hot, error) {
	before, err := s.commands(ctx)
	if err != nil {
		return hot{}, err
	}
	counts := make([]int64, p.goroutines)
	var failed atomic.Pointer[error]
	ctx, stop := context.WithTimeout(ctx, p.per)
	defer stop()
	var wg sync.WaitGroup
	start := time.Now()
	for i := range counts {
		wg.Go(func() {
			for ctx.Err() == nil {
				switch err := cycle(ctx); {
				case err == nil:
					counts[i]++
				case ctx.Err() == nil: // at the end of the round a request is cut off, in whatever words
					failed.CompareAndSwap(nil, &err)
					return
				}
			}
		})
	}
	<-ctx.Done()
	took := time.Since(start)
	wg.Wait()
	if e := failed.Load(); e != nil {
		return hot{}, *e
	}
	after, err := s.commands(context.WithoutCancel(ctx))
	if err != nil {
		return hot{}, err
	}
	h := hot{}
	var sum, squares float64
	for _, n := range counts {
		if n == 0 {
			h.StarvedGoroutines++
		}
		sum += float64(n)
		squares += float64(n) * float64(n)
	}
	if sum == 0 {
		return h, errors.New("no cycle was finished")
	}
	h.CyclesPerSecond = sum / took.Seconds()
	h.CommandsPerCycle = float64(after-before) / sum
	h.Jain = sum * sum / (float64(len(counts)) * squares)
	return h, nil
}

func median(hs []hot) hot {
	of := func(f func(hot) float64) []float64 {
		var xs []float64
		for _, h := range hs {
			xs = append(xs, f(h))
		}
		slices.Sort(xs)
		return xs
	}
	cycles := of(func(h hot) float64 { return h.CyclesPerSecond })
	mid := len(hs) / 2
	return hot{
		Client: hs[0].Client, CyclesPerSecond: cycles[mid], Lowest: cycles[0], Highest: cycles[len(cycles)-1],
		CommandsPerCycle:  of(func(h hot) float64 { return h.CommandsPerCycle })[mid],
		Jain:              of(func(h hot) float64 { return h.Jain })[mid],
		StarvedGoroutines: int(of(func(h hot) float64 { return float64(h.StarvedGoroutines) })[mid]),
	}
}

// heldRound takes many leases of the default TTL and watches what keeping them alive costs, over one TTL.
func heldRound(ctx context.Context, s *server, p plan) (held, error) {
	client, err := s.client()
	if err != nil {
		return held{}, err
	}
	defer client.Close()
	var lost atomic.Int64
	locks := pawl.New(redislock.New(client, nil))
	defer locks.Close()
	first, err := locks.Mutex("bench:held:first").Lock(ctx) // connects, loads scripts
	if err != nil {
		return held{}, err
	}
	defer first.Unlock()
	leases := make([]*pawl.Lease, p.leases)
	idle, heap := runtime.NumGoroutine(), heapInUse()
	start := time.Now()
	var wg sync.WaitGroup
	errs := make(chan error, 64)
	for w := range 64 {
		wg.Go(func() {
			for i := w; i < len(leases); i += 64 {
				l, err := locks.Mutex("bench:held:" + strconv.Itoa(i)).Lock(ctx)
				if err != nil {
					errs <- err
					return
				}
				leases[i] = l
			}
		})
	}
	wg.Wait()
	took := time.Since(start)
	select {
	case err := <-errs:
		return held{}, err
	default:
	}
	h := held{Leases: p.leases, TakenPerSecond: float64(p.leases) / took.Seconds()}
	time.Sleep(100 * time.Millisecond)
	h.HeapBytesPerLease = float64(heapInUse()-heap) / float64(p.leases)
	before, err := s.commands(ctx)
	if err != nil {
		return h, err
	}
	t := time.NewTimer(p.watch)
	defer t.Stop()
	watch := time.Now()
	var goroutines []int
	for sample := time.NewTicker(100 * time.Millisecond); ; {
		select {
		case <-ctx.Done():
			return h, context.Cause(ctx)
		case <-sample.C:
			goroutines = append(goroutines, runtime.NumGoroutine()-idle)
			continue
		case <-t.C:
			sample.Stop()
		}
		break
	}
	slices.Sort(goroutines)
	if n := len(goroutines); n > 0 {
		h.Goroutines, h.MostGoroutines = goroutines[n/2], goroutines[n-1]
	}
	after, err := s.commands(ctx)
	if err != nil {
		return h, err
	}
	h.RenewalCommandsPerS = float64(after-before) / time.Since(watch).Seconds()
	for i := range 64 {
		wg.Go(func() {
			for j := i; j < len(leases); j += 64 {
				if leases[j].Unlock() != nil {
					lost.Add(1)
				}
			}
		})
	}
	wg.Wait()
	h.Lost = lost.Load()
	return h, nil
}

func heapInUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func (r *result) print(w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "one hot key\tcycles/s\tlowest\thighest\tcommands/cycle\tJain\tstarved\t")
	for _, h := range r.Hot {
		fmt.Fprintf(t, "%s\t%.0f\t%.0f\t%.0f\t%.3f\t%.3f\t%d\t\n", h.Client, h.CyclesPerSecond, h.Lowest, h.Highest, h.CommandsPerCycle, h.Jain, h.StarvedGoroutines)
	}
	t.Flush()
	fmt.Fprintf(w, "ratio %.0f\n\n", r.Ratio)
	fmt.Fprintf(w, "%d leases held for one TTL: %.1f renewal commands/s, %d goroutines (at most %d, while it renews), %.0f heap bytes each, taken at %.0f/s, %d lost\n",
		r.Held.Leases, r.Held.RenewalCommandsPerS, r.Held.Goroutines, r.Held.MostGoroutines, r.Held.HeapBytesPerLease, r.Held.TakenPerSecond, r.Held.Lost)
}
