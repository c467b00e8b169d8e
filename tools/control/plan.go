package control

import (
	"fmt"

	"splicenic/runtime/admin"
	"splicenic/runtime/config"
	"splicenic/runtime/plan"
)

// Plan is what a director carries.
type Plan = plan.Plan

// PlanOptions are the figures of a plan as somebody types them; empty: the documents' or the card's.
type PlanOptions struct {
	Cost, Packet, ServerRate, PortRate, Goal string
	Pages, Rate, SYNs, Locals                string
	Servers                                  string
	Config                                   *admin.File // servers and methods; nil: none

	// Measure measures what a packet costs, and how many SYNs a second are answered with cookies; nil: it is not measured.
	Measure func() (nsPerPacket, cookiesPerSecond float64, err error)
}

// Plan computes a plan.
func (o *PlanOptions) Plan() (Plan, error) {
	g, err := o.given()
	if err != nil {
		return Plan{}, err
	}
	if o.Measure != nil {
		if o.Cost != "" {
			return Plan{}, Usage("a cost is either measured or given", "leave out --measure or --cost")
		}
		if g.CostNs, g.CookieRate, err = o.Measure(); err != nil {
			return Plan{}, err
		}
		g.CostFrom = "measured"
	}
	return plan.Make(g), nil
}

func (o *PlanOptions) given() (g plan.Given, err error) {
	if o.Config != nil {
		c, err := config.Load(o.Config.File, []byte(o.Config.Text))
		if err != nil {
			return g, err
		}
		g.Configuration(c)
	}
	whole := func(to *uint64) func(v float64) { return func(v float64) { *to = uint64(v) } }
	real := func(to *float64) func(v float64) { return func(v float64) { *to = v } }
	var servers uint64
	for _, f := range []struct {
		flag, text string
		units      map[string]float64
		least      float64
		most       float64
		set        func(v float64)
	}{
		{"cost", o.Cost, plan.Nanos, 0.1, 1e9, func(v float64) { g.CostNs, g.CostFrom = v, "option" }},
		{"packet", o.Packet, plan.Bytes, 1, 65535, whole(&g.PacketBytes)},
		{"server-rate", o.ServerRate, plan.Rate, 1, 1e12, real(&g.ServerRate)},
		{"port-rate", o.PortRate, plan.Bits, 1e3, 1e13, real(&g.PortRate)},
		{"goal", o.Goal, plan.Rate, 1, 1e13, real(&g.Goal)},
		{"pages", o.Pages, plan.Number, 1, 1 << 32, whole(&g.Pages)},
		{"rate", o.Rate, plan.PerTime, 0.001, 1e10, real(&g.Rate)},
		{"syns", o.SYNs, plan.PerTime, 0.001, 1e10, real(&g.SYNRate)},
		{"locals", o.Locals, plan.Number, 1, 65536, whole(&g.Locals)},
		{"servers", o.Servers, plan.Number, 1, 65536, whole(&servers)},
	} {
		if f.text == "" {
			continue
		}
		v, err := plan.Quantity(f.text, f.units)
		if err == nil && (v < f.least || v > f.most) {
			err = fmt.Errorf("%q is not from %g to %g", f.text, f.least, f.most)
		}
		if err != nil {
			return g, Usage("--"+f.flag+": "+err.Error(), "see splicectl plan --help")
		}
		f.set(v)
	}
	if o.Config != nil && servers > 0 {
		return g, Usage("the configuration says how many servers there are", "leave out --servers")
	}
	if servers > 0 {
		for _, m := range plan.Methods() {
			g.Servers = append(g.Servers, plan.Servers{Method: m, Count: servers})
		}
	}
	return g, nil
}
