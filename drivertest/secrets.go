package drivertest

import (
	"context"
	"strings"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

var secretRules = []Rule{
	{
		Name:     "no error shows one",
		Sentence: "No error text carries a password or a full URL.",
		needs:    hasSecrets,
		check: func(c *run) {
			d := c.driver()
			said := func(what string, err error) {
				c.tb.Helper()
				if err == nil {
					return
				}
				for _, secret := range c.h.Secrets {
					if strings.Contains(err.Error(), secret) {
						c.failf("the error of %s shows a secret", what) // and this one does not
					}
				}
			}
			calls := func(when string, ctx context.Context) {
				r := c.newAsker(d, named(c.freshName())).r
				if p, err := d.Enter(ctx, r); err == nil {
					_, err = p.Try(ctx, 1)
					said("Try "+when, err)
					said("Leave "+when, p.Leave(ctx))
				} else {
					said("Enter "+when, err)
				}
				said("Renew "+when, d.Renew(ctx, []driver.Hold{r.Hold})[0])
				said("Release "+when, d.Release(ctx, r.Hold, driver.End{}))
				if in, ok := d.(driver.Inspector); ok {
					_, err := in.Inspect(ctx, c.name)
					said("Inspect "+when, err)
				}
			}
			a := c.ask(d).mustGet()
			said("a refused Try", c.ask(d).try(1))
			a.release()
			_, err := d.Enter(c.ctx, c.newAsker(d, as(99)).r)
			said("Enter for an unknown kind", err)
			calls("without trouble", c.ctx)
			ended, cancel := context.WithCancel(c.ctx)
			cancel()
			calls("with an ended context", ended)
			if c.h.Stall != nil {
				resume := c.h.Stall(c.tb)
				ctx, cancel := context.WithTimeout(c.ctx, 100*time.Millisecond)
				calls("of a silent store", ctx)
				cancel()
				resume()
			}
			d.Close()
			calls("after Close", c.ctx)
		},
	},
}
