//go:build unix

package child

import (
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// inherited are the descriptors above 2 that this process got from whoever started it (3<file, a make job server, <(…)).
// They go on to the command, with their numbers; whatever is opened later does not.
var inherited = unguarded()

// unguarded lists the open descriptors above 2 that an exec would pass on.
func unguarded() []int {
	d, err := os.Open("/dev/fd")
	if err != nil {
		return nil
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1)
	var fds []int
	for _, n := range names {
		fd, err := strconv.Atoi(n)
		if err != nil || fd <= 2 {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			fds = append(fds, fd)
		}
	}
	slices.Sort(fds)
	return fds
}

// Keep takes descriptor fd, which this process was started with, for itself: the command does not get it. It fails if
// there is no such descriptor.
func Keep(fd int) error {
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil {
		return err
	}
	if i, ok := slices.BinarySearch(inherited, fd); ok {
		inherited = slices.Delete(inherited, i, i+1)
		unix.CloseOnExec(fd)
	}
	return nil
}

// table is the descriptor table of a process to start: entry i becomes descriptor i, none is closed.
type table []uintptr

const none = ^uintptr(0)

func newTable(stdin uintptr) table {
	t := table{stdin, 1, 2}
	for _, fd := range inherited {
		t.set(fd, uintptr(fd))
	}
	return t
}

func (t *table) set(i int, fd uintptr) {
	for len(*t) <= i {
		*t = append(*t, none)
	}
	(*t)[i] = fd
}

// add puts fd at the first free number and answers it.
func (t *table) add(fd uintptr) int {
	for i := 3; ; i++ {
		if i >= len(*t) || (*t)[i] == none {
			t.set(i, fd)
			return i
		}
	}
}

// closeStrays makes descriptors that a library forgot to mark close on exec.
func closeStrays() {
	for _, fd := range unguarded() {
		if _, ok := slices.BinarySearch(inherited, fd); !ok {
			unix.CloseOnExec(fd)
		}
	}
}
