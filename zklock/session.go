package zklock

import (
	"context"
	"errors"
	"reflect"
	"time"
	"unsafe"

	"github.com/go-zookeeper/zk"
)

// timeoutField is where a zk.Conn has the negotiated session timeout in milliseconds, an int32; -1: it is not there. The
// library shows it nowhere else but in a line of its log, and trust cannot be counted without it.
var timeoutField = func() int {
	f, ok := reflect.TypeFor[zk.Conn]().FieldByName("sessionTimeoutMs")
	if !ok || f.Type.Kind() != reflect.Int32 {
		return -1
	}
	return int(f.Offset)
}()

// timeout is the negotiated session timeout of now. The library writes it when a connection is made, before it tells the
// session's id; a value read at the same time is the old or the new one.
func (d *Driver) timeout() time.Duration {
	return time.Duration(peek(unsafe.Add(unsafe.Pointer(d.conn), timeoutField))) * time.Millisecond
}

//go:norace
//go:noinline
func peek(p unsafe.Pointer) int32 { return *(*int32)(p) }

// trusted is the longest TTL of a grant: two thirds of the session timeout. The leader of the ensemble may hear of our
// request up to half a tick after the member that answered it, and a session timeout is at least two ticks.
func (d *Driver) trusted() time.Duration { return (d.timeout() * 2 / 3).Truncate(time.Millisecond) }

// owns reports whether a node belongs to the session that is live now.
func (d *Driver) owns(stat *zk.Stat) bool {
	return stat != nil && stat.EphemeralOwner != 0 && stat.EphemeralOwner == d.conn.SessionID()
}

// watchSession tells the holds of sessions that are over that they are lost, all at once. The library reports the end of a
// session to whoever has a watch, so one watch is always set, on a path that hardly changes.
func (d *Driver) watchSession() {
	path := d.root
	if path == "" {
		path = "/"
	}
	d.hub.used.Store(true)
	for d.life.Err() == nil {
		events, err := call(d.life, func() (<-chan zk.Event, error) {
			_, _, events, err := d.conn.ExistsW(path)
			return events, err
		})
		d.keep.endSessions(false)
		if err != nil {
			nap(d.life, min(max(d.timeout()/20, 10*time.Millisecond), time.Second))
			continue
		}
		select {
		case ev := <-events:
			if errors.Is(ev.Err, zk.ErrClosing) {
				d.keep.endSessions(true) // the caller closed the connection, and with it the session
			}
		case <-d.life.Done():
		}
	}
}

func nap(ctx context.Context, pause time.Duration) {
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
