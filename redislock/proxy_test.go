package redislock_test

import (
	"bytes"
	"io"
	"net"
	"sync"
	"testing"
)

// proxy is a TCP relay in front of a server that can lose what it carries.
type proxy struct {
	addr   string
	target string

	mu    sync.Mutex
	conns []net.Conn
	hold  *sync.Cond
	up    bool   // requests are kept back
	only  []byte // those that contain this
	down  bool   // answers are lost
}

func newProxy(t testing.TB, target string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{addr: l.Addr().String(), target: target}
	p.hold = sync.NewCond(&p.mu)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s, err := net.Dial("tcp", target)
			if err != nil {
				c.Close()
				continue
			}
			p.mu.Lock()
			p.conns = append(p.conns, c, s)
			p.mu.Unlock()
			wg.Go(func() { p.carry(s, c, p.wait, nil) })
			wg.Go(func() { p.carry(c, s, nil, func() bool { p.mu.Lock(); defer p.mu.Unlock(); return p.down }) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		p.release()
		p.mu.Lock()
		for _, c := range p.conns {
			c.Close()
		}
		p.mu.Unlock()
		wg.Wait()
	})
	return p
}

// carry copies from one side to the other. A request that was read goes on to the server even when its client is gone.
func (p *proxy) carry(to, from net.Conn, before func(request []byte), lose func() bool) {
	defer to.Close()
	buf := make([]byte, 1<<16)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if before != nil {
				before(buf[:n])
			}
			if lose == nil || !lose() {
				if _, err := to.Write(buf[:n]); err != nil {
					return
				}
			}
		}
		if err != nil {
			if err != io.EOF {
				from.Close()
			}
			return
		}
	}
}

func (p *proxy) wait(request []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.up && bytes.Contains(request, p.only) {
		p.hold.Wait()
	}
}

// keep keeps requests back until release.
func (p *proxy) keep() { p.keepThose("") }

// keepThose keeps requests back that contain a text.
func (p *proxy) keepThose(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.up, p.only = true, []byte(text)
}

func (p *proxy) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.up, p.down = false, false
	p.hold.Broadcast()
}

// lose drops answers until release.
func (p *proxy) lose() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = true
}

// cut closes all connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		c.Close()
	}
	p.conns = nil
}
