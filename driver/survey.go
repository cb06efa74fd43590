package driver

import "context"

// Surveyed is optional: what an operator should know about a store and no lock shows. Nothing is decided by it.
type Surveyed interface {
	Survey(ctx context.Context) (Survey, error)
}

// Survey is what a store tells of itself. The zero value knows nothing.
type Survey struct {
	Host     string // the host by which it was addressed, without port; "": not known
	Replicas int    // servers that copy it and may take its place; -1: not known
	Keeps    Keeps
}

// Keeps says what of that which a store confirmed is still there after it crashed.
type Keeps uint8

const (
	KeepsUnknown Keeps = iota
	KeepsNothing       // memory only
	KeepsMost          // snapshots, or a log that is synced now and then
	KeepsAll           // every write is synced before it is confirmed
)
