package bench

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// measures are what Compare looks at, with how much of a difference is noise whatever the tolerance.
var measures = []struct {
	kind   Kind
	field  string
	higher bool // is better
	slack  float64
}{
	{Cycles, "cycles_per_s", true, 0},
	{Cycles, "commands_per_cycle", false, 0.05},
	{Handover, "p50_us", false, 20},
	{Handover, "commands_per_cycle", false, 0.5},
	{Idle, "commands_per_s", false, 5},
	{Idle, "heap_bytes_per_item", false, 128},
	{Idle, "goroutines_per_item", false, 0.01},
	{Held, "commands_per_s", false, 5},
	{Held, "heap_bytes_per_item", false, 128},
	{Held, "goroutines_per_item", false, 0.01},
}

// Compare writes how now differs from old, and answers what is worse by more than the tolerance (0.1 is a tenth). What only
// one of them has is named and counts as nothing.
func Compare(w io.Writer, old, now []Result, tolerance float64) (worse []string, err error) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "case\tbackend\tclient\tmeasure\told\tnew\tchange\t")
	for i := range now {
		n := &now[i]
		o := Find(old, n.Case, n.Backend, n.Client)
		if o == nil {
			fmt.Fprintf(t, "%s\t%s\t%s\tnot in the old file\t\t\t\t\n", n.Case, n.Backend, n.Client)
			continue
		}
		if n.Rounds == 0 && o.Rounds > 0 {
			worse = append(worse, fmt.Sprintf("%s, %s, %s failed", n.Case, n.Backend, n.Client))
			fmt.Fprintf(t, "%s\t%s\t%s\tfailed\t\t\t\tWORSE\n", n.Case, n.Backend, n.Client)
		}
		for _, m := range measures {
			a, ok := o.Get(m.field)
			b, ok2 := n.Get(m.field)
			if !ok || !ok2 || kindOf(n) != m.kind {
				continue
			}
			change := "-"
			if a != 0 {
				change = fmt.Sprintf("%+.0f %%", 100*(b/a-1))
			}
			by, mark := b-a, ""
			if m.higher {
				by = a - b
			}
			if by > a*tolerance && by > m.slack {
				mark = "WORSE"
				worse = append(worse, fmt.Sprintf("%s, %s, %s: %s", n.Case, n.Backend, n.Client, m.field))
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", n.Case, n.Backend, n.Client, m.field, Number(&a, 3), Number(&b, 3), change, mark)
		}
	}
	for i := range old {
		if o := &old[i]; Find(now, o.Case, o.Backend, o.Client) == nil {
			fmt.Fprintf(t, "%s\t%s\t%s\tnot measured now\t\t\t\t\n", o.Case, o.Backend, o.Client)
		}
	}
	return worse, t.Flush()
}

// kindOf is what was measured, by what there is.
func kindOf(r *Result) Kind {
	for _, c := range Cases() {
		if c.Name == r.Case {
			return c.Kind
		}
	}
	return Cycles
}

// ClassicCases are what ClassicTable shows.
func ClassicCases() []string { return []string{"uncontended-1000", "hot-1"} }

// ClassicTable writes the table that texts about distributed locks end on: the mean response, and the requests per second
// at 1,000 concurrent ones. They do not say whether those want one lock or many; here are both.
func ClassicTable(w io.Writer, rs []Result) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "1,000 concurrent\t\tmean response\trequests/s\tmean response\trequests/s")
	fmt.Fprintln(t, "store\tclient\t1,000 keys\t1,000 keys\tone key\tone key")
	for i := range rs {
		r := &rs[i]
		if r.Case != "uncontended-1000" {
			continue
		}
		fmt.Fprintf(t, "%s\t%s", r.Backend, r.Client)
		for _, name := range ClassicCases() {
			switch r := Find(rs, name, r.Backend, r.Client); {
			case r == nil:
				fmt.Fprint(t, "\t-\t-")
			case r.Rounds == 0:
				fmt.Fprint(t, "\tfailed\tfailed")
			default:
				fmt.Fprintf(t, "\t%s\t%s", Micros(r.Mean), Number(r.CyclesPerS, 0))
			}
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}
