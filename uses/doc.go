// Package uses is what people build on a lock, as small programs: a bank, a job each second, a leader, an order that is made
// once, and a resource that refuses who comes too late. Its tests run each of them over every backend, with real servers and
// several processes, of which some are killed or stopped in the middle.
//
//	go test ./uses                 # each program for a few seconds
//	go test ./uses -long -run Cron # the job for a minute, with a kill every ten seconds
package uses
