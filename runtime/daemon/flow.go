package daemon

import (
	"context"
	"net/netip"
	"slices"

	"splicenic/driver"
	"splicenic/regs"
	"splicenic/runtime/config"
	"splicenic/runtime/exception"
	"splicenic/runtime/neighbour"
)

// find looks up the connection that a side of the card knows by its flow.
func (d *Daemon) find(side int, f exception.Flow) (c exception.Connection, ok bool) {
	k := driver.Key{Protocol: f.Protocol, VLAN: f.VLAN, Port: f.Far.Port(), Addr: f.Far.Addr()}
	if side == regs.CamClient {
		index, ok := d.vipIndex(f)
		if !ok {
			return c, false
		}
		k.Index, k.Destination = uint16(index), f.Near.Port()
		return d.lookUp(side, k)
	}
	for i, local := range d.im.ix.localAt {
		if local == f.Far.Addr() {
			k.Addr, k.Local = netip.Addr{}, uint16(i)
		}
	}
	for _, i := range d.serverIndexes(f) {
		k.Index, k.Destination = uint16(i), 0
		if d.im.ix.serverAt[i].addr.Port() == 0 {
			k.Destination = f.Near.Port()
		}
		if c, ok = d.lookUp(side, k); ok {
			return c, true
		}
	}
	return c, false
}

func (d *Daemon) lookUp(side int, k driver.Key) (c exception.Connection, ok bool) {
	h, legB, err := d.card.CAMLookup(context.Background(), side, k)
	if err != nil {
		return c, false
	}
	c, ok = d.connection(uint32(h))
	c.LegB = legB
	return c, ok
}

func (d *Daemon) vipIndex(f exception.Flow) (uint32, bool) {
	for i, a := range d.im.ix.vipAt {
		if a == f.Near.Addr() {
			return i, true
		}
	}
	return 0, false
}

// serverIndexes are the entries whose connections a flow can be of: a server that got another method has several.
func (d *Daemon) serverIndexes(f exception.Flow) (list []uint32) {
	for i, s := range d.im.ix.serverAt {
		if s.udp == (f.Protocol == protocolUDP) && s.addr.Addr() == f.Near.Addr() && (s.addr.Port() == f.Near.Port() || s.addr.Port() == 0) {
			list = append(list, i)
		}
	}
	slices.Sort(list)
	return list
}

// connection reads a connection's page, and from the tables what its indexes stand for.
func (d *Daemon) connection(handle uint32) (c exception.Connection, ok bool) {
	h := driver.Handle(handle)
	p, err := d.card.Page(context.Background(), h.N())
	if err != nil || p.ControlValid == 0 || p.ControlGeneration != h.Generation() {
		return c, false
	}
	c.Page = p
	if c.VIP, ok = d.im.ix.vipAt[p.IndexVip]; !ok {
		return c, false
	}
	c.Servers[0] = d.far(p.AIndexServer)
	if c.Servers[0].Method == regs.MethodFullnat {
		c.Local = d.im.ix.localAt[p.AIndexLocalAddress]
	}
	if a := &c.Servers[0].Addr; a.Port() == 0 {
		*a = netip.AddrPortFrom(a.Addr(), uint16(p.PortsVip))
	}
	if p.ControlLegB != 0 {
		c.Servers[1] = d.far(p.BIndexServer)
	}
	return c, true
}

// far is a server and the way there, as the card's tables have it.
func (d *Daemon) far(index uint32) (s exception.Server) {
	at, ok := d.im.ix.serverAt[index]
	if !ok {
		return s
	}
	s.Addr, s.Hop, s.Method, s.Tunnel = at.addr, at.hop.Hop, methods[at.method], at.entry()
	if at.method == config.Tun && len(at.locals) > 0 {
		s.Local = at.locals[0]
	}
	hop, ok := d.im.ix.hops.Of(at.hop.name())
	if !ok || uint32(len(d.im.hops)) < (hop+1)*regs.NextHopWords {
		return s
	}
	var e regs.NextHopEntry
	e.Decode(d.im.hops[hop*regs.NextHopWords:])
	s.Port, s.VLAN, s.Tagged, s.Resolved = int(e.ControlPort), uint16(e.ControlVlan), e.ControlTagged != 0, e.ControlResolved != 0
	s.MAC = neighbour.MAC(driver.MAC(e.MacLo, e.MacHiAddress))
	return s
}
