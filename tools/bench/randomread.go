package bench

import (
	"fmt"
	"math/rand/v2"

	"splicenic/emu/ssram"
	"splicenic/regs"
)

// randomReadBytes is the memory the dependent loads wander over: the card's page memory at its largest, 128 MiB.
const randomReadBytes = regs.MemPageMax * 256

// randomRead returns the time of one load that depends on the one before it, in ns. The memory is the card's own page
// memory, so that it lies in pages of the same size.
func randomRead(loads int) (float64, error) {
	m, err := ssram.New(ssram.Geometry{Pages: regs.MemPageMax})
	if err != nil {
		return 0, fmt.Errorf("map %d bytes for random reads: %w", randomReadBytes, err)
	}
	defer m.Close()
	next := m.Pages
	tangle(next)
	at := uint32(0)
	for range loads / 8 { // translation buffers and clock frequency settle
		at = next[at]
	}
	start := processTime()
	for range loads {
		at = next[at]
	}
	spent := processTime() - start
	next[at] = at // keeps the loop above from being optimised away
	return float64(spent.Nanoseconds()) / float64(loads), nil
}

// tangle joins the first words of all cache lines to one random cycle (Sattolo's algorithm): word i holds the index of
// the next.
func tangle(words []uint32) {
	const line = 64 / 4
	n := len(words) / line
	for i := range n {
		words[i*line] = uint32(i * line)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for i := n - 1; i > 0; i-- {
		j := rng.IntN(i)
		words[i*line], words[j*line] = words[j*line], words[i*line]
	}
}
