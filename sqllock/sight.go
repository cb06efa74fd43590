package sqllock

import (
	"database/sql"
)

// sight is what was read of some names, without any lock.
type sight struct {
	moment
	floor   int64
	records map[string]*record
	order   []*record       // as read
	cursor  []byte          // of the last one
	living  map[string]bool // the waiting processes that live
}

func newSight(n int) *sight {
	return &sight{records: make(map[string]*record, n), living: make(map[string]bool)}
}

// scan reads rows anew.
func (s *sight) scan(rows *sql.Rows, err error) error {
	clear(s.records)
	s.order = nil
	return scanAll(rows, err, s.each)
}

// each reads a row of a name, kind, limit, last and state.
func (s *sight) each(scan func(...any) error) error {
	var name []byte
	var text string
	r := &record{found: true}
	if err := scan(&name, &r.kind, &r.limit, &r.last, &text); err != nil {
		return err
	}
	r.name, s.cursor = string(name), name
	s.add(r)
	return r.read(text)
}

func (s *sight) add(r *record) {
	s.records[r.name] = r
	s.order = append(s.order, r)
}

// rev is the version of a name's row; 0: there is none.
func (s *sight) rev(name string) int64 {
	if r := s.records[name]; r != nil {
		return r.rev
	}
	return 0
}

// lined reports whether anybody waits.
func (s *sight) lined() bool {
	for _, r := range s.order {
		if len(r.Line) > 0 {
			return true
		}
	}
	return false
}

func (s *sight) processes() map[string]bool {
	out := make(map[string]bool)
	for _, r := range s.order {
		r.processes(out)
	}
	return out
}

// of is the record of a name, empty if there is none. What is over is taken out.
func (s *sight) of(name string) *record {
	r := s.records[name]
	if r == nil {
		r = &record{name: name}
	}
	r.purge(s.now)
	return r
}
