package redistest

import (
	"context"
	"iter"
	"strings"

	"github.com/pawl-lock/pawl/driver"
)

// Slottable lets a suite, which uses every byte, use a driver that refuses names whose keys no cluster could keep on one node:
// it writes their braces in another way.
func Slottable(d Able) driver.Driver { return slottable{d} }

// Able is what a redislock.Driver can do.
type Able interface {
	driver.Driver
	driver.Attacher
	driver.Inspector
	driver.Joiner
	driver.Raiser
	driver.Watcher
}

type slottable struct{ Able }

const written = "written:"

var (
	write = strings.NewReplacer("{", "%7B", "}", "%7D", "%", "%25")
	read  = strings.NewReplacer("%7B", "{", "%7D", "}", "%25", "%")
)

func there(name string) string {
	open, end := strings.IndexByte(name, '{'), strings.IndexByte(name, '}')
	if open < 0 && end < 0 || open >= 0 && end > open+1 {
		return name
	}
	return written + write.Replace(name)
}

func back(name string) string {
	if rest, ok := strings.CutPrefix(name, written); ok {
		return read.Replace(rest)
	}
	return name
}

func hold(h driver.Hold) driver.Hold { h.Name = there(h.Name); return h }

func record(r driver.Record) driver.Record {
	r.Name = back(r.Name)
	for i := range r.Holds {
		r.Holds[i].Name = back(r.Holds[i].Name)
	}
	return r
}

func (d slottable) Enter(ctx context.Context, r driver.Request) (driver.Place, error) {
	r.Hold = hold(r.Hold)
	return d.Able.Enter(ctx, r)
}

func (d slottable) Renew(ctx context.Context, hs []driver.Hold) []error {
	there := make([]driver.Hold, len(hs))
	for i, h := range hs {
		there[i] = hold(h)
	}
	return d.Able.Renew(ctx, there)
}

func (d slottable) Release(ctx context.Context, h driver.Hold, end driver.End) error {
	return d.Able.Release(ctx, hold(h), end)
}

func (d slottable) Attach(ctx context.Context, r driver.Request) (driver.Grant, error) {
	r.Hold = hold(r.Hold)
	return d.Able.Attach(ctx, r)
}

func (d slottable) Raise(ctx context.Context, h driver.Hold, token int64) error {
	return d.Able.Raise(ctx, hold(h), token)
}

func (d slottable) Watch(ctx context.Context, name string) (<-chan struct{}, error) {
	return d.Able.Watch(ctx, there(name))
}

func (d slottable) Inspect(ctx context.Context, name string) (driver.Record, error) {
	r, err := d.Able.Inspect(ctx, there(name))
	return record(r), err
}

func (d slottable) List(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		for _, p := range []string{prefix, written + write.Replace(prefix)} {
			for r, err := range d.Able.List(ctx, p) {
				if r = record(r); !strings.HasPrefix(r.Name, prefix) && err == nil {
					continue
				}
				if !yield(r, err) {
					return
				}
			}
		}
	}
}
