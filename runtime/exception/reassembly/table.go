package reassembly

import (
	"bytes"
	"cmp"
	"net/netip"
	"slices"
	"time"
)

// Bounds of a Table.
const (
	MaxPackets   = 512     // packets being put together, or remembered to be dropped
	MaxBytes     = 1 << 20 // what is kept of them
	MaxFragments = 64      // of one packet
	MaxPerSource = 32      // packets of one source: an IPv4 address, or an IPv6 network of 64 bits
	Timeout      = 30 * time.Second
)

// A Verdict says what became of a fragment.
type Verdict uint8

// The verdicts.
const (
	Kept      Verdict = iota
	Complete          // the packet is whole
	Duplicate         // it was there already
	Dropped           // its packet is dropped already
	Malformed         // it cannot be one
	Tiny              // a first fragment without the whole transport header; its packet is dropped
	Overlap           // it overlaps another; its packet is dropped
	TooMany           // more fragments than a packet may have; it is dropped
	Full              // its source has as many packets here as it may
	Checksum          // the whole packet has a wrong TCP or UDP checksum, or a UDP length that is not its own
)

// A Place is where a fragment came in: packets of two places never mix.
type Place struct {
	Port int
	VLAN uint16
}

type key struct {
	place    Place
	src, dst netip.Addr
	protocol uint8
	id       uint32
}

// packet is what is there of one.
type packet struct {
	key     key
	source  netip.Addr
	until   time.Duration
	dead    bool // nothing of it is wanted any more
	header  []byte
	link    []byte
	pieces  []piece
	total   int  // length of the data; −1: not known
	ecnSeen byte // bit by code point
	bytes   int
}

// piece is the data of one fragment.
type piece struct {
	offset int
	data   []byte
}

// A Table holds packets that are being put together. Make one with New.
type Table struct {
	packets map[key]*packet
	order   []*packet // by age, the oldest first
	sources map[netip.Addr]int
	bytes   int

	// Evicted counts packets that gave way to newer ones, Expired those that were not complete in time.
	Evicted, Expired uint64
}

// New returns an empty table.
func New() *Table {
	return &Table{packets: map[key]*packet{}, sources: map[netip.Addr]int{}}
}

// Len returns how many packets the table holds, Bytes how much data of them.
func (t *Table) Len() int   { return len(t.order) }
func (t *Table) Bytes() int { return t.bytes }

// Add takes in a fragment that came in at a place behind a link header, which the first fragment's packet keeps. With
// Complete it returns the whole packet.
func (t *Table) Add(at Place, link []byte, f *Fragment, now time.Duration) (w Whole, v Verdict) {
	t.Expire(now)
	if f.wrong() {
		return w, Malformed
	}
	if f.whole() {
		if f.tiny() {
			return w, Tiny
		}
		return finish(link, f.header, f.data, f.Protocol, f.ID, 1<<f.ecn)
	}
	k := key{at, f.Src, f.Dst, f.Protocol, f.ID}
	p := t.packets[k]
	if p == nil {
		if p = t.begin(k, now); p == nil {
			return w, Full
		}
	}
	if p.dead {
		return w, Dropped
	}
	if v = p.check(f); v != Kept {
		if v != Duplicate {
			t.kill(p)
		}
		return w, v
	}
	t.room(len(f.data), p)
	p.keep(link, f)
	t.bytes += len(f.data)
	if p.bytes != p.total { // pieces do not overlap: all are there when their lengths add up
		return w, Kept
	}
	data := make([]byte, 0, p.total)
	for _, x := range p.pieces {
		data = append(data, x.data...)
	}
	w, v = finish(p.link, p.header, data, k.protocol, k.id, p.ecnSeen)
	t.remove(p)
	return w, v
}

// begin makes a packet, unless its source has as many as it may. The oldest gives way where the table is full.
func (t *Table) begin(k key, now time.Duration) *packet {
	source := k.src
	if source.Is6() {
		source = netip.PrefixFrom(source, 64).Masked().Addr()
	}
	if t.sources[source] >= MaxPerSource {
		return nil
	}
	if len(t.order) >= MaxPackets {
		t.Evicted++
		t.remove(t.order[0])
	}
	p := &packet{key: k, source: source, until: now + Timeout, total: -1}
	t.packets[k] = p
	t.order = append(t.order, p)
	t.sources[source]++
	return p
}

// room has the oldest packets give way to n bytes of another.
func (t *Table) room(n int, of *packet) {
	for i := 0; t.bytes+n > MaxBytes && i < len(t.order); {
		if t.order[i] == of || t.order[i].bytes == 0 {
			i++
			continue
		}
		t.Evicted++
		t.remove(t.order[i])
	}
}

// check compares a fragment with what is there.
func (p *packet) check(f *Fragment) Verdict {
	if f.tiny() {
		return Tiny
	}
	i, _ := slices.BinarySearchFunc(p.pieces, f.offset, func(x piece, offset int) int { return cmp.Compare(x.offset, offset) })
	end := f.offset + len(f.data)
	if i < len(p.pieces) {
		x := p.pieces[i]
		if x.offset == f.offset && bytes.Equal(x.data, f.data) && f.more == (p.total != end) {
			return Duplicate
		}
		if x.offset < end {
			return Overlap
		}
	}
	if i > 0 && p.pieces[i-1].offset+len(p.pieces[i-1].data) > f.offset {
		return Overlap
	}
	switch last := len(p.pieces) - 1; {
	case p.total >= 0 && (!f.more || end > p.total): // a second end, or bytes behind it
		return Overlap
	case !f.more && last >= 0 && p.pieces[last].offset > f.offset:
		return Overlap
	case len(p.pieces) == MaxFragments:
		return TooMany
	}
	return Kept
}

// keep adds a fragment that check has found good.
func (p *packet) keep(link []byte, f *Fragment) {
	i, _ := slices.BinarySearchFunc(p.pieces, f.offset, func(x piece, offset int) int { return cmp.Compare(x.offset, offset) })
	p.pieces = slices.Insert(p.pieces, i, piece{f.offset, bytes.Clone(f.data)})
	p.bytes += len(f.data)
	p.ecnSeen |= 1 << f.ecn
	if f.offset == 0 {
		p.header, p.link = bytes.Clone(f.header), bytes.Clone(link)
	}
	if !f.more {
		p.total = f.offset + len(f.data)
	}
}

// kill drops what is there of a packet and remembers to drop the rest.
func (t *Table) kill(p *packet) {
	t.bytes -= p.bytes
	*p = packet{key: p.key, source: p.source, until: p.until, dead: true, total: -1}
}

func (t *Table) remove(p *packet) {
	t.bytes -= p.bytes
	delete(t.packets, p.key)
	t.order = slices.Delete(t.order, slices.Index(t.order, p), slices.Index(t.order, p)+1)
	if t.sources[p.source]--; t.sources[p.source] == 0 {
		delete(t.sources, p.source)
	}
}

// Expire drops the packets whose time is over.
func (t *Table) Expire(now time.Duration) {
	for len(t.order) > 0 && now >= t.order[0].until {
		if !t.order[0].dead {
			t.Expired++
		}
		t.remove(t.order[0])
	}
}

// Next is when Expire has something to do, or later, whichever comes first.
func (t *Table) Next(later time.Duration) time.Duration {
	if len(t.order) > 0 {
		return min(later, t.order[0].until)
	}
	return later
}
