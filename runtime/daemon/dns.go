package daemon

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"splicenic/regs"
	"splicenic/runtime/config"
	"splicenic/runtime/dns"
	"splicenic/runtime/view"
)

// publishing is the name server, and what it was told last.
type publishing struct {
	*dns.Server
	cfg   *config.Config
	im    *Image
	known bool
}

func newPublishing(d *Daemon, key [32]byte) publishing {
	sum := sha256.Sum256(append(key[:], "dns"...))
	return publishing{Server: dns.New(dns.Config{
		Now: d.wall, Log: d.log, Key: [2]uint64{binary.LittleEndian.Uint64(sum[:]), binary.LittleEndian.Uint64(sum[8:])},
	})}
}

// publish tells the name server which services work, when that may have changed. As long as the card does not take
// connections nobody knows.
func (d *Daemon) publish() {
	known := d.status.Accepting
	if d.cfg == nil || d.publishing.cfg == d.cfg && d.publishing.im == d.im && d.publishing.known == known {
		return
	}
	d.publishing.cfg, d.publishing.im, d.publishing.known = d.cfg, d.im, known
	if !known {
		d.publishing.Publish(d.cfg, nil)
		return
	}
	d.publishing.Publish(d.cfg, func(service string) bool { return d.im.quorum(d.cfg, service) })
}

// quorum says whether a service would serve a new client: its default does or, where it has none, a group of a route.
func (im *Image) quorum(c *config.Config, service string) bool {
	i := slices.IndexFunc(c.Services, func(s config.Service) bool { return s.Name == service })
	if i < 0 {
		return false
	}
	s := &c.Services[i]
	if !s.Default.Nowhere() {
		return im.serves(c, s.Default)
	}
	return slices.ContainsFunc(s.Routes, func(r config.Route) bool { return im.serves(c, r.To) }) ||
		im.serves(c, config.Target{Group: s.H2C})
}

// serves says whether a target takes connections: a server of its group that has a slot and a next hop, who is sorry in
// their place, or an answer.
func (im *Image) serves(c *config.Config, t config.Target) bool {
	for range len(c.Groups) + 1 { // no longer than every group is sorry for another one
		g := c.Group(t.Group)
		if t.Reply != nil || g == nil {
			return t.Reply != nil
		}
		if index, ok := im.ix.groups.Of(g.Name); ok && index < uint32(len(im.slots)) && slices.ContainsFunc(im.slots[index], im.takes) {
			return true
		}
		t = g.Sorry
	}
	return false
}

// takes says whether a slot leads to a server that is open and whose next hop is known.
func (im *Image) takes(slot uint32) bool {
	server := regs.SlotSlotServer(slot)
	at := (server + 1) * regs.ServerWords
	if regs.SlotSlotValid(slot) == 0 || at > uint32(len(im.servers)) {
		return false
	}
	var e regs.ServerEntry
	e.Decode(im.servers[at-regs.ServerWords : at])
	hop := (e.RouteNextHop + 1) * regs.NextHopWords
	return e.ControlClosed == 0 && hop <= uint32(len(im.hops)) && regs.NextHopControlResolved(im.hops[hop-regs.NextHopWords+regs.NextHopControl]) != 0
}

// DNS tells what is published; nil where the configuration publishes nothing.
func (d *Daemon) DNS() *dns.Shown {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.publish() // a configuration counts at once, not with the next Step only
	return d.publishing.Show()
}

// counters are the name server's; without one they are not shown.
func (p *publishing) counters(s view.Stats) {
	if p.cfg == nil || p.cfg.DNS == nil {
		return
	}
	n := p.Counters()
	for _, name := range sorted(n) {
		s.Set("dns."+name, n[name])
	}
}
