package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
)

// printer writes the program's own messages. Data goes to standard output instead. It is safe for concurrent use.
type printer struct {
	w              io.Writer
	quiet, verbose bool
	format         logFormat

	mu     sync.Mutex
	status bool // the last line is a status line, to be overwritten
}

// error says why the program ends, even with --quiet.
func (p *printer) error(text string) { p.print(slog.LevelError, text) }

// note says what a user should know.
func (p *printer) note(format string, args ...any) {
	if !p.quiet {
		p.print(slog.LevelWarn, fmt.Sprintf(format, args...))
	}
}

// detail says what --verbose asks for.
func (p *printer) detail(format string, args ...any) {
	if p.verbose {
		p.print(slog.LevelInfo, fmt.Sprintf(format, args...))
	}
}

// overwrite shows text in a line that the next message replaces. It is for terminals and for --log-format text.
func (p *printer) overwrite(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprint(p.w, "\r", text, "\x1b[K")
	p.status = true
}

// wipe removes a line of overwrite.
func (p *printer) wipe() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
}

func (p *printer) clear() {
	if p.status {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.status = false
	}
}

func (p *printer) print(level slog.Level, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
	if p.format == "json" {
		slog.New(slog.NewJSONHandler(p.w, nil)).Log(context.Background(), level, text)
		return
	}
	fmt.Fprintf(p.w, "pawl: %s\n", text)
}

// logger is for the client: what nobody can receive.
func (p *printer) logger() *slog.Logger {
	switch {
	case !p.verbose:
		return slog.New(slog.DiscardHandler) // the command line tells all that it concerns in its own words
	case p.format == "json":
		return slog.New(slog.NewJSONHandler(p.w, nil))
	}
	return slog.New(slog.NewTextHandler(p.w, nil))
}

type logFormat string

func (f *logFormat) String() string {
	if *f == "" {
		return "text"
	}
	return string(*f)
}

func (f *logFormat) Set(s string) error {
	s = strings.ToLower(s)
	if s != "text" && s != "json" {
		return fmt.Errorf("it is text or json")
	}
	*f = logFormat(s)
	return nil
}

func (f *logFormat) Type() string { return "FORMAT" }
