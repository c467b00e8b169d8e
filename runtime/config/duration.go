package config

import (
	"errors"
	"fmt"
	"time"
)

// maxDuration keeps every duration within a timer register of the card: 28 bits of milliseconds, three days.
const maxDuration = (1<<28 - 1) * time.Millisecond

// ParseDuration reads a duration such as "5s", "1.5s" or "2h", as the file, flags and the environment write it. A number
// needs a unit; only 0 may go without, and means the default. Negative durations and parts of a millisecond are refused.
func ParseDuration(s string) (time.Duration, error) {
	if s == "" {
		return 0, errors.New("a duration is missing")
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		if isNumber(s) {
			return 0, fmt.Errorf("duration %s has no unit: write %ss or %sms", s, s, s)
		}
		return 0, fmt.Errorf("%q is no duration: write a number and a unit without a space, such as 1.5s, 30s or 2h", s)
	}
	if d < 0 {
		return 0, fmt.Errorf("duration %s is negative", s)
	}
	if d%time.Millisecond != 0 {
		return 0, fmt.Errorf("duration %s is finer than a millisecond", s)
	}
	if d > maxDuration {
		return 0, fmt.Errorf("duration %s is more than %s", s, maxDuration.Truncate(time.Hour))
	}
	return d, nil
}

func isNumber(s string) bool {
	for i, r := range s {
		if (r < '0' || r > '9') && r != '.' && !(i == 0 && r == '-') {
			return false
		}
	}
	return true
}
