package child

import (
	"os"
	"strconv"
	"strings"
	"syscall"
)

func parseSignal(s string, number func(string) syscall.Signal) (os.Signal, bool) {
	if n, err := strconv.Atoi(s); err == nil {
		return syscall.Signal(n), n > 0 && n < 65
	}
	s = strings.ToUpper(s)
	if !strings.HasPrefix(s, "SIG") {
		s = "SIG" + s
	}
	n := number(s)
	return n, n != 0
}

// Number is the number of a signal.
func Number(s os.Signal) int {
	if n, ok := s.(syscall.Signal); ok {
		return int(n)
	}
	return 0
}
