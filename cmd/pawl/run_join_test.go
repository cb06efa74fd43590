//go:build linux

package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/etcdlock/etcdtest"
	"github.com/pawl-lock/pawl/redislock/redistest"
	"github.com/pawl-lock/pawl/zklock/zktest"
)

// inTemp gives the processes of a shop a folder of their own for temporary files.
func (s *shop) inTemp() string {
	s.t.Helper()
	dir := s.path("tmp")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		s.t.Fatal(err)
	}
	s.env = append(s.env, "TMPDIR="+dir)
	return dir
}

// noOffers checks that no file of an offered lock is left.
func (s *shop) noOffers() {
	s.t.Helper()
	eventually(s.t, "no offer is left", func() bool {
		left, _ := filepath.Glob(filepath.Join(s.path("tmp"), "pawl-run-*"))
		return len(left) == 0
	})
}

// A pawl run inside another one of the same name works under its lock, on every store, at any depth, also with another
// name between them; and to everybody else the name stays taken.
func TestJoin(t *testing.T) {
	t.Parallel()
	on := func(name string, open func(t *testing.T) *shop) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			s.inTemp()
			s.script("inner.sh", `
				echo $PAWL_FENCE $PAWL_MODE $PAWL_LOCK >>facts
				test "$PAWL_BACKEND_KIND" = "$1" || echo kind >>facts
				env -u PAWL_JOIN pawl run -n x true; echo stranger $? >>facts`)
			p := s.start("run", "x", "--", "sh", "-c", `
				echo $PAWL_FENCE $PAWL_MODE $PAWL_LOCK >>facts
				pawl run -n --status-fd 1 x -- sh inner.sh `+name+` &&
				pawl run y -- pawl run x -- pawl run --fair x -- sh -c 'test $PAWL_MODE = fair && exit 7'`)
			p.wantCode(7)
			if !strings.Contains(p.out.String(), `"acquired":true,"joined":true`) {
				t.Errorf("--status-fd wrote %q", p.out.String())
			}
			b, _ := os.ReadFile(s.path("facts"))
			lines := strings.Split(string(b), "\n")
			if len(lines) != 4 || lines[0] != lines[1] || !strings.HasSuffix(lines[0], " exclusive x") || lines[2] != "stranger 1" {
				t.Errorf("facts %q, want the same twice and the stranger kept out", lines)
			}
			s.start("run", "-w", "20", "x", "--", "true").wantCode(0)
			s.noOffers()
		})
	}
	on("sqlite", onSQLite)
	on("redis", func(t *testing.T) *shop { return onRedis(t, redistest.Start(t)) })
	on("etcd", func(t *testing.T) *shop {
		return &shop{t, t.TempDir(), []string{"PAWL_BACKEND=" + etcdtest.Start(t, etcdtest.Options{Debian: true}).URL}}
	})
	on("zk", func(t *testing.T) *shop {
		return &shop{t, t.TempDir(), []string{"PAWL_BACKEND=zk://" + zktest.Start(t, zktest.Config{}).Addr}}
	})
}

// script writes a file for sh.
func (s *shop) script(name, text string) {
	s.t.Helper()
	if err := os.WriteFile(s.path(name), []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// Those who join one lock exclude one another, except readers.
func TestJoinedTurns(t *testing.T) {
	t.Parallel()
	s := onSQLite(t)
	s.inTemp()
	s.script("count", "0")
	s.script("add.sh", `n=$(cat count); sleep 0.02; echo $((n+1)) >count`)
	s.start("run", "x", "--", "sh", "-c", `for i in 1 2 3 4 5 6; do pawl run x -- sh add.sh & done; wait`).wantCode(0)
	if n := s.number("count"); n != 6 {
		t.Errorf("counted to %d, want 6", n)
	}

	s.script("meet.sh", `touch $1; while ! test -e $2; do sleep 0.01; done`)
	s.start("run", "-x", "rw", "--", "sh", "-c", `pawl run -s rw -- sh meet.sh a b & pawl run -s rw -- sh meet.sh b a && wait $!`).wantCode(0)

	p := s.start("run", "x", "--", "sh", "-c", `
		pawl run x -- sh meet.sh in out & while ! test -e in; do sleep 0.01; done
		pawl run -n x true; echo $?; pawl run -w 0.1 -E 9 x true; echo $?; pawl run -n -q x echo ran; echo $?; touch out; wait $!`)
	p.wantCode(0)
	if got := p.out.String(); got != "1\n9\n0\n" {
		t.Errorf("got %q", got)
	}
	p.wantErr("another command has its turn under the pawl run around this one (exit 9)")

	for _, c := range []struct {
		outer, inner string
		code         int
		err          string
	}{
		{"-s", "-x", 64, "held to read by the pawl run around this one"},
		{"-x", "--fair", 64, "as another kind of lock (write, not fair)"},
		{"--fair", "-s", 64, "as another kind of lock (fair, not read)"},
		{"-s", "-s", 0, ""},
		{"-x", "-x", 0, ""},
		{"-p2", "-p2", 0, ""},      // a permit of its own
		{"-p2", "--fair", 64, "2"}, // the store says so
	} {
		p := s.start("run", c.outer, "k"+c.outer, "--", "pawl", "run", "-n", c.inner, "k"+c.outer, "--", "true")
		p.wantCode(c.code)
		p.wantErr(c.err)
	}

	// Other locks of the same name.
	s.start("run", "x", "--", "pawl", "--prefix", "other:", "run", "-n", "--status-fd", "2", "x", "--", "true").wantCode(0)
	s.start("run", "x", "--", "pawl", "--backend", "mem:", "run", "-n", "x", "--", "true").wantCode(0)
	s.start("--backend", "mem:", "run", "x", "--", "pawl", "--backend", "mem:", "run", "-n", "x", "--", "true").wantCode(0)

	p = s.start("run", "x", "--", "pawl", "run", "--max-hold", "0.5", "x", "--", "sleep", "1000")
	p.wantCode(75)
	p.wantErr("the lock was held for --max-hold 500ms")
	s.noOffers()
}

// An offer that is over is an error, and not a wait.
func TestJoinTooLate(t *testing.T) {
	t.Parallel()
	s := onSQLite(t)
	s.inTemp()
	s.start("run", "x", "--", "sh", "-c", "echo $PAWL_JOIN >join").wantCode(0)
	b, _ := os.ReadFile(s.path("join"))
	plain := s.env
	s.env = append(s.env, "PAWL_JOIN="+strings.TrimSpace(string(b)))
	p := s.start("run", "x", "--", "true")
	p.wantCode(75)
	p.wantErr(`"x": the lock that this command runs under is over`)
	p.wantErr("unset PAWL_JOIN (exit 75)")
	s.start("run", "--lost-exit-code", "5", "x", "--", "true").wantCode(5)
	s.start("run", "other", "--", "true").wantCode(0)
	s.env = plain
	s.start("run", "-n", "x", "--", "true").wantCode(0)
}

// leaver is a command that leaves a pawl run of the same name behind, out of its process group.
const leaver = `setsid pawl run x -- sh -c '%s' </dev/null >/dev/null 2>&1 & while ! test -e held; do sleep 0.01; done`

func leaving(script string) string { return strings.Replace(leaver, "%s", script, 1) }

// The lock is kept as long as somebody who joined it works, in whatever group.
func TestLastChild(t *testing.T) {
	stores(t, func(t *testing.T, s *shop) {
		s.inTemp()
		p, pgid := s.hold(leaving(holds), "--ttl", "6s")
		eventually(t, "pawl says what it waits for", func() bool {
			return strings.Contains(p.err.String(), "has ended, but not a pawl run inside it that joined the lock")
		})
		time.Sleep(7 * time.Second) // past the ttl
		s.start("run", "-n", "x", "--", "true").wantCode(1)
		if group(pgid) == 0 {
			t.Error("the one that joined was ended")
		}
		s.touch("go")
		p.wantCode(0)
		s.start("run", "-n", "x", "--", "true").wantCode(0)
		s.noOffers()
	})
}

// Whoever asks the outer one to end, ends those who joined too.
func TestLastChildIsTold(t *testing.T) {
	t.Parallel()
	s := onSQLite(t)
	s.inTemp()
	p, pgid := s.hold(leaving(stubborn2), "--ttl", "8s")
	eventually(t, "pawl waits", func() bool { return strings.Contains(p.err.String(), "joined the lock") })
	p.Process.Signal(syscall.SIGTERM)
	p.wantCode(0)
	if n := group(pgid); n != 0 {
		t.Errorf("%d processes are left", n)
	}
	s.noOffers()
}

// stubborn2 is stubborn, for use inside single quotes.
const stubborn2 = `trap "" TERM HUP INT; sleep 1000 & echo $$ >held.tmp; mv held.tmp held; wait; sleep 1000`

// Who joined is gone before the store gives the name to another: when the store freezes, when the outer one is stopped or
// killed.
func TestJoinedIsLost(t *testing.T) {
	t.Parallel()
	const ttl = 8 * time.Second
	for _, what := range []string{"frozen store", "stopped", "killed", "killed in its group"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			s := onRedis(t, server)
			s.inTemp()
			script := leaving(stubborn2)
			if what == "killed in its group" {
				script = `pawl run x -- sh -c '` + stubborn2 + `'`
			}
			p, pgid := s.hold(script+"; sleep 1000", "--ttl", ttl.String())
			begin := time.Now()
			switch what {
			case "frozen store":
				server.Stop()
			case "stopped":
				p.Process.Signal(syscall.SIGSTOP)
			default:
				p.Process.Kill()
			}
			goneBefore(t, pgid, begin, ttl)
			if what == "killed in its group" {
				if d := time.Since(begin); d > ttl/2 {
					t.Errorf("the guards took %v", d)
				}
			}
			switch what {
			case "frozen store":
				s.noOffers()
				p.wantCode(75)
			case "stopped":
				// Who joined is gone a while before the outer one's own time is over, which could go on if it ran again
				// within it.
				time.Sleep(time.Until(begin.Add(ttl)))
				p.Process.Signal(syscall.SIGCONT)
				p.wantCode(75)
				s.noOffers()
			default:
				s.noOffers()
				p.wantCode(-int(syscall.SIGKILL))
			}
		})
	}
}

// kill -9 of one that joined: the next one has its turn when its command is gone.
func TestKilledInside(t *testing.T) {
	t.Parallel()
	s := onSQLite(t)
	s.inTemp()
	p := s.start("run", "x", "--", "sh", "-c", `pawl run x -- sh -c '`+stubborn2+`' & echo $! >inner.tmp; mv inner.tmp inner; wait
		pawl run x -- sh -c 'kill -0 -'$(cat held)' 2>/dev/null && echo alive >alive; exit 0'`)
	eventually(t, "the inner command runs", func() bool { return s.exists("held") && s.exists("inner") })
	syscall.Kill(int(s.number("inner")), syscall.SIGKILL)
	p.wantCode(0)
	if s.exists("alive") && group(int(s.number("held"))) != 0 {
		t.Error("the second one ran beside the first one's command")
	}
	s.noOffers()
}

// The offer has no secret.
func TestJoinTellsNoSecret(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--requirepass", "s3cretW0rd")
	s := onSQLite(t)
	s.inTemp()
	p := s.start("--backend", "redis://:s3cretW0rd@"+server.Addr, "run", "x", "--", "sh", "-c", `echo $PAWL_JOIN; cat ${PAWL_JOIN%%:*}`)
	p.wantCode(0)
	if out := p.out.String(); !strings.Contains(out, `"mode":"exclusive"`) || strings.Contains(out, "s3cret") {
		t.Errorf("offer: %s", out)
	}
}
