package seckill

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"testing"
)

func TestFrames(t *testing.T) {
	var b bytes.Buffer
	box := newOutbox(&b)
	var wg sync.WaitGroup
	const n = 1000
	for i := range uint32(4) {
		wg.Go(func() {
			for j := range uint32(n) {
				f := frame{opError, i, j}
				f.arg = 3
				box.put(f, []byte{byte(i), byte(i), byte(i)})
			}
		})
	}
	wg.Wait()
	box.close()
	box.close()
	box.put(frame{opBuy, 1, 1}, nil) // after close: nothing
	got := map[uint32]int{}
	for {
		f, err := readFrame(&b)
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		text := make([]byte, f.arg)
		io.ReadFull(&b, text)
		if f.op != opError || !bytes.Equal(text, []byte{byte(f.id), byte(f.id), byte(f.id)}) {
			t.Fatalf("got %v with %v", f, text)
		}
		got[f.id]++
	}
	for i := range uint32(4) {
		if got[i] != n {
			t.Errorf("sender %d: got %d frames, want %d", i, got[i], n)
		}
	}
}

type brokenPipe struct{}

var errPipe = errors.New("pipe")

func (brokenPipe) Write([]byte) (int, error) { return 0, errPipe }

func TestOutboxOfABrokenPipe(t *testing.T) {
	box := newOutbox(brokenPipe{})
	for range 1000 {
		box.put(frame{opBuy, 1, 1}, nil)
	}
	box.close() // does not hang
}

func TestServerRefusesNonsense(t *testing.T) {
	for name, in := range map[string][]byte{
		"nothing":          {},
		"no config":        frame{opBuy, 1, 1}.append(nil),
		"half a config":    frame{opConfig, 0, 99}.append(nil),
		"no JSON":          append(frame{opConfig, 0, 2}.append(nil), "]["...),
		"unknown strategy": append(frame{opConfig, 0, 2}.append(nil), "{}"...),
	} {
		var out bytes.Buffer
		if err := serve(bytes.NewReader(in), &out); err == nil || out.Len() != 0 {
			t.Errorf("%s: got %v and %d bytes, want an error and no answer", name, err, out.Len())
		}
	}
}

func TestShortSession(t *testing.T) {
	for raw, want := range map[string]string{
		"zk://h1,h2/a":           "zk://h1,h2/a?timeout=4s",
		"zookeeper://h?x=1":      "zookeeper://h?x=1&timeout=4s",
		"zk://h?timeout=9s":      "zk://h?timeout=9s",
		"redis://h/0":            "redis://h/0",
		"sqlite:///a%20?timeout": "sqlite:///a%20?timeout",
	} {
		if got := shortSession(raw); got != want {
			t.Errorf("%s: got %s, want %s", raw, got, want)
		}
	}
}
