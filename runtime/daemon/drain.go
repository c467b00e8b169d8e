package daemon

import (
	"context"
	"time"

	"splicenic/driver"
	"splicenic/regs"
	"splicenic/runtime/config"
)

// A server that is taken out of the configuration keeps its connections until its group's drain time is over. What is left
// of them then is reset toward both ends; where a server's answers do not come through the card, only the page is freed:
// nobody here knows its numbers. With expire_nodest nothing is waited for.

// A drain is of a server that is out of the configuration.
type drain struct {
	index uint32
	by    time.Duration
	from  uint32 // connections at its begin
}

// Drains counts what became of the connections of servers that were taken out.
type Drains struct{ Drained, Cut uint64 }

// drains begins and ends drains after a configuration came in force: a server that is back has none.
func (d *Daemon) drains(ctx context.Context) {
	retired := map[string]bool{}
	if len(d.im.ix.serverAt) > len(d.im.ix.servers.Used()) {
		if err := d.load(ctx); err != nil {
			d.log.Error("connections of servers not counted", "error", err)
			return
		}
	}
	gone := map[uint32]uint32{}
	for _, n := range d.im.ix.servers.Retired() {
		p, there := d.im.ix.serverAt[n.Index]
		if !there {
			continue
		}
		retired[n.Name] = true
		gone[n.Index] = 0
		if _, running := d.draining[n.Name]; running || p.drain == 0 || n.Index >= uint32(len(d.loads)) {
			continue
		}
		l := d.loads[n.Index]
		d.draining[n.Name] = drain{n.Index, d.now + p.drain, l.Active + l.Inactive}
		d.log.Info("server drains", "server", p.addr, "connections", l.Active+l.Inactive, "for", p.drain)
	}
	for name := range d.draining {
		if !retired[name] {
			delete(d.draining, name)
		}
	}
	if nodest := d.nodest(); len(nodest) > 0 {
		d.cut(ctx, gone, func(p *regs.PageEntry) bool { return nodest[p.IndexService] })
	}
}

// nodest are the services whose connections end with their servers.
func (d *Daemon) nodest() map[uint32]bool {
	all := map[uint32]bool{}
	for i := range d.cfg.Services {
		if s := &d.cfg.Services[i]; s.ExpireNodest {
			at, _ := d.im.ix.services.Of(s.Name)
			all[at] = true
		}
	}
	return all
}

// drained ends the drains that are over.
func (d *Daemon) drained(ctx context.Context) {
	cut, from := map[uint32]uint32{}, map[uint32]uint32{}
	for _, name := range sorted(d.draining) {
		t := d.draining[name]
		if d.now < t.by {
			continue
		}
		delete(d.draining, name)
		p, there := d.im.ix.serverAt[t.index]
		if !there || p.name() != name { // it was released: nothing was left
			d.status.Drains.Drained += uint64(t.from)
			continue
		}
		cut[t.index], from[t.index] = 0, t.from
	}
	d.cut(ctx, cut, func(*regs.PageEntry) bool { return true })
	for _, i := range sorted(cut) {
		drained := from[i] - min(from[i], cut[i])
		d.status.Drains.Drained += uint64(drained)
		d.log.Info("server drained", "server", d.im.ix.serverAt[i].addr, "drained", drained, "cut", cut[i])
	}
}

// cut ends the connections of servers, and their templates, and adds up how many of the former each server had. It reads
// every page once, however many servers there are.
func (d *Daemon) cut(ctx context.Context, servers map[uint32]uint32, which func(*regs.PageEntry) bool) {
	if len(servers) == 0 {
		return
	}
	type victim struct {
		h        driver.Handle
		server   uint32
		template bool
		silent   bool
	}
	var victims []victim
	err := d.card.Connections(ctx, func(page uint32, p *regs.PageEntry) bool {
		server := p.AIndexServer
		_, named := servers[server]
		if !named && p.ControlLegB != 0 {
			server = p.BIndexServer
			_, named = servers[server]
		}
		if named && p.ControlState != regs.PageControlStateQuarantine && which(p) {
			template := p.ClientLinkPassed != 0 && p.ControlState == regs.PageControlStateWaitHead
			victims = append(victims, victim{driver.NewHandle(page, p.ControlGeneration), server, template, template || d.oneSided(server, p)})
		}
		return true
	})
	for _, v := range victims {
		end := func() error { return d.card.ResetConnection(ctx, v.h, true, true) }
		if v.silent {
			end = func() error { return d.card.Free(ctx, v.h) }
		}
		switch e := end(); {
		case e != nil:
			err = e
		case !v.template:
			servers[v.server]++
			d.status.Drains.Cut++
		}
	}
	if err != nil {
		d.log.Warn("connections of servers that are gone not all ended", "servers", sorted(servers), "error", err)
	}
}

// oneSided says whether nobody here could reset a connection's ends: the server's answers do not come by, or there are none.
func (d *Daemon) oneSided(server uint32, p *regs.PageEntry) bool {
	at := d.im.ix.serverAt[server]
	return p.ClientLinkPassed != 0 && (at.udp || at.method == config.DR || at.method == config.Tun && !at.returns)
}
