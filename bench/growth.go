package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image/color"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/pawl-lock/pawl/cmd/pawl/bench"
)

// sweep is one thing that grows.
type sweep struct {
	name, title, axis string
	at                []int
	point             func(n int) bench.Case
	clients           []string
	lines             []line
}

// line is a curve in a chart: a measure of a client.
type line struct {
	label, client, field string
	scale                float64
}

// knob is what the two bounds of a hand-off change.
var knob = []line{{"cycles/s", "pawl", "cycles_per_s", 1}, {"p99 in µs", "pawl", "p99_us", 1}, {"longest wait in µs", "pawl", "max_us", 1},
	{"commands per 1,000 cycles", "pawl", "commands_per_cycle", 1000}, {"smallest share, in 1/1,000", "pawl", "lowest_share", 1000}}

func sweeps(quick bool) []sweep {
	upTo := func(ns ...int) []int {
		if quick {
			return ns[:min(len(ns), 4)]
		}
		return ns
	}
	return []sweep{
		{"goroutines", "One key, one process", "goroutines", upTo(1, 10, 100, 1000, 10_000),
			func(n int) bench.Case {
				return bench.Case{Kind: bench.Cycles, Goroutines: n, Processes: 1}
			}, []string{"pawl", "rueidislock"},
			[]line{{"pawl, cycles/s", "pawl", "cycles_per_s", 1}, {"rueidislock, cycles/s", "rueidislock", "cycles_per_s", 1},
				{"pawl, p99 in µs", "pawl", "p99_us", 1}, {"rueidislock, p99 in µs", "rueidislock", "p99_us", 1}}},
		{"keys", "256 goroutines of one process, each cycle on another key", "keys", upTo(1, 10, 100, 1000, 10_000, 100_000),
			func(n int) bench.Case {
				return bench.Case{Kind: bench.Cycles, Goroutines: 256, Processes: 1, Own: true, Keys: n}
			}, []string{"pawl"},
			[]line{{"cycles/s", "pawl", "cycles_per_s", 1}, {"p99 in µs", "pawl", "p99_us", 1}, {"commands per 1,000 cycles", "pawl", "commands_per_cycle", 1000}}},
		{"held", "Leases of 6 s held at once", "leases", upTo(1, 10, 100, 1000, 10_000, 100_000),
			func(n int) bench.Case {
				return bench.Case{Kind: bench.Held, Goroutines: n, Processes: 1, TTL: 6 * time.Second, For: 4 * time.Second}
			}, []string{"pawl"},
			[]line{{"renewal commands/s", "pawl", "commands_per_s", 1}, {"heap bytes each", "pawl", "heap_bytes_per_item", 1}, {"client CPU in µs/s", "pawl", "client_cpu_ms_per_s", 1000}}},
		{"processes", "960 goroutines on one key, in so many processes", "processes", upTo(1, 2, 4, 8, 16),
			func(n int) bench.Case {
				return bench.Case{Kind: bench.Cycles, Goroutines: 960, Processes: n}
			}, []string{"pawl", "rueidislock"},
			[]line{{"pawl, cycles/s", "pawl", "cycles_per_s", 1}, {"rueidislock, cycles/s", "rueidislock", "cycles_per_s", 1},
				{"pawl, p99 in µs", "pawl", "p99_us", 1}, {"rueidislock, p99 in µs", "rueidislock", "p99_us", 1}}},
		{"span", "Hot key, 4 processes of 250 goroutines: Options.Span (Slice 5 ms)", "Span", upTo(1, 4, 16, 64, 256, 1024),
			func(n int) bench.Case {
				return bench.Case{Kind: bench.Cycles, Goroutines: 1000, Processes: 4, Span: n}
			}, []string{"pawl"}, knob},
		{"slice", "Hot key, 4 processes of 250 goroutines: Options.Slice (Span 1,024)", "Slice in ms", upTo(1, 2, 5, 10, 20, 50),
			func(n int) bench.Case {
				return bench.Case{Kind: bench.Cycles, Goroutines: 1000, Processes: 4, Slice: time.Duration(n) * time.Millisecond}
			}, []string{"pawl"}, knob},
	}
}

// growth measures and writes charts, and its part of the page.
func growth(ctx context.Context, p *bench.Plan, folder string, quick bool, say func(string)) ([]bench.Result, error) {
	s := &stage{}
	defer s.close()
	stores := s.launch([]string{"redis"}, say)
	if len(stores) == 0 {
		return nil, errors.New("no Redis")
	}
	p.Rounds, p.For = 3, time.Second
	if quick {
		p.Rounds, p.For = 1, 300*time.Millisecond
	}
	var text bytes.Buffer
	fmt.Fprintf(&text, "\n%s, %s on %d cores shared by client and server, %s; Redis without persistence.\n",
		time.Now().Format("2006-01-02"), processor(), runtime.NumCPU(), plural(p.Rounds, "round"))
	var all []bench.Result
	for _, sw := range sweeps(quick) {
		q := *p
		q.Targets = targets(stores[0], sw.clients)
		for i := range q.Targets {
			q.Targets[i].Skip = nil
		}
		for _, n := range sw.at {
			c := sw.point(n)
			c.Name = fmt.Sprintf("%s-%d", sw.name, n)
			q.Cases = append(q.Cases, c)
		}
		rs, err := q.Run(ctx)
		all = append(all, rs...)
		if err != nil {
			return all, err
		}
		if err := chart(folder, sw.name, sw.title, sw.axis, sw.at, sw.lines, rs, &text); err != nil {
			return all, err
		}
	}
	return all, replacePart(filepath.Join(folder, "benchmarks.md"), "make bench-growth", text.String())
}

var colours = []color.RGBA{{0x2f, 0x9e, 0x5b, 255}, {0x3b, 0x82, 0xc4, 255}, {0xd9, 0x7b, 0x22, 255}, {0x8e, 0x5b, 0xb5, 255}, {0x88, 0x88, 0x88, 255}}

// chart writes an SVG with logarithmic axes, and the same figures as a table.
func chart(folder, name, title, axis string, at []int, lines []line, rs []bench.Result, text *bytes.Buffer) error {
	p := plot.New()
	p.Title.Text = title
	p.X.Label.Text = axis
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = plot.LogTicks{Prec: -1}, plot.LogTicks{Prec: -1}
	p.Legend.Top, p.Legend.Left = true, true
	p.Legend.TextStyle.Font.Size = vg.Points(9)
	p.Add(plotter.NewGrid())
	low, high := 0.0, 0.0
	for i, l := range lines {
		var xys plotter.XYs
		for _, n := range at {
			x, ok := bench.Find(rs, fmt.Sprintf("%s-%d", name, n), "redis", l.client).Get(l.field)
			if ok && x > 0 {
				xys = append(xys, plotter.XY{X: float64(n), Y: x * l.scale})
				if low == 0 || x*l.scale < low {
					low = x * l.scale
				}
				high = max(high, x*l.scale)
			}
		}
		if len(xys) == 0 {
			continue
		}
		curve, points, err := plotter.NewLinePoints(xys)
		if err != nil {
			return err
		}
		curve.Color, points.Color, points.Shape = colours[i%len(colours)], colours[i%len(colours)], draw.CircleGlyph{}
		p.Add(curve, points)
		p.Legend.Add(l.label, curve, points)
	}
	if high == 0 {
		return fmt.Errorf("%s: nothing was measured", name)
	}
	p.Y.Min, p.Y.Max = low/2, high*10 // room for the legend
	p.X.Min, p.X.Max = float64(at[0])*0.9, float64(at[len(at)-1])*1.1
	p.BackgroundColor = color.White
	file := "growth-" + name + ".svg"
	if err := p.Save(16*vg.Centimeter, 10*vg.Centimeter, filepath.Join(folder, file)); err != nil {
		return err
	}
	fmt.Fprintf(text, "\n### %s\n\n%s.\n\n![%s](%s)\n\n", strings.ToUpper(name[:1])+name[1:], title, title, file)
	row := func(cells []string) { fmt.Fprintf(text, "| %s |\n", strings.Join(cells, " | ")) }
	head, rule := []string{axis}, []string{"---"}
	for _, l := range lines {
		head, rule = append(head, l.label), append(rule, "---")
	}
	row(head)
	row(rule)
	for _, n := range at {
		f := float64(n)
		cells := []string{bench.Number(&f, 0)}
		for _, l := range lines {
			r := bench.Find(rs, fmt.Sprintf("%s-%d", name, n), "redis", l.client)
			x, ok := r.Get(l.field)
			switch {
			case !ok && r != nil && r.Error != "":
				cells = append(cells, "failed")
			case !ok:
				cells = append(cells, "-")
			default:
				x *= l.scale
				digits := 0
				if x < 100 {
					digits = 1
				}
				s := r.Spread[l.field]
				s[0], s[1] = s[0]*l.scale, s[1]*l.scale
				cells = append(cells, fmt.Sprintf("%s (%s–%s)", bench.Number(&x, digits), bench.Number(&s[0], digits), bench.Number(&s[1], digits)))
			}
		}
		row(cells)
	}
	return nil
}
