package seckill

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// children are the live processes that pid started, with their states as the kernel names them.
func children(pid int) map[int]string {
	found := map[int]string{}
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, f := range tasks {
		b, _ := os.ReadFile(f)
		for _, s := range strings.Fields(string(b)) {
			if n, err := strconv.Atoi(s); err == nil {
				found[n] = state(n)
			}
		}
	}
	return found
}

// state is R, S, T (stopped), Z (dead), or empty when there is no such process.
func state(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return rest[:1]
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 30 s: %s", what)
		}
	}
}

// However the run is ended, its servers end too, even one that is stopped; and unless it is killed, no file is left.
func TestInterrupted(t *testing.T) {
	for _, c := range []struct {
		name    string
		sig     syscall.Signal
		args    string
		stopped bool // wait until a server is paused
		code    int
	}{
		{"Ctrl-C", syscall.SIGINT, "--strategy lock --rate 100", false, 130},
		{"TERM", syscall.SIGTERM, "--strategy none --rate 100", false, 143},
		{"paused", syscall.SIGINT, "--strategy lock+token", true, 130},
		{"kill", syscall.SIGKILL, "--strategy lock-paused", true, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			tmp, pages := t.TempDir(), t.TempDir()
			page := filepath.Join(pages, "page.html")
			cmd := exec.Command(os.Args[0], append([]string{"seckill", "--html", page}, strings.Fields(c.args)...)...)
			cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
			var stdout, stderr bytes.Buffer
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer cmd.Process.Kill()
			var pids map[int]string
			eventually(t, "three servers, one of them paused if it is to be", func() bool {
				pids = children(cmd.Process.Pid)
				stopped := false
				for _, s := range pids {
					stopped = stopped || s == "T"
				}
				return len(pids) == 3 && stopped == c.stopped
			})
			cmd.Process.Signal(c.sig)
			cmd.Wait()
			if code := cmd.ProcessState.ExitCode(); code != c.code {
				t.Errorf("exit code %d, want %d: %s", code, c.code, stderr.String())
			}
			eventually(t, "no server left", func() bool {
				for pid := range pids {
					if s := state(pid); s != "" && s != "Z" {
						return false
					}
				}
				return true
			})
			if stdout.Len() > 0 {
				t.Errorf("stdout: got %q, want nothing", stdout.String())
			}
			if c.sig != syscall.SIGKILL {
				mustBeEmpty(t, tmp)
				mustBeEmpty(t, pages)
				if !strings.Contains(stderr.String(), "interrupted") && !strings.Contains(stderr.String(), "terminated") {
					t.Errorf("stderr does not say why it ended: %q", stderr.String())
				}
			}
		})
	}
}

// A server that dies is an error that names it.
func TestServerDies(t *testing.T) {
	t.Parallel()
	tmp := t.TempDir()
	cmd := exec.Command(os.Args[0], "seckill", "--strategy", "lock", "--rate", "100")
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	var pids map[int]string
	eventually(t, "three servers", func() bool { pids = children(cmd.Process.Pid); return len(pids) == 3 })
	for pid := range pids {
		syscall.Kill(pid, syscall.SIGKILL)
		break
	}
	cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != codeInternal || !strings.Contains(stderr.String(), "server ") {
		t.Errorf("exit code %d, %q, want %d and the server's number", code, stderr.String(), codeInternal)
	}
	mustBeEmpty(t, tmp)
}
