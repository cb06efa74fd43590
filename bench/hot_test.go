package main

import (
	"context"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/redislock"
)

// BenchmarkHotKey is for profiles: 1,000 goroutines on one key of one client.
func BenchmarkHotKey(b *testing.B) {
	s, err := startServer(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	defer s.stop()
	client, err := s.client()
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	locks := pawl.New(redislock.New(client, nil))
	defer locks.Close()
	per := b.N/1000 + 1
	b.ReportAllocs()
	b.ResetTimer()
	var wg sync.WaitGroup
	for range 1000 {
		wg.Go(func() {
			for range per {
				l, err := locks.Mutex("hot").Lock(context.Background())
				if err != nil {
					b.Error(err)
					return
				}
				if err := l.Unlock(); err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

// TestRun runs the whole comparison in a small form, and checks what does not depend on the machine's speed.
func TestRun(t *testing.T) {
	r, err := run(t.Context(), plan{rounds: 1, per: 300 * time.Millisecond, goroutines: 50, leases: 200, watch: time.Second}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Hot) != 2 || r.Hot[0].CyclesPerSecond <= 0 || r.Hot[1].CyclesPerSecond <= 0 {
		t.Errorf("hot key: %+v", r.Hot)
	}
	if c := r.Hot[0].CommandsPerCycle; c <= 0 || c > 0.5 {
		t.Errorf("pawl sent %.3f commands a cycle on a hot key", c)
	}
	if r.Held.Lost != 0 || r.Held.Leases != 200 {
		t.Errorf("held: %+v", r.Held)
	}
}
