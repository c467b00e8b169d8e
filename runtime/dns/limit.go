package dns

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
	"sync/atomic"
	"time"
)

// What a network of clients gets by UDP.
const (
	rate  = 200 // answers a second
	burst = 400 // at once
)

// buckets is how many networks are told apart, a power of two. Those whose keyed hash is the same share one bucket: 32 KiB in
// all, however many addresses are forged.
const buckets = 4096

// A limiter bounds what each network is answered.
type limiter struct {
	key    [2]uint64
	due    [buckets]atomic.Int64 // when the bucket is full again, in nanoseconds of the caller's clock
	slips  atomic.Uint64
	counts *counters
}

// verdict is what becomes of a question.
type verdict uint8

const (
	pass verdict = iota
	slip         // a truncated answer without records
	drop
)

// allow decides on one question of an address.
func (l *limiter) allow(from netip.Addr, now time.Duration) verdict {
	const each = int64(time.Second / rate)
	due := &l.due[l.bucket(from)]
	for {
		old := due.Load()
		begin := max(old, int64(now))
		if begin-int64(now) >= burst*each {
			break
		}
		if due.CompareAndSwap(old, begin+each) {
			return pass
		}
	}
	if l.slips.Add(1)%2 == 0 {
		l.counts.slipped.Add(1)
		return slip
	}
	l.counts.limited.Add(1)
	return drop
}

// bucket is where an address's network is counted.
func (l *limiter) bucket(from netip.Addr) uint64 {
	from = from.Unmap()
	a := from.As16()
	hi, lo := binary.BigEndian.Uint64(a[:8]), binary.BigEndian.Uint64(a[8:])
	if from.Is4() {
		lo &^= 0xff
	} else {
		hi, lo = hi&^0xff, 0
	}
	const odd0, odd1 = 0x9e3779b97f4a7c15, 0xd6e8feb86659fd93 // so that no key is all zeros
	x, y := bits.Mul64(hi^l.key[0]^odd0, lo^l.key[1]^odd1)
	x, y = bits.Mul64(x^l.key[1]^odd0, y^l.key[0]^odd1)
	return (x ^ y) % buckets
}
