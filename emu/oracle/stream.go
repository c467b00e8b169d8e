package oracle

import (
	"bytes"
	"slices"
)

// A stream is one direction's bytes as their sender sent them, by offset from the first byte. What the receiver has
// acknowledged is forgotten.
type stream struct {
	base  int64  // offset of data[0]
	data  []byte // meaningful where known says so
	known []span // in order, apart from each other
	// doubtful: the sender sent different bytes for the same place, so nothing can be said about them.
	doubtful bool
}

type span struct{ from, to int64 }

const (
	streamBytes = 32 << 20 // of a direction at most: more than any window
	streamTrim  = 256 << 10
)

// send takes bytes of the sender. It is false where they lie too far ahead.
func (t *stream) send(off int64, p []byte) bool {
	if below := t.base - off; below > 0 {
		if below >= int64(len(p)) {
			return true
		}
		off, p = t.base, p[below:]
	}
	end := off + int64(len(p))
	if end-t.base > streamBytes {
		return false
	}
	if n := int(end - t.base); n > len(t.data) {
		t.data = slices.Grow(t.data, n-len(t.data))[:n]
	}
	for _, k := range t.known {
		if from, to := max(k.from, off), min(k.to, end); from < to && !bytes.Equal(t.at(from, to), p[from-off:to-off]) {
			t.doubtful = true
		}
	}
	copy(t.at(off, end), p)
	t.add(span{off, end})
	return true
}

// sent is what is known from the first byte on without a gap.
func (t *stream) sent() []byte {
	if t.base != 0 || len(t.known) == 0 || t.known[0].from != 0 {
		return nil
	}
	return t.data[:t.known[0].to]
}

func (t *stream) at(from, to int64) []byte { return t.data[from-t.base : to-t.base] }

// add joins a span to those that are known.
func (t *stream) add(s span) {
	if s.from >= s.to {
		return
	}
	i := 0
	for i < len(t.known) && t.known[i].to < s.from {
		i++
	}
	j := i
	for ; j < len(t.known) && t.known[j].from <= s.to; j++ {
		s.from, s.to = min(s.from, t.known[j].from), max(s.to, t.known[j].to)
	}
	t.known = slices.Replace(t.known, i, j, s)
}

// compared says how bytes that arrived compare with those sent.
type compared uint8

const (
	same compared = iota
	different
	unsent // some were never sent
)

func (t *stream) compare(off int64, p []byte) compared {
	if below := t.base - off; below > 0 {
		p = p[min(below, int64(len(p))):]
		off = t.base
	}
	if len(p) == 0 || t.doubtful {
		return same
	}
	end := off + int64(len(p))
	for _, k := range t.known {
		if k.from <= off && end <= k.to {
			if bytes.Equal(t.at(off, end), p) {
				return same
			}
			return different
		}
	}
	return unsent
}

// forget drops what lies before an offset, now and then.
func (t *stream) forget(to int64) {
	if len(t.known) == 0 || t.known[0].from > t.base {
		return
	}
	to = min(to, t.known[0].to)
	if to-t.base < streamTrim {
		return
	}
	t.data = t.data[:copy(t.data, t.data[to-t.base:])]
	t.base = to
	if t.known[0].from = to; t.known[0].to == to {
		t.known = slices.Delete(t.known, 0, 1)
	}
}
