package child

import "github.com/pawl-lock/pawl/driver"

// Now is a clock that supervisor and guard share. On Linux it is the one on which leases are trusted, which counts the
// time that the machine is suspended.
func Now() int64 { return int64(driver.Now()) }
