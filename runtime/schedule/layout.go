package schedule

import (
	"cmp"
	"slices"

	"splicenic/regs"
)

// A Slots is one slot area, entries of the slot memory.
type Slots []uint32

// put appends a slot of a server.
func (s *Slots) put(server, weight uint32) {
	e := regs.SlotEntry{SlotServer: server, SlotValid: 1, SlotWeight: weight}
	*s = append(*s, 0)
	e.Encode((*s)[len(*s)-1:])
}

// equal gives each server one share.
func equal(servers []Server) []int { return slices.Repeat([]int{1}, len(servers)) }

// shares gives each server its weight, divided by the greatest common divisor of all.
func shares(servers []Server) []int {
	weights := make([]int, len(servers))
	divisor := 0
	for i, s := range servers {
		weights[i] = int(s.Weight)
		divisor = gcd(divisor, weights[i])
	}
	for i := range weights {
		weights[i] /= divisor
	}
	return weights
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// scale makes the sum of the weights, none of them zero, room: each gets the whole part of its share, at least one, and
// what is left goes to the largest remainders. There are no more weights than room.
func scale(weights []int, room int) []int {
	sum := 0
	for _, w := range weights {
		sum += w
	}
	scaled := make([]int, len(weights))
	order := make([]int, len(weights))
	left := room
	for i, w := range weights {
		order[i] = i
		scaled[i] = max(w*room/sum, 1)
		left -= scaled[i]
	}
	remainder := func(i int) int { return weights[i]*room - scaled[i]*sum }
	slices.SortStableFunc(order, func(a, b int) int { return remainder(b) - remainder(a) })
	for k := 0; left > 0; k++ {
		scaled[order[k]]++ // the whole parts leave less than one a weight
		left--
	}
	for ; left < 0; left++ { // the many small ones took more than there is
		scaled[slices.Index(scaled, slices.Max(scaled))]--
	}
	return scaled
}

// fit scales weights that take more room than there is.
func fit(weights []int, room int) []int {
	sum := 0
	for _, w := range weights {
		sum += w
	}
	if sum <= room {
		return weights
	}
	return scale(weights, room)
}

// interleave walks the servers as IPVS does: in each turn those whose weight is at least the level get a slot, and the
// level sinks from the largest weight to one.
func interleave(servers []Server, weights []int) Slots {
	order := make([]int, len(weights)) // by weight, the largest first
	sum := 0
	for i, w := range weights {
		order[i] = i
		sum += w
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(weights[b], weights[a]) })
	slots := make(Slots, 0, sum)
	turn := make([]int, 0, len(weights)) // who is at the level, in the servers' order
	for len(slots) < sum {
		level := weights[order[len(turn)]]
		for len(turn) < len(order) && weights[order[len(turn)]] == level {
			i := order[len(turn)]
			at, _ := slices.BinarySearch(turn, i)
			turn = slices.Insert(turn, at, i)
		}
		next := 0
		if len(turn) < len(order) {
			next = weights[order[len(turn)]]
		}
		for ; level > next; level-- {
			for _, i := range turn {
				slots.put(servers[i].Index, 0)
			}
		}
	}
	return slots
}
