package driver

import (
	"sync"
	"testing"
	"time"
)

// The cheap clock is CLOCK_BOOTTIME, and never runs backwards, however many read it.
func TestNowIsBoottime(t *testing.T) {
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			last := Now()
			for range 20_000 {
				before := Instant(boottime())
				now := Now()
				after := Instant(boottime())
				switch {
				case now < last:
					t.Errorf("Now went back by %v", last.Sub(now))
					return
				case now > after:
					t.Errorf("Now is %v ahead of CLOCK_BOOTTIME", now.Sub(after))
					return
				case now < before.Add(-time.Second): // how long a busy machine may keep a goroutine between two readings
					t.Errorf("Now is %v behind CLOCK_BOOTTIME", before.Sub(now))
					return
				}
				last = now
			}
		})
	}
	wg.Wait()
}

// A suspend, which stops the monotonic clock alone, is seen within lookAgain of running time.
func TestSuspendIsSeen(t *testing.T) {
	up, slept := time.Hour, int64(5)
	boot := func() int64 { return int64(up) + slept }
	mono := func() time.Duration { return up }
	var s suspended
	read := func() Instant { return s.instant(up, boot, mono) }

	if got, want := read(), Instant(int64(up)+5); got != want {
		t.Fatalf("got %d, want %d", got, want)
	}
	slept += int64(time.Minute)
	up += lookAgain - 1
	if got, want := read(), Instant(int64(up)+5); got != want {
		t.Fatalf("within lookAgain: got %d, want %d", got, want)
	}
	up++
	if got, want := read(), Instant(boot()); got != want {
		t.Fatalf("after lookAgain: got %d, want %d: the suspend was not seen", got, want)
	}
	slept -= 3 // as if this goroutine had been preempted between two readings
	up += lookAgain
	if got, want := read(), Instant(boot()+3); got != want {
		t.Fatalf("a blunt reading counts: got %d, want %d", got, want)
	}
}

func BenchmarkNow(b *testing.B) {
	for b.Loop() {
		Now()
	}
}
