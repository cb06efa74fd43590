package seckill

import (
	"encoding/binary"
	"io"
	"sync"
)

// The balancer and a server talk over the server's standard input and output in frames of nine bytes: an operation, the
// number of a request, an argument. Many requests are under way at once. The end of its input tells a server to quit.
type frame struct {
	op  op
	id  uint32
	arg uint32
}

type op byte

const (
	opConfig op = iota + 1 // to a server, first: arg bytes of JSON follow
	opReady                // from a server, first
	opBuy                  // to a server: buyer arg asks
	opAnswer               // from a server: arg is an answer
	opError                // from a server: arg bytes of text follow, why a request failed
	opPause                // from a server: a holder is between read and write, and saw arg items left
	opResume               // to a server: go on
)

// answer is what a buyer hears.
type answer uint32

const (
	bought answer = iota + 1
	already
	soldOut
	busy   // in use: try again
	failed // the shop failed: try again
)

const frameSize = 9

func (f frame) append(b []byte) []byte {
	b = append(b, byte(f.op))
	b = binary.BigEndian.AppendUint32(b, f.id)
	return binary.BigEndian.AppendUint32(b, f.arg)
}

func parseFrame(b []byte) frame {
	return frame{op(b[0]), binary.BigEndian.Uint32(b[1:]), binary.BigEndian.Uint32(b[5:])}
}

func readFrame(r io.Reader) (frame, error) {
	var b [frameSize]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return frame{}, err
	}
	return parseFrame(b[:]), nil
}

// outbox sends frames without making those who put them in wait. What gathers while it writes goes out in one piece.
type outbox struct {
	w    io.Writer
	done chan struct{}

	mu     sync.Mutex
	more   sync.Cond
	buf    []byte
	closed bool
	err    error
}

func newOutbox(w io.Writer) *outbox {
	o := &outbox{w: w, done: make(chan struct{})}
	o.more.L = &o.mu
	go o.run()
	return o
}

func (o *outbox) put(f frame, text []byte) {
	o.mu.Lock()
	if o.err == nil && !o.closed {
		o.buf = append(f.append(o.buf), text...)
		o.more.Signal()
	}
	o.mu.Unlock()
}

func (o *outbox) run() {
	defer close(o.done)
	var spare []byte
	for {
		o.mu.Lock()
		for len(o.buf) == 0 && !o.closed {
			o.more.Wait()
		}
		buf := o.buf
		o.buf = spare[:0]
		o.mu.Unlock()
		if len(buf) == 0 {
			return
		}
		_, err := o.w.Write(buf)
		spare = buf
		if err != nil {
			o.mu.Lock()
			o.err = err
			o.buf = nil
			o.mu.Unlock()
			return
		}
	}
}

// close sends what is left and ends the goroutine.
func (o *outbox) close() {
	o.mu.Lock()
	o.closed = true
	o.more.Signal()
	o.mu.Unlock()
	<-o.done
}
