package view

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"splicenic/regs"
)

// Rule is a rule, or a service's default, as the hardware holds it.
type Rule struct {
	Index   *uint32 `json:"index"` // nil: a default
	Order   uint32  `json:"order"` // place in the order of precedence of its service
	Service string  `json:"service"`
	Host    string  `json:"host"`
	Path    string  `json:"path"`
	Match   string  `json:"match"` // "exact", "prefix", "pattern", "regex" or "default"
	Group   string  `json:"group"` // empty: it is answered
	Hits    *uint64 `json:"hits"`  // nil: nothing counts them
	InForce bool    `json:"in_force"`

	When    []string `json:"when"`             // methods and conditions
	Answer  string   `json:"answer,omitempty"` // what is answered, such as "reply 404"
	Decides string   `json:"decides"`          // "card", or "host": slow, since requests that it may take are handed over
	Slow    string   `json:"slow,omitempty"`   // why
}

// Rules reads the rule table in force with its hit counters, by service and precedence. Defaults have no counter.
func (v *View) Rules(ctx context.Context) ([]Rule, error) {
	bank, _ := v.Card.Bank()
	services, err := v.table(ctx, regs.MemService, bank, 0)
	if err != nil {
		return nil, err
	}
	rules, err := v.table(ctx, regs.MemRule, bank, 0)
	if err != nil {
		return nil, err
	}
	top := uint32(0) // above the last rule in force
	for i := uint32(0); int(i)*regs.RuleWords < len(rules); i++ {
		if regs.RuleControlValid(rules[i*regs.RuleWords]) != 0 {
			top = i + 1
		}
	}
	hits, err := v.table(ctx, regs.MemRuleCounter, 0, max(top, 1))
	if err != nil {
		return nil, err
	}
	list := []Rule{}
	order := map[string]uint32{}
	for i := range top {
		var e regs.RuleEntry
		e.Decode(rules[i*regs.RuleWords:])
		if e.ControlValid == 0 {
			continue
		}
		r := Rule{Index: &i, Order: e.Order, Service: v.service(e.ServiceService), Group: v.group(e.ControlGroup), InForce: true, When: []string{}, Decides: "card"}
		var c regs.RuleCounterEntry
		c.Decode(hits[i*regs.RuleCounterWords:])
		n := uint64(c.HitsHi)<<32 | uint64(c.HitsLo)
		r.Hits = &n
		if t, ok := v.Names.Rules[i]; ok {
			r.Host, r.Path, r.Match, r.When, r.Answer, r.Slow = t.Host, t.Path, t.Match, append(r.When, t.When...), t.Answer, t.Slow
		}
		if e.ControlAnswer != 0 {
			r.Group, r.Answer = "", cmp.Or(r.Answer, "reply")
		}
		if e.ControlHost != 0 {
			r.Decides = "host"
		} else {
			r.Slow = ""
		}
		order[r.Service] = max(order[r.Service], e.Order+1)
		list = append(list, r)
	}
	for i := uint32(0); int(i)*regs.ServiceWords < len(services); i++ {
		var e regs.ServiceEntry
		e.Decode(services[i*regs.ServiceWords:])
		name := v.service(i)
		r := Rule{Order: order[name], Service: name, Match: "default", InForce: true, When: []string{}, Decides: "card"}
		switch {
		case e.ControlValid == 0:
			continue
		case v.Names.Defaults[i] != "": // the card knows it as a service without a default
			r.Answer, r.Decides = v.Names.Defaults[i], "host"
		case e.ControlHasDefault != 0:
			r.Group = v.group(e.DefaultGroup)
		default:
			continue
		}
		list = append(list, r)
	}
	slices.SortStableFunc(list, func(a, b Rule) int {
		return cmp.Or(cmp.Compare(a.Service, b.Service), cmp.Compare(a.Order, b.Order))
	})
	return list, nil
}

// Group is a group with the servers that its slots name.
type Group struct {
	Index     uint32   `json:"index"`
	Name      string   `json:"name"`
	Scheduler string   `json:"scheduler"`
	Method    string   `json:"method"`
	Slots     int      `json:"slots"`
	Picked    uint32   `json:"picked"`
	Servers   []Server `json:"servers"`
	Health    *Health  `json:"health"` // null: nobody knows
}

// Server is a server with its counters. Weight is its share of the group's slots.
type Server struct {
	Index       uint32 `json:"index"`
	Address     string `json:"address"`
	Weight      int    `json:"weight"`
	NextHop     uint32 `json:"next_hop"`
	Resolved    bool   `json:"resolved"`
	Closed      bool   `json:"closed"`
	State       string `json:"state"` // by its checks: up or down; empty: nobody asks it
	UseCount    uint32 `json:"use_count"`
	Active      uint32 `json:"active"`
	Connections uint64 `json:"connections"`
	Failed      uint32 `json:"failed"`
	Method      string `json:"method"`
	Upper       uint32 `json:"upper"` // connections that are enough; zero: no limit
	Lower       uint32 `json:"lower"`
	Overloaded  bool   `json:"overloaded"`
	LocalPorts  uint32 `json:"local_ports"` // of its list, with fullnat
	PortsFree   uint32 `json:"local_ports_free"`
	PortsLow    bool   `json:"local_ports_low"` // four of five are in use, or more
}

// PortsLow says whether 80 % of a list of local ports are in use, or more.
func PortsLow(size, free uint32) bool { return size > 0 && uint64(free)*5 <= uint64(size) }

// Groups reads the groups in force.
func (v *View) Groups(ctx context.Context) ([]Group, error) {
	bank, _ := v.Card.Bank()
	groups, err := v.table(ctx, regs.MemGroup, bank, 0)
	if err != nil {
		return nil, err
	}
	states, err := v.table(ctx, regs.MemGroupState, 0, 0)
	if err != nil {
		return nil, err
	}
	all, err := v.Servers(ctx)
	if err != nil {
		return nil, err
	}
	list := []Group{}
	for i := uint32(0); int(i)*regs.GroupWords < len(groups); i++ {
		var e regs.GroupEntry
		e.Decode(groups[i*regs.GroupWords:])
		if e.ControlValid == 0 {
			continue
		}
		var s regs.GroupStateEntry
		s.Decode(states[i*regs.GroupStateWords:])
		g := Group{Index: i, Name: v.group(i), Scheduler: v.Names.Schedulers[i], Method: valueName("group", regs.GroupControl, "method", e.ControlMethod), Picked: s.Picked, Servers: []Server{}}
		if h, ok := v.Names.Health[i]; ok {
			g.Health = &h
		}
		if err := v.slots(ctx, &g, &s, all); err != nil {
			return nil, err
		}
		list = append(list, g)
	}
	return list, nil
}

// slots counts what a group's slots name.
func (v *View) slots(ctx context.Context, g *Group, s *regs.GroupStateEntry, all []Server) error {
	count := s.SelectorCountA
	if s.SelectorArea == 1 {
		count = s.SelectorCountB
	}
	room := v.Card.Geometry().Slots
	words := make([]uint32, min(count, room))
	if len(words) == 0 {
		return nil
	}
	off, err := v.Card.Memory(regs.MemSlot).At(0, (2*g.Index+s.SelectorArea)*room)
	if err == nil {
		err = v.Card.ReadTable(ctx, off, words)
	}
	if err != nil {
		return fmt.Errorf("read slots of group %s: %w", g.Name, err)
	}
	g.Slots = len(words)
	weights := map[uint32]int{}
	for _, w := range words {
		if regs.SlotSlotValid(w) != 0 {
			weights[regs.SlotSlotServer(w)]++
		}
	}
	for _, server := range all {
		if n := weights[server.Index]; n > 0 {
			server.Weight = n
			g.Servers = append(g.Servers, server)
		}
	}
	return nil
}

// Servers reads all servers that have an entry, those that are closed included, in the order of their indexes.
func (v *View) Servers(ctx context.Context) ([]Server, error) {
	servers, err := v.servers(ctx)
	if err != nil {
		return nil, err
	}
	states, err := v.table(ctx, regs.MemServerState, 0, 0)
	if err != nil {
		return nil, err
	}
	hops, err := v.table(ctx, regs.MemNextHop, 0, 0)
	if err != nil {
		return nil, err
	}
	list := []Server{}
	for i, s := range servers {
		var st regs.ServerStateEntry
		st.Decode(states[i*regs.ServerStateWords:])
		x := Server{
			Index: i, Address: s.addr.String(), State: v.Names.state(s.addr.String()), NextHop: s.RouteNextHop, Closed: s.ControlClosed != 0, UseCount: st.UseCount, Active: st.Active,
			Connections: uint64(st.ConnectionsHi)<<32 | uint64(st.ConnectionsLo), Failed: st.Failed,
			Method: s.method(), Upper: st.Upper, Lower: st.Lower, Overloaded: st.FlagsOverloaded != 0,
			LocalPorts: st.PortsSize, PortsFree: st.PortsFree, PortsLow: PortsLow(st.PortsSize, st.PortsFree),
		}
		if at := s.RouteNextHop * regs.NextHopWords; int(at) < len(hops) {
			x.Resolved = regs.NextHopControlResolved(hops[at]) != 0
		}
		list = append(list, x)
	}
	slices.SortFunc(list, func(a, b Server) int { return cmp.Compare(a.Index, b.Index) })
	return list, nil
}
