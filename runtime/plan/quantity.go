package plan

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// maxQuantity bounds what is reckoned with, so that no product of two quantities overflows.
const maxQuantity = 1e15

// Quantity reads a number with a prefix and a unit: "0.8MB/s", "1Gbit/s", "288Ki", "1.488Mpps". units say what a number in
// each is worth; "" stands for a number alone. Prefixes are k, M and G, with i behind them powers of 1024. Zero, negative
// numbers and more than 1e15 are refused.
func Quantity(s string, units map[string]float64) (float64, error) {
	end := len(s)
	for end > 0 && !(s[end-1] >= '0' && s[end-1] <= '9') && s[end-1] != '.' {
		end--
	}
	n, err := strconv.ParseFloat(s[:end], 64)
	if err != nil || strings.ContainsAny(s[:end], "_xXnN") {
		return 0, fmt.Errorf("%q does not begin with a number", clip(s))
	}
	rest := s[end:]
	for _, p := range []struct {
		text   string
		factor float64
	}{{"", 1}, {"Ki", 1 << 10}, {"Mi", 1 << 20}, {"Gi", 1 << 30}, {"k", 1e3}, {"K", 1e3}, {"M", 1e6}, {"G", 1e9}} {
		unit, ok := strings.CutPrefix(rest, p.text)
		worth, known := units[unit]
		if !ok || !known {
			continue
		}
		if n *= p.factor * worth; !(n > 0 && n <= maxQuantity) || math.IsNaN(n) {
			return 0, fmt.Errorf("%q is not between 0 and %g", clip(s), maxQuantity)
		}
		return n, nil
	}
	return 0, fmt.Errorf("%q: unit %q is not known", clip(s), clip(rest))
}

// The units of Quantity.
var (
	Number  = map[string]float64{"": 1}
	Bytes   = map[string]float64{"": 1, "B": 1}
	PerTime = map[string]float64{"": 1, "/s": 1, "pps": 1}
	Rate    = map[string]float64{"B/s": 1, "bit/s": 1.0 / 8}
	Bits    = map[string]float64{"bit/s": 1, "B/s": 8}
	Nanos   = map[string]float64{"ns": 1, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9}
)

func clip(s string) string {
	if len(s) > 40 {
		return s[:37] + "..."
	}
	return s
}
