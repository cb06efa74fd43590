//go:build unix

package sqllock_test

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestReadOnly(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "pawl-read-only") // all parents may be entered by anybody
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	exe := filepath.Join(dir, "test")
	copyFile(t, exe, 0o755)
	for _, c := range []struct {
		what         string
		folder, file os.FileMode
		want         string
	}{
		{"file", 0o777, 0o444, "cannot be written"},
		{"folder", 0o555, 0o666, "to its folder"},
		{"folder without a file", 0o555, 0, "its folder"},
	} {
		t.Run(c.what, func(t *testing.T) {
			folder := filepath.Join(dir, strings.ReplaceAll(c.what, " ", "-"))
			if err := os.Mkdir(folder, 0o700); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(folder, "locks.db")
			if c.file != 0 {
				open(t, file).Close()
				chmod(t, file, c.file)
			}
			chmod(t, folder, c.folder)
			chmod(t, dir, 0o755)
			cmd := exec.Command(exe, file)
			if os.Getuid() == 0 { // whom no right is refused
				cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
			}
			ch := startChildAs(t, cmd, "open")
			out, _ := io.ReadAll(ch.out)
			if !strings.Contains(string(out), c.want) || !strings.Contains(string(out), file) {
				t.Errorf("the error is %q: it should name the file and say %q", out, c.want)
			}
		})
	}
}

func chmod(t *testing.T, name string, mode os.FileMode) {
	t.Helper()
	if err := os.Chmod(name, mode); err != nil {
		t.Fatal(err)
	}
}

func copyFile(t *testing.T, to string, mode os.FileMode) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(exe)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, b, mode); err != nil {
		t.Fatal(err)
	}
	chmod(t, to, mode)
}
