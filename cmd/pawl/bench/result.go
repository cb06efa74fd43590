package bench

import (
	"slices"
)

// Result is one client in one case: medians over its rounds. What is not known, or does not apply, is nil.
type Result struct {
	Case       string `json:"case"`
	Backend    string `json:"backend"`
	Client     string `json:"client"`
	Goroutines int    `json:"goroutines"` // of held: leases; of idle: waiters
	Processes  int    `json:"processes"`

	CyclesPerS          *float64 `json:"cycles_per_s"`
	P50                 *float64 `json:"p50_us"` // of a cycle; of handover: of a hand-over
	P99                 *float64 `json:"p99_us"`
	Max                 *float64 `json:"max_us"`
	CommandsPerCycle    *float64 `json:"commands_per_cycle"`
	Jain                *float64 `json:"jain"` // over the goroutines
	ClientCPUPerCycle   *float64 `json:"client_cpu_us_per_cycle"`
	HeapBytesPerItem    *float64 `json:"heap_bytes_per_item"`
	GoroutinesPerItem   *float64 `json:"goroutines_per_item"` // of idle: besides the caller's
	Mean                *float64 `json:"mean_us"`
	P999                *float64 `json:"p999_us"`
	BytesPerCycle       *float64 `json:"bytes_per_cycle"`
	ServerCPUPerCycle   *float64 `json:"server_cpu_us_per_cycle"`
	JainProcesses       *float64 `json:"jain_processes"`
	LowestShare         *float64 `json:"lowest_share"` // of a process
	HighestShare        *float64 `json:"highest_share"`
	Starved             *float64 `json:"starved"` // goroutines without one cycle
	CommandsPerS        *float64 `json:"commands_per_s"`
	BytesPerS           *float64 `json:"bytes_per_s"`
	ClientCPUMillisPerS *float64 `json:"client_cpu_ms_per_s"`
	StackBytesPerItem   *float64 `json:"stack_bytes_per_item"`

	Spread map[string][2]float64 `json:"spread"` // the lowest and the highest of the rounds, by field
	Rounds int                   `json:"rounds"`
	Error  string                `json:"error,omitempty"` // why rounds are missing

	samples []sample // the rounds, in order
}

// fields are the measures by their name in JSON.
func (r *Result) fields() map[string]**float64 {
	return map[string]**float64{
		"cycles_per_s": &r.CyclesPerS, "p50_us": &r.P50, "p99_us": &r.P99, "p999_us": &r.P999, "max_us": &r.Max, "mean_us": &r.Mean,
		"commands_per_cycle": &r.CommandsPerCycle, "bytes_per_cycle": &r.BytesPerCycle, "jain": &r.Jain,
		"server_cpu_us_per_cycle": &r.ServerCPUPerCycle,
		"jain_processes":          &r.JainProcesses, "lowest_share": &r.LowestShare, "highest_share": &r.HighestShare, "starved": &r.Starved,
		"client_cpu_us_per_cycle": &r.ClientCPUPerCycle, "heap_bytes_per_item": &r.HeapBytesPerItem,
		"goroutines_per_item": &r.GoroutinesPerItem, "stack_bytes_per_item": &r.StackBytesPerItem,
		"commands_per_s": &r.CommandsPerS, "bytes_per_s": &r.BytesPerS, "client_cpu_ms_per_s": &r.ClientCPUMillisPerS,
	}
}

// Get is the measure of that name in JSON, if it is known.
func (r *Result) Get(name string) (float64, bool) {
	if r == nil {
		return 0, false
	}
	f := r.fields()[name]
	if f == nil || *f == nil {
		return 0, false
	}
	return **f, true
}

// fill sets the medians of the rounds.
func (r *Result) fill(rounds []sample) {
	r.Rounds, r.samples = len(rounds), rounds
	r.Spread = map[string][2]float64{}
	for name, f := range r.fields() {
		var xs []float64
		for _, s := range rounds {
			if x, ok := s[name]; ok {
				xs = append(xs, x)
			}
		}
		if len(xs) == 0 {
			continue
		}
		slices.Sort(xs)
		mid := (xs[(len(xs)-1)/2] + xs[len(xs)/2]) / 2
		*f = &mid
		r.Spread[name] = [2]float64{xs[0], xs[len(xs)-1]}
	}
}

// Ratio is a measure of a to that of b: the median, the lowest and the highest over the rounds, each of which is compared
// with the other one's of the same number. A rate of b that is zero counts as one cycle in the time of a round, least. ok is
// false if one of them is not known.
func Ratio(a, b *Result, field string, least float64) (mid, low, high float64, ok bool) {
	if a == nil || b == nil {
		return 0, 0, 0, false
	}
	var xs []float64
	for i := range min(len(a.samples), len(b.samples)) {
		x, ok1 := a.samples[i][field]
		y, ok2 := b.samples[i][field]
		if ok1 && ok2 {
			xs = append(xs, x/max(y, least))
		}
	}
	if len(xs) == 0 {
		return 0, 0, 0, false
	}
	slices.Sort(xs)
	return (xs[(len(xs)-1)/2] + xs[len(xs)/2]) / 2, xs[0], xs[len(xs)-1], true
}

// Find is the result of a client in a case, or nil.
func Find(rs []Result, name, backend, client string) *Result {
	for i := range rs {
		if r := &rs[i]; r.Case == name && r.Backend == backend && r.Client == client {
			return r
		}
	}
	return nil
}
