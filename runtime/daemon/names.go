package daemon

import (
	"splicenic/driver"
	"splicenic/runtime/config"
	"splicenic/runtime/exception"
	"splicenic/runtime/neighbour"
	"splicenic/runtime/rule"
	"splicenic/runtime/view"
)

// View calls f with the card and the names of what its tables hold, while nothing else uses the card.
func (d *Daemon) View(f func(*view.View) error) error {
	return d.Do(func(c *driver.Card) error { return f(&view.View{Card: c, Names: d.names()}) })
}

func (d *Daemon) names() view.Names {
	n := view.Names{Services: map[uint32]string{}, Groups: map[uint32]string{}, Health: map[uint32]view.Health{}, Schedulers: map[uint32]string{}, Rules: map[uint32]view.RuleText{}, Defaults: map[uint32]string{}}
	if d.cfg == nil {
		return n
	}
	n.Why = d.why
	for _, s := range d.im.ix.services.Used() {
		n.Services[s.Index] = s.Name
	}
	for _, s := range d.im.ix.services.Retired() {
		n.Services[s.Index] = s.Name
	}
	health := d.groupHealth()
	for i, pool := range d.im.pools {
		if pool.Group != nil {
			n.Health[uint32(i)] = health[pool.Group.Name]
			n.Groups[uint32(i)], n.Schedulers[uint32(i)] = d.cfg.PoolName(pool), string(pool.Group.Scheduler)
		}
	}
	for _, r := range d.im.list {
		n.Rules[r.Index] = ruleText(&r)
	}
	d.answers(&n)
	for _, p := range d.cfg.Ports() {
		n.Ports = append(n.Ports, portText(p))
	}
	return n
}

// ruleText says what a rule asks.
func ruleText(r *rule.Rule) view.RuleText {
	t := view.RuleText{Host: r.Host, Path: r.Path.Text, Match: "exact", When: r.Parts(), Slow: r.Match.Slow()}
	switch r.Path.Kind {
	case rule.PrefixPath, rule.AnyPath:
		t.Match, t.Path = "prefix", r.Path.Text+"/*"
	case rule.PatternPath:
		t.Match = "pattern"
	case rule.RegexpPath:
		t.Match = "regex"
	}
	if t.Slow == "" && r.Slow {
		t.Slow = "it has more conditions, or more rules before it, than the card looks at"
	}
	return t
}

// answers adds what rules and services answer themselves, by what the rules ask: a configuration has no two that ask the
// same and do not do the same.
func (d *Daemon) answers(n *view.Names) {
	texts := map[string]string{}
	for i := range d.cfg.Services {
		s := &d.cfg.Services[i]
		for k := range s.Routes {
			if r := &s.Routes[k]; r.To.Reply != nil {
				texts[s.Name+"\x00"+r.Match.String()] = r.To.String()
			}
		}
		if at, ok := d.im.ix.services.Of(s.Name); ok && s.Default.Reply != nil {
			n.Defaults[at] = s.Default.String()
		}
	}
	for i := range d.im.list {
		if r := &d.im.list[i]; r.Answer {
			t := n.Rules[r.Index]
			t.Answer = texts[n.Services[r.Service]+"\x00"+r.Match.String()]
			n.Rules[r.Index] = t
		}
	}
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
	for i, n := range d.h.Dropped() {
		s.Set("beyond_share."+view.ExceptionReason(uint32(i)), n)
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
	s.Set("log", d.logging.counters())
	d.publishing.counters(s)
	d.healthCounters(s)
	s.Set("local_ports_low", uint64(len(d.portsLow)))
	s.Set("drain.drained", d.status.Drains.Drained)
	s.Set("drain.cut", d.status.Drains.Cut)
	s.Set("table_errors", d.status.TableErrors)
	return s
}
