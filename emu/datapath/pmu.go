package datapath

import (
	"encoding/binary"
	"math/bits"

	"splicenic/emu/frame"
	"splicenic/regs"
)

// legWords is how many words leg set B lies behind leg set A.
const legWords = regs.PageBIndex - regs.PageAIndex

// minusOne is −1 in one's complement: 2^32 is congruent to one, so a carry out of a 32-bit addition takes one away.
const minusOne = 0xfffe

// differences computes the ready checksum differences of leg set A: addresses, ports and both deltas.
func (c *Core) differences(w *page) uint32 {
	e := c.serverEnds(w, 0)
	vip, who := c.vip(regs.PageIndexVip(w[regs.PageIndex])), address(w[regs.PageClientAddress:])
	client := sumAddress(&who) + sumAddress(&vip) + frame.Word(w[regs.PagePorts])
	leg := sumAddress(&e.src) + sumAddress(&e.dst) + uint64(e.sport) + uint64(e.dport)
	dc, ds := w[regs.PageADeltaClient], w[regs.PageADeltaServer]
	toServer := frame.Fold(uint64(frame.Difference(client, leg)) + frame.Word(dc) + frame.Word(-ds))
	toClient := frame.Fold(uint64(frame.Difference(leg, client)) + frame.Word(ds) + frame.Word(-dc))
	return uint32(toServer) | uint32(toClient)<<regs.PageAChecksumServerShift
}

// serverPort is the port that a server is reached at.
func (c *Core) serverPort(s []uint32, w *page) uint32 {
	if regs.ServerTunnelAnyPort(s[regs.ServerTunnel]) != 0 {
		return regs.PagePortsVip(ld(w, regs.PagePorts))
	}
	return regs.ServerControlPort(s[regs.ServerControl])
}

func sumAddress(a *address) uint64 {
	return frame.Word(a[0]) + frame.Word(a[1]) + frame.Word(a[2]) + frame.Word(a[3])
}

// forward translates a segment of a spliced connection and passes it on.
func (c *Core) forward(p *packet, w *page, v Verdict, out *Output) {
	ttl := p.b[p.ip+8]
	if p.kind == kindIPv6 {
		ttl = p.b[p.ip+7]
	}
	if ttl <= 1 {
		p.reason = reasonTTL
		c.exception(p, p.handle)
		return
	}
	if p.length != 0 && modular(ld(w, regs.PageControl)) && !c.asked.done {
		c.toModule(p)
		return
	}
	if p.passed {
		c.passOn(p, w, v, out)
		return
	}
	if p.side == ClientSide {
		c.toServer(p, w, v, out)
		return
	}
	c.toClient(p, w, v, out)
}

// rewrite is what the two directions share: where the new values of a segment come from.
type rewrite struct {
	addSeq, addAck uint32 // added to seq, ack and SACK edges
	addVal, addEcr uint32 // added to TSval and TSecr
	difference     uint64 // ready checksum difference
	shift          int32  // of the window field, left is positive
	sack           bool
	timestamps     bool
	dropSACK       bool   // SACK blocks concern held bytes
	setAck         bool   // ack is not translated but set
	ack            uint32 // the value it is set to
	less           uint32 // taken off the window field before it is shifted
	edges          edges  // of SACK blocks, where the host altered a stream
}

func (c *Core) toServer(p *packet, w *page, v Verdict, out *Output) {
	control := ld(w, regs.PageControl)
	end := p.seq + p.length
	if p.flags&(flagFIN|flagSYN) != 0 {
		end++
	}
	if modular(control) {
		end = stretchedEnd(p, w, end-p.seq)
	}
	leg := clientLeg(p, w, control)
	scale := ld(w, regs.PageAScale+leg)
	taken := takes(p, w, leg, scale, p.seq, end, p.ack)
	goes := end // of what goes on
	if ld(w, regs.PageClientLink)&regs.PageClientLinkLastRequestMask != 0 {
		if v = c.lastRequest(p, w, leg, v, end, taken, out); v == VerdictDrop {
			return
		}
		if goes = p.seq + p.length; p.flags&flagFIN != 0 {
			goes++
		}
	}
	if control&regs.PageControlHeldMask != 0 {
		if taken {
			clientClock(p, w, scale)
		}
		if !c.aboveHeld(p, w, goes, taken, out) {
			return
		}
	}
	if scale&regs.PageAScaleArmedMask == 0 {
		c.count(regs.ConnectionDropState)
		return
	}
	index := ld(w, regs.PageAIndex+leg)
	s := c.server(regs.PageAIndexServer(index))
	hop := c.hop(s)
	if hop == nil || hop[regs.NextHopControl]&regs.NextHopControlResolvedMask == 0 {
		c.count(regs.ConnectionDropNextHop)
		return
	}
	if !c.fits(p, c.clientMTU(uint32(p.kind), s, hop)) {
		return
	}
	x := rewrite{
		addSeq: ld(w, regs.PageADeltaClient+leg), addAck: -ld(w, regs.PageADeltaServer+leg),
		difference: uint64(regs.PageAChecksumClient(ld(w, regs.PageAChecksum+leg))),
		shift:      int32(regs.PageAScaleClient(scale)<<27) >> 27,
		sack:       scale&regs.PageAScaleSackMask != 0, timestamps: scale&regs.PageAScaleTimestampsMask != 0,
	}
	if x.timestamps {
		x.addVal, x.addEcr = ld(w, regs.PageATimestampClient+leg), -ld(w, regs.PageATimestampServer+leg)
	}
	if modular(control) {
		c.stretch(p, w, &x)
	}
	if v == VerdictTranslateRST && control&regs.PageControlHeldMask != 0 {
		if has := ld(w, regs.PageAAckServer+leg); has != p.seq { // the client's RST is beyond what the server has
			c.resetServer(w, leg, has+x.addSeq, out)
		}
	}
	if scale&regs.PageAScaleEcnMask == 0 && p.marked() {
		x.difference += c.clearECN(p)
	}
	if p.passed && p.flags&flagSYN != 0 {
		x.difference += clampMSS(p, c.bothMSS(uint32(p.port), p.kind, s, hop))
	}
	window := p.window()
	c.translate(p, &x)
	t := p.b[p.tcp:]
	local := ld(w, regs.PageALocal+leg)
	if regs.PageAIndexAnswers(index) != answersVIP {
		binary.BigEndian.PutUint16(t, uint16(regs.PageALocalPort(local)))
		binary.BigEndian.PutUint16(t[2:], uint16(c.serverPort(s, w)))
	}
	if !c.readdressServer(p, w, index, s) {
		return
	}
	if p.f.Offload.GSOType != frame.GSONone {
		c.finishOffload(p, regs.PageALocalMss(local), pathMTU(hop))
	}

	c.tally(p, w, regs.PagePacketsClient, regs.PageBytesClient)
	switch {
	case !taken:
	case control&regs.PageControlHeldMask != 0:
		markHeld(p, w, end, p.ack, window)
	default:
		mark(p, w, leg, end, p.ack, window)
	}
	c.transmitted[ClientSide] += 1
	if State(regs.PageControlState(control)) == Quarantine && regs.PageAIndexAnswers(index) == answersLocal && x.timestamps {
		c.restingClock(p, w, x.addVal)
	}
	if regs.PageAIndexAnswers(index) == answersVIP {
		c.wrap(p, s, hop, out)
	} else {
		c.emitHop(p, hop, out)
	}
	c.closing(p, w, v, control, leg, end, taken)
}

func (c *Core) toClient(p *packet, w *page, v Verdict, out *Output) {
	control := ld(w, regs.PageControl)
	leg := 0
	if p.legB {
		leg = legWords
	}
	scale := ld(w, regs.PageAScale+leg)
	if scale&regs.PageAScaleArmedMask == 0 {
		c.count(regs.ConnectionDropState)
		return
	}
	kind := regs.PageControlKind(control)
	if !c.fits(p, crossMTU(uint32(p.kind), kind, c.mtu(regs.PageControlPort(control)))) {
		return
	}
	x := rewrite{
		addSeq: ld(w, regs.PageADeltaServer+leg), addAck: -ld(w, regs.PageADeltaClient+leg),
		difference: uint64(regs.PageAChecksumServer(ld(w, regs.PageAChecksum+leg))),
		shift:      int32(regs.PageAScaleServer(scale)<<27) >> 27,
		sack:       scale&regs.PageAScaleSackMask != 0, timestamps: scale&regs.PageAScaleTimestampsMask != 0,
	}
	if modular(control) {
		c.stretch(p, w, &x)
	}
	seq, ack := p.seq+x.addSeq, p.ack+x.addAck
	end := seq + p.length
	if p.flags&(flagFIN|flagSYN) != 0 {
		end++
	}
	taken := takes(p, w, leg, scale, seq, end, ack)
	marked := ack
	if control&regs.PageControlHeldMask != 0 && p.flags&flagACK != 0 {
		if taken && int32(ack-ld(w, regs.PageAAckServer)) > 0 {
			taken = c.heldSent(w, ack)
		}
		switch {
		case taken && c.heldAcked(p, w, end, ack, out):
			control &^= regs.PageControlHeldMask
		case p.segment == ACK:
			c.count(regs.ConnectionDropHeldAck)
			return
		default:
			held := ld(w, regs.PageHeldBoundary)
			x.setAck, x.ack, x.dropSACK, x.less = true, held, true, windowBelow(held-ack, scale)
			ack = held // what the client is told; our mark is what the server said
		}
	}
	if x.timestamps {
		x.addVal, x.addEcr = ld(w, regs.PageATimestampServer+leg), -ld(w, regs.PageATimestampClient+leg)
	}
	if scale&regs.PageAScaleEcnMask == 0 && p.marked() {
		x.difference += c.clearECN(p)
	}
	if p.passed && p.flags&flagSYN != 0 {
		x.difference += c.clampToClient(p, w)
	}
	window := p.window()
	c.translate(p, &x)
	t := p.b[p.tcp:]
	ports := ld(w, regs.PagePorts)
	binary.BigEndian.PutUint16(t, uint16(regs.PagePortsVip(ports)))
	binary.BigEndian.PutUint16(t[2:], uint16(regs.PagePortsClient(ports)))
	alien := p.local || uint32(p.kind) != kind
	if !c.readdressClient(p, w, uint8(kind)) {
		return
	}
	if p.f.Offload.GSOType != frame.GSONone {
		mss := uint32(anyMTU)
		if !alien { // its server keeps to what it was told, and the client's address takes the word's place
			mss = regs.PageOfferMss(ld(w, regs.PageOffer))
		}
		c.finishOffload(p, mss, anyMTU)
	}

	first := p.length != 0 && ld(w, regs.PageBytesServer) == 0 && State(regs.PageControlState(control)) != Quarantine
	c.tally(p, w, regs.PagePacketsServer, regs.PageBytesServer)
	if first {
		c.firstByteEvent(p, w)
	}
	switch {
	case !taken:
	case control&regs.PageControlHeldMask != 0:
		markHeld(p, w, end, marked, window)
		if x.timestamps {
			serverClock(p, w)
		}
	default:
		mark(p, w, leg, end, marked, window)
	}
	c.transmitted[ServerSide] += 1
	link := ld(w, regs.PageClientLink)
	c.emit(p, regs.PageControlPort(control), link&regs.PageClientLinkTaggedMask != 0, regs.PageClientLinkVlan(link), ld(w, regs.PageClientMacLo), regs.PageClientMacHiAddress(ld(w, regs.PageClientMacHi)), out)
	p.seq, p.ack = seq, ack
	c.closing(p, w, v, control, leg, end, taken)
}

// clientClock and serverClock follow the clocks of both ends while bytes are held, so that what this card still sends in
// an end's place is never older than what that end sent last (RFC 7323, 5.3).
func clientClock(p *packet, w *page, scale uint32) {
	if scale&regs.PageAScaleTimestampsMask == 0 {
		return
	}
	if o := p.options(); o.timestamps && int32(o.tsval-ld(w, regs.PageClientTimestamp)) > 0 {
		st(w, regs.PageClientTimestamp, o.tsval)
	}
}

// restingClock is clientClock for a translated segment: a local port that is given back remembers what went to its server.
func (c *Core) restingClock(p *packet, w *page, delta uint32) {
	o := readOptions(p.b[p.tcp+20 : p.payload])
	if val := o.tsval - delta; o.timestamps && int32(val-ld(w, regs.PageClientTimestamp)) > 0 {
		st(w, regs.PageClientTimestamp, val)
	}
}

// serverClock reads a translated segment.
func serverClock(p *packet, w *page) {
	if o := p.options(); o.timestamps && int32(o.tsval-ld(w, regs.PageTimestampBase)) > 0 {
		st(w, regs.PageTimestampBase, o.tsval)
	}
}

// tally notes a translated segment in the timer mark and the page's counters. The one in 4 GiB that carries into the
// upper byte counters leaves the mark as the segment before it set it, so that no packet writes more than eight words.
func (c *Core) tally(p *packet, w *page, packets, bytes int) {
	st(w, packets, ld(w, packets)+p.segs)
	if p.length != 0 && c.addBytes(w, bytes, p.length) {
		return
	}
	st(w, regs.PageLastSeen, c.tick)
}

// aboveHeld says whether a client segment may pass while bytes below H are held. A RST may. What else lies wholly below is answered
// with an ACK; what crosses H waits for the server to reach H.
func (c *Core) aboveHeld(p *packet, w *page, end uint32, taken bool, out *Output) bool {
	held := ld(w, regs.PageHeldBoundary)
	if int32(p.seq-held) >= 0 || p.segment == RST {
		return true
	}
	if taken {
		markHeld(p, w, end, p.ack, p.window())
	}
	if int32(end-held) > 0 {
		c.count(regs.ConnectionDropStraddlesHeld)
		return false
	}
	if c.outOfPlace(w, regs.ConnectionDropBelowHeld) {
		c.ackClient(w, out)
	}
	return false
}

// translate rewrites the TCP header: seq, ack, window, options, and the checksum by difference. Ports and addresses,
// whose share is in the ready difference, are the caller's.
func (c *Core) translate(p *packet, x *rewrite) {
	t := p.b[p.tcp:p.payload:p.payload]
	d := x.difference
	var carries uint64

	seq, carry := bits.Add32(p.seq, x.addSeq, 0)
	binary.BigEndian.PutUint32(t[4:], seq)
	carries += uint64(carry)

	switch {
	case p.flags&flagACK == 0: // the ready difference counts on an acknowledgement
		d += uint64(^frame.Fold(frame.Word(x.addAck)))
	case x.setAck:
		binary.BigEndian.PutUint32(t[8:], x.ack)
		d += uint64(^frame.Fold(frame.Word(x.addAck))) + uint64(frame.Difference(frame.Word(p.ack), frame.Word(x.ack)))
	default:
		ack, carry := bits.Add32(p.ack, x.addAck, 0)
		binary.BigEndian.PutUint32(t[8:], ack)
		carries += uint64(carry)
	}
	if x.shift|int32(x.less) != 0 && p.flags&flagSYN == 0 {
		d += c.rescale(t, x.shift, x.less)
	}
	if len(t) > 20 {
		od, oc := c.translateOptions(t, x)
		d += od
		carries += oc
	}
	d += carries * minusOne
	if carries != 0 {
		c.carries += carries
	}
	if p.f.Offload.GSOType == frame.GSONone {
		binary.BigEndian.PutUint16(t[16:], frame.Update(binary.BigEndian.Uint16(t[16:]), d))
	}
}

// rescale takes less off the window field, shifts it and returns the checksum's difference.
func (c *Core) rescale(t []byte, shift int32, less uint32) uint64 {
	old := uint32(binary.BigEndian.Uint16(t[14:]))
	left := old - min(old, less)
	v := shiftWindow(left, shift)
	switch {
	case shift > 0 && left<<shift > 0xffff:
		c.count(regs.PmuWindowClamped)
	case shift < 0 && v<<-shift != left:
		c.count(regs.PmuWindowRounded)
	}
	binary.BigEndian.PutUint16(t[14:], uint16(v))
	return uint64(frame.Difference(uint64(old), uint64(v)))
}

// windowBelow is how much of a server's window field the held bytes take that it has not acknowledged: an
// acknowledgement of H in place of a smaller one must not move the window's right edge.
func windowBelow(bytes, scale uint32) uint32 {
	shift := regs.PageAScaleServerWscale(scale)
	return (bytes + 1<<shift - 1) >> shift
}

// shiftWindow rescales a window field exactly where it can: a left shift clamps at 65,535, a right shift rounds up, so
// that a window that is not zero stays so.
func shiftWindow(v uint32, shift int32) uint32 {
	if shift >= 0 {
		return min(v<<shift, 0xffff)
	}
	return (v + 1<<-shift - 1) >> -shift
}

// translateOptions shifts timestamps and SACK edges. It returns the checksum's difference and the carries to take off.
func (c *Core) translateOptions(t []byte, x *rewrite) (d, carries uint64) {
	if len(t) == 32 && binary.BigEndian.Uint32(t[20:]) == 0x0101080a { // the common layout: NOP, NOP, timestamps
		if x.timestamps {
			d, carries = shiftTimestamps(t, 24, x)
			c.timestamps++
		}
		return d, carries
	}
	for at := 20; at < len(t) && t[at] != 0; {
		if t[at] == 1 {
			at++
			continue
		}
		if at+1 >= len(t) {
			return d, carries
		}
		n := int(t[at+1])
		if n < 2 || at+n > len(t) {
			return d, carries
		}
		var od, oc uint64
		switch {
		case t[at] == 8 && n == 10 && x.timestamps:
			od, oc = shiftTimestamps(t, at+2, x)
			c.timestamps++
		case t[at] == 5 && (!x.sack || x.dropSACK):
			od = removeOption(t, at, n)
			c.count(regs.PmuSackRemoved)
		case t[at] == 5 && n >= 10 && n <= 34 && n%8 == 2:
			for edge := at + 2; edge < at+n; edge += 8 {
				ed, ec := x.shiftBlock(t, edge)
				od, oc = od+ed, oc+ec
			}
			c.sackBlocks += uint64(n-2) / 8
		}
		d, carries = d+od, carries+oc
		at += n
	}
	return d, carries
}

func shiftTimestamps(t []byte, at int, x *rewrite) (d, carries uint64) {
	d, carries = shift32(t, at, x.addVal)
	if binary.BigEndian.Uint32(t[at+4:]) == 0 { // no echo: there is nothing to translate (RFC 7323, 3.2)
		return d, carries
	}
	ed, ec := shift32(t, at+4, x.addEcr)
	return d + ed, carries + ec
}

// shift32 adds to a 32-bit number of a header. At an odd offset its bytes count swapped in the checksum, and so does the
// one of a carry.
func shift32(t []byte, at int, add uint32) (d, carries uint64) {
	v, carry := bits.Add32(binary.BigEndian.Uint32(t[at:]), add, 0)
	binary.BigEndian.PutUint32(t[at:], v)
	if at&1 == 0 {
		return frame.Word(add), uint64(carry)
	}
	s := frame.Fold(frame.Word(add) + uint64(carry)*minusOne)
	return uint64(bits.ReverseBytes16(s)), 0
}

// shiftBlock shifts both edges of a SACK block.
func (x *rewrite) shiftBlock(t []byte, at int) (d, carries uint64) {
	if x.edges.on {
		return x.edges.stretchBlock(t, at)
	}
	d, carries = shift32(t, at, x.addAck)
	e, more := shift32(t, at+4, x.addAck)
	return d + e, carries + more
}

// removeOption turns an option into NOPs.
func removeOption(t []byte, at, n int) uint64 {
	before := frame.Sum(t[at&^1:min((at+n+1)&^1, len(t))], 0)
	for i := range n {
		t[at+i] = 1
	}
	return uint64(frame.Difference(before, frame.Sum(t[at&^1:min((at+n+1)&^1, len(t))], 0)))
}

// finishIPv4 takes one hop off and completes the header checksum after an address changed.
func (c *Core) finishIPv4(p *packet) {
	ip := p.b[p.ip : p.ip+20 : p.ip+20]
	hop := binary.BigEndian.Uint32(ip[8:])&0xffff0000 - 1<<24 // TTL and protocol, no checksum yet
	sum := uint64(binary.BigEndian.Uint32(ip)) + uint64(binary.BigEndian.Uint32(ip[4:])) + uint64(hop) +
		uint64(binary.BigEndian.Uint32(ip[12:])) + uint64(binary.BigEndian.Uint32(ip[16:]))
	binary.BigEndian.PutUint32(ip[8:], hop|uint32(^frame.Fold(sum)))
}

// fits says whether a segment may go on to a network of that MTU, before anything of it is changed. A coalesced one is
// cut at the port anyway. One that its sender lets be fragmented is made into such a frame: TCP segments arrive where
// fragments may not. Any other goes to the host, which tells the sender (RFC 1191, RFC 8201). What the host cuts fits
// always.
func (c *Core) fits(p *packet, mtu uint32) bool {
	if c.asked.back {
		return true
	}
	if p.class == classUDP && p.end-p.ip > mtu {
		p.reason, p.mtu = reasonTooBig, mtu
		c.exception(p, p.handle)
		return false
	}
	if p.end-p.ip <= mtu || p.f.Offload.GSOType != frame.GSONone {
		return true
	}
	room := int32(mtu - (p.payload - p.ip))
	if p.kind == kindIPv6 || p.b[p.ip+6]&dontFragment != 0 || p.flags&(flagSYN|flagRST|flagURG) != 0 || room < minCut {
		p.reason, p.mtu = reasonTooBig, mtu
		c.exception(p, p.handle)
		return false
	}
	p.f.Offload = frame.Offload{Flags: frame.NeedsChecksum, GSOType: frame.GSOTCP4, GSOSize: uint16(room),
		HdrLen: uint16(p.payload), CsumStart: uint16(p.tcp), CsumOffset: 16}
	if p.flags&flagCWR != 0 {
		p.f.Offload.GSOType |= frame.GSOECN
	}
	return true
}

const (
	dontFragment = 0x40 // in the first byte of the fragment field
	minCut       = 8    // payload bytes of the smallest segment a port cuts to
)

// finishOffload completes a coalesced frame: its field holds the sum of the pseudo-header, and its segments must fit
// the MSS of the end they go to and the path there; the port sees to its own MTU.
func (c *Core) finishOffload(p *packet, mss, path uint32) {
	o := &p.f.Offload
	n := int(p.end - p.tcp)
	pseudo := uint64(0)
	if p.kind == kindIPv6 {
		pseudo = frame.Pseudo6(p.b[p.ip:], protocolTCP, n)
	} else {
		pseudo = frame.Pseudo4(p.b[p.ip:], protocolTCP, n)
	}
	binary.BigEndian.PutUint16(p.b[p.tcp+16:], frame.Fold(pseudo))
	for _, room := range [...]uint32{mss - (p.payload - p.tcp - 20), path - (p.payload - p.ip)} {
		if uint32(o.GSOSize) > room && int32(room) > 0 {
			o.GSOSize = uint16(room)
		}
	}
}

// emit writes the link header and queues the frame, cut to its IP length.
func (c *Core) emit(p *packet, port uint32, tagged bool, vlan, macLo, macHi uint32, out *Output) {
	f := p.f
	f.End = f.Start + p.end
	if tagged != p.tagged {
		d := uint32(4)
		if tagged {
			f.Start -= 4
		} else {
			f.Start += 4
			d = -d
		}
		f.Offload.HdrLen += uint16(d)
		f.Offload.CsumStart += uint16(d)
	}
	if f.Offload.GSOType == frame.GSONone {
		f.Offload = frame.Offload{} // its sum is whole
	}
	b := f.Bytes()
	putMAC(b, macHi, macLo)
	lo, hi := c.mac(port)
	putMAC(b[6:], hi, lo)
	if tagged {
		if !p.tagged {
			binary.BigEndian.PutUint16(b[12:], etherVLAN)
			binary.BigEndian.PutUint16(b[14:], uint16(vlan))
		} else {
			b[14], b[15] = b[14]&0xf0|byte(vlan>>8), byte(vlan)
		}
	}
	c.send(f, port, out)
}
