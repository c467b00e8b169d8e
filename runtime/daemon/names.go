package daemon

import (
	"splicenic/driver"
	"splicenic/runtime/config"
	"splicenic/runtime/exception"
	"splicenic/runtime/neighbour"
	"splicenic/runtime/view"
)

// View calls f with the card and the names of what its tables hold, while nothing else uses the card.
func (d *Daemon) View(f func(*view.View) error) error {
	return d.Do(func(c *driver.Card) error { return f(&view.View{Card: c, Names: d.names()}) })
}

func (d *Daemon) names() view.Names {
	n := view.Names{Services: map[uint32]string{}, Groups: map[uint32]string{}, Schedulers: map[uint32]string{}, Rules: map[uint32]view.RuleText{}}
	if d.cfg == nil {
		return n
	}
	for _, s := range d.im.ix.services.Used() {
		n.Services[s.Index] = s.Name
	}
	for _, s := range d.im.ix.services.Retired() {
		n.Services[s.Index] = s.Name
	}
	for _, g := range d.im.ix.groups.Used() {
		n.Groups[g.Index] = g.Name
		n.Schedulers[g.Index] = string(d.cfg.Group(g.Name).Scheduler)
	}
	for _, r := range d.im.list {
		t := view.RuleText{Host: r.Host, Path: r.Path, Match: "exact"}
		if !r.Exact {
			t.Match, t.Path = "prefix", r.Path+"/*"
		}
		n.Rules[r.Index] = t
	}
	for _, p := range d.cfg.Ports() {
		n.Ports = append(n.Ports, portText(p))
	}
	return n
}

func portText(p *config.Port) view.PortText {
	t := view.PortText{Forward: "off"}
	if p.Forward {
		t.Forward = "routed"
	}
	for _, a := range p.Addresses {
		t.Addresses = append(t.Addresses, a.Prefix.String())
	}
	for _, g := range p.Gateways {
		t.Gateways = append(t.Gateways, g.Address.String())
	}
	return t
}

// Neighbours lists what is known of neighbours.
func (d *Daemon) Neighbours() []neighbour.Neighbour {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.h.Neighbours().List(d.now)
}

// Counters are the daemon's own, by name: what exceptions led to, why frames were dropped, events and errors.
func (d *Daemon) Counters() view.Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := view.Stats{}
	profiles := map[string]uint64{Configured: 0, "learned": 0, "unknown": 0}
	counters := d.h.Counters()
	for _, r := range exception.Reasons() {
		s.Set("actions."+r.String(), counters[r])
	}
	for i, n := range d.status.exceptions {
		s.Set("exceptions."+view.ExceptionReason(uint32(i)), n)
	}
	for i, n := range d.events.types {
		s.Set("events."+view.EventType(uint32(i)), n)
	}
	for i, n := range d.events.closed {
		s.Set("closed."+view.EventReason(uint32(i)), n)
	}
	for i, n := range d.status.causes {
		s.Set("causes."+causeNames[i], n)
	}
	for _, p := range d.servers() {
		known := "unknown"
		switch {
		case p.From == Configured:
			known = Configured
		case p.Profile.Known:
			known = "learned"
		}
		profiles[known]++
	}
	for _, known := range sorted(profiles) {
		s.Set("profiles."+known, profiles[known])
	}
	st := d.card.Stats()
	s.Set("lost.exceptions", st.LostExceptions)
	s.Set("lost.events", st.LostEvents)
	s.Set("lost.interrupts", st.LostInterrupts)
	s.Set("bad_descriptors", st.BadDescriptors)
	s.Set("table_errors", d.status.TableErrors)
	return s
}
