//go:build race

package servertest

import "time"

const minTTL = 2 * time.Second // everything takes several times as long
