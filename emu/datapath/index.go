package datapath

import (
	"splicenic/emu/ssram"
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
		for i := range c.m.Geometry.Servers {
			w := c.m.Server[i*serverWords : (i+1)*serverWords]
			ctl := w[regs.ServerControl]
			if regs.ServerControlValid(ctl) == 0 {
				continue
			}
			a := address(w[regs.ServerAddress:])
			c.servers.add(a.hash(regs.ServerControlKind(ctl))+regs.ServerControlPort(ctl), i)
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
func (c *Core) findVIP(kind uint32, a *address) int32 {
	x := &c.vips
	for i := a.hash(kind) & x.mask; ; i = (i + 1) & x.mask {
		s := uint32(x.slots[i])
		if s == 0 {
			return -1
		}
		w := (*[vipWords]uint32)(c.m.Vip[(s-1)*vipWords:])
		if regs.AddressControlKind(w[regs.AddressControl]) == kind && address(w[regs.AddressAddress:]) == *a {
			return int32(s - 1)
		}
	}
}

// findServer answers with the server index of an address and TCP port, or −1.
func (c *Core) findServer(kind uint32, a *address, port uint32) int32 {
	x := &c.servers
	for i := (a.hash(kind) + port) & x.mask; ; i = (i + 1) & x.mask {
		s := uint32(x.slots[i])
		if s == 0 {
			return -1
		}
		w := (*[serverWords]uint32)(c.m.Server[(s-1)*serverWords:])
		ctl := w[regs.ServerControl]
		if regs.ServerControlPort(ctl) == port && regs.ServerControlKind(ctl) == kind &&
			regs.ServerControlProtocol(ctl) == protocolTCP && address(w[regs.ServerAddress:]) == *a {
			return int32(s - 1)
		}
	}
}

// findService answers with the service index of a listener in the bank in force, or −1.
func (c *Core) findService(vip, port uint32) int32 {
	b := c.bank()
	x := &c.listeners[b]
	for i := listenerHash(vip, port) & x.mask; ; i = (i + 1) & x.mask {
		s := uint32(x.slots[i])
		if s == 0 {
			return -1
		}
		w := (*[listenerWords]uint32)(c.m.Listener[b][(s-1)*listenerWords:])
		if regs.ListenerControlPort(w[regs.ListenerControl]) == port && regs.ListenerIndexVip(w[regs.ListenerIndex]) == vip &&
			regs.ListenerControlProtocol(w[regs.ListenerControl]) == protocolTCP {
			service := regs.ListenerIndexService(w[regs.ListenerIndex])
			if service >= c.m.Geometry.Services || regs.ServiceControlValid(c.m.Service[b][service*regs.ServiceWords+regs.ServiceControl]) == 0 {
				return -1
			}
			return int32(service)
		}
	}
}

func (c *Core) bank() uint32 { return regs.TableBankBank(c.r.Get(regs.TableBank)) }

// service returns the words of a service in the bank in force.
func (c *Core) service(i uint32) []uint32 {
	return entry(c.m.Service[c.bank()], i, regs.ServiceWords)
}
