//go:build !unix

package bench

import "time"

// now is a clock that all processes of this machine share, in nanoseconds.
func now() int64 { return time.Now().UnixNano() }

// cpu is not known here.
func cpu() int64 { return -1 }
