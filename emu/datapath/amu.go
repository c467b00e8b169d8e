package datapath

import (
	"splicenic/emu/cam"
	"splicenic/regs"
)

// maxQuarantineSkips bounds how many list entries an allocation may pass over to find a page still in quarantine.
const maxQuarantineSkips = 8

// allocate pops the address at the head of the list. With fewer free pages than the low watermark the oldest page in
// quarantine is freed first, and where none is the oldest half-open connection. It returns false where no page is left.
func (c *Core) allocate() (n uint32, ok bool) {
	free, watermark := c.r.Get(regs.AmuFree), c.r.Get(regs.AmuLowWatermark)&regs.AmuLowWatermarkPagesMask
	if free < watermark || free == 0 {
		before := free
		for range maxQuarantineSkips {
			if c.r.Get(regs.AmuQuarantined) == 0 || c.endOldestQuarantine(true) {
				break
			}
		}
		if before < watermark && c.r.Get(regs.AmuFree) == before {
			c.endOldestHalfOpen()
		}
		if free = c.r.Get(regs.AmuFree); free == 0 {
			return 0, false
		}
	}
	head := c.r.Get(regs.AmuListHead)
	n = c.m.AddressList[c.slot(head)] & handleMask
	c.r.Set(regs.AmuListHead, c.next(head))
	c.r.Set(regs.AmuFree, free-1)
	if n >= c.m.Geometry.Pages { // a host stored into the list: this slot is lost
		return 0, false
	}
	if free == watermark {
		c.host.Cause(regs.HostifCausePagesLowMask)
	}
	c.r.Set(regs.AmuLive, c.r.Get(regs.AmuLive)+1)
	c.count(regs.AmuAllocated)
	w := c.page(n)
	generation := regs.PageControlGeneration(w[regs.PageControl]) + 1
	if generation>>12 != 0 {
		generation = 1 // zero means no handle
	}
	*w = page{}
	w[regs.PageControl] = regs.SetPageControlGeneration(regs.PageControlValidMask, generation)
	c.live[n/64] |= 1 << (n % 64)
	return n, true
}

// slot keeps a list's index inside the list.
func (c *Core) slot(i uint32) uint32 {
	if i >= c.m.Geometry.Pages {
		return 0
	}
	return i
}

func (c *Core) next(slot uint32) uint32 {
	if slot++; slot >= c.m.Geometry.Pages {
		return 0
	}
	return slot
}

// handleOf is the handle of the present use of page n.
func handleOf(n uint32, w *page) uint32 {
	return n | regs.PageControlGeneration(w[regs.PageControl])<<20
}

// unlink frees everything that leads to a page or hangs on it, its CAM entries first.
func (c *Core) unlink(n uint32, w *page) {
	k, h := c.clientKey(w)
	c.eraseIfOurs(ClientSide, &k, h, n)
	if c.hasServer(w) && (!isPassed(w) || comesBack(c.server(regs.PageAIndexServer(w[regs.PageAIndex])))) {
		k, h = c.serverKey(w, 0)
		c.eraseIfOurs(ServerSide, &k, h, n)
	}
	if leg := inForce(w[regs.PageControl]); leg != 0 {
		k, h = c.serverKey(w, leg)
		c.eraseIfOurs(ServerSide, &k, h, n)
	}
	c.releaseHead(w)
}

func (c *Core) eraseIfOurs(side Side, k *cam.Key, hash uint64, n uint32) {
	if handle, _, ok := c.cams[side].Lookup(k, hash); ok && handle&handleMask == n {
		c.cams[side].Erase(k, hash)
	}
}

// release appends the address of a page to the tail of the list. Its CAM entries are gone already.
func (c *Core) release(n uint32, w *page) {
	if c.hasServer(w) {
		if isTemplate(w) {
			c.serverState(w)[regs.ServerStateTemplates]--
		}
		if leg := inForce(w[regs.PageControl]); leg != 0 {
			c.giveBack(w, leg)
		}
		c.giveBack(w, 0)
		c.serverUse(w, -1)
	}
	w[regs.PageControl] &= regs.PageControlGenerationMask
	c.live[n/64] &^= 1 << (n % 64)
	tail := c.r.Get(regs.AmuListTail)
	c.m.AddressList[c.slot(tail)] = n
	c.r.Set(regs.AmuListTail, c.next(tail))
	c.r.Set(regs.AmuFree, c.r.Get(regs.AmuFree)+1)
	c.count(regs.AmuFreed)
}

// free ends a live connection at once.
func (c *Core) free(n uint32, w *page) {
	c.leave(w)
	c.unlink(n, w)
	c.release(n, w)
}

// leave takes a page out of the live connections.
func (c *Core) leave(w *page) {
	c.r.Set(regs.AmuLive, c.r.Get(regs.AmuLive)-1)
	if isPassed(w) {
		c.passedActive(w, Free)
	} else if c.hasServer(w) {
		c.serverActive(w, -1)
	}
}

// quarantine puts a page that was spliced to rest: it still translates, and is freed by the scan. Pages that leave early
// leave their list entries behind, so the list may be full: then the oldest makes room.
func (c *Core) quarantine(n uint32, w *page) {
	if c.r.Get(regs.AmuQuarantined) == c.m.Geometry.Pages {
		c.endOldestQuarantine(true)
	}
	c.leave(w)
	c.releaseHead(w)
	c.setState(w, Quarantine)
	w[regs.PageControl] &^= regs.PageControlHeldMask | regs.PageControlDeadlineMask
	tail := c.r.Get(regs.AmuQuarantineTail)
	c.m.QuarantineList[c.slot(tail)] = handleOf(n, w)
	c.r.Set(regs.AmuQuarantineTail, c.next(tail))
	c.r.Set(regs.AmuQuarantined, c.r.Get(regs.AmuQuarantined)+1)
}

// endOldestQuarantine takes the oldest entry off the quarantine list and frees its page. It returns false where that
// page had left quarantine before.
func (c *Core) endOldestQuarantine(early bool) bool {
	head := c.r.Get(regs.AmuQuarantineHead)
	handle := c.m.QuarantineList[c.slot(head)]
	c.r.Set(regs.AmuQuarantineHead, c.next(head))
	c.r.Set(regs.AmuQuarantined, c.r.Get(regs.AmuQuarantined)-1)
	n := handle & handleMask
	if n >= c.m.Geometry.Pages {
		return false
	}
	w := c.page(n)
	if handleOf(n, w) != handle || State(regs.PageControlState(w[regs.PageControl])) != Quarantine || regs.PageControlValid(w[regs.PageControl]) == 0 {
		return false
	}
	if early {
		c.count(regs.AmuQuarantineEarly)
	}
	c.unlink(n, w)
	c.release(n, w)
	return true
}

// recycle frees a page in quarantine out of turn; its list entry is passed over later.
func (c *Core) recycle(n uint32, w *page) {
	c.count(regs.AmuQuarantineEarly)
	c.unlink(n, w)
	c.release(n, w)
}

// clientKey is the client-side key of a page.
func (c *Core) clientKey(w *page) (cam.Key, uint64) {
	k := cam.Key{
		Control: c.keyControl(w, regs.PageClientLinkVlan(w[regs.PageClientLink])),
		Ports:   w[regs.PagePorts],
		Index:   regs.PageIndexVip(w[regs.PageIndex]),
		Addr:    address(w[regs.PageClientAddress:]),
	}
	return k, c.cams[ClientSide].Hash(&k)
}

// serverKey is the key under which the answers of a leg's server find the page.
func (c *Core) serverKey(w *page, leg int) (cam.Key, uint64) {
	index, ports := w[regs.PageAIndex+leg], w[regs.PagePorts]
	server := regs.PageAIndexServer(index)
	k := cam.Key{
		Control: c.keyControl(w, regs.PageAScaleVlan(w[regs.PageAScale+leg])),
		Ports:   regs.PageALocalPort(w[regs.PageALocal+leg]) | c.anyPort(server, regs.PagePortsVip(ports))<<16,
		Index:   server,
		Addr:    address(w[regs.PageClientAddress:]),
	}
	kind := regs.PageControlKind(w[regs.PageControl])
	switch regs.PageAIndexAnswers(index) {
	case answersLocal:
		kind, k.Addr = regs.CamWordControlKindLocal, address{regs.PageAIndexLocalAddress(index)}
	case answersVIP:
		k.Ports, k.Index = ports, regs.PageIndexVip(w[regs.PageIndex])|regs.CamWordIndexVipMask
	default:
		if is := legKind(c.server(server), kind); is != kind {
			kind, k.Addr = is, embed(k.Addr)
		}
	}
	k.Control = k.Control&^regs.CamWordControlKindMask | kind<<regs.CamWordControlKindShift
	return k, c.cams[ServerSide].Hash(&k)
}

func (c *Core) keyControl(w *page, vlan uint32) uint32 {
	protocol := uint32(protocolTCP)
	if datagrams(w) {
		protocol = protocolUDP
	}
	return regs.CamWordControlValidMask | regs.PageControlKind(w[regs.PageControl])<<regs.CamWordControlKindShift |
		protocol<<regs.CamWordControlProtocolShift | vlan<<regs.CamWordControlVlanShift
}

// hasServer says whether leg set A names a server that counts the page. A server-side CAM entry leads to that too, unless
// its server's answers do not come through the card.
func (c *Core) hasServer(w *page) bool {
	if isPassed(w) {
		return State(regs.PageControlState(w[regs.PageControl])) != Free
	}
	switch State(regs.PageControlState(w[regs.PageControl])) {
	case ServerSyn, Spliced, Closing, Quarantine:
		return !replies(w)
	}
	return false
}

func (c *Core) server(i uint32) []uint32 {
	return entry(c.m.Server, i, serverWords)
}

// hop returns the next hop of a server, or nil where the index is out of range.
func (c *Core) hop(server []uint32) []uint32 {
	i := regs.ServerRouteNextHop(server[regs.ServerRoute])
	if i >= c.m.Geometry.NextHops {
		return nil
	}
	return c.m.NextHop[i*regs.NextHopWords : (i+1)*regs.NextHopWords]
}

func (c *Core) serverState(w *page) []uint32 {
	i := regs.PageAIndexServer(w[regs.PageAIndex])
	return entry(c.m.ServerState, i, regs.ServerStateWords)
}

func (c *Core) serverUse(w *page, d int32) {
	s := c.serverState(w)
	s[regs.ServerStateUseCount] += uint32(d)
	c.limit(s)
}

func (c *Core) serverActive(w *page, d int32) {
	c.serverState(w)[regs.ServerStateActive] += uint32(d)
}

// setState changes the state and notes when.
func (c *Core) setState(w *page, s State) {
	w[regs.PageControl] = regs.SetPageControlState(w[regs.PageControl], uint32(s))
	w[regs.PageOpened] = c.tick
}

// takeHead gives the page a head buffer.
func (c *Core) takeHead(w *page) bool {
	free := c.r.Get(regs.HeadFree)
	if free == 0 || free > c.m.Geometry.Heads {
		c.count(regs.HeadNoneFree)
		return false
	}
	free--
	w[regs.PageHead] = c.m.HeadList[free] & regs.PageHeadBufferMask
	w[regs.PageControl] |= regs.PageControlHeadMask
	c.r.Set(regs.HeadFree, free)
	if free < c.r.Get(regs.HeadLowest) {
		c.r.Set(regs.HeadLowest, free)
	}
	if free+1 == c.r.Get(regs.HeadLowWatermark)&regs.HeadLowWatermarkBuffersMask {
		c.host.Cause(regs.HostifCauseHeadLowMask)
	}
	c.count(regs.HeadTaken)
	return true
}

// releaseHead gives the head buffer back, if there is one.
func (c *Core) releaseHead(w *page) {
	control := ld(w, regs.PageControl)
	if control&regs.PageControlHeadMask == 0 {
		return
	}
	st(w, regs.PageControl, control&^regs.PageControlHeadMask)
	free := c.r.Get(regs.HeadFree)
	if free >= c.m.Geometry.Heads {
		return // the host stored into a page: every buffer is free already
	}
	c.m.HeadList[free] = regs.PageHeadBuffer(ld(w, regs.PageHead))
	c.r.Set(regs.HeadFree, free+1)
	c.count(regs.HeadReleased)
}

// heldBytes is how much a page's head buffer holds: never more than it has room for, whatever the page says.
func heldBytes(w *page) uint32 { return min(regs.PageHeadBytes(w[regs.PageHead]), regs.HeadBytes) }

// head is the buffer of a page.
func (c *Core) head(w *page) []byte {
	i := regs.PageHeadBuffer(w[regs.PageHead])
	if i >= c.m.Geometry.Heads {
		i = 0
	}
	return c.m.Head(i)
}
