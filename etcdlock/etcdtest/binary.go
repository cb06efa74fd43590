package etcdtest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
)

// built answers the path of an etcd server that was built from its own Go module, which the module in the folder server
// requires. The first call on a machine takes a minute or two; the go command keeps the program in its build cache.
var built = sync.OnceValues(func() (string, error) {
	if bin := os.Getenv("ETCD_SERVER"); bin != "" {
		return bin, nil
	}
	dir, err := source()
	if err != nil {
		return "", err
	}
	cmd := exec.Command("go", "tool", "-n", "go.etcd.io/etcd/server/v3")
	cmd.Dir = filepath.Join(dir, "server")
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=readonly")
	var diag bytes.Buffer
	cmd.Stderr = &diag
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("etcdtest: building an etcd server: %w: %s (or say where one is in the environment variable ETCD_SERVER)", err, diag.String())
	}
	return strings.TrimSpace(string(out)), nil
})

// source is the folder of this package.
func source() (string, error) {
	if _, file, _, ok := runtime.Caller(0); ok && filepath.IsAbs(file) {
		if dir := filepath.Dir(file); exists(filepath.Join(dir, "server", "go.mod")) {
			return dir, nil
		}
	}
	out, err := exec.Command("go", "list", "-f", "{{.Dir}}", "github.com/pawl-lock/pawl/etcdlock/etcdtest").Output()
	if err != nil {
		return "", fmt.Errorf("etcdtest: where is the source of this package? %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// debian answers the path of the etcd server that Debian's package etcd-server has: version 3.4.
func debian() (string, error) {
	if bin := os.Getenv("ETCD34_SERVER"); bin != "" {
		return bin, nil
	}
	bin, err := exec.LookPath("etcd")
	if err != nil {
		return "", fmt.Errorf("etcdtest: %w: install the package etcd-server (Debian), or say where an etcd 3.4 is in the environment variable ETCD34_SERVER", err)
	}
	return bin, nil
}

// Etcdctl answers the path of etcdctl, from Debian's package etcd-client or the environment variable ETCDCTL.
func Etcdctl() (string, error) {
	if bin := os.Getenv("ETCDCTL"); bin != "" {
		return bin, nil
	}
	bin, err := exec.LookPath("etcdctl")
	if err != nil {
		return "", fmt.Errorf("etcdtest: %w: install the package etcd-client (Debian), or say where etcdctl is in the environment variable ETCDCTL", err)
	}
	return bin, nil
}
