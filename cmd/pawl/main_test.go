package main

import (
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/pawl-lock/pawl/cmd/pawl/internal/child"
	"github.com/pawl-lock/pawl/cmd/pawl/internal/cli"
)

// TestMain lets the test binary be the program: the tests run it as "pawl" from their PATH.
func TestMain(m *testing.M) {
	child.Helper()
	if filepath.Base(os.Args[0]) != "pawl" {
		flag.Parse()
		flag.Set("test.parallel", "12") // these tests wait for other processes and for time to pass
		os.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	}
	testscript.Main(m, map[string]func(){
		"pawl": func() { os.Exit(cli.Main(os.Args[1:])) },
	})
}

// TestScripts runs testdata/script as real processes, each with a state folder of its own.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("HOME", filepath.Join(e.WorkDir, "home"))
			e.Setenv("XDG_STATE_HOME", filepath.Join(e.WorkDir, "state"))
			e.Setenv("SHELL", "/bin/sh")
			e.Setenv("GORACE", os.Getenv("GORACE"))
			return os.Mkdir(filepath.Join(e.WorkDir, "home"), 0o700)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"code":  scriptCode,
			"await": scriptAwait,
		},
	})
}

// scriptCode runs a command that must end with an exit code: code 64 pawl run.
func scriptCode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N command...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var e *exec.ExitError
		if !errors.As(err, &e) {
			ts.Fatalf("%v", err)
		}
		got = e.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// scriptAwait waits for a file to exist.
func scriptAwait(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: await file")
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(ts.MkAbs(args[0])); err == nil {
			return
		}
		if time.Now().After(end) {
			ts.Fatalf("%s did not appear", args[0])
		}
	}
}
