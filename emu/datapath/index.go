package datapath

import (
	"splicenic/emu/ssram"
	"splicenic/emu/urltable"
	"splicenic/regs"
)

// index finds a slot of an exact-match memory by key. In silicon every slot compares at once; here an open-addressed
// table leads to the slot. It is derived from the memory alone.
type index struct {
	slots []uint16 // slot + 1; zero: empty
	mask  uint32
}

func newIndex(entries uint32) index {
	size := uint32(8)
	for size < 4*entries {
		size *= 2
	}
	return index{slots: make([]uint16, size), mask: size - 1}
}

func (x *index) clear() { clear(x.slots) }

func (x *index) add(hash uint32, slot uint32) {
	for i := hash & x.mask; ; i = (i + 1) & x.mask {
		if x.slots[i] == 0 {
			x.slots[i] = uint16(slot + 1)
			return
		}
	}
}

// address is an IPv4 or IPv6 address as a number, lowest 32 bits first.
type address [4]uint32

func (a *address) hash(kind uint32) uint32 {
	h := uint64(a[0]) | uint64(a[1])<<32
	h ^= (uint64(a[2]) | uint64(a[3])<<32) * 0x9e3779b97f4a7c15
	h = (h ^ uint64(kind)<<61) * 0xd6e8feb86659fd93
	return uint32(h >> 32)
}

const (
	vipWords      = regs.AddressWords
	serverWords   = regs.ServerWords
	listenerWords = regs.ListenerWords
)

// Reindex rebuilds what is derived from the memories, after the host stored into them or after a restore.
func (c *Core) Reindex() {
	c.reindex(^uint32(0))
}

// Sync rebuilds what the host's stores since the last call have made stale.
func (c *Core) Sync() {
	if c.m.Dirty != 0 {
		dirty := c.m.Dirty
		c.m.Dirty = 0
		c.reindex(dirty)
	}
}

func (c *Core) reindex(dirty uint32) {
	if dirty&ssram.DirtyVip != 0 {
		c.vips.clear()
		for i := range c.m.Geometry.Vips {
			w := c.m.Vip[i*vipWords : (i+1)*vipWords]
			if regs.AddressControlValid(w[regs.AddressControl]) == 0 {
				continue
			}
			a := address(w[regs.AddressAddress:])
			c.vips.add(a.hash(regs.AddressControlKind(w[regs.AddressControl])), i)
		}
	}
	if dirty&ssram.DirtyServer != 0 {
		c.servers.clear()
		c.anyPorts, c.returns, c.twins = false, false, false
		for i := range c.m.Geometry.Servers {
			w := c.m.Server[i*serverWords : (i+1)*serverWords]
			ctl := w[regs.ServerControl]
			if regs.ServerControlValid(ctl) == 0 {
				continue
			}
			a := address(w[regs.ServerAddress:])
			c.returns = c.returns || returns(w)
			if !answers(w) { // what it answers never comes by here, and may look like what another does
				continue
			}
			c.twins = c.twins || c.findServerPort(regs.ServerControlKind(ctl), regs.ServerControlProtocol(ctl), &a, keyPort(w), 0) >= 0
			c.servers.add(a.hash(regs.ServerControlKind(ctl))+keyPort(w), i)
			c.anyPorts = c.anyPorts || keyPort(w) == 0
		}
	}
	if dirty&ssram.DirtyLocal != 0 {
		c.locals.clear()
		c.lends = false
		for i := range c.m.Geometry.LocalAddresses {
			w := c.local(i)
			if regs.AddressControlValid(w[regs.AddressControl]) != 0 {
				a := address(w[regs.AddressAddress:])
				c.locals.add(a.hash(regs.AddressControlKind(w[regs.AddressControl])), i)
				c.lends = true
			}
		}
	}
	if dirty&ssram.DirtyListener != 0 {
		for b := range c.listeners {
			c.listeners[b].clear()
			for i := range c.m.Geometry.Listeners {
				w := c.m.Listener[b][i*listenerWords : (i+1)*listenerWords]
				ctl := w[regs.ListenerControl]
				if regs.ListenerControlValid(ctl) == 0 {
					continue
				}
				c.listeners[b].add(listenerHash(regs.ListenerIndexVip(w[regs.ListenerIndex]), regs.ListenerControlPort(ctl)), i)
			}
		}
	}
	if dirty&ssram.DirtyPages != 0 {
		clear(c.live)
		for n := range c.m.Geometry.Pages {
			if regs.PageControlValid(c.m.Page(n)[regs.PageControl]) != 0 {
				c.live[n/64] |= 1 << (n % 64)
			}
		}
	}
	if dirty == ^uint32(0) {
		c.RekeyDefence()
	}
	if dirty&ssram.DirtyCam != 0 {
		c.cams[ClientSide].Rebuild()
		c.cams[ServerSide].Rebuild()
	}
}

func listenerHash(vip, port uint32) uint32 {
	return (vip<<16 | port) * 0x9e3779b1 >> 12
}

// findVIP answers with the VIP index of an address, or −1.
func (c *Core) findVIP(kind uint32, a *address) int32 { return findAddress(&c.vips, c.m.Vip, kind, a) }

// findLocal answers with the local-address index of an address, or −1.
func (c *Core) findLocal(kind uint32, a *address) int32 {
	if !c.lends {
		return -1
	}
	return findAddress(&c.locals, c.m.LocalAddress, kind, a)
}

func findAddress(x *index, memory []uint32, kind uint32, a *address) int32 {
	for i := a.hash(kind) & x.mask; ; i = (i + 1) & x.mask {
		s := uint32(x.slots[i])
		if s == 0 {
			return -1
		}
		w := (*[vipWords]uint32)(memory[(s-1)*vipWords:])
		if regs.AddressControlKind(w[regs.AddressControl]) == kind && address(w[regs.AddressAddress:]) == *a {
			return int32(s - 1)
		}
	}
}

// answers says whether a server's answers come through the card, from the server's own address.
func answers(server []uint32) bool {
	return regs.ServerControlMethod(server[regs.ServerControl]) <= regs.ServerControlMethodFullnat
}

// returns says whether a server behind a tunnel answers through the card, from the VIP.
func returns(server []uint32) bool {
	return regs.ServerControlMethod(server[regs.ServerControl]) == methodTun && regs.ServerTunnelReturn(server[regs.ServerTunnel]) != 0
}

// comesBack says whether a server's answers to what is passed on to it come through the card.
func comesBack(server []uint32) bool { return answers(server) || returns(server) }

// keyPort is the port by which a server's answers are known; zero: all that belong to no server with a port of its own.
func keyPort(server []uint32) uint32 {
	if regs.ServerTunnelAnyPort(server[regs.ServerTunnel]) != 0 {
		return 0
	}
	return regs.ServerControlPort(server[regs.ServerControl])
}

// anyPort is what a server-side key has of the server's port: nothing, unless the server takes every port.
func (c *Core) anyPort(server, port uint32) uint32 {
	if regs.ServerTunnelAnyPort(c.server(server)[regs.ServerTunnel]) != 0 {
		return port
	}
	return 0
}

// findServer answers with the server index of an address, port and protocol, or −1.
func (c *Core) findServer(kind, protocol uint32, a *address, port uint32) int32 {
	i := c.findServerPort(kind, protocol, a, port, 0)
	if i < 0 && c.anyPorts {
		i = c.findServerPort(kind, protocol, a, 0, 0)
	}
	return i
}

// maxTwins is how many servers of one address, port and protocol are told apart by the connections that they have.
const maxTwins = 4

// anotherServer answers with a server that is the same to who only sees its packets: one whose method was changed while
// connections go on by the old one, or one for every port beside one for this. skip is how many were tried.
func (c *Core) anotherServer(p *packet, skip uint32) int32 {
	kind, protocol := uint32(p.kind), p.protocol()
	if i := c.findServerPort(kind, protocol, &p.src, p.sport, skip); i >= 0 || !c.anyPorts {
		return i
	}
	for own := uint32(0); own < skip; own++ {
		if c.findServerPort(kind, protocol, &p.src, p.sport, own) < 0 {
			return c.findServerPort(kind, protocol, &p.src, 0, skip-own)
		}
	}
	return c.findServerPort(kind, protocol, &p.src, 0, 0)
}

func (c *Core) findServerPort(kind, protocol uint32, a *address, port, skip uint32) int32 {
	x := &c.servers
	for i := (a.hash(kind) + port) & x.mask; ; i = (i + 1) & x.mask {
		s := uint32(x.slots[i])
		if s == 0 {
			return -1
		}
		w := (*[serverWords]uint32)(c.m.Server[(s-1)*serverWords:])
		ctl := w[regs.ServerControl]
		if regs.ServerControlKind(ctl) == kind && regs.ServerControlProtocol(ctl) == protocol &&
			keyPort(w[:]) == port && address(w[regs.ServerAddress:]) == *a {
			if skip == 0 {
				return int32(s - 1)
			}
			skip--
		}
	}
}

// noSource is findService's answer where a listener is there, but no service of it takes the client.
const noSource = -2

// maxChain is how many services of one listener are asked.
const maxChain = 4

// findService answers with the service, in the bank in force, that takes what a segment asks for: of the listener for its
// port, else of that for all other ports of its address. It is −1 where there is none.
func (c *Core) findService(p *packet) int32 {
	b, vip, protocol := c.bank(), uint32(p.vip), p.protocol()
	i := c.findListener(b, vip, p.dport, protocol)
	if i < 0 {
		i = c.findListener(b, vip, 0, protocol)
	}
	for range maxChain {
		if i < 0 || uint32(i) >= c.m.Geometry.Services {
			return -1
		}
		s := c.m.Service[b][uint32(i)*regs.ServiceWords:][:regs.ServiceWords]
		if regs.ServiceControlValid(s[regs.ServiceControl]) == 0 {
			return -1
		}
		if source := s[regs.ServiceSource]; source == 0 || c.fromSource(b, source, p) {
			return i
		}
		otherwise := s[regs.ServiceOtherwise]
		if regs.ServiceOtherwiseValid(otherwise) == 0 {
			break
		}
		i = int32(regs.ServiceOtherwiseService(otherwise))
	}
	return noSource
}

// fromSource says whether a segment comes from one of a service's networks.
func (c *Core) fromSource(bank, source uint32, p *packet) bool {
	count := regs.ServiceSourceCount(source)
	if count == 0 {
		return true
	}
	t := urltable.Tables{Nodes: c.m.Url[bank]}
	return t.Source(regs.ServiceSourceFirst(source), count, (*[4]uint32)(&p.src), p.kind == kindIPv6)
}

// findListener answers with the service index of a listener, or −1.
func (c *Core) findListener(b, vip, port, protocol uint32) int32 {
	x := &c.listeners[b]
	for i := listenerHash(vip, port) & x.mask; ; i = (i + 1) & x.mask {
		s := uint32(x.slots[i])
		if s == 0 {
			return -1
		}
		w := (*[listenerWords]uint32)(c.m.Listener[b][(s-1)*listenerWords:])
		if regs.ListenerControlPort(w[regs.ListenerControl]) == port && regs.ListenerIndexVip(w[regs.ListenerIndex]) == vip &&
			regs.ListenerControlProtocol(w[regs.ListenerControl]) == protocol {
			return int32(regs.ListenerIndexService(w[regs.ListenerIndex]))
		}
	}
}

func (c *Core) bank() uint32 { return regs.TableBankBank(c.r.Get(regs.TableBank)) }

// service returns the words of a service in the bank in force.
func (c *Core) service(i uint32) []uint32 {
	return entry(c.m.Service[c.bank()], i, regs.ServiceWords)
}
