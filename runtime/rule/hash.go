package rule

import "math/bits"

// hash is what a block of nodes is ordered by, as the format url_node says.
func hash(s string) uint64 {
	const seed, factor = 0x9e3779b97f4a7c15, 0xd6e8feb86659fd93
	h := uint64(len(s)) ^ seed
	for len(s) > 0 {
		word := uint64(0)
		n := min(len(s), 8)
		for i := range n {
			word |= uint64(s[i]) << (8 * i)
		}
		hi, lo := bits.Mul64(h^word, factor)
		h, s = hi^lo, s[n:]
	}
	return h
}
