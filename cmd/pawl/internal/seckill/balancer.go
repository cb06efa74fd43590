package seckill

// window is how many requests the balancer lets wait at one server.
const window = 256

// balancer spreads requests over the servers in turn, passing over one that does not keep up (or is stopped).
type balancer struct {
	servers []*process
	next    int
}

// send passes a request on, or answers false when every server is full.
func (b *balancer) send(id, buyer uint32) bool {
	for range b.servers {
		p := b.servers[b.next]
		b.next = (b.next + 1) % len(b.servers)
		if p.inFlight < window {
			p.inFlight++
			p.box.put(frame{opBuy, id, buyer}, nil)
			return true
		}
	}
	return false
}
