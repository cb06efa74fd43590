package seckill

import (
	"fmt"
	"io"
	"os"

	"github.com/mattn/go-isatty"
)

// progressLine is one line of a terminal that is written over and over; on anything else it writes nothing.
type progressLine struct {
	w    io.Writer
	tty  bool
	used bool
}

func newProgress(w io.Writer, quiet bool) *progressLine {
	f, ok := w.(*os.File)
	return &progressLine{w: w, tty: !quiet && ok && isatty.IsTerminal(f.Fd())}
}

func (p *progressLine) show(format string, args ...any) {
	if p.tty {
		fmt.Fprintf(p.w, "\r\x1b[K"+format, args...)
		p.used = true
	}
}

func (p *progressLine) clear() {
	if p.used {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.used = false
	}
}
