package seckill

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/pawl-lock/pawl/cmd/pawl/internal/backend"
)

// options are what the flags say.
type options struct {
	buyers, stock, servers int
	rate                   float64
	seed                   uint64
	strategies             []string
	backend, prefix        string // no backend: a fresh SQLite file
	json, quiet            bool
	html                   string
	timeout                time.Duration // for the lock store to answer at the start
}

// The largest sale that is allowed, so that a typing error is no outage.
const (
	maxBuyers  = 10_000_000
	maxStock   = 1_000_000_000
	maxServers = 64
)

func (o *options) check() error {
	for _, n := range []struct {
		flag     string
		got, max int
	}{{"buyers", o.buyers, maxBuyers}, {"stock", o.stock, maxStock}, {"servers", o.servers, maxServers}} {
		if n.got < 1 || n.got > n.max {
			return fmt.Errorf("--%s %d: it takes 1 to %d", n.flag, n.got, n.max)
		}
	}
	if !(o.rate >= 0) || math.IsInf(o.rate, 0) || o.rate > 0 && o.rate < 0.001 {
		return fmt.Errorf("--rate %v: it takes buyers per second, at least 0.001, or 0 for as fast as the shop lets them in", o.rate)
	}
	chosen, _, err := o.chosen()
	if err != nil {
		return err
	}
	for _, s := range chosen {
		if s.pauses && !canPause {
			return fmt.Errorf("%s stops processes from outside, which this system cannot do: name the other strategies with --strategy", s.name)
		}
	}
	if o.backend != "" {
		return checkStore(o.backend, chosen)
	}
	return nil
}

// chosen are the strategies to run. Those that the lock store cannot do are left out, unless they were asked for.
func (o *options) chosen() (chosen, left []strategy, err error) {
	all, err := choose(o.strategies)
	scheme, _ := backend.Scheme(o.backend)
	for _, s := range all {
		if s.naive && len(o.strategies) == 0 && scheme != "" && !hasNaive(scheme) {
			left = append(left, s)
		} else {
			chosen = append(chosen, s)
		}
	}
	return chosen, left, err
}

// reserve makes sure that a page can be written to path, without touching what is there, and answers the temporary file
// beside it that becomes the page.
func reserve(path string) (*os.File, error) {
	if fi, err := os.Stat(path); err == nil && !fi.Mode().IsRegular() {
		return nil, fmt.Errorf("--html %s: not a regular file", path)
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".pawl-seckill-*.html")
	if err != nil {
		var pe *os.PathError
		if errors.As(err, &pe) {
			err = pe.Err
		}
		return nil, fmt.Errorf("--html %s: cannot write there: %w", path, err)
	}
	return f, nil
}
