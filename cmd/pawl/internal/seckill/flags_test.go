package seckill

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestBadFlags(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args string
		want string
	}{
		{"--buyers 0", "--buyers 0: it takes 1 to 10000000"},
		{"--buyers -5", "--buyers -5: it takes"},
		{"--buyers 10000001", "--buyers 10000001: it takes"},
		{"--buyers many", `invalid argument "many"`},
		{"--stock 0", "--stock 0: it takes"},
		{"--stock -1", "--stock -1: it takes"},
		{"--servers 0", "--servers 0: it takes 1 to 64"},
		{"--servers 65", "--servers 65: it takes"},
		{"--rate -1", "--rate -1: it takes buyers per second"},
		{"--rate NaN", "--rate NaN: it takes"},
		{"--rate +Inf", "--rate +Inf: it takes"},
		{"--rate 1e-9", "--rate 1e-09: it takes"},
		{"--seed -1", "invalid argument"},
		{"--strategy hope", `unknown strategy "hope": there are none, process-mutex, setnx-del, row-update, lock, lock-wait, striped, lock-paused, lock+token`},
		{"--strategy lock,", `unknown strategy ""`},
		{"--backend gopher://user:geheim@host", "--backend: unknown backend"},
		{"--backend mem:", "--backend: mem lives in one process"},
		{"--backend host:6379/geheim", "--backend: "},
		{"--backend postgres://u:geheim@host/d?layout=plain", "leave layout= out"},
		{"--html " + dir, "not a regular file"},
		{"--html " + filepath.Join(dir, "no", "page.html"), "cannot write there: no such file or directory"},
		{"--html " + filepath.Join(file, "page.html"), "cannot write there"},
		{"--color", "unknown flag: --color"},
		{"now", `unexpected argument "now"`},
	} {
		t.Run(c.args, func(t *testing.T) {
			o := program(t, strings.Fields(c.args)...)
			if o.code != codeUsage || !strings.HasPrefix(o.stderr, "pawl: seckill: ") || !strings.Contains(o.stderr, c.want) {
				t.Errorf("exit code %d, stderr %q, want %d and %q", o.code, o.stderr, codeUsage, c.want)
			}
			if strings.Count(o.stderr, "\n") != 1 || strings.Contains(o.stderr, "geheim") || o.stdout != "" {
				t.Errorf("want one line without secrets, and nothing on stdout: %q, %q", o.stderr, o.stdout)
			}
		})
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("got %v, want only the file of the test", left)
	}
}

func TestUnusableStore(t *testing.T) {
	t.Parallel()
	o := program(t, "--backend", "sqlite://"+filepath.Join(t.TempDir(), "missing", "locks.db"), "--strategy", "lock")
	if o.code != codeUnavailable || !strings.Contains(o.stderr, "lock store: ") {
		t.Errorf("a missing folder: exit code %d, %q", o.code, o.stderr)
	}
	o = program(t, "--backend", "redis://user:geheim@127.0.0.1:1", "--strategy", "setnx-del")
	if o.code != codeUnavailable || !strings.Contains(o.stderr, "lock store: ") || strings.Contains(o.stderr, "geheim") {
		t.Errorf("nobody listens: exit code %d, %q", o.code, o.stderr)
	}
}

func TestSameSeedSameBuyers(t *testing.T) {
	o := options{buyers: 5000, seed: 42, rate: 1000}
	a, b := clicks(&o), clicks(&o)
	o.seed = 43
	c := clicks(&o)
	if len(a) != len(b) {
		t.Fatalf("got %d and %d clicks", len(a), len(b))
	}
	twice, differ := map[uint32]int{}, len(a) != len(c)
	for i := range a {
		if a[i] != b[i] {
			t.Fatalf("click %d: got %v and %v", i, a[i], b[i])
		}
		differ = differ || a[i] != c[i]
		twice[a[i].buyer]++
		if i > 0 && a[i].at < a[i-1].at {
			t.Fatalf("click %d comes before the one before it", i)
		}
	}
	if !differ {
		t.Error("another seed made the same buyers")
	}
	if len(twice) != 5000 {
		t.Errorf("got %d buyers, want 5000", len(twice))
	}
	if extra := len(a) - 5000; extra < 75 || extra > 300 {
		t.Errorf("%d of 5000 buyers press twice, want about 150", extra)
	}
	if last := a[len(a)-1].at.Seconds(); last < 4 || last > 6 {
		t.Errorf("5000 buyers at 1000 a second come within %.1f s, want about 5", last)
	}
}

func TestPauseLevels(t *testing.T) {
	for stock, want := range map[int][]int{1: {1}, 2: {1}, 4: {3, 2, 1}, 100: {75, 50, 25}} {
		got := pauseLevels(stock)
		if len(got) != len(want) {
			t.Errorf("stock %d: got %v, want %v", stock, got, want)
			continue
		}
		for i := range got {
			if got[i] != want[i] {
				t.Errorf("stock %d: got %v, want %v", stock, got, want)
			}
		}
	}
}
