package zklock

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/go-zookeeper/zk"
)

// The client library sends one request at a time and knows no context. What a lock is taken and given back with goes past
// it, on its connection: several requests in one piece, from the goroutine of the caller, who waits for the last answer
// only. The server answers the requests of a connection in the order in which they came. While there is no connection, or
// it is the caller's (New), the library is asked instead.

// The operations that are sent here, and the numbers of the protocol.
const (
	opDelete      = 2
	opExists      = 3
	opGetChildren = 8
	opCreate2     = 15 // a create that answers the node's facts as well
	opContainer   = 19
	opSetWatches  = 101

	headSize = 20 // of an answer: its size, xid, zxid and error
	statSize = 68
)

// query is a request as it is sent: its size, its xid, which is filled in later, its operation, and its fields.
type query []byte

func newQuery(op uint32, room int) query {
	q := make(query, 8, 12+room)
	return binary.BigEndian.AppendUint32(q, op)
}

func (q query) number(n uint32) query { return binary.BigEndian.AppendUint32(q, n) }

func (q query) text(parts ...string) query {
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	q = q.number(uint32(n))
	for _, p := range parts {
		q = append(q, p...)
	}
	return q
}

func createQuery(op uint32, path string, data []byte, acl []zk.ACL, flags uint32) query {
	q := newQuery(op, len(path)+len(data)+64).text(path).number(uint32(len(data)))
	q = append(q, data...).number(uint32(len(acl)))
	for _, a := range acl {
		q = q.number(uint32(a.Perms)).text(a.Scheme).text(a.ID)
	}
	return q.number(flags)
}

func listQuery(dir string) query { return append(newQuery(opGetChildren, len(dir)+5).text(dir), 0) }

// watchQuery asks whether a node is there, with a watch.
func watchQuery(path string) query { return append(newQuery(opExists, len(path)+5).text(path), 1) }

func deleteQuery(path string) query {
	return newQuery(opDelete, len(path)+8).text(path).number(1<<32 - 1)
}

// batch is some requests that were sent in one piece.
type batch struct {
	session int64         // whose they are
	done    chan struct{} // closed when all are answered, or the connection is lost
	answers []answer      // in order; not to be touched before done
	want    int
}

type answer struct {
	body []byte
	err  error
}

// add is called under the connection's mu.
func (b *batch) add(a answer) {
	b.answers = append(b.answers, a)
	if len(b.answers) == b.want {
		close(b.done)
	}
}

// wait returns when everything is answered or ctx has ended.
func (b *batch) wait(ctx context.Context) error {
	select {
	case <-b.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// created is the path and the facts of a node, as a create answers them.
func (a answer) created() (path string, stat *zk.Stat, err error) {
	if a.err != nil {
		return "", nil, a.err
	}
	path, rest, ok := cutText(a.body)
	if !ok || len(rest) < statSize {
		return "", nil, errShort
	}
	stat, err = answer{body: rest}.stat()
	return path, stat, err
}

// stat is what exists answers, as far as anybody here wants it.
func (a answer) stat() (*zk.Stat, error) {
	if a.err != nil {
		return nil, a.err
	}
	if len(a.body) < statSize {
		return nil, errShort
	}
	return &zk.Stat{Czxid: int64(binary.BigEndian.Uint64(a.body)), EphemeralOwner: int64(binary.BigEndian.Uint64(a.body[44:]))}, nil
}

// children is what a listing answers. A directory that is missing is empty.
func (a answer) children() ([]string, error) {
	if a.err != nil {
		if errors.Is(a.err, zk.ErrNoNode) {
			return nil, nil
		}
		return nil, a.err
	}
	if len(a.body) < 4 {
		return nil, errShort
	}
	n, rest := int32(binary.BigEndian.Uint32(a.body)), a.body[4:]
	names := make([]string, 0, min(max(n, 0), 1024))
	for range n {
		var name string
		var ok bool
		if name, rest, ok = cutText(rest); !ok {
			return nil, errShort
		}
		names = append(names, name)
	}
	return names, nil
}

var errShort = errors.New("an answer of the server is too short")

func cutText(b []byte) (string, []byte, bool) {
	if len(b) < 4 {
		return "", nil, false
	}
	n := int64(int32(binary.BigEndian.Uint32(b)))
	if b = b[4:]; n < 0 || n > int64(len(b)) {
		return "", nil, false
	}
	return string(b[:n]), b[n:], true
}

// serverErrors are the library's errors for what a server answers.
var serverErrors = map[int32]error{
	-8: zk.ErrBadArguments, -101: zk.ErrNoNode, -102: zk.ErrNoAuth, -103: zk.ErrBadVersion, -108: zk.ErrNoChildrenForEphemerals,
	-110: zk.ErrNodeExists, -111: zk.ErrNotEmpty, -112: zk.ErrSessionExpired, -114: zk.ErrInvalidACL, -115: zk.ErrAuthFailed,
	-118: zk.ErrSessionMoved,
}

func serverError(code int32) error {
	if code == 0 {
		return nil
	}
	if err := serverErrors[code]; err != nil {
		return err
	}
	return fmt.Errorf("error %d of the server", code)
}

// pipe is the connection that takes requests of ours; nil: there is none, and the library has to be asked.
func (w *wire) pipe() *wireConn {
	if w == nil {
		return nil
	}
	return w.ready.Load()
}

// roomy is how many bytes a connection surely takes at once when the server has read all that came before.
const roomy = 8 << 10

// send sends requests in one piece. It answers nil, and sends nothing, if there is no connection any more.
func (c *wireConn) send(qs ...query) *batch {
	if c == nil {
		return nil
	}
	n := 0
	for _, q := range qs {
		n += len(q)
	}
	b := &batch{session: c.session, done: make(chan struct{}), answers: make([]answer, 0, len(qs)), want: len(qs)}
	c.mu.Lock()
	if c.dead {
		c.mu.Unlock()
		return nil
	}
	for _, q := range qs {
		// Far away from the library's numbers, which go up and around as ours do.
		if ahead := (c.xid - c.theirs) & maxXid; ahead < maxXid/4 || ahead > maxXid/4*3 {
			c.xid = c.theirs + maxXid/2
		}
		c.xid = (c.xid + 1) & maxXid
		c.asked[int32(c.xid)] = b
		binary.BigEndian.PutUint32(q, uint32(len(q)-4))
		binary.BigEndian.PutUint32(q[4:], c.xid)
		c.out = append(c.out, q...)
	}
	c.due(len(qs), n)
	switch {
	case c.writing:
		c.mu.Unlock()
	case c.burst > roomy: // it may have to wait, which the caller must not
		c.writing = true
		c.mu.Unlock()
		go c.flush()
	default:
		c.writing = true
		text := c.out
		c.out = nil
		c.mu.Unlock()
		c.push(text)
		c.mu.Lock()
		more := len(c.out) > 0
		c.writing = more
		c.mu.Unlock()
		if more {
			go c.flush()
		}
	}
	return b
}

const maxXid = 1<<31 - 1

// flush sends what is queued.
func (c *wireConn) flush() {
	for {
		c.mu.Lock()
		text := c.out
		c.out = nil
		c.writing = len(text) > 0
		c.mu.Unlock()
		if len(text) == 0 {
			return
		}
		c.push(text)
	}
}

func (c *wireConn) push(text []byte) {
	if c.w.dropped.Load() {
		return
	}
	c.writes.Lock()
	_, err := c.Conn.Write(text)
	c.writes.Unlock()
	if err != nil {
		c.fail()
	}
}

// take keeps the answer that begins with head if it is one of ours.
func (c *wireConn) take(head []byte) (bool, error) {
	xid := int32(binary.BigEndian.Uint32(head[4:]))
	c.mu.Lock()
	b := c.asked[xid]
	c.mu.Unlock()
	if b == nil {
		return false, nil
	}
	zxid := int64(binary.BigEndian.Uint64(head[8:]))
	a := answer{body: make([]byte, binary.BigEndian.Uint32(head)-(headSize-4)), err: serverError(int32(binary.BigEndian.Uint32(head[16:])))}
	c.in.Discard(headSize)
	if _, err := io.ReadFull(c.in, a.body); err != nil {
		return true, err
	}
	c.w.seen.Store(max(c.w.seen.Load(), zxid))
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asked[xid] == b {
		delete(c.asked, xid)
		b.add(a)
	}
	return true, nil
}
