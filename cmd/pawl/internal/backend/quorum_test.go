package backend

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/redislock/redistest"
)

// A quorum opens and works with one of three servers down, and takes that one in when it comes.
func TestQuorumWithOneServerDown(t *testing.T) {
	t.Parallel()
	var hosts []string
	var servers []*redistest.Server
	for range 3 {
		s := redistest.Start(t)
		servers = append(servers, s)
		hosts = append(hosts, s.Addr)
	}
	servers[2].Kill()
	const maxTTL = 3 * time.Second
	d, err := Open(t.Context(), "redlock://"+strings.Join(hosts, ",")+"/0?max_ttl="+maxTTL.String(), "app:")
	if err != nil {
		t.Fatal(err)
	}
	locks := pawl.New(d).With(pawl.Options{TTL: maxTTL})
	defer locks.Close()
	do := func() {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) { // a new server does not vote at first
			err := locks.Mutex("orders").Do(t.Context(), func(context.Context) error { return nil })
			if err == nil {
				return
			}
			if time.Now().After(end) {
				t.Fatal(err)
			}
		}
	}
	do()
	servers[2].Restart()
	time.Sleep(maxTTL + memberPause)
	do()
	servers[0].Kill()
	do()
}
