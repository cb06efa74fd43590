package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// duration is a flag: a bare number is seconds, as in flock(1) and timeout(1); else Go's notation.
type duration time.Duration

const longest = 365 * 24 * time.Hour

func (d *duration) Set(s string) error {
	v, err := parseDuration(s)
	if err == nil {
		*d = duration(v)
	}
	return err
}

func parseDuration(s string) (time.Duration, error) {
	v, err := time.ParseDuration(s)
	if err != nil {
		// Only digits and a point: no exponents, no hexadecimals, no infinity.
		if strings.Trim(s, "0123456789.") != "" || s == "" {
			return 0, fmt.Errorf("a duration is seconds (5, 2.5) or has units (500ms, 1m30s)")
		}
		f, err := strconv.ParseFloat(s, 64)
		if err != nil {
			return 0, fmt.Errorf("a duration is seconds (5, 2.5) or has units (500ms, 1m30s)")
		}
		if f > longest.Seconds() {
			return 0, fmt.Errorf("longer than a year")
		}
		v = time.Duration(f * float64(time.Second))
	}
	switch {
	case v < 0:
		return 0, fmt.Errorf("a duration is not negative")
	case v > longest:
		return 0, fmt.Errorf("longer than a year")
	case v > 0 && v < time.Millisecond:
		return 0, fmt.Errorf("%v is below 1ms: is a unit missing?", v)
	}
	return v, nil
}

func (d *duration) String() string {
	if *d == 0 {
		return "0" // no default worth showing
	}
	return short(time.Duration(*d))
}

func (d *duration) Type() string { return "DUR" }

// short writes a duration for people: 1h, not 1h0m0s; 1.5s; 870ms; never more than three digits of detail.
func short(d time.Duration) string {
	switch {
	case d >= time.Minute:
		d = d.Round(time.Second)
	case d >= time.Second:
		d = d.Round(100 * time.Millisecond)
	case d >= time.Millisecond:
		d = d.Round(time.Millisecond)
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
