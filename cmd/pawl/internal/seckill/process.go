package seckill

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// process is one server as its parent sees it.
type process struct {
	number int
	cmd    *exec.Cmd
	in     io.WriteCloser
	box    *outbox
	stderr tail
	out    *bufio.Reader

	inFlight int // requests without an answer; the balancer's
}

// news is what a server said: some frames, or that it has ended.
type news struct {
	from   *process
	frames []frame
	text   string // of the last opError
	err    error  // it ended
}

// start runs a server and waits until it is ready. command is this program and the arguments that make it a server.
func start(command []string, cfg config) (*process, error) {
	p := &process{number: cfg.Server, cmd: exec.Command(command[0], command[1:]...)}
	p.cmd.SysProcAttr = detached()
	p.cmd.Stderr = &p.stderr
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start server %d: %w", p.number, err)
	}
	p.in, p.out, p.box = in, bufio.NewReaderSize(out, 1<<16), newOutbox(in)
	raw, err := json.Marshal(cfg)
	if err != nil {
		return nil, err
	}
	p.box.put(frame{opConfig, 0, uint32(len(raw))}, raw)
	return p, nil
}

// ready waits for the server's first word.
func (p *process) ready() error {
	if f, err := readFrame(p.out); err != nil || f.op != opReady {
		return p.died(err)
	}
	return nil
}

// listen passes on what the server says, until it ends or nobody wants to hear more.
func (p *process) listen(to chan<- news, quit <-chan struct{}) {
	for {
		n := news{from: p}
		for {
			f, err := readFrame(p.out)
			if err == nil && f.op == opError {
				text := make([]byte, f.arg)
				_, err = io.ReadFull(p.out, text)
				n.text = string(text)
			}
			if err != nil {
				n.err = err
				break
			}
			n.frames = append(n.frames, f)
			if p.out.Buffered() < frameSize || len(n.frames) == 1024 {
				break
			}
		}
		select {
		case to <- n:
		case <-quit:
			return
		}
		if n.err != nil {
			return
		}
	}
}

// quitLimit is how long a server may take to give back its locks and end.
const quitLimit = 20 * time.Second

// close tells the server to quit and waits until it has, at most quitLimit or until ctx ends; then it is killed.
func (p *process) close(ctx context.Context) error {
	p.box.close()
	p.in.Close()
	ctx, stop := context.WithTimeoutCause(ctx, quitLimit, fmt.Errorf("server %d did not quit within %v", p.number, quitLimit))
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- p.cmd.Wait() }()
	select {
	case err := <-ended:
		if err != nil {
			return p.died(err)
		}
		return nil
	case <-ctx.Done():
		p.cmd.Process.Kill()
		<-ended
		return context.Cause(ctx)
	}
}

// kill ends the server at once, even if it is stopped. It may be called twice, and after close.
func (p *process) kill() {
	p.cmd.Process.Kill()
	p.in.Close()
	p.box.close()
	p.cmd.Wait()
}

func (p *process) died(err error) error {
	p.kill()
	if text := p.stderr.String(); text != "" {
		return fmt.Errorf("server %d: %s", p.number, text)
	}
	return fmt.Errorf("server %d ended too early: %v", p.number, err)
}

// tail keeps the end of what a server prints.
type tail struct {
	mu sync.Mutex
	b  []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	if len(t.b) > 4096 {
		t.b = bytes.Clone(t.b[len(t.b)-4096:])
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.b))
}

// serverCommand is this program as a server, for a command that is called path, such as "pawl seckill".
func serverCommand(path string) ([]string, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program, to start it as a server: %w", err)
	}
	return append(append([]string{exe}, strings.Fields(path)[1:]...), "--"+serverFlag), nil
}
