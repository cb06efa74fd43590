package seckill

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pawl-lock/pawl/etcdlock/etcdtest"
	"github.com/pawl-lock/pawl/redislock/redistest"
	"github.com/pawl-lock/pawl/zklock/zktest"
)

// The sale with its locks in a Redis that wants a password: the same promises, the same accidents, no secret anywhere.
func TestSaleOverRedis(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--requirepass", "geheim")
	o := program(t, "--backend", fmt.Sprintf("redis://default:geheim@127.0.0.1:%d", s.Port()), "--buyers", "400", "--stock", "40",
		"--strategy", "setnx-del,lock,lock-wait,striped,lock+token", "--html", filepath.Join(t.TempDir(), "p.html"), "--json")
	if o.code != 0 || strings.Contains(o.stderr, "geheim") {
		t.Fatalf("exit code %d, stderr %q", o.code, o.stderr)
	}
	for _, s := range parse(t, o.stdout).Strategies {
		if s.Safe && (s.Sold != 40 || s.Duplicates != 0) || s.Name == "lock+token" && s.RefusedStale == 0 {
			t.Errorf("%+v: want 40 sold, no duplicates, and late writes refused", s)
		}
	}
	o = program(t, "--backend", fmt.Sprintf("redis://default:geheim2@127.0.0.1:%d", s.Port()))
	if o.code != codePermission && o.code != codeUnavailable || o.stderr == "" || strings.Contains(o.stderr, "geheim") || o.stdout != "" {
		t.Errorf("a wrong password: exit code %d, stderr %q, stdout %q", o.code, o.stderr, o.stdout)
	}
}

// A layout without tokens has no lock+token, which is said before anything starts.
func TestSaleWithoutTokens(t *testing.T) {
	t.Parallel()
	url := redistest.Start(t).URL + "?layout=string"
	o := program(t, "--backend", url, "--strategy", "lock,lock+token")
	if o.code != codeUsage || !strings.Contains(o.stderr, "this store gives no tokens: leave lock+token out") {
		t.Errorf("exit code %d, stderr %q", o.code, o.stderr)
	}
	o = program(t, "--backend", url, "--buyers", "300", "--stock", "10", "--json")
	if o.code != 0 || o.stderr != "seckill: lock+token is left out: this store gives no tokens\n" {
		t.Errorf("exit code %d, stderr %q", o.code, o.stderr)
	}
	if n := len(parse(t, o.stdout).Strategies); n != len(strategies)-1 {
		t.Errorf("%d strategies, want all but one", n)
	}
}

// The other kinds of store, in short.
func TestSaleOnOtherStores(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(t *testing.T) string{
		"etcd": func(t *testing.T) string { return etcdtest.Start(t, etcdtest.Options{Debian: true}).URL },
		"zk":   func(t *testing.T) string { return "zk://" + zktest.Start(t, zktest.Config{}).Addr },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := start(t)
			o := program(t, "--backend", url, "--strategy", "lock,striped", "--buyers", "200", "--stock", "10", "--json")
			if o.code != 0 {
				t.Fatalf("exit code %d, stderr %q", o.code, o.stderr)
			}
			for _, s := range parse(t, o.stdout).Strategies {
				if s.Sold != 10 || s.Duplicates != 0 {
					t.Errorf("%+v: want 10 sold", s)
				}
			}
			o = program(t, "--backend", url, "--strategy", "setnx-del")
			if o.code != codeUsage || !strings.Contains(o.stderr, "setnx-del cannot be shown on "+name) {
				t.Errorf("exit code %d, stderr %q", o.code, o.stderr)
			}
		})
	}
}

func TestNaiveRedis(t *testing.T) {
	s := redistest.Start(t)
	raw := fmt.Sprintf("redis://127.0.0.1:%d", s.Port())
	naiveRules(t, raw, nil)
	if err := dropNaive(t.Context(), raw); err != nil {
		t.Errorf("drop: %v", err)
	}
}
