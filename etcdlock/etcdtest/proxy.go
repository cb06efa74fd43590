package etcdtest

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"sync"
)

// proxy stands before a member's peer port. It reads in the first request of a connection which member sent it, so that
// the traffic between two members can be cut both ways without touching the system's network.
type proxy struct {
	to       string // the member's own peer address
	listener net.Listener
	cut      *cuts
	wg       sync.WaitGroup
}

// cuts says which members are cut off, and holds the connections of all proxies.
type cuts struct {
	mu    sync.Mutex
	off   map[string]bool   // by member ID in hex
	owner map[string]string // peer address to ID
	conns map[net.Conn][2]string
}

func newCuts() *cuts {
	return &cuts{off: map[string]bool{}, owner: map[string]string{}, conns: map[net.Conn][2]string{}}
}

func newProxy(addr, to string, c *cuts) (*proxy, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	p := &proxy{to: to, listener: l, cut: c}
	p.wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			p.wg.Go(func() { p.serve(conn) })
		}
	})
	return p, nil
}

func (p *proxy) serve(conn net.Conn) {
	defer conn.Close()
	defer p.cut.add(conn, "", "")()
	var head bytes.Buffer
	req, err := http.ReadRequest(bufio.NewReader(io.TeeReader(conn, &head)))
	if err != nil {
		return
	}
	p.cut.mu.Lock()
	ends := [2]string{req.Header.Get("X-Server-From"), p.cut.owner[p.to]}
	p.cut.mu.Unlock()
	back, err := net.Dial("tcp", p.to)
	if err != nil {
		return
	}
	defer back.Close()
	defer p.cut.add(back, ends[0], ends[1])()
	if p.cut.apart(ends) {
		return
	}
	if _, err := back.Write(head.Bytes()); err != nil {
		return
	}
	p.wg.Go(func() {
		io.Copy(conn, back)
		conn.Close()
	})
	io.Copy(back, conn)
}

func (c *cuts) add(conn net.Conn, from, to string) func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conns[conn] = [2]string{from, to}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.conns, conn)
	}
}

func (c *cuts) apart(ends [2]string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.off[ends[0]] || c.off[ends[1]]
}

// set cuts a member off, or lets it in again.
func (c *cuts) set(id string, off bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.off[id] = off
	if off {
		for conn, ends := range c.conns {
			if ends[0] == id || ends[1] == id {
				conn.Close()
			}
		}
	}
}

func (p *proxy) close() {
	p.listener.Close()
	p.cut.mu.Lock()
	for conn := range p.cut.conns {
		conn.Close()
	}
	p.cut.mu.Unlock()
	p.wg.Wait()
}
