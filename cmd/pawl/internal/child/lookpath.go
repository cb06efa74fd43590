package child

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"strings"
)

// LookPath finds a command as a shell does: a name with a slash is a file, any other is looked for in PATH. Its error is a
// *StartError.
func LookPath(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil {
		return path, nil
	}
	var e *exec.Error
	if errors.As(err, &e) {
		err = e.Err
	}
	code := NotFound
	switch {
	case errors.Is(err, exec.ErrDot):
		err = errors.New("it is only in the current directory: write ./" + name)
	case errors.Is(err, exec.ErrNotFound):
		err = errors.New("no such command in PATH")
	case errors.Is(err, fs.ErrNotExist):
		err = errors.New("no such file")
	default:
		code = NotExecutable
		if fi, serr := os.Stat(name); strings.ContainsRune(name, os.PathSeparator) && serr == nil && fi.IsDir() {
			err = errors.New("is a directory")
		}
	}
	return "", &StartError{Path: name, Code: code, Err: err}
}
