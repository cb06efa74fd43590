package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
	"time"
)

// JSON writes a list of objects, one a result.
func JSON(w io.Writer, rs []Result) error {
	if rs == nil {
		rs = []Result{}
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(rs)
}

// Table writes the results for people, a table a case.
func Table(w io.Writer, rs []Result) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	about := map[string]Case{}
	for _, c := range Cases() {
		about[c.Name] = c
	}
	last := ""
	for i := range rs {
		r := &rs[i]
		kind := about[r.Case].Kind
		if r.Case != last {
			if last != "" {
				fmt.Fprintln(t)
			}
			fmt.Fprintf(t, "%s: %s\n", r.Case, about[r.Case].About)
			switch kind {
			case Handover:
				fmt.Fprintln(t, "backend\tclient\tp50\t(spread)\tp99\tmax\tcommands each")
			case Idle, Held:
				fmt.Fprintln(t, "backend\tclient\tcommands/s\tclient CPU ms/s\tgoroutines each\theap bytes each")
			default:
				fmt.Fprintln(t, "backend\tclient\tcycles/s\t(spread)\tmean\tp50\tp99\tp99.9\tmax\tcommands/cycle\tbytes/cycle\tJain\tstarved\tshares\tclient CPU/cycle\tserver CPU/cycle")
			}
			last = r.Case
		}
		fmt.Fprintf(t, "%s\t%s\t", r.Backend, r.Client)
		if r.Rounds == 0 {
			fmt.Fprintf(t, "failed: %s\n", r.Error)
			continue
		}
		switch kind {
		case Handover:
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s", Micros(r.P50), r.Range("p50_us"), Micros(r.P99), Micros(r.Max), Number(r.CommandsPerCycle, 3))
		case Idle, Held:
			fmt.Fprintf(t, "%s\t%s\t%s\t%s", Number(r.CommandsPerS, 1), Number(r.ClientCPUMillisPerS, 1), Number(r.GoroutinesPerItem, 2), Number(r.HeapBytesPerItem, 0))
		default:
			shares := "-"
			if r.LowestShare != nil {
				shares = fmt.Sprintf("%.0f–%.0f %%", 100**r.LowestShare, 100**r.HighestShare)
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s", Number(r.CyclesPerS, 0), r.Range("cycles_per_s"), Micros(r.Mean),
				Micros(r.P50), Micros(r.P99), Micros(r.P999), Micros(r.Max), Number(r.CommandsPerCycle, 3), Number(r.BytesPerCycle, 0),
				Number(r.Jain, 3), Number(r.Starved, 0), shares, Micros(r.ClientCPUPerCycle), Micros(r.ServerCPUPerCycle))
		}
		if r.Error != "" {
			fmt.Fprintf(t, "\tthen failed: %s", r.Error)
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}

// Range is the spread of a measure over the rounds, for people.
func (r *Result) Range(name string) string {
	s, ok := r.Spread[name]
	if !ok {
		return "-"
	}
	if name == "cycles_per_s" {
		return fmt.Sprintf("%s–%s", Number(&s[0], 0), Number(&s[1], 0))
	}
	return fmt.Sprintf("%s–%s", Micros(&s[0]), Micros(&s[1]))
}

// Number prints x with so many digits behind the point, and commas between thousands. nil is "-".
func Number(x *float64, digits int) string {
	if x == nil {
		return "-"
	}
	s := strconv.FormatFloat(*x, 'f', digits, 64)
	point := len(s)
	if digits > 0 {
		point -= digits + 1
	}
	for i := point - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Micros prints a time in microseconds, with its unit. nil is "-".
func Micros(x *float64) string {
	if x == nil {
		return "-"
	}
	d := time.Duration(*x * 1e3)
	switch {
	case d < time.Microsecond:
		return fmt.Sprintf("%d ns", d)
	case d < 100*time.Microsecond:
		return fmt.Sprintf("%.1f µs", float64(d)/1e3)
	case d < time.Millisecond:
		return fmt.Sprintf("%.0f µs", float64(d)/1e3)
	case d < 100*time.Millisecond:
		return fmt.Sprintf("%.1f ms", float64(d)/1e6)
	}
	return fmt.Sprintf("%.0f ms", float64(d)/1e6)
}
