package sqllock

import (
	"context"
	"crypto/rand"
	sqldriver "database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// listener is the one connection on which a driver that waits in PostgreSQL is told of its calls (LISTEN/NOTIFY). Where
// that does not work the driver polls, and says why: see [Driver.Waiting].
type listener struct {
	s    *serverStore
	news chan struct{}
	quit context.CancelFunc
	wg   sync.WaitGroup

	mu   sync.Mutex
	live bool
	anew bool   // live since the waker has last looked
	why  string // it is not live
}

const (
	listenAgain  = time.Second     // after a lost connection
	listenLater  = time.Minute     // where it cannot work
	probeAnswers = 2 * time.Second // what the driver tells itself arrives within that, or never
	pollRoom     = 3               // connections that a pool must allow, for one of them to listen
)

// listeners counts the connections of each pool that listen, since several drivers may share one pool.
var listeners = listenersOf{of: make(map[any]int)}

type listenersOf struct {
	mu sync.Mutex
	of map[any]int
}

// enter counts one more, if the pool has room for it.
func (l *listenersOf) enter(pool any, most int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if most > 0 && (l.of[pool]+1)*pollRoom > most {
		return false
	}
	l.of[pool]++
	return true
}

func (l *listenersOf) leave(pool any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of[pool]--; l.of[pool] == 0 {
		delete(l.of, pool)
	}
}

// room is the pool that connections come from, and how many it allows; 0: any number.
func (d *Driver) room() (pool any, most int) {
	if p, ok := d.pool.(*pgxpool.Pool); ok {
		return p, int(p.Config().MaxConns)
	}
	return d.db, d.db.Stats().MaxOpenConnections
}

func (l *listener) start() {
	if l.quit != nil {
		return
	}
	l.news = make(chan struct{}, 1)
	ctx, cancel := context.WithCancel(l.s.d.ctx)
	l.quit = cancel
	l.wg.Go(func() { l.work(ctx) })
}

func (l *listener) stop() {
	if l.quit != nil {
		l.quit()
		l.wg.Wait()
		l.quit, l.news = nil, nil
	}
}

func (l *listener) isLive() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.live
}

// isNew reports, once, that the listener has become live.
func (l *listener) isNew() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	anew := l.anew
	l.anew = false
	return anew
}

func (l *listener) set(live bool, why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.anew = l.anew || live && !l.live
	l.live, l.why = live, why
}

// ears is who is to be told of those who come to wait for what this driver holds; "": it does not hear.
func (d *Driver) ears() string {
	if d.store.hears() {
		return d.process
	}
	return ""
}

func (l *listener) ring() {
	select {
	case l.news <- struct{}{}:
	default:
	}
}

var (
	errNoPgx  = errors.New("the pool's driver is not pgx")
	errNoRoom = fmt.Errorf("the pool allows less than %d connections for each driver on it", pollRoom)
	errPooler = errors.New("notifications do not arrive: there is a pooler between, or a replica")
)

func (l *listener) work(ctx context.Context) {
	for ctx.Err() == nil {
		err := l.listen(ctx)
		pause := listenAgain
		if errors.Is(err, errNoPgx) || errors.Is(err, errNoRoom) || errors.Is(err, errPooler) {
			pause = listenLater
		}
		l.set(false, l.s.d.wrap("listen", err).Error())
		l.ring()
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
		}
	}
	l.set(false, "nobody waits")
}

func channelOf(process string) string { return "pawl_" + process }

// listen takes a connection and hears on it until it is lost. The connection does not go back to the pool.
func (l *listener) listen(ctx context.Context) error {
	d := l.s.d
	pool, most := d.room()
	if !listeners.enter(pool, most) {
		return errNoRoom
	}
	defer listeners.leave(pool)
	first, cancel := context.WithTimeout(ctx, longestStatement)
	defer cancel()
	conn, err := d.db.Conn(first)
	if err != nil {
		return err
	}
	defer conn.Close()
	var cause error
	conn.Raw(func(inner any) error {
		c, ok := inner.(interface{ Conn() *pgx.Conn })
		if !ok {
			cause = errNoPgx
			return nil
		}
		cause = l.hear(ctx, first, c.Conn())
		return sqldriver.ErrBadConn
	})
	return cause
}

func (l *listener) hear(ctx, first context.Context, conn *pgx.Conn) error {
	d := l.s.d
	defer func() { // no session of the caller's pool may go on listening
		bounded, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		conn.Close(bounded)
	}()
	channel := channelOf(d.process)
	if _, err := conn.Exec(first, `LISTEN "`+channel+`"`, pgx.QueryExecModeSimpleProtocol); err != nil {
		return err
	}
	// Does it arrive? Behind a pooler, another session may be listening. Each probe is another one: what an earlier one had
	// sent may have come to this connection when it was used for something else.
	sent := probe + rand.Text()
	rows, err := d.ask(first, "SELECT pg_notify($1, $2)", channel, sent)
	if err := scanAll(rows, err, func(func(...any) error) error { return nil }); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, probeAnswers)
	defer cancel()
	for heard := ""; heard != sent; {
		n, err := conn.WaitForNotification(bounded)
		if err != nil {
			if ctx.Err() == nil && bounded.Err() != nil {
				l.unlisten(channel)
				return errPooler
			}
			return err
		}
		heard = n.Payload
	}
	l.set(true, "")
	l.ring()
	for {
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			return err
		}
		l.s.heard(n.Payload)
	}
}

// unlisten takes a LISTEN back that has gone to a session of a pooler's, as far as that is to be had.
func (l *listener) unlisten(channel string) {
	ctx, cancel := context.WithTimeout(l.s.d.ctx, time.Second)
	defer cancel()
	l.s.d.db.ExecContext(ctx, `UNLISTEN "`+channel+`"`)
}

// probe is what a driver tells others who are to look, and with something after it, itself. No hold has such an ID.
const probe = "?"

// payload says who is called, for as long as that fits, and what the row has become, so that whoever is told need not read it
// first. Calls for later, and too many, are found by a look. Nobody is called when the holder is told who waits.
func payload(calls []call, w write) string {
	var ids []string
	for _, c := range calls {
		if c.at > w.changed {
			return probe
		}
		ids = append(ids, c.id)
	}
	const most = 7000 // bytes; the server allows a little more
	all := strings.Join(ids, " ")
	if len(all) > most {
		return probe
	}
	if row := fmt.Sprintf("%d %d %d %d %d %x\n%s", w.rev, w.changed, w.kind, w.limit, w.last, w.name, w.contents.text()); len(all)+len(row) < most {
		all += "\n" + row
	}
	return all
}

// heard passes on what another process told.
func (s *serverStore) heard(payload string) {
	if strings.HasPrefix(payload, probe) {
		s.d.waker.look()
		return
	}
	all, rest, _ := strings.Cut(payload, "\n")
	facts, state, _ := strings.Cut(rest, "\n")
	var r row
	var name []byte
	if _, err := fmt.Sscanf(facts, "%d %d %d %d %d %x", &r.rev, &r.changed, &r.kind, &r.limit, &r.last, &name); err == nil {
		if json.Unmarshal([]byte(state), &r.contents) == nil {
			s.known.heard(string(name), r)
		}
	}
	if all == "" {
		s.d.waker.hear()
	}
	for id := range strings.FieldsSeq(all) {
		if p := s.d.waker.place(id); p != nil {
			p.tell()
		}
	}
}

// called tells the places of this very driver.
func (w *waker) called(calls []call, now int64) {
	for _, c := range calls {
		if p := w.place(c.id); c.process == w.d.process && p != nil {
			if c.at > now {
				w.look()
			} else {
				p.call(c.at)
			}
		}
	}
}

func (w *waker) place(id string) *place {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.places[id]
}

// Waiting says how the driver learns that a place may come: "polling", with the reason if it could be told, or
// "notifications". It is for people, and means something only while places wait.
func (d *Driver) Waiting() string {
	if d.bad != nil {
		return "polling"
	}
	return d.store.waiting()
}
