package schedule

import "cmp"

// A contender is a server in a race: its value is load / weight.
type contender struct {
	load, weight uint64
	server       int
}

func (c contender) before(d contender) bool {
	// Both products fit: a load has at most 41 bits, 256 times a counter and what a table adds, a weight has 16.
	a, b := c.load*d.weight, d.load*c.weight
	return a < b || a == b && c.server < d.server
}

// A race gives, again and again, the server of the least value, the first of equal ones, and adds to its load. It is a heap.
type race []contender

func newRace(contenders []contender) race {
	r := race(contenders)
	for i := len(r)/2 - 1; i >= 0; i-- {
		r.down(i)
	}
	return r
}

func (r race) next(load uint64) int {
	server := r[0].server
	r[0].load += load
	r.down(0)
	return server
}

func (r race) down(i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(r); child++ {
			if r[child].before(r[least]) {
				least = child
			}
		}
		if least == i {
			return
		}
		r[i], r[least] = r[least], r[i]
		i = least
	}
}

// perActive is how many inactive connections an active one outweighs (ip_vs_dest_conn_overhead).
const perActive = 256

func overhead(active, inactive uint32) uint64 { return uint64(active)*perActive + uint64(inactive) }

// simulate gives the next n choices of lc, wlc, sed or nq. Servers that are overloaded have none, unless all are.
func simulate(kind Kind, servers []Server, n int) Slots {
	servers = available(servers)
	slots := make(Slots, 0, n)
	contenders := make([]contender, len(servers))
	step := uint64(perActive)
	for i, s := range servers {
		c := contender{overhead(s.Active, s.Inactive), uint64(s.Weight), i}
		if kind == LeastConnection {
			c.weight = 1
		}
		if kind == ShortestDelay || kind == NeverQueue {
			step, c.load = 1, uint64(s.Active)+1
		}
		if kind == NeverQueue && s.Active == 0 && len(slots) < n {
			slots.put(s.Index, 0)
			c.load++
		}
		contenders[i] = c
	}
	for r := newRace(contenders); len(slots) < n; {
		slots.put(servers[r.next(step)].Index, 0)
	}
	return slots
}

// first are the n servers that fo or ovf would choose from first, the greatest weight first.
func first(kind Kind, servers []Server, n int) []Server {
	heavier := func(a, b *Server) int { return cmp.Compare(b.Weight, a.Weight) }
	if len(servers) > n {
		servers = sorted(servers, func(a, b *Server) int { return cmp.Or(a.late(kind)-b.late(kind), heavier(a, b)) })[:n]
	}
	return sorted(servers, heavier)
}

// late says in which round fo or ovf comes to a server.
func (s *Server) late(kind Kind) int {
	switch {
	case s.Overloaded:
		return 2
	case kind == Overflow && s.Active >= uint32(s.Weight):
		return 1
	}
	return 0
}
