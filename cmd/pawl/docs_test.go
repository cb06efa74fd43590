//go:build linux

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The examples of docs/run.md run, and its exit codes and variables are those of the help.
func TestRunPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "run.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(blocks) == 0 {
		t.Fatal("docs/run.md has no example")
	}
	s := onSQLite(t)
	for _, b := range blocks {
		c := exec.Command("sh", "-eu", "-c", b[1])
		c.Dir, c.Env = s.dir, append(os.Environ(), s.env...)
		out, err := c.CombinedOutput()
		if err != nil {
			t.Errorf("%v: %s", err, out)
		}
		for _, want := range []string{"deploying with token ", "nightly\n", "two words\n$HOME\n*\n", "state:    free"} {
			if !strings.Contains(string(out), want) {
				t.Errorf("the example printed %q, want %q in it", out, want)
			}
		}
	}
	help, err := exec.Command("pawl", "run", "--help").Output()
	if err != nil {
		t.Fatal(err)
	}
	flags := regexp.MustCompile("`(--?[a-z][a-z-]*)").FindAllStringSubmatch(string(page), -1)
	for _, f := range flags {
		if !regexp.MustCompile(`(^|[ ,])`+regexp.QuoteMeta(f[1])+`\b`).Match(help) && f[1] != "-u" {
			t.Errorf("docs/run.md speaks of %s, which pawl run does not have", f[1])
		}
	}
	if len(flags) < 10 {
		t.Errorf("only %d flags found in docs/run.md: has its form changed?", len(flags))
	}
}
