package servertest

import (
	"encoding/hex"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/sqllock"
	"github.com/pawl-lock/pawl/sqllock/sqltest"
)

const ahead = 240 * time.Hour

// A server whose clock is ten days ahead of its clients', and clients whose sessions are in other time zones: they lock
// as ever, and nothing that they send is a reading of their own clock. What a client sends is all that others know of it,
// so a client whose clock is wrong in any other way sends the same, and changes nothing either.
func TestClock(t *testing.T) {
	t.Parallel()
	t.Run("MariaDB", func(t *testing.T) {
		t.Parallel()
		testClock(t, product{sqltest.StartMariaDBAhead(t, ahead), sqllock.MySQL, "pawl_lock"})
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		testClock(t, product{sqltest.StartPostgresAhead(t, ahead), sqllock.PostgreSQL, "pawl_lock"})
	})
}

func testClock(t *testing.T, s product) {
	var now int64
	read := "SELECT (EXTRACT(EPOCH FROM clock_timestamp()) * 1000000)::bigint"
	zones := []string{"timezone=America/New_York", "timezone=Asia/Kathmandu"}
	if s.dialect == sqllock.MySQL {
		read = "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"
		zones = []string{"time_zone=%27-11:00%27", "time_zone=%27%2B05:45%27"}
	}
	if err := s.DB().QueryRow(read).Scan(&now); err != nil {
		t.Fatal(err)
	}
	if off := time.Until(time.UnixMicro(now)) - ahead; off.Abs() > time.Hour {
		t.Fatalf("the server's clock is not where it should be, by %v", off)
	}
	d, sent := s.tapped(t)
	exchange(t, d, s.open(t))
	exchange(t, s.on(t, s.pool(t, zones[0]), nil), d)
	exchange(t, s.on(t, s.pool(t, zones[1]), nil), s.on(t, s.pool(t, zones[0]), nil))
	held := mustTake(t, d, "held", time.Minute)
	r, err := s.open(t).Inspect(within(t, soon), "held")
	if err != nil || len(r.Holds) != 1 || r.Holds[0].Remaining < 30*time.Second || r.Holds[0].Remaining > time.Minute+time.Second {
		t.Errorf("Inspect shows %+v, %v", r, err)
	}
	if off := time.Until(time.UnixMicro(held.Token)) - ahead; off.Abs() > time.Hour {
		t.Errorf("the token %d is not of the server's clock", held.Token)
	}
	all := sent.take()
	if len(all) < 50 {
		t.Errorf("only %d statements were seen", len(all))
	}
	// The numbers of versions are random, and among the many of them one in a million looks like such a time.
	for _, text := range all {
		text = blobs.ReplaceAllStringFunc(text, func(hexed string) string { // as MySQL is sent its text
			raw, _ := hex.DecodeString(hexed[2 : len(hexed)-1])
			return string(raw)
		})
		for _, digits := range number.FindAllString(text, -1) {
			n, err := strconv.ParseInt(digits, 10, 64)
			if err != nil {
				continue
			}
			for unit, per := range map[string]int64{"s": 1e9, "ms": 1e6, "µs": 1e3, "ns": 1} {
				if d := time.Until(time.Unix(0, 0).Add(time.Duration(n) * time.Duration(per))); n > 1e9 && n < 1<<62/per && d.Abs() < 10*time.Minute {
					t.Errorf("%d is the client's clock, in %s, in the statement %s", n, unit, text)
				}
			}
		}
	}
}

var (
	number = regexp.MustCompile(`[0-9]{10,19}`)
	blobs  = regexp.MustCompile(`X'[0-9a-f]+'`)
)
