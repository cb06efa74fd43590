package sqllock

import "testing"

func TestBoottimeOffset(t *testing.T) {
	for text, want := range map[string]int64{
		"":                                  0,
		"monotonic 0 0\nboottime 0 0\n":     0,
		"monotonic  86400 0\nboottime 7 5":  7_000_000_005,
		"monotonic 0 0\nboottime -7 50000 ": -6_999_950_000,
	} {
		if got, err := boottimeOffset(text); got != want || err != nil {
			t.Errorf("%q: %d, %v; want %d", text, got, err, want)
		}
	}
	if _, err := boottimeOffset("boottime x 0"); err == nil {
		t.Error("nonsense was understood")
	}
}
