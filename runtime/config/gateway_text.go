package config

import (
	"fmt"
	"strconv"
	"strings"

	"splicenic/runtime/rule"
)

// YAML writes what was imported as the services and groups of a configuration. What it lacks is said beside it.
func (g *Imported) YAML() string {
	var b strings.Builder
	for _, p := range g.Left {
		fmt.Fprintf(&b, "# left out: %s\n", strings.ReplaceAll(p.String(), "\n", " "))
	}
	b.WriteString("services:" + map[bool]string{true: " []"}[len(g.Services) == 0] + "\n")
	for i := range g.Services {
		g.Services[i].write(&b)
	}
	b.WriteString("groups:" + map[bool]string{true: " []"}[len(g.Groups) == 0] + "\n")
	for i := range g.Groups {
		group := &g.Groups[i]
		fmt.Fprintf(&b, "  - name: %s  # %s\n", group.Name, group.From)
		if len(group.Servers) == 0 {
			b.WriteString("    servers: []  # no EndpointSlice says where they are\n")
			continue
		}
		b.WriteString("    servers:\n")
		for _, s := range group.Servers {
			fmt.Fprintf(&b, "      - {address: %q, weight: %d}\n", s.Addr, s.Weight)
		}
	}
	return b.String()
}

func (s *ImportedService) write(b *strings.Builder) {
	where := "of a Gateway that the routes do not name"
	if s.Parent != "" {
		where = "of Gateway " + s.Parent
	}
	fmt.Fprintf(b, "  - name: %s\n    listen: []  # the addresses %s\n    protocol: %s\n", s.Name, where, s.Protocol)
	targets := map[string]bool{}
	for i := range s.Routes {
		targets[s.Routes[i].To.describe()] = true
	}
	if s.Protocol == HTTP && len(targets) > 1 {
		b.WriteString("    requests: close  # each request chooses anew\n")
	}
	b.WriteString("    routes:\n")
	for i := range s.Routes {
		fmt.Fprintf(b, "      - {%s}\n", s.Routes[i].source(s.Protocol))
	}
}

// source writes a route as the inside of braces.
func (r *Route) source(p Protocol) string {
	var parts []string
	add := func(key, value string) { parts = append(parts, key+": "+value) }
	if r.Host != "" {
		add(map[Protocol]string{HTTP: "host", TLS: "sni"}[p], asWord(r.Host))
	}
	switch r.Path.Kind {
	case rule.ExactPath:
		add("path", asWord(encodePath(r.Path.Text)))
	case rule.PrefixPath:
		add("path", asWord(encodePath(r.Path.Text)+"/*"))
	case rule.RegexpPath:
		add("path", "{regex: "+strconv.Quote(r.Path.Text)+"}")
	}
	if len(r.Methods) > 0 {
		add("method", asWord(r.Methods[0]))
	}
	for _, s := range []rule.Subject{rule.Header, rule.Query} {
		var tests []string
		for i := range r.Conditions {
			c := &r.Conditions[i]
			if c.Subject != s {
				continue
			}
			value := strconv.Quote(c.Value)
			if c.Test == rule.Matches {
				value = "{regex: " + value + "}"
			}
			tests = append(tests, strconv.Quote(c.Name)+": "+value)
		}
		if tests != nil {
			add(s.String(), "{"+strings.Join(tests, ", ")+"}")
		}
	}
	add("to", r.To.source())
	return strings.Join(parts, ", ")
}

// source writes a target that an import makes.
func (t Target) source() string {
	if t.Reply == nil {
		return t.Group
	}
	to := t.Reply.Redirect
	if to == nil {
		return "{reply: " + strconv.Itoa(t.Reply.Status) + "}"
	}
	var parts []string
	add := func(given bool, text string) {
		if given {
			parts = append(parts, text)
		}
	}
	add(to.Scheme != "", "scheme: "+to.Scheme)
	add(to.Host != "", "host: "+asWord(to.Host))
	add(to.Port != 0, "port: "+strconv.Itoa(int(to.Port)))
	add(to.Path != "" && !to.ReplacePrefix, "path: "+strconv.Quote(to.Path))
	add(to.ReplacePrefix, "prefix: "+strconv.Quote(to.Path))
	add(true, "status: "+strconv.Itoa(t.Reply.Status))
	return "{redirect: {" + strings.Join(parts, ", ") + "}}"
}

// asWord writes a text as it stands where YAML takes it for itself, else in quotes.
func asWord(s string) string {
	if _, raw := scalar(s); s != "" && raw == s && s[0] != '"' {
		return s
	}
	return strconv.Quote(s)
}

// encodePath writes a normalised path as a configuration does.
func encodePath(path string) string {
	var b strings.Builder
	for _, c := range []byte(path) {
		if c <= ' ' || c >= 0x7f || c == '?' || c == '#' || c == '*' {
			fmt.Fprintf(&b, "%%%02X", c)
			continue
		}
		b.WriteByte(c)
	}
	return b.String()
}
