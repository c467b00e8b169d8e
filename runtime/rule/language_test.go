package rule

import (
	"strings"
	"testing"
)

// FuzzLanguage reads hosts, paths and expressions. What is accepted is in its final form, and what Lint says of two routes
// is so for the request at hand.
func FuzzLanguage(f *testing.F) {
	f.Add("*.example", "/a/*/b", "/a/**/b", "/a/x/b")
	f.Add("A.example.", "*.jpg", "/a/*", "/a/c.jpg")
	f.Add("[::1]", "/**/b/*", "/b/*", "/b/")
	f.Add("a", "/%2A/..", "/(a|b)", "/%2f%25")
	f.Fuzz(func(t *testing.T, host, a, b, request string) {
		if h, err := Host(host); err == nil {
			if again, err := Host(h); err != nil || again != h {
				t.Errorf("host %q is %q, and that is %q, %v", host, h, again, err)
			}
		}
		if Regexp(a) == nil {
			if _, err := compileRegexp(a); err != nil {
				t.Errorf("expression %q: %v", a, err)
			}
		}
		var routes []Route
		for _, s := range []string{a, b} {
			p, err := Pattern(s)
			if err != nil {
				continue
			}
			if p.Text != "" && p.Text[0] != '/' || strings.Count(p.Text, "/") > maxSegments || (p.Kind == AnyPath) != (p.Text == "") {
				t.Errorf("path %q is %+v", s, p)
			}
			routes = append(routes, Route{Match: Match{Path: p}})
		}
		if !strings.HasPrefix(request, "/") {
			return
		}
		path, err := Normalise(request)
		if err != nil {
			return
		}
		took, ok := NewMatcher(routes).Match(&Request{Method: "GET", Path: path})
		found, _ := Lint(routes)
		for _, f := range found {
			if ok && f.Place == took {
				t.Errorf("route %q takes %q, though Lint says that %q stands in its way", routes[took].String(), path, routes[f.By].String())
			}
		}
	})
}
