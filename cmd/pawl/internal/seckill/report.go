package seckill

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// report is the whole run. Its JSON is what --json prints.
type report struct {
	Buyers     int      `json:"buyers"`
	Stock      int      `json:"stock"`
	Servers    int      `json:"servers"`
	Strategies []result `json:"strategies"`
}

// verdict is one line's end in two words, and why the run fails because of it, if it does.
func (r *report) verdict(s result) (word, failure string) {
	want := min(r.Stock, r.Buyers)
	wrong := s.Oversold > 0 || s.Duplicates > 0
	switch {
	case s.Safe && wrong:
		return "BROKE ITS PROMISE", fmt.Sprintf("%s sold %d of %d, %d of them twice to one buyer", s.Name, s.Sold, r.Stock, s.Duplicates)
	case s.Safe && s.Sold != want:
		return "LEFT SOME UNSOLD", fmt.Sprintf("%s sold %d, and there were buyers for %d", s.Name, s.Sold, want)
	case s.Safe:
		return "exact", ""
	case s.strategy.broken && s.Oversold == 0:
		return "not reproduced", fmt.Sprintf("%s is broken but did not oversell this time", s.Name)
	case s.Oversold > 0:
		if !s.strategy.broken {
			return "oversold (allowed)", ""
		}
		return "oversold", ""
	case wrong:
		return "sold twice to one buyer", ""
	}
	return "behaved this time", ""
}

// failures is why the run fails, in one line, or empty.
func (r *report) failures() string {
	var all []string
	for _, s := range r.Strategies {
		if _, f := r.verdict(s); f != "" {
			all = append(all, f)
		}
	}
	return strings.Join(all, "; ")
}

func (r *report) writeJSON(w io.Writer) error {
	out := *r
	out.Strategies = make([]result, len(r.Strategies))
	for i, s := range r.Strategies {
		s.BuyersPerS, s.P50, s.P99, s.Seconds = round(s.BuyersPerS), round(s.P50), round(s.P99), round(s.Seconds)
		out.Strategies[i] = s
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(out)
}

func round(f float64) float64 { return math.Round(f*1000) / 1000 }

// columns of the table, the first one flush left.
var columns = []string{"STRATEGY", "SOLD", "OVERSOLD", "DUPLICATES", "REFUSED STALE", "UNSOLD", "BUYERS/S", "P50 MS", "P99 MS", "SECONDS", "VERDICT"}

func (r *report) cells(s result) []string {
	word, _ := r.verdict(s)
	return []string{s.Name, strconv.Itoa(s.Sold), strconv.Itoa(s.Oversold), strconv.Itoa(s.Duplicates), strconv.Itoa(s.RefusedStale),
		strconv.Itoa(s.Unsold), strconv.FormatFloat(s.BuyersPerS, 'f', 0, 64), strconv.FormatFloat(s.P50, 'f', 1, 64),
		strconv.FormatFloat(s.P99, 'f', 1, 64), strconv.FormatFloat(s.Seconds, 'f', 1, 64), word}
}

func (r *report) writeTable(w io.Writer) error {
	rows := [][]string{columns}
	for _, s := range r.Strategies {
		rows = append(rows, r.cells(s))
	}
	width := make([]int, len(columns))
	for _, row := range rows {
		for i, c := range row {
			width[i] = max(width[i], utf8.RuneCountInString(c))
		}
	}
	var b strings.Builder
	last := len(columns) - 1
	for _, row := range rows {
		fmt.Fprintf(&b, "%-*s", width[0], row[0])
		for i, c := range row[1:last] {
			fmt.Fprintf(&b, "  %*s", width[i+1], c)
		}
		fmt.Fprintf(&b, "  %s\n", row[last])
	}
	_, err := io.WriteString(w, b.String())
	return err
}
