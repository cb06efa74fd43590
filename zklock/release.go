package zklock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/pawl-lock/pawl/driver"
)

// releaseLimit bounds a request for a hold whose TTL says nothing.
const releaseLimit = 5 * time.Second

// Release ends a hold: one of this driver by deleting its node, with one request; any other after a look at who holds the
// name. If the ensemble cannot be reached, the driver goes on trying in the background.
//
// End.Keep leaves another node in the place of the hold's, with the same number, so that everybody's order stays as it is.
// It goes when its time is over or this session ends.
func (d *Driver) Release(ctx context.Context, h driver.Hold, end driver.End) error {
	if d.bad != nil {
		return d.bad
	}
	if d.life.Err() != nil {
		return errClosed
	}
	r, _ := roleOf(h.Kind)
	if r == none {
		return fmt.Errorf("zklock: kind %s: %w", h.Kind, errors.ErrUnsupported)
	}
	if len(h.Name) < 1 || len(h.Name) > 4096 {
		return invalid("a name has 1 to 4096 bytes, not %d", len(h.Name))
	}
	ctx, cancel := d.bound(ctx, max(h.TTL, releaseLimit))
	defer cancel()
	x := d.keep.take(h)
	if x == nil {
		if d.keep.get(h.ID) != nil {
			return driver.ErrNotHeld // another name or token
		}
		var err error
		if x, err = d.locate(ctx, h, r); err != nil {
			return err
		}
	}
	if end.Keep > 0 {
		return d.replace(ctx, x, end.Keep)
	}
	there, err := d.erase(ctx, x.dir, x.nodes)
	if err != nil {
		d.keep.endNow(x)
		return err
	}
	x.ear.deafen()
	d.keep.drop(x)
	if !there {
		return driver.ErrNotHeld
	}
	if x.alone != nil {
		x.alone.freed(x.dir, x.nodes[0].seq, x.tally)
	}
	if x.listed != nil {
		d.marks.set(x.dir, markOf(x.listed).next())
	}
	return nil
}

// locate finds a hold that this driver did not get, by its ID, which for another client's is the node's name.
func (d *Driver) locate(ctx context.Context, h driver.Hold, r role) (*hold, error) {
	dir := d.dir(h.Name)
	if r == lease {
		dir += "/" + leasesDir
	}
	v, err := d.synced(ctx, dir)
	if err != nil {
		return nil, err
	}
	holders := v.holders()
	if r == lease {
		holders = v.nodes
	}
	x := &hold{Hold: h, dir: dir, role: r, ear: &ear{notify: func(driver.Signal) {}}}
	for _, n := range holders {
		if n.role.kind().Family() == h.Kind.Family() && (n.id == h.ID || n.name == h.ID) {
			x.nodes = append(x.nodes, n)
			x.role = n.role
		}
	}
	if len(x.nodes) == 0 {
		return nil, driver.ErrNotHeld
	}
	if h.Token != 0 {
		stat, err := d.stat(ctx, x.path(x.nodes[0]))
		if err != nil {
			return nil, err
		}
		if stat == nil {
			return nil, driver.ErrNotHeld
		}
		if token, _ := d.token(stat.Czxid, 1); token != h.Token {
			return nil, driver.ErrNotHeld
		}
	}
	return x, nil
}

// replace puts nodes of nobody in the place of a hold's, in one transaction.
func (d *Driver) replace(ctx context.Context, x *hold, keep time.Duration) error {
	till := driver.Now().Add(keep)
	var ops []any
	kept := &hold{Hold: x.Hold, dir: x.dir, role: x.role, session: d.conn.SessionID(), timeout: x.timeout, kept: true,
		ear: &ear{notify: func(driver.Signal) {}}, deadline: till}
	kept.ID = x.ID + " kept"
	for _, n := range x.nodes {
		if n.id == "" {
			return invalid("only pawl's own holds can keep a name taken after their end")
		}
		name, flags := tag(n.id, ".kept")+n.name[len(n.name)-baseAndDigits(n):], int32(zk.FlagEphemeral)
		if n.role == lease {
			name, flags = tag(n.id, ".kept")+leaseBase, zk.FlagEphemeralSequential
		}
		ops = append(ops, &zk.CreateRequest{Path: x.dir + "/" + name, Data: []byte{}, Acl: d.acl, Flags: flags},
			&zk.DeleteRequest{Path: x.path(n), Version: -1})
	}
	made, err := call(ctx, func() ([]zk.MultiResponse, error) { return d.conn.Multi(ops...) })
	switch {
	case errors.Is(err, zk.ErrNoNode):
		d.keep.drop(x)
		return driver.ErrNotHeld
	case errors.Is(err, zk.ErrNodeExists):
		return nil // a repetition
	case err != nil:
		return describe("replace a node in", x.dir, err)
	}
	for i := 0; i < len(made); i += 2 {
		n, _ := parse(made[i].String[strings.LastIndexByte(made[i].String, '/')+1:])
		kept.nodes = append(kept.nodes, n)
	}
	x.ear.deafen()
	d.keep.drop(x)
	d.keep.add(kept)
	return nil
}

// baseAndDigits is how long the end of a node's name is that orders it.
func baseAndDigits(n node) int {
	for _, b := range bases {
		if i := strings.LastIndex(n.name, b.text); i >= 0 && b.role == n.role {
			return len(n.name) - i
		}
	}
	return 0
}
