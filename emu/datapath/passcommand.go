package datapath

import (
	"splicenic/emu/cam"
	"splicenic/regs"
)

// commandPass opens a passed connection for the host, or makes a template: what it expects of a client or of a server that
// begins. The page waits for the first segment as long as a SYN may take to be answered.
func (c *Core) commandPass(e *regs.CommandEntry, done *regs.CompletionEntry) uint32 {
	k, status := c.commandKey(e)
	if status != statusOK {
		return status
	}
	server, port := e.Bar2Offset&0xffff, e.Bar2Offset>>16
	service, vipPort := e.Boundary&0xffff, e.Boundary>>16
	if vipPort != 0 {
		k.Ports = k.Ports&0xffff | vipPort<<16
	}
	who := chooser{
		kind: e.KeyControlKind, protocol: e.KeyControlProtocol, source: k.Addr, vip: e.KeyIndexIndex, vlan: e.KeyControlVlan,
		port: k.Ports & 0xffff, dport: k.Ports >> 16, passed: true,
	}
	if who.kind != kindIPv4 && who.kind != kindIPv6 || who.protocol != protocolTCP && who.protocol != protocolUDP ||
		who.vip >= c.m.Geometry.Vips || service >= c.m.Geometry.Services || !c.takesMore(server, &who) {
		return statusArgument
	}
	if e.FlagsTemplate != 0 {
		k.Ports &= 0xffff << 16
		handle, status := c.makeTemplate(&k, c.cams[ClientSide].Hash(&k), service, server, &who)
		done.HandleN, done.HandleGeneration = handle&handleMask, handle>>20
		return status
	}
	var link *page
	if e.FlagsFromServer != 0 {
		if e.HandleN >= c.m.Geometry.Pages || handleOf(e.HandleN, c.page(e.HandleN)) != e.HandleN|e.HandleGeneration<<20 ||
			c.page(e.HandleN)[regs.PageControl]&regs.PageControlValidMask == 0 {
			return statusStale
		}
		of := *c.page(e.HandleN) // whose page may be the one that makes room
		if link = &of; regs.PageClientLinkVlan(of[regs.PageClientLink]) != who.vlan {
			return statusArgument // the client's answers would not find the page
		}
	}
	n, ok := c.allocate()
	if !ok {
		c.count(regs.AmuNoPage)
		return statusNoPage
	}
	w := c.page(n)
	result := c.cams[ClientSide].Insert(&k, c.cams[ClientSide].Hash(&k), handleOf(n, w), false)
	if result != cam.OK {
		c.r.Set(regs.AmuLive, c.r.Get(regs.AmuLive)-1)
		c.release(n, w)
		return insertStatus(result)
	}
	c.fillExpected(w, link, &who, service, server)
	if port != 0 {
		w[regs.PageALocal] = port
		if link != nil && regs.PageAIndexAnswers(link[regs.PageAIndex]) == answersLocal {
			w[regs.PageAIndex] = regs.SetPageAIndexLocalAddress(regs.SetPageAIndexAnswers(server, answersLocal), regs.PageAIndexLocalAddress(link[regs.PageAIndex]))
			w[regs.PageBLocal] = port
		}
		w[regs.PageAChecksum] = c.differences(w)
	}
	if e.FlagsModule != 0 {
		w[regs.PageControl] = regs.SetPageControlHostReason(w[regs.PageControl], reasonModule)
	}
	c.serverUse(w, 1)
	if comesBack(c.server(server)) {
		sk, h := c.serverKey(w, 0)
		if result = c.cams[ServerSide].Insert(&sk, h, handleOf(n, w), false); result == cam.Exists && c.recycleHolder(&sk, h) {
			result = c.cams[ServerSide].Insert(&sk, h, handleOf(n, w), false)
		}
		if result != cam.OK {
			c.free(n, w)
			return insertStatus(result)
		}
	}
	c.countServed(c.serverState(w))
	c.count(regs.PassOpened)
	c.openedEvent(n, w)
	if datagrams(w) {
		c.passedActive(w, Spliced)
		c.setState(w, Spliced)
		c.count(regs.PassEstablished)
		c.splicedEvent(n, w)
	}
	done.HandleN, done.HandleGeneration = n, handleOf(n, w)>>20
	return statusOK
}

func insertStatus(r cam.Result) uint32 {
	if r == cam.Exists {
		return statusKeyExists
	}
	return statusNoPlace
}

// fillExpected writes the page of a connection whose first segment is still to come. link is the page of a connection of
// the same client, nil where the client's own first segment tells its link.
func (c *Core) fillExpected(w, link *page, who *chooser, service, server uint32) {
	control := regs.SetPageControlKind(w[regs.PageControl], who.kind)
	w[regs.PageClientLink] = who.vlan | regs.PageClientLinkPassedMask
	if who.vlan != 0 {
		w[regs.PageClientLink] |= regs.PageClientLinkTaggedMask
	}
	if link != nil {
		control = regs.SetPageControlPort(control, regs.PageControlPort(link[regs.PageControl]))
		const of = regs.PageClientLinkVlanMask | regs.PageClientLinkTaggedMask
		w[regs.PageClientLink] = link[regs.PageClientLink]&of | regs.PageClientLinkPassedMask
		w[regs.PageClientMacLo], w[regs.PageClientMacHi] = link[regs.PageClientMacLo], regs.PageClientMacHiAddress(link[regs.PageClientMacHi])
	}
	w[regs.PageControl] = control
	w[regs.PagePorts] = who.port | who.dport<<16
	w[regs.PageIndex] = who.vip | service<<16
	copy(w[regs.PageClientAddress:], who.source[:])
	w[regs.PageLastSeen] = c.tick
	c.fillServer(w, server, who.port)
	c.setState(w, SynRcvd)
}
