package zklock

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"
)

type tlsConfig = tls.Config

// wire is the transport of a connection that Open makes. It mends what the client library leaves open: names of servers
// are resolved at each dial instead of once, a server that takes the connection but does not answer is given up in time
// for another one, so is one that stops answering, the watches are set again before anything else is heard, and a
// connection can end without ending its session.
type wire struct {
	tls       *tls.Config
	handshake time.Duration // how long a server may take to answer the first words
	life      context.Context
	end       context.CancelFunc
	dropped   atomic.Bool // the connection is to end as if the process had died
	drained   sync.WaitGroup
	watching  atomic.Pointer[hub]      // of the driver: it knows whether there ever was a watch
	session   atomic.Int64             // of the last connection
	creds     int                      // how many credentials the library gives, and has answered, before it sets its watches again
	ready     atomic.Pointer[wireConn] // the connection that takes requests of ours; nil: none
	seen      atomic.Int64             // the newest zxid in an answer to one of them

	mu      sync.Mutex
	current net.Conn
	servers []string
	at      int
	tried   int // since the last success
}

func newWire(servers []string, config *tls.Config, session time.Duration) *wire {
	w := &wire{tls: config, handshake: max(session/6, 500*time.Millisecond), servers: append([]string{}, servers...)}
	w.life, w.end = context.WithCancel(context.Background())
	rand.Shuffle(len(w.servers), func(i, j int) { w.servers[i], w.servers[j] = w.servers[j], w.servers[i] })
	return w
}

// Init, Len, Next and Connected make it a zk.HostProvider.
func (w *wire) Init([]string) error { return nil }

func (w *wire) Len() int { return len(w.servers) }

func (w *wire) Next() (string, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.servers[w.at]
	w.at = (w.at + 1) % len(w.servers)
	w.tried++
	// The library waits for a second before a server that starts a new round.
	return s, w.tried > len(w.servers) && (w.tried-1)%len(w.servers) == 0
}

func (w *wire) Connected() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tried = 0
}

// Printf makes it a zk.Logger. What the library has to say is for those who look for it.
func (w *wire) Printf(format string, args ...any) {
	slog.Debug("zookeeper client", "text", fmt.Sprintf(format, args...))
}

// dial makes the library's next connection.
func (w *wire) dial(network, addr string, timeout time.Duration) (net.Conn, error) {
	if w.dropped.Load() {
		return nil, errDropped
	}
	conn, err := w.connect(addr, timeout)
	if err != nil {
		return nil, err
	}
	conn.SetReadDeadline(time.Now().Add(w.handshake))
	w.mu.Lock()
	w.current = conn
	w.mu.Unlock()
	c := &wireConn{Conn: conn, w: w, rearmed: make(chan struct{}), asked: map[int32]*batch{}, tallies: map[string]*tally{}}
	c.in = bufio.NewReaderSize(rawReader{c}, 16<<10)
	return c, nil
}

func (w *wire) connect(addr string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(w.life, timeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil || w.tls == nil {
		return conn, err
	}
	config := w.tls.Clone()
	if config.ServerName == "" {
		config.ServerName, _, _ = net.SplitHostPort(addr)
	}
	secure := tls.Client(conn, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, err
	}
	return secure, nil
}

var errDropped = errors.New("the connection was dropped")

// close ends the connection: with its session, or as if the process had died.
func (w *wire) close(conn *zk.Conn, session bool) {
	if !session {
		w.dropped.Store(true)
	}
	closed := make(chan struct{})
	go func() {
		conn.Close()
		close(closed)
	}()
	if !session {
		// The library's Close waits for a second for an answer if it comes after the end of its loop, which may be in a
		// dial or in a handshake: so those end a little later.
		select {
		case <-closed:
		case <-time.After(5 * time.Millisecond):
		}
		w.end()
		w.mu.Lock()
		if w.current != nil {
			w.current.Close()
		}
		w.mu.Unlock()
	}
	<-closed
	w.end()
	w.drained.Wait()
}

// wireConn is one connection to a server. The library uses it, and pipe.go.
type wireConn struct {
	net.Conn
	w  *wire
	in *bufio.Reader // of what raw reads

	// Only the library's reading side uses these.
	frame int  // how many frames have come; the first is the answer to the first words
	left  int  // bytes of the present frame that the library has not read yet
	open  bool // the watches are set again, or there are none

	session int64         // set before there is a second frame
	limit   time.Duration // how long a request may be without any answer; likewise
	rearmed chan struct{} // closed when the request for the watches leaves
	once    sync.Once
	greeted bool       // the first words were sent
	writes  sync.Mutex // held while Conn.Write runs

	mu      sync.Mutex
	since   time.Time // when something was sent and nothing has come since; zero: nothing is due
	owed    int       // requests without an answer
	burst   int       // bytes that were sent since nothing was owed
	asked   map[int32]*batch
	tallies map[string]*tally
	xid     uint32 // of the last request of ours
	theirs  uint32 // and of the library's
	out     []byte // requests of ours that are to be sent
	writing bool   // somebody sends them
	dead    bool
}

// Write refuses once the connection is dropped, so that a request to end the session never leaves.
func (c *wireConn) Write(p []byte) (int, error) {
	if c.w.dropped.Load() {
		return 0, errDropped
	}
	if !c.greeted {
		c.greeted = true
		p = c.w.greet(p)
		return c.Conn.Write(p)
	}
	xid, op := binary.BigEndian.Uint32(p[4:]), binary.BigEndian.Uint32(p[8:])
	if op == opSetWatches {
		c.once.Do(func() { close(c.rearmed) })
	}
	c.mu.Lock()
	if int32(xid) > 0 {
		c.theirs = xid
	}
	c.due(1, len(p))
	c.mu.Unlock()
	c.writes.Lock()
	defer c.writes.Unlock()
	return c.Conn.Write(p)
}

// due notes that answers are due. It is called under mu.
func (c *wireConn) due(requests, bytes int) {
	if c.owed == 0 {
		c.burst = 0
	}
	c.owed += requests
	c.burst += bytes
	if c.since.IsZero() {
		c.since = time.Now()
	}
}

// greet puts the newest zxid that was seen into the first words of a connection that goes on with a session: the library
// knows only what it was answered itself, and a server that lags behind the session must not take it.
func (w *wire) greet(words []byte) []byte {
	if len(words) < 28 || binary.BigEndian.Uint64(words[20:]) == 0 {
		w.seen.Store(0)
		return words
	}
	words = bytes.Clone(words)
	zxid := max(int64(binary.BigEndian.Uint64(words[8:])), w.seen.Load())
	binary.BigEndian.PutUint64(words[8:], uint64(zxid))
	return words
}

// awaitWatches holds back what the server says on a new connection of an old session until the library has asked it to set
// its watches again, or for so long that it seems to have none. The library reads the zxid that the request names without a
// lock, while answers may already change it: a change during the outage would be missed, or memory be read while it is
// written.
func (c *wireConn) awaitWatches() {
	h := c.w.watching.Load()
	if h == nil || !h.used.Load() {
		return
	}
	t := time.NewTimer(150 * time.Millisecond)
	defer t.Stop()
	select {
	case <-c.rearmed:
	case <-t.C:
	case <-c.w.life.Done():
	}
}

// SetReadDeadline does nothing: the deadlines are ours. The library would wait for several session timeouts for the first
// four bytes of a server and without end for the rest; later, for two thirds of a session timeout, by which time all trust is over and
// no other server can be asked.
func (c *wireConn) SetReadDeadline(time.Time) error { return nil }

// raw reads what the server sends. The deadline is that of the dial until the server has answered the first words. Later it is looked
// at only when it has passed: an answer that is due then may be late, or have time left.
func (c *wireConn) raw(p []byte) (int, error) {
	for {
		n, err := c.Conn.Read(p)
		if n > 0 {
			c.mu.Lock()
			c.since = time.Time{}
			c.mu.Unlock()
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) || !c.patient() {
			return n, err
		}
	}
}

// patient sets the next deadline, unless an answer is overdue.
func (c *wireConn) patient() bool {
	if c.limit == 0 {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	next := time.Now()
	if !c.since.IsZero() {
		if next.Sub(c.since) >= c.limit {
			return false
		}
		next = c.since
	}
	c.Conn.SetReadDeadline(next.Add(c.limit))
	return true
}

// rawReader makes raw a Reader.
type rawReader struct{ c *wireConn }

func (r rawReader) Read(p []byte) (int, error) { return r.c.raw(p) }

// Read gives the library its frames, and keeps the answers to requests of ours.
func (c *wireConn) Read(p []byte) (int, error) {
	n, err := c.read(p)
	if err == io.EOF && c.w.dropped.Load() {
		err = errDropped
	}
	if err != nil {
		c.fail()
	}
	return n, err
}

func (c *wireConn) read(p []byte) (int, error) {
	for c.left == 0 {
		if !c.open && c.frame == 1+c.w.creds {
			c.awaitWatches()
			c.open = true
		}
		if c.open && c.frame == 1+c.w.creds && c.session != 0 {
			c.w.ready.Store(c)
		}
		head, err := c.in.Peek(headSize)
		if err != nil {
			return 0, err
		}
		size := int(binary.BigEndian.Uint32(head))
		if size < headSize-4 || size > maxFrame {
			return 0, fmt.Errorf("the server sends a frame of %d bytes", size)
		}
		if c.frame == 0 {
			c.shake(head)
		} else {
			if int32(binary.BigEndian.Uint32(head[4:])) == eventXid {
				c.event(size)
			} else {
				c.mu.Lock()
				c.owed--
				c.mu.Unlock()
			}
			if ours, err := c.take(head); err != nil {
				return 0, err
			} else if ours {
				c.frame++
				continue
			}
		}
		c.frame++
		c.left = 4 + size
	}
	n, err := c.in.Read(p[:min(len(p), c.left)])
	c.left -= n
	return n, err
}

// maxFrame is far above what a server sends (jute.maxbuffer, 1 MB unless somebody raised it).
const maxFrame = 64 << 20

// eventXid marks what is no answer.
const eventXid = -1

// event looks at the news of a watch, which stays there for the library: a head, two numbers and a path.
func (c *wireConn) event(size int) {
	frame, err := c.in.Peek(4 + size)
	if err == nil && size >= headSize+8 {
		if path, _, ok := cutText(frame[headSize+8:]); ok {
			c.news(path)
			return
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.tallies)
}

// shake reads the beginning of the answer to the first words: its size, the version, the timeout and the session.
func (c *wireConn) shake(head []byte) {
	timeout := time.Duration(binary.BigEndian.Uint32(head[8:])) * time.Millisecond
	c.session = int64(binary.BigEndian.Uint64(head[12:]))
	c.limit = max(timeout/4, min(timeout/2, 1500*time.Millisecond))
	c.Conn.SetReadDeadline(time.Now().Add(c.limit))
	// The library has watches to set again only in a session that goes on.
	c.open = c.w.session.Swap(c.session) != c.session
}

// fail ends the connection. What was asked and not answered has no answer.
func (c *wireConn) fail() {
	c.w.ready.CompareAndSwap(c, nil)
	c.mu.Lock()
	c.dead = true
	c.out = nil
	asked := c.asked
	c.asked = nil
	for _, b := range asked {
		b.add(answer{err: zk.ErrConnectionClosed})
	}
	c.mu.Unlock()
	c.Conn.Close()
}

// Close is fail.
func (c *wireConn) Close() error {
	c.fail()
	return nil
}
