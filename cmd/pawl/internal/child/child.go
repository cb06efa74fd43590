// Package child runs a command that must not outlive the right to run it.
//
// # What is guaranteed (Unix)
//
//   - The command is the leader of a process group of its own. Signals go to the group, and [Process.Gone] is closed when
//     the whole group has ended: background processes of a script count.
//   - A second process of this program, the guard, lives in a session of its own, waits at a pipe and does one thing: it
//     kills the group with SIGKILL when this process ends without saying goodbye (kill -9, a crash), or when the instant
//     that [Process.KillAt] told last is over. So a starved, stopped or killed supervisor does not leave the command
//     running without a lock.
//   - The command starts only after the guard has been told its group: the forked process waits at a gate until then. A
//     supervisor that is killed at any instant leaves no command behind.
//   - On Linux the command itself also gets SIGKILL when this process dies (PR_SET_PDEATHSIG), guard or not, and orphans
//     of the group become children of this process (PR_SET_CHILD_SUBREAPER), so that they are waited for.
//
// What it cannot do: kill processes that have left the group (setsid, the jobs of an interactive shell), nor those of
// another user (sudo: the kernel refuses); survive SIGKILL of supervisor and guard at once, except that on Linux the
// command itself still dies with the supervisor. With Command.Foreground there is no group, and all of this holds for the
// command's first process only.
//
// # Windows
//
// There are no groups and no guard: Kill ends the first process, and a killed pawl leaves the command running.
package child

import (
	"fmt"
	"os"
)

// Command says what to run.
type Command struct {
	Path string   // as LookPath found it
	Argv []string // Argv[0] included
	Env  []string

	NoStdin    bool   // standard input is empty instead of this process's own
	Foreground bool   // stay in this process's group
	LostFD     string // environment variable that gets the number of a descriptor which ends at Lose; empty: none

	// What outlives this process when it is killed, until the guard has seen the command end: Hold stays open, the file
	// Scratch is removed. Nil and empty: nothing.
	Hold    *os.File
	Scratch string

	// Suspending is called before this process stops because its command was stopped at a terminal. Nil: nothing.
	Suspending func()
}

// Result is how the command's first process ended.
type Result struct {
	Code   int       // exit status; 128+n after signal n
	Signal os.Signal // nil: it exited
}

// NotFound and NotExecutable are the exit codes of shells for a command that could not be started.
const (
	NotExecutable = 126
	NotFound      = 127
)

// StartError says why a command did not start. Nothing of it ran.
type StartError struct {
	Path string
	Code int // NotExecutable, NotFound, or 70 when this system could not run it at all
	Err  error
}

func (e *StartError) Error() string { return fmt.Sprintf("cannot run %q: %v", e.Path, e.Err) }

// Unwrap is the error of the system.
func (e *StartError) Unwrap() error { return e.Err }
