package config

import (
	"slices"

	"splicenic/runtime/rule"
)

// Persistence by cookie needs no state on the card: the application gives its clients a cookie, and a request that brings
// one with a server's value goes to that server. A splicer does not touch answers, so that it sets none itself. What the
// file says comes to rules like those that it could have written: one more for each route and server, which asks for the
// cookie too, and leads to a group that prefers the server.

// comeBack adds the rules and groups by which clients come back.
func (c *Config) comeBack() {
	var made []Group
	for i := range c.Services {
		if s := &c.Services[i]; s.Persistence.Cookie != "" {
			made = c.follow(s, made)
		}
	}
	if len(made) == 0 {
		return
	}
	c.Groups = slices.Concat(c.Groups, made)
	for i := range c.Groups {
		c.groups[c.Groups[i].Name] = &c.Groups[i]
	}
}

// follow adds the rules of one service, and to made the groups that they lead to.
func (c *Config) follow(s *Service, made []Group) []Group {
	var routes []Route
	add := func(r Route) {
		g := c.Group(r.To.Group)
		for n := 0; g != nil && n < len(g.Servers); n++ {
			value := g.Servers[n].Cookie
			if value == "" {
				continue
			}
			name := g.Name + "@" + value
			if !slices.ContainsFunc(made, func(x Group) bool { return x.Name == name }) {
				x := *g
				x.Name, x.Prefer = name, n+1
				made = append(made, x)
			}
			to := r
			to.Conditions = append(slices.Clone(r.Conditions), rule.Condition{Subject: rule.Cookie, Name: s.Persistence.Cookie, Value: value})
			to.To.Group = name
			routes = append(routes, to)
		}
	}
	for _, r := range s.Routes {
		add(r)
		routes = append(routes, r)
	}
	add(Route{At: s.Default.At, To: s.Default})
	s.Routes = routes
	return made
}
