package redislock

import "time"

// followEvery is how soon a driver over Sentinels notices that its client has turned to another primary.
const followEvery = 100 * time.Millisecond

// follow drops all connections to a primary when the client of Sentinels turns to another one: the old one may still
// answer, and what it confirms is worth nothing any more.
func (d *Driver) follow() {
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	at := d.primary()
	for {
		select {
		case <-tick.C:
		case <-d.done:
			return
		}
		if now := d.primary(); now != at {
			at = now
			d.lanes.renew()
			d.ear.renew()
		}
	}
}

// primary is the address of the primary that the client knows.
func (d *Driver) primary() string {
	for addr := range d.client.Nodes() {
		return addr
	}
	return ""
}

// renew drops the connections of all lanes. Who waits for an answer does not get to know it.
func (l *lanes) renew() {
	for _, ln := range l.lanes {
		ln.drop()
	}
}

// renew drops the ear's connection, so that it makes another.
func (e *ear) renew() {
	e.mu.Lock()
	conn := e.conn
	e.mu.Unlock()
	if conn != nil {
		conn.cut()
	}
}
