//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package join

import "os"

// Here no kernel lock ends with its process and can be shared with a guard, so nothing is offered.
const supported = false

func lock(*os.File, bool) bool { return false }

func unlock(*os.File) {}
