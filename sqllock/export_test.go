package sqllock

import "time"

// Elsewhere makes d believe that it runs in another boot, or that its clocks are ahead.
func (d *Driver) Elsewhere(boot string, boottime, wall time.Duration) {
	real := d.clock
	d.clock = func() (moment, error) {
		m, err := real()
		m.now += boottime.Microseconds()
		m.wall += wall.Microseconds()
		if boot != "" {
			m.boot = boot
		}
		return m, err
	}
}

// PollFile watches a file as it is done where the system cannot report changes.
func PollFile(file string) (news <-chan struct{}, stop func()) {
	w := pollFiles(file, file+"-wal")
	return w.news, w.stop
}
