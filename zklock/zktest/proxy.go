package zktest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
)

// The operations of the protocol that tests count or break.
const (
	Create      = 1
	Delete      = 2
	Exists      = 3
	GetData     = 4
	Sync        = 9
	GetChildren = 12
	Multi       = 14
	Ping        = 11
	Container   = 19
	SetWatches  = 101
	CloseReq    = -11

	// Another form of Create and of GetChildren, which count as those.
	create2, getChildren1 = 15, 8
)

// Proxy stands between clients and a server. It understands the frames of the protocol, so that it can count requests and
// break a connection at an exact place.
type Proxy struct {
	Addr string

	target   string
	listener net.Listener
	wg       sync.WaitGroup

	mu      sync.Mutex
	pairs   map[*pair]bool
	counts  map[int32]int
	cut     map[int32]bool // the next reply to this operation is kept back and the connection cut
	hole    bool
	refuse  bool
	session int64
	passwd  []byte
	seen    int64
}

// pair is a client's connection and the one to the server.
type pair struct {
	client, server net.Conn

	mu  sync.Mutex
	ops map[int32]int32 // of requests without an answer, by xid
}

// StartProxy starts a proxy to an address. It ends with t.
func StartProxy(t TB, target string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("%v", err)
	}
	p := &Proxy{Addr: l.Addr().String(), target: target, listener: l, pairs: map[*pair]bool{}, counts: map[int32]int{}, cut: map[int32]bool{}}
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		l.Close()
		p.Cut()
		p.wg.Wait()
	})
	return p
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		refuse := p.refuse
		p.mu.Unlock()
		server, err := net.Dial("tcp", p.target)
		if err != nil || refuse {
			client.Close()
			if err == nil {
				server.Close()
			}
			continue
		}
		x := &pair{client: client, server: server, ops: map[int32]int32{}}
		p.mu.Lock()
		p.pairs[x] = true
		p.mu.Unlock()
		p.wg.Go(func() { p.pump(x, client, server, p.request) })
		p.wg.Go(func() { p.pump(x, server, client, p.reply) })
	}
}

// pump carries frames until an end closes or look says no.
func (p *Proxy) pump(x *pair, from, to net.Conn, look func(x *pair, first bool, frame []byte) bool) {
	defer p.drop(x)
	for first := true; ; first = false {
		head := make([]byte, 4)
		if _, err := io.ReadFull(from, head); err != nil {
			return
		}
		n := int(binary.BigEndian.Uint32(head))
		if n > 64<<20 {
			return
		}
		frame := make([]byte, n)
		if _, err := io.ReadFull(from, frame); err != nil || !look(x, first, frame) {
			return
		}
		p.mu.Lock()
		hole := p.hole
		p.mu.Unlock()
		if hole {
			continue
		}
		if _, err := to.Write(append(head, frame...)); err != nil {
			return
		}
	}
}

func (p *Proxy) drop(x *pair) {
	x.client.Close()
	x.server.Close()
	p.mu.Lock()
	delete(p.pairs, x)
	p.mu.Unlock()
}

func (p *Proxy) request(x *pair, first bool, frame []byte) bool {
	if first && len(frame) >= 12 {
		p.mu.Lock()
		p.seen = int64(binary.BigEndian.Uint64(frame[4:]))
		p.mu.Unlock()
	}
	if first || len(frame) < 8 {
		return true
	}
	xid, op := int32(binary.BigEndian.Uint32(frame)), int32(binary.BigEndian.Uint32(frame[4:]))
	switch op {
	case create2:
		op = Create
	case getChildren1:
		op = GetChildren
	}
	x.mu.Lock()
	x.ops[xid] = op
	x.mu.Unlock()
	p.mu.Lock()
	p.counts[op]++
	p.mu.Unlock()
	return true
}

func (p *Proxy) reply(x *pair, first bool, frame []byte) bool {
	if first {
		// protocol version, timeout, session id, password
		if len(frame) >= 36 {
			p.mu.Lock()
			p.session = int64(binary.BigEndian.Uint64(frame[8:]))
			p.passwd = append([]byte{}, frame[20:36]...)
			p.mu.Unlock()
		}
		return true
	}
	if len(frame) < 4 {
		return true
	}
	xid := int32(binary.BigEndian.Uint32(frame))
	x.mu.Lock()
	op, ok := x.ops[xid]
	delete(x.ops, xid)
	x.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	if ok && p.cut[op] {
		delete(p.cut, op)
		return false
	}
	return true
}

// CutReply keeps back the next reply to an operation and cuts its connection instead: the server did it, the client does
// not know.
func (p *Proxy) CutReply(op int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut[op] = true
}

// Pending reports whether a CutReply has not happened yet.
func (p *Proxy) Pending() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.cut) > 0
}

// Cut ends all connections.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for x := range p.pairs {
		x.client.Close()
		x.server.Close()
	}
}

// Hole makes all connections silent, in both directions, or ends that. What was sent meanwhile is lost.
func (p *Proxy) Hole(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hole = on
}

// Refuse makes the proxy close new connections at once, or ends that.
func (p *Proxy) Refuse(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = on
}

// Counts are the requests by operation since the last call. Pings are left out.
func (p *Proxy) Counts() map[int32]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.counts
	p.counts = map[int32]int{}
	delete(c, Ping)
	return c
}

// Seen is the zxid that the client which connected last says it has seen: a server that lags behind it sends the client away.
func (p *Proxy) Seen() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen
}

// EndSession ends the session of the client that connected last, as a second client with the session's id and password
// would. Meanwhile the first client, whose connection the server closes, cannot come back. It finds out afterwards.
func (p *Proxy) EndSession() error {
	p.Refuse(true)
	defer p.Refuse(false)
	p.mu.Lock()
	session, passwd := p.session, p.passwd
	p.mu.Unlock()
	conn, err := net.Dial("tcp", p.target)
	if err != nil {
		return err
	}
	defer conn.Close()
	hello := make([]byte, 0, 64)
	hello = binary.BigEndian.AppendUint32(hello, 0)      // protocol version
	hello = binary.BigEndian.AppendUint64(hello, 0)      // last zxid seen
	hello = binary.BigEndian.AppendUint32(hello, 10_000) // timeout
	hello = binary.BigEndian.AppendUint64(hello, uint64(session))
	hello = binary.BigEndian.AppendUint32(hello, uint32(len(passwd)))
	hello = append(hello, passwd...)
	if err := send(conn, hello); err != nil {
		return err
	}
	answer, err := receive(conn)
	if err != nil {
		return fmt.Errorf("the server does not welcome the second client: %w", err)
	}
	if len(answer) < 16 || int64(binary.BigEndian.Uint64(answer[8:])) != session {
		return errors.New("the session is over already")
	}
	bye := binary.BigEndian.AppendUint32(nil, 1)
	end := int32(CloseReq)
	bye = binary.BigEndian.AppendUint32(bye, uint32(end))
	if err := send(conn, bye); err != nil {
		return err
	}
	if _, err = receive(conn); err != nil {
		return fmt.Errorf("the server does not confirm the end of the session: %w", err)
	}
	return nil
}

func send(conn net.Conn, frame []byte) error {
	_, err := conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...))
	return err
}

func receive(conn net.Conn) ([]byte, error) {
	head := make([]byte, 4)
	if _, err := io.ReadFull(conn, head); err != nil {
		return nil, err
	}
	frame := make([]byte, binary.BigEndian.Uint32(head))
	_, err := io.ReadFull(conn, frame)
	return frame, err
}
