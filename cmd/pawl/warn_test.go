package main

import (
	"strings"
	"testing"

	"github.com/pawl-lock/pawl/redislock/redistest"
)

// A quorum whose members fail together is told so, on standard error, unless --quiet.
func TestQuorumWarnings(t *testing.T) {
	t.Parallel()
	var hosts []string
	for range 3 {
		hosts = append(hosts, redistest.Start(t).Addr)
	}
	s := onSQLite(t)
	s.env = []string{"PAWL_BACKEND=redlock://" + strings.Join(hosts, ",")}
	p := s.start("ls")
	p.wantCode(0)
	if got := p.err.String(); !strings.Contains(got, "members 1 and 2 are on one host (127.0.0.1)") || p.out.String() != "" {
		t.Errorf("warnings: %q, output: %q", got, p.out.String())
	}
	p = s.start("--quiet", "ls")
	p.wantCode(0)
	if got := p.err.String(); strings.Contains(got, "host") {
		t.Errorf("--quiet: %q", got)
	}
}
