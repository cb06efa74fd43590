//go:build !race

package servertest

import "time"

const minTTL = time.Second
