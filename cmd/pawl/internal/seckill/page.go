package seckill

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"
	"time"

	"github.com/go-echarts/go-echarts/v2/charts"
	"github.com/go-echarts/go-echarts/v2/opts"
)

// The page carries the chart library in itself, so that it works without a network. Apache ECharts, Apache-2.0.
//
//go:embed assets/echarts-5.4.3.min.js.gz
var echartsGz []byte

//go:embed page.html.tmpl
var pageText string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

type page struct {
	*report
	Script            template.JS
	When, Seed, Store string
	Conclusion        string
	Columns           []string
	Rows              []pageRow
	Charts            []pageChart
}

type pageRow struct {
	Class string
	Cells []string
}

type pageChart struct {
	Title, Note     string
	Element, Script template.HTML
}

// About says what a strategy does.
func (p *page) About(name string) string {
	s, _ := findStrategy(name)
	return s.about
}

// writePage writes the report as one HTML file. store says in which kinds of store the locks and the stock are.
func (r *report) writePage(w io.Writer, seed uint64, store string, when time.Time) error {
	z, err := gzip.NewReader(bytes.NewReader(echartsGz))
	if err != nil {
		return err
	}
	script, err := io.ReadAll(z)
	if err != nil {
		return err
	}
	p := &page{report: r, Script: template.JS(script), When: when.Format("2006-01-02 15:04"), Seed: fmt.Sprint(seed), Store: store, Columns: columns}
	p.Conclusion = "Every strategy that promises not to oversell kept its promise, and the broken ones were seen to break."
	if f := r.failures(); f != "" {
		p.Conclusion = "Failed: " + f + "."
	}
	for _, s := range r.Strategies {
		row := pageRow{Cells: r.cells(s)}
		_, failure := r.verdict(s)
		switch {
		case failure != "":
			row.Class = "alarm"
		case s.Safe:
			row.Class = "good"
		case s.Oversold > 0:
			row.Class = "bad"
		}
		p.Rows = append(p.Rows, row)
	}
	p.Charts = r.charts()
	return pageTemplate.Execute(w, p)
}

// The colours of the charts: kept, beyond what there was, neutral.
const (
	green = "#2a9d62"
	red   = "#d64541"
	blue  = "#3b78c2"
	amber = "#e0a030"
)

func (r *report) charts() []pageChart {
	var names []string
	for _, s := range r.Strategies {
		names = append(names, s.Name)
	}
	bars := func(f func(result) float64) []opts.BarData {
		var d []opts.BarData
		for _, s := range r.Strategies {
			d = append(d, opts.BarData{Value: round(f(s))})
		}
		return d
	}
	bar := func(unit, axis string) *charts.Bar {
		b := charts.NewBar()
		b.SetGlobalOptions(
			charts.WithInitializationOpts(opts.Initialization{Width: "100%", Height: "360px"}),
			charts.WithTooltipOpts(opts.Tooltip{Show: opts.Bool(true), Trigger: "axis"}),
			charts.WithLegendOpts(opts.Legend{Show: opts.Bool(true)}),
			charts.WithXAxisOpts(opts.XAxis{AxisLabel: &opts.AxisLabel{Interval: "0", Rotate: 20}}),
			charts.WithYAxisOpts(opts.YAxis{Name: unit, Type: axis}),
			charts.WithGridOpts(opts.Grid{Left: "8%", Right: "4%", Bottom: "20%"}),
		)
		b.SetXAxis(names)
		return b
	}
	color := func(c string) charts.SeriesOpts { return charts.WithItemStyleOpts(opts.ItemStyle{Color: c}) }
	stack := charts.WithBarChartOpts(opts.BarChart{Stack: "sold"})

	sold := bar("orders", "value")
	sold.AddSeries("within the stock", bars(func(s result) float64 { return float64(s.Sold - s.Oversold) }), color(green), stack)
	sold.AddSeries("oversold", bars(func(s result) float64 { return float64(s.Oversold) }), color(red), stack)

	odd := bar("orders", "value")
	odd.AddSeries("second order of one buyer", bars(func(s result) float64 { return float64(s.Duplicates) }), color(amber))
	odd.AddSeries("stale write refused", bars(func(s result) float64 { return float64(s.RefusedStale) }), color(blue))

	wait := bar("ms", "value")
	wait.AddSeries("median", bars(func(s result) float64 { return s.P50 }), color(blue))
	wait.AddSeries("99th percentile", bars(func(s result) float64 { return s.P99 }), color(amber))

	rate := bar("buyers/s", "value")
	rate.AddSeries("buyers served a second", bars(func(s result) float64 { return s.BuyersPerS }), color(blue))

	var out []pageChart
	for _, c := range []struct {
		title, note string
		bar         *charts.Bar
	}{
		{"Sold", fmt.Sprintf("Orders in the database. There were %d items.", r.Stock), sold},
		{"Duplicates and refused writes", "A few buyers press twice, and must get one order. A refused write came from a holder that was paused past its lease.", odd},
		{"How long a buyer waits", "From the first press to the final answer, over all tries.", wait},
		{"Throughput", "All buyers, divided by the length of the sale.", rate},
	} {
		c.bar.Validate()
		s := c.bar.RenderSnippet()
		out = append(out, pageChart{c.title, c.note, template.HTML(strings.TrimSpace(s.Element)), template.HTML(strings.TrimSpace(s.Script))})
	}
	return out
}
