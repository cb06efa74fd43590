package torture_test

import (
	"testing"
	"time"

	"github.com/pawl-lock/pawl"
)

// What the state machine or a look at the code has found, as small as it gets.

// The tokens of a hold that had been handed on were given out again after a steal.
func TestStealKeepsTokensRising(t *testing.T) {
	bubble(t, func(w *world) {
		a, _ := w.process(pawl.Options{Linger: time.Second})
		b, _ := w.process()
		var last int64
		for range 5 { // one grant of the store, five tokens
			l := w.must(a.Mutex("x"))
			last = l.Token()
			l.Unlock()
		}
		i, err := b.Inspect(t.Context(), "x")
		if err != nil || len(i.Holders) != 1 {
			t.Fatalf("holders %v, %v", i.Holders, err)
		}
		if err := b.Steal(t.Context(), "x", i.Holders[0]); err != nil {
			t.Fatal(err)
		}
		l := w.must(b.Mutex("x"))
		if l.Token() <= last {
			t.Errorf("token %d after %d", l.Token(), last)
		}
		l.Unlock()
	})
}
