//go:build linux

package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/pawl-lock/pawl/redislock/redistest"
)

// goneBefore watches a process group until it is gone, which must be before the instant at which the store could give the
// name to another.
func goneBefore(t *testing.T, pgid int, frozen time.Time, ttl time.Duration) {
	t.Helper()
	eventually(t, "the whole command is gone", func() bool { return group(pgid) == 0 })
	after := time.Since(frozen)
	t.Logf("gone %v after the store froze; the trust deadline is at most %v, the ttl %v", after, ttl-ttl/10, ttl)
	if after > ttl {
		t.Errorf("gone %v after the store froze, ttl %v", after, ttl)
	}
}

// The store stops answering: the command is told, and is gone before anybody else could get the lock.
func TestFrozenStore(t *testing.T) {
	const ttl = 6 * time.Second
	t.Parallel()
	for _, c := range []struct {
		name, script string
		flags        []string
		ending       string
	}{
		{"stubborn", stubborn, nil, "the command was ended by SIGKILL (exit 75)"},
		{"polite", `trap 'echo >told; exit 0' TERM; ` + holds, nil, "the command ended with code 0 (exit 75)"},
		{"kill", `trap 'echo >told' TERM; ` + stubborn, []string{"--on-loss", "kill", "--lost-exit-code", "99"}, "SIGKILL (exit 99)"},
		{"signal", `trap 'echo >told; exit 4' USR2; ` + holds, []string{"--on-loss", "signal=USR2"}, "the command ended with code 4 (exit 75)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			s := onRedis(t, server)
			p, pgid := s.hold(c.script, append(c.flags, "--ttl", ttl.String(), "--status-fd", "1")...)
			frozen := time.Now()
			server.Stop()
			goneBefore(t, pgid, frozen, ttl)
			if told := s.exists("told"); told != (c.name == "polite" || c.name == "signal") {
				t.Errorf("the command was told: %v", told)
			}
			want := 75
			if c.name == "kill" {
				want = 99
			}
			p.wantCode(want)
			p.wantErr("the store did not confirm it in time")
			p.wantErr(c.ending)
			var st struct{ Acquired, Lost bool }
			if err := json.Unmarshal([]byte(p.out.String()), &st); err != nil || !st.Acquired || !st.Lost {
				t.Errorf("--status-fd wrote %q (%v), want acquired and lost", p.out.String(), err)
			}
			server.Cont()
			s.start("run", "-w", "25", "x", "--", "true").wantCode(0)
		})
	}
}

// A store that comes back in time is no loss.
func TestStoreComesBack(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := onRedis(t, server)
	p, _ := s.hold(holds, "--ttl", "8s", "--kill-after", "100ms")
	server.Stop()
	time.Sleep(3 * time.Second) // past the first renewal
	server.Cont()
	time.Sleep(5500 * time.Millisecond) // past the ttl of the time before
	s.touch("go")
	p.wantCode(0)
}

// --on-loss warn: the command goes on, is told by the descriptor only, and the exit code tells the caller.
func TestOnLossWarn(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := onRedis(t, server)
	p, pgid := s.hold(`(cat <&$PAWL_LOST_FD; echo >lost) & `+holds, "--ttl", "4s", "--on-loss", "warn")
	if s.exists("lost") {
		t.Fatal("PAWL_LOST_FD ended while the lock was held")
	}
	server.Stop()
	eventually(t, "PAWL_LOST_FD ends", func() bool { return s.exists("lost") })
	time.Sleep(500 * time.Millisecond)
	if group(pgid) == 0 {
		t.Error("the command was killed")
	}
	s.touch("go")
	p.wantCode(75)
	p.wantErr("goes on without it")
	p.wantErr("the command ended with code 0 (exit 75)")
}

// Somebody takes the lock away: there is no deadline to wait for.
func TestRevoked(t *testing.T) {
	stores(t, func(t *testing.T, s *shop) {
		p, pgid := s.hold(stubborn, "--ttl", "6s", "--kill-after", "0.3")
		if file := filepath.Join(s.dir, "state", "pawl", "locks.db"); s.exists("state") {
			db, err := sql.Open("sqlite", file+"?_pragma=busy_timeout(20000)")
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			if _, err := db.Exec("DELETE FROM pawl_lock"); err != nil {
				t.Fatal(err)
			}
		} else {
			url := strings.TrimPrefix(s.env[0], "PAWL_BACKEND=redis://")
			host, port, _ := strings.Cut(url, ":")
			if out, err := exec.Command("redis-cli", "-h", host, "-p", port, "del", "x").CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != "1" {
				t.Fatalf("redis-cli: %s, %v", out, err)
			}
		}
		p.wantCode(75)
		p.wantErr("the store says that it is gone")
		if n := group(pgid); n != 0 {
			t.Errorf("%d processes are left", n)
		}
	})
}

// A database that somebody keeps locked is a store that does not answer.
func TestLockedDatabase(t *testing.T) {
	t.Parallel()
	const ttl = 6 * time.Second
	s := onSQLite(t)
	p, pgid := s.hold(stubborn, "--ttl", ttl.String())
	db, err := sql.Open("sqlite", filepath.Join(s.dir, "state", "pawl", "locks.db")+"?_pragma=busy_timeout(20000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	conn, err := db.Conn(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(context.Background(), "BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	goneBefore(t, pgid, time.Now(), ttl)
	p.wantCode(75)
}

// pawl itself is stopped: the guard kills the command before its lock is given to another.
func TestStoppedPawl(t *testing.T) {
	stores(t, func(t *testing.T, s *shop) {
		const ttl = 5 * time.Second
		p, pgid := s.hold(stubborn, "--ttl", ttl.String())
		p.Process.Signal(syscall.SIGSTOP)
		stopped := time.Now()
		waiter := s.start("run", "x", "--", "sh", "-c", "date +%s%N >began")
		alive := lastAlive(t, pgid, stopped)
		t.Logf("alive until %v after pawl was stopped at least, ttl %v", alive.Sub(stopped), ttl)
		waiter.wantCode(0)
		if began := time.Unix(0, s.number("began")); began.Before(alive) {
			t.Errorf("another ran %v before it was gone", alive.Sub(began))
		}
		p.Process.Signal(syscall.SIGCONT)
		p.wantCode(75)
	})
}

func TestMaxHold(t *testing.T) {
	stores(t, func(t *testing.T, s *shop) {
		p, pgid := s.hold(stubborn, "--max-hold", "4", "--kill-after", "0.3") // long enough for the trap to be set
		p.wantCode(75)
		p.wantErr("the lock was held for --max-hold 4s")
		if n := group(pgid); n != 0 {
			t.Errorf("%d processes are left", n)
		}
		// Nothing was lost in the store, so the name is free at once and not when the ttl of 30 s is over.
		s.start("run", "-w", "10", "x", "--", "true").wantCode(0)
		s.start("run", "--max-hold", "60", "x", "--", "true").wantCode(0)
	})
}

// A lock in a lock: the inner command is not in the outer one's group, but its own pawl is.
func TestNested(t *testing.T) {
	t.Parallel()
	s := onRedis(t, redistest.Start(t))
	p := s.start("run", "outer", "--", "pawl", "run", "inner", "--", "sh", "-c", stubborn)
	eventually(t, "the inner command runs", func() bool { return s.exists("held") })
	pgid := int(s.number("held"))
	p.Process.Kill()
	eventually(t, "the inner command is gone", func() bool { return group(pgid) == 0 })
}

func TestKillAfterIsCapped(t *testing.T) {
	t.Parallel()
	s := onSQLite(t)
	p := s.start("run", "--kill-after", "20", "--ttl", "30", "x", "--", "true")
	p.wantCode(0)
	p.wantErr("--kill-after 20s is cut to 10s")
}
