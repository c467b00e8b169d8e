package cam

// place finds a place for n words of a key whose hash is h: in the first bucket, else in the second, else by moving
// entries, as few as possible. It returns how many it moved.
func (c *CAM) place(h uint64, n uint32) (place, int) {
	a, b := c.first(h), c.other(h)
	if p := c.vacant(a, n); p != nowhere {
		return p, 0
	}
	if p := c.vacant(b, n); p != nowhere {
		return p, 0
	}
	s := search{CAM: c, visits: visits}
	for most := 1; most <= c.maxMoves && s.visits > 0; most++ {
		for _, from := range [2]uint32{a, b} {
			if p, moved := s.free(from, n, most); p != nowhere {
				return p, moved
			}
		}
	}
	return nowhere, 0
}

// vacant finds n free words in a bucket: a pair begins at an even slot; one word goes beside another key's single word
// if it can, so that pairs stay whole for IPv6.
func (c *CAM) vacant(b, n uint32) place {
	w := c.bucket(b)
	f := [slots]bool{w[0]&valid == 0, w[wordLen]&valid == 0, w[2*wordLen]&valid == 0, w[3*wordLen]&valid == 0}
	at := place(b * slots)
	if n == 2 {
		switch {
		case f[0] && f[1]:
			return at
		case f[2] && f[3]:
			return at + 2
		}
		return nowhere
	}
	best := nowhere
	for i := slots - 1; i >= 0; i-- {
		if f[i] && (best == nowhere || !f[i^1] || f[(best-at)^1]) {
			best = at + place(i)
		}
	}
	return best
}

// A search makes room by moving entries. The buckets on its path keep their entries until the search is back there, so
// no bucket comes twice in a path.
type search struct {
	*CAM
	visits int
	path   [16]uint32
	depth  int
}

// free makes room for n words in a bucket that has none, moving at most most entries. Where it fails nothing has
// changed.
func (s *search) free(b, n uint32, most int) (place, int) {
	if most == 0 || s.visits == 0 || s.depth == len(s.path) || s.onPath(b) {
		return nowhere, 0
	}
	s.visits--
	s.path[s.depth] = b
	s.depth++
	at, moved := place(b*slots), 0
	end := at + slots
	for at < end && moved == 0 {
		if moved = s.evict(at, n, most); moved == 0 {
			at += place(n)
		}
	}
	s.depth--
	if moved == 0 {
		return nowhere, 0
	}
	return at, moved
}

func (s *search) onPath(b uint32) bool {
	for _, x := range s.path[:s.depth] {
		if x == b {
			return true
		}
	}
	return false
}

// evict moves away what lies in the n words at p and returns how many entries it moved, none if it could not.
func (s *search) evict(p place, n uint32, most int) int {
	first, other := s.control(p), s.control(p^1)
	switch {
	case n == 1 || isWide(first) || other&valid == 0:
		return s.move(p, most)
	case first&valid == 0:
		return s.move(p^1, most)
	case most < 2:
		return 0
	}
	// Two single words. The first goes where there is room at once, so that it can come back.
	b := s.away(p)
	if s.onPath(b) {
		return 0
	}
	to := s.vacant(b, 1)
	if to == nowhere {
		return 0
	}
	s.shift(p, to)
	if moved := s.move(p^1, most-1); moved > 0 {
		return moved + 1
	}
	s.shift(to, p)
	return 0
}

// move takes the entry at p to its other bucket, making room there if need be. What starts at an odd slot and says it
// takes two words is the second half of an entry, or nothing this CAM has written: it stays.
func (s *search) move(p place, most int) int {
	n := width(s.control(p))
	if n == 2 && p%2 != 0 {
		return 0
	}
	b := s.away(p)
	if s.onPath(b) {
		return 0
	}
	to, moved := s.vacant(b, n), 0
	if to == nowhere {
		if to, moved = s.free(b, n, most-1); to == nowhere {
			return 0
		}
	}
	s.shift(p, to)
	return moved + 1
}

func (c *CAM) control(p place) uint32 { return c.words[uint64(p)*wordLen] }

// away is the other bucket of the entry at p.
func (c *CAM) away(p place) uint32 {
	var k Key
	c.read(p, &k)
	h := c.Hash(&k)
	if b := c.first(h); b != uint32(p/slots) {
		return b
	}
	return c.other(h)
}

// shift carries an entry from one place to another.
func (c *CAM) shift(from, to place) {
	n := uint64(width(c.control(from))) * wordLen
	src, dst := c.words[uint64(from)*wordLen:][:n], c.words[uint64(to)*wordLen:][:n]
	copy(dst, src)
	clear(src)
}
