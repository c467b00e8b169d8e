package rule

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp/syntax"
	"strings"
)

// maxSegments is how deep a path the card follows.
const maxSegments = 32

// maxHost is the longest name there can be (RFC 1035 2.3.4).
const maxHost = 253

// maxPattern keeps a path within what a request line holds.
const maxPattern = 4096

// Host brings the host of a route into the form that requests are compared in: lower case, no final dot. "*.example" stands
// for every name below example, not for example itself. An IPv6 literal may be written with or without its brackets and is
// compared by value: the result is the form of RFC 5952.
func Host(s string) (string, error) {
	if below, ok := strings.CutPrefix(s, "*."); ok {
		if strings.Contains(below, "*") {
			return "", fmt.Errorf("host %q: an asterisk may only be the first label", s)
		}
		if strings.ContainsAny(below, ":[]") {
			return "", fmt.Errorf("host %q: a wildcard stands before a name, not before an address or a port", s)
		}
		host, err := Host(below)
		if err == nil && len(host)+2 > maxHost {
			err = fmt.Errorf("host has %d characters; it may have %d", len(host)+2, maxHost)
		}
		if err != nil {
			return "", err
		}
		return "*." + host, nil
	}
	if a, err := netip.ParseAddr(s); err == nil && a.Is6() && a.Zone() == "" {
		return "[" + a.String() + "]", nil
	}
	if rest, ok := strings.CutPrefix(s, "["); ok {
		inner, ok := strings.CutSuffix(rest, "]")
		a, err := netip.ParseAddr(inner)
		if !ok || err != nil || !a.Is6() || a.Zone() != "" {
			return "", fmt.Errorf("host %q is no IPv6 address in brackets (a port does not belong here)", s)
		}
		return "[" + a.String() + "]", nil
	}
	host := strings.ToLower(strings.TrimSuffix(s, "."))
	if host == "" {
		return "", errors.New("host is empty; leave it out for every host")
	}
	if len(host) > maxHost {
		return "", fmt.Errorf("host has %d characters; it may have %d", len(host), maxHost)
	}
	if strings.HasPrefix(host, ".") || strings.Contains(host, "..") || strings.HasSuffix(host, ".") {
		return "", fmt.Errorf("host %q has an empty label, which no name has", s)
	}
	if strings.Contains(host, "*") {
		return "", fmt.Errorf("host %q: an asterisk may only be the first label, such as *.example; leave host out for every host", s)
	}
	for _, r := range host {
		if !strings.ContainsRune("abcdefghijklmnopqrstuvwxyz0123456789-._~", r) {
			return "", fmt.Errorf("host %q holds %q: only letters, digits, dash, dot and underscore, no port", s, r)
		}
	}
	return host, nil
}

// Pattern reads the path of a route. "/photos/*" takes /photos and everything below it, segment by segment; "/*" takes
// every path. Elsewhere an asterisk stands for one segment that is not empty, or for the begin of the last one, and two
// asterisks for any number of segments, none as well: "/*/feed", "/a/**/b", "/a/*.jpg"; "*.jpg" is short for "/**/*.jpg".
// Any other path takes just itself. The result is in the form that requests are compared in; a prefix comes without its
// final slash and asterisk, and a pattern that takes everything below ends in "/**".
func Pattern(s string) (Path, error) {
	if len(s) > maxPattern {
		return Path{}, fmt.Errorf("path has %d characters; it may have %d", len(s), maxPattern)
	}
	for _, bad := range []string{"?", "#"} {
		if strings.Contains(s, bad) {
			return Path{}, fmt.Errorf("path %q holds %q: a path has no query and no fragment", s, bad)
		}
	}
	if i := strings.IndexFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f }); i >= 0 {
		return Path{}, fmt.Errorf("path %q holds %q: write it percent-encoded", s, s[i])
	}
	full := s
	if len(s) > 1 && s[0] == '*' && !strings.Contains(s, "/") {
		full = "/**/" + s
	}
	if !strings.HasPrefix(full, "/") {
		return Path{}, fmt.Errorf("path %q does not begin with a slash", s)
	}
	body, prefix := full, false
	for {
		cut, ok := strings.CutSuffix(body, "/**")
		if !ok {
			cut, ok = strings.CutSuffix(body, "/*")
		}
		if !ok {
			break
		}
		if prefix {
			return Path{}, fmt.Errorf("path %q: the wildcard at the end takes everything below already; remove the one before it", s)
		}
		body, prefix = cut, true
	}
	if strings.Contains(body, "*") {
		return wildcards(s, body, prefix)
	}
	if body == "" {
		return Path{}, nil
	}
	path, err := Normalise(body)
	if err != nil {
		return Path{}, fmt.Errorf("path %q %w", s, err)
	}
	if n := strings.Count(path, "/"); n > maxSegments {
		return Path{}, fmt.Errorf("path %q has %d segments; the card follows %d", s, n, maxSegments)
	}
	if !prefix {
		return Path{ExactPath, path}, nil
	}
	path = strings.TrimSuffix(path, "/") // left there by dot segments
	if strings.HasSuffix(body, "/") || strings.HasSuffix(path, "/") {
		return Path{}, fmt.Errorf("path %q has an empty segment before the asterisk", s)
	}
	if path == "" {
		return Path{}, nil
	}
	return Path{PrefixPath, path}, nil
}

// wildcards reads a path with an asterisk before its end, as it was given and without the asterisk at its end.
func wildcards(given, body string, prefix bool) (Path, error) {
	segments := strings.Split(body[1:], "/")
	last, before := len(segments)-1, ""
	for i, raw := range segments {
		literal, wild := strings.CutPrefix(raw, "*")
		switch {
		case raw == "**" && before == "**":
			return Path{}, fmt.Errorf("path %q: one ** is as good as two", given)
		case raw == "**" || raw == "*":
		case strings.Contains(literal, "*"), !wild && strings.Contains(raw, "*"):
			return Path{}, fmt.Errorf("path %q: an asterisk stands for a whole segment or the begin of the last one", given)
		case wild && (i != last || prefix):
			return Path{}, fmt.Errorf("path %q: only in the last segment may something follow the asterisk", given)
		default:
			s, err := decode(literal)
			if err != nil {
				return Path{}, fmt.Errorf("path %q %w", given, err)
			}
			if strings.Contains(s, "*") {
				return Path{}, fmt.Errorf("path %q: an asterisk that stands for itself may not be beside a wildcard; write a regular expression", given)
			}
			if !wild && (s == "." || s == "..") {
				return Path{}, fmt.Errorf("path %q: dot segments and wildcards do not go together", given)
			}
			if segments[i] = s; wild {
				segments[i] = "*" + s
			}
		}
		before = raw
	}
	if prefix && before == "" {
		return Path{}, fmt.Errorf("path %q has an empty segment before the asterisk", given)
	}
	if prefix && before != "**" {
		segments = append(segments, "**")
	}
	if len(segments) > maxSegments {
		return Path{}, fmt.Errorf("path %q has %d segments; the card follows %d", given, len(segments), maxSegments)
	}
	return Path{PatternPath, "/" + strings.Join(segments, "/")}, nil
}

// maxRegexp bounds what a regular expression costs to keep and to run.
const maxRegexp = 1024

// Regexp checks a regular expression (RE2) that has to match the whole of a value.
func Regexp(expr string) error {
	if len(expr) > maxRegexp {
		return fmt.Errorf("regular expression has %d characters; it may have %d", len(expr), maxRegexp)
	}
	_, err := compileRegexp(expr)
	var bad *syntax.Error
	if errors.As(err, &bad) {
		return fmt.Errorf("regular expression %q: %s", bad.Expr, bad.Code)
	}
	return err
}

// Token says whether s is a token of HTTP, such as a method or the name of a field (RFC 9110 5.6.2).
func Token(s string) bool {
	for _, c := range []byte(s) {
		if !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) && (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z') {
			return false
		}
	}
	return s != ""
}
