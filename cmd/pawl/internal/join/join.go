// Package join lets a process work under a lock that a process around it holds, instead of waiting for it for ever.
//
// The holder offers the lock: a file that only its user can read says until when the lock may be trusted, and the
// environment of its command names the file. Who finds it there takes a turn: a kernel lock on the file, which readers
// share and others have alone. So those who join exclude one another as they would at the store, the holder can tell when
// the last of them has ended, and a process that is killed leaves no turn behind.
//
// Nobody asks the store: it is the holder who renews, and writes down how long that lasts. If it stops doing so, for
// whatever reason, the time that was written last runs out, before the store gives the name away. So this works on every
// store, and the file has no secret.
package join

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Variable is the environment variable that lists the offers around a process, the innermost first.
const Variable = "PAWL_JOIN"

// Facts are what stays the same of an offered lock.
type Facts struct {
	Mode  string `json:"mode"`  // as pawl run names the kinds
	Hold  string `json:"hold"`  // the store's name of the hold
	Token int64  `json:"token"` // 0: none
	TTL   int64  `json:"ttl_ms"`
}

// ErrOver says that the offered lock is not held any more.
var ErrOver = errors.New("the lock that this command runs under is over")

const prefix = "pawl-run-"

// key names a lock of a store, in the file's name, so that it can be told even when the file is gone.
func key(store, name string) string {
	sum := sha256.Sum256([]byte(store + "\x00" + name))
	return hex.EncodeToString(sum[:12])
}

// Offer is a lock that others may join. It is safe for concurrent use.
type Offer struct {
	path string

	mu    sync.Mutex
	f     *os.File
	until int64
}

// New offers the lock name of store until an instant of a clock that all processes of the machine share. Close ends it.
func New(store, name string, f Facts, until int64) (*Offer, error) {
	if !supported {
		return nil, errors.ErrUnsupported
	}
	if strings.ContainsRune(os.TempDir(), os.PathListSeparator) {
		return nil, fmt.Errorf("the path of the folder for temporary files has a %q in it", os.PathListSeparator)
	}
	file, err := os.CreateTemp("", prefix+key(store, name)+"-*")
	if err != nil {
		return nil, err
	}
	o := &Offer{path: file.Name(), f: file, until: until}
	text, err := json.Marshal(f)
	if err == nil {
		_, err = file.Write(append(stamp(until), text...))
	}
	if err != nil {
		o.Close()
		return nil, err
	}
	return o, nil
}

// stamp is written twice side by side, so that a reader can tell when it has read half of a new one.
func stamp(until int64) []byte { return fmt.Appendf(nil, "%020d %020d\n", until, until) }

var stampSize = len(stamp(0))

// Path is the file.
func (o *Offer) Path() string { return o.path }

// Environ is the value of Variable for a process inside.
func (o *Offer) Environ() string {
	if outer := os.Getenv(Variable); outer != "" {
		return o.path + string(os.PathListSeparator) + outer
	}
	return o.path
}

// Extend moves the instant until which the lock may be trusted, which is never moved back. 0: it is over; nothing moves it
// then.
func (o *Offer) Extend(until int64) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.until == 0 || until != 0 && until < o.until+int64(time.Millisecond) { // less is not worth a write
		return nil
	}
	o.until = until
	_, err := o.f.WriteAt(stamp(until), 0)
	return err
}

// Alone reports whether nobody has a turn. Once it has said so, nobody can get one any more.
func (o *Offer) Alone() bool { return lock(o.f, true) }

// Close ends the offer, and removes its file.
func (o *Offer) Close() {
	o.Extend(0)
	os.Remove(o.path)
	o.f.Close()
}

// Turn is a place under an offered lock.
type Turn struct {
	Facts
	f *os.File
}

// Find looks for an offer of a lock around this process. Without one the answer is nil. An offer that is over is ErrOver.
func Find(store, name string) (*Turn, error) {
	k := prefix + key(store, name) + "-"
	for _, path := range filepath.SplitList(os.Getenv(Variable)) {
		if strings.HasPrefix(filepath.Base(path), k) {
			return open(path)
		}
	}
	return nil, nil
}

// Holds reports whether a hold of that name is offered around this process, whatever its store is called there.
func Holds(hold string) bool {
	for _, path := range filepath.SplitList(os.Getenv(Variable)) {
		if t, err := open(path); err == nil {
			t.f.Close()
			if t.Hold == hold {
				return true
			}
		}
	}
	return false
}

func open(path string) (*Turn, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, ErrOver
	} else if err != nil {
		return nil, err
	}
	t := &Turn{f: f}
	b := make([]byte, 4096)
	n, _ := f.ReadAt(b, 0)
	if n < stampSize || json.Unmarshal(b[stampSize:n], &t.Facts) != nil || t.TTL < 1 {
		f.Close()
		return nil, fmt.Errorf("%s is no offer of a lock", path)
	}
	return t, nil
}

// Take tries to get the turn, which readers share.
func (t *Turn) Take(shared bool) bool { return lock(t.f, !shared) }

// Until is the instant until which the lock may be trusted. 0: it is over.
func (t *Turn) Until() int64 {
	b := make([]byte, stampSize)
	for range 100 {
		if _, err := t.f.ReadAt(b, 0); err != nil {
			break
		}
		first, second, _ := bytes.Cut(bytes.TrimSpace(b), []byte(" "))
		var until int64
		if _, err := fmt.Sscanf(string(first), "%d", &until); err == nil && bytes.Equal(first, second) {
			return until
		}
	}
	return 0
}

// File is what the turn is taken on: who keeps it open too keeps the turn, until Close.
func (t *Turn) File() *os.File { return t.f }

// Close gives the turn back.
func (t *Turn) Close() {
	unlock(t.f)
	t.f.Close()
}
