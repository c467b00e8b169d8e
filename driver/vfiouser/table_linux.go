package vfiouser

import (
	"slices"
	"sort"
)

// mapping is one DMA map: bytes of a file, or memory that only messages reach.
type mapping struct {
	iova, last uint64 // inclusive, so that a mapping may end the address space
	mem        []byte // nil: messages only
	file       *file
	offset     uint64 // in the file
	write      bool   // the device may write
	read       bool   // the device may read
}

func (m *mapping) size() uint64 { return m.last - m.iova + 1 }

// same says whether a mapping leads where another one does.
func (m *mapping) same(o *mapping) bool {
	return m.file != nil && m.file == o.file && m.iova == o.iova && m.last == o.last && m.offset == o.offset && m.write == o.write && m.read == o.read
}

// chunkLen bounds the moves of one insertion. A host that maps page by page makes tens of thousands of mappings.
const chunkLen = 512

// table holds mappings by IOVA: disjoint and sorted, in chunks of which none is empty. Finding costs two binary searches,
// inserting and removing the moves inside one chunk and of the chunk list.
type table struct {
	chunks   [][]mapping
	n        int
	messages int // how many of them only messages reach
}

// cursor names a mapping of a table; it is good until the table changes.
type cursor struct{ chunk, i int }

// find returns the first mapping that ends at or beyond iova.
func (t *table) find(iova uint64) cursor {
	c := sort.Search(len(t.chunks), func(i int) bool { k := t.chunks[i]; return k[len(k)-1].last >= iova })
	if c == len(t.chunks) {
		return cursor{c, 0}
	}
	k := t.chunks[c]
	return cursor{c, sort.Search(len(k), func(i int) bool { return k[i].last >= iova })}
}

// at returns the mapping at a cursor, nil at the end.
func (t *table) at(c cursor) *mapping {
	if c.chunk >= len(t.chunks) {
		return nil
	}
	return &t.chunks[c.chunk][c.i]
}

func (t *table) next(c cursor) cursor {
	if c.i++; c.i == len(t.chunks[c.chunk]) {
		return cursor{c.chunk + 1, 0}
	}
	return c
}

// cover returns the mapping that holds iova if n bytes from there on are mapped without a hole, for writing or reading.
func (t *table) cover(iova, n uint64, write bool) (cursor, bool) {
	first := t.find(iova)
	for c := first; n > 0; c = t.next(c) {
		m := t.at(c)
		if m == nil || m.iova > iova || write && !m.write || !write && !m.read {
			return first, false
		}
		left := m.last - iova // one less than what is left
		if left >= n-1 {
			return first, true
		}
		iova += left + 1
		n -= left + 1
	}
	return first, true
}

// insert adds a mapping and says whether it did: it overlaps none.
func (t *table) insert(m mapping) bool {
	c := t.find(m.iova)
	if o := t.at(c); o != nil && o.iova <= m.last {
		return false
	}
	t.n++
	if m.mem == nil {
		t.messages++
	}
	if c.chunk == len(t.chunks) { // behind all others
		if c.chunk == 0 || len(t.chunks[c.chunk-1]) == chunkLen {
			t.chunks = append(t.chunks, append(make([]mapping, 0, chunkLen), m))
			return true
		}
		c = cursor{c.chunk - 1, len(t.chunks[c.chunk-1])}
	}
	k := t.chunks[c.chunk]
	if len(k) == chunkLen {
		half := append(make([]mapping, 0, chunkLen), k[chunkLen/2:]...)
		clear(k[chunkLen/2:])
		t.chunks[c.chunk] = k[:chunkLen/2]
		t.chunks = slices.Insert(t.chunks, c.chunk+1, half)
		if c.i > chunkLen/2 {
			c = cursor{c.chunk + 1, c.i - chunkLen/2}
		}
		k = t.chunks[c.chunk]
	}
	t.chunks[c.chunk] = slices.Insert(k, c.i, m)
	return true
}

// inside returns the mappings that lie wholly in first..last; ok is false if one lies there in part.
func (t *table) inside(first, last uint64) (ms []mapping, ok bool) {
	for c := t.find(first); ; c = t.next(c) {
		m := t.at(c)
		if m == nil || m.iova > last {
			return ms, true
		}
		if m.iova < first || m.last > last {
			return nil, false
		}
		ms = append(ms, *m)
	}
}

// remove takes the mappings wholly in first..last out.
func (t *table) remove(first, last uint64) {
	from := t.find(first)
	for c := from.chunk; c < len(t.chunks) && t.chunks[c][0].iova <= last; c++ {
		k := t.chunks[c]
		t.chunks[c] = slices.DeleteFunc(k, func(m mapping) bool {
			goes := m.iova >= first && m.last <= last
			if goes && m.mem == nil {
				t.messages--
			}
			return goes
		})
		t.n -= len(k) - len(t.chunks[c])
	}
	t.chunks = slices.DeleteFunc(t.chunks, func(k []mapping) bool { return len(k) == 0 })
}

// all returns every mapping in order.
func (t *table) all() []mapping { return slices.Concat(t.chunks...) }
