package admin

import (
	"net/http"
	"slices"

	"splicenic/runtime/config"
	"splicenic/runtime/view"
)

// services answers what clients connect to and where that leads.
func (s *server) services(r *http.Request) (any, error) {
	if s.rt == nil {
		return nil, errNoRuntime
	}
	traffic := r.FormValue("traffic") == "1"
	c, ended := s.rt.Configuration(), s.rt.Ended()
	list := []view.Service{}
	if c != nil {
		list = table(c)
	}
	return viewing(s, func(v *view.View) (view.Table, error) { return v.ServiceTable(r.Context(), list, ended, traffic) })
}

// table spells the services of a configuration out.
func table(c *config.Config) []view.Service {
	list := []view.Service{}
	for i := range c.Services {
		s := &c.Services[i]
		x := view.Service{Name: s.Name, Mode: "splice", Protocol: "tcp", Listen: []string{}, Groups: []view.ServiceGroup{}}
		for _, l := range s.Listen {
			x.Listen = append(x.Listen, l.Addr.String())
		}
		groups := c.Reachable(s)
		if k := slices.IndexFunc(groups, func(g *config.Group) bool { return g.Name == s.Default.Group }); k > 0 {
			groups[0], groups[k] = groups[k], groups[0]
		}
		for _, g := range groups {
			x.Groups = append(x.Groups, group(g))
		}
		list = append(list, x)
	}
	return list
}

func group(g *config.Group) view.ServiceGroup {
	x := view.ServiceGroup{Name: g.Name, Scheduler: string(g.Scheduler), Servers: []view.ServiceServer{}}
	for i := range g.Servers {
		s := &g.Servers[i]
		x.Servers = append(x.Servers, view.ServiceServer{Address: s.Addr.String(), Method: "nat", Weight: s.Weight})
	}
	return x
}
