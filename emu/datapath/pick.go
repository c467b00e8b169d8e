package datapath

import "splicenic/regs"

// How a group's server is chosen: the slot under the cursor, the slot that a hash falls to, or the best of the slots by
// the counters of their servers. No choice looks at more than maxCompare slots.

// maxCompare is geometry.max_compare.
const maxCompare = 64

// chooser is what of a client a choice may go by.
type chooser struct {
	kind         uint32
	source, dest address
	port, dport  uint32
	vip, vlan    uint32
	protocol     uint32
	passed       bool // the server is for a connection that is passed on to it
}

// chooser is that of a page's client.
func (c *Core) chooser(w *page) chooser {
	who := chooser{
		kind: regs.PageControlKind(w[regs.PageControl]), protocol: protocolTCP, source: address(w[regs.PageClientAddress:]),
		vip: regs.PageIndexVip(w[regs.PageIndex]), vlan: regs.PageClientLinkVlan(w[regs.PageClientLink]),
		port: regs.PagePortsClient(w[regs.PagePorts]), dport: regs.PagePortsVip(w[regs.PagePorts]),
	}
	if datagrams(w) {
		who.protocol = protocolUDP
	}
	who.dest = c.vip(who.vip)
	return who
}

// chooserOf is the sender of a segment or datagram.
func (c *Core) chooserOf(p *packet) chooser {
	return chooser{kind: uint32(p.kind), protocol: p.protocol(), source: p.src, dest: p.dst, vip: uint32(p.vip), vlan: p.vlan, port: p.sport, dport: p.dport, passed: true}
}

// slots is a group with its state and the slots in force; none where it is not in force itself.
func (c *Core) slots(group, bank uint32) (g, state, slots []uint32) {
	if group >= c.m.Geometry.Groups {
		return nil, nil, nil
	}
	g = c.m.Group[bank][group*regs.GroupWords:][:regs.GroupWords]
	if regs.GroupControlValid(g[regs.GroupControl]) == 0 {
		return nil, nil, nil
	}
	state = c.m.GroupState[group*regs.GroupStateWords:][:regs.GroupStateWords]
	selector := state[regs.GroupStateSelector]
	count, area := regs.GroupStateSelectorCountA(selector), regs.GroupStateSelectorArea(selector)
	if area != 0 {
		count = regs.GroupStateSelectorCountB(selector)
	}
	room := c.m.Geometry.Slots
	if count > room {
		count = 0
	}
	return g, state, c.m.Slot[(2*group+area)*room:][:count]
}

// pick chooses one of a group's servers. A server that is closed, cannot be reached or is overloaded is passed over.
func (c *Core) pick(group, bank uint32, who *chooser) (server uint32, ok bool) {
	g, state, slots := c.slots(group, bank)
	if len(slots) == 0 {
		return 0, false
	}
	switch regs.GroupControlMeans(g[regs.GroupControl]) {
	case regs.GroupControlMeansHash:
		looks := uint32(1)
		if regs.GroupControlFallback(g[regs.GroupControl]) != 0 {
			looks = maxCompare
		}
		server, ok = c.behind(slots, uint32(hashOf(g, who)%uint64(len(slots))), looks, who)
	case regs.GroupControlMeansCompare:
		server, ok = c.compare(g, slots, state[regs.GroupStatePicked], who)
	default:
		server, ok = c.walk(slots, &state[regs.GroupStateCursor], who)
	}
	if ok {
		state[regs.GroupStatePicked]++
	}
	return server, ok
}

// walk takes the slot under the cursor, or the next one that will do.
func (c *Core) walk(slots []uint32, cursor *uint32, who *chooser) (server uint32, ok bool) {
	for range min(maxCompare, len(slots)) {
		if *cursor >= uint32(len(slots)) {
			*cursor = 0
		}
		w := slots[*cursor]
		*cursor++
		if c.openSlot(w, who) {
			return regs.SlotSlotServer(w), true
		}
	}
	return 0, false
}

// behind takes the slot at, or the next one that will do.
func (c *Core) behind(slots []uint32, at, looks uint32, who *chooser) (server uint32, ok bool) {
	for range min(looks, uint32(len(slots))) {
		if at >= uint32(len(slots)) {
			at = 0
		}
		if w := slots[at]; c.openSlot(w, who) {
			return regs.SlotSlotServer(w), true
		}
		at++
	}
	return 0, false
}

// What the seed of a group is used for, the second word of the key.
const (
	hashUse = 0
	drawUse = 1
)

func seedOf(g []uint32) uint64 {
	return uint64(g[regs.GroupSeedLo]) | uint64(g[regs.GroupSeedHi])<<32
}

// hashOf is the hash of what a group goes by.
func hashOf(g []uint32, who *chooser) uint64 {
	a, port := &who.source, uint32(0)
	switch regs.GroupControlHashKey(g[regs.GroupControl]) {
	case regs.GroupControlHashKeyDestination:
		a = &who.dest
	case regs.GroupControlHashKeySourcePort:
		port = who.port
	}
	return sipHash(seedOf(g), hashUse, &[4]uint64{uint64(a[0]) | uint64(a[1])<<32, uint64(a[2]) | uint64(a[3])<<32, uint64(port)})
}

// compare takes the best of the slots, the first of equal ones; with p2c and twos the better of two that are drawn, or,
// where neither will do, the next one behind the first that does.
func (c *Core) compare(g, slots []uint32, picked uint32, who *chooser) (server uint32, ok bool) {
	by := regs.GroupControlCompare(g[regs.GroupControl])
	var best candidate
	if by != regs.GroupControlCompareTwos && by != regs.GroupControlCompareP2c {
		for _, w := range slots[:min(maxCompare, len(slots))] {
			c.weigh(w, by, &best, who)
		}
		return best.server, best.ok
	}
	n := uint64(len(slots))
	random := sipHash(seedOf(g), drawUse, &[4]uint64{uint64(picked), uint64(c.tick), uint64(who.source[0]), uint64(who.port)})
	first := uint32(random & (1<<32 - 1) % n)
	c.weigh(slots[first], by, &best, who)
	c.weigh(slots[random>>32%n], by, &best, who)
	if best.ok {
		return best.server, true
	}
	return c.behind(slots, first+1, maxCompare-2, who)
}

// candidate is a server that is compared.
type candidate struct {
	server           uint32
	active, inactive uint64
	weight           uint64
	ok               bool
}

// weigh makes a slot's server the best so far, if it is better.
func (c *Core) weigh(slot, by uint32, best *candidate, who *chooser) {
	if !c.openSlot(slot, who) {
		return
	}
	i := regs.SlotSlotServer(slot)
	s := entry(c.m.ServerState, i, regs.ServerStateWords)
	x := candidate{server: i, active: uint64(s[regs.ServerStateActive]), weight: uint64(max(regs.SlotSlotWeight(slot), 1)), ok: true}
	x.inactive = uint64(connections(s) - min(connections(s), s[regs.ServerStateActive]))
	if !best.ok || x.better(best, by) {
		*best = x
	}
}

// better says whether x is chosen before y, which stands before it. Quotients are compared by products: there is no
// division.
func (x *candidate) better(y *candidate, by uint32) bool {
	switch by {
	case regs.GroupControlCompareLc:
		return x.load() < y.load()
	case regs.GroupControlCompareWlc, regs.GroupControlCompareTwos:
		return x.load()*y.weight < y.load()*x.weight
	case regs.GroupControlCompareNq:
		if x.active == 0 || y.active == 0 {
			return y.active != 0
		}
		return (x.active+1)*y.weight < (y.active+1)*x.weight
	case regs.GroupControlCompareSed:
		return (x.active+1)*y.weight < (y.active+1)*x.weight
	case regs.GroupControlCompareOvf:
		if xFull, yFull := x.active >= x.weight, y.active >= y.weight; xFull != yFull {
			return yFull
		}
		return x.weight > y.weight
	case regs.GroupControlCompareFo:
		return x.weight > y.weight
	case regs.GroupControlCompareP2c:
		return x.active < y.active
	}
	return false
}

func (x *candidate) load() uint64 { return 256*x.active + x.inactive }

// openSlot says whether the server of a slot takes a client's new connection.
func (c *Core) openSlot(slot uint32, who *chooser) bool {
	i := regs.SlotSlotServer(slot)
	return regs.SlotSlotValid(slot) != 0 && c.takesNew(i, who)
}

// takesNew says whether a server takes a client's new connection.
func (c *Core) takesNew(i uint32, who *chooser) bool {
	return i < c.m.Geometry.Servers && !c.overloaded(i) && c.takesMore(i, who)
}

// takesMore is takesNew for one of a client that a server has: its limits do not count.
func (c *Core) takesMore(i uint32, who *chooser) bool {
	if i >= c.m.Geometry.Servers {
		return false
	}
	if !who.passed {
		return c.usable(i, who.kind)
	}
	s := c.server(i)
	ctl := s[regs.ServerControl]
	if regs.ServerControlValid(ctl) == 0 || regs.ServerControlClosed(ctl) != 0 || regs.ServerControlProtocol(ctl) != who.protocol || !suits(s, who.kind) {
		return false
	}
	hop := c.hop(s)
	return hop != nil && regs.NextHopControlValid(hop[regs.NextHopControl]) != 0 && regs.NextHopControlResolved(hop[regs.NextHopControl]) != 0
}

// connections is how many a server has, active or not.
func connections(state []uint32) uint32 {
	return state[regs.ServerStateUseCount] - min(state[regs.ServerStateUseCount], state[regs.ServerStateTemplates])
}

// overloaded says whether a server has enough connections.
func (c *Core) overloaded(i uint32) bool {
	s := entry(c.m.ServerState, i, regs.ServerStateWords)
	return s[regs.ServerStateFlags]&regs.ServerStateFlagsOverloadedMask != 0 && s[regs.ServerStateUpper] != 0
}

// limit holds a server's connections to its limits, after their number changed.
func (c *Core) limit(state []uint32) {
	upper := state[regs.ServerStateUpper]
	over := state[regs.ServerStateFlags]&regs.ServerStateFlagsOverloadedMask != 0
	if upper == 0 && !over {
		return
	}
	n, lower := connections(state), state[regs.ServerStateLower]
	if lower == 0 {
		lower = uint32(uint64(upper) * 3 / 4)
	}
	switch {
	case upper != 0 && n >= upper && !over:
		state[regs.ServerStateFlags] |= regs.ServerStateFlagsOverloadedMask
		c.count(regs.PassOverloaded)
	case over && (upper == 0 || n < lower):
		state[regs.ServerStateFlags] &^= regs.ServerStateFlagsOverloadedMask
	}
}
