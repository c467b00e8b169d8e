package vfio

import (
	"cmp"
	"slices"

	"splicenic/driver/device"
)

// A space hands out ranges of IOVAs, first fit, inside the ranges that the kernel reported; what it left out, such as the
// window for message-signalled interrupts, is never given. Page 0 is not given either: descriptors use address zero for
// "none". Between two ranges that are given out lies a page that is not mapped.
type space struct {
	ranges []device.IOVARange // sorted
	page   uint64             // the unit: a power of two
	guard  uint64
	used   []span // sorted by off
}

func newSpace(ranges []device.IOVARange, page uint64, noGuard bool) space {
	s := space{ranges: slices.Clone(ranges), page: page, guard: page}
	if noGuard {
		s.guard = 0
	}
	slices.SortFunc(s.ranges, func(a, b device.IOVARange) int { return cmp.Compare(a.First, b.First) })
	return s
}

// up rounds v up to a multiple of unit; ok is false where it does not fit.
func up(v, unit uint64) (w uint64, ok bool) {
	w = (v + unit - 1) &^ (unit - 1)
	return w, w >= v
}

// take returns the lowest place for n bytes, a multiple of the page, that starts at a multiple of align.
func (s *space) take(n, align uint64) (iova uint64, ok bool) {
	for _, r := range s.ranges {
		if at, i, ok := s.fit(r, n, max(align, s.page)); ok {
			s.used = slices.Insert(s.used, i, span{at, n})
			return at, true
		}
	}
	return 0, false
}

// fit returns the first place for n bytes in a range, and which used one it comes before.
func (s *space) fit(r device.IOVARange, n, align uint64) (uint64, int, bool) {
	at, ok := up(max(r.First, s.page), align)
	inside := func() bool { return ok && at >= r.First && at <= r.Last && r.Last-at >= n-1 }
	for i, u := range s.used {
		if !inside() {
			return 0, 0, false
		}
		if u.off >= at && u.off-at >= n+s.guard {
			return at, i, true
		}
		last := u.off + (u.bytes - 1)
		if last < at && at-last > s.guard {
			continue
		}
		if last+s.guard < last || last+s.guard == ^uint64(0) {
			return 0, 0, false
		}
		at, ok = up(max(at, last+s.guard+1), align)
	}
	return at, len(s.used), inside()
}

// claim notes a range that somebody else chose; ok is false where it is not free or not in the ranges.
func (s *space) claim(iova, n uint64) (ok bool) {
	if n == 0 || iova%s.page != 0 || n%s.page != 0 || iova+(n-1) < iova {
		return false
	}
	if !slices.ContainsFunc(s.ranges, func(r device.IOVARange) bool { return iova >= r.First && iova+(n-1) <= r.Last }) {
		return false
	}
	if slices.ContainsFunc(s.used, func(u span) bool { return iova <= u.off+(u.bytes-1) && u.off <= iova+(n-1) }) {
		return false
	}
	i, _ := slices.BinarySearchFunc(s.used, iova, func(u span, at uint64) int { return cmp.Compare(u.off, at) })
	s.used = slices.Insert(s.used, i, span{iova, n})
	return true
}

func (s *space) give(iova uint64) {
	s.used = slices.DeleteFunc(s.used, func(u span) bool { return u.off == iova })
}
