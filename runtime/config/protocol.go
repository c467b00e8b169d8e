package config

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"splicenic/runtime/rule"
)

// content checks that what a service is told about its clients' words goes together.
func (k *checker) content(key string, s *Service) {
	if s.Layer4() {
		return
	}
	none := s.Default.Group == ""
	switch {
	case s.Protocol == TCP && s.Default.Nowhere():
		k.problem(s.At, key+".default", "is missing: a tcp service reads nothing, so its default is where every connection goes")
	case s.Fallback != 0 && none:
		k.problem(s.At, key+".fallback", "is when a silent client goes to the default group, and service %s has none", s.Name)
	case s.Fallback != 0 && s.ServerFirst:
		k.problem(s.At, key+".fallback", "is of no use: with server_first nobody waits for the client's first word")
	case s.Fallback != 0 && s.Fallback >= cmp.Or(s.WaitHead, defaultWaitHead):
		k.warn(s.At, key+".fallback", "%v is not before the time-out of the head (wait_head %v): it may never come", s.Fallback, cmp.Or(s.WaitHead, defaultWaitHead))
	}
	k.pinned(key, s)
	if s.H2C == "" {
		return
	}
	for _, x := range []struct {
		name string
		on   bool
	}{{"forwarded", s.Forwarded != NoForwarded}, {"requests: close", s.Requests == Close}} {
		if x.on {
			k.warn(s.At, key, "%s does nothing for HTTP/2, whose requests group %s gets unread", x.name, s.H2C)
		}
	}
}

// defaultWaitHead is the card's own time-out (regs: timer.wait_head).
const defaultWaitHead = 30 * time.Second

// sorry refuses groups that are sorry for each other in a ring.
func (k *checker) sorry(i int, g *Group) {
	at := fmt.Sprintf("groups[%d].sorry", i)
	seen := map[string]bool{}
	for next := g; next != nil && next.Sorry.Group != "" && !seen[next.Name]; next = k.c.Group(next.Sorry.Group) {
		seen[next.Name] = true
		if next.Sorry.Group == g.Name {
			k.problem(g.Sorry.At, at, "leads back to group %s itself", g.Name)
		}
	}
}

// answers refuses answers of sorry groups where nobody speaks HTTP.
func (k *checker) answers() {
	for n := range k.c.Services {
		s := &k.c.Services[n]
		if s.Protocol == HTTP {
			continue
		}
		for _, g := range k.c.Reachable(s) {
			if g.Sorry.Reply != nil {
				k.problem(g.Sorry.Reply.At, "groups", "group %s answers in HTTP, but %s service %s (line %d) uses it: its clients speak none. Name a group", g.Name, s.Protocol, s.Name, s.At.Line)
			}
		}
	}
}

// pinned tells that all requests of a connection go where the first one went, where that makes a difference.
func (k *checker) pinned(key string, s *Service) {
	if s.Protocol != HTTP || s.Requests != First {
		return
	}
	first, at := s.Default.Group, s.At
	for i := range s.Routes {
		r := &s.Routes[i]
		if r.To.Group == "" || r.To.Group == first {
			continue
		}
		if first == "" {
			first, at = r.To.Group, r.At
			continue
		}
		k.warn(r.At, key+".requests", "first: every later request of a connection goes where its first one went, be it to group %s here or to %s (line %d); requests: close chooses anew, at the price of a connection each", r.To.Group, first, at.Line)
		return
	}
}

// maxFindings is how many routes of a service are worth a warning of one kind.
const maxFindings = 50

// lint reports routes that take no request, those that are slow, and a default that gets none.
func (k *checker) lint(key string, s *Service) {
	found, complete := rule.Lint(s.rules())
	for n, f := range found {
		r := &s.Routes[f.Place]
		item := fmt.Sprintf("%s.routes[%d]", key, r.item)
		if n == maxFindings {
			k.warn(r.At, item, "takes no request, and %d more routes of service %s do not either", len(found)-n-1, s.Name)
			break
		}
		if f.By < 0 {
			k.warn(r.At, item, "takes no request: %s", f.Why)
			continue
		}
		by := &s.Routes[f.By]
		switch {
		case f.Same && by.To.describe() != r.To.describe():
			k.problem(r.At, item, "asks for the same as the route at line %d, but leads to %s instead of %s: remove one of them", by.At.Line, r.To, by.To)
		case f.Same:
			k.warn(r.At, item, "takes no request: the route at line %d asks for the same", by.At.Line)
		default:
			k.warn(r.At, item, "takes no request: the route at line %d (%s) goes first and takes all of its requests", by.At.Line, clip(by.Match.String()))
		}
	}
	if !complete {
		k.warn(s.At, key+".routes", "has more routes alike than can be compared with each other: some may take no request unnoticed")
	}
	k.slow(key, s)
	if i := slices.IndexFunc(s.Routes, func(r Route) bool { return r.Match.String() == "" }); i >= 0 && !s.Default.Nowhere() && s.Fallback == 0 {
		k.warn(s.At, key+".default", "takes no request: the route at line %d takes every one", s.Routes[i].At.Line)
	}
}

// slow reports the routes that only the host can test, those of TLS that no name limits, and those no client can fulfil.
func (k *checker) slow(key string, s *Service) {
	slow, nameless, foreign := 0, 0, 0
	for i := range s.Routes {
		r := &s.Routes[i]
		item := fmt.Sprintf("%s.routes[%d]", key, r.item)
		if why := r.Slow(); why != "" {
			if slow++; slow <= maxFindings {
				k.warn(r.At, item, "is slow: the host decides on requests that come to it, not the card, since %s", why)
			}
		}
		if s.Protocol == TLS && r.Host == "" {
			if nameless++; nameless <= maxFindings {
				k.warn(r.At, item, "has no sni: it takes hellos for every name, and those without one")
			}
		}
		if why := s.unheard(r); why != "" {
			if foreign++; foreign <= maxFindings {
				k.warn(r.At, item, "takes no request: %s", why)
			}
		}
	}
}

// unheard says why no client of the service's listeners fulfils a route's source.
func (s *Service) unheard(r *Route) string {
	for i := range r.Conditions {
		c := &r.Conditions[i]
		if c.Subject != rule.Source {
			continue
		}
		for _, four := range []bool{true, false} {
			clients := slices.ContainsFunc(s.Listen, func(l Listen) bool { return l.Addr.Addr().Is4() == four })
			for _, n := range c.Nets {
				if clients && n.Addr().Is4() == four {
					return ""
				}
			}
		}
		return fmt.Sprintf("its source is of another family than every address of service %s", s.Name)
	}
	return ""
}
