package datapath

import (
	"splicenic/emu/cam"
	"splicenic/regs"
)

// A template says where the connections of a client go: a page of its own, in state WAIT_HEAD, whose client-side key has
// the client's network in the place of its address, no client port, and no port of the VIP where it holds for all. It lives
// service.persistence after the last connection that it led.

// templateKey is the key of the template for a client of a service.
func (c *Core) templateKey(service []uint32, who *chooser) (cam.Key, uint64) {
	net, port := service[regs.ServicePersistenceNet], who.dport
	bits := regs.ServicePersistenceNetIpv4(net)
	if who.kind == kindIPv6 {
		bits = regs.ServicePersistenceNetIpv6(net)
	}
	if service[regs.ServicePersistence] == 0 {
		bits = 128 // one that the host made for what it expects of a client
	}
	if regs.ServiceControlAnyPort(service[regs.ServiceControl]) != 0 {
		port = 0
	}
	k := cam.Key{
		Control: regs.CamWordControlValidMask | who.kind<<regs.CamWordControlKindShift | who.protocol<<regs.CamWordControlProtocolShift | who.vlan<<regs.CamWordControlVlanShift,
		Ports:   port << 16, Index: who.vip, Addr: masked(who.source, who.kind, bits),
	}
	return k, c.cams[ClientSide].Hash(&k)
}

// masked keeps the upper bits of an address.
func masked(a address, kind, bits uint32) address {
	top := 0
	if kind == kindIPv6 {
		top = 3
	}
	for i := top; i >= 0; i-- {
		if bits < 32 {
			a[i] &^= ^uint32(0) >> bits
			bits = 0
			continue
		}
		bits -= 32
	}
	return a
}

// templateAt is the template under a key, nil where there is none.
func (c *Core) templateAt(k *cam.Key, h uint64) (n uint32, w *page) {
	handle, _, ok := c.cams[ClientSide].Lookup(k, h)
	if !ok {
		return 0, nil
	}
	n = handle & handleMask
	w = c.page(n)
	if handleOf(n, w) != handle || !isTemplate(w) {
		return 0, nil
	}
	return n, w
}

// isTemplate says whether a page is no connection.
func isTemplate(w *page) bool {
	return isPassed(w) && State(regs.PageControlState(w[regs.PageControl])) == WaitHead
}

// target chooses a server for a client of a service: the template's, if there is one that holds, else one of the group,
// and a template for those that follow.
func (c *Core) target(service, group, bank uint32, who *chooser) (server uint32, ok bool) {
	s := c.m.Service[bank][service*regs.ServiceWords:][:regs.ServiceWords]
	persistent := s[regs.ServicePersistence] != 0
	if !persistent && regs.ServiceControlModule(s[regs.ServiceControl]) == 0 {
		return c.pick(group, bank, who)
	}
	k, h := c.templateKey(s, who)
	n, w := c.templateAt(&k, h)
	if w != nil {
		server = regs.PageAIndexServer(w[regs.PageAIndex])
		if c.holds(s, group, bank, server, who) {
			c.count(regs.PassTemplateHit)
			w[regs.PageLastSeen] = c.tick
			return server, true
		}
		c.count(regs.PassTemplateStale)
		c.free(n, w)
	}
	if server, ok = c.pick(group, bank, who); ok && persistent {
		c.makeTemplate(&k, h, service, server, who)
	}
	return server, ok
}

// holds says whether a template's server still takes its client: it is there and can be reached, full or not, and has a
// slot where the service asks for that. Of a group with more slots than a choice looks at, no slot is missed.
func (c *Core) holds(s []uint32, group, bank, server uint32, who *chooser) bool {
	if !c.takesMore(server, who) {
		return false
	}
	if regs.ServiceControlExpireQuiescent(s[regs.ServiceControl]) == 0 {
		return true
	}
	_, _, slots := c.slots(group, bank)
	for _, slot := range slots[:min(maxCompare, len(slots))] {
		if regs.SlotSlotValid(slot) != 0 && regs.SlotSlotServer(slot) == server {
			return true
		}
	}
	return len(slots) > maxCompare
}

// makeTemplate takes a page for a template. Where none is free the connection does without.
func (c *Core) makeTemplate(k *cam.Key, h uint64, service, server uint32, who *chooser) (handle uint32, status uint32) {
	n, ok := c.allocate()
	if !ok {
		c.count(regs.AmuNoPage)
		return 0, statusNoPage
	}
	w := c.page(n)
	if result := c.cams[ClientSide].Insert(k, h, handleOf(n, w), false); result != cam.OK {
		c.r.Set(regs.AmuLive, c.r.Get(regs.AmuLive)-1)
		c.release(n, w)
		if result == cam.Exists {
			return 0, statusKeyExists
		}
		c.count(regs.AmuNoCamPlace)
		return 0, statusNoPlace
	}
	w[regs.PageControl] = regs.SetPageControlKind(w[regs.PageControl], who.kind)
	w[regs.PageClientLink] = who.vlan | regs.PageClientLinkPassedMask
	w[regs.PagePorts] = k.Ports
	w[regs.PageIndex] = who.vip | service<<16
	copy(w[regs.PageClientAddress:], k.Addr[:])
	w[regs.PageAIndex] = server
	if who.protocol == protocolUDP {
		w[regs.PageAScale] = regs.PageAScaleDatagramsMask
	}
	w[regs.PageLastSeen] = c.tick
	c.setState(w, WaitHead)
	c.serverState(w)[regs.ServerStateTemplates]++
	c.serverUse(w, 1)
	c.count(regs.PassTemplateTaken)
	return handleOf(n, w), statusOK
}

// keepTemplate refreshes the template that led a connection.
func (c *Core) keepTemplate(w *page) {
	s := c.service(regs.PageIndexService(w[regs.PageIndex]))
	if s[regs.ServicePersistence] == 0 {
		return
	}
	who := c.chooser(w)
	k, h := c.templateKey(s, &who)
	if _, t := c.templateAt(&k, h); t != nil && regs.PageAIndexServer(t[regs.PageAIndex]) == regs.PageAIndexServer(w[regs.PageAIndex]) {
		t[regs.PageLastSeen] = c.tick
	}
}

// keepTemplateNow and then refreshes the template of a live connection: often enough, and not at each look of the scan.
func (c *Core) keepTemplateNow(w *page) {
	life := c.service(regs.PageIndexService(w[regs.PageIndex]))[regs.ServicePersistence]
	if life == 0 || c.tick-w[regs.PageDeadline] < min(life/4, 1000) {
		return
	}
	w[regs.PageDeadline] = c.tick // which means nothing else where control.deadline is not set
	c.keepTemplate(w)
}

// expireTemplate ends a template whose time is over. One that the host made lives as long as a client may take to send
// its head.
func (c *Core) expireTemplate(n uint32, w *page) {
	life := c.service(regs.PageIndexService(w[regs.PageIndex]))[regs.ServicePersistence]
	if life == 0 {
		life = c.ticks(regs.TimerWaitHead)
	}
	if c.tick-w[regs.PageLastSeen] < life {
		return
	}
	c.count(regs.TimerExpired)
	c.count(regs.PassTemplateExpired)
	c.free(n, w)
}

// expects finds the template that the host made for a segment to a port that nobody listens at.
func (c *Core) expects(p *packet) *page {
	who := c.chooserOf(p)
	var nobody [regs.ServiceWords]uint32
	k, h := c.templateKey(nobody[:], &who)
	_, w := c.templateAt(&k, h)
	return w
}
