package zklock

// tally saves the listing behind a create at a name that nobody else wants. A directory numbers its children, of whatever
// kind, in the order of their creation. So if a node of ours was alone in it when it was created, and is deleted, and the
// next node of ours has the next number, nobody else's was created in between: the new one is alone as well.
//
// That holds for one life of a directory only: one that is deleted and made again numbers anew. So the connection has a
// watch on it. A server tells that a watched node is gone before it answers anything that came later. Tallies end with
// their connection, and each with the first news of its directory.
type tally struct {
	used    bool  // a node of ours was alone in it and is deleted: it may be used again
	watched bool  // the watch is set
	free    bool  // the last node of ours that was alone is deleted
	last    int32 // its number
	follows bool  // the numbers of the last two nodes followed one another
}

// maxTallies bounds them; then they begin anew. A watch that nobody wants any more ends when the servers remove the
// directory.
const maxTallies = 10_000

// ticket is what one create has of the tally of its directory.
type ticket struct {
	tally *tally // nil: none
	make  bool   // the directory is made first: this connection has not used it yet
	solo  bool   // the number will prove it, so no listing is asked for
	watch bool   // the watch is asked for
	free  bool   // the number behind last proves that nobody else is there
	last  int32
}

func (c *wireConn) ticket(dir string) ticket {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.tallies[dir]
	if t == nil {
		if len(c.tallies) >= maxTallies {
			clear(c.tallies)
		}
		c.tallies[dir] = &tally{}
		return ticket{make: true}
	}
	k := ticket{tally: t, solo: t.free && t.watched && t.follows, watch: t.used && !t.watched, free: t.free, last: t.last}
	t.free = false // the next number is only for one
	return k
}

// punch takes in what became of a create: its number, whether the watch was set, and whether a listing showed it alone.
// It answers whether it was alone, and the tally for its end, if that will say something about the next one.
func (c *wireConn) punch(dir string, k ticket, number int32, watching, listed bool) (alone bool, t *tally) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k.tally == nil || c.tallies[dir] != k.tally { // there was news of the directory
		return listed, nil
	}
	t = k.tally
	t.watched = t.watched || watching
	t.follows = k.free && number == k.last+1
	if alone = listed || k.solo && t.follows; !alone || !t.watched {
		return alone, nil
	}
	return alone, t
}

// freed takes in that a node is deleted that was alone when it was created. Its directory was there all the time, so the
// tally that it had is about the same life of it.
func (c *wireConn) freed(dir string, number int32, t *tally) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.tallies[dir]
	if now == nil {
		return
	}
	now.used = true
	if now == t {
		t.last, t.free = number, true
	}
}

// news ends the tally of a path.
func (c *wireConn) news(path string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.tallies, path)
}
