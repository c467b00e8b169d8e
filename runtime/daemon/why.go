package daemon

import (
	"cmp"

	"splicenic/runtime/config"
	"splicenic/runtime/head"
	"splicenic/runtime/rule"
	"splicenic/runtime/view"
)

// maxWhys bounds how many rules are told about; the one that took the request is always among them.
const maxWhys = 1000

// why says of a service's rules why they took a request or did not, by the configuration in force. That is told whole as
// long as the card has the client's first bytes, and later as far as the log knows the head.
func (d *Daemon) why(q *view.Request) []view.RuleWhy {
	if d.cfg == nil {
		return nil
	}
	s := d.service(q.Service)
	if s == nil {
		return nil
	}
	r, whole := d.asked(s, q)
	if r == nil {
		return nil
	}
	r.Source = q.Client
	var rules []*rule.Rule // in the order of precedence, as the reasons are
	for i := range d.im.list {
		if d.im.list[i].Service == q.Service {
			rules = append(rules, &d.im.list[i])
		}
	}
	whys := s.Matcher().Explain(r)
	if len(rules) != len(whys) {
		return nil
	}
	list := []view.RuleWhy{}
	before := false
	for i, w := range whys {
		to := &s.Routes[w.Place]
		x := view.RuleWhy{Index: rules[i].Index, Rule: cmp.Or(to.Match.String(), "every request"), To: to.To.String(), Took: rules[i].Index+1 == q.Rule, Why: w.Missed}
		switch {
		case x.Took:
			before, x.Why = true, ""
		case w.Missed != "" && w.Missed != "a rule before it":
		case before:
			x.Why = "a rule before it"
		case !whole:
			x.Why = "something that is not known any more"
		default: // it was another rule then, or none
			x.Why = "nothing: the rules have changed since"
		}
		if x.Took || len(list) < maxWhys {
			list = append(list, x)
		}
	}
	return list
}

// service finds the service of an index.
func (d *Daemon) service(index uint32) *config.Service {
	for i := range d.cfg.Services {
		if at, ok := d.im.ix.services.Of(d.cfg.Services[i].Name); ok && at == index {
			return &d.cfg.Services[i]
		}
	}
	return nil
}

// asked is what rules looked at, nil where that is not known; whole where nothing of it is missing. Without the client's
// bytes the log has some of it.
func (d *Daemon) asked(s *config.Service, q *view.Request) (r *rule.Request, whole bool) {
	first := head.CutProxy(q.First)
	logged := d.logging.Head(q.N, q.Generation)
	switch {
	case s.Protocol == config.TLS && len(first) > 0:
		if h, err := head.ParseHello(first); err == nil {
			return h.Request(), true
		}
	case s.Protocol == config.TLS && logged != nil:
		return &rule.Request{TLS: true, Host: logged.SNI}, false
	case s.Protocol != config.HTTP:
		return nil, false
	case len(first) == 0 && logged != nil && !logged.Cut:
		first = []byte(logged.Method + " " + logged.Path + " HTTP/1.1\r\nHost: " + logged.Host + "\r\n\r\n")
		if h, err := head.Parse(first); err == nil {
			return h.Request(), false
		}
	case len(first) > 0:
		if end, _ := head.End(first, 0); end > 0 {
			first = first[:end]
		}
		if h, err := head.Parse(first); err == nil {
			return h.Request(), true
		}
	}
	return nil, false
}
