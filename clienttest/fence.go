package clienttest

import (
	"github.com/pawl-lock/pawl"
	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/fence"
	"github.com/pawl-lock/pawl/fence/guardtest"
)

var fenceCases = []Case{
	{
		Name:     "a late write",
		Sentence: "A guard refuses the write of a holder that was paused between its claim and its write, from the next holder's claim on, however quick that one was; where leases have no token, it refuses to guard.",
		flavours: []flavour{mutex, fair, write}, // permits have no order
		check: func(c *run) {
			c.inTime(func() bool {
				a, b := c.node(pawl.Options{TTL: c.short(), NoKeepalive: true}), c.node(pawl.Options{})
				slow := c.take(c.lock(a, c.name), 0)
				var gate fence.Gate
				if slow.Token() == 0 {
					c.mustBe("a claim without a token", gate.Claim(c.name, slow), fence.ErrNoToken)
					c.free(slow)
					return true
				}
				asleep := guardtest.Freeze(slow) // its last look at the lease
				if err := gate.Claim(c.name, slow); slow.Err() != nil {
					return false
				} else if err != nil {
					c.failf("the first claim: %v", err)
				}
				if err := gate.Claim(c.name, asleep); err != nil {
					c.failf("the same hold once more: %v", err)
				}
				quick := c.take(c.lock(b, c.name), 2*c.short())
				if err := gate.Claim(c.name, asleep); err != nil {
					c.failf("a late write that nobody can know of yet: %v", err)
				}
				if err := gate.Claim(c.name, quick); err != nil {
					c.failf("the next holder: %v", err)
				}
				c.mustBe("a late write", gate.Claim(c.name, asleep), fence.ErrStale)
				c.mustBe("a claim with a lease that was lost", gate.Claim(c.name, slow), fence.ErrStale)
				if err := gate.Claim(c.name, quick); err != nil {
					c.failf("the next holder's write: %v", err)
				}
				c.free(quick)
				c.mustBe("a claim with a lease that was unlocked", gate.Claim(c.name, quick), fence.ErrStale)
				third := c.take(c.lock(c.node(pawl.Options{}), c.name), 0)
				if err := gate.Claim(c.name, third); err != nil {
					c.failf("the third holder: %v", err)
				}
				c.free(third)
				return true
			})
		},
	},
	{
		Name:     "readers",
		Sentence: "Readers who hold together may claim in any order, and after them no older writer is let through.",
		with:     []driver.Kind{driver.Read, driver.Write},
		check: func(c *run) {
			c.inTime(func() bool {
				a, b := c.node(pawl.Options{TTL: c.short(), NoKeepalive: true}), c.node(pawl.Options{})
				slow := c.take(a.RWMutex(c.name), 0)
				var gate fence.Gate
				if slow.Token() == 0 {
					c.free(slow)
					return true
				}
				if err := gate.Claim(c.name, slow); slow.Err() != nil {
					return false
				} else if err != nil {
					c.failf("the writer: %v", err)
				}
				asleep := guardtest.Freeze(slow)
				var readers []*pawl.Lease
				due := 2 * c.short()
				for _, n := range []*node{b, c.node(pawl.Options{}), b} {
					readers = append(readers, c.take(n.RWMutex(c.name).RLocker(), due))
					due = 0
				}
				for k := range readers {
					for _, r := range []*pawl.Lease{readers[len(readers)-1-k], readers[0]} {
						if err := gate.ClaimShared(c.name, r); err != nil {
							c.failf("a reader beside others: %v", err)
						}
					}
				}
				c.mustBe("the late writer", gate.Claim(c.name, asleep), fence.ErrStale)
				for _, r := range readers {
					c.free(r)
				}
				next := c.take(c.node(pawl.Options{}).RWMutex(c.name), 0)
				if err := gate.Claim(c.name, next); err != nil {
					c.failf("the next writer: %v", err)
				}
				c.free(next)
				return true
			})
		},
	},
}
