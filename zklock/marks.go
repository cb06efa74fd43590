package zklock

import (
	"sync"

	"github.com/go-zookeeper/zk"
)

// marks saves the request that would read the czxid of a node which was just created. A directory's pzxid is the zxid of
// its last change, so it is the node's czxid if nothing has changed since the node was created. Directories count their
// changes (creations and deletions; that is what clients see as cversion), which proves it: when the count was V at a
// listing, and is V+2 at a later one, and a deletion of ours and then a creation of ours were answered in between, then
// there was no other change.
type marks struct {
	mu   sync.Mutex
	dirs map[string]mark
}

// mark is a directory as our last deletion left it, if nobody else has changed it since.
type mark struct {
	czxid    int64 // of the directory: it may have been deleted and made again
	cversion int32
}

const maxMarks = 10_000

func markOf(dir *zk.Stat) mark { return mark{dir.Czxid, dir.Cversion} }

// next is the mark after one more change.
func (m mark) next() mark { return mark{m.czxid, m.cversion + 1} }

func (m *marks) set(dir string, to mark) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dirs == nil || len(m.dirs) >= maxMarks {
		m.dirs = map[string]mark{}
	}
	m.dirs[dir] = to
}

// take is the mark of a directory, which is used up, or a zero one. It is taken before a creation is sent: what is recorded
// later may be the deletion of another place of this driver, behind which the one change is somebody else's creation.
func (m *marks) take(dir string) mark {
	m.mu.Lock()
	defer m.mu.Unlock()
	old := m.dirs[dir]
	delete(m.dirs, dir)
	return old
}

// created is the czxid of the node whose creation was sent when before was taken, and answered before dir was listed; 0: not known.
func (before mark) created(dir *zk.Stat) int64 {
	now := markOf(dir)
	if before != (mark{}) && now == before.next() || now.cversion == 1 && dir.NumChildren == 1 {
		return dir.Pzxid
	}
	return 0
}
