package config

import (
	"errors"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"splicenic/runtime/rule"
)

// spoken is small with lines put into its service.
func spoken(lines string) string {
	return strings.Replace(small, "    default: app\n", indent(lines), 1)
}

func indent(lines string) string {
	return "    " + strings.ReplaceAll(strings.TrimSpace(lines), "\n", "\n    ") + "\n"
}

var ignored = cmp.Options{
	cmpopts.IgnoreTypes(Position{}), cmpopts.IgnoreUnexported(Config{}, Route{}),
	cmpopts.EquateComparable(netip.Prefix{}, netip.Addr{}, netip.AddrPort{}),
}

// TestRoutes reads each key of a route.
func TestRoutes(t *testing.T) {
	condition := func(c rule.Condition) rule.Match { return rule.Match{Conditions: []rule.Condition{c}} }
	path := func(kind rule.PathKind, text string) rule.Match {
		return rule.Match{Path: rule.Path{Kind: kind, Text: text}}
	}
	net := netip.MustParsePrefix
	for _, tt := range []struct {
		protocol, text string
		want           rule.Match
	}{
		{"http", `host: A.Example`, rule.Match{Host: "a.example"}},
		{"http", `host: "*.Example"`, rule.Match{Host: "*.example"}},
		{"http", `path: /a`, path(rule.ExactPath, "/a")},
		{"http", `path: /a/*`, path(rule.PrefixPath, "/a")},
		{"http", `path: /*`, rule.Match{}},
		{"http", `path: /a/*/b`, path(rule.PatternPath, "/a/*/b")},
		{"http", `path: /a/**/b`, path(rule.PatternPath, "/a/**/b")},
		{"http", `path: /a/*/b/*`, path(rule.PatternPath, "/a/*/b/**")},
		{"http", `path: /a/*.jpg`, path(rule.PatternPath, "/a/*.jpg")},
		{"http", `path: "*.jpg"`, path(rule.PatternPath, "/**/*.jpg")},
		{"http", `path: {regex: "/a[0-9]+"}`, path(rule.RegexpPath, "/a[0-9]+")},
		{"http", `method: GET`, rule.Match{Methods: []string{"GET"}}},
		{"http", `method: [POST, GET, x-own]`, rule.Match{Methods: []string{"GET", "POST", "x-own"}}},
		{"http", `header: {X-Canary: "1"}`, condition(rule.Condition{Subject: rule.Header, Name: "x-canary", Value: "1"})},
		{"http", `header: {X-Canary: {exact: "1"}}`, condition(rule.Condition{Subject: rule.Header, Name: "x-canary", Value: "1"})},
		{"http", `header: {X-Canary: {prefix: v}}`, condition(rule.Condition{Subject: rule.Header, Name: "x-canary", Test: rule.HasPrefix, Value: "v"})},
		{"http", `header: {X-Canary: {regex: "v[12]"}}`, condition(rule.Condition{Subject: rule.Header, Name: "x-canary", Test: rule.Matches, Value: "v[12]"})},
		{"http", `header: {X-Canary: {present: true}}`, condition(rule.Condition{Subject: rule.Header, Name: "x-canary", Test: rule.Present})},
		{"http", `header: {X-Empty: ""}`, condition(rule.Condition{Subject: rule.Header, Name: "x-empty"})},
		{"http", `header: {A: "1", B: "2"}`, rule.Match{Conditions: []rule.Condition{{Name: "a", Value: "1"}, {Name: "b", Value: "2"}}}},
		{"http", `query: {Q: "1"}`, condition(rule.Condition{Subject: rule.Query, Name: "Q", Value: "1"})},
		{"http", `cookie: {Sid: {present: true}}`, condition(rule.Condition{Subject: rule.Cookie, Name: "Sid", Test: rule.Present})},
		{"http", `source: 192.0.2.0/24`, condition(rule.Condition{Subject: rule.Source, Nets: []netip.Prefix{net("192.0.2.0/24")}})},
		{"http", `source: [2001:db8::/32, 192.0.2.9]`, condition(rule.Condition{Subject: rule.Source, Nets: []netip.Prefix{net("192.0.2.9/32"), net("2001:db8::/32")}})},
		{"tls", `sni: A.example`, rule.Match{Host: "a.example"}},
		{"tls", `sni: "*.example"`, rule.Match{Host: "*.example"}},
		{"tls", `sni: a, alpn: h2`, rule.Match{Host: "a", Conditions: []rule.Condition{{Subject: rule.ALPN, Value: "h2"}}}},
		{"tls", `source: 192.0.2.0/24`, condition(rule.Condition{Subject: rule.Source, Nets: []netip.Prefix{net("192.0.2.0/24")}})},
	} {
		for _, order := range []string{"routes: [{" + tt.text + ", to: app}]\nprotocol: " + tt.protocol, "protocol: " + tt.protocol + "\nroutes: [{to: app, " + tt.text + "}]"} {
			c, err := Load("x.yaml", []byte(spoken(order)))
			if err != nil {
				t.Errorf("%s: %v", order, err)
				continue
			}
			want := []Route{{Match: tt.want, To: Target{Group: "app"}}}
			if diff := cmp.Diff(want, c.Services[0].Routes, ignored); diff != "" {
				t.Errorf("%s (-want +got):\n%s", order, diff)
			}
		}
	}
}

// TestTargets reads every way to answer.
func TestTargets(t *testing.T) {
	for _, tt := range []struct {
		text string
		want Target
	}{
		{`app`, Target{Group: "app"}},
		{`{reply: 404}`, Target{Reply: &Reply{Status: 404}}},
		{`{reply: {status: 503, body: "later", content_type: text/html; charset=utf-8}}`, Target{Reply: &Reply{Status: 503, Body: "later", ContentType: "text/html; charset=utf-8"}}},
		{"\n        reply:\n          status: 200\n          body: |\n            one\n            two\n", Target{Reply: &Reply{Status: 200, Body: "one\ntwo\n"}}},
		{`{redirect: {scheme: https}}`, Target{Reply: &Reply{Status: 302, Redirect: &Redirect{Scheme: "https"}}}},
		{`{redirect: {host: B.example, port: 8443, path: /new, status: 308}}`, Target{Reply: &Reply{Status: 308, Redirect: &Redirect{Host: "b.example", Port: 8443, Path: "/new"}}}},
		{`{redirect: {prefix: /new}}`, Target{Reply: &Reply{Status: 302, Redirect: &Redirect{Path: "/new", ReplacePrefix: true}}}},
	} {
		c := load(t, spoken("default: app\nroutes:\n  - path: /old/*\n    to: "+tt.text))
		if diff := cmp.Diff(tt.want, c.Services[0].Routes[0].To, ignored); diff != "" {
			t.Errorf("to: %s (-want +got):\n%s", tt.text, diff)
		}
		if strings.Contains(tt.text, "prefix") {
			continue
		}
		c = load(t, spoken("routes: [{to: app}]\ndefault: "+tt.text))
		if diff := cmp.Diff(tt.want, c.Services[0].Default, ignored); diff != "" {
			t.Errorf("default: %s (-want +got):\n%s", tt.text, diff)
		}
		if tt.want.Group == "app" {
			continue
		}
		c = load(t, small+"    sorry: "+tt.text)
		if diff := cmp.Diff(tt.want, c.Groups[0].Sorry, ignored); diff != "" {
			t.Errorf("sorry: %s (-want +got):\n%s", tt.text, diff)
		}
	}
}

// TestServiceKeys reads what a service makes of its clients' words.
func TestServiceKeys(t *testing.T) {
	app := Target{Group: "app"}
	for _, tt := range []struct {
		text string
		want Service
	}{
		{"", Service{}},
		{"protocol: http", Service{}},
		{"protocol: tls", Service{Protocol: TLS}},
		{"protocol: tcp", Service{Protocol: TCP, ServerFirst: true}},
		{"server_first: false\nprotocol: tcp", Service{Protocol: TCP}},
		{"protocol: tcp\nserver_first: false\nfallback: 2s", Service{Protocol: TCP, Fallback: 2 * time.Second}},
		{"fallback: 500ms", Service{Fallback: 500 * time.Millisecond}},
		{"requests: first", Service{}},
		{"requests: close", Service{Requests: Close}},
		{"proxy: v2", Service{Proxy: true}},
		{"proxy: off", Service{}},
		{"forwarded: none", Service{}},
		{"forwarded: x-forwarded-for", Service{Forwarded: XForwardedFor}},
		{"forwarded: forwarded", Service{Forwarded: ForwardedRFC}},
		{"forwarded: {field: forwarded, existing: replace}", Service{Forwarded: ForwardedRFC, Existing: Replace}},
		{"forwarded: {existing: refuse, field: x-forwarded-for}", Service{Forwarded: XForwardedFor, Existing: Refuse}},
		{"limits: {target: 2048, head: 16384}", Service{MaxTarget: 2048, MaxHead: 16384}},
		{"protocol: tls\nlimits: {head: 16384}", Service{Protocol: TLS, MaxHead: 16384}},
		{"routes: [{protocol: h2c, to: app}]", Service{H2C: "app"}},
	} {
		c := load(t, spoken("default: app\n"+tt.text))
		want, got := tt.want, c.Services[0]
		want.Name, want.Listen, want.Default = got.Name, got.Listen, app
		if diff := cmp.Diff(want, got, ignored); diff != "" {
			t.Errorf("%q (-want +got):\n%s", tt.text, diff)
		}
	}
	c := load(t, spoken("default: app")+"log: {file: /var/log/x.json, size: 64MiB, keep: 5}\n")
	if diff := cmp.Diff(Log{File: "/var/log/x.json", Bytes: 64 << 20, Keep: 5}, c.Log, ignored); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
}

// TestContentProblems refuses what cannot work or does not mean what it seems to.
func TestContentProblems(t *testing.T) {
	route := func(text string) string { return spoken("routes: [{" + text + ", to: app}]") }
	tls := func(text string) string { return spoken("protocol: tls\nroutes: [{" + text + ", to: app}]") }
	to := func(text string) string { return spoken("routes: [{path: /a, to: " + text + "}]") }
	service := func(text string) string { return spoken("default: app\n" + text) }
	for _, tt := range []struct{ name, text, want, near string }{
		{"path in TLS", tls("path: /a"), "x.yaml:9:21: services[0].routes[0].path: is inside TLS", ""},
		{"header in TLS", tls(`header: {a: "1"}`), "header: is inside TLS", ""},
		{"method in TLS", tls("method: GET"), "method: is inside TLS", ""},
		{"query in TLS", tls(`query: {a: "1"}`), "query: is inside TLS", ""},
		{"cookie in TLS", tls(`cookie: {a: "1"}`), "cookie: is inside TLS", ""},
		{"host in TLS", tls("host: a"), "a tls service has sni", ""},
		{"h2c in TLS", tls("protocol: h2c"), "is inside TLS", ""},
		{"sni in HTTP", route("sni: a"), "it needs protocol: tls; the host of a request is host", ""},
		{"alpn in HTTP", route("alpn: h2"), "alpn: is part of a TLS hello", ""},
		{"routes on TCP", service("protocol: tcp\nroutes: [{to: app}]"), "nothing of what clients of a tcp service send is read", ""},
		{"TCP without a default", spoken("protocol: tcp"), "services[0].default: is missing: a tcp service reads nothing", ""},
		{"key of a route", route("metod: GET"), "unknown key of a route", "method"},

		{"wildcard in the midst", route(`host: "a.*.example"`), "an asterisk may only be the first label", ""},
		{"asterisk as host", route(`host: "*"`), "leave host out for every host", ""},
		{"wildcard with a port", route(`host: "*.example:80"`), "not before an address or a port", ""},
		{"wildcard and address", route(`host: "*.[::1]"`), "not before an address", ""},
		{"path wildcard without quotes", route("path: *.jpg"), `path *.jpg has to be quoted ("*.jpg")`, ""},
		{"two asterisks twice", route(`path: /a/**/**/b`), "one ** is as good as two", ""},
		{"asterisk within a segment", route(`path: /a/b*c`), "an asterisk stands for a whole segment", ""},
		{"suffix in the midst", route(`path: /*.d/a`), "only in the last segment", ""},
		{"dots and wildcards", route(`path: /a/*/../b`), "dot segments and wildcards", ""},
		{"regular expression", route(`path: {regex: "/a("}`), "missing closing )", ""},
		{"regular expression with a parenthesis of ours", route(`path: {regex: "/a)(b"}`), "unexpected )", ""},
		{"long regular expression", route(`path: {regex: "` + strings.Repeat("a", 1025) + `"}`), "has 1025 characters", ""},
		{"path is a mapping", route(`path: {prefix: /a/}`), "path.prefix: is written as a text: path: /a/*", ""},
		{"exact path is a mapping", route(`path: {exact: /a}`), "path.exact: is written as a text: path: /a", ""},
		{"path of another kind", route(`path: {suffix: /a}`), "unknown key of a path; there is regex", ""},
		{"path of no kind", route(`path: {}`), "path: has no regex", ""},
		{"method in lower case", route("method: get"), `method "get" is not GET: case matters`, "GET"},
		{"no method", route(`method: "GET POST"`), `"GET POST" is no method`, ""},
		{"method twice", route("method: [GET, GET]"), "given twice", ""},
		{"no methods", route("method: []"), "has 0 items", ""},
		{"host as a header", route(`header: {Host: "a"}`), "is matched by host", ""},
		{"header twice", route(`header: {A: "1", a: "2"}`), "is given twice, first at line 8", ""},
		{"header with a space", route(`header: {"A B": "1"}`), `"A B" is no name of a header`, ""},
		{"number as a value", route("header: {A: 1}"), `1 has to be quoted: "1"`, ""},
		{"value with a break", route(`header: {A: "a\nb"}`), "holds a control character", ""},
		{"value with a space", route(`header: {A: "a "}`), "begins or ends with a space", ""},
		{"value in two ways", route(`header: {A: {exact: "a", prefix: "a"}}`), "says it in 2 ways", ""},
		{"value in no way", route(`header: {A: {}}`), "says nothing: there is exact", ""},
		{"absent", route(`header: {A: {present: false}}`), "a rule cannot ask for what is not there", ""},
		{"prefix of nothing", route(`header: {A: {prefix: ""}}`), "write {present: true}", ""},
		{"no headers", route(`header: {}`), "wants a mapping (names and values of header)", ""},
		{"no query name", route(`query: {"": "1"}`), "is no name of a parameter", ""},
		{"source with bits", route("source: 192.0.2.9/24"), "write 192.0.2.0/24, or 192.0.2.9 alone", ""},
		{"source wrong", route("source: here"), "is no network", ""},
		{"source mapped", route(`source: "::ffff:192.0.2.0/120"`), "is an IPv4 address in IPv6 form", ""},
		{"source twice", route("source: [192.0.2.9, 192.0.2.9/32]"), "given twice", ""},
		{"alpn empty", tls(`alpn: ""`), "a protocol has 1 to 255", ""},

		{"h2c with a path", route("protocol: h2c, path: /a"), "goes with to alone", ""},
		{"h2c twice", spoken("routes: [{protocol: h2c, to: app}, {protocol: h2c, to: app}]"), "second route with protocol: h2c", ""},
		{"h2c answered", spoken("routes: [{protocol: h2c, to: {reply: 404}}]"), "HTTP/2 cannot be answered here", ""},
		{"h2c to nobody", spoken("default: app\nroutes: [{protocol: h2c, to: apq}]"), "there is no group apq", "app"},
		{"h3", route("protocol: h3"), `"h3" is no protocol of a route`, ""},

		{"reply of 1xx", to("{reply: 101}"), "status is 101; it may be 200 to 599", ""},
		{"reply without a status", to("{reply: {body: x}}"), "status is missing", ""},
		{"204 with a body", to("{reply: {status: 204, body: x}}"), "a reply of status 204 has no body", ""},
		{"long body", to(`{reply: {status: 200, body: "` + strings.Repeat("x", 4097) + `"}}`), "has 4097 bytes", ""},
		{"media type", to(`{reply: {status: 200, content_type: "text"}}`), "is no media type", ""},
		{"media type that injects", to(`{reply: {status: 200, content_type: "text/html\r\nX: y"}}`), "is no media type", ""},
		{"both", to("{reply: 404, redirect: {scheme: https}}"), "wants one of reply and redirect", ""},
		{"neither", to("{}"), "wants one of reply and redirect", ""},
		{"redirect to itself", to("{redirect: {status: 301}}"), "leads back to itself", ""},
		{"redirect to a wildcard", to(`{redirect: {host: "*.example"}}`), "nobody can be sent to a wildcard", ""},
		{"redirect with status 304", to("{redirect: {scheme: https, status: 304}}"), "304 is no status of a redirect", ""},
		{"redirect path", to("{redirect: {path: x}}"), "is no path", ""},
		{"redirect that injects", to(`{redirect: {path: "/a\r\nSet-Cookie: x"}}`), "is no path", ""},
		{"redirect with a query", to(`{redirect: {path: "/a?b"}}`), "the query of the request stays", ""},
		{"redirect prefix of an exact path", to("{redirect: {prefix: /b}}"), "its path should end in /*", ""},
		{"redirect path and prefix", spoken("routes: [{path: /a/*, to: {redirect: {path: /b, prefix: /b}}}]"), "wants one of path", ""},
		{"default redirect by prefix", spoken("default: {redirect: {prefix: /b}}"), "its path should end in /*", ""},
		{"reply in TLS", spoken("protocol: tls\ndefault: {reply: 404}"), "its clients speak no HTTP", ""},
		{"reply in TLS by a route", spoken("protocol: tls\nroutes: [{sni: a, to: {reply: 404}}]"), "a tls service cannot answer", ""},
		{"reply in TCP", spoken("protocol: tcp\ndefault: {reply: 404}"), "its clients speak no HTTP", ""},
		{"sorry in TLS", service("protocol: tls") + "    sorry: {reply: 503}\n", "group app answers in HTTP, but tls service web (line 6) uses it", ""},
		{"sorry to nobody", small + "    sorry: apq\n", "groups[0].sorry: there is no group apq", "app"},
		{"sorry for itself", small + "    sorry: app\n", "leads back to group app itself", ""},
		{"sorry in a ring", small + "    sorry: b\n  - {name: b, sorry: app, servers: [{address: 198.18.1.12:80}]}\n", "groups[1].sorry: leads back to group b itself", ""},
		{"sorry of another family", small + "    sorry: b\n  - {name: b, servers: [{address: \"[2001:db8::1]:80\"}]}\n", "nat keeps the client's address", ""},

		{"server first in HTTP", service("server_first: true"), "a server that speaks first needs protocol: tcp", ""},
		{"fallback without a default", spoken("routes: [{to: app}]\nfallback: 1s"), "service web has none", ""},
		{"fallback to an answer", spoken("default: {reply: 404}\nfallback: 1s"), "service web has none", ""},
		{"fallback with server first", service("protocol: tcp\nfallback: 1s"), "is of no use", ""},
		{"requests in TLS", service("protocol: tls\nrequests: close"), "is about HTTP; service is protocol: tls", ""},
		{"requests", service("requests: all"), `"all" is no requests; there is first, close`, ""},
		{"proxy", service("proxy: v1"), `"v1" is no proxy; there is v2, off`, ""},
		{"forwarded in TLS", service("protocol: tls\nforwarded: forwarded"), "is about HTTP", ""},
		{"forwarded", service("forwarded: x-forwarded-fro"), "is no forwarded", "x-forwarded-for"},
		{"forwarded without a field", service("forwarded: {existing: append}"), "field is missing", ""},
		{"existing of nothing", service("forwarded: {field: none, existing: append}"), "remove it", ""},
		{"limits in TCP", service("protocol: tcp\nlimits: {head: 1024}"), "has no heads to limit", ""},
		{"limits of a target in TLS", service("protocol: tls\nlimits: {target: 1024}"), "is about HTTP", ""},
		{"limits of more than is gathered", service("limits: {head: 65537}"), "head is 65537; it may be 256 to 65536", ""},
		{"limits the wrong way round", service("limits: {target: 2000, head: 1000}"), "target 2000 is more than head 1000", ""},

		{"log without a file", small + "log: {keep: 3}\n", "file is missing", ""},
		{"log relative", small + "log: {file: x}\n", "is no path of a file", ""},
		{"log size without a unit", small + "log: {file: /x, size: 100}\n", "size 100 has no unit: write 100KiB or 100MiB", ""},
		{"log size", small + "log: {file: /x, size: 1.5MiB}\n", `"1.5MiB" is no size`, ""},
		{"log size too small", small + "log: {file: /x, size: 1KiB}\n", "is out of range", ""},
		{"log size too large", small + "log: {file: /x, size: 99999999999999GiB}\n", "is out of range", ""},
		{"log keep", small + "log: {file: /x, keep: 0}\n", "keep is 0; it may be 1 to 1000", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Load("x.yaml", []byte(tt.text))
			var p Problems
			if !errors.As(err, &p) || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("error is\n%v\nwant in it\n%s", err, tt.want)
			}
			if tt.near != "" && !strings.Contains(err.Error(), `did you mean "`+tt.near+`"?`) {
				t.Errorf("error %v does not offer %q", err, tt.near)
			}
		})
	}
}

// TestContentDiff: whatever a key says, a change of it is a difference.
func TestContentDiff(t *testing.T) {
	texts := []string{
		"", "requests: close", "proxy: v2", "forwarded: forwarded", "forwarded: {field: forwarded, existing: refuse}", "limits: {head: 1024}", "limits: {target: 1024}",
		"fallback: 1s", "protocol: tls", "protocol: tcp", "protocol: tcp\nserver_first: false",
		"routes: [{protocol: h2c, to: app}]", "routes: [{host: a, to: app}]", "routes: [{path: /a, to: app}]", "routes: [{path: /a/*, to: app}]",
		"routes: [{path: {regex: /a}, to: app}]", "routes: [{method: GET, to: app}]", `routes: [{header: {a: "1"}, to: app}]`, `routes: [{query: {a: "1"}, to: app}]`,
		`routes: [{header: {a: {prefix: "1"}}, to: app}]`, `routes: [{header: {a: {regex: "1"}}, to: app}]`, `routes: [{header: {a: {present: true}}, to: app}]`,
		"routes: [{source: 192.0.2.0/24, to: app}]", "routes: [{to: {reply: 404}}]", "routes: [{to: {reply: {status: 404, body: x}}}]",
		"routes: [{to: {reply: {status: 404, content_type: a/b}}}]", "routes: [{to: {redirect: {path: /a}}}]", "routes: [{to: {redirect: {prefix: /a}}}]",
		"protocol: tls\nroutes: [{alpn: h2, to: app}]", "protocol: tls\nroutes: [{sni: h2, to: app}]",
	}
	for i, a := range texts {
		for k, b := range texts {
			n := len(Diff(load(t, spoken("default: app\n"+a)), load(t, spoken("default: app\n"+b))))
			if (n == 0) != (i == k) {
				t.Errorf("%q to %q: %d differences", a, b, n)
			}
		}
	}
	if n := len(Diff(load(t, small), load(t, small+"    sorry: {reply: 503}\nlog: {file: /x}\n"))); n != 2 {
		t.Errorf("sorry and log: %d differences, want 2", n)
	}
}

// TestContentWarnings tells of what is odd, with both lines where there are two.
func TestContentWarnings(t *testing.T) {
	b := "  - {name: b, servers: [{address: 198.18.1.12:80}]}\n"
	for _, tt := range []struct{ name, text, want string }{ // want empty: no warning
		{"two groups", spoken("default: app\nroutes: [{path: /x, to: b}]") + b, "x.yaml:9:14: services[0].requests: first: every later request of a connection goes where its first one went, be it to group b here or to app (line 6)"},
		{"two groups of routes", spoken("routes:\n  - {path: /x, to: b}\n  - {path: /y, to: app}") + b, "be it to group app here or to b (line 9)"},
		{"two groups, said", spoken("default: app\nrequests: first\nroutes: [{path: /x, to: b}]") + b, "services[0].requests: first"},
		{"two groups, closing", spoken("default: app\nrequests: close\nroutes: [{path: /x, to: b}]") + b, ""},
		{"two groups of TLS", spoken("protocol: tls\ndefault: app\nroutes: [{sni: x, to: b}]") + b, ""},
		{"one group and an answer", spoken("default: app\nroutes: [{path: /x, to: app}, {path: /y, to: {reply: 404}}]"), ""},
		{"same twice", spoken("routes:\n  - {path: /x, to: app}\n  - {path: /x, to: app}"), "x.yaml:10:9: services[0].routes[1]: takes no request: the route at line 9 asks for the same"},
		{"shadowed", spoken("routes:\n  - {path: /x, method: [GET, PUT], to: app}\n  - {path: /x, method: GET, to: app}"), "x.yaml:10:9: services[0].routes[1]: takes no request: the route at line 9 (/x method GET,PUT) goes first"},
		{"impossible", spoken("routes: [{path: {regex: a}, to: app}]"), "takes no request: its path begins with"},
		{"regular expression", spoken("routes: [{path: {regex: /a}, to: app}]"), "routes[0]: is slow: the host decides"},
		{"regular expression of a cookie", spoken("routes: [{cookie: {c: {regex: a}}, to: app}]"), "since cookie c is compared with a regular expression"},
		{"many conditions", spoken("routes: [{query: {a: a, b: a, c: a, d: a, e: a, f: a, g: a, h: a, i: a}, to: app}]"), "since it has 9 conditions, and the card tests 8"},
		{"no name", spoken("protocol: tls\nroutes: [{alpn: h2, to: app}]"), "routes[0]: has no sni: it takes hellos for every name, and those without one"},
		{"source of another family", spoken("routes: [{source: \"2001:db8::/32\", to: app}]"), "its source is of another family"},
		{"sources of both families", spoken("routes: [{source: [\"2001:db8::/32\", 192.0.2.0/24], to: app}]"), ""},
		{"default behind everything", spoken("default: app\nroutes:\n  - {to: app}"), "services[0].default: takes no request: the route at line 10 takes every one"},
		{"default for the silent", spoken("default: app\nfallback: 1s\nroutes:\n  - {to: app}"), ""},
		{"fallback too late", spoken("default: app\nfallback: 30s"), "30s is not before the time-out of the head (wait_head 30s)"},
		{"fallback later than the head", spoken("default: app\nfallback: 3s\ntimeouts: {wait_head: 2s}"), "3s is not before the time-out of the head (wait_head 2s)"},
		{"forwarded for HTTP/2", spoken("default: app\nforwarded: forwarded\nroutes: [{protocol: h2c, to: app}]"), "forwarded does nothing for HTTP/2"},
		{"index behind h2c", spoken("routes: [{protocol: h2c, to: app}, {path: {regex: /a}, to: app}]"), "services[0].routes[1]: is slow"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := load(t, tt.text).Warnings
			if tt.want == "" && len(got) != 0 || !strings.Contains(got.Error(), tt.want) {
				t.Errorf("warnings are\n%s\nwant in them\n%s", got.Error(), tt.want)
			}
		})
	}
	_, err := Load("x.yaml", []byte(spoken("routes:\n  - {path: /x, to: app}\n  - {path: /x, to: b}")+b))
	if want := "x.yaml:10:9: services[0].routes[1]: asks for the same as the route at line 9, but leads to b instead of app"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("conflict: %v, want %s", err, want)
	}
	var many strings.Builder
	for range 300 {
		many.WriteString("\n  - {path: {regex: a}, to: app}")
	}
	if n := len(load(t, spoken("routes:"+many.String())).Warnings); n != 2*maxFindings+1 {
		t.Errorf("%d warnings of 300 routes, want %d", n, 2*maxFindings+1)
	}
}

// TestReadmeRoutes loads every route that README.md shows.
func TestReadmeRoutes(t *testing.T) {
	b, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(b), "### Routes and answers\n")
	section, _, _ = strings.Cut(section, "\n### ")
	n := 0
	for i, span := range strings.Split(strings.ReplaceAll(section, "\n", " "), "`") {
		if i%2 == 0 || !strings.HasPrefix(span, "{") {
			continue
		}
		text := "routes: [" + span + "]"
		switch {
		case strings.Contains(span, "sni") || strings.Contains(span, "alpn"):
			text += "\nprotocol: tls"
		case strings.HasPrefix(span, "{field"):
			text = "forwarded: " + span
		case strings.HasPrefix(span, "{target"):
			text = "limits: " + span
		}
		n++
		load(t, spoken("default: app\n"+text))
	}
	if n < 15 {
		t.Errorf("only %d examples", n)
	}
}
