package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// server is a redis-server of our own, without persistence, on a unix socket in a temporary folder.
type server struct {
	dir, socket string
	cmd         *exec.Cmd
	out         bytes.Buffer
	admin       rueidis.Client
}

func startServer(ctx context.Context) (*server, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, errors.New("redis-server is not installed (Debian: apt-get install redis-server)")
	}
	dir, err := os.MkdirTemp("", "pawl-bench-")
	if err != nil {
		return nil, err
	}
	s := &server{dir: dir, socket: filepath.Join(dir, "redis.sock")}
	s.cmd = exec.Command(path, "--port", "0", "--unixsocket", s.socket, "--save", "", "--appendonly", "no", "--dir", dir)
	s.cmd.Stdout, s.cmd.Stderr = &s.out, &s.out
	if err := s.cmd.Start(); err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	for end := time.Now().Add(10 * time.Second); ; {
		if s.admin, err = s.client(); err == nil {
			return s, nil
		}
		if time.Now().After(end) || ctx.Err() != nil {
			s.stop()
			return nil, fmt.Errorf("redis-server did not start: %w\n%s", err, s.out.String())
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (s *server) client() (rueidis.Client, error) {
	return rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{s.socket}, DisableCache: true, DisableRetry: true, ForceSingleClient: true,
		DialCtxFn: func(ctx context.Context, addr string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return d.DialContext(ctx, "unix", addr)
		},
	})
}

func (s *server) stop() {
	if s.admin != nil {
		s.admin.Close()
	}
	s.cmd.Process.Kill()
	s.cmd.Wait()
	os.RemoveAll(s.dir)
}

// commands is how many commands clients have sent so far; those that scripts call count too, and are taken off again.
func (s *server) commands(ctx context.Context) (int64, error) {
	info, err := s.admin.Do(ctx, s.admin.B().Info().Section("commandstats").Build()).ToString()
	if err != nil {
		return 0, err
	}
	var sent int64
	for line := range strings.Lines(info) {
		// cmdstat_evalsha:calls=12,usec=…
		name, rest, ok := strings.Cut(strings.TrimSpace(line), ":calls=")
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(rest[:strings.IndexByte(rest, ',')], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("commandstats: %q: %w", line, err)
		}
		switch strings.TrimPrefix(name, "cmdstat_") {
		case "evalsha", "eval", "set", "script|load", "ping", "subscribe", "ssubscribe", "unsubscribe":
			sent += n
		}
	}
	return sent, nil
}
