// Package schedule turns the weights of a group's servers into slot areas: the order in which the card's cursor walks over
// them, connection after connection.
//
// It is pure. A slot area is one whole turn of the scheduler, so that walking it again and again gives the scheduler's
// order for ever. Servers of weight zero have no slot; without any weight the area is empty and the group takes no new
// connection.
package schedule

import (
	"errors"
	"slices"

	"splicenic/regs"
)

// Server is a server of a group as a scheduler sees it.
type Server struct {
	Index  uint32 // in the server table
	Weight uint16
}

// A Slots is one slot area, entries of the slot memory.
type Slots []uint32

// ErrTooMany is the error of a group with more servers than a slot area has slots.
var ErrTooMany = errors.New("more servers than slots")

// RoundRobin gives every server with a weight one slot, in their order.
func RoundRobin(servers []Server, room uint32) (Slots, error) {
	weights := make([]int, len(servers))
	for i, s := range servers {
		weights[i] = min(int(s.Weight), 1)
	}
	return layout(servers, weights, room)
}

// WeightedRoundRobin gives every server slots in proportion to its weight, interleaved as IPVS does: over A, B and C of
// the weights 4, 3 and 2 the order is A A B A B C A B C. Weights are divided by their greatest common divisor first. Where
// the sum is still more than room, the shares are scaled to fit: every share is then off by less than one slot in room,
// but for servers that would have got none and keep one.
func WeightedRoundRobin(servers []Server, room uint32) (Slots, error) {
	weights := make([]int, len(servers))
	divisor := 0
	for i, s := range servers {
		weights[i] = int(s.Weight)
		divisor = gcd(divisor, weights[i])
	}
	for i := range weights {
		weights[i] /= max(divisor, 1)
	}
	return layout(servers, scale(weights, int(room)), room)
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// scale makes the weights' sum at most room: each gets the whole part of its share, at least one, and what is left goes
// to the largest remainders.
func scale(weights []int, room int) []int {
	sum, positive := 0, 0
	for _, w := range weights {
		sum += w
		positive += min(w, 1)
	}
	if sum <= room || positive > room {
		return weights
	}
	scaled := make([]int, len(weights))
	order := make([]int, len(weights))
	left := room
	for i, w := range weights {
		order[i] = i
		scaled[i] = max(w*room/sum, min(w, 1))
		left -= scaled[i]
	}
	remainder := func(i int) int { return weights[i]*room - scaled[i]*sum }
	slices.SortStableFunc(order, func(a, b int) int { return remainder(b) - remainder(a) })
	for k := 0; left > 0; k++ {
		if i := order[k%len(order)]; weights[i] > 0 {
			scaled[i]++
			left--
		}
	}
	for left < 0 { // the many small ones took more than there is
		i := slices.Index(scaled, slices.Max(scaled))
		scaled[i]--
		left++
	}
	return scaled
}

// layout walks the servers as the interleaved algorithm does: in each turn those whose weight is at least the level get a
// slot, and the level sinks from the largest weight to one.
func layout(servers []Server, weights []int, room uint32) (Slots, error) {
	sum, top := 0, 0
	for _, w := range weights {
		sum += w
		top = max(top, w)
	}
	if sum > int(room) {
		return nil, ErrTooMany
	}
	slots := make(Slots, 0, sum)
	for level := top; level > 0; level-- {
		for i, w := range weights {
			if w >= level {
				e := regs.SlotEntry{SlotServer: servers[i].Index, SlotValid: 1}
				slots = append(slots, 0)
				e.Encode(slots[len(slots)-1:])
			}
		}
	}
	return slots, nil
}
