package schedule

import (
	"encoding/binary"
	"net/netip"

	"splicenic/regs"
)

// A Key is what of a connection may be hashed.
type Key struct {
	Source      netip.Addr
	SourcePort  uint16
	Destination netip.Addr
}

// Counters are what the card knows of a server when it chooses.
type Counters struct {
	Active, Inactive uint32 // connections
	Closed           bool   // closed, or behind an unresolved next hop
	Overloaded       bool
}

func (c Counters) usable() bool { return !c.Closed && !c.Overloaded }

// Pick chooses a server as the card does. cursor is group_state.cursor, which a walk moves on; counters tells what the card
// knows of a server, nil: nothing is against any; random is the number that twos and p2c draw their slots by.
func (p *Plan) Pick(k Key, cursor *uint32, counters func(server uint32) Counters, random uint64) (server uint32, ok bool) {
	if len(p.Slots) == 0 {
		return 0, false
	}
	if counters == nil {
		counters = func(uint32) Counters { return Counters{} }
	}
	switch p.Means {
	case walk:
		return p.walk(cursor, counters)
	case hashed:
		looks := 1
		if p.Fallback {
			looks = maxCompare
		}
		return p.behind(place(hash(k, p.HashKey, p.Seed), len(p.Slots)), looks, counters)
	}
	if p.Compare == regs.GroupControlCompareTwos || p.Compare == regs.GroupControlCompareP2c {
		return p.pickTwo(counters, random)
	}
	return p.compare(p.Slots[:min(maxCompare, len(p.Slots))], counters)
}

// walk takes the slot under the cursor, or the next one that will do.
func (p *Plan) walk(cursor *uint32, counters func(uint32) Counters) (server uint32, ok bool) {
	for range min(maxCompare, len(p.Slots)) {
		if *cursor >= uint32(len(p.Slots)) {
			*cursor = 0
		}
		w := p.Slots[*cursor]
		*cursor++
		if open(w, counters) {
			return regs.SlotSlotServer(w), true
		}
	}
	return 0, false
}

// behind takes the slot at, or the next one that will do.
func (p *Plan) behind(at, looks int, counters func(uint32) Counters) (server uint32, ok bool) {
	for n := range min(looks, len(p.Slots)) {
		if w := p.Slots[(at+n)%len(p.Slots)]; open(w, counters) {
			return regs.SlotSlotServer(w), true
		}
	}
	return 0, false
}

// pickTwo draws two slots and compares them. Where neither will do, those behind the first are tried.
func (p *Plan) pickTwo(counters func(uint32) Counters, random uint64) (server uint32, ok bool) {
	first, second := place(random&(1<<32-1), len(p.Slots)), place(random>>32, len(p.Slots))
	server, ok = p.compare(Slots{p.Slots[first], p.Slots[second]}, counters)
	if ok {
		return server, true
	}
	return p.behind(first+1, maxCompare-2, counters)
}

// compare takes the best of the slots, the first of equal ones.
func (p *Plan) compare(slots Slots, counters func(uint32) Counters) (server uint32, ok bool) {
	var best candidate
	for _, w := range slots {
		if !open(w, counters) {
			continue
		}
		c := candidate{counters(regs.SlotSlotServer(w)), uint64(max(regs.SlotSlotWeight(w), 1))}
		if !ok || c.better(best, p.Compare) {
			best, server, ok = c, regs.SlotSlotServer(w), true
		}
	}
	return server, ok
}

func open(slot uint32, counters func(uint32) Counters) bool {
	return regs.SlotSlotValid(slot) == 1 && counters(regs.SlotSlotServer(slot)).usable()
}

// A candidate is a server that is compared.
type candidate struct {
	Counters
	weight uint64
}

// better says whether c is chosen before d, which stands before it.
func (c candidate) better(d candidate, by uint32) bool {
	switch by {
	case regs.GroupControlCompareLc:
		return overhead(c.Active, c.Inactive) < overhead(d.Active, d.Inactive)
	case regs.GroupControlCompareWlc, regs.GroupControlCompareTwos:
		return overhead(c.Active, c.Inactive)*d.weight < overhead(d.Active, d.Inactive)*c.weight
	case regs.GroupControlCompareNq:
		if c.Active == 0 || d.Active == 0 {
			return d.Active != 0
		}
		return c.delay(d)
	case regs.GroupControlCompareSed:
		return c.delay(d)
	case regs.GroupControlCompareOvf:
		if c.full() != d.full() {
			return d.full()
		}
		return c.weight > d.weight
	case regs.GroupControlCompareFo:
		return c.weight > d.weight
	case regs.GroupControlCompareP2c:
		return c.Active < d.Active
	}
	return false
}

func (c candidate) delay(d candidate) bool {
	return (uint64(c.Active)+1)*d.weight < (uint64(d.Active)+1)*c.weight
}

func (c candidate) full() bool { return uint64(c.Active) >= c.weight }

// hash is the card's hash of what a group hashes: SipHash-2-4 with the key seed, 0 of 32 bytes, little-endian: the
// address as a number of 128 bits (an IPv4 address is the number of its 32), the port or zero, and zero.
func hash(k Key, by uint32, seed uint64) uint64 {
	addr, port := k.Source, uint16(0)
	switch by {
	case keyDestination:
		addr = k.Destination
	case keySourcePort:
		port = k.SourcePort
	}
	var m [32]byte
	number := addr.Unmap().AsSlice() // big-endian
	for i, b := range number {
		m[len(number)-1-i] = b
	}
	binary.LittleEndian.PutUint64(m[16:], uint64(port))
	return sipHash(seed, 0, m[:])
}

// place is the slot that a number falls to.
func place(number uint64, slots int) int { return int(number % uint64(slots)) }
