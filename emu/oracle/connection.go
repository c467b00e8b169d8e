package oracle

import (
	"bytes"
	"hash/fnv"
	"time"
)

// conn is a client's connection and the one to a server that carries it on. Everything is counted in offsets: the first
// byte of a direction is 0, its SYN is −1, whatever the sequence numbers are. Where the beginning of a client's stream is
// altered, the server's first byte is as many before 0 as were inserted, so that the rest has the same offsets on both
// wires.
type conn struct {
	key, leg       pair
	client, server half
	up, down       stream // to the server, to the client
	begin          beginning
	offer          options

	established      bool // the client has completed its handshake
	hasLeg, answered bool // a SYN went to a server; it answered
	refused          bool
	again            int  // SYN-ACKs of the server after the handshake: the card answers each with an ACK of its own
	armed            bool // the handshake with the server is complete
	armedAt          time.Duration
	own              bool  // the card answers by itself
	beyond           bool  // the ends have begun another through the card's translation: it is not followed
	reset            bool  // an RST was seen: nobody owes anything
	held             int64 // what was acknowledged to the client before the splice
	heldEdge         int64 // and what was promised
}

// beginning is what a server gets in place of a client's first bytes: those of offsets first to end.
type beginning struct {
	instead    []byte
	first, end int64
}

// split compares what lies in the altered beginning and returns the rest.
func (b *beginning) split(off int64, p []byte) (same bool, rest int64, left []byte) {
	n := min(max(b.end-off, 0), int64(len(p)))
	if n == 0 {
		return true, off, p
	}
	return off >= b.first && bytes.Equal(p[:n], b.instead[off-b.first:off-b.first+n]), off + n, p[n:]
}

// half is one wire's part of a connection: an end, and the card in the name of the other.
type half struct {
	endISN, cardISN     uint32
	endScale, cardScale uint8 // shifts of the windows that the end and the card tell
	endMSS, cardMSS     int
	sack, timestamps    bool

	endMax, cardMax     int64 // end of what was sent, FIN included
	endFIN, cardFIN     int64 // where it is, or −1
	endAck, cardAck     int64 // highest acknowledgement
	endEdge, cardEdge   int64 // right edge of the window promised
	endClock, cardClock clock
	endKinds            [4]uint64 // options that the end used

	first int64 // offset of the card's first byte

	odd     [128]image // segments of the end that broke the rules, a ring
	oddNext int
}

// image is what the card makes of such a segment, when it passes it on.
type image struct {
	seq, ack int64
	flags    uint8
	hash     uint64
	used     bool
}

func imageOf(seq, acked int64, s *segment) image {
	if s.flags&ack == 0 {
		acked = 0 // the field means nothing, and nobody translates it
	}
	h := fnv.New64a()
	_, _ = h.Write(s.data)
	return image{seq, acked, s.flags &^ psh, h.Sum64(), true}
}

func (h *half) begin(endISN, cardISN uint32) {
	h.endISN, h.cardISN, h.endFIN, h.cardFIN = endISN, cardISN, -1, -1
}

// startAt says where the card's stream begins.
func (h *half) startAt(first int64) { h.first, h.cardMax, h.endAck = first, first, first }

// synISN is the card's first sequence number.
func (h *half) synISN() uint32 { return h.cardISN + uint32(h.first) }

// agree takes what SYN and SYN-ACK have in common: offered by one and answered by the other, whoever was first.
func (h *half) agree(one, two *options) {
	h.sack = one.has(optionSACKOK) && two.has(optionSACKOK)
	h.timestamps = one.has(optionTimestamps) && two.has(optionTimestamps)
}

func (h *half) note(x image) {
	h.odd[h.oddNext%len(h.odd)] = x
	h.oddNext++
}

// offset finds the offset of a sequence number that lies near one that is known.
func offset(near int64, isn, seq uint32) int64 {
	return near + int64(int32(seq-(isn+1)-uint32(near)))
}

// over says whether both directions have ended and each end was told.
func (c *conn) over() bool {
	return c.reset || c.client.endFIN >= 0 && c.client.cardAck > c.client.endFIN && c.client.cardFIN >= 0 && c.client.endAck > c.client.cardFIN
}

// acknowledged is how many bytes of the card the end has acknowledged.
func (h *half) acknowledged() uint64 {
	n := h.endAck
	if h.cardFIN >= 0 {
		n = min(n, h.cardFIN)
	}
	return uint64(max(n-h.first, 0))
}

// clock follows the TSvals of one sender.
type clock struct {
	seen     bool
	min, max uint32
	dip      uint32 // by how much one was behind an earlier one, at most
}

func (c *clock) note(v uint32) {
	switch {
	case !c.seen:
		*c = clock{seen: true, min: v, max: v}
	case int32(v-c.max) > 0:
		c.max = v
	default:
		c.dip = max(c.dip, c.max-v)
		if int32(v-c.min) < 0 {
			c.min = v
		}
	}
}

// sent says whether an echo may be of this sender.
func (c *clock) sent(v uint32) bool { return c.seen && v-c.min <= c.max-c.min }

func (h *half) noteClock(s *segment) {
	if s.has(optionTimestamps) {
		h.endClock.note(s.val)
	}
}

// arrive takes a segment of an end.
func (o *Oracle) arrive(c *conn, h *half, s *segment) {
	off, acked := offset(h.endMax, h.endISN, s.seq), offset(h.cardMax, h.cardISN, s.ack)
	out := &c.up
	if h == &c.server {
		out = &c.down
	}
	end := off + s.length()
	for i := range h.endKinds {
		h.endKinds[i] |= s.kinds[i]
	}
	h.noteClock(s)
	if over := end - max(h.cardEdge, h.endMax); over > 1 && over < int64(len(s.data)) && s.flags&rst == 0 {
		// Its receiver may take what lies in the window; a card that passes it on passes all of it.
		h.note(imageOf(off, acked, s))
		t := *s
		t.data, t.flags = s.data[:int64(len(s.data))-over+int64(s.flags&fin)], s.flags&^fin
		s, end = &t, off+t.length()
	}
	odd := s.flags&rst != 0 || h.breaksRules(s, off, acked, end)
	switch {
	case odd || len(s.data) == 0:
	case end <= h.cardAck: // nothing new, as a keep-alive probe with a byte of anything
		odd = out.compare(off, s.data) == different
	default:
		odd = !out.send(off, s.data)
	}
	if odd {
		h.note(imageOf(off, acked, s))
		return
	}
	if s.flags&fin != 0 {
		h.endFIN = end - 1
	}
	if h == &c.client && acked >= 0 {
		c.established = true
	}
	h.endMax = max(h.endMax, end)
	h.endAck = max(h.endAck, acked)
	h.endEdge = max(h.endEdge, acked+s.window<<h.endScale)
	in := &c.down
	if h == &c.server {
		in = &c.up
	}
	in.forget(h.endAck)
}

// breaksRules says whether an end had no right to send a segment.
func (h *half) breaksRules(s *segment, off, acked, end int64) bool {
	const probe = 1 // a window probe is one byte beyond the window
	switch {
	case s.flags&(syn|ack) != ack:
		return true
	case off < -1, end > max(h.cardEdge, h.endMax)+probe:
		return true
	case acked < h.first, acked > h.cardMax:
		return true
	case h.endFIN >= 0 && (end > h.endFIN+1 || s.flags&fin != 0 && end != h.endFIN+1):
		return true
	case s.flags&fin != 0 && end < h.endMax:
		return true
	case s.has(optionTimestamps) != h.timestamps, h.timestamps && !h.cardClock.sent(s.echo):
		return true
	}
	return !h.blocksWithin(s, h.cardISN, h.first, h.cardMax)
}

// blocksWithin says whether the SACK blocks of a segment lie in what was sent.
func (h *half) blocksWithin(s *segment, isn uint32, from, sent int64) bool {
	if s.blockCount == 0 {
		return true
	}
	for _, b := range s.blocks[:s.blockCount] {
		left, right := offset(sent, isn, b[0]), offset(sent, isn, b[1])
		if left < from || right <= left || right > sent {
			return false
		}
	}
	return h.sack
}

// fault is a rule broken, and how.
type fault struct {
	kind   Kind
	detail string
	args   []any
	broken bool
}

func (f *fault) set(kind Kind, detail string, args ...int64) {
	if !f.broken {
		f.kind, f.detail, f.broken = kind, detail, true
		for _, a := range args {
			f.args = append(f.args, a)
		}
	}
}

// emit judges a segment that the card sends to the end of h; from is the end whose stream it carries.
func (o *Oracle) emit(c *conn, h, from *half, s *segment) {
	off, acked := offset(h.cardMax, h.cardISN, s.seq), offset(h.endMax, h.endISN, s.ack)
	in, toClient := &c.up, h == &c.client
	if toClient {
		in = &c.down
	}
	if s.flags&rst != 0 {
		if !c.over() {
			o.sum.Resets++
		}
		// One that its receiver does not take, and that an end sent, changes nothing.
		if x := imageOf(off, acked, s); off == h.endAck || off == h.cardMax || !from.has(&x) {
			c.reset = true
		}
		return
	}
	end, edge := off+s.length(), acked+s.window<<h.cardScale
	var f fault
	switch {
	case s.flags&ack == 0:
		f.set(Connection, "a segment without an ACK")
	case s.flags&syn != 0:
		if !toClient || off != -1 {
			f.set(Connection, "a SYN in the midst of a connection")
		}
		edge = acked + s.window
	}
	if toClient {
		o.judgeToClient(c, &f, acked, edge)
	} else {
		o.judgeToServer(c, &f, acked, edge)
	}
	if toClient && !c.armed && (len(s.data) > 0 || s.flags&fin != 0) {
		c.own = true
	}
	if !toClient || !c.own {
		o.judgeBytes(c, &f, from, h, in, s, off, end)
	}
	o.judgeWindow(c, &f, from, h, off, end)
	if s.flags&syn == 0 {
		o.judgeOptions(c, &f, from, h, s)
	}
	if f.broken && !toClient && c.again > 0 && s.flags == ack && len(s.data) == 0 && (f.kind == Promise || f.kind == Timestamp || f.kind == End) {
		// The answer to a SYN-ACK. Nobody takes anything from it, and the card may know no newer time and window of the
		// client's, nor whose a segment was that came beyond the client's FIN.
		c.again--
		return
	}
	if f.broken {
		x := imageOf(off, acked, s)
		// What acknowledges less than what is held goes on as if it acknowledged that.
		if from.has(&x) || toClient && acked == c.held && from.hasBut(&x) {
			o.sum.Images++
			return
		}
		o.violate(c, f.kind, f.detail, f.args...)
		return // it moves nothing, so that what follows is judged by what was right
	}
	if s.flags&fin != 0 {
		h.cardFIN = end - 1
	}
	h.cardMax = max(h.cardMax, end)
	h.cardAck = max(h.cardAck, acked)
	h.cardEdge = max(h.cardEdge, edge)
	if s.has(optionTimestamps) && off <= h.endEdge { // what lies beyond its window the end does not take the time of
		h.cardClock.note(s.val)
	}
}

// passes says whether a segment to the server is the image of one of the client's.
func (c *conn) passes(s *segment) bool {
	h := &c.server
	x := imageOf(offset(h.cardMax, h.cardISN, s.seq), offset(h.endMax, h.endISN, s.ack), s)
	return c.client.has(&x)
}

// hasBut is has whatever the acknowledgement.
func (h *half) hasBut(x *image) bool {
	for i := range h.odd {
		if y := h.odd[i]; y.used && y.seq == x.seq && y.hash == x.hash && y.flags == x.flags {
			return true
		}
	}
	return false
}

// reopens says whether a SYN-ACK to the client is that of the server, which has opened a connection anew that the card
// still translates.
func (c *conn) reopens(s *segment) bool {
	h := &c.client
	x := imageOf(offset(h.cardMax, h.cardISN, s.seq), offset(h.endMax, h.endISN, s.ack), s)
	return c.server.has(&x)
}

func (h *half) has(x *image) bool {
	for i := range h.odd {
		if h.odd[i] == *x {
			return true
		}
	}
	return false
}

// before says whether frames of this moment may have left before the splice.
func (o *Oracle) before(c *conn) bool { return !c.armed || o.now-c.armedAt <= o.cfg.Slack }

// judgeToClient: what is acknowledged and promised to the client is the server's, or the head buffer's. The server's
// window counts from the SYN-ACK on that completes its handshake: what the card makes of one may be seen on the client's
// wire first.
func (o *Oracle) judgeToClient(c *conn, f *fault, acked, edge int64) {
	if acked > c.client.endMax {
		f.set(Ack, "acknowledges %d, the client sent %d", acked, c.client.endMax)
	}
	if c.own {
		return
	}
	unit, has := int64(1)<<c.client.cardScale, c.heldEdge
	if c.answered {
		has = max(has, c.server.endEdge+unit)
	}
	if o.before(c) {
		head := int64(o.cfg.HeadBytes)
		if acked > head+1 {
			f.set(Ack, "acknowledges %d before the splice, the head buffer holds %d", acked, head)
		}
		if c.held = max(c.held, acked); edge <= head+unit {
			c.heldEdge = max(c.heldEdge, edge)
		} else if edge > has {
			f.set(Promise, "promises up to %d before the splice, the head buffer holds %d", edge, head)
		}
	}
	if !c.armed {
		return
	}
	if holds := max(c.held, c.server.endAck); acked > holds {
		f.set(Ack, "acknowledges %d, the server acknowledged %d, %d were held", acked, c.server.endAck, c.held)
	}
	if edge > max(has, c.heldEdge) {
		f.set(Promise, "promises up to %d, the server up to %d", edge, c.server.endEdge)
	}
}

// judgeToServer: what is acknowledged and promised to the server is the client's.
func (o *Oracle) judgeToServer(c *conn, f *fault, acked, edge int64) {
	if acked > c.server.endMax {
		f.set(Ack, "acknowledges %d, the server sent %d", acked, c.server.endMax)
	}
	if acked > max(0, c.client.endAck) {
		f.set(Ack, "acknowledges %d, the client acknowledged %d", acked, c.client.endAck)
	}
	if edge > c.client.endEdge+int64(1)<<c.server.cardScale {
		f.set(Promise, "promises up to %d, the client up to %d", edge, c.client.endEdge)
	}
}

// judgeBytes: what arrives is what was sent.
func (o *Oracle) judgeBytes(c *conn, f *fault, from, h *half, in *stream, s *segment, off, end int64) {
	rest, data, as := off, s.data, true
	if in == &c.up {
		as, rest, data = c.begin.split(off, s.data)
	}
	got := different
	if as {
		got = in.compare(rest, data)
	}
	switch got {
	case different:
		f.set(Bytes, "bytes %d to %d differ from what was sent", off, off+int64(len(s.data)))
	case unsent:
		f.set(Bytes, "bytes %d to %d were never sent; the sender is at %d", off, off+int64(len(s.data)), from.endMax)
	}
	if off < h.first-1 {
		f.set(Connection, "sequence number %d before the first", off)
	}
	if s.flags&fin != 0 && from.endFIN != end-1 {
		f.set(End, "a FIN at %d, its sender's is at %d", end-1, from.endFIN)
	}
	if h.cardFIN >= 0 && end > h.cardFIN+1 {
		f.set(End, "a segment up to %d, behind the FIN at %d", end, h.cardFIN)
	}
	if off > from.endMax {
		f.set(Bytes, "sequence number %d, the sender is at %d", off, from.endMax)
	}
}

// judgeWindow: the receiver takes it. One unit of the promised scale is allowed, for a shift that is smaller there, and a
// byte that probes a closed window. What the client may send before the splice may turn out to be more than its server
// takes; but of held bytes the card has no more to send than the server wants.
func (o *Oracle) judgeWindow(c *conn, f *fault, from, h *half, off, end int64) {
	limit := h.endEdge + int64(1)<<from.cardScale + 1
	if h == &c.server && end > c.held {
		limit = max(limit, c.heldEdge+1)
	}
	if off < end && end > limit+1 { // a FIN has no place in the window's bytes
		f.set(Window, "a segment up to %d, the window ends at %d", end, h.endEdge)
	}
}

// judgeOptions: only what was negotiated, and what was negotiated.
func (o *Oracle) judgeOptions(c *conn, f *fault, from, h *half, s *segment) {
	if n := len(s.data); !o.cfg.Coalesced && n > h.endMSS && from.cardMSS >= n {
		f.set(Size, "%d bytes of payload, the receiver's MSS is %d", int64(n), int64(h.endMSS))
	}
	for i, kinds := range s.kinds {
		if i == 0 {
			kinds &^= 1<<optionSACK | 1<<optionTimestamps
		}
		if extra := kinds &^ from.endKinds[i]; extra != 0 {
			f.set(Option, "an option that nobody sent: %#x from kind %d on", int64(extra), int64(64*i))
		}
	}
	if s.blockCount > 0 {
		if !h.sack {
			f.set(Option, "SACK was not negotiated")
		} else if !h.blocksWithin(s, h.endISN, 0, h.endMax) {
			f.set(Sack, "a block outside what was sent, 0 to %d", h.endMax)
		}
	}
	if s.has(optionTimestamps) != h.timestamps {
		f.set(Option, "timestamps: in the segment %d, negotiated %d", number(s.has(optionTimestamps)), number(h.timestamps))
	}
	if !h.timestamps || !s.has(optionTimestamps) {
		return
	}
	if k := &h.cardClock; k.seen && int32(k.max-s.val) > 0 && k.max-s.val > from.endClock.dip {
		f.set(Timestamp, "TSval %d after %d", int64(s.val), int64(k.max))
	}
	if !h.endClock.sent(s.echo) {
		f.set(Timestamp, "echoes TSval %d; the receiver sent %d to %d", int64(s.echo), int64(h.endClock.min), int64(h.endClock.max))
	}
}

func number(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// checkAnswer looks at the SYN-ACK that begins a client's connection.
func (o *Oracle) checkAnswer(c *conn, offer *options, s *segment) {
	for i := range s.kinds {
		answer := s.kinds[i]
		if i == 0 {
			answer &^= 1 << optionMSS
		}
		if answer&^offer.kinds[i] != 0 {
			o.violate(c, Option, "answers options that were not offered: %#x", answer&^offer.kinds[i])
		}
	}
	h := &c.client
	if offer.has(optionScale) && s.has(optionScale) {
		h.endScale, h.cardScale = offer.scale, s.scale
	}
	h.endMSS, h.cardMSS = announced(offer, c.key), announced(&s.options, c.key)
	if s.window > int64(o.cfg.HeadBytes)+1 {
		o.violate(c, Promise, "the SYN-ACK promises %d bytes, the head buffer holds %d", s.window, o.cfg.HeadBytes)
	}
	h.cardEdge, c.heldEdge = s.window, s.window
	if s.has(optionTimestamps) {
		h.cardClock.note(s.val)
		if !h.endClock.sent(s.echo) {
			o.violate(c, Timestamp, "the SYN-ACK echoes TSval %d, the SYN had %d", s.echo, h.endClock.max)
		}
	}
}

// announced is the MSS of a SYN, or the default.
func announced(o *options, k pair) int {
	switch {
	case o.has(optionMSS):
		return o.mss
	case k.from.Addr().Is4():
		return 536
	}
	return 1220
}

// checkSyn looks at a SYN toward a server.
func (o *Oracle) checkSyn(c *conn, s *segment) {
	c.offer = s.options
	h := &c.server
	if s.window > max(c.client.endEdge, 0) {
		o.violate(c, Promise, "the SYN promises %d bytes, the client %d", s.window, c.client.endEdge)
	}
	h.cardEdge = s.window
	if s.has(optionTimestamps) {
		if !c.client.endClock.sent(s.val) && !h.cardClock.seen {
			o.violate(c, Timestamp, "the SYN has TSval %d, the client sent %d to %d", s.val, c.client.endClock.min, c.client.endClock.max)
		}
		h.cardClock.note(s.val)
	}
}

// serverAnswers takes the SYN-ACK of a server.
func (c *conn) serverAnswers(s *segment) {
	h := &c.server
	h.begin(s.seq, s.ack-1-uint32(h.first))
	h.agree(&c.offer, &s.options)
	if c.offer.has(optionScale) && s.has(optionScale) {
		h.endScale, h.cardScale = s.scale, c.offer.scale
	}
	h.endMSS, h.cardMSS = announced(&s.options, c.key), announced(&c.offer, c.key)
	h.endEdge = h.first + s.window
	h.noteClock(s)
	c.answered = true
}
