package schedule

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"splicenic/regs"
)

// A Kind is a scheduler, by ipvsadm's name. The package comment says what each does.
type Kind string

// The schedulers.
const (
	RoundRobin              Kind = "rr"
	WeightedRoundRobin      Kind = "wrr"
	LeastConnection         Kind = "lc"
	WeightedLeastConnection Kind = "wlc"
	Locality                Kind = "lblc"
	LocalityReplicated      Kind = "lblcr"
	DestinationHash         Kind = "dh"
	SourceHash              Kind = "sh"
	Maglev                  Kind = "mh"
	ShortestDelay           Kind = "sed"
	NeverQueue              Kind = "nq"
	FailOver                Kind = "fo"
	Overflow                Kind = "ovf"
	Twos                    Kind = "twos"
	TwoChoices              Kind = "p2c"
)

// Hashes says whether a client's or a destination's place in the table is the only one that it has.
func (k Kind) Hashes() bool {
	switch k {
	case Locality, LocalityReplicated, DestinationHash, SourceHash, Maglev:
		return true
	}
	return false
}

// Server is a server of a group as a scheduler sees it.
type Server struct {
	Index            uint32 // in the server table
	Weight           uint16 // zero: no new connections
	ID               string // what mh knows it by: it stays the same when Index does not
	Active, Inactive uint32 // connections; what has to be known where the host compares: lblc, lblcr and large groups
	Overloaded       bool   // takes no new connection now
}

// Options are what a scheduler is told beside its servers. The zero value is every scheduler's default.
type Options struct {
	Port     bool   // sh, mh: the client's port is hashed too
	Fallback bool   // sh, mh: the slots behind one whose server takes no connection are tried
	Seed     uint64 // key of the hash; the same seed gives the same choice

	Destinations []Destination // lblc, lblcr: the VIPs, in any order
	Now          time.Time     // lblcr
	Expire       time.Duration // lblcr: a set that has not grown for so long loses a server; zero: a day
}

// A Plan is what the card is to do: words of the group entry, and a slot area.
type Plan struct {
	Means, Compare, HashKey uint32 // values of group.means, group.compare, group.hash_key
	Fallback                bool
	Seed                    uint64
	Slots                   Slots
	// Refresh says that the slots follow from counters and have to be made again, every 10 ms at most. If they are walked
	// they begin with the next connection: the cursor is set to zero when they come in force.
	Refresh bool
	// Memory is what the next Make is given; nil where nothing has to be remembered.
	Memory *Memory
}

// ErrTooMany is the error of a group with more servers than a slot area has slots.
var ErrTooMany = errors.New("more servers than slots")

const (
	maxCompare = 64        // geometry.max_compare: slots that the card looks at for one choice
	maxSlots   = 1<<15 - 1 // group_state counts slots with 15 bits
	maxTable   = 4096      // slots of a simulated table: 400,000 connections a second are as many in 10 ms
	maxWeight  = 1<<15 - 1 // slot.weight
)

const (
	walk    = regs.GroupControlMeansWalk
	hashed  = regs.GroupControlMeansHash
	compare = regs.GroupControlMeansCompare

	keySource      = regs.GroupControlHashKeySource
	keySourcePort  = regs.GroupControlHashKeySourcePort
	keyDestination = regs.GroupControlHashKeyDestination
)

// A scheduler is what the card does for a Kind: by is what it compares by, or hashes; lay makes the slots.
type scheduler struct {
	kind      Kind
	means, by uint32
	lay       func(p *Plan, g *group) error
}

var schedulers = []scheduler{
	{RoundRobin, walk, 0, inTurns(equal)},
	{WeightedRoundRobin, walk, 0, inTurns(shares)},
	{LeastConnection, compare, regs.GroupControlCompareLc, counted},
	{WeightedLeastConnection, compare, regs.GroupControlCompareWlc, counted},
	{Locality, hashed, keyDestination, located},
	{LocalityReplicated, hashed, keyDestination, located},
	{DestinationHash, hashed, keyDestination, inTurns(equal)},
	{SourceHash, hashed, keySource, inTurns(shares)},
	{Maglev, hashed, keySource, permuted},
	{ShortestDelay, compare, regs.GroupControlCompareSed, counted},
	{NeverQueue, compare, regs.GroupControlCompareNq, counted},
	{FailOver, compare, regs.GroupControlCompareFo, foremost},
	{Overflow, compare, regs.GroupControlCompareOvf, foremost},
	{Twos, compare, regs.GroupControlCompareTwos, inTurns(shares)},
	{TwoChoices, compare, regs.GroupControlCompareP2c, inTurns(shares)},
}

// A group is what a scheduler lays out: all its servers have a weight, and there is at least one.
type group struct {
	kind    Kind
	servers []Server
	options *Options
	room    int
	before  *Memory
}

// Make lays out a group: at most room slots. before is the Memory of the Plan that this one follows; nil: there is none. A
// Plan without slots means that no server has a weight. The error is ErrTooMany, or names a Kind that is none.
func Make(kind Kind, servers []Server, o Options, room uint32, before *Memory) (Plan, error) {
	i := slices.IndexFunc(schedulers, func(s scheduler) bool { return s.kind == kind })
	if i < 0 {
		return Plan{}, fmt.Errorf("scheduler %q is not known: take one of %s", kind, names())
	}
	s := schedulers[i]
	p := Plan{Means: s.means, Seed: o.Seed}
	switch s.means {
	case compare:
		p.Compare = s.by
	case hashed:
		p.HashKey = s.by
	}
	switch kind {
	case Locality, LocalityReplicated:
		p.Memory = before // of a group that has no server for a moment
	case SourceHash, Maglev:
		p.Fallback = o.Fallback
		if o.Port {
			p.HashKey = keySourcePort
		}
	}
	g := &group{kind, weighted(servers), &o, int(min(room, maxSlots)), before}
	if len(g.servers) == 0 {
		return p, nil
	}
	err := ErrTooMany
	if g.room > 0 {
		err = s.lay(&p, g)
	}
	if err != nil {
		return Plan{}, fmt.Errorf("%w: %d of %d", err, len(g.servers), g.room)
	}
	return p, nil
}

func names() string {
	list := make([]string, len(schedulers))
	for i, s := range schedulers {
		list[i] = string(s.kind)
	}
	return strings.Join(list, " ")
}

// weighted are the servers with a weight.
func weighted(servers []Server) []Server {
	return slices.DeleteFunc(slices.Clone(servers), func(s Server) bool { return s.Weight == 0 })
}

// available are the servers that are not overloaded; all, where all are.
func available(servers []Server) []Server {
	open := slices.DeleteFunc(slices.Clone(servers), func(s Server) bool { return s.Overloaded })
	if len(open) == 0 {
		return servers
	}
	return open
}

// sorted are the servers in an order; those that it does not tell apart stay as they are.
func sorted(servers []Server, order func(a, b *Server) int) []Server {
	at := make([]int, len(servers))
	for i := range at {
		at[i] = i
	}
	slices.SortFunc(at, func(a, b int) int { return cmp.Or(order(&servers[a], &servers[b]), a-b) })
	list := make([]Server, len(servers))
	for i, n := range at {
		list[i] = servers[n]
	}
	return list
}

// inTurns gives servers as many slots as their weights say.
func inTurns(weights func([]Server) []int) func(*Plan, *group) error {
	return func(p *Plan, g *group) error {
		if len(g.servers) > g.room {
			return ErrTooMany
		}
		p.Slots = interleave(g.servers, fit(weights(g.servers), g.room))
		if open := available(g.servers); p.Means != hashed && len(open) < len(g.servers) && stuck(p.Slots, open) {
			p.Slots = interleave(open, fit(weights(open), g.room))
		}
		if p.Means == compare {
			p.weigh(g.servers)
		}
		return nil
	}
}

// stuck says whether the card could look at as many slots as it may and find none of the open servers, though there is
// one. Two of its looks may go astray.
func stuck(slots Slots, open []Server) bool {
	isOpen := make(map[uint32]bool, len(open))
	for _, s := range open {
		isOpen[s.Index] = true
	}
	run, longest := 0, 0
	for _, w := range slices.Concat(slots, slots) { // the last slot's neighbour is the first
		run++
		if isOpen[regs.SlotSlotServer(w)] {
			run = 0
		}
		longest = max(longest, run)
	}
	return longest > maxCompare-2
}

// weigh tells the slots their servers' weights, in 15 bits.
func (p *Plan) weigh(servers []Server) {
	weights := shares(servers)
	top := slices.Max(weights)
	by := make(map[uint32]uint32, len(servers))
	for i, s := range servers {
		w := weights[i]
		if top > maxWeight {
			w = max((w*maxWeight+top/2)/top, 1)
		}
		by[s.Index] = uint32(w)
	}
	for i, w := range p.Slots {
		p.Slots[i] = regs.SetSlotSlotWeight(w, by[regs.SlotSlotServer(w)])
	}
}

// counted has the card compare all servers, or walks over choices that were made for it.
func counted(p *Plan, g *group) error {
	if len(g.servers) <= min(maxCompare, g.room) {
		p.Slots = interleave(g.servers, equal(g.servers))
		p.weigh(g.servers)
		return nil
	}
	p.Means, p.Compare, p.Refresh = walk, 0, true
	p.Slots = simulate(g.kind, g.servers, min(g.room, maxTable))
	return nil
}

// foremost has the card compare all servers, or those that fo or ovf would choose from first. Weights are cut off at 15
// bits and not scaled, for ovf holds numbers of connections against them; the order of the slots keeps apart what becomes
// equal.
func foremost(p *Plan, g *group) error {
	n := min(maxCompare, g.room)
	p.Refresh = len(g.servers) > n
	for _, s := range first(g.kind, g.servers, n) {
		p.Slots.put(s.Index, min(uint32(s.Weight), maxWeight))
	}
	return nil
}

func permuted(p *Plan, g *group) (err error) {
	p.Slots, err = maglev(g.servers, p.Seed, g.room)
	return err
}

func located(p *Plan, g *group) error {
	p.Fallback, p.Refresh = true, true
	p.locate(g)
	return nil
}
