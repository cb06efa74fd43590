package torture_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/memlock"
	"github.com/pawl-lock/pawl/redlock"
	"pgregory.net/rapid"
)

// The model test of the quorum. Processes of their own, each with a redlock driver, contend for one name over three or
// five members whose clocks are skewed and step, which get cut off, stopped, and restarted empty, while answers come late
// or never, processes die between any two steps, and votes vanish before they are counted. Checked is what package redlock
// promises:
//
//   - two conflicting leases are never trusted at the same time;
//   - if one acquire returned before another was called, every token of the first is smaller, as long as the two quorums
//     share a member that kept its data in between;
//   - a grant or a renewal is reported only when a majority of members was told the last token;
//   - nothing is left at any member in the end.
//
// The mutants below break the algorithm at the members' side, where it is the same as breaking it in the driver, and must
// be found.

// qplan is one random history, as data.
type qplan struct {
	Seed    uint64
	Members int
	Procs   int
	Vanish  bool // now and then a vote is gone right after it was given
	Rough   bool // many messages come late
	Ops     []qop
}

type qop struct {
	Gap    time.Duration // before it
	What   qwhat
	Proc   int
	Member int
	For    time.Duration
	Hold   time.Duration
	TTL    time.Duration
	Kind   driver.Kind
	Span   int
	Tries  int
	End    qend
	Skew   time.Duration
}

type qwhat int

const (
	qAcquire qwhat = iota
	qCut           // nothing passes between a process and a member
	qMute          // requests pass, answers do not
	qStop          // a member does not answer
	qWipe          // a member restarts empty
	qSkew          // a member's clock steps
	qCrash         // a process dies
	qFreeze        // a process gets no answers and sends nothing
)

type qend int

const (
	qRelease qend = iota
	qVanish       // it stops renewing without a word
	qHalf         // it releases half of its interval as used
)

const qMaxTTL = 2 * time.Second

var qplans = rapid.Custom(func(t *rapid.T) qplan {
	p := qplan{
		Seed:    rapid.Uint64().Draw(t, "seed"),
		Members: rapid.SampledFrom([]int{3, 3, 5}).Draw(t, "members"),
		Procs:   rapid.IntRange(2, 4).Draw(t, "procs"),
		Vanish:  rapid.Bool().Draw(t, "vanish"),
		Rough:   rapid.Bool().Draw(t, "rough"),
	}
	mostly := append(slices.Repeat([]qwhat{qAcquire}, 12), qCut, qCut, qMute, qStop, qWipe, qSkew, qSkew, qCrash, qFreeze)
	p.Ops = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) qop {
		return qop{
			Gap:    time.Duration(rapid.IntRange(0, 400).Draw(t, "gap")) * time.Millisecond,
			What:   rapid.SampledFrom(mostly).Draw(t, "what"),
			Proc:   rapid.IntRange(0, p.Procs-1).Draw(t, "proc"),
			Member: rapid.IntRange(0, p.Members-1).Draw(t, "member"),
			For:    time.Duration(rapid.IntRange(1, 3000).Draw(t, "for")) * time.Millisecond,
			Hold:   time.Duration(rapid.SampledFrom([]int{0, 10, 100, 3000}).Draw(t, "hold")) * time.Millisecond,
			TTL:    rapid.SampledFrom([]time.Duration{300 * time.Millisecond, 600 * time.Millisecond, qMaxTTL}).Draw(t, "ttl"),
			Kind:   rapid.SampledFrom([]driver.Kind{driver.Write, driver.Write, driver.Write, driver.Read}).Draw(t, "kind"),
			Span:   rapid.SampledFrom([]int{1, 1, 10, 50_000}).Draw(t, "span"),
			Tries:  rapid.IntRange(1, 20).Draw(t, "tries"),
			End:    rapid.SampledFrom([]qend{qRelease, qRelease, qVanish, qHalf}).Draw(t, "end"),
			Skew:   time.Duration(rapid.IntRange(-3000, 3000).Draw(t, "skew")) * time.Millisecond,
		}
	}), 20, 80).Draw(t, "ops")
	return p
})

// inside is a hold as the store behind knows it, whose own tokens nobody sees.
func (n *qnode) inside(h driver.Hold) driver.Hold {
	if h.Token != 0 && h.Token != n.given[h.ID] {
		h.ID = "nobody:0"
	}
	h.Token = 0
	return h
}

// qmutant breaks the members.
type qmutant struct {
	ownerless bool // Raise does not check who holds
	forgetful bool // Raise is answered but not done
	ageless   bool // a restart does not show
}

// qworld is one run.
type qworld struct {
	plan    qplan
	mutant  qmutant
	nodes   []*qnode
	procs   []*qproc
	acquire sync.WaitGroup

	mu     sync.Mutex
	rng    *rand.Rand
	seq    int
	ids    int
	grants []*qgrant
	sins   []string
	log    []string
	count  map[string]int
}

func (w *qworld) notef(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf("%6d %9.6f ", w.seq, float64(time.Now().UnixNano()%1e15)/1e9)+fmt.Sprintf(format, args...))
}

func (w *qworld) sinf(format string, args ...any) {
	w.notef("VIOLATION: "+format, args...)
	w.sins = append(w.sins, fmt.Sprintf(format, args...))
}

// next numbers an event. The caller has w.mu.
func (w *qworld) next() int { w.seq++; return w.seq }

func (w *qworld) chance(p float64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rng.Float64() < p
}

// delay is how long a message travels.
func (w *qworld) delay() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	x := w.rng.Float64()
	if w.plan.Rough {
		x *= 1.15
	}
	switch {
	case x < 0.95:
		return time.Duration(w.rng.Int64N(int64(2 * time.Millisecond)))
	case x < 0.98:
		return time.Duration(w.rng.Int64N(int64(200 * time.Millisecond)))
	}
	return time.Duration(w.rng.Int64N(int64(3 * time.Second)))
}

// qnode is a member: a store in memory with a token counter of its own, so that its clock can be skewed.
type qnode struct {
	w     *qworld
	no    int
	store *memlock.Driver

	mu    sync.Mutex // one request at a time
	last  int64
	skew  time.Duration
	stops time.Time        // it does not answer before
	wiped []int            // by seq
	left  map[string]bool  // IDs that were undone without knowing their token: refused from then on
	given map[string]int64 // the token of each ID
	acks  []qack           // raises that were answered with yes
	votes []qvote
}

type qack struct {
	seq   int
	id    string
	token int64
}

type qvote struct {
	seq, given int
	id         string
	token      int64
	at         time.Time // when the answer arrived; zero: not yet
}

// qgrant is one lease, from both sides.
type qgrant struct {
	proc     *qproc
	kind     driver.Kind
	id       string
	call     int // seq of the call of Try
	ret      int // of its return
	token    int64
	reserved int64          // the last one of the interval
	used     int64          // the last one that may have been used
	trust    driver.Instant // by the contract
	ended    bool
}

// qproc is one process; it lives until it crashes.
type qproc struct {
	w       *qworld
	no      int
	d       *redlock.Driver
	cut     []time.Time // by member
	mute    []time.Time
	freeze  time.Time
	dead    chan struct{}
	isDead  bool
	pending sync.WaitGroup // requests on their way
}

func (w *qworld) newProc(no int) *qproc {
	p := &qproc{w: w, no: no, cut: make([]time.Time, len(w.nodes)), mute: make([]time.Time, len(w.nodes)), dead: make(chan struct{})}
	var members []driver.Driver
	for _, n := range w.nodes {
		members = append(members, &qlink{p: p, n: n, d: n.store.Share()})
	}
	p.d = redlock.New(members, &redlock.Options{MaxTTL: qMaxTTL})
	return p
}

// qlink is a process's way to a member.
type qlink struct {
	p *qproc
	n *qnode
	d *memlock.Driver
}

var errNoAnswer = errors.New("no answer")

// call carries a request to a member and its answer back, either of which may get lost or come late: also when nobody
// waits any more.
func call[T any](ctx context.Context, l *qlink, do func() T, arrived func(*T)) (out T, err error) {
	w, p := l.p.w, l.p
	ch := make(chan T, 1)
	p.pending.Add(1)
	go func() {
		defer p.pending.Done()
		if !l.travel(func() time.Time { return p.cut[l.n.no] }) {
			return
		}
		l.n.mu.Lock()
		for wait := time.Until(l.n.stops); wait > 0; wait = time.Until(l.n.stops) {
			l.n.mu.Unlock()
			time.Sleep(wait)
			l.n.mu.Lock()
		}
		v := do()
		l.n.mu.Unlock()
		if !l.travel(func() time.Time { return later(p.cut[l.n.no], p.mute[l.n.no]) }) || w.chance(0.01) {
			return
		}
		select {
		case <-p.dead: // nobody is there to read it
		default:
			ch <- v
		}
	}()
	select {
	case out = <-ch:
		if arrived != nil {
			arrived(&out)
		}
		return out, nil
	case <-ctx.Done():
		return out, errNoAnswer
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// travel is one way. false: lost.
func (l *qlink) travel(cut func() time.Time) bool {
	w := l.p.w
	time.Sleep(w.delay())
	w.mu.Lock()
	frozen := time.Until(l.p.freeze)
	w.mu.Unlock()
	if frozen > 0 {
		time.Sleep(frozen)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Until(cut()) <= 0
}

func (l *qlink) Enter(ctx context.Context, r driver.Request) (driver.Place, error) {
	r.Notify = func(driver.Signal) {} // a store that tells nothing by itself
	return &qplace{l: l, r: r}, nil
}

type qplace struct {
	l *qlink
	r driver.Request
}

type qanswer struct {
	g   driver.Grant
	err error
	at  int // index of the vote
}

func (p *qplace) Try(ctx context.Context, span int) (driver.Grant, error) {
	l, n, w := p.l, p.l.n, p.l.p.w
	sent := driver.Now()
	a, err := call(ctx, l, func() (a qanswer) {
		if n.left[p.r.ID] { // an undo was here first
			return qanswer{err: driver.ErrNotDone}
		}
		place, err := l.d.Enter(context.Background(), p.r)
		if err == nil {
			a.g, err = place.Try(context.Background(), span)
		}
		if a.err = err; err != nil {
			return a
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		vanish := w.plan.Vanish && w.rng.Float64() < 0.1
		n.last = max(n.last+1, time.Now().Add(n.skew).UnixMicro())
		a.g.Token, a.at = n.last, len(n.votes)
		n.given[p.r.ID] = n.last
		n.votes = append(n.votes, qvote{given: w.next(), id: p.r.ID, token: n.last})
		w.notef("member %d votes for %s with %d, vanishes: %v", n.no, p.r.ID, n.last, vanish)
		if vanish {
			n.store.Release(context.Background(), p.r.Hold, driver.End{})
			delete(n.given, p.r.ID)
		}
		return a
	}, func(a *qanswer) {
		if a.err == nil {
			n.mu.Lock()
			defer n.mu.Unlock()
			w.mu.Lock()
			defer w.mu.Unlock()
			n.votes[a.at].seq, n.votes[a.at].at = w.next(), time.Now()
		}
	})
	if err != nil {
		return driver.Grant{}, err
	}
	a.g.Sent = sent
	return a.g, a.err
}

func (p *qplace) Leave(ctx context.Context) error {
	err, lost := call(ctx, p.l, func() error {
		p.l.n.left[p.r.ID] = true
		h := p.r.Hold
		h.Token = 0
		if err := p.l.n.store.Release(context.Background(), h, driver.End{}); !errors.Is(err, driver.ErrNotHeld) {
			return err
		}
		return nil
	}, nil)
	return errors.Join(err, lost)
}

func (l *qlink) Renew(ctx context.Context, hs []driver.Hold) []error {
	hs = slices.Clone(hs)
	errs, err := call(ctx, l, func() []error {
		for i, h := range hs {
			hs[i] = l.n.inside(h)
		}
		return l.n.store.Renew(context.Background(), hs)
	}, nil)
	if err != nil {
		return slices.Repeat([]error{err}, len(hs))
	}
	return errs
}

func (l *qlink) Release(ctx context.Context, h driver.Hold, end driver.End) error {
	err, lost := call(ctx, l, func() error {
		l.n.left[h.ID] = l.n.left[h.ID] || h.Token == 0
		return l.n.store.Release(context.Background(), l.n.inside(h), end)
	}, nil)
	if lost != nil {
		return lost
	}
	return err
}

func (l *qlink) Raise(ctx context.Context, h driver.Hold, token int64) error {
	n, w := l.n, l.p.w
	err, lost := call(ctx, l, func() error {
		if err := n.store.Raise(context.Background(), n.inside(h), 0); err != nil && !w.mutant.ownerless {
			return err
		}
		if !w.mutant.forgetful {
			n.last = max(n.last, token)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		n.acks = append(n.acks, qack{w.next(), h.ID, token})
		w.notef("member %d raises %s to %d", n.no, h.ID, token)
		return nil
	}, nil)
	if lost != nil {
		return lost
	}
	return err
}

type qlife struct {
	id  string
	age time.Duration
	err error
}

func (l *qlink) Incarnation(ctx context.Context) (string, time.Duration, error) {
	if l.p.w.mutant.ageless {
		return fmt.Sprint("node ", l.n.no), time.Hour, nil
	}
	v, err := call(ctx, l, func() (v qlife) {
		v.id, v.age, v.err = l.n.store.Incarnation(context.Background())
		return v
	}, nil)
	return v.id, v.age, errors.Join(v.err, err)
}

func (l *qlink) Close() error { return l.d.Close() }

// run plays a plan and answers what was wrong.
func (p qplan) run(m qmutant) (sins, log []string, count map[string]int) {
	w := &qworld{plan: p, mutant: m, rng: rand.New(rand.NewPCG(p.Seed, 1)), count: map[string]int{}}
	for i := range p.Members {
		w.nodes = append(w.nodes, &qnode{w: w, no: i, store: memlock.New(), left: map[string]bool{}, given: map[string]int64{}, skew: time.Duration(w.rng.Int64N(int64(4*time.Second))) - 2*time.Second})
	}
	for i := range p.Procs {
		w.procs = append(w.procs, w.newProc(i))
	}
	var dead []*qproc
	for _, op := range p.Ops {
		time.Sleep(op.Gap)
		n := w.nodes[op.Member]
		w.mu.Lock()
		pr := w.procs[op.Proc]
		till := time.Now().Add(op.For)
		switch op.What {
		case qCut:
			pr.cut[op.Member] = till
			w.notef("process %d and member %d are cut for %v", op.Proc, op.Member, op.For)
		case qMute:
			pr.mute[op.Member] = till
		case qFreeze:
			pr.freeze = till
			w.notef("process %d freezes for %v", op.Proc, op.For)
		}
		w.mu.Unlock()
		switch op.What {
		case qAcquire:
			w.acquire.Go(func() { pr.acquires(op) })
		case qStop, qSkew, qWipe:
			n.mu.Lock()
			w.mu.Lock()
			switch op.What {
			case qStop:
				n.stops = till
				w.notef("member %d stops for %v", op.Member, op.For)
			case qSkew:
				n.skew = op.Skew
			case qWipe:
				n.store.Wipe()
				n.last, n.left, n.given = 0, map[string]bool{}, map[string]int64{}
				n.wiped = append(n.wiped, w.next())
				w.notef("member %d restarts empty", op.Member)
			}
			w.mu.Unlock()
			n.mu.Unlock()
		case qCrash:
			w.mu.Lock()
			pr.isDead = true
			close(pr.dead)
			for i := range pr.cut {
				pr.cut[i] = till.Add(time.Hour) // what it sent and has not arrived is lost
			}
			w.procs[op.Proc] = w.newProc(op.Proc)
			w.notef("process %d dies", op.Proc)
			w.mu.Unlock()
			dead = append(dead, pr)
		}
	}
	w.acquire.Wait()
	for _, pr := range append(dead, w.procs...) {
		pr.d.Close()
		pr.pending.Wait()
	}
	time.Sleep(2*qMaxTTL + time.Second)
	for _, n := range w.nodes {
		if r, err := n.store.Inspect(context.Background(), "n"); err != nil || len(r.Holds) > 0 {
			w.sinf("left at member %d: %v %v", n.no, r.Holds, err)
		}
	}
	w.checkTokens()
	return w.sins, w.log, w.count
}

// acquires is one lease of a process, from the call to its end.
func (p *qproc) acquires(op qop) {
	w := p.w
	w.mu.Lock()
	w.ids++
	id := fmt.Sprintf("p%d:%d", p.no, w.ids)
	w.mu.Unlock()
	lost := make(chan struct{}, 1)
	place, err := p.d.Enter(context.Background(), driver.Request{
		Hold: driver.Hold{Kind: op.Kind, Name: "n", ID: id, Permits: 1, TTL: op.TTL},
		Wait: op.Tries > 5,
		Notify: func(s driver.Signal) {
			if s == driver.Lost {
				select {
				case lost <- struct{}{}:
				default:
				}
			}
		},
	})
	if err != nil {
		return // it died
	}
	g := &qgrant{proc: p, kind: op.Kind, id: id}
	var grant driver.Grant
	for try := 1; ; try++ {
		w.mu.Lock()
		g.call = w.next()
		dead := p.isDead
		w.mu.Unlock()
		if dead {
			return
		}
		ctx, stop := context.WithTimeout(context.Background(), op.TTL)
		grant, err = place.Try(ctx, op.Span)
		stop()
		if err == nil {
			break
		}
		held := errors.Is(err, driver.ErrHeld)
		w.mu.Lock()
		if held {
			w.count["held"]++
		} else {
			w.count["failed"]++
		}
		w.mu.Unlock()
		if !held || try >= op.Tries {
			for end := time.Now().Add(op.TTL); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
				ctx, stop := context.WithTimeout(context.Background(), op.TTL/4)
				err := place.Leave(ctx)
				stop()
				if err == nil || errors.Is(err, driver.ErrClosed) {
					return
				}
			}
			return
		}
		again := 30 * time.Millisecond
		var he *driver.HeldError
		if errors.As(err, &he) && he.Again > 0 {
			again = he.Again
		}
		time.Sleep(again)
	}
	if !w.granted(g, grant) {
		return
	}
	h := driver.Hold{Kind: op.Kind, Name: "n", ID: id, Token: grant.Token, Permits: 1, TTL: grant.TTL}
	for end := time.Now().Add(op.Hold); time.Now().Before(end); {
		select {
		case <-lost:
			w.end(g, g.reserved)
			return
		case <-p.dead:
			w.end(g, g.reserved)
			return
		case <-time.After(grant.TTL / 3):
		}
		if op.End == qVanish {
			continue
		}
		ctx, stop := context.WithTimeout(context.Background(), grant.TTL/3)
		sent := driver.Now()
		w.mu.Lock()
		asked := w.next()
		w.mu.Unlock()
		err := p.d.Renew(ctx, []driver.Hold{h})[0]
		stop()
		w.mu.Lock()
		now := driver.Now()
		if told := w.told(g, asked); err == nil && told <= len(w.nodes)/2 {
			w.sinf("%s is renewed when %d members know its last token", g.id, told)
		}
		if err == nil && now < g.trust && !p.isDead {
			g.trust = max(g.trust, sent.Add(grant.TTL))
			w.count["renewed"]++
		}
		over := now >= g.trust || errors.Is(err, driver.ErrNotHeld)
		w.mu.Unlock()
		if over {
			w.end(g, g.reserved)
			return
		}
	}
	used := g.reserved
	if op.End == qHalf {
		used = g.token + (g.reserved-g.token)/2
	}
	w.end(g, used)
	if op.End == qVanish {
		return
	}
	for end := time.Now().Add(op.TTL); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		ctx, stop := context.WithTimeout(context.Background(), op.TTL)
		err := p.d.Release(ctx, h, driver.End{Last: used})
		stop()
		if err == nil || errors.Is(err, driver.ErrNotHeld) || errors.Is(err, driver.ErrClosed) {
			return
		}
	}
}

// granted notes a lease and looks who else trusts one.
func (w *qworld) granted(g *qgrant, grant driver.Grant) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := driver.Now()
	g.ret, g.token, g.reserved = w.next(), grant.Token, grant.Token+int64(grant.Span)-1
	g.used, g.trust = g.reserved, grant.Sent.Add(grant.TTL)
	w.notef("granted %s %v: %d to %d", g.id, g.kind, g.token, g.reserved)
	if g.proc.isDead {
		g.ended = true
	}
	if grant.Token <= 0 {
		w.sinf("%s has token %d", g.id, grant.Token)
	}
	if told := w.told(g, g.call); told <= len(w.nodes)/2 {
		w.sinf("%s is reported when %d members know its last token", g.id, told)
	}
	for _, o := range w.grants {
		if !o.ended && now < o.trust && now < g.trust && !g.ended && (o.kind != driver.Read || g.kind != driver.Read) {
			w.sinf("%s is granted while %s is trusted for another %v", g.id, o.id, o.trust.Sub(now))
		}
	}
	w.grants = append(w.grants, g)
	w.count["granted"]++
	return true
}

// told counts the members that know the last token of g, and had not forgotten it at an instant.
func (w *qworld) told(g *qgrant, at int) (count int) {
	for _, n := range w.nodes {
		if n.kept(g, at) || slices.ContainsFunc(n.acks, func(a qack) bool { return a.id == g.id && a.token >= g.reserved && a.seq > at }) {
			count++
		}
	}
	return count
}

func (w *qworld) end(g *qgrant, used int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	g.ended, g.used = true, used
	w.notef("ends %s, used up to %d", g.id, used)
}

// checkTokens compares all leases of which one came surely after the other.
func (w *qworld) checkTokens() {
	for _, b := range w.grants {
		quorum := w.quorum(b)
		for _, a := range w.grants {
			if a.ret > b.call || a.kind == driver.Read && b.kind == driver.Read {
				continue
			}
			kept := false
			for _, v := range quorum {
				kept = kept || v.n.kept(a, v.given)
			}
			if kept {
				w.count["compared"]++
			}
			if kept && b.token <= a.used {
				w.sinf("%s got token %d after %s had used up to %d", b.id, b.token, a.id, a.used)
			}
		}
	}
}

type qvoter struct {
	n     *qnode
	given int
}

// quorum are the members whose proposals surely made the token of g: those that answered first.
func (w *qworld) quorum(g *qgrant) []qvoter {
	type vote struct {
		qvoter
		at time.Time
	}
	var votes []vote
	for _, n := range w.nodes {
		for _, v := range n.votes {
			if v.id == g.id && !v.at.IsZero() && v.seq > g.call && v.seq < g.ret {
				votes = append(votes, vote{qvoter{n, v.given}, v.at})
			}
		}
	}
	slices.SortFunc(votes, func(a, b vote) int { return a.at.Compare(b.at) })
	need := len(w.nodes)/2 + 1
	if len(votes) < need {
		w.sinf("%s was granted by %d votes", g.id, len(votes))
		return nil
	}
	last := votes[need-1].at
	tie := len(votes) > need && votes[need].at.Equal(last)
	var out []qvoter
	for _, v := range votes[:need] {
		if v.at.Before(last) || !tie {
			out = append(out, v.qvoter)
		}
	}
	return out
}

// kept reports whether the member was told the last token of g and had not forgotten it at an instant.
func (n *qnode) kept(g *qgrant, at int) bool {
	for _, a := range n.acks {
		if a.id != g.id || a.token < g.reserved || a.seq > at {
			continue
		}
		if !slices.ContainsFunc(n.wiped, func(s int) bool { return a.seq < s && s < at }) {
			return true
		}
	}
	return false
}

func TestRedlockModel(t *testing.T) {
	var mu sync.Mutex
	total := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		plan := qplans.Draw(t, "plan")
		rapid.SyncTest(t, func(t *rapid.T) {
			sins, log, count := plan.run(qmutant{})
			mu.Lock()
			for k, n := range count {
				total[k] += n
			}
			mu.Unlock()
			if len(sins) > 0 {
				t.Fatalf("%s\n\n%s", strings.Join(sins, "\n"), strings.Join(log, "\n"))
			}
		})
	})
	t.Log(total)
	for _, k := range []string{"granted", "held", "failed", "renewed", "compared"} {
		if total[k] == 0 && !t.Failed() {
			t.Errorf("in no history anything was %s", k)
		}
	}
}

// Every mutant of the quorum must be found within so many histories.
func TestRedlockMutants(t *testing.T) {
	const histories = 1500
	for name, m := range map[string]qmutant{
		"write-back without owner check": {ownerless: true},
		"no write-back":                  {forgetful: true},
		"voting empty restart":           {ageless: true},
	} {
		t.Run(name, func(t *testing.T) {
			for i := range histories {
				plan := qplans.Example(i + 1)
				var sins []string
				synctest.Test(t, func(t *testing.T) { sins, _, _ = plan.run(m) })
				if len(sins) > 0 {
					t.Logf("found in history %d: %s", i+1, sins[0])
					return
				}
			}
			t.Fatalf("not found in %d histories", histories)
		})
	}
}
