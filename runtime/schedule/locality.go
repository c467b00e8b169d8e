package schedule

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

// A Destination is an address that clients connect to, a VIP.
type Destination struct{ Addr netip.Addr }

// A Memory is what lblc and lblcr remember from one Make to the next: which servers each destination has. It is never
// altered; its zero value remembers nothing.
type Memory struct {
	homes []home
	seed  uint64
	of    seedOf
}

// A home is the servers of a destination, the one that serves it first. lblc has one.
type home struct {
	destination netip.Addr
	servers     []uint32 // by index in the server table
	grown       time.Time
}

// seedOf is what a seed was looked for.
type seedOf struct {
	from         uint64
	size         int
	destinations []netip.Addr
}

func (o *seedOf) equal(p *seedOf) bool {
	return o.from == p.from && o.size == p.size && slices.Equal(o.destinations, p.destinations)
}

const (
	localitySlots = 1024 // of a table for destinations: up to some 100 of them find a seed that keeps them apart
	seedTries     = 256
	expire        = 24 * time.Hour // sysctl lblcr_expiration
)

// locate gives each destination a server, and lays them out where the card's hash looks for them.
func (p *Plan) locate(g *group) {
	o, before := g.options, g.before
	if before == nil {
		before = &Memory{}
	}
	slots := spread(g.servers, min(g.room, localitySlots))
	m := &Memory{of: seedOf{o.Seed, len(slots), destinations(o.Destinations)}, seed: before.seed}
	if !m.of.equal(&before.of) {
		m.seed = m.of.find()
	}
	p.Seed, p.Memory = m.seed, m
	a := newAssigner(g.kind, g.servers, o)
	taken := make([]bool, len(slots))
	for _, d := range m.of.destinations {
		at := place(hash(Key{Destination: d}, p.HashKey, p.Seed), len(slots))
		if taken[at] {
			continue // the two are one as far as the card can tell
		}
		taken[at] = true
		h := home{destination: d}
		if i, ok := slices.BinarySearchFunc(before.homes, d, func(h home, d netip.Addr) int { return h.destination.Compare(d) }); ok {
			h = before.homes[i]
		}
		h = a.assign(h)
		m.homes = append(m.homes, h)
		one := slots[at:at]
		one.put(h.servers[0], 0)
	}
	p.Slots = slots
}

// spread is a table of n slots with the servers by their weights: what a destination finds that is not known.
func spread(servers []Server, n int) Slots {
	if len(servers) > n {
		servers = sorted(servers, func(a, b *Server) int { return cmp.Compare(b.Weight, a.Weight) })[:n]
	}
	return interleave(servers, scale(shares(servers), n))
}

func destinations(ds []Destination) []netip.Addr {
	addrs := make([]netip.Addr, len(ds))
	for i, d := range ds {
		addrs[i] = d.Addr.Unmap()
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	return slices.Compact(addrs)
}

// find looks for a seed under which no two destinations have the same slot; of those it tries the one with the fewest.
func (o *seedOf) find() (seed uint64) {
	fewest := len(o.destinations) + 1
	for try := range uint64(seedTries) {
		taken := make([]bool, o.size)
		collisions := 0
		for _, d := range o.destinations {
			at := place(hash(Key{Destination: d}, keyDestination, o.from+try), o.size)
			if taken[at] {
				collisions++
			}
			taken[at] = true
		}
		if collisions < fewest {
			fewest, seed = collisions, o.from+try
		}
		if collisions == 0 {
			break
		}
	}
	return seed
}

// An assigner decides for one destination after the other; what it decides counts as a connection, so that destinations
// that come at once do not all go to the same server. It knows servers by their place in its list.
type assigner struct {
	kind    Kind
	servers []Server
	all     []int          // who a destination may be given
	at      map[uint32]int // place by index in the server table
	moved   map[int]bool   // whose destination leaves
	now     time.Time
	expire  time.Duration
}

func newAssigner(kind Kind, servers []Server, o *Options) *assigner {
	a := &assigner{kind: kind, servers: slices.Clone(servers), at: make(map[uint32]int, len(servers)), moved: map[int]bool{}, now: o.Now, expire: o.Expire}
	if a.expire == 0 {
		a.expire = expire
	}
	for i, s := range a.servers {
		a.at[s.Index] = i
		a.all = append(a.all, i)
	}
	if open := slices.DeleteFunc(slices.Clone(a.all), a.overloaded); len(open) > 0 {
		a.all = open
	}
	return a
}

// assign gives a destination the servers it has from now on, the serving one first.
func (a *assigner) assign(h home) home {
	var known []int
	for _, index := range h.servers {
		if i, ok := a.at[index]; ok {
			known = append(known, i)
		}
	}
	if len(known) > 1 && a.now.Sub(h.grown) > a.expire {
		most := a.extreme(known, func(c, d contender) bool { return d.before(c) })
		known = slices.DeleteFunc(known, func(i int) bool { return i == most })
		h.grown = a.now
	}
	if open := slices.DeleteFunc(slices.Clone(known), a.overloaded); len(open) > 0 {
		best := a.extreme(open, contender.before)
		if !a.crowded(best) {
			h.servers = a.indexes(best, known)
			return h
		}
		a.moved[best] = true
	}
	chosen := a.extreme(a.all, contender.before)
	a.servers[chosen].Active++
	if a.kind == Locality {
		known = nil
	}
	if !slices.Contains(known, chosen) {
		h.grown = a.now
	}
	h.servers = a.indexes(chosen, known)
	return h
}

func (a *assigner) overloaded(i int) bool { return a.servers[i].Overloaded }

// indexes are those of the serving server and of what others there are.
func (a *assigner) indexes(first int, known []int) []uint32 {
	list := append(make([]uint32, 0, len(known)+1), a.servers[first].Index)
	for _, i := range known {
		if i != first {
			list = append(list, a.servers[i].Index)
		}
	}
	return list
}

// crowded says whether a destination should go elsewhere: the server has more active connections than weight while
// another has fewer than half its own. Only one destination leaves a server at a time: what its leaving does shows in the
// counters only later.
func (a *assigner) crowded(i int) bool {
	if s := a.servers[i]; s.Active <= uint32(s.Weight) || a.moved[i] {
		return false
	}
	return slices.ContainsFunc(a.servers, func(s Server) bool { return !s.Overloaded && uint64(s.Active)*2 < uint64(s.Weight) })
}

// extreme is the server of the list that comes before all others; wlc chooses the one with the least load for its weight.
func (a *assigner) extreme(list []int, before func(c, d contender) bool) int {
	var best contender
	for n, i := range list {
		s := &a.servers[i]
		if c := (contender{overhead(s.Active, s.Inactive), uint64(s.Weight), i}); n == 0 || before(c, best) {
			best = c
		}
	}
	return best.server
}
