package schedule

import (
	"math/bits"
	"time"
)

// Ramp is the weight at now of a server that came up at up and starts slowly: it grows linearly from one to weight over
// duration. Zero duration: all at once. A weight of zero stays zero, any other is at least one.
func Ramp(weight uint16, up, now time.Time, duration time.Duration) uint16 {
	elapsed := now.Sub(up)
	if weight == 0 || elapsed >= duration {
		return weight
	}
	if elapsed <= 0 {
		return 1
	}
	// weight × elapsed takes more than 64 bits from 39 hours on. The quotient is less than weight.
	hi, lo := bits.Mul64(uint64(weight), uint64(elapsed))
	grown, _ := bits.Div64(hi, lo, uint64(duration))
	return max(uint16(grown), 1)
}
