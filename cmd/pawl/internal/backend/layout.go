package backend

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/pawl-lock/pawl/driver"
	"github.com/pawl-lock/pawl/sqllock/plaintable"
	"github.com/pawl-lock/pawl/sqllock/shedlock"
)

// layoutParams are the parameters of a database's URL that say how locks are laid out in it, by layout. They are pawl's own,
// and never reach the database.
var layoutParams = map[string][]string{
	"shedlock": {"layout", "table", "clock", "tokens"},
	"plain":    {"layout", "table", "key", "value", "expires", "utc", "tokens"},
}

// openLayout opens a database whose URL has the parameter layout; without it, it answers nil.
//
//	?layout=shedlock&table=shedlock&clock=database&tokens=shedlock_tokens
//	?layout=plain&table=distributed_lock&key=lock_key&value=lock_value&expires=expire_time&utc=false&tokens=lock_tokens
//
// clock is "database", as ShedLock's usingDbTime() has it, or the zone in which services write their own clock: UTC,
// Europe/Berlin.
func openLayout(ctx context.Context, raw, prefix string) (driver.Driver, error) {
	location, query, _ := strings.Cut(raw, "?")
	q, _ := url.ParseQuery(query)
	if !q.Has("layout") {
		return nil, nil
	}
	layout := q.Get("layout")
	ours, ok := layoutParams[layout]
	if !ok {
		return nil, &URLError{fmt.Sprintf("layout=%s is not known: write layout=shedlock or layout=plain, or leave it out for pawl's own tables", layout)}
	}
	var rest []string
	for part := range strings.SplitSeq(query, "&") {
		name, _, _ := strings.Cut(part, "=")
		if part != "" && !slices.Contains(ours, name) {
			rest = append(rest, part)
		}
	}
	if len(rest) > 0 {
		if strings.HasPrefix(strings.ToLower(raw), "sqlite:") {
			return nil, &URLError{"of a database file in this layout these parameters are known: " + strings.Join(ours, ", ")}
		}
		location += "?" + strings.Join(rest, "&")
	}
	if layout == "shedlock" {
		o := &shedlock.Options{Table: q.Get("table"), Tokens: q.Get("tokens"), Prefix: prefix}
		if clock := q.Get("clock"); clock != "" && clock != "database" {
			zone, err := time.LoadLocation(clock)
			if err != nil {
				return nil, &URLError{"clock is \"database\", or the zone in which the services write their own clock, such as UTC or Europe/Berlin"}
			}
			o.ClientClock = zone
		}
		return opened(shedlock.Open(ctx, location, o))
	}
	utc := q.Get("utc")
	if utc != "" && utc != "true" && utc != "false" {
		return nil, &URLError{"utc is true, if the others write times in UTC, or false"}
	}
	return opened(plaintable.Open(ctx, location, &plaintable.Options{
		Table: q.Get("table"), Columns: plaintable.Columns{LockKey: q.Get("key"), LockValue: q.Get("value"), ExpireTime: q.Get("expires")},
		UTC: utc == "true", Tokens: q.Get("tokens"), Prefix: prefix,
	}))
}

// opened makes no driver of a nil pointer.
func opened[D driver.Driver](d D, err error) (driver.Driver, error) {
	if err != nil {
		return nil, err
	}
	return d, nil
}
