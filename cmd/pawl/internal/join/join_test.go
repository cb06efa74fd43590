//go:build linux

package join

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func offer(t *testing.T, store, name string, until int64) *Offer {
	t.Helper()
	o, err := New(store, name, Facts{Mode: "exclusive", Hold: "h:" + name, Token: 7, TTL: 30000}, until)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.Close)
	return o
}

func find(t *testing.T, store, name string) *Turn {
	t.Helper()
	turn, err := Find(store, name)
	if err != nil || turn == nil {
		t.Fatalf("Find: %v, %v", turn, err)
	}
	t.Cleanup(turn.Close)
	return turn
}

func TestOffersOfSeveralLocks(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	t.Setenv(Variable, "")
	outer := offer(t, "redis", "x", 100)
	t.Setenv(Variable, outer.Environ())
	inner := offer(t, "redis", "y\xff", 200)
	t.Setenv(Variable, inner.Environ())

	if x := find(t, "redis", "x"); x.Until() != 100 || x.Hold != "h:x" || x.Token != 7 || x.TTL != 30000 {
		t.Errorf("x: %+v until %d", x.Facts, x.Until())
	}
	if y := find(t, "redis", "y\xff"); y.Until() != 200 {
		t.Errorf("y: until %d", y.Until())
	}
	for _, other := range [][2]string{{"redis", "z"}, {"etcd", "x"}, {"redis", "y"}, {"redi", "sx"}} {
		if turn, err := Find(other[0], other[1]); turn != nil || err != nil {
			t.Errorf("%q: got %v, %v, want none", other, turn, err)
		}
	}
	if !Holds("h:x") || Holds("h:z") {
		t.Error("Holds: want h:x and not h:z")
	}
	for path := range strings.SplitSeq(os.Getenv(Variable), ":") {
		if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v, want a file of mode 0600", fi, err)
		}
	}
	outer.Close()
	if _, err := Find("redis", "x"); !errors.Is(err, ErrOver) {
		t.Errorf("after Close: %v, want ErrOver", err)
	}
	if left, _ := filepath.Glob(filepath.Join(os.TempDir(), "*")); len(left) != 1 {
		t.Errorf("files %v, want the one of y", left)
	}
}

func TestTurns(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	t.Setenv(Variable, "")
	o := offer(t, "s", "x", 100)
	t.Setenv(Variable, o.Environ())
	a, b, c := find(t, "s", "x"), find(t, "s", "x"), find(t, "s", "x")
	if !a.Take(true) || !b.Take(true) || c.Take(false) {
		t.Error("want two readers and no writer")
	}
	if o.Alone() {
		t.Error("alone with two readers")
	}
	a.Close()
	if b.Close(); !c.Take(false) {
		t.Error("want the writer in after the readers")
	}
	if o.Alone() {
		t.Error("alone with a writer")
	}
	c.Close()
	late := find(t, "s", "x")
	if !o.Alone() || late.Take(true) || late.Take(false) {
		t.Error("want the holder alone, and nobody let in after it")
	}
}

// A reader never sees half of a stamp, and nothing moves it back, or away from 0.
func TestStamps(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	t.Setenv(Variable, "")
	o := offer(t, "s", "x", 1)
	t.Setenv(Variable, o.Environ())
	turn := find(t, "s", "x")
	const step = 1_111_111_111_111
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range int64(2000) {
			o.Extend((i + 1) * step)
		}
	})
	for last := int64(1); last < 2000*step; {
		now := turn.Until()
		if now < last || now != 1 && now%step != 0 {
			t.Fatalf("%d after %d", now, last)
		}
		last = now
	}
	wg.Wait()
	o.Extend(5)
	if got := turn.Until(); got != 2000*step {
		t.Errorf("moved back to %d", got)
	}
	o.Extend(0)
	o.Extend(9000 * step)
	if got := turn.Until(); got != 0 {
		t.Errorf("over, but %d", got)
	}
}

func TestNoOffer(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, prefix+key("s", "x")+"-1")
	if err := os.WriteFile(file, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(Variable, file)
	if turn, err := Find("s", "x"); turn != nil || err == nil || errors.Is(err, ErrOver) {
		t.Errorf("%v, %v, want an error", turn, err)
	}
	t.Setenv("TMPDIR", dir+":"+dir)
	if o, err := New("s", "x", Facts{}, 1); err == nil {
		o.Close()
		t.Error("a folder that cannot be in the list: want an error")
	}
}
