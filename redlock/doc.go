// Package redlock is a quorum over an odd number of independent stores, itself a pawl driver.
package redlock
