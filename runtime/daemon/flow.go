package daemon

import (
	"context"

	"splicenic/driver"
	"splicenic/regs"
	"splicenic/runtime/exception"
	"splicenic/runtime/neighbour"
)

// find looks up the connection that a side of the card knows by its flow.
func (d *Daemon) find(side int, f exception.Flow) (c exception.Connection, ok bool) {
	k := driver.Key{Protocol: protocolTCP, VLAN: f.VLAN, Port: f.Far.Port(), Addr: f.Far.Addr()}
	index, ok := d.serverIndex(f)
	if side == regs.CamClient {
		index, ok = d.vipIndex(f)
		k.Destination = f.Near.Port()
	}
	if !ok {
		return c, false
	}
	k.Index = uint16(index)
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

func (d *Daemon) serverIndex(f exception.Flow) (uint32, bool) {
	for i, s := range d.im.ix.serverAt {
		if s.addr == f.Near {
			return i, true
		}
	}
	return 0, false
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
	s.Addr, s.Hop = at.addr, at.hop.Hop
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
