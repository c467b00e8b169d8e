package module

import (
	"bytes"
	"slices"
)

// Bounds of a Stream.
const (
	maxLine    = 4096 // bytes of a line that is read; a longer one goes on unread
	maxAltered = 8    // lines that are remembered as they went on
	maxAgain   = 3    // times that a part of a line may come again and find nothing new before it goes on as it is
)

// An Outcome is what became of an adjustment.
type Outcome uint8

// The outcomes.
const (
	Done Outcome = iota
	Wait         // the receiver does not have all before the last one yet: what is altered comes again later
	Lost         // the connection takes none
)

// An Owner is who a Stream's lines belong to.
type Owner interface {
	Reader
	// Adjust makes the stream longer by a number of bytes from a sequence number on.
	Adjust(boundary uint32, by int32) Outcome
	// Apply acts on a verdict, before anything of its line goes on. v.Replace is nil where the line goes on as it is.
	Apply(v *Verdict)
}

// Tally counts what Streams met.
type Tally struct {
	Gaps  uint64 // segments behind one that is missing; dropped, they come again
	Held  uint64 // segments that brought nothing to go on with
	Waits uint64 // alterations put off until the receiver has all before the last one
	Long  uint64 // lines too long to read
	Late  uint64 // lines that should have been altered, and had gone on in part, or could not be
}

// A Stream is one direction of a connection. Sequence numbers are its sender's. Make one with NewStream.
type Stream struct {
	dir   Direction
	next  uint32 // behind the last byte that came in order
	sent  uint32 // behind the last byte that went on: next, or where the line begins
	line  []byte // the bytes before next of a line whose end is not there yet
	skip  bool   // that line is not read
	off   bool
	again int

	altered []altered // in order
	parked  parked
	tally   *Tally
}

// altered is a line that went on in another form.
type altered struct {
	at, end uint32
	text    []byte
}

// parked is a verdict that waits for its line to come again.
type parked struct {
	at   uint32
	line []byte
	v    Verdict
}

// A Piece is what goes on as one segment. Its bytes are valid until the next call.
type Piece struct {
	Seq  uint32 // as its sender counts
	Text []byte
}

// NewStream returns a stream whose next byte is that of a sequence number. whole says that a line begins there.
func NewStream(dir Direction, next uint32, whole bool, tally *Tally) *Stream {
	return &Stream{dir: dir, next: next, sent: next, skip: !whole, tally: tally}
}

// Stop ends the reading. What was altered stays so.
func (s *Stream) Stop() { s.off = true }

// behind is how far a lies behind b.
func behind(a, b uint32) int { return int(int32(a - b)) }

// Segment takes the payload of a segment and returns what goes on. fin says that nothing follows.
func (s *Stream) Segment(seq uint32, text []byte, fin bool, o Owner) []Piece {
	end := seq + uint32(len(text))
	if s.off {
		return s.pieces(seq, text, end)
	}
	if behind(seq, s.next) > 0 {
		s.tally.Gaps++
		return nil
	}
	base, all := seq, text
	if behind(seq, s.sent) > 0 { // what is held of the line comes first
		base, all = s.sent, append(slices.Clone(s.line[:seq-s.sent]), text...)
	}
	limit := s.sent
	if fresh := behind(end, s.next); fresh > 0 {
		s.again = 0
		limit = s.take(text[len(text)-fresh:], fin, o)
	} else if s.sent != s.next {
		if s.again++; s.again >= maxAgain || fin { // its sender has no more, or waits for what it sent
			base, all, limit, s.skip = s.sent, slices.Clone(s.line), s.next, true
			s.line = s.line[:0]
			s.tally.Late++
		}
	}
	if behind(limit, s.sent) > 0 {
		s.sent = limit
	} else if behind(limit, end) > 0 {
		limit = end // an old one again
	}
	if behind(limit, base) <= 0 {
		s.tally.Held++
		return nil
	}
	return s.pieces(base, all, limit)
}

// take reads fresh bytes and returns up to where the stream may go on.
func (s *Stream) take(fresh []byte, fin bool, o Owner) (limit uint32) {
	for len(fresh) > 0 {
		n := bytes.IndexByte(fresh, '\n') + 1
		whole := n > 0
		if !whole {
			n = len(fresh)
		}
		if !s.skip && len(s.line)+n > maxLine {
			s.tally.Long++
			s.skip, s.line = true, s.line[:0]
		}
		if !s.skip {
			s.line = append(s.line, fresh[:n]...)
		}
		s.next += uint32(n)
		fresh = fresh[n:]
		if !whole {
			break
		}
		if !s.skip && !s.read(o) {
			return s.next
		}
		s.skip, s.line = false, s.line[:0]
		if s.off {
			s.next += uint32(len(fresh))
			return s.next
		}
	}
	at := s.next - uint32(len(s.line))
	if len(s.line) > 0 && !s.skip && !fin && behind(s.sent, at) <= 0 && o.Holds(s.dir, s.line) {
		return at
	}
	return s.next
}

// read reads the line that is there; false where it has to come again.
func (s *Stream) read(o Owner) bool {
	at := s.next - uint32(len(s.line))
	v := s.parked.v
	if s.parked.line == nil || s.parked.at != at || !bytes.Equal(s.parked.line, s.line) {
		v = o.Read(s.dir, s.line)
	}
	s.parked = parked{}
	if bytes.Equal(v.Replace, s.line) {
		v.Replace = nil
	}
	if v.Replace != nil && behind(s.sent, at) > 0 {
		s.tally.Late++
		v.Replace = nil
	}
	if by := int32(len(v.Replace) - len(s.line)); v.Replace != nil && by != 0 {
		switch o.Adjust(s.next, by) {
		case Wait:
			s.tally.Waits++
			s.parked = parked{at, slices.Clone(s.line), v}
			s.next, s.line = at, s.line[:0]
			return false
		case Lost:
			s.tally.Late++
			v.Replace = nil
		default:
			s.altered = s.altered[:0] // the receiver has all before
		}
	}
	if v.Replace != nil {
		if len(s.altered) == maxAltered {
			s.altered = slices.Delete(s.altered, 0, 1)
		}
		s.altered = append(s.altered, altered{at, s.next, v.Replace})
	}
	s.off = s.off || v.Off
	o.Apply(&v)
	return true
}

// pieces are the bytes from base up to limit as they go on.
func (s *Stream) pieces(base uint32, all []byte, limit uint32) (list []Piece) {
	for at := base; behind(limit, at) > 0; {
		end := limit
		var r *altered
		for i := range s.altered {
			if x := &s.altered[i]; behind(x.end, at) > 0 && behind(limit, x.at) > 0 {
				r = x
				break
			}
		}
		switch {
		case r != nil && behind(r.at, at) <= 0:
			list = append(list, Piece{r.at, r.text})
			at = r.end
			continue
		case r != nil:
			end = r.at
		}
		list = append(list, Piece{at, all[at-base : end-base]})
		at = end
	}
	return list
}
