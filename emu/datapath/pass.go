package datapath

import (
	"encoding/binary"

	"splicenic/emu/cam"
	"splicenic/emu/frame"
	"splicenic/regs"
)

// A passed connection goes on to a server at its SYN or first datagram. Both ends keep their own numbers: with nat only
// addresses and ports change, with tun and dr nothing does, and the server's answers do not come by here, unless one behind
// a tunnel is told to send them: from the VIP. The page's leg set A holds the server; its marks count as in a splice, with deltas of zero.

// passedStates are the states of passed connections by what their pages say. No page of theirs is in any other.
var passedStates = [8]State{
	Free: PassedTemplate, SynRcvd: PassedSynRcvd, WaitHead: PassedTemplate, ServerSyn: PassedTemplate,
	Spliced: PassedSpliced, Closing: PassedClosing, Quarantine: PassedQuarantine, Stateless: PassedTemplate,
}

func isPassed(w *page) bool { return w[regs.PageClientLink]&regs.PageClientLinkPassedMask != 0 }

// passes says whether a service passes connections on.
func passes(service []uint32) bool {
	return regs.ServiceControlMode(service[regs.ServiceControl]) != regs.ServiceControlModeSplice
}

// datagrams says whether a page is of UDP.
func datagrams(w *page) bool { return w[regs.PageAScale]&regs.PageAScaleDatagramsMask != 0 }

// oneSided says whether the answers of a page's server do not come through the card.
func (c *Core) oneSided(w *page) bool {
	return !comesBack(c.server(regs.PageAIndexServer(ld(w, regs.PageAIndex))))
}

// passedActive keeps the count of active connections of a page's server while the page's state changes to another.
func (c *Core) passedActive(w *page, to State) {
	was := State(regs.PageControlState(w[regs.PageControl])) == Spliced
	switch is := to == Spliced; {
	case is && !was:
		c.serverActive(w, 1)
	case was && !is:
		c.serverActive(w, -1)
	}
}

// pass opens a connection toward a server of its service's group.
func (c *Core) pass(p *packet, out *Output) {
	if p.hit { // a host's store brought a page into this state
		c.exception(p, p.connection())
		return
	}
	if p.service < 0 {
		c.count(regs.PassDropSource)
		return
	}
	if regs.AmuControlEnable(c.r.Get(regs.AmuControl)) == 0 {
		c.count(regs.AmuDisabled)
		c.refusePassed(p, out)
		return
	}
	if p.class == classTCP && c.limited(p, uint32(p.service)) {
		return
	}
	server, ok := c.passTarget(p)
	if !ok {
		c.count(regs.PassDropNoServer)
		c.refusePassed(p, out)
		return
	}
	if p.class == classUDP && regs.ServiceControlOnePacket(c.service(uint32(p.service))[regs.ServiceControl]) != 0 && !comesBack(c.server(server)) {
		c.onePacket(p, server, out)
		return
	}
	c.passTo(p, server, out)
}

// onePacket passes a datagram on that nothing is kept of.
func (c *Core) onePacket(p *packet, server uint32, out *Output) {
	w := &c.draft
	*w = page{}
	w[regs.PageAIndex] = server
	c.count(regs.PassOnePacket)
	c.countServed(c.serverState(w))
	p.passed = true
	c.forward(p, w, VerdictTranslate, out)
}

// countServed counts a connection ever of a server.
func (c *Core) countServed(state []uint32) {
	if state[regs.ServerStateConnectionsLo]++; state[regs.ServerStateConnectionsLo] == 0 {
		state[regs.ServerStateConnectionsHi]++
	}
}

// passTarget chooses the server of a new connection.
func (c *Core) passTarget(p *packet) (server uint32, ok bool) {
	who := c.chooserOf(p)
	if p.expected >= 0 {
		return uint32(p.expected), c.takesMore(uint32(p.expected), &who)
	}
	s := c.service(uint32(p.service))
	if regs.ServiceControlHasDefault(s[regs.ServiceControl]) == 0 {
		return 0, false
	}
	return c.target(uint32(p.service), regs.ServiceDefaultGroup(s[regs.ServiceDefault]), c.bank(), &who)
}

// refusePassed tells the sender of a SYN that it is not served. Who sends datagrams, or the middle of a connection, hears
// nothing.
func (c *Core) refusePassed(p *packet, out *Output) {
	if p.segment == SYN || p.segment == SYNData {
		c.refuse(p, out)
	}
}

// passTo opens a connection toward a server.
func (c *Core) passTo(p *packet, server uint32, out *Output) {
	n, ok := c.take(p)
	if !ok {
		c.count(regs.PassDropFull)
		c.refusePassed(p, out)
		return
	}
	w := c.page(n)
	c.fillPassed(p, w, server)
	c.serverUse(w, 1)
	if regs.ServerControlMethod(c.server(server)[regs.ServerControl]) == methodFullNAT && !c.passLend(p, w) {
		c.refusePassed(p, out)
		c.free(n, w)
		return
	}
	if comesBack(c.server(server)) && !c.passKey(n, w) {
		c.count(regs.PassDropFull)
		c.refusePassed(p, out)
		c.free(n, w)
		return
	}
	c.countServed(c.serverState(w))
	c.count(regs.PassOpened)
	c.openedEvent(n, w)
	p.handle, p.side, p.passed = handleOf(n, w), ClientSide, true
	v := VerdictTranslate
	if p.segment == SYN || p.segment == SYNData {
		c.rememberSyn(n, w)
	} else { // datagrams, and what is picked up on its way
		c.passEstablished(p, w)
		v = table[PassedSpliced][ClientSide][p.segment].Verdict
	}
	c.forward(p, w, v, out)
}

// fillPassed writes the page of a new connection.
func (c *Core) fillPassed(p *packet, w *page, server uint32) {
	link := p.vlan | regs.PageClientLinkPassedMask
	if p.tagged {
		link |= regs.PageClientLinkTaggedMask
	}
	w[regs.PageControl] = regs.SetPageControlKind(w[regs.PageControl], uint32(p.kind))
	w[regs.PageControl] = regs.SetPageControlPort(w[regs.PageControl], uint32(p.port))
	w[regs.PagePorts] = p.sport | p.dport<<16
	w[regs.PageIndex] = uint32(p.vip) | uint32(p.service)<<16
	w[regs.PageClientLink] = link
	w[regs.PageClientMacLo] = binary.BigEndian.Uint32(p.b[8:])
	w[regs.PageClientMacHi] = uint32(binary.BigEndian.Uint16(p.b[6:]))
	w[regs.PageLastSeen] = c.tick
	copy(w[regs.PageClientAddress:], p.src[:])
	c.fillServer(w, server, p.sport)
	w[regs.PageChoice] = regs.ServiceDefaultGroup(c.service(uint32(p.service))[regs.ServiceDefault]) | regs.TableBankGeneration(c.r.Get(regs.TableBank))<<regs.PageChoiceGenerationShift
	if control := c.serviceControl(w); regs.ServiceControlModule(control) != 0 && p.expected < 0 { // what a module made the host expect it does not read
		w[regs.PageControl] = regs.SetPageControlHostReason(w[regs.PageControl], reasonModule)
	}
	if p.class == classTCP {
		c.passBegin(p, w)
	}
	c.setState(w, SynRcvd)
}

// fillServer writes the server leg of a new connection, which the server sees come from a port.
func (c *Core) fillServer(w *page, server, port uint32) {
	s := c.server(server)
	w[regs.PageAIndex] = server
	if returns(s) {
		w[regs.PageAIndex] = regs.SetPageAIndexAnswers(server, answersVIP)
	}
	w[regs.PageALocal] = port
	scale := uint32(regs.PageAScaleArmedMask | regs.PageAScaleChecksumReadyMask | regs.PageAScaleSackMask | regs.PageAScaleEcnMask)
	if hop := c.hop(s); hop != nil {
		w[regs.PageControl] = regs.SetPageControlServerPort(w[regs.PageControl], regs.NextHopControlPort(hop[regs.NextHopControl]))
		if regs.NextHopControlTagged(hop[regs.NextHopControl]) != 0 {
			scale = regs.SetPageAScaleVlan(scale, regs.NextHopControlVlan(hop[regs.NextHopControl]))
		}
	}
	if regs.ServerControlProtocol(s[regs.ServerControl]) == protocolUDP {
		scale |= regs.PageAScaleDatagramsMask
	}
	w[regs.PageAScale] = scale
	w[regs.PageAChecksum] = c.differences(w)
}

// passLend gives a new connection a local end.
func (c *Core) passLend(p *packet, w *page) bool {
	var o options
	if p.class == classTCP {
		o = p.options()
	}
	if !c.lend(w, p.seq, o.tsval, o.timestamps) {
		return false
	}
	if o.timestamps {
		w[regs.PageAScale] |= regs.PageAScaleTimestampsMask
		w[regs.PageClientTimestamp] = o.tsval
	}
	if p.class == classUDP { // nothing is counted
		w[regs.PageADeltaClient] = 0
	}
	w[regs.PageAChecksum] = c.differences(w)
	return true
}

// anyScale is the shift of an end whose SYN was not seen: windows are taken for larger than they are.
const anyScale = maxWscale

// passBegin writes the marks of a connection that begins with a segment.
func (c *Core) passBegin(p *packet, w *page) {
	end := p.seq + p.length
	if p.flags&(flagSYN|flagFIN) != 0 {
		end++
	}
	link := &w[regs.PageClientLink]
	*link &^= regs.PageClientLinkFinClientMask | regs.PageClientLinkFinServerMask | regs.PageClientLinkFinClientAckedMask | regs.PageClientLinkFinServerAckedMask
	w[regs.PageClientIsn], w[regs.PageAIsn] = p.seq, p.seq
	w[regs.PageASeqClient], w[regs.PageAAckServer] = end, p.seq
	w[regs.PageALocal] = regs.SetPageALocalMss(w[regs.PageALocal], 0)
	if p.flags&flagSYN != 0 {
		c.passOffer(p, w)
		return
	}
	*link = regs.SetPageClientLinkClientWscale(*link, anyScale)
	w[regs.PageAScale] = regs.SetPageAScaleServerWscale(w[regs.PageAScale], anyScale)
	w[regs.PageAAckClient], w[regs.PageASeqServer] = p.ack, p.ack
	w[regs.PageAWindow] = 0xffff | 0xffff<<regs.PageAWindowServerShift
	w[regs.PageOffer] = 0
}

// passOffer notes what a client's SYN offers.
func (c *Core) passOffer(p *packet, w *page) {
	o := p.options()
	if !o.hasMSS || o.mss == 0 {
		o.mss = defaultMSS(p.kind)
	}
	w[regs.PageOffer] = o.mss | p.window()<<regs.PageOfferWindowShift
	opts := uint32(0)
	if o.hasWscale {
		opts = regs.PageOptionsWscaleOfferedMask | o.wscale<<regs.PageOptionsClientWscaleShift
	}
	w[regs.PageOptions] = opts
}

// maxKeyTries bounds how many source ports are tried for a server-side key.
const maxKeyTries = 8

// passKey enters the server-side key. Where a live connection has it, of the same client port to another of our addresses,
// a source port of ours stands in for the client's.
func (c *Core) passKey(n uint32, w *page) bool {
	own := regs.PageALocalPort(w[regs.PageALocal])
	port := own
	for i := range uint32(maxKeyTries) {
		w[regs.PageALocal] = regs.SetPageALocalPort(w[regs.PageALocal], port)
		k, h := c.serverKey(w, 0)
		result := c.cams[ServerSide].Insert(&k, h, handleOf(n, w), false)
		if result == cam.Exists && c.recycleHolder(&k, h) {
			result = c.cams[ServerSide].Insert(&k, h, handleOf(n, w), false)
		}
		if result == cam.Exists && regs.PageAIndexAnswers(w[regs.PageAIndex]) == answersLocal {
			return false // the host made the list anew while its ports are out
		}
		switch result {
		case cam.OK:
			if port != own {
				c.count(regs.ConnectionKeyMoved)
				w[regs.PageAChecksum] = c.differences(w)
			}
			return true
		case cam.Refused:
			return false
		}
		port = 1<<15 | (own*0x9e3d+(i+1)*0x3779+w[regs.PageIndex]*0x79b9+regs.PagePortsVip(w[regs.PagePorts])*0x4a7d)&(1<<15-1)
	}
	return false
}

// sloppy opens a connection by a segment without SYN, where its service wants that.
func (c *Core) sloppy(p *packet, counter regs.Reg, out *Output) {
	if p.service < 0 || regs.ServiceControlSloppy(c.service(uint32(p.service))[regs.ServiceControl]) == 0 || p.segment == RST || p.flags&flagACK == 0 || p.segment == SYNACK {
		c.count(counter)
		return
	}
	before := c.r.Get64(regs.PassOpened)
	c.pass(p, out)
	c.r.Add64(regs.PassSloppy, c.r.Get64(regs.PassOpened)-before)
}

// passEstablished makes a connection one that both ends have agreed on.
func (c *Core) passEstablished(p *packet, w *page) {
	c.passedActive(w, Spliced)
	c.setState(w, Spliced)
	c.count(regs.PassEstablished)
	if p.class == classTCP {
		w[regs.PageAWindow] = regs.SetPageAWindowClient(w[regs.PageAWindow], p.window())
	}
	c.splicedEvent(p.handle&handleMask, w)
}

// passSyn takes a SYN for a connection that is there. One that repeats goes the same way. Another begins a connection of
// its own where the old one is over, or half-open; of one that is in use the server says what becomes of it (RFC 5961, 4),
// so nobody ends it who only knows its addresses and ports.
func (c *Core) passSyn(p *packet, w *page, state State, out *Output) {
	const fins = regs.PageClientLinkFinClientMask | regs.PageClientLinkFinServerMask
	oneSided := c.oneSided(w)
	switch {
	case state == PassedSynRcvd && w[regs.PagePacketsClient]|w[regs.PagePacketsServer] == 0: // the host expected it
		w[regs.PageClientMacLo] = binary.BigEndian.Uint32(p.b[8:])
		w[regs.PageClientMacHi] = uint32(binary.BigEndian.Uint16(p.b[6:]))
		w[regs.PageControl] = regs.SetPageControlPort(w[regs.PageControl], uint32(p.port))
		c.passBegin(p, w)
	case p.seq == w[regs.PageClientIsn]:
		if state == PassedSynRcvd {
			c.countSyn()
		}
	case state == PassedSpliced && !oneSided, state == PassedClosing && !oneSided && w[regs.PageClientLink]&fins != fins:
		w[regs.PageClientIsn] = p.seq
		c.passOffer(p, w)
	case state == PassedSpliced:
		c.passRestart(p, w)
		c.passBegin(p, w)
	default:
		c.passAgain(p, w, state, out)
		return
	}
	c.forward(p, w, VerdictTranslate, out)
}

// passRestart brings a connection that is in use back to its handshake.
func (c *Core) passRestart(p *packet, w *page) {
	c.count(regs.PassReused)
	unstretch(w)
	c.passedActive(w, SynRcvd)
	c.setState(w, SynRcvd)
	c.rememberSyn(p.handle&handleMask, w)
}

// passAgain gives a new SYN of the same client port a connection of its own.
func (c *Core) passAgain(p *packet, w *page, state State, out *Output) {
	n, keep := p.handle&handleMask, int32(-1)
	if s := c.service(regs.PageIndexService(w[regs.PageIndex])); regs.ServiceControlKeepServer(s[regs.ServiceControl]) != 0 {
		i := regs.PageAIndexServer(w[regs.PageAIndex])
		if who := c.chooserOf(p); c.takesMore(i, &who) {
			keep = int32(i)
		}
	}
	c.count(regs.PassReused)
	switch state {
	case PassedQuarantine:
		c.recycle(n, w)
	case PassedSynRcvd:
		c.abort(n, w, reasonAbortClientGone)
	default:
		c.abort(n, w, reasonFIN)
	}
	p.hit, p.passed = false, false
	if state := c.guard(p); keep >= 0 && state == PassedFree && p.service >= 0 {
		c.passTo(p, uint32(keep), out)
		return
	}
	c.begin(p, out)
}

// passEstablish takes what a client sends behind its SYN.
func (c *Core) passEstablish(p *packet, w *page, out *Output) {
	ok := int32(p.seq-w[regs.PageClientIsn]) > 0
	if !c.oneSided(w) {
		ok = ok && regs.PageALocalMss(w[regs.PageALocal]) != 0 && p.ack-w[regs.PageAServerIsn]-1 <= w[regs.PageASeqServer]-w[regs.PageAServerIsn]-1
	}
	v := VerdictTranslate
	if ok {
		if c.oneSided(w) {
			w[regs.PageASeqServer] = p.ack
		}
		c.passEstablished(p, w)
		v = table[PassedSpliced][ClientSide][p.segment].Verdict
	}
	c.forward(p, w, v, out)
}

// passServerSyn takes the SYN of a server that begins, as the host expected.
func (c *Core) passServerSyn(p *packet, w *page, out *Output) {
	w[regs.PageAServerIsn] = p.seq
	w[regs.PageASeqServer], w[regs.PageAAckClient] = p.seq+1+p.length, p.seq
	c.forward(p, w, VerdictTranslate, out)
}

// passClientSynAck takes a client's answer to that: the connection is in use. What their windows are scaled by nobody
// noted; they are taken for larger than they are.
func (c *Core) passClientSynAck(p *packet, w *page, out *Output) {
	if w[regs.PagePacketsServer] != 0 && p.ack == w[regs.PageAServerIsn]+1 {
		w[regs.PageClientIsn], w[regs.PageAIsn] = p.seq, p.seq
		w[regs.PageASeqClient], w[regs.PageAAckServer], w[regs.PageAAckClient] = p.seq+1+p.length, p.seq+1, p.ack
		w[regs.PageClientLink] = regs.SetPageClientLinkClientWscale(w[regs.PageClientLink], anyScale)
		w[regs.PageAScale] = regs.SetPageAScaleServerWscale(w[regs.PageAScale], anyScale)
		c.passEstablished(p, w)
		w[regs.PageAWindow] = 0xffff | 0xffff<<regs.PageAWindowServerShift
	}
	c.forward(p, w, VerdictTranslate, out)
}

// passSynAck takes a server's SYN-ACK: it tells where the server's numbers begin. One that answers a newer SYN of a
// connection in use tells that the server has none like it any more, and a new one begins.
func (c *Core) passSynAck(p *packet, w *page, out *Output) {
	isn, ack := w[regs.PageClientIsn], p.ack-w[regs.PageADeltaClient]
	state := State(regs.PageControlState(w[regs.PageControl]))
	newer := state != SynRcvd && isn != w[regs.PageAIsn] && ack == isn+1
	if state == SynRcvd && ack-isn-1 <= w[regs.PageASeqClient]-isn-1 || newer {
		if newer {
			c.passRestart(p, w)
			w[regs.PageAIsn], w[regs.PageASeqClient] = isn, isn+1
			w[regs.PageClientLink] &^= regs.PageClientLinkFinClientMask | regs.PageClientLinkFinServerMask | regs.PageClientLinkFinClientAckedMask | regs.PageClientLinkFinServerAckedMask
		}
		c.passAgreed(p, w)
	}
	c.forward(p, w, VerdictTranslate, out)
}

// passAgreed notes what the two SYNs agree on.
func (c *Core) passAgreed(p *packet, w *page) {
	o := p.options()
	if !o.hasMSS || o.mss == 0 {
		o.mss = defaultMSS(p.kind)
	}
	client, server := uint32(0), uint32(0)
	if opts := w[regs.PageOptions]; o.hasWscale && opts&regs.PageOptionsWscaleOfferedMask != 0 {
		client, server = regs.PageOptionsClientWscale(opts), o.wscale
	}
	w[regs.PageClientLink] = regs.SetPageClientLinkClientWscale(w[regs.PageClientLink], client)
	w[regs.PageAScale] = regs.SetPageAScaleServerWscale(w[regs.PageAScale], server)
	w[regs.PageALocal] = regs.SetPageALocalMss(w[regs.PageALocal], o.mss)
	w[regs.PageAServerIsn] = p.seq
	w[regs.PageASeqServer], w[regs.PageAAckClient] = p.seq+1+p.length, p.seq+1
	w[regs.PageAAckServer] = p.ack - w[regs.PageADeltaClient]
	w[regs.PageAWindow] = shiftWindow(regs.PageOfferWindow(w[regs.PageOffer]), -int32(client)) | shiftWindow(p.window(), -int32(server))<<regs.PageAWindowServerShift
}

// passOn passes a segment or datagram of a passed connection on, by the method of its server.
func (c *Core) passOn(p *packet, w *page, v Verdict, out *Output) {
	switch {
	case p.side == ServerSide && p.class == classUDP:
		c.datagramToClient(p, w, out)
	case p.side == ServerSide:
		c.toClient(p, w, v, out)
	case c.oneSided(w):
		c.direct(p, w, v, out)
	case p.class == classUDP:
		c.datagramToServer(p, w, out)
	default:
		c.toServer(p, w, v, out)
	}
}

// resolved is the next hop of a server; nil, counted, where the way is not known.
func (c *Core) resolved(s []uint32) []uint32 {
	hop := c.hop(s)
	if hop == nil || hop[regs.NextHopControl]&regs.NextHopControlResolvedMask == 0 {
		c.count(regs.ConnectionDropNextHop)
		return nil
	}
	return hop
}

// emitHop sends a frame to a next hop.
func (c *Core) emitHop(p *packet, hop []uint32, out *Output) {
	h := hop[regs.NextHopControl]
	c.emit(p, regs.NextHopControlPort(h), regs.NextHopControlTagged(h) != 0, regs.NextHopControlVlan(h), hop[regs.NextHopMacLo], regs.NextHopMacHiAddress(hop[regs.NextHopMacHi]), out)
}

// direct passes a client's packet on as it is, to a server that answers past the card.
func (c *Core) direct(p *packet, w *page, v Verdict, out *Output) {
	s := c.server(regs.PageAIndexServer(ld(w, regs.PageAIndex)))
	hop := c.resolved(s)
	if hop == nil {
		return
	}
	mtu := c.serverMTU(s, hop)
	if !c.fits(p, mtu) {
		return
	}
	if p.flags&flagSYN != 0 {
		if d := clampMSS(p, c.bothMSS(uint32(p.port), p.kind, s, hop)); d != 0 && p.f.Offload.GSOType == frame.GSONone {
			t := p.b[p.tcp:]
			binary.BigEndian.PutUint16(t[16:], frame.Update(binary.BigEndian.Uint16(t[16:]), d))
		}
	}
	c.oneHop(p)
	if p.f.Offload.GSOType != frame.GSONone {
		c.finishOffload(p, anyMTU, mtu)
	}
	c.tally(p, w, regs.PagePacketsClient, regs.PageBytesClient)
	c.transmitted[ClientSide]++
	if regs.ServerControlMethod(s[regs.ServerControl]) == regs.ServerControlMethodTun {
		c.wrap(p, s, hop, out)
	} else {
		c.count(regs.PassRouted)
		c.emitHop(p, hop, out)
	}
	if p.class == classTCP {
		c.closingOneSided(p, w, v)
	}
}

// closingOneSided follows a connection of which only the client's side is seen.
func (c *Core) closingOneSided(p *packet, w *page, v Verdict) {
	end := p.seq + p.length
	if p.flags&(flagFIN|flagSYN) != 0 {
		end++
	}
	if ahead := end - ld(w, regs.PageASeqClient); p.flags&flagRST == 0 && ahead != 0 && int32(ahead) > 0 {
		st(w, regs.PageASeqClient, end)
	}
	if ahead := p.ack - ld(w, regs.PageASeqServer); p.flags&flagACK != 0 && int32(ahead) > 0 {
		st(w, regs.PageASeqServer, p.ack) // where the client takes a RST
	}
	control := ld(w, regs.PageControl)
	state := State(regs.PageControlState(control))
	switch {
	case state == Quarantine:
	case v == VerdictTranslateRST:
		n := p.handle & handleMask
		c.end(n, w, reasonRST)
		c.quarantine(n, w)
	case v == VerdictTranslateFIN && state == Spliced:
		st(w, regs.PageClientLink, ld(w, regs.PageClientLink)|regs.PageClientLinkFinClientMask)
		c.serverActive(w, -1)
		st(w, regs.PageControl, regs.SetPageControlState(control, uint32(Closing)))
	}
}

// oneHop takes one hop off a packet whose addresses stand.
func (c *Core) oneHop(p *packet) {
	if p.kind == kindIPv6 {
		p.b[p.ip+7]--
		return
	}
	c.finishIPv4(p)
}

// datagramToServer translates a client's datagram.
func (c *Core) datagramToServer(p *packet, w *page, out *Output) {
	index := ld(w, regs.PageAIndex)
	s := c.server(regs.PageAIndexServer(index))
	hop := c.resolved(s)
	if hop == nil || !c.fits(p, c.clientMTU(uint32(p.kind), s, hop)) {
		return
	}
	tunnelled := regs.PageAIndexAnswers(index) == answersVIP
	if !tunnelled {
		t := p.b[p.tcp:p.payload:p.payload]
		binary.BigEndian.PutUint16(t, uint16(regs.PageALocalPort(ld(w, regs.PageALocal))))
		binary.BigEndian.PutUint16(t[2:], uint16(c.serverPort(s, w)))
		updateDatagram(t, uint64(regs.PageAChecksumClient(ld(w, regs.PageAChecksum))))
	}
	if !c.readdressServer(p, w, index, s) {
		return
	}
	c.tally(p, w, regs.PagePacketsClient, regs.PageBytesClient)
	c.transmitted[ClientSide]++
	if tunnelled {
		c.wrap(p, s, hop, out)
		return
	}
	c.emitHop(p, hop, out)
}

// datagramToClient translates a server's datagram.
func (c *Core) datagramToClient(p *packet, w *page, out *Output) {
	control := ld(w, regs.PageControl)
	kind := regs.PageControlKind(control)
	if !c.fits(p, crossMTU(uint32(p.kind), kind, c.mtu(regs.PageControlPort(control)))) {
		return
	}
	t := p.b[p.tcp:p.payload:p.payload]
	ports := ld(w, regs.PagePorts)
	binary.BigEndian.PutUint16(t, uint16(regs.PagePortsVip(ports)))
	binary.BigEndian.PutUint16(t[2:], uint16(regs.PagePortsClient(ports)))
	updateDatagram(t, uint64(regs.PageAChecksumServer(ld(w, regs.PageAChecksum))))
	if !c.readdressClient(p, w, uint8(kind)) {
		return
	}
	first := p.length != 0 && ld(w, regs.PageBytesServer) == 0
	c.tally(p, w, regs.PagePacketsServer, regs.PageBytesServer)
	if first {
		c.firstByteEvent(p, w)
	}
	c.transmitted[ServerSide]++
	link := ld(w, regs.PageClientLink)
	c.emit(p, regs.PageControlPort(control), link&regs.PageClientLinkTaggedMask != 0, regs.PageClientLinkVlan(link), ld(w, regs.PageClientMacLo), regs.PageClientMacHiAddress(ld(w, regs.PageClientMacHi)), out)
}

// updateDatagram applies a difference to the checksum of a datagram. A field of zero says that there is none, and stays; a
// checksum that comes out as zero is sent as its other form (RFC 768).
func updateDatagram(t []byte, difference uint64) {
	sum := binary.BigEndian.Uint16(t[6:])
	if sum == 0 {
		return
	}
	if sum = frame.Update(sum, difference); sum == 0 {
		sum = 0xffff
	}
	binary.BigEndian.PutUint16(t[6:], sum)
}

// clampMSS lowers the MSS that a SYN announces, and returns the checksum's difference. A SYN without the option stays so:
// what it stands for is less than any limit.
func clampMSS(p *packet, limit uint32) uint64 {
	t := p.b[p.tcp:p.payload:p.payload]
	for at := 20; at+1 < len(t) && t[at] != 0; {
		if t[at] == 1 {
			at++
			continue
		}
		n := int(t[at+1])
		if n < 2 || at+n > len(t) {
			break
		}
		if t[at] != 2 || n != 4 {
			at += n
			continue
		}
		old := binary.BigEndian.Uint16(t[at+2:])
		if uint32(old) <= limit {
			break
		}
		binary.BigEndian.PutUint16(t[at+2:], uint16(limit))
		from, to := uint64(old), uint64(limit)
		if at&1 != 0 {
			from, to = uint64(old>>8|old<<8), uint64(uint16(limit)>>8|uint16(limit)<<8)
		}
		return uint64(frame.Difference(from, to))
	}
	return 0
}

// clampToClient lowers the MSS of a server's SYN-ACK to what the way of the client's segments takes.
func (c *Core) clampToClient(p *packet, w *page) uint64 {
	s := c.server(regs.PageAIndexServer(w[regs.PageAIndex]))
	control := w[regs.PageControl]
	port, kind := regs.PageControlPort(control), uint8(regs.PageControlKind(control))
	if hop := c.hop(s); hop != nil {
		return clampMSS(p, c.bothMSS(port, kind, s, hop))
	}
	return clampMSS(p, mssFor(c.mtu(port), kind))
}

// passedCounter counts the end of a passed connection.
func passedCounter(reason uint32) regs.Reg {
	switch reason {
	case reasonFIN:
		return regs.PassClosedFin
	case reasonRST:
		return regs.PassClosedRst
	case reasonExpiredSynRcvd, reasonExpiredIdle, reasonExpiredClosing:
		return regs.PassExpired
	case reasonAbortNoServer:
		return regs.PassNodest
	}
	return closeCounters[reason]
}

// expirePassed looks at the page of a passed connection. Most pages are those of connections that live and are silent for
// less than any time-out: the scan leaves them after one line of the page and one of the service.
func (c *Core) expirePassed(n uint32, w *page, out *Output) {
	const fins = regs.PageClientLinkFinClientMask | regs.PageClientLinkFinServerMask
	if isTemplate(w) {
		c.expireTemplate(n, w)
		return
	}
	s := c.service(regs.PageIndexService(w[regs.PageIndex]))
	if regs.ServiceControlExpireNodest(s[regs.ServiceControl]) != 0 && c.abandoned(w) {
		if !datagrams(w) {
			c.resetClient(w, out)
			if !c.oneSided(w) {
				c.resetArmedServer(w, out)
			}
		}
		c.abort(n, w, reasonAbortNoServer)
		return
	}
	if s[regs.ServicePersistence] != 0 {
		c.keepTemplateNow(w)
	}
	if modular(w[regs.PageControl]) {
		settle(w)
	}
	silent := c.tick - w[regs.PageLastSeen]
	switch State(regs.PageControlState(w[regs.PageControl])) {
	case SynRcvd:
		if c.tick-w[regs.PageOpened] < c.ticks(regs.TimerSynRcvd) {
			return
		}
		c.count(regs.TimerExpired)
		c.abort(n, w, reasonExpiredSynRcvd)
	case Closing:
		if oneSided := c.oneSided(w); oneSided || w[regs.PageClientLink]&fins == fins {
			if silent < c.ticks(regs.TimerClosing) {
				return
			}
			c.count(regs.TimerExpired)
			reason := uint32(reasonExpiredClosing)
			if oneSided {
				reason = reasonFIN
			} else {
				c.resetBoth(w, out)
			}
			c.abort(n, w, reason)
			return
		}
		fallthrough
	case Spliced:
		if silent < c.passedIdle(s, w) {
			return
		}
		c.count(regs.TimerExpired)
		if !datagrams(w) && !c.oneSided(w) && !c.idleSilent(w) {
			c.resetBoth(w, out)
		}
		c.abort(n, w, reasonExpiredIdle)
	}
}

// abandoned says whether a connection's server is gone, not only closed to new connections.
func (c *Core) abandoned(w *page) bool {
	return State(regs.PageControlState(w[regs.PageControl])) != Quarantine &&
		regs.ServerControlValid(c.server(regs.PageAIndexServer(w[regs.PageAIndex]))[regs.ServerControl]) == 0
}

// passedIdle is the idle time-out of a passed connection of a service.
func (c *Core) passedIdle(s []uint32, w *page) uint32 {
	switch t := s[regs.ServiceIdle]; {
	case t != 0:
		return t
	case datagrams(w):
		return c.ticks(regs.TimerIdleDatagram)
	}
	return c.ticks(regs.TimerIdle)
}
