package sqllock

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pawl-lock/pawl/driver"
)

// record is all that a database knows of one name. Every request is a change of one record, made here in memory and
// written back whole: so there is one body of logic for all databases.
type record struct {
	name  string // with Options.Prefix
	found bool   // the database has a row

	rev, written int64 // on a server: names this version of the row, and when it was written
	kind         driver.Kind
	limit        int   // of a semaphore
	last         int64 // the largest number reserved
	contents

	changed bool
	light   bool   // a crash of the database may undo the change: all it does is end a hold that would soon have ended by itself
	calls   []call // to be told once it is written
}

// contents is what the column "state" has, as JSON.
type contents struct {
	Holds []hold   `json:"holds,omitempty"`
	Line  []waiter `json:"line,omitempty"`
}

func (c contents) clone() contents { return contents{slices.Clone(c.Holds), slices.Clone(c.Line)} }

// hold is a hold, or the time that a name stays taken after one.
type hold struct {
	Kind    driver.Kind `json:"kind"`
	ID      string      `json:"id"` // "kept/…" once it was released with a minimum hold or a result
	Token   int64       `json:"token"`
	Top     int64       `json:"top"` // the last token reserved with it
	Permits int         `json:"permits"`
	Until   int64       `json:"until"` // it is over from then on
	Since   int64       `json:"since"`
	Kept    int64       `json:"kept,omitempty"` // end of a minimum hold on the wall clock, which a reboot does not shorten
	Label   string      `json:"label,omitempty"`
	Host    string      `json:"host,omitempty"`
	PID     int         `json:"pid,omitempty"`
	Note    string      `json:"note,omitempty"`
	Value   []byte      `json:"value,omitempty"`   // of a leader, or the result of a Once
	Process string      `json:"process,omitempty"` // where it is to be told who waits; "": nobody hears there
}

// waiter is a place in line.
type waiter struct {
	ID      string      `json:"id"` // of the hold that is asked for
	Process string      `json:"process"`
	Kind    driver.Kind `json:"kind"`
	Permits int         `json:"permits"`
	Turn    int64       `json:"turn"`         // how long the name is kept for it once it is called, in µs
	At      int64       `json:"at,omitempty"` // its turn begins then; 0: not yet known
}

// call says that a place may come at an instant, or to a holder that somebody has come to wait.
type call struct {
	process, id string // id "": the holder
	at          int64
}

// keptID marks a name that stays taken after its hold has ended. No hold has such an ID.
const keptID = "kept/"

func (h *hold) kept() bool { return strings.HasPrefix(h.ID, keptID) }

// is reports whether h is what a caller means.
func (h *hold) is(want driver.Hold) bool {
	return h.ID == want.ID && (want.Token == 0 || want.Token == h.Token)
}

// shown is the hold, seen from outside.
func (h *hold) shown(m moment, name string) driver.HeldBy {
	return driver.HeldBy{
		Hold:      driver.Hold{Kind: h.Kind, Name: name, ID: h.ID, Token: h.Token, Permits: h.Permits},
		Who:       driver.Holder{Label: h.Label, Host: h.Host, PID: h.PID, Note: h.Note},
		Since:     time.UnixMicro(h.Since),
		Remaining: m.left(h.Until),
		Value:     h.Value,
	}
}

// done is the result of a Once that is remembered, or nil.
func (r *record) done() *hold {
	for i := range r.Holds {
		if h := &r.Holds[i]; h.Kind == driver.Once && h.kept() {
			return h
		}
	}
	return nil
}

// purge takes out what is over.
func (r *record) purge(now int64) {
	live := r.Holds[:0]
	for _, h := range r.Holds {
		if h.Until > now {
			live = append(live, h)
		}
	}
	if len(live) < len(r.Holds) {
		r.Holds, r.changed = live, true
	}
}

// bury takes the places of dead processes out of the line.
func (r *record) bury(living map[string]bool) (any bool) {
	live := r.Line[:0]
	for _, w := range r.Line {
		if living[w.Process] {
			live = append(live, w)
		}
	}
	if any = len(live) < len(r.Line); any {
		r.Line, r.changed = live, true
	}
	return any
}

// free reports whether nobody has or wants the name.
func (r *record) free() bool { return len(r.Holds) == 0 && len(r.Line) == 0 }

// end is when the last of the holds is over.
func (r *record) end() int64 {
	var end int64
	for _, h := range r.Holds {
		end = max(end, h.Until)
	}
	return end
}

// hold finds a hold by what a caller has of it.
func (r *record) hold(want driver.Hold) *hold {
	for i := range r.Holds {
		if r.Holds[i].is(want) {
			return &r.Holds[i]
		}
	}
	return nil
}

func (r *record) drop(id string) {
	for i := range r.Holds {
		if r.Holds[i].ID == id {
			r.Holds, r.changed = append(r.Holds[:i], r.Holds[i+1:]...), true
			return
		}
	}
}

// inLine is the index of a place in line, or -1.
func (r *record) inLine(id string) int {
	for i := range r.Line {
		if r.Line[i].ID == id {
			return i
		}
	}
	return -1
}

func (r *record) quit(i int) {
	r.Line, r.changed = append(r.Line[:i], r.Line[i+1:]...), true
}

// text is contents as JSON that is ASCII, so that no character set of a database matters.
func (c contents) text() string {
	raw, err := json.Marshal(c)
	if err != nil { // strings, numbers and bytes always can be marshalled
		panic(err)
	}
	var out strings.Builder
	for _, r := range string(raw) {
		switch {
		case r < utf8.RuneSelf:
			out.WriteByte(byte(r))
		case r > 0xffff:
			r -= 0x10000
			fmt.Fprintf(&out, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	return out.String()
}

// read parses what text made.
func (r *record) read(text string) error {
	if err := json.Unmarshal([]byte(text), &r.contents); err != nil {
		return fmt.Errorf("the row of a name cannot be read, somebody else has written it: delete it while nobody uses the name: %w", err)
	}
	return nil
}

// readable makes what describes a holder fit for a text column, and short.
func readable(who driver.Holder) driver.Holder {
	for _, s := range []*string{&who.Label, &who.Host, &who.Note} {
		const most = 1024
		*s = strings.ReplaceAll(strings.ToValidUTF8((*s)[:min(len(*s), most)], "\uFFFD"), "\x00", "\uFFFD")
	}
	return who
}
