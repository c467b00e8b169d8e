package vfiouser

import (
	"slices"

	"splicenic/driver/device"
)

// A space hands out ranges of IOVAs, first fit. Page 0 is never given out: descriptors use address zero for "none".
type space struct {
	ranges []device.IOVARange // sorted
	page   uint64             // the unit
	guard  uint64             // kept free on both sides of what is given out
	used   []span             // sorted
}

type span struct{ first, bytes uint64 }

func newSpace(ranges []device.IOVARange, page, guard uint64) space {
	s := space{ranges: slices.Clone(ranges), page: page, guard: guard}
	slices.SortFunc(s.ranges, func(a, b device.IOVARange) int {
		if a.First < b.First {
			return -1
		}
		return 1
	})
	return s
}

// roundUp returns the multiple of a power of two at or above v; ok is false where there is none.
func roundUp(v, unit uint64) (up uint64, ok bool) {
	up = (v + unit - 1) &^ (unit - 1)
	return up, up >= v
}

// take returns the lowest place for n bytes, a multiple of the page, at a multiple of align, a power of two.
func (s *space) take(n, align uint64) (iova uint64, ok bool) {
	align = max(align, s.page)
	for _, r := range s.ranges {
		at, ok := roundUp(max(r.First, s.page), align)
		for i := 0; ok && at <= r.Last && r.Last-at >= n-1; {
			if i == len(s.used) || s.before(at, n, s.used[i]) {
				s.used = slices.Insert(s.used, i, span{at, n})
				return at, true
			}
			if u := s.used[i]; u.first+u.bytes-1+s.guard >= at { // it ends behind the place
				next := u.first + u.bytes + s.guard
				if next < u.first {
					break
				}
				at, ok = roundUp(next, align)
			}
			i++
		}
	}
	return 0, false
}

// before says whether n bytes at at, and the guard, end before u.
func (s *space) before(at, n uint64, u span) bool {
	return u.first >= at && u.first-at >= n && u.first-at-n >= s.guard
}

// takeAt takes a place that was in use before. It may lie outside the ranges, but not over another.
func (s *space) takeAt(iova, n uint64) bool {
	if iova == 0 || n == 0 || (iova|n)%s.page != 0 || n-1 > ^iova {
		return false
	}
	i, _ := slices.BinarySearchFunc(s.used, iova, func(u span, iova uint64) int {
		if u.first < iova {
			return -1
		}
		return 1
	})
	if i > 0 && iova-s.used[i-1].first < s.used[i-1].bytes || i < len(s.used) && s.used[i].first-iova < n {
		return false
	}
	s.used = slices.Insert(s.used, i, span{iova, n})
	return true
}

func (s *space) give(iova uint64) {
	s.used = slices.DeleteFunc(s.used, func(u span) bool { return u.first == iova })
}
