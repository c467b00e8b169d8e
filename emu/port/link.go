package port

import (
	"encoding/binary"
	"sync"
	"time"

	"splicenic/emu/frame"
)

// Impairment says what a direction of a Link does to frames. The zero value passes everything on at once.
type Impairment struct {
	// Loss, Duplicate, Reorder and Corrupt are probabilities per wire frame.
	Loss, Duplicate, Reorder, Corrupt float64
	// Every frame leaves Delay after it came, and up to Jitter later. Jitter does not reorder.
	Delay, Jitter time.Duration
	// ReorderBy is how much later a reordered frame leaves, while others overtake it; zero: 1 ms more than Delay+Jitter.
	ReorderBy time.Duration
	// MTU is the largest IP packet from a time on, the steps by rising time; larger ones are lost. Nil: any size.
	MTU []MTUStep
	// Drop chooses frames to lose; n counts the wire frames of the direction from zero. Nil: none.
	Drop func(n uint64, frame []byte) bool
}

// MTUStep is the largest IP packet from a time of the link on.
type MTUStep struct {
	At    time.Duration
	Bytes int
}

// LinkConfig describes a Link.
type LinkConfig struct {
	A, B   Port
	AB, BA Impairment
	Seed   uint64
	Queue  int // wire frames a direction holds; zero: 8192
}

// LinkStats counts one direction's wire frames. What came in is Frames, and
//
//	Frames + Duplicated = Sent + Lost + TooBig + Overrun + what waits
type LinkStats struct {
	Frames, Bytes uint64 // received
	Sent          uint64 // passed on

	Lost    uint64 // by Loss and Drop
	TooBig  uint64 // lost for their size
	Overrun uint64 // lost because the queue was full

	// Bytes of the three kinds of lost frames, as wire frames and as TCP payload.
	LostBytes, LostPayload uint64

	Duplicated, Reordered, Corrupted uint64

	Malformed uint64 // frames no wire carries: a wrong offload header, longer than any; not in Frames
}

// A Link is a bad wire between two ports: what one receives the other transmits, later, twice, or not at all. It carries
// wire frames: coalesced segments are cut and partial checksums completed before anything happens to them.
//
// What happens to a frame is a function of the seed, the direction and the frame's number there, so the same frames at
// the same times give the same. A Link keeps a bounded number of frames in buffers that it uses again. Step and Run are
// for one goroutine; Stats is for any.
type Link struct {
	mu    sync.Mutex
	a, b  Port
	ways  [2]way
	batch []frame.Frame
	cut   Cutter
	free  []*frame.Frame // buffers of frames that have left
}

// way is one direction.
type way struct {
	from, to Port
	how      Impairment
	seed     uint64
	room     int
	last     time.Duration // no frame leaves before the one before it, but for a reordered one
	waiting  []waiting     // a heap: the first leaves next
	leaving  []*frame.Frame
	number   uint64 // of the next frame put into waiting
	stats    LinkStats
}

type waiting struct {
	due    time.Duration
	number uint64
	frame  *frame.Frame
}

const (
	linkBatch   = 64
	linkBatches = 16                     // in one step; the rest is for the next
	linkRetry   = 200 * time.Microsecond // after a port took no more
	linkBuffer  = 2048                   // bytes, or more for a longer frame
)

// NewLink joins two ports, which stay the caller's to close.
func NewLink(cfg LinkConfig) *Link {
	if cfg.Queue == 0 {
		cfg.Queue = 8192
	}
	l := &Link{a: cfg.A, b: cfg.B, batch: make([]frame.Frame, linkBatch)}
	for i, w := range [2]way{{from: cfg.A, to: cfg.B, how: cfg.AB}, {from: cfg.B, to: cfg.A, how: cfg.BA}} {
		w.room, w.seed = cfg.Queue, scramble(cfg.Seed+uint64(i))
		w.leaving = make([]*frame.Frame, 0, linkBatch)
		if w.how.ReorderBy == 0 {
			w.how.ReorderBy = w.how.Delay + w.how.Jitter + time.Millisecond
		}
		l.ways[i] = w
	}
	buffer := max(cfg.A.BufferBytes(), cfg.B.BufferBytes())
	for i := range l.batch {
		l.batch[i].Buf = make([]byte, buffer)
	}
	return l
}

// Stats returns the counters of both directions, from A to B first.
func (l *Link) Stats() [2]LinkStats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return [2]LinkStats{l.ways[0].stats, l.ways[1].stats}
}

// Step takes what the ports have received and passes on what is due. It returns when the next frame is due, or a
// negative number when none waits. A port that refuses frames is asked again a little later.
func (l *Link) Step(now time.Duration) (next time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	next = -1
	more := false
	for i := range l.ways {
		more = l.take(&l.ways[i], now) || more
	}
	for i := range l.ways {
		w := &l.ways[i]
		l.give(w, now)
		due := now + linkRetry
		if len(w.leaving) == 0 {
			if len(w.waiting) == 0 {
				continue
			}
			due = w.waiting[0].due
		}
		if next < 0 || due < next {
			next = due
		}
	}
	if more {
		return now
	}
	return next
}

// take receives frames and decides about each. It is true when there may be more.
func (l *Link) take(w *way, now time.Duration) (more bool) {
	for range linkBatches {
		for i := range l.batch {
			l.batch[i].Start = frame.Headroom
		}
		n := w.from.Receive(l.batch)
		for i := range l.batch[:n] {
			l.split(w, &l.batch[i], now)
		}
		if n < len(l.batch) {
			return false
		}
	}
	return true
}

// split brings a received frame onto the wire.
func (l *Link) split(w *way, f *frame.Frame, now time.Duration) {
	if int(f.End) > len(f.Buf) {
		w.stats.Malformed++
		return
	}
	count, v := l.cut.Begin(f)
	if v != Good {
		w.stats.Malformed++
		return
	}
	for range count {
		out := l.buffer(l.cut.room())
		l.cut.Next(out)
		l.pass(w, out, now)
	}
}

// room is how many bytes the longest wire frame of a cut needs.
func (c *Cutter) room() int {
	if c.plain {
		return len(c.frame)
	}
	return min(c.payload+c.size, len(c.frame))
}

// pass decides what happens to one wire frame.
func (l *Link) pass(w *way, f *frame.Frame, now time.Duration) {
	b, how := f.Bytes(), &w.how
	n := w.stats.Frames
	w.stats.Frames++
	w.stats.Bytes += uint64(len(b))
	// Every frame rolls the same dice, needed or not: a change of one probability leaves the rest as it was.
	d := dice(w.seed + n*diceOfFrame*diceStep)
	lost, twice, late, bad, wait, place := d.under(how.Loss), d.under(how.Duplicate), d.under(how.Reorder), d.under(how.Corrupt), d.roll(), d.roll()
	switch {
	case how.Drop != nil && how.Drop(n, b) || lost:
		l.lose(w, f, &w.stats.Lost)
		return
	case w.tooBig(b, now):
		l.lose(w, f, &w.stats.TooBig)
		return
	case len(w.waiting)+len(w.leaving) >= w.room:
		l.lose(w, f, &w.stats.Overrun)
		return
	}
	due := now + how.Delay + time.Duration(wait*float64(how.Jitter))
	if late {
		w.stats.Reordered++
		due += how.ReorderBy
	} else {
		due = max(due, w.last)
		w.last = due
	}
	var second *frame.Frame
	if twice && len(w.waiting)+len(w.leaving)+1 < w.room {
		w.stats.Duplicated++
		second = l.buffer(len(b))
		second.End = second.Start + uint32(copy(second.Buf[second.Start:], b))
	}
	if bad {
		w.stats.Corrupted++
		corrupt(b, place)
	}
	w.push(due, f)
	if second != nil {
		w.push(due, second)
	}
}

func (l *Link) lose(w *way, f *frame.Frame, count *uint64) {
	*count++
	w.stats.LostBytes += uint64(f.Len())
	w.stats.LostPayload += uint64(tcpPayload(f.Bytes()))
	l.free = append(l.free, f)
}

// tooBig says whether an IP packet does not fit the link at this time.
func (w *way) tooBig(b []byte, now time.Duration) bool {
	limit := 0
	for _, s := range w.how.MTU {
		if s.At <= now {
			limit = s.Bytes
		}
	}
	if limit == 0 {
		return false
	}
	_, l3, ok := network(b)
	return ok && max(packetEnd(b), len(b))-l3 > limit
}

// give transmits what is due, in order, as far as the port takes it.
func (l *Link) give(w *way, now time.Duration) {
	for {
		for len(w.leaving) < linkBatch && len(w.waiting) > 0 && w.waiting[0].due <= now {
			w.leaving = append(w.leaving, w.pop())
		}
		if len(w.leaving) == 0 {
			return
		}
		n := w.to.Transmit(w.leaving)
		w.stats.Sent += uint64(n)
		l.free = append(l.free, w.leaving[:n]...)
		w.leaving = w.leaving[:copy(w.leaving, w.leaving[n:])]
		if n == 0 {
			return
		}
	}
}

// buffer returns a frame with room for n bytes.
func (l *Link) buffer(n int) *frame.Frame {
	var f *frame.Frame
	if i := len(l.free); i > 0 {
		f, l.free = l.free[i-1], l.free[:i-1]
	} else {
		f = new(frame.Frame)
	}
	if len(f.Buf) < n {
		f.Buf = make([]byte, max(n, linkBuffer))
	}
	f.Start, f.End, f.Offload = 0, 0, frame.Offload{}
	return f
}

func (a *waiting) before(b *waiting) bool {
	return a.due < b.due || a.due == b.due && a.number < b.number
}

func (w *way) push(due time.Duration, f *frame.Frame) {
	h := append(w.waiting, waiting{due, w.number, f})
	w.number++
	for i := len(h) - 1; i > 0; {
		up := (i - 1) / 2
		if !h[i].before(&h[up]) {
			break
		}
		h[i], h[up] = h[up], h[i]
		i = up
	}
	w.waiting = h
}

func (w *way) pop() *frame.Frame {
	h := w.waiting
	f, last := h[0].frame, len(h)-1
	h[0], h[last] = h[last], waiting{}
	h = h[:last]
	for i := 0; ; {
		least := 2*i + 1
		if least >= last {
			break
		}
		if r := least + 1; r < last && h[r].before(&h[least]) {
			least = r
		}
		if !h[least].before(&h[i]) {
			break
		}
		h[i], h[least] = h[least], h[i]
		i = least
	}
	w.waiting = h
	return f
}

// corrupt flips one bit, chosen by a number from 0 to 1, where a checksum of the packet covers it: a frame whose FCS
// shows the damage would only be lost.
func corrupt(b []byte, place float64) {
	from, end := min(ethernetBytes, len(b)), len(b)
	if etherType, l3, ok := network(b); ok {
		from = l3
		if e := packetEnd(b); e > from && e < end {
			end = e
		}
		if etherType == typeIP6 && end >= l3+ip6Bytes {
			// No sum covers an IPv6 header but for its addresses, and none the headers behind it.
			from = max(l3+8, tcpOver6(b[:end], l3))
		}
	}
	if bit := int(place * float64(8*(end-from))); bit < 8*(end-from) {
		b[from+bit/8] ^= 1 << (bit % 8)
	}
}

// tcpPayload is how many payload bytes a frame's TCP segment has.
func tcpPayload(b []byte) int {
	etherType, l3, ok := network(b)
	end := packetEnd(b)
	if !ok || end > len(b) || end < l3+ip4Bytes {
		return 0
	}
	l4 := 0
	switch etherType {
	case typeIP4:
		l4 = tcpOver4(b[:end], l3)
	case typeIP6:
		l4 = tcpOver6(b[:end], l3)
	}
	if l4 == 0 || l4+tcpBytes > end {
		return 0
	}
	return max(0, end-l4-int(binary.BigEndian.Uint16(b[l4+12:])>>12)*4)
}

// dice gives the random numbers of one wire frame, by splitmix64.
type dice uint64

const (
	diceStep    = 0x9e3779b97f4a7c15
	diceOfFrame = 8 // at most so many are rolled
)

// roll returns a number from 0 to 1, without 1.
func (d *dice) roll() float64 {
	*d += diceStep
	return float64(scramble(uint64(*d))>>11) / (1 << 53)
}

func (d *dice) under(probability float64) bool { return d.roll() < probability }

// scramble is the finaliser of splitmix64.
func scramble(x uint64) uint64 {
	x += diceStep
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
