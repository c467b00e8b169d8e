package exception

import "time"

// A bucket lets answers through at a rate.
type bucket struct {
	every time.Duration // between two answers in the long run
	burst int

	tokens int
	filled time.Duration
}

func newBucket(perSecond, burst int) bucket {
	return bucket{every: time.Second / time.Duration(perSecond), burst: burst, tokens: burst}
}

// take says whether one more answer may go at now.
func (b *bucket) take(now time.Duration) bool {
	if n := int((now - b.filled) / b.every); n > 0 {
		b.tokens = min(b.burst, b.tokens+min(n, b.burst))
		b.filled += time.Duration(n) * b.every
	}
	if b.tokens == 0 {
		return false
	}
	b.tokens--
	return true
}
