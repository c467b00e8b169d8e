package schedule

import (
	"cmp"
	"strings"
)

// Keys of the hashes that say where a server's places in the Maglev table lie.
const (
	offsetUse = 0x6f66_6673
	skipUse   = 0x736b_6970
)

// maglev is the table of Eisenbud et al. (NSDI 2016, 3.4): each server has a permutation of the places, and the servers
// take turns to take the first free place of theirs. The number of places is a prime, so that every skip makes a
// permutation; for a room that is a power of two it is the prime IPVS has. A server has as many turns as its share of the
// places, spread evenly, so that shares are exact to one place.
func maglev(servers []Server, seed uint64, room int) (Slots, error) {
	size := prime(room)
	if len(servers) > size {
		return nil, ErrTooMany
	}
	// The table must not depend on the order of the file.
	servers = sorted(servers, func(a, b *Server) int { return cmp.Or(strings.Compare(a.ID, b.ID), cmp.Compare(a.Index, b.Index)) })
	turns := scale(shares(servers), size)
	type permutation struct{ at, skip int }
	permutations := make([]permutation, len(servers))
	contenders := make([]contender, len(servers))
	for i, s := range servers {
		offset, skip := sipHash(seed, offsetUse, []byte(s.ID)), sipHash(seed, skipUse, []byte(s.ID))
		permutations[i] = permutation{int(offset % uint64(size)), 1}
		if size > 2 {
			permutations[i].skip = int(skip%uint64(size-1)) + 1
		}
		contenders[i] = contender{1, uint64(turns[i]), i}
	}
	slots := make(Slots, size)
	// The next turn is that of the least (turns had + 1) / turns: after size turns all have had theirs.
	for r := newRace(contenders); size > 0; size-- {
		i := r.next(1)
		p := &permutations[i]
		for slots[p.at] != 0 {
			p.at = (p.at + p.skip) % len(slots)
		}
		one := slots[p.at:p.at]
		one.put(servers[i].Index, 0)
	}
	return slots, nil
}

// prime is the largest prime that is at most n; for less than 2, one place is all there is.
func prime(n int) int {
	for ; n > 2; n-- {
		if isPrime(n) {
			return n
		}
	}
	return max(n, 1)
}

func isPrime(n int) bool {
	for d := 2; d*d <= n; d++ {
		if n%d == 0 {
			return false
		}
	}
	return true
}
