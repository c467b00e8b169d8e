package device

import (
	"os"
	"slices"
)

// pageBytes is the unit of mappings: the host's page, at least the smallest an IOMMU knows.
var pageBytes = uint64(max(os.Getpagesize(), 4096))

// A space hands out ranges of IOVAs, first fit, each a whole number of pages. Page 0 is never given out: descriptors use
// address zero for "none".
type space struct {
	ranges []IOVARange
	guard  uint64
	used   []span // sorted by first
}

type span struct{ first, bytes uint64 }

func newSpace(ranges []IOVARange, noGuard bool) space {
	s := space{ranges: slices.Clone(ranges), guard: pageBytes}
	if noGuard {
		s.guard = 0
	}
	slices.SortFunc(s.ranges, func(a, b IOVARange) int {
		if a.First < b.First {
			return -1
		}
		return 1
	})
	return s
}

func pageUp(v uint64) uint64 { return (v + pageBytes - 1) &^ (pageBytes - 1) }

// take returns the lowest place for n bytes, a multiple of pageBytes, that keeps the guard on both sides.
func (s *space) take(n uint64) (iova uint64, ok bool) {
	for _, r := range s.ranges {
		at, i, ok := s.fit(pageUp(max(r.First, pageBytes)), n)
		if !ok || at < r.First || at > r.Last || r.Last-at < n-1 {
			continue
		}
		s.used = slices.Insert(s.used, i, span{at, n})
		return at, true
	}
	return 0, false
}

// fit returns the first place from at on that no used range overlaps, and which used range it comes before.
func (s *space) fit(at, n uint64) (uint64, int, bool) {
	for i, u := range s.used {
		if u.first >= at && u.first-at >= n+s.guard {
			return at, i, true
		}
		last := u.first + u.bytes - 1 + s.guard
		if last < u.first || last == ^uint64(0) { // it ends the address space
			return 0, 0, false
		}
		at = max(at, last+1)
	}
	return at, len(s.used), true
}

func (s *space) give(iova uint64) {
	s.used = slices.DeleteFunc(s.used, func(u span) bool { return u.first == iova })
}
