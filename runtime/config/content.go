package config

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"splicenic/runtime/rule"
)

// Bounds of what a route may ask and what an answer may say.
const (
	maxConditions  = 32 // of one route
	maxMethods     = 16
	maxNets        = 64
	maxValue       = 1024
	maxBody        = 4096
	maxContentType = 128
)

// protocolOf reads the protocol of a service before the keys that it decides on. What is wrong with it is said in its turn.
func protocolOf(v value) Protocol {
	pairs, _ := pairsOf(v.node)
	for _, p := range pairs {
		key, ok := p.Key.(*ast.StringNode)
		if !ok || key.Value != "protocol" {
			continue
		}
		if s, ok := p.Value.(*ast.StringNode); ok {
			return Protocol(max(slices.Index(protocols[:], s.Value), 0))
		}
	}
	if modeOf(v) != Splice {
		return TCP
	}
	return HTTP
}

// content are the keys of a service about what its clients say.
func (d *decoder) content(s *Service) []field {
	return []field{
		{"protocol", func(v value) { d.protocol(v, s) }},
		{"routes", func(v value) {
			if s.Protocol == TCP {
				d.problem(v.at, v.key, "nothing of what clients of a tcp service send is read, so there is nothing to choose by: write default")
				return
			}
			n := -1
			d.list(v, func(v value) {
				n++
				r := d.route(v, s.Protocol)
				r.item = n
				if r.h2c {
					d.h2c(s, &r, v)
					return
				}
				s.Routes = append(s.Routes, r)
			})
		}},
		{"default", func(v value) {
			s.Default = d.target(v, rule.Path{Kind: rule.RegexpPath})
			if s.Default.Reply != nil && s.Protocol != HTTP {
				d.problem(v.at, v.key, "a %s service cannot answer: its clients speak no HTTP. Name a group", s.Protocol)
			}
		}},
		{"server_first", func(v value) {
			if s.ServerFirst = d.boolean(v); s.ServerFirst && s.Protocol != TCP {
				d.problem(v.at, v.key, "with protocol: %s the client speaks first, and its words choose the server; a server that speaks first needs protocol: tcp", s.Protocol)
			}
		}},
		{"fallback", func(v value) { d.duration(v, &s.Fallback) }},
		{"requests", func(v value) {
			if d.onlyHTTP(v, s) && d.word(v, "requests", []string{"first", "close"}, nil) == "close" {
				s.Requests = Close
			}
		}},
		{"proxy", func(v value) { s.Proxy = d.word(v, "proxy", []string{"v2", "off"}, nil) == "v2" }},
		{"forwarded", func(v value) {
			if d.onlyHTTP(v, s) {
				d.forwarded(s, v)
			}
		}},
		{"limits", func(v value) {
			if s.Protocol == TCP {
				d.problem(v.at, v.key, "a tcp service has no heads to limit")
				return
			}
			d.mapping(v, "limits", []field{
				{"target", func(v value) {
					if d.onlyHTTP(v, s) {
						s.MaxTarget = int(d.number(v, "target", 16, MaxHeadBytes))
					}
				}},
				{"head", func(v value) { s.MaxHead = int(d.number(v, "head", 256, MaxHeadBytes)) }},
			})
			if s.MaxHead != 0 && s.MaxTarget > s.MaxHead {
				d.problem(v.at, v.key, "target %d is more than head %d, which it is a part of", s.MaxTarget, s.MaxHead)
			}
		}},
	}
}

// MaxHeadBytes is the largest head that can be gathered.
const MaxHeadBytes = 64 << 10

func (d *decoder) onlyHTTP(v value, s *Service) bool {
	if s.Protocol != HTTP {
		d.problem(v.at, v.key, "is about HTTP; service is protocol: %s", s.Protocol)
	}
	return s.Protocol == HTTP
}

func (d *decoder) forwarded(s *Service, v value) {
	name := func(v value) {
		s.Forwarded = Forwarded(max(slices.Index(forwardeds[:], d.word(v, "forwarded", forwardeds[:], nil)), 0))
	}
	if _, ok := v.node.(ast.ScalarNode); ok {
		name(v)
		return
	}
	given, existing := false, false
	ok := d.mapping(v, "forwarded", []field{
		{"field", func(v value) { given = true; name(v) }},
		{"existing", func(v value) {
			existing = true
			s.Existing = Existing(max(slices.Index(existings[:], d.word(v, "existing", existings[:], nil)), 0))
		}},
	})
	switch {
	case ok && !given:
		d.problem(v.at, v.key, "field is missing: x-forwarded-for or forwarded")
	case ok && existing && s.Forwarded == NoForwarded:
		d.problem(v.at, v.key, "existing says what becomes of a field that field: none leaves alone: remove it")
	}
}

// h2c takes the route of HTTP/2 without TLS, which has no head that the card reads.
func (d *decoder) h2c(s *Service, r *Route, v value) {
	switch {
	case r.To.Reply != nil:
		d.problem(v.at, v.key, "HTTP/2 cannot be answered here: name a group, or leave the route out and it is refused")
	case r.Host != "" || r.Path.Kind != rule.AnyPath || len(r.Methods)+len(r.Conditions) > 0:
		d.problem(v.at, v.key, "protocol: h2c goes with to alone: requests of HTTP/2 are not read")
	case s.H2C != "":
		d.problem(v.at, v.key, "is the second route with protocol: h2c, after group %s", s.H2C)
	default:
		s.H2C = r.To.Group
	}
}

// route decodes a route of a service whose clients speak a protocol.
func (d *decoder) route(v value, protocol Protocol) Route {
	r := Route{At: v.at}
	http := func(key string, decode func(v value)) field {
		if protocol == TLS {
			decode = func(v value) {
				d.problem(v.at, v.key, "is inside TLS, where nobody but the server reads: a tls service has sni, alpn and source")
			}
		}
		return field{key, decode}
	}
	tls := func(key, instead string, decode func(v value)) field {
		if protocol != TLS {
			decode = func(v value) {
				d.problem(v.at, v.key, "is part of a TLS hello: it needs protocol: tls%s", instead)
			}
		}
		return field{key, decode}
	}
	var to value
	ok := d.mapping(v, "a route", []field{
		http("host", func(v value) { r.Host = d.host(v) }),
		http("path", func(v value) { r.Path = d.pathPattern(v) }),
		http("method", func(v value) { r.Methods = d.methods(v) }),
		http("header", func(v value) { d.conditions(&r, rule.Header, v) }),
		http("query", func(v value) { d.conditions(&r, rule.Query, v) }),
		http("cookie", func(v value) { d.conditions(&r, rule.Cookie, v) }),
		http("protocol", func(v value) { r.h2c = d.word(v, "protocol of a route", []string{"h2c"}, nil) == "h2c" }),
		tls("sni", "; the host of a request is host", func(v value) { r.Host = d.host(v) }),
		tls("alpn", "", func(v value) { d.alpn(&r, v) }),
		{"source", func(v value) { d.source(&r, v) }},
		{"to", func(v value) { to = v }},
	})
	if to.node != nil {
		r.To = d.target(to, r.Path) // after the path, wherever it stands
		if r.To.Reply != nil && protocol == TLS {
			d.problem(to.at, to.key, "a tls service cannot answer: its clients speak no HTTP. Name a group")
		}
	}
	if len(r.Conditions) > maxConditions {
		d.problem(v.at, v.key, "has %d conditions; it may have %d", len(r.Conditions), maxConditions)
	}
	if ok && r.To.Nowhere() && !d.complains(v.key) {
		d.problem(v.at, v.key, "to is missing: name the group the requests go to")
	}
	return r
}

func (d *decoder) host(v value) string {
	if alias, ok := v.node.(*ast.AliasNode); ok {
		name := "*" + alias.Value.GetToken().Value
		d.problem(v.at, v.key, "host %s has to be quoted (%q), since an asterisk alone begins an alias", clip(name), clip(name))
		return ""
	}
	s, ok := d.text(v, "a host")
	if !ok {
		return ""
	}
	host, err := rule.Host(s)
	if err != nil {
		d.problem(v.at, v.key, "%v", err)
	}
	return host
}

func (d *decoder) pathPattern(v value) rule.Path {
	if alias, ok := v.node.(*ast.AliasNode); ok {
		name := "*" + alias.Value.GetToken().Value
		d.problem(v.at, v.key, "path %s has to be quoted (%q), since an asterisk alone begins an alias", clip(name), clip(name))
		return rule.Path{}
	}
	if _, ok := v.node.(ast.ScalarNode); !ok {
		p := rule.Path{}
		if d.pathAsText(v) {
			return p
		}
		given := false
		ok := d.mapping(v, "a path", []field{{"regex", func(v value) {
			p, given = rule.Path{Kind: rule.RegexpPath, Text: d.regexp(v)}, true
		}}})
		if ok && !given {
			d.problem(v.at, v.key, "has no regex; every other path is a text: /a for that path, /a/* for all below it too")
		}
		return p
	}
	s, ok := d.text(v, "a path")
	if !ok {
		return rule.Path{}
	}
	path, err := rule.Pattern(s)
	if err != nil {
		d.problem(v.at, v.key, "%v", err)
	}
	return path
}

// pathAsText says how a path of a kind is written that others make a mapping of; false where v is none.
func (d *decoder) pathAsText(v value) bool {
	pairs, _ := pairsOf(v.node)
	for _, p := range pairs {
		key, _ := p.Key.(*ast.StringNode)
		path, _ := p.Value.(*ast.StringNode)
		if key == nil || path == nil || key.Value != "prefix" && key.Value != "exact" {
			continue
		}
		text := path.Value
		if key.Value == "prefix" {
			text = strings.TrimRight(text, "/") + "/*"
		}
		d.problem(position(p.Key), join(v.key, key.Value), "is written as a text: path: %s", clip(text))
		return true
	}
	return false
}

func (d *decoder) regexp(v value) string {
	s, ok := d.text(v, "a regular expression")
	if !ok {
		return ""
	}
	if err := rule.Regexp(s); err != nil {
		d.problem(v.at, v.key, "%v", err)
	}
	return s
}

// oneOrMore decodes a list, or one value without brackets.
func (d *decoder) oneOrMore(v value, most int, each func(v value)) {
	list, ok := v.node.(*ast.SequenceNode)
	if !ok {
		each(v)
		return
	}
	if n := len(list.Values); n == 0 || n > most {
		d.problem(v.at, v.key, "has %d items; it may have 1 to %d", n, most)
		return
	}
	d.list(v, each)
}

// methods decodes the methods of a route; they are compared as they stand (RFC 9110 9.1).
func (d *decoder) methods(v value) (methods []string) {
	known := []string{"GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"}
	d.oneOrMore(v, maxMethods, func(v value) {
		s, ok := d.text(v, "a method")
		if !ok {
			return
		}
		switch upper := strings.ToUpper(s); {
		case !rule.Token(s) || len(s) > 32:
			d.problem(v.at, v.key, "%q is no method: it is a word of at most 32 letters, digits and some marks", clip(s))
		case upper != s && slices.Contains(known, upper):
			d.problem(v.at, v.key, "method %q is not %s: case matters", s, upper).Near = upper
		case slices.Contains(methods, s):
			d.problem(v.at, v.key, "method %s is given twice", s)
		default:
			methods = append(methods, s)
		}
	})
	slices.Sort(methods)
	return methods
}

// subjects are named in messages.
var subjects = map[rule.Subject]string{rule.Header: "header", rule.Query: "query", rule.Cookie: "cookie"}

// conditions decodes a mapping of names to what their values have to be.
func (d *decoder) conditions(r *Route, subject rule.Subject, v value) {
	seen := map[string]Position{}
	d.entries(v, "names and values of "+subjects[subject], func(name string, at Position, v value) {
		c := rule.Condition{Subject: subject, Name: name}
		if subject == rule.Header {
			c.Name = strings.ToLower(name)
		}
		switch {
		case len(name) > 256 || subject != rule.Query && !rule.Token(name):
			d.problem(at, v.key, "%q is no name of a %s", clip(name), subjects[subject])
		case name == "" || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }):
			d.problem(at, v.key, "%q is no name of a parameter", clip(name))
		case c.Name == "host" && subject == rule.Header:
			d.problem(at, v.key, "the host of a request is matched by host, which knows the absolute form too")
		}
		if first, ok := seen[c.Name]; ok {
			d.problem(at, v.key, "is given twice, first at line %d", first.Line)
		}
		seen[c.Name] = at
		d.condition(&c, v)
		r.Conditions = append(r.Conditions, c)
	})
}

// condition decodes what a value has to be: the very text, or a mapping that says how it is compared.
func (d *decoder) condition(c *rule.Condition, v value) {
	if _, ok := v.node.(ast.ScalarNode); ok {
		c.Value = d.headerText(v, "a value")
		return
	}
	n := 0
	given := func(test rule.Test, decode func(v value) string) func(v value) {
		return func(v value) {
			n++
			c.Test, c.Value = test, decode(v)
		}
	}
	ok := d.mapping(v, "how a value is compared", []field{
		{"exact", given(rule.Equal, func(v value) string { return d.headerText(v, "a value") })},
		{"prefix", given(rule.HasPrefix, func(v value) string { return d.headerText(v, "the begin of a value") })},
		{"regex", given(rule.Matches, d.regexp)},
		{"present", given(rule.Present, func(v value) string {
			if !d.boolean(v) && !d.complains(v.key) {
				d.problem(v.at, v.key, "a rule cannot ask for what is not there; write true, and a route without it for the others")
			}
			return ""
		})},
	})
	switch {
	case ok && n == 0 && !d.complains(v.key):
		d.problem(v.at, v.key, "says nothing: there is exact, prefix, regex, present")
	case n > 1:
		d.problem(v.at, v.key, "says it in %d ways; one is enough", n)
	case c.Test == rule.HasPrefix && c.Value == "" && !d.complains(v.key):
		d.problem(v.at, v.key, "every value begins with nothing: write {present: true}")
	}
}

// headerText decodes a value that can occur in a field (RFC 9110 5.5).
func (d *decoder) headerText(v value, what string) string {
	switch v.node.(type) {
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		text := v.node.GetToken().Value
		d.problem(v.at, v.key, "%s has to be quoted: %q", clip(text), clip(text))
		return ""
	}
	s, ok := d.text(v, what)
	switch {
	case !ok:
	case len(s) > maxValue:
		d.problem(v.at, v.key, "has %d bytes; it may have %d", len(s), maxValue)
	case strings.ContainsFunc(s, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }):
		d.problem(v.at, v.key, "holds a control character, which no value has")
	case strings.Trim(s, " \t") != s:
		d.problem(v.at, v.key, "begins or ends with a space, which no value has")
	}
	return s
}

func (d *decoder) alpn(r *Route, v value) {
	s, ok := d.text(v, "a protocol, such as h2")
	if ok && (len(s) == 0 || len(s) > 255) {
		d.problem(v.at, v.key, "%q has %d bytes; a protocol has 1 to 255", clip(s), len(s))
	}
	r.Conditions = append(r.Conditions, rule.Condition{Subject: rule.ALPN, Value: s})
}

func (d *decoder) source(r *Route, v value) {
	c := rule.Condition{Subject: rule.Source}
	d.oneOrMore(v, maxNets, func(v value) {
		s, ok := d.text(v, "a network")
		if !ok {
			return
		}
		net, err := network(s)
		if err != nil {
			d.problem(v.at, v.key, "%v", err)
			return
		}
		if slices.Contains(c.Nets, net) {
			d.problem(v.at, v.key, "%s is given twice", net)
			return
		}
		c.Nets = append(c.Nets, net)
	})
	slices.SortFunc(c.Nets, func(a, b netip.Prefix) int { return a.Compare(b) })
	r.Conditions = append(r.Conditions, c)
}

// network reads a subnet, or an address, which is one of its own.
func network(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if a, bare := netip.ParseAddr(s); bare == nil && a.Zone() == "" {
		p, err = netip.PrefixFrom(a, a.BitLen()), nil
	}
	switch {
	case err != nil:
		return p, fmt.Errorf("%q is no network, such as 198.18.5.0/24, and no address", clip(s))
	case p.Addr().Is4In6():
		return p, fmt.Errorf("%s is an IPv4 address in IPv6 form; write it as IPv4", clip(s))
	case p.Masked() != p:
		return p, fmt.Errorf("%s has bits set behind its length: write %s, or %s alone", s, p.Masked(), p.Addr())
	}
	return p, nil
}

// target decodes where requests go: the name of a group, or how they are answered. of is the path of the route.
func (d *decoder) target(v value, of rule.Path) (t Target) {
	if _, ok := v.node.(ast.ScalarNode); ok {
		return Target{At: v.at, Group: d.identifier(v, "group")}
	}
	t.At = v.at
	n := 0
	set := func(decode func(v value) *Reply) func(v value) {
		return func(v value) {
			n++
			t.Reply = decode(v)
		}
	}
	ok := d.mapping(v, "an answer", []field{
		{"reply", set(d.reply)},
		{"redirect", set(func(v value) *Reply { return d.redirect(v, of) })},
	})
	if ok && n != 1 && !d.complains(v.key) {
		d.problem(v.at, v.key, "wants one of reply and redirect, or the name of a group alone")
	}
	return t
}

// reply decodes an answer: its status alone, or with a body.
func (d *decoder) reply(v value) *Reply {
	r := &Reply{At: v.at}
	status := func(v value) { r.Status = int(d.number(v, "status", 200, 599)) }
	if _, ok := v.node.(*ast.IntegerNode); ok {
		status(v)
		return r
	}
	typed := false
	ok := d.mapping(v, "a reply", []field{
		{"status", status},
		{"body", func(v value) { r.Body = d.body(v) }},
		{"content_type", func(v value) { r.ContentType, typed = d.contentType(v), true }},
	})
	switch {
	case !ok || d.complains(v.key):
	case r.Status == 0:
		d.problem(v.at, v.key, "status is missing")
	case (r.Status == 204 || r.Status == 205 || r.Status == 304) && (r.Body != "" || typed):
		d.problem(v.at, v.key, "a reply of status %d has no body", r.Status)
	}
	return r
}

func (d *decoder) body(v value) string {
	s := ""
	if block, ok := v.node.(*ast.LiteralNode); ok && block.Value != nil {
		s = block.Value.Value
	} else if s, ok = d.text(v, "the text of a body"); !ok {
		return ""
	}
	if len(s) > maxBody {
		d.problem(v.at, v.key, "has %d bytes; it may have %d", len(s), maxBody)
	}
	return s
}

func (d *decoder) contentType(v value) string {
	s, ok := d.text(v, "a media type, such as text/html")
	if !ok {
		return ""
	}
	major, rest, slash := strings.Cut(s, "/")
	minor, _, _ := strings.Cut(rest, ";")
	printable := !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
	if !slash || !printable || len(s) > maxContentType || !rule.Token(major) || !rule.Token(strings.TrimRight(minor, " ")) {
		d.problem(v.at, v.key, "%q is no media type, such as text/html; charset=utf-8", clip(s))
	}
	return s
}

// redirect decodes where a client is sent.
func (d *decoder) redirect(v value, of rule.Path) *Reply {
	to := &Redirect{}
	r := &Reply{At: v.at, Status: 302, Redirect: to}
	path, prefix := false, false
	location := func(v value) string {
		s, ok := d.text(v, "a path")
		if ok && (!strings.HasPrefix(s, "/") || len(s) > maxValue || strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })) {
			d.problem(v.at, v.key, "%q is no path: it begins with a slash, has at most %d characters and no space; write others percent-encoded", clip(s), maxValue)
		}
		if strings.ContainsAny(s, "?#") {
			d.problem(v.at, v.key, "%q holds a query or a fragment; the query of the request stays", clip(s))
		}
		return s
	}
	ok := d.mapping(v, "a redirect", []field{
		{"scheme", func(v value) { to.Scheme = d.word(v, "scheme", []string{"http", "https"}, nil) }},
		{"host", func(v value) {
			if to.Host = d.host(v); strings.HasPrefix(to.Host, "*") {
				d.problem(v.at, v.key, "host %q: nobody can be sent to a wildcard", to.Host)
			}
		}},
		{"port", func(v value) { to.Port = uint16(d.number(v, "port", 1, 65535)) }},
		{"path", func(v value) { to.Path, path = location(v), true }},
		{"prefix", func(v value) { to.Path, prefix = location(v), true; to.ReplacePrefix = true }},
		{"status", func(v value) {
			if r.Status = int(d.number(v, "status", 300, 399)); !slices.Contains([]int{301, 302, 303, 307, 308}, r.Status) {
				d.problem(v.at, v.key, "%d is no status of a redirect; there is 301, 302, 303, 307, 308", r.Status)
			}
		}},
	})
	switch {
	case !ok || d.complains(v.key):
	case path && prefix:
		d.problem(v.at, v.key, "wants one of path (the whole path) and prefix (in place of the route's)")
	case prefix && of.Kind != rule.PrefixPath && of.Kind != rule.AnyPath:
		d.problem(v.at, v.key, "prefix takes the place of the route's prefix, and it has none: its path should end in /*")
	case *to == Redirect{}:
		d.problem(v.at, v.key, "leads back to itself: say scheme, host, port, path or prefix")
	}
	return r
}

// log decodes where the log of connections goes.
func (d *decoder) log(l *Log, v value) {
	l.At = v.at
	ok := d.mapping(v, "log", []field{
		{"file", func(v value) { l.File = d.path(v, "path of a file", 4095) }},
		{"size", func(v value) {
			text, ok := "", false
			switch v.node.(type) {
			case *ast.IntegerNode, *ast.FloatNode:
				text, ok = v.node.GetToken().Value, true
			default:
				text, ok = d.text(v, "a size, such as 64MiB")
			}
			if !ok {
				return
			}
			n, err := ParseSize(text)
			if err != nil {
				d.problem(v.at, v.key, "%v", err)
			}
			l.Bytes = n
		}},
		{"keep", func(v value) { l.Keep = int(d.number(v, "keep", 1, 1000)) }},
	})
	if ok && l.File == "" && !d.complains(v.key) {
		d.problem(v.at, v.key, "file is missing: say where the log goes")
	}
}

// Bounds of the size of a log file.
const minSize, maxSize = 64 << 10, 1 << 40

// ParseSize reads a number of bytes with its unit, such as "64MiB".
func ParseSize(s string) (int64, error) {
	digits := strings.TrimRight(s, "KMGTiB")
	shift, ok := map[string]uint{"KiB": 10, "MiB": 20, "GiB": 30}[s[len(digits):]]
	switch {
	case decimal(s):
		return 0, fmt.Errorf("size %s has no unit: write %sKiB or %sMiB", clip(s), clip(s), clip(s))
	case !ok || !decimal(digits):
		return 0, fmt.Errorf("%q is no size: write a whole number and KiB, MiB or GiB, without a space", clip(s))
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n > maxSize>>shift || n<<shift < minSize {
		return 0, errors.New("size " + clip(s) + " is out of range: it may be 64KiB to 1024GiB")
	}
	return n << shift, nil
}
