package schedule

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestRamp(t *testing.T) {
	up := time.Unix(1000, 0)
	const year = 365 * 24 * time.Hour
	for _, tt := range []struct {
		name          string
		weight        uint16
		since, within time.Duration
		want          uint16
	}{
		{"just up", 100, 0, 30 * time.Second, 1},
		{"a third", 90, 10 * time.Second, 30 * time.Second, 30},
		{"rounded down", 100, 10 * time.Second, 30 * time.Second, 33},
		{"not below one", 3, time.Second, 30 * time.Second, 1},
		{"before the end", 100, 30*time.Second - 1, 30 * time.Second, 99},
		{"at the end", 100, 30 * time.Second, 30 * time.Second, 100},
		{"long after", 100, time.Hour, 30 * time.Second, 100},
		{"no slow start", 100, 0, 0, 100},
		{"up in the future", 100, -time.Second, 30 * time.Second, 1},
		{"weight zero", 0, 10 * time.Second, 30 * time.Second, 0},
		{"weight zero at once", 0, 0, 30 * time.Second, 0},
		{"weight one", 1, 0, 30 * time.Second, 1},
		{"more than 64 bits", 65535, year, 2 * year, 32767},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := Ramp(tt.weight, up, up.Add(tt.since), tt.within); got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
		})
	}
	if got := Ramp(100, time.Time{}, up, 30*time.Second); got != 100 {
		t.Errorf("up for ever: %d, want 100", got)
	}
}

func TestRampGrows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		weight := rapid.Uint16Min(1).Draw(t, "weight")
		within := time.Duration(rapid.Int64Min(0).Draw(t, "within"))
		early := time.Duration(rapid.Int64Range(0, max(int64(within), 1)).Draw(t, "early"))
		late := time.Duration(rapid.Int64Min(int64(early)).Draw(t, "late"))
		up := time.Unix(0, 0)
		a, b := Ramp(weight, up, up.Add(early), within), Ramp(weight, up, up.Add(late), within)
		if a < 1 || a > b || b > weight {
			t.Fatalf("%d after %v, %d after %v, of %d", a, early, b, late, weight)
		}
	})
}
