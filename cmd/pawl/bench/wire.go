package bench

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// order is what a worker is told to do: one JSON value a line on its standard input.
type order struct {
	Op      string // see worker.do
	Client  string `json:",omitempty"`
	URL     string `json:",omitempty"`
	Case    Case
	Key     string        `json:",omitempty"`
	N       int           `json:",omitempty"`
	At      int64         `json:",omitempty"` // by now()
	Warmup  time.Duration `json:",omitempty"`
	For     time.Duration `json:",omitempty"`
	Timeout time.Duration `json:",omitempty"`
	Profile string        `json:",omitempty"` // file names begin with this
	Block   bool          `json:",omitempty"` // profile what goroutines wait for, else CPU and allocations
}

// answer is what a worker says, likewise.
type answer struct {
	Err   string    `json:",omitempty"`
	None  bool      `json:",omitempty"` // ErrNone
	Ended bool      `json:",omitempty"` // the time of a run is over; its answer follows
	At    int64     `json:",omitempty"`
	Cycle *cycles   `json:",omitempty"`
	Stat  *standing `json:",omitempty"`
}

// cycles is what one process did in one run.
type cycles struct {
	Counts  []int64 // cycles of each goroutine
	Seconds float64
	Times   *hdrhistogram.Snapshot // of whole cycles, in nanoseconds
	Pending int64                  // the longest cycle that was not finished, in nanoseconds
	CPU     int64                  // user and system, in nanoseconds; -1: not known
	Calls   int64                  // of the store; -1: not counted here
}

// standing is how a process stands while it does nothing.
type standing struct {
	Goroutines  int // the median of samples
	Heap, Stack int64
	CPU         int64 // in nanoseconds so far; -1: not known
	Calls       int64 // of the store so far; -1: not counted here
}
