package rowtest

import (
	"bytes"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
)

// Gate passes everything between a client and a server, but can keep one COMMIT back.
type Gate struct {
	Kept chan struct{} // closed when a COMMIT was kept
	Open chan bool     // true: pass it on; false: drop its connection

	l      net.Listener
	server string

	mu    sync.Mutex
	armed bool
	conns []net.Conn
}

// NewGate makes one in front of the server at an address. It ends with the test.
func NewGate(t testing.TB, server string) *Gate {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &Gate{l: l, server: server}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s, err := net.Dial("tcp", server)
			if err != nil {
				c.Close()
				continue
			}
			g.mu.Lock()
			g.conns = append(g.conns, c, s)
			g.mu.Unlock()
			wg.Go(func() { io.Copy(c, s); c.Close() })
			wg.Go(func() { g.pass(c, s); s.Close() })
		}
	})
	t.Cleanup(func() {
		l.Close()
		g.mu.Lock()
		for _, c := range g.conns {
			c.Close()
		}
		g.mu.Unlock()
		wg.Wait()
	})
	return g
}

// Through is a location, or a data source, by way of the gate.
func (g *Gate) Through(location string) string {
	return strings.Replace(location, g.server, g.l.Addr().String(), 1)
}

// Arm has the next COMMIT kept.
func (g *Gate) Arm() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.armed, g.Kept, g.Open = true, make(chan struct{}), make(chan bool)
}

func (g *Gate) pass(c, s net.Conn) {
	buf := make([]byte, 64<<10)
	for {
		n, err := c.Read(buf)
		if n > 0 {
			text := bytes.ReplaceAll(bytes.ToLower(buf[:n]), []byte("autocommit"), nil) // a variable
			g.mu.Lock()
			keep := g.armed && bytes.Contains(text, []byte("commit"))
			if keep {
				g.armed = false
			}
			kept, open := g.Kept, g.Open
			g.mu.Unlock()
			if keep {
				close(kept)
				if !<-open {
					return
				}
			}
			if _, err := s.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
