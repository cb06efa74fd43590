package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// sample is what one round of one client showed. A measure that it does not have is missing.
type sample map[string]float64

// runner measures one client in one case.
type runner struct {
	*Plan
	t     Target
	c     Case
	count counter
	key   string
}

// measure runs one round.
func (r *runner) measure(ctx context.Context) (sample, error) {
	switch r.c.Kind {
	case Cycles:
		return r.cycles(ctx, "", false)
	case Handover:
		return r.handover(ctx)
	case Idle:
		return r.idle(ctx)
	case Held:
		return r.held(ctx)
	}
	return nil, fmt.Errorf("case %q: unknown kind %q", r.c.Name, r.c.Kind)
}

func (r *runner) open(ctx context.Context, n int) ([]*process, func(), error) {
	all := make([]*process, n)
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() { all[i], errs[i] = r.start(ctx, r.t, r.c, fmt.Sprintf("%s:first:%d", r.key, i)) })
	}
	wg.Wait()
	end := func() {
		for _, w := range all {
			if w != nil {
				wg.Go(w.end)
			}
		}
		wg.Wait()
	}
	for _, err := range errs {
		if err != nil {
			end()
			return nil, nil, err
		}
	}
	return all, end, nil
}

func (r *runner) length() time.Duration { return max(r.For, r.c.For) }

// cycles lets all processes begin at one instant, and reads the store's counters when the warm-up and the time are over.
func (r *runner) cycles(ctx context.Context, profile string, block bool) (sample, error) {
	ws, end, err := r.open(ctx, r.c.Processes)
	if err != nil {
		return nil, err
	}
	defer end()
	n := r.c.Goroutines / r.c.Processes
	key := func(i int) string {
		if r.c.Own {
			return fmt.Sprintf("%s:%d", r.key, i)
		}
		return r.key
	}
	if r.c.Own && r.c.Keys == 0 { // what the first use of a name costs is another question
		for i, w := range ws {
			if _, err := w.ask(ctx, order{Op: "prime", Key: key(i), N: n}); err != nil {
				return nil, err
			}
		}
	}
	at := now() + int64(50*time.Millisecond)
	for i, w := range ws {
		o := order{Op: "run", Key: key(i), N: n, At: at, Warmup: r.Warmup, For: r.length(), Block: block}
		if profile != "" && i == 0 {
			o.Profile = profile
		}
		if err := w.tell(o); err != nil {
			return nil, err
		}
	}
	if err := sleepUntil(ctx, at+int64(r.Warmup)); err != nil {
		return nil, err
	}
	before, err := r.count.read(ctx)
	if err != nil {
		return nil, err
	}
	if a, err := ws[0].read(ctx, r.Warmup+r.length()); err != nil {
		return nil, err
	} else if !a.Ended {
		return nil, errors.New("a worker said something else")
	}
	after, err := r.count.read(ctx)
	if err != nil {
		return nil, err
	}
	times := newTimes()
	var counts, shares []float64
	var total, used, calls, pending float64
	s := sample{}
	for i, w := range ws {
		a, err := w.read(ctx, r.Warmup+r.length())
		if err == nil && a.Ended {
			a, err = w.read(ctx, 0)
		}
		if err != nil {
			return nil, err
		}
		c := a.Cycle
		times.Merge(hdrhistogram.Import(c.Times))
		sum := 0.0
		for _, n := range c.Counts {
			counts = append(counts, float64(n))
			sum += float64(n)
		}
		shares = append(shares, sum)
		total += sum
		if c.CPU < 0 || i > 0 && used < 0 {
			used = -1
		} else {
			used += float64(c.CPU)
		}
		if c.Calls < 0 {
			calls = -1
		} else {
			calls += float64(c.Calls)
		}
		pending = max(pending, float64(c.Pending))
	}
	s["cycles_per_s"] = total / r.length().Seconds()
	if total == 0 { // which is a result
		s["max_us"], s["starved"] = pending/1e3, float64(len(counts))
		return s, nil
	}
	s["p50_us"] = float64(times.ValueAtQuantile(50)) / 1e3
	s["p99_us"] = float64(times.ValueAtQuantile(99)) / 1e3
	s["p999_us"] = float64(times.ValueAtQuantile(99.9)) / 1e3
	s["mean_us"] = times.Mean() / 1e3
	s["max_us"] = max(float64(times.Max()), pending) / 1e3 // a cycle that has not even ended is no shorter
	if len(counts) > 1 && !r.c.Own {
		s["jain"] = jain(counts)
		s["starved"] = 0
		for _, n := range counts {
			if n == 0 {
				s["starved"]++
			}
		}
	}
	if len(shares) > 1 {
		s["jain_processes"] = jain(shares)
		low, high := shares[0], shares[0]
		for _, n := range shares {
			low, high = min(low, n), max(high, n)
		}
		s["lowest_share"], s["highest_share"] = low/total, high/total
	}
	if used >= 0 {
		s["client_cpu_us_per_cycle"] = used / 1e3 / total
	}
	r.counted(s, before, after, total)
	if _, ok := s["commands_per_cycle"]; !ok && calls >= 0 {
		s["commands_per_cycle"] = calls / total
	}
	return s, nil
}

// jain is the fairness index of Jain, Chiu and Hawe (1984): 1 is equal, 1/n is one for all.
func jain(xs []float64) float64 {
	var sum, squares float64
	for _, x := range xs {
		sum += x
		squares += x * x
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / (float64(len(xs)) * squares)
}

// counted enters what the store counted.
func (r *runner) counted(s sample, before, after counts, cycles float64) {
	if before.commands >= 0 && after.commands >= 0 {
		s["commands_per_cycle"] = float64(after.commands-before.commands) / cycles
	}
	if before.bytes >= 0 && after.bytes >= 0 {
		s["bytes_per_cycle"] = float64(after.bytes-before.bytes) / cycles
	}
	if before.cpu >= 0 && after.cpu >= 0 {
		s["server_cpu_us_per_cycle"] = float64(after.cpu-before.cpu) / 1e3 / cycles
	}
}

// handover lets a lock go to and fro between two processes. Each time one of them waits, the other unlocks: from then until
// the first one has it is a hand-over.
func (r *runner) handover(ctx context.Context) (sample, error) {
	ws, end, err := r.open(ctx, 2)
	if err != nil {
		return nil, err
	}
	defer end()
	lock := order{Op: "lock", Key: r.key}
	has, waits := ws[0], ws[1]
	if _, err := has.ask(ctx, lock); err != nil {
		return nil, err
	}
	before, err := r.count.read(ctx)
	if err != nil {
		return nil, err
	}
	times := newTimes()
	for end := time.Now().Add(r.length()); time.Now().Before(end) || times.TotalCount() < 3; {
		if err := waits.tell(lock); err != nil {
			return nil, err
		}
		// Long enough to be in line; never in step with somebody's polls.
		if err := pause(ctx, 15*time.Millisecond+rand.N(20*time.Millisecond)); err != nil {
			return nil, err
		}
		gone, err := has.ask(ctx, order{Op: "unlock"})
		if err != nil {
			return nil, err
		}
		got, err := waits.read(ctx, 0)
		if err != nil {
			return nil, err
		}
		times.RecordValue(max(got.At-gone.At, 0))
		has, waits = waits, has
	}
	after, err := r.count.read(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := has.ask(ctx, order{Op: "unlock"}); err != nil {
		return nil, err
	}
	s := sample{
		"p50_us": float64(times.ValueAtQuantile(50)) / 1e3, "p99_us": float64(times.ValueAtQuantile(99)) / 1e3,
		"p999_us": float64(times.ValueAtQuantile(99.9)) / 1e3, "max_us": float64(times.Max()) / 1e3, "mean_us": times.Mean() / 1e3,
		"cycles": float64(times.TotalCount()),
	}
	r.counted(s, before, after, float64(times.TotalCount()))
	return s, nil
}

// settled is how long a process gets to come to rest before it is looked at.
const settled = time.Second

// rest is what a process that does nothing costs over d.
func (r *runner) rest(ctx context.Context, w *process, s sample, d time.Duration) (standing, error) {
	before, err := r.count.read(ctx)
	if err != nil {
		return standing{}, err
	}
	from := time.Now()
	// Standing collects garbage at its beginning: the CPU is that between two of them.
	a, err := w.ask(ctx, order{Op: "stand", For: d})
	if err != nil {
		return standing{}, err
	}
	after, err := r.count.read(ctx)
	took := time.Since(from).Seconds()
	if err != nil {
		return standing{}, err
	}
	b, err := w.ask(ctx, order{Op: "stand"})
	if err != nil {
		return standing{}, err
	}
	if after.commands >= 0 {
		s["commands_per_s"] = float64(after.commands-before.commands) / took
	} else if a.Stat.Calls >= 0 {
		s["commands_per_s"] = float64(b.Stat.Calls-a.Stat.Calls) / took
	}
	if after.bytes >= 0 {
		s["bytes_per_s"] = float64(after.bytes-before.bytes) / took
	}
	if b.Stat.CPU >= 0 {
		s["client_cpu_ms_per_s"] = float64(b.Stat.CPU-a.Stat.CPU) / 1e6 / took
	}
	return *a.Stat, nil
}

// idle watches many waiters for a lock that another process holds.
func (r *runner) idle(ctx context.Context) (sample, error) {
	ws, end, err := r.open(ctx, 2)
	if err != nil {
		return nil, err
	}
	defer end()
	holder, w := ws[0], ws[1]
	if _, err := holder.ask(ctx, order{Op: "lock", Key: r.key}); err != nil {
		return nil, err
	}
	base, err := w.ask(ctx, order{Op: "stand", For: 200 * time.Millisecond})
	if err != nil {
		return nil, err
	}
	if _, err := w.ask(ctx, order{Op: "wait", Key: r.key, N: r.c.Goroutines, For: settled}); err != nil {
		return nil, err
	}
	s := sample{}
	stat, err := r.rest(ctx, w, s, r.length())
	if err != nil {
		return nil, err
	}
	n := float64(r.c.Goroutines)
	s["goroutines_per_item"] = float64(stat.Goroutines-base.Stat.Goroutines)/n - 1 // besides the caller's
	s["heap_bytes_per_item"] = float64(stat.Heap-base.Stat.Heap) / n
	s["stack_bytes_per_item"] = float64(stat.Stack-base.Stat.Stack) / n
	if _, err := w.ask(ctx, order{Op: "leave"}); err != nil {
		return nil, err
	}
	_, err = holder.ask(ctx, order{Op: "unlock"})
	return s, err
}

// held watches many leases.
func (r *runner) held(ctx context.Context) (sample, error) {
	ws, end, err := r.open(ctx, 1)
	if err != nil {
		return nil, err
	}
	defer end()
	w := ws[0]
	// The first lease starts what all share.
	for _, op := range []order{{Op: "keys", Key: r.key + ":one", N: 1}, {Op: "hold"}, {Op: "keys", Key: r.key, N: r.c.Goroutines}} {
		if _, err := w.ask(ctx, op); err != nil {
			return nil, err
		}
	}
	base, err := w.ask(ctx, order{Op: "stand", For: 200 * time.Millisecond})
	if err != nil {
		return nil, err
	}
	if _, err := w.ask(ctx, order{Op: "hold"}); err != nil {
		return nil, err
	}
	if err := pause(ctx, settled); err != nil {
		return nil, err
	}
	s := sample{}
	stat, err := r.rest(ctx, w, s, r.length())
	if err != nil {
		return nil, err
	}
	n := float64(r.c.Goroutines)
	s["goroutines_per_item"] = float64(stat.Goroutines-base.Stat.Goroutines) / n
	s["heap_bytes_per_item"] = float64(stat.Heap-base.Stat.Heap) / n
	_, err = w.ask(ctx, order{Op: "leave"})
	return s, err
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func sleepUntil(ctx context.Context, at int64) error { return pause(ctx, time.Duration(at-now())) }
