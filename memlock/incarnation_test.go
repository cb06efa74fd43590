package memlock

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

func TestWipe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New()
		other := d.Share()
		id, age, err := d.Incarnation(t.Context())
		if err != nil || id == "" || age < 100*365*24*time.Hour {
			t.Fatalf("a new store: got %q, %v, %v", id, age, err)
		}
		if same, _, _ := other.Incarnation(t.Context()); same != id {
			t.Errorf("another driver of the store says %q, want %q", same, id)
		}
		if foreign, _, _ := New().Incarnation(t.Context()); foreign == id {
			t.Error("two stores have the same id")
		}

		a := ask(t, d, driver.Exclusive, "n").get(t)
		b := ask(t, other, driver.Exclusive, "n", waits)
		b.refused(t)
		d.Wipe()
		if err := d.Release(t.Context(), a.Hold, driver.End{}); !errors.Is(err, driver.ErrNotHeld) {
			t.Errorf("Release of a forgotten hold: got %v, want ErrNotHeld", err)
		}
		a.hears(t, driver.Wanted) // from before; nobody is told of a loss
		b.get(t)
		time.Sleep(3 * time.Second)
		again, age, err := other.Incarnation(t.Context())
		if err != nil || again == id || age != 3*time.Second {
			t.Errorf("after three seconds of a new life: got %q (it was %q), %v, %v", again, id, age, err)
		}
		release(t, other, b)
		empty(t, d)
	})
}
