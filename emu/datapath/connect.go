package datapath

import (
	"splicenic/emu/cam"
	"splicenic/regs"
)

// maxServersTried is geometry.max_servers_tried.
const maxServersTried = 3

// startServer begins the server end toward the server that the card chose.
func (c *Core) startServer(p *packet, n uint32, w *page, server uint32, out *Output) {
	switch c.connect(n, w, server, regs.PagePortsClient(w[regs.PagePorts]), out) {
	case cam.Exists:
		w[regs.PageAIndex] = server // which the host asks for
		c.handOver(p, n, w, reasonKeyExists, reasonAbortKeyExists, out)
	case cam.Refused:
		c.resetClient(w, out)
		c.abort(n, w, reasonNoCamPlace)
	case noPort:
		c.resetClient(w, out)
		c.abort(n, w, reasonAbortNoServer)
	}
}

// noPort is connect's answer where the server's list has no local port.
const noPort = cam.Refused + 1

// connect writes leg set A, enters the server-side key and sends our SYN. With NAT the server sees the client's own
// address, port and sequence numbers, so the forward delta is zero: bytes that are inserted come before them; where another connection of the client has the key,
// the port is one that stands in for the client's. Where the key finds no place the page stays as it is.
func (c *Core) connect(n uint32, w *page, server, port uint32, out *Output) cam.Result {
	s := c.server(server)
	hop := c.hop(s)
	before := [...]uint32{w[regs.PageAIndex], w[regs.PageALocal], w[regs.PageAScale]}
	answers := answersOf(s)
	w[regs.PageAIndex] = regs.SetPageAIndexAnswers(server, answers)
	w[regs.PageALocal] = port
	w[regs.PageADeltaClient], w[regs.PageATimestampClient] = 0, 0
	if answers == answersLocal {
		if !c.lend(w, w[regs.PageAIsn], w[regs.PageClientTimestamp], w[regs.PageClientLink]&regs.PageClientLinkTimestampsMask != 0) {
			w[regs.PageAIndex], w[regs.PageALocal] = before[0], before[1]
			return noPort
		}
		w[regs.PageAIsn] += w[regs.PageADeltaClient]
	}
	scale := uint32(0)
	if regs.NextHopControlTagged(hop[regs.NextHopControl]) != 0 {
		scale = regs.SetPageAScaleVlan(0, regs.NextHopControlVlan(hop[regs.NextHopControl]))
	}
	w[regs.PageAScale] = scale
	k, h := c.serverKey(w, 0)
	result := c.cams[ServerSide].Insert(&k, h, handleOf(n, w), false)
	if result == cam.Exists && c.recycleHolder(&k, h) {
		result = c.cams[ServerSide].Insert(&k, h, handleOf(n, w), false)
	}
	if result != cam.OK {
		c.unlend(w)
		w[regs.PageAIndex], w[regs.PageALocal], w[regs.PageAScale] = before[0], before[1], before[2]
		return result
	}
	w[regs.PageControl] = regs.SetPageControlServerPort(w[regs.PageControl], regs.NextHopControlPort(hop[regs.NextHopControl]))
	c.setState(w, ServerSyn)
	c.serverUse(w, 1)
	c.serverActive(w, 1)
	state := c.serverState(w)
	if state[regs.ServerStateConnectionsLo]++; state[regs.ServerStateConnectionsLo] == 0 {
		state[regs.ServerStateConnectionsHi]++
	}
	c.sendServerSyn(w, out)
	c.expect(w, c.ticks(regs.TimerRetransmit))
	return cam.OK
}

// unlend takes back the local end of a server that has not answered, and gives the held stream the client's numbers again.
func (c *Core) unlend(w *page) {
	if index := w[regs.PageAIndex]; regs.PageAIndexAnswers(index) == answersLocal {
		stamp := uint32(0)
		if w[regs.PageClientLink]&regs.PageClientLinkTimestampsMask != 0 {
			stamp = w[regs.PageClientTimestamp] + w[regs.PageATimestampClient]
		}
		c.putPort(regs.PageAIndexServer(index), regs.PageAIndexLocalAddress(index), regs.PageALocalPort(w[regs.PageALocal]), w[regs.PageAIsn]+1, stamp)
	}
	w[regs.PageAIsn] -= w[regs.PageADeltaClient]
	w[regs.PageADeltaClient], w[regs.PageATimestampClient] = 0, 0
	w[regs.PageAIndex] = regs.PageAIndexServer(w[regs.PageAIndex])
}

// recycleHolder frees the connection that has a server-side key, if its ends are done with it: it is in quarantine, or
// both have sent their FINs. A connection that is closing with one FIN still carries a stream, and counts as live.
func (c *Core) recycleHolder(k *cam.Key, h uint64) bool {
	handle, _, ok := c.cams[ServerSide].Lookup(k, h)
	if !ok {
		return false
	}
	old := handle & handleMask
	ow := c.page(old)
	if handleOf(old, ow) != handle {
		return false
	}
	const fins = regs.PageClientLinkFinClientMask | regs.PageClientLinkFinServerMask
	switch State(regs.PageControlState(ow[regs.PageControl])) {
	case Quarantine:
		c.recycle(old, ow)
	case Closing:
		if ow[regs.PageClientLink]&fins != fins || ow[regs.PageControl]&regs.PageControlHeldMask != 0 {
			return false
		}
		c.abort(old, ow, reasonFIN)
	default:
		return false
	}
	c.count(regs.ConnectionKeyRecycled)
	return true
}

// serverFailed takes the server end of a connection back: its server refused, was silent, or keeps less than was
// promised. The host chooses another. p is the segment that said so, nil where the timer did; what the server has to be
// told is the caller's.
func (c *Core) serverFailed(p *packet, n uint32, w *page, otherwise uint32, out *Output) {
	c.serverState(w)[regs.ServerStateFailed]++
	k, h := c.serverKey(w, 0)
	c.eraseIfOurs(ServerSide, &k, h, n)
	c.serverUse(w, -1)
	c.serverActive(w, -1)
	c.unlend(w)
	w[regs.PageAScale], w[regs.PageARto] = 0, 0
	tries := min(regs.PageOptionsTries(w[regs.PageOptions])+1, maxServersTried)
	w[regs.PageOptions] = regs.SetPageOptionsTries(w[regs.PageOptions], tries)
	c.setState(w, WaitHead)
	c.arm(w, c.tick+c.waitHead(w))
	c.handOver(p, n, w, reasonServerFailed, otherwise, out)
}

// handOver leaves a connection in WAIT_HEAD to the host, without a frame: the client is not answered until the host's
// command or the end of WAIT_HEAD. Where no host takes exceptions, the connection ends at once.
func (c *Core) handOver(p *packet, n uint32, w *page, reason uint8, otherwise uint32, out *Output) {
	w[regs.PageControl] = regs.SetPageControlHostReason(w[regs.PageControl]|regs.PageControlWaitingHostMask, uint32(reason))
	e := &c.given
	*e = regs.ExceptionEntry{
		ControlType: regs.ExceptionControlTypeFrame, ControlPort: regs.PageControlPort(w[regs.PageControl]), Tick: c.tick,
		HandleN: n, HandleGeneration: regs.PageControlGeneration(w[regs.PageControl]), ReasonReason: uint32(reason), ReasonState: uint32(WaitHead),
		IndexService: regs.PageIndexService(w[regs.PageIndex]), IndexServer: regs.PageAIndexServer(w[regs.PageAIndex]),
	}
	if !c.host.Exception(nil, e) {
		c.resetClient(w, out)
		c.abort(n, w, otherwise)
		return
	}
	if p != nil {
		p.given = true
		c.r.Add64(regs.ParserClassException+regs.Reg(p.port)*regs.ParserStride, 1)
	}
}

// commandConnect offers the request of a connection that waits for the host to a server of the host's choice, or to one
// that the card picks of a group of its choice. What the command refuses leaves the page as it was.
func (c *Core) commandConnect(e *regs.CommandEntry, done *regs.CompletionEntry, n uint32, w *page, state State, out *Output) uint32 {
	tries := regs.PageOptionsTries(w[regs.PageOptions])
	gathered := gathers(w)
	if state != WaitHead || w[regs.PageControl]&regs.PageControlWaitingHostMask == 0 && !gathered || tries >= maxServersTried {
		return statusState
	}
	if gathered && heldBytes(w) != regs.PageOptionsHeadScan(w[regs.PageOptions]) { // more came since the host's last take
		return statusState
	}
	if status := c.replacement(e, w, gathered); status != statusOK {
		return status
	}
	server, kind := e.KeyIndexIndex, regs.PageControlKind(w[regs.PageControl])
	if e.FlagsGroup != 0 {
		who, ok := c.chooser(w), false
		if server, ok = c.pick(e.KeyIndexIndex, c.bank(), &who); !ok {
			return statusNotFound
		}
	} else if !c.usable(server, kind) {
		return statusArgument
	}
	took := e.FlagsReplace != 0 && w[regs.PageControl]&regs.PageControlHeadMask == 0
	if took && !c.takeHead(w) {
		return statusNoPlace
	}
	own, before := regs.PagePortsClient(w[regs.PagePorts]), w[regs.PageAIsn]
	port := e.KeyPortsPort
	if port == 0 {
		port = own
	}
	if e.FlagsReplace != 0 {
		w[regs.PageAIsn] = w[regs.PageClientIsn] - e.Value
	}
	result := c.connect(n, w, server, port, out)
	if result == cam.Refused || result == noPort || result == cam.Exists && e.FlagsGroup == 0 {
		w[regs.PageAIsn] = before
		if took {
			c.releaseHead(w)
		}
		if result == cam.Exists {
			return statusKeyExists
		}
		return statusNoPlace
	}
	done.Result[0] = server
	c.chosen(e, w, gathered)
	if result == cam.Exists {
		w[regs.PageAIndex] = server // which the host asks for
		c.handOver(nil, n, w, reasonKeyExists, reasonAbortKeyExists, out)
		return statusOK
	}
	w[regs.PageControl] = regs.SetPageControlHostReason(w[regs.PageControl]&^regs.PageControlWaitingHostMask, 0)
	if tries > 0 {
		c.count(regs.ConnectionServerAgain)
	}
	if port != own {
		c.count(regs.ConnectionKeyMoved)
	}
	return statusOK
}

// replacement reads what the host puts in the place of the held bytes, and checks that it makes up the stream: as a whole,
// or a full buffer of it. A buffer that the host emptied has to be filled again.
func (c *Core) replacement(e *regs.CommandEntry, w *page, gathered bool) uint32 {
	if e.FlagsReplace == 0 {
		if gathered {
			return statusArgument
		}
		return statusOK
	}
	total := w[regs.PageHeldBoundary] - w[regs.PageClientIsn] - 1 + e.Value
	if w[regs.PageClientLink]&regs.PageClientLinkFinClientMask != 0 {
		total--
	}
	if total > maxHeldStream || e.Length != min(total, c.headBytes()) {
		return statusArgument
	}
	if e.Length != 0 && !c.host.Read(uint64(e.IovaLo)|uint64(e.IovaHi)<<32, c.answer[:e.Length]) {
		return statusDMA
	}
	return statusOK
}

// chosen writes down what the host decided about a request, and puts its bytes into the head buffer.
func (c *Core) chosen(e *regs.CommandEntry, w *page, gathered bool) {
	if e.FlagsGroup != 0 {
		w[regs.PageChoice] = e.KeyIndexIndex | regs.TableBankGeneration(c.r.Get(regs.TableBank))<<regs.PageChoiceGenerationShift
	}
	if rule := e.Bar2Offset; rule != 0 && rule != w[regs.PageRule] && rule <= c.m.Geometry.Rules {
		w[regs.PageRule] = rule
		c.hit(rule - 1)
	}
	if e.FlagsLast != 0 {
		w[regs.PageBoundaryClient] = e.Boundary
		w[regs.PageClientLink] |= regs.PageClientLinkLastRequestMask
	}
	if e.FlagsReplace == 0 {
		return
	}
	copy(c.head(w), c.answer[:e.Length])
	w[regs.PageHead] = regs.SetPageHeadBytes(w[regs.PageHead], e.Length)
	if !gathered || e.Value != 0 {
		c.count(regs.ConnectionRewritten)
	}
}

// usable says whether a server takes new connections of a kind.
func (c *Core) usable(i, kind uint32) bool {
	if i >= c.m.Geometry.Servers {
		return false
	}
	s := c.server(i)
	ctl := s[regs.ServerControl]
	if regs.ServerControlValid(ctl) == 0 || regs.ServerControlClosed(ctl) != 0 || !suits(s, kind) ||
		!answers(s) && (!returns(s) || regs.ServerTunnelType(s[regs.ServerTunnel]) == regs.ServerTunnelTypeDscp) {
		return false
	}
	hop := c.hop(s)
	return hop != nil && regs.NextHopControlValid(hop[regs.NextHopControl]) != 0 && regs.NextHopControlResolved(hop[regs.NextHopControl]) != 0
}
