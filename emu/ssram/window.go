package ssram

import "sort"

// find returns the window a BAR2 offset lies in, or nil and where the hole ends.
func (m *Memory) find(off uint64) (*window, uint64) {
	i := sort.Search(len(m.windows), func(i int) bool { return m.windows[i].end > off })
	if i == len(m.windows) {
		return nil, uint64(len(m.words)) * 4
	}
	if w := &m.windows[i]; w.offset <= off {
		return w, w.end
	}
	return nil, m.windows[i].offset
}

// Mapped says whether the image has a memory at a BAR2 offset.
func (m *Memory) Mapped(off uint64) bool {
	w, _ := m.find(off)
	return w != nil
}

// Load32 returns the word at a BAR2 offset, rounded down to a multiple of 4. Holes read 0: nothing is ever stored there.
func (m *Memory) Load32(off uint64) uint32 {
	if off/4 >= uint64(len(m.words)) {
		return 0
	}
	return m.words[off/4]
}

// Store32 stores the word at a BAR2 offset; holes ignore it.
func (m *Memory) Store32(off uint64, v uint32) {
	if w, _ := m.find(off); w != nil {
		m.words[off/4] = v
		m.Dirty |= w.dirty
	}
}

// ReadAt copies bytes from a BAR2 offset on; what lies beyond BAR2 reads 0. off and len(p) are multiples of 4.
func (m *Memory) ReadAt(off uint64, p []byte) {
	size := uint64(len(m.words)) * 4
	n := 0
	if off < size {
		n = copy(p, bytesOf(m.words)[off:])
	}
	clear(p[n:])
}

// WriteAt copies bytes to a BAR2 offset; holes ignore them. off and len(p) are multiples of 4.
func (m *Memory) WriteAt(off uint64, p []byte) {
	m.span(off, uint64(len(p)), func(from, to uint64) {
		copy(bytesOf(m.words[from/4:to/4]), p[from-off:])
	})
}

// Clear stores zeros, and gives back what backed them where that is worth the call. off and n are multiples of 4.
func (m *Memory) Clear(off, n uint64) {
	m.span(off, n, func(from, to uint64) { zero(m.words[from/4 : to/4]) })
}

// Fill stores one word over and over. off and n are multiples of 4.
func (m *Memory) Fill(off, n uint64, v uint32) {
	m.span(off, n, func(from, to uint64) {
		for i := range m.words[from/4 : to/4] {
			m.words[from/4+uint64(i)] = v
		}
	})
}

// Reset clears everything.
func (m *Memory) Reset() { m.Clear(0, uint64(len(m.words))*4) }

// span calls store for every run of mapped bytes in a range of BAR2 and marks their memories dirty.
func (m *Memory) span(off, n uint64, store func(from, to uint64)) {
	size := uint64(len(m.words)) * 4
	if off >= size {
		return
	}
	for end := off + min(n, size-off); off < end; {
		w, next := m.find(off)
		next = min(next, end)
		if w != nil {
			m.Dirty |= w.dirty
			store(off, next)
		}
		off = next
	}
}

// Spans calls f for every run of mapped bytes in order of offset: the windows as the image has them.
func (m *Memory) Spans(f func(off, n uint64)) {
	for _, w := range m.windows {
		f(w.offset, w.end-w.offset)
	}
}
