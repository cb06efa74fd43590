package redislock

// follow drops all connections to a primary when the client of Sentinels turns to another one: the old one may still
// answer, and what it confirms is worth nothing any more.
func (d *Driver) follow() {
	d.redis.Follow(d.life, func() {
		d.lanes.renew()
		d.ear.renew()
	})
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
		conn.Close()
	}
}
