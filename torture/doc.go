// Package torture holds the tests of the client (package pawl) that need more than the standard library or a model to
// compare with: a state machine in fake time, driven by rapid over memlock, and the programs that need a SQL database.
//
// The tests that need neither, one file a subject, run in fake time too; TestContention runs in real time and hits the
// windows that fake time passes over.
//
// # The state machine
//
// TestMachine lets several clients of one store lock, re-enter, unlock, cancel, detach and close in a random order and at
// random instants, while answers get lost or come late, stores break, holds expire and are stolen. A ledger that sees
// both the callers' side and every call to the store checks after each step what package pawl promises: exclusion, order
// of tokens, no release under a live lease, nothing left behind, no wake-up lost.
//
// A plain go test runs it for a few seconds. For longer runs use rapid's own flags or environment:
//
//	go test -race -run TestMachine -rapid.checks=100000 -rapid.steps=80 -timeout 0
//	RAPID_CHECKS=5000 go test -race ./...
//
// A failure prints the steps and every call that led to it. The client draws jitter of its own and its goroutines really
// run at once, so a seed repeats the steps but not always their interleaving: what is found becomes a small test of its
// own, in regress_test.go.
//
// The bigger part of a plain run's time goes to 100 checks each of four machines, with one to five processes.
//
// # What cannot be simulated here
//
// A suspended machine: in a synctest bubble the clock that goes on during suspend and the one that stands still are the
// same. A stopped process is tested as a store that does not answer.
package torture
