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
	traffic := r.URL.Query().Get("traffic") == "1"
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
		x := view.Service{Name: s.Name, Mode: s.Mode.String(), Protocol: "tcp", OnePacket: s.OnePacket, Listen: []string{}, Groups: []view.ServiceGroup{}}
		if s.Protocol == config.UDP {
			x.Protocol = "udp"
		}
		if p := &s.Persistence; p.On() {
			x.Persistence = &view.Persistence{Seconds: p.Time.Seconds(), Netmask: p.Netmask, Netmask6: p.Netmask6}
		}
		for _, l := range s.Listen {
			at := config.Server{Addr: l.Addr} // which writes every port as *
			x.Listen = append(x.Listen, at.Name())
		}
		groups := c.Reachable(s)
		if k := slices.IndexFunc(groups, func(g *config.Group) bool { return g.Name == s.Default.Group }); k > 0 {
			groups[0], groups[k] = groups[k], groups[0]
		}
		for _, g := range groups {
			x.Groups = append(x.Groups, group(c.Pool(s, g)))
		}
		list = append(list, x)
	}
	return list
}

func group(p config.Pool) view.ServiceGroup {
	x := view.ServiceGroup{Name: p.Group.Name, Scheduler: string(p.Group.Scheduler), Servers: []view.ServiceServer{}}
	for i := range p.Group.Servers {
		s := &p.Group.Servers[i]
		x.Servers = append(x.Servers, view.ServiceServer{Address: s.Name(), Method: p.Method(s).String(), Weight: s.Weight})
	}
	return x
}
