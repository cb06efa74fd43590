package zklock

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
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
	watching  atomic.Pointer[hub] // of the driver: it knows whether there ever was a watch
	session   atomic.Int64        // of the last connection
	creds     int                 // how many credentials the library gives, and has answered, before it sets its watches again
	silence   atomic.Int64        // how long, in nanoseconds, a request may be without any answer; 0: no limit of ours

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
	return &wireConn{Conn: conn, w: w, rearmed: make(chan struct{})}, nil
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

// wireConn is one connection to a server.
type wireConn struct {
	net.Conn
	w *wire

	// Only the library's reading side uses these.
	frame  int      // how many frames have come; the first is the answer to the first words
	head   [20]byte // of the present frame; of the first one: its size, version, timeout and session
	got    int      // bytes of the present frame, its size included
	shaken bool     // the first frame has come, so the library's own deadlines hold
	open   bool     // and the watches are set again, or there are none

	rearmed chan struct{} // closed when the request for that leaves
	once    sync.Once

	mu      sync.Mutex
	waiting bool // something was sent and nothing has come since: the read deadline is ours
}

// Write refuses once the connection is dropped, so that a request to end the session never leaves.
func (c *wireConn) Write(p []byte) (int, error) {
	if c.w.dropped.Load() {
		return 0, errDropped
	}
	if len(p) >= 12 && binary.BigEndian.Uint32(p[8:]) == opSetWatches {
		c.once.Do(func() { close(c.rearmed) })
	}
	c.mu.Lock()
	if limit := time.Duration(c.w.silence.Load()); limit > 0 && !c.waiting {
		c.waiting = true
		c.Conn.SetReadDeadline(time.Now().Add(limit))
	}
	c.mu.Unlock()
	return c.Conn.Write(p)
}

const opSetWatches = 101

// awaitWatches holds back what the server says on a new connection of an old session until the library has asked it to
// set its watches again, or for so long that it seems to have none. The library reads the zxid that the request names without a lock, while answers may already change it: a change
// during the outage would be missed, or memory be read while it is written.
func (c *wireConn) awaitWatches() {
	c.open = true
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

// SetReadDeadline leaves the deadline of the dial in place until the server has answered: the library's own is several
// session timeouts for the first four bytes, and none for the rest. Later it gives a server two thirds of a session
// timeout to say anything, by which time all trust is over and no other server can be asked; so while an answer is due,
// the deadline is ours.
func (c *wireConn) SetReadDeadline(t time.Time) error {
	if !c.shaken {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting {
		return nil
	}
	return c.Conn.SetReadDeadline(t)
}

// Read sees each frame begin and end, since the library never reads over the end of one.
func (c *wireConn) Read(p []byte) (int, error) {
	if c.got == 0 && !c.open && c.frame == 1+c.w.creds {
		c.awaitWatches()
	}
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.mu.Lock()
		c.waiting = false
		c.mu.Unlock()
	}
	copy(c.head[min(c.got, len(c.head)):], p[:n])
	c.got += n
	if c.got >= 4 && c.got >= 4+int(binary.BigEndian.Uint32(c.head[:])) {
		if c.frame == 0 {
			c.shaken = true
			c.Conn.SetReadDeadline(time.Time{})
			// The library has watches to set again only in a session that goes on.
			session := int64(binary.BigEndian.Uint64(c.head[12:]))
			c.open = c.w.session.Swap(session) != session
		}
		c.frame++
		c.got = 0
	}
	if err == io.EOF && c.w.dropped.Load() {
		err = errDropped
	}
	return n, err
}
