package rule

import (
	"net/netip"
	"strings"
	"testing"
)

func TestWildcardHosts(t *testing.T) {
	for _, tt := range []struct{ in, want, err string }{
		{"*.example", "*.example", ""},
		{"*.B.Example.", "*.b.example", ""},
		{"*.", "", "empty"},
		{"*", "", "only be the first label"},
		{"*example", "", "only be the first label"},
		{"a.*", "", "only be the first label"},
		{"*.*.example", "", "only be the first label"},
		{"*.[::1]", "", "not before an address"},
		{"*.example:80", "", "a port"},
		{"*." + strings.Repeat("a", 251), "*." + strings.Repeat("a", 251), ""},
		{"*." + strings.Repeat("a", 252), "", "254 characters"},
	} {
		got, err := Host(tt.in)
		if got != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("Host(%q) = %q, %v; want %q, %q", tt.in, got, err, tt.want, tt.err)
		}
	}
}

func TestWildcardPaths(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want Path
		err  string
	}{
		{"/a/*/b", Path{PatternPath, "/a/*/b"}, ""},
		{"/*/b", Path{PatternPath, "/*/b"}, ""},
		{"/a/*/b/*", Path{PatternPath, "/a/*/b/**"}, ""},
		{"/a/*/b/**", Path{PatternPath, "/a/*/b/**"}, ""},
		{"/a/*/b/", Path{PatternPath, "/a/*/b/"}, ""},
		{"/a/**", Path{PrefixPath, "/a"}, ""},
		{"/**", Path{}, ""},
		{"/a/**/b", Path{PatternPath, "/a/**/b"}, ""},
		{"/a/**/b/**/c", Path{PatternPath, "/a/**/b/**/c"}, ""},
		{"/a/**/*/b", Path{PatternPath, "/a/**/*/b"}, ""},
		{"/a/*.jpg", Path{PatternPath, "/a/*.jpg"}, ""},
		{"*.jpg", Path{PatternPath, "/**/*.jpg"}, ""},
		{"/**/*.jpg", Path{PatternPath, "/**/*.jpg"}, ""},
		{"/%61/*/%62%2f*", Path{}, "an asterisk stands for a whole segment"},
		{"/%61/*/%62%2f", Path{PatternPath, "/a/*/b%2F"}, ""},
		{"/a/*.%6apg", Path{PatternPath, "/a/*.jpg"}, ""},
		{"/%2A", Path{ExactPath, "/*"}, ""},
		{"/*/%2A", Path{}, "stands for itself"},
		{"*", Path{}, "slash"},
		{"**", Path{}, "remove the one before it"},
		{"*/a", Path{}, "slash"},
		{"/a/*/*", Path{}, "remove the one before it"},
		{"/a/**/*", Path{}, "remove the one before it"},
		{"/a/**/**/b", Path{}, "as good as two"},
		{"/a/*.d/b", Path{}, "only in the last segment"},
		{"/a/*.d/*", Path{}, "only in the last segment"},
		{"/a/b*c", Path{}, "whole segment"},
		{"/a/***", Path{}, "whole segment"},
		{"/a/*/../b", Path{}, "dot segments"},
		{"/*/b//*", Path{}, "empty segment"},
		{"/*/a?x", Path{}, "no query"},
		{"/*/%zz", Path{}, "percent sign"},
		{strings.Repeat("/a", 31) + "/*/b", Path{}, "33 segments"},
		{strings.Repeat("/a", 30) + "/*/b", Path{PatternPath, strings.Repeat("/a", 30) + "/*/b"}, ""},
	} {
		got, err := Pattern(tt.in)
		if got != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("Pattern(%q) = %+v, %v; want %+v, %q", tt.in, got, err, tt.want, tt.err)
		}
	}
}

func TestRegexp(t *testing.T) {
	for _, tt := range []struct{ in, err string }{
		{"/a.*", ""},
		{"(?i)/A|/b", ""},
		{`\Qa`, ""},
		{"/a(", "missing closing )"},
		{"/a)(b", "unexpected )"},
		{`a\1`, "invalid escape"},
		{"(a{1000}){1000}", "expression"},
		{strings.Repeat("a", 1025), "1025 characters"},
	} {
		if err := Regexp(tt.in); (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("Regexp(%q): %v, want %q", tt.in, err, tt.err)
		}
	}
	for _, tt := range []struct {
		expr, text string
		want       bool
	}{
		{"a|b", "a", true}, {"a|b", "ab", false}, {"a|b", "xb", false}, {"a", "a\n", false}, {"(?m)a$", "a\nb", false}, {`\Qa.`, "a.", true}, {"(?i)A", "a", true},
	} {
		re, err := compileRegexp(tt.expr)
		if err != nil {
			t.Fatal(err)
		}
		if got := re.MatchString(tt.text); got != tt.want {
			t.Errorf("%q matches %q: %v", tt.expr, tt.text, got)
		}
	}
}

// TestLiteralPrefix: what orders regular expressions is there in spite of the anchors.
func TestLiteralPrefix(t *testing.T) {
	for expr, want := range map[string]string{"/ab.*": "/ab", "/a|/b": "/", "(?i)/a": "/", "/a": "/a", ".*": "", "(": ""} {
		if got := literalPrefix(expr); got != want {
			t.Errorf("%q begins with %q, want %q", expr, got, want)
		}
	}
}

func TestMatchString(t *testing.T) {
	for _, tt := range []struct {
		m    Match
		want string
	}{
		{Match{}, ""},
		{Match{Host: "a.example"}, "a.example"},
		{Match{Host: "*.example", Path: Path{PrefixPath, "/a"}}, "*.example/a/*"},
		{when("~/a+", "GET,PUT"), "~/a+ method GET,PUT"},
		{when("/a/**/b", "", has(Header, "x", Equal, "1"), has(Query, "q", HasPrefix, "a b"), has(Cookie, "c", Matches, "a|b"), has(Header, "y", Present, "")),
			`/a/**/b header x=1 query q^="a b" cookie c~=a|b header y`},
		{Match{Conditions: []Condition{{Subject: Source, Nets: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("::/0")}}, {Subject: ALPN, Value: "h2"}}}, "source 10.0.0.0/8,::/0 alpn h2"},
	} {
		if got := tt.m.String(); got != tt.want {
			t.Errorf("%+v is %q, want %q", tt.m, got, tt.want)
		}
	}
}
