package cli

import (
	"testing"
	"time"
)

func TestParseDuration(t *testing.T) {
	for in, want := range map[string]time.Duration{
		"0": 0, "5": 5 * time.Second, "2.5": 2500 * time.Millisecond, ".25": 250 * time.Millisecond, "1m30s": 90 * time.Second,
		"500ms": 500 * time.Millisecond, "31536000": longest, "0s": 0,
	} {
		if got, err := parseDuration(in); err != nil || got != want {
			t.Errorf("parseDuration(%q) = %v, %v, want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"", "-1", "-1s", "1ns", "999us", "0.0001", "1e3", "0x10", "inf", "nan", ".", "1.2.3", "1 s", "five", "31536001", "9999999999999999999999", "20000h"} {
		if got, err := parseDuration(in); err == nil {
			t.Errorf("parseDuration(%q) = %v, want an error", in, got)
		}
	}
}

func TestShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 1500 * time.Microsecond: "2ms", 870 * time.Millisecond: "870ms", 30 * time.Second: "30s", 1234 * time.Millisecond: "1.2s",
		time.Minute: "1m", 192 * time.Second: "3m12s", time.Hour: "1h", 25*time.Hour + 30*time.Minute: "25h30m", 10 * time.Minute: "10m",
	} {
		if got := short(d); got != want {
			t.Errorf("short(%v) = %q, want %q", d, got, want)
		}
	}
}

func FuzzParseDuration(f *testing.F) {
	for _, s := range []string{"5", "2.5", "1m30s", "-1", "1e3", "", "."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, err := parseDuration(s)
		if err == nil && (d < 0 || d > longest || d > 0 && d < time.Millisecond) {
			t.Errorf("parseDuration(%q) = %v", s, d)
		}
	})
}
