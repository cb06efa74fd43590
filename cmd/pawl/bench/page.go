package bench

import (
	_ "embed"
	"html/template"
	"io"
	"math"
	"time"
)

//go:embed page.html.tmpl
var pageText string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

type page struct {
	When   string
	Rounds int
	Cases  []pageCase
}

type pageCase struct {
	Name, About, Better, Measure string
	Columns                      []string
	Rows                         []pageRow
}

type pageRow struct {
	Class, Backend, Client, Value, Error string
	Width, Low, Span                     float64 // percent
	Cells                                []string
}

// HTML writes a page with charts that needs nothing else: no script, no network.
func HTML(w io.Writer, rs []Result, when time.Time) error {
	p := page{When: when.Format("2006-01-02 15:04")}
	for _, c := range Cases() {
		pc := pageCase{Name: c.Name, About: c.About}
		field, show := "cycles_per_s", func(x *float64) string { return Number(x, 0) }
		pc.Measure, pc.Better = "cycles/s", "More is better."
		pc.Columns = []string{"p50", "p99", "p99.9", "max", "commands/cycle", "Jain", "client CPU/cycle"}
		switch c.Kind {
		case Handover:
			field, show, pc.Measure, pc.Better = "p50_us", Micros, "p50", "Less is better."
			pc.Columns = []string{"p99", "max", "commands each"}
		case Idle, Held:
			field, show, pc.Measure, pc.Better = "commands_per_s", func(x *float64) string { return Number(x, 1) }, "commands/s", "Less is better."
			pc.Columns = []string{"goroutines each", "heap bytes each", "client CPU ms/s"}
		}
		lowest, highest := math.Inf(1), 0.0
		for i := range rs {
			if s, ok := rs[i].Spread[field]; ok && rs[i].Case == c.Name {
				if s[0] > 0 {
					lowest = min(lowest, s[0])
				}
				highest = max(highest, s[1])
			}
		}
		// The shortest bar is as long as one twentieth, so that it can be seen.
		at := func(x float64) float64 {
			if x <= 0 || highest <= 0 {
				return 0
			}
			if lowest >= highest {
				return 100
			}
			return max(0, 5+95*math.Log(x/lowest)/math.Log(highest/lowest))
		}
		for i := range rs {
			r := &rs[i]
			if r.Case != c.Name {
				continue
			}
			p.Rounds = max(p.Rounds, r.Rounds)
			row := pageRow{Backend: r.Backend, Client: r.Client}
			if r.Client == "pawl" {
				row.Class = "pawl"
			}
			if r.Rounds == 0 {
				row.Class, row.Value, row.Error = "failed", "failed", r.Error
				pc.Rows = append(pc.Rows, row)
				continue
			}
			if x, ok := r.Get(field); ok {
				row.Value, row.Width = show(&x), at(x)
				row.Low = at(r.Spread[field][0])
				row.Span = max(at(r.Spread[field][1])-row.Low, 0.4)
			}
			switch c.Kind {
			case Handover:
				row.Cells = []string{Micros(r.P99), Micros(r.Max), Number(r.CommandsPerCycle, 2)}
			case Idle, Held:
				row.Cells = []string{Number(r.GoroutinesPerItem, 2), Number(r.HeapBytesPerItem, 0), Number(r.ClientCPUMillisPerS, 1)}
			default:
				row.Cells = []string{Micros(r.P50), Micros(r.P99), Micros(r.P999), Micros(r.Max), Number(r.CommandsPerCycle, 3),
					Number(r.Jain, 3), Micros(r.ClientCPUPerCycle)}
			}
			pc.Rows = append(pc.Rows, row)
		}
		if len(pc.Rows) > 0 {
			p.Cases = append(p.Cases, pc)
		}
	}
	return pageTemplate.Execute(w, p)
}
