package sqllock

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/pawl-lock/pawl/driver"
)

// machineClock reads CLOCK_BOOTTIME, which all processes of one machine share: it never steps, goes on while the machine
// is suspended, and begins anew at every boot, which is why the boot's id goes with it.
func machineClock() (moment, error) {
	b, err := thisBoot()
	if err != nil {
		return moment{}, err
	}
	return moment{now: (int64(driver.Now()) - b.offset) / 1000, wall: time.Now().UnixMicro(), boot: b.id}, nil
}

type boot struct {
	id     string
	offset int64 // of this process's time namespace, in ns: containers may see a clock that is set ahead or back
}

var thisBoot = sync.OnceValues(func() (boot, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return boot{}, fmt.Errorf("sqllock: the id of this boot cannot be read, without which holds would outlive a reboot: mount /proc: %w", err)
	}
	offsets, err := os.ReadFile("/proc/self/timens_offsets")
	if err != nil {
		offsets = nil // a kernel without time namespaces
	}
	offset, err := boottimeOffset(string(offsets))
	return boot{id: strings.TrimSpace(string(id)), offset: offset}, err
})

// boottimeOffset finds the line "boottime <seconds> <nanoseconds>".
func boottimeOffset(offsets string) (int64, error) {
	for line := range strings.Lines(offsets) {
		f := strings.Fields(line)
		if len(f) != 3 || f[0] != "boottime" {
			continue
		}
		s, err1 := strconv.ParseInt(f[1], 10, 64)
		ns, err2 := strconv.ParseInt(f[2], 10, 64)
		if err1 != nil || err2 != nil {
			return 0, fmt.Errorf("sqllock: /proc/self/timens_offsets says %q, which is not understood", strings.TrimSpace(line))
		}
		return s*int64(time.Second) + ns, nil
	}
	return 0, nil
}

// nap sleeps for less than a millisecond. A process with nothing else to do wakes from the runtime's own timers a
// millisecond late, since it waits for them in epoll_wait.
func nap(d time.Duration) {
	ts := syscall.NsecToTimespec(int64(d))
	syscall.Nanosleep(&ts, nil) // may end early
}
