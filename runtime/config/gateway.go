package config

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"

	"splicenic/runtime/rule"
)

// Imported is what objects of the Kubernetes Gateway API come to: services and groups of a configuration, as far as the
// objects say. Where servers are is not in a route; EndpointSlices among the objects tell.
type Imported struct {
	Services []ImportedService
	Groups   []ImportedGroup
	Left     Problems // what was left out because it cannot be said in a configuration, each with its place
}

// ImportedService is what the HTTPRoutes, or the TLSRoutes, of one Gateway come to.
type ImportedService struct {
	Name     string
	Protocol Protocol
	Parent   string // the Gateway, as "namespace/name"; empty: the routes name none
	Routes   []Route
}

// ImportedGroup is what the backends of a rule come to.
type ImportedGroup struct {
	Name    string
	From    string   // the Services, for people
	Servers []Server // empty: no EndpointSlice tells
}

// ImportGateway reads objects of the Kubernetes Gateway API: HTTPRoute, TLSRoute, and EndpointSlice for their servers. What
// a configuration cannot say leaves its rule out and is listed. The error is of type Problems: the text is no such objects.
func ImportGateway(name string, text []byte) (*Imported, error) {
	d := &decoder{file: name}
	g := &importer{decoder: d, slices: map[string]*endpoints{}}
	for _, doc := range d.documents(text) {
		g.object(value{node: doc, at: position(doc)})
	}
	if len(d.problems) > 0 {
		inOrder(d.problems)
		return nil, d.problems
	}
	if len(g.routes) == 0 && len(g.left) == 0 {
		d.problem(Position{1, 1}, "", "holds no HTTPRoute and no TLSRoute")
		return nil, d.problems
	}
	return g.finish(), nil
}

// documents makes the trees of a text with several documents.
func (d *decoder) documents(text []byte) (docs []ast.Node) {
	for _, look := range []func([]byte) (Position, string){screen, count} {
		if at, why := look(text); why != "" {
			d.problem(at, "", "%s", why)
			return nil
		}
	}
	tokens := lexer.Tokenize(string(text))
	if at, why := measure(tokens); why != "" {
		d.problem(at, "", "%s", why)
		return nil
	}
	tree, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		d.syntax(err)
		return nil
	}
	for _, doc := range tree.Docs {
		if !nothing(doc.Body) {
			docs = append(docs, doc.Body)
		}
	}
	return docs
}

// An importer collects what objects say.
type importer struct {
	*decoder
	routes []gatewayRoute
	slices map[string]*endpoints // by "namespace/service"
	left   Problems
}

// gatewayRoute is one route object.
type gatewayRoute struct {
	protocol        Protocol
	namespace, name string
	created         string // RFC 3339, which sorts as it stands
	parents         []string
	hosts           []string
	rules           []gatewayRule
}

// gatewayRule is one rule of a route object.
type gatewayRule struct {
	at       Position
	key      string
	matches  []rule.Match
	redirect *Reply
	backends []backend
	left     bool // something of it cannot be said
}

// backend is a Service with the weight it has among others.
type backend struct {
	namespace, name string
	port, weight    int
}

// endpoints are the servers of a Service.
type endpoints struct {
	addrs []netip.AddrPort
	at    Position
	vague bool // several ports: which is meant is not said
}

// leave notes what cannot be said.
func (g *importer) leave(at Position, key, format string, args ...any) {
	if len(g.left) < maxProblems {
		g.left = append(g.left, Problem{File: g.file, Line: at.Line, Column: at.Column, Key: key, Message: fmt.Sprintf(format, args...)})
	}
}

// loose decodes a mapping of which only some keys matter.
func (g *importer) loose(v value, what string, fields map[string]func(v value)) {
	pairs, ok := pairsOf(v.node)
	if !ok {
		g.problem(v.at, v.key, "wants a mapping (%s), got %s", what, describe(v.node))
		return
	}
	for _, p := range pairs {
		name, ok := p.Key.(*ast.StringNode)
		if !ok {
			continue
		}
		decode := fields[name.Value]
		if decode == nil {
			decode = fields[""] // every other key
		}
		if _, null := p.Value.(*ast.NullNode); decode != nil && !null && p.Value != nil {
			decode(value{p.Value, join(v.key, clip(name.Value)), position(p.Value)})
		}
	}
}

// object decodes one object, or a list of them.
func (g *importer) object(v value) {
	kind, version := "", ""
	var items, spec, meta value
	keep := func(to *value) func(v value) { return func(v value) { *to = v } }
	g.loose(v, "an object", map[string]func(v value){
		"kind":       func(v value) { kind, _ = g.text(v, "a kind") },
		"apiVersion": func(v value) { version, _ = g.text(v, "a version") },
		"items":      keep(&items), "spec": keep(&spec), "metadata": keep(&meta),
	})
	group, _, _ := strings.Cut(version, "/")
	switch {
	case len(g.problems) > 0:
	case kind == "":
		g.problem(v.at, "kind", "is missing: this is no object of Kubernetes")
	case strings.HasSuffix(kind, "List") && items.node != nil:
		g.list(items, g.object)
	case kind == "EndpointSlice":
		g.endpointSlice(v, meta)
	case group != "gateway.networking.k8s.io" || kind != "HTTPRoute" && kind != "TLSRoute":
		g.leave(v.at, "", "%s %s is neither an HTTPRoute, a TLSRoute (gateway.networking.k8s.io) nor an EndpointSlice", clip(version), clip(kind))
	case spec.node == nil:
		g.problem(v.at, "spec", "is missing")
	default:
		g.route(kind, meta, spec)
	}
}

// metadata decodes an object's name and what else orders it.
func (g *importer) metadata(v value) (r gatewayRoute, service string) {
	r.namespace = "default"
	if v.node == nil {
		return r, ""
	}
	word := func(to *string) func(v value) {
		return func(v value) { *to = g.name(v) }
	}
	g.loose(v, "metadata", map[string]func(v value){
		"name": word(&r.name), "namespace": word(&r.namespace),
		"creationTimestamp": func(v value) { r.created, _ = g.text(v, "a time") },
		"labels": func(v value) {
			g.loose(v, "labels", map[string]func(v value){"kubernetes.io/service-name": word(&service)})
		},
	})
	return r, service
}

// name decodes the name of an object, which is written out as it stands: a line break in it would begin a key of its own.
func (g *importer) name(v value) string {
	s, ok := g.text(v, "a name")
	if !ok {
		return ""
	}
	for _, r := range s {
		if !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.", r) {
			g.problem(v.at, v.key, "name %q holds %q; letters, digits, dash, dot and underscore are allowed", clip(s), r)
			return ""
		}
	}
	if len(s) == 0 || len(s) > maxName {
		g.problem(v.at, v.key, "name %q has %d characters; it may have 1 to %d", clip(s), len(s), maxName)
		return ""
	}
	return s
}

// maxName is how long Kubernetes lets a name be.
const maxName = 253

func (g *importer) endpointSlice(v, meta value) {
	about, service := g.metadata(meta)
	var addrs []netip.Addr
	ports := []uint16{}
	g.loose(v, "an EndpointSlice", map[string]func(v value){
		"ports": func(v value) {
			g.list(v, func(v value) {
				g.loose(v, "a port", map[string]func(v value){"port": func(v value) { ports = append(ports, uint16(g.number(v, "port", 1, 65535))) }})
			})
		},
		"endpoints": func(v value) {
			g.list(v, func(v value) {
				ready := true
				var own []netip.Addr
				g.loose(v, "an endpoint", map[string]func(v value){
					"addresses": func(v value) { g.list(v, func(v value) { own = append(own, g.addr(v)) }) },
					"conditions": func(v value) {
						g.loose(v, "conditions", map[string]func(v value){"ready": func(v value) { ready = g.boolean(v) }})
					},
				})
				if ready {
					addrs = append(addrs, own...)
				}
			})
		},
	})
	key := about.namespace + "/" + service
	e := g.slices[key]
	if e == nil {
		e = &endpoints{at: v.at}
		g.slices[key] = e
	}
	if len(ports) != 1 {
		e.vague = true
		return
	}
	for _, a := range addrs {
		if to := netip.AddrPortFrom(a, ports[0]); !slices.Contains(e.addrs, to) {
			e.addrs = append(e.addrs, to)
		}
	}
}

// rest names the keys of a mapping that cannot be said.
func (g *importer) rest(left *bool) func(v value) {
	return func(v value) {
		*left = true
		g.leave(v.at, v.key, "cannot be said in a configuration")
	}
}

func (g *importer) ignore(value) {}

// route decodes an HTTPRoute or a TLSRoute.
func (g *importer) route(kind string, meta, spec value) {
	r, _ := g.metadata(meta)
	if kind == "TLSRoute" {
		r.protocol = TLS
	}
	spec.key = kind + " " + r.namespace + "/" + r.name
	whole := false
	g.loose(spec, "a spec", map[string]func(v value){
		"parentRefs": func(v value) { g.list(v, func(v value) { r.parents = append(r.parents, g.parent(v, r.namespace)) }) },
		"hostnames":  func(v value) { g.list(v, func(v value) { r.hosts = append(r.hosts, g.host(v)) }) },
		"rules":      func(v value) { g.list(v, func(v value) { r.rules = append(r.rules, g.rule(v, &r)) }) },
		"":           g.rest(&whole),
	})
	if whole {
		return
	}
	if len(r.parents) == 0 {
		r.parents = []string{""}
	}
	if len(r.hosts) == 0 {
		r.hosts = []string{""}
	}
	g.routes = append(g.routes, r)
}

func (g *importer) parent(v value, namespace string) string {
	name := ""
	g.loose(v, "a parentRef", map[string]func(v value){
		"name":      func(v value) { name = g.name(v) },
		"namespace": func(v value) { namespace = g.name(v) },
	})
	return namespace + "/" + name
}

func (g *importer) rule(v value, of *gatewayRoute) gatewayRule {
	r := gatewayRule{at: v.at, key: v.key}
	fields := map[string]func(v value){
		"name":        g.ignore,
		"backendRefs": func(v value) { g.list(v, func(v value) { g.backend(v, of.namespace, &r) }) },
		"":            g.rest(&r.left),
	}
	if of.protocol == HTTP {
		fields["matches"] = func(v value) { g.list(v, func(v value) { r.matches = append(r.matches, g.match(v, &r)) }) }
		fields["filters"] = func(v value) { g.list(v, func(v value) { g.filter(v, &r) }) }
	}
	g.loose(v, "a rule", fields)
	if len(r.matches) == 0 {
		r.matches = []rule.Match{{}}
	}
	return r
}

func (g *importer) match(v value, of *gatewayRule) (m rule.Match) {
	g.loose(v, "a match", map[string]func(v value){
		"path": func(v value) { m.Path = g.path(v, of) },
		"method": func(v value) {
			if s, ok := g.text(v, "a method"); ok {
				m.Methods = []string{s}
			}
		},
		"headers":     func(v value) { g.list(v, func(v value) { g.valueMatch(v, of, &m, rule.Header) }) },
		"queryParams": func(v value) { g.list(v, func(v value) { g.valueMatch(v, of, &m, rule.Query) }) },
		"":            g.rest(&of.left),
	})
	return m
}

// kindAndValue decodes what a path or a value is compared with.
func (g *importer) kindAndValue(v value, of *gatewayRule, kind string) (_, name, text string) {
	if kind == "PathPrefix" {
		text = "/"
	}
	g.loose(v, "what is compared", map[string]func(v value){
		"type":  func(v value) { kind, _ = g.text(v, "a type") },
		"name":  func(v value) { name, _ = g.text(v, "a name") },
		"value": func(v value) { text, _ = g.text(v, "a value") },
		"":      g.rest(&of.left),
	})
	return kind, name, text
}

func (g *importer) path(v value, of *gatewayRule) rule.Path {
	kind, _, text := g.kindAndValue(v, of, "PathPrefix")
	pattern := strings.ReplaceAll(text, "*", "%2A") // stands for itself
	switch kind {
	case "RegularExpression":
		if err := rule.Regexp(text); err != nil {
			g.problem(v.at, v.key, "%v", err)
		}
		return rule.Path{Kind: rule.RegexpPath, Text: text}
	case "PathPrefix":
		pattern = strings.TrimRight(pattern, "/") + "/*"
	case "Exact":
	default:
		of.left = true
		g.leave(v.at, v.key, "type %q cannot be said in a configuration", clip(kind))
		return rule.Path{}
	}
	p, err := rule.Pattern(pattern)
	if err != nil {
		g.problem(v.at, v.key, "%v", err)
	}
	return p
}

// valueMatch decodes a header or a query parameter; of several of one name the first one counts.
func (g *importer) valueMatch(v value, of *gatewayRule, m *rule.Match, subject rule.Subject) {
	kind, name, text := g.kindAndValue(v, of, "Exact")
	c := rule.Condition{Subject: subject, Name: name, Value: text}
	if subject == rule.Header {
		c.Name = strings.ToLower(name)
	}
	switch kind {
	case "RegularExpression":
		c.Test = rule.Matches
		if err := rule.Regexp(text); err != nil {
			g.problem(v.at, v.key, "%v", err)
		}
	case "Exact":
	default:
		of.left = true
		g.leave(v.at, v.key, "type %q cannot be said in a configuration", clip(kind))
	}
	same := func(o rule.Condition) bool { return o.Subject == c.Subject && o.Name == c.Name }
	if !slices.ContainsFunc(m.Conditions, same) {
		m.Conditions = append(m.Conditions, c)
	}
}

func (g *importer) filter(v value, of *gatewayRule) {
	kind := ""
	var body value
	g.loose(v, "a filter", map[string]func(v value){
		"type":            func(v value) { kind, _ = g.text(v, "a type") },
		"requestRedirect": func(v value) { body = v },
		"":                g.ignore,
	})
	if kind != "RequestRedirect" || body.node == nil {
		of.left = true
		g.leave(v.at, v.key, "filter %s cannot be said in a configuration", clip(kind))
		return
	}
	to := &Redirect{}
	of.redirect = &Reply{At: v.at, Status: 302, Redirect: to}
	g.loose(body, "a redirect", map[string]func(v value){
		"scheme":     func(v value) { to.Scheme = g.word(v, "scheme", []string{"http", "https"}, nil) },
		"hostname":   func(v value) { to.Host = g.host(v) },
		"port":       func(v value) { to.Port = uint16(g.number(v, "port", 1, 65535)) },
		"statusCode": func(v value) { of.redirect.Status = int(g.number(v, "statusCode", 301, 308)) },
		"path": func(v value) {
			g.loose(v, "a path", map[string]func(v value){
				"type":               g.ignore,
				"replaceFullPath":    func(v value) { to.Path, _ = g.text(v, "a path") },
				"replacePrefixMatch": func(v value) { to.Path, _ = g.text(v, "a path"); to.ReplacePrefix = true },
				"":                   g.rest(&of.left),
			})
		},
		"": g.rest(&of.left),
	})
	if to.Port == 0 { // of the scheme, says the Gateway API
		to.Port = map[string]uint16{"http": 80, "https": 443}[to.Scheme]
	}
}

func (g *importer) backend(v value, namespace string, of *gatewayRule) {
	b := backend{namespace: namespace, weight: 1}
	kind := "Service"
	g.loose(v, "a backendRef", map[string]func(v value){
		"name":      func(v value) { b.name = g.name(v) },
		"namespace": func(v value) { b.namespace = g.name(v) },
		"port":      func(v value) { b.port = int(g.number(v, "port", 1, 65535)) },
		"weight":    func(v value) { b.weight = int(g.number(v, "weight", 0, 1_000_000)) },
		"kind":      func(v value) { kind, _ = g.text(v, "a kind") },
		"group":     g.ignore,
		"":          g.rest(&of.left),
	})
	if kind != "Service" {
		of.left = true
		g.leave(v.at, v.key, "a backend of kind %s cannot be said in a configuration", clip(kind))
		return
	}
	if b.weight > 0 {
		of.backends = append(of.backends, b)
	}
}

// finish puts the routes in the order in which the Gateway API prefers them, and groups together what goes together.
func (g *importer) finish() *Imported {
	slices.SortStableFunc(g.routes, func(a, b gatewayRoute) int {
		return cmp.Or(cmp.Compare(a.created, b.created), cmp.Compare(a.namespace+"/"+a.name, b.namespace+"/"+b.name))
	})
	out := &Imported{}
	services, groups := map[string]int{}, map[string]bool{}
	for i := range g.routes {
		r := &g.routes[i]
		for _, parent := range r.parents {
			key := r.protocol.String() + " " + parent
			at, ok := services[key]
			if !ok {
				at = len(out.Services)
				services[key] = at
				out.Services = append(out.Services, ImportedService{Name: serviceName(parent, r.protocol), Protocol: r.protocol, Parent: parent})
			}
			for k := range r.rules {
				out.Services[at].Routes = append(out.Services[at].Routes, g.spell(r, &r.rules[k], out, groups)...)
			}
		}
	}
	inOrder(g.left)
	out.Left = slices.Compact(g.left)
	return out
}

// serviceName makes the name of a service of its Gateway's.
func serviceName(parent string, p Protocol) string {
	_, name, _ := strings.Cut(parent, "/")
	name = cmp.Or(name, "web") + "-" + p.String()
	return name[max(0, len(name)-64):]
}

// spell writes a rule as routes: one for each of its matches under each of the hosts.
func (g *importer) spell(of *gatewayRoute, r *gatewayRule, out *Imported, groups map[string]bool) (routes []Route) {
	to := Target{Reply: r.redirect}
	switch {
	case r.left:
		g.leave(r.at, r.key, "the rule is left out")
		return nil
	case r.redirect != nil && r.redirect.Redirect.ReplacePrefix && slices.ContainsFunc(r.matches, func(m rule.Match) bool { return m.Path.Kind != rule.PrefixPath && m.Path.Kind != rule.AnyPath }):
		g.leave(r.at, r.key, "replaces the prefix of a path that is none; the rule is left out")
		return nil
	case r.redirect == nil && len(r.backends) == 0 && of.protocol == TLS:
		g.leave(r.at, r.key, "leads nowhere; the rule is left out")
		return nil
	case r.redirect == nil && len(r.backends) == 0:
		to.Reply = &Reply{Status: 500} // as the Gateway API says
	case r.redirect == nil:
		group, why := g.group(r.backends)
		if why != "" {
			g.leave(r.at, r.key, "%s; the rule is left out", why)
			return nil
		}
		if to.Group = group.Name; !groups[group.Name] {
			groups[group.Name] = true
			out.Groups = append(out.Groups, group)
		}
	}
	for _, host := range of.hosts {
		for _, m := range r.matches {
			m.Host = host
			routes = append(routes, Route{At: r.at, Match: m, To: to})
		}
	}
	return routes
}

// group makes a group of the backends of a rule, which share its requests by their weights. Each server has its part of
// its Service's weight.
func (g *importer) group(backends []backend) (group ImportedGroup, why string) {
	var names, from []string
	parts := 1 // a multiple of how many servers each has
	known := true
	for _, b := range backends {
		name := b.namespace + "." + b.name + "." + strconv.Itoa(b.port)
		text := fmt.Sprintf("Service %s/%s, port %d", b.namespace, b.name, b.port)
		if len(backends) > 1 {
			name += "." + strconv.Itoa(b.weight)
			text += fmt.Sprintf(", weight %d", b.weight)
		}
		names, from = append(names, name), append(from, text)
		e := g.slices[b.namespace+"/"+b.name]
		if e == nil || e.vague || len(e.addrs) == 0 {
			known = false
			continue
		}
		if parts = leastMultiple(parts, len(e.addrs)); parts > 65535 {
			return group, "its servers cannot share its weights"
		}
	}
	group.Name, group.From = strings.Join(names, "_"), strings.Join(from, "; ")
	if len(group.Name) > 64 {
		return group, "the names of its backends are too long for a group's"
	}
	if !known {
		return group, ""
	}
	weights := 0 // their greatest common divisor
	for _, b := range backends {
		weights = commonDivisor(weights, b.weight*parts/len(g.slices[b.namespace+"/"+b.name].addrs))
	}
	for _, b := range backends {
		e := g.slices[b.namespace+"/"+b.name]
		w := b.weight * parts / len(e.addrs) / weights
		if w > 65535 {
			return group, "its weights are too far apart"
		}
		for _, a := range e.addrs {
			group.Servers = append(group.Servers, Server{At: e.at, Addr: a, Weight: uint16(w)})
		}
	}
	return group, ""
}

func commonDivisor(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

func leastMultiple(a, b int) int { return a / commonDivisor(a, b) * b }
