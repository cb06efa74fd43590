package etcdlock

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/pawl-lock/pawl/driver"
)

// undo takes whatever the place has in the store out of it, and makes sure that nothing arrives later: if a request to put
// the key was not answered, the session's mark is written anew, and a request that was sent under the old one does nothing.
func (p *place) undo(ctx context.Context) error {
	d := p.d
	d.mu.Lock()
	s, seat, rev, loose, value := p.sess, p.seat, p.rev, p.loose, p.value
	dead := s == nil || s.dead
	d.mu.Unlock()
	switch {
	case dead || rev == 0 && !loose:
		return nil
	case !loose:
		return d.ask(ctx, p.r.TTL, []cond{created(seat, rev)}, []op{del(seat)}, nil).err
	}
	// The value has the hold's ID (a leader's key has it), so no later hold of the same seat can be meant.
	mine := []cond{valued(seat, value)}
	mark := s.putMark()
	a := d.ask(ctx, p.r.TTL, mine, []op{del(seat), mark}, []op{mark})
	switch {
	case leaseGone(a.err):
		s.lose()
		return nil
	case is(a.err, rpctypes.ErrGRPCNoSpace) || a.err != nil && strings.Contains(a.err.Error(), "NOSPACE"):
		// No put can arrive either while the alarm is on.
		return d.ask(ctx, p.r.TTL, mine, []op{del(seat)}, nil).err
	case a.err != nil:
		return a.err
	}
	s.marked(a.resp.rev)
	d.mu.Lock()
	p.loose = false
	d.mu.Unlock()
	return nil
}

func (s *session) putMark() op { return put(s.mark, "", s.lease) }

func (s *session) marked(gen int64) {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	s.gen = max(s.gen, gen)
}

// Release ends exactly h, whoever has it.
func (d *Driver) Release(ctx context.Context, h driver.Hold, end driver.End) error {
	if err := d.usable(); err != nil {
		return err
	}
	strange := strings.HasPrefix(h.ID, strangeID)
	if strange {
		h.Kind = driver.Exclusive
	} else if err := check(h); err != nil {
		return err
	}
	ctx, stop := d.bound(ctx, h.TTL)
	defer stop()
	d.mu.Lock()
	p := d.places[h.ID]
	if p == nil || p.r.Name != h.Name || p.state != held && p.state != ending {
		d.mu.Unlock()
		return d.releaseOther(ctx, h, end)
	}
	if h.Token != 0 && h.Token != p.token {
		d.mu.Unlock()
		return driver.ErrNotHeld
	}
	p.state = ending
	e := ended{key: p.seat, rev: p.rev, value: p.value, sess: p.sess, loose: p.loose}
	d.mu.Unlock()
	p.hush()
	there, err := d.finish(ctx, h, end, e)
	if err != nil {
		return err
	}
	d.mu.Lock()
	p.rise()
	p.state = gone
	d.mu.Unlock()
	if !there {
		return driver.ErrNotHeld
	}
	return nil
}

// ended is a hold that is to end.
type ended struct {
	key   string
	rev   int64
	value string
	sess  *session // nil: not this driver's
	loose bool     // a copy of the request may still be on its way
}

// finish ends a hold, by the create revision of its key. It answers whether it was there.
func (d *Driver) finish(ctx context.Context, h driver.Hold, end driver.End, e ended) (there bool, err error) {
	then, otherwise := []op{del(e.key)}, []op(nil)
	var k *keep
	if end.Keep > 0 {
		if k, err = d.keeper(ctx, h, end, e); err != nil {
			return false, err
		}
		then = k.puts
	}
	if e.loose {
		otherwise = []op{e.sess.putMark()}
		then = append(then, otherwise...)
	}
	a := d.ask(ctx, h.TTL, []cond{created(e.key, e.rev)}, then, otherwise)
	switch {
	case e.loose && leaseGone(a.err):
		e.sess.lose()
		return false, nil
	case a.err != nil:
		return false, a.err
	}
	if e.loose {
		e.sess.marked(a.resp.rev)
	}
	there = a.resp.succeeded
	switch {
	case k != nil && there:
		d.mu.Lock()
		d.kept[k] = struct{}{}
		d.tend()
		d.mu.Unlock()
	case k != nil:
		d.run(func() { d.revokeLease(k.lease) })
	case !there && a.loose:
		there = true // a copy of this very request may have been first
	}
	return there, nil
}

// keep is a name that stays taken after its hold has ended: its key has a lease of its own, so that it is free again even
// if this process dies, and is deleted in time if it lives.
type keep struct {
	keys  []string
	revOf string // the key that rev is of; "": it is new with this lease
	rev   int64
	lease int64
	until driver.Instant
	puts  []op
	busy  bool
}

// keeper gets a lease for the time that a name is kept, and prepares what to put with it.
func (d *Driver) keeper(ctx context.Context, h driver.Hold, end driver.End, e ended) (*keep, error) {
	k := &keep{lease: newLease()}
	if _, err := d.lease(ctx, k.lease, min(seconds(end.Keep), maxSeconds)); err != nil {
		return nil, err
	}
	k.until = driver.Now().Add(end.Keep)
	base := d.base(h.Name)
	if h.Kind == driver.Once {
		result := fmt.Sprintf("%s/%x/%c%s", base, k.lease, formResult, h.ID)
		k.keys = []string{result}
		k.puts = []op{del(e.key), put(result, string(end.Value), k.lease)}
		return k, nil
	}
	mark := fmt.Sprintf("%s/%x/%c%s", base, k.lease, formKept, h.ID)
	value := e.value
	if h.Kind == driver.Leader {
		value = "" // nobody leads
	}
	k.keys, k.revOf, k.rev = []string{mark, e.key}, e.key, e.rev
	k.puts = []op{put(e.key, value, k.lease), put(mark, "", k.lease)}
	return k, nil
}

func newLease() int64 { return rand.Int64N(1<<60) | 1<<60 }

func (d *Driver) revokeLease(lease int64) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(d.life), time.Second)
	defer cancel()
	_, err := d.leases.LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: lease})
	if leaseGone(err) {
		err = nil
	}
	return err
}

// free gives a kept name back.
func (d *Driver) free(ctx context.Context, k *keep) error {
	var all []op
	for _, key := range k.keys {
		all = append(all, del(key))
	}
	if k.revOf == "" {
		return d.ask(ctx, minLimit, nil, all, nil).err
	}
	return d.ask(ctx, minLimit, []cond{created(k.revOf, k.rev)}, all, all[:1]).err
}

// releaseOther ends a hold that this driver did not get, or does not know to have got. A waiter is no hold.
func (d *Driver) releaseOther(ctx context.Context, h driver.Hold, end driver.End) error {
	base := d.base(h.Name)
	q, err := d.look(ctx, h.TTL, base)
	if err != nil {
		return err
	}
	i := -1
	if rest, rev, ok := parseStrange(h.ID); ok {
		if i = q.find(base + "/" + rest); i >= 0 && q.line[i].rev != rev {
			i = -1
		}
	} else {
		i = q.byID(h.ID)
	}
	if i < 0 {
		return driver.ErrNotHeld
	}
	c := &q.line[i]
	if _, holds := q.holders(); !holds[i] || h.Token != 0 && h.Token != c.token() {
		return driver.ErrNotHeld
	}
	h.Kind = c.kind()
	e := ended{key: c.key, rev: c.rev, value: string(c.value)}
	there, err := d.finish(ctx, h, end, e)
	if err != nil {
		return err
	}
	if !there {
		return driver.ErrNotHeld
	}
	return nil
}

// strangeID begins the ID of what has no ID of pawl's: "etcd:<key behind the name>@<create revision>". So whoever sees it
// can end exactly that.
const strangeID = "etcd:"

func strange(c *contender) string { return fmt.Sprintf("%s%s@%d", strangeID, c.rest, c.rev) }

func parseStrange(id string) (rest string, rev int64, ok bool) {
	rest, ok = strings.CutPrefix(id, strangeID)
	i := strings.LastIndexByte(rest, '@')
	if !ok || i < 0 {
		return "", 0, false
	}
	rev, err := strconv.ParseInt(rest[i+1:], 10, 64)
	return rest[:i], rev, err == nil
}
