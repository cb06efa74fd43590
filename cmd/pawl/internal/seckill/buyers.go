package seckill

import (
	"math/rand/v2"
	"time"
)

// doubleClick is the share of buyers who press twice.
const doubleClick = 0.03

// click is one request of a buyer.
type click struct {
	buyer uint32
	at    time.Duration // after the start; 0 for all: as fast as the shop lets them in
}

// clicks makes the buyers of a sale: who comes when, and who presses twice. The same seed makes the same buyers.
func clicks(o *options) []click {
	r := rand.New(rand.NewPCG(o.seed, 0x736563_6b696c6c))
	cs := make([]click, 0, o.buyers+o.buyers/20)
	var at float64 // seconds
	for _, b := range r.Perm(o.buyers) {
		c := click{buyer: uint32(b + 1)}
		if o.rate > 0 {
			at += r.ExpFloat64() / o.rate
			c.at = time.Duration(at * float64(time.Second))
		}
		cs = append(cs, c)
		if r.Float64() < doubleClick {
			cs = append(cs, c) // at once, so that the balancer sends it to the next server
		}
	}
	return cs
}
