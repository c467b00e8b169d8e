package rule

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// maxSegments is how deep a path the card follows.
const maxSegments = 32

// maxHost is the longest name there can be (RFC 1035 2.3.4).
const maxHost = 253

// maxPattern keeps a path within what a request line holds.
const maxPattern = 4096

// Host brings the host of a route into the form that requests are compared in: lower case, no final dot. An IPv6 literal
// may be written with or without its brackets; it is compared as text, so it should be written as clients do.
func Host(s string) (string, error) {
	if a, err := netip.ParseAddr(s); err == nil && a.Is6() && a.Zone() == "" {
		return "[" + strings.ToLower(s) + "]", nil
	}
	if rest, ok := strings.CutPrefix(s, "["); ok {
		inner, ok := strings.CutSuffix(rest, "]")
		if a, err := netip.ParseAddr(inner); !ok || err != nil || !a.Is6() || a.Zone() != "" {
			return "", fmt.Errorf("host %q is no IPv6 address in brackets (a port does not belong here)", s)
		}
		return strings.ToLower(s), nil
	}
	host := strings.ToLower(strings.TrimSuffix(s, "."))
	if host == "" {
		return "", errors.New("host is empty; leave it out for every host")
	}
	if len(host) > maxHost {
		return "", fmt.Errorf("host has %d characters; it may have %d", len(host), maxHost)
	}
	for _, r := range host {
		if !strings.ContainsRune("abcdefghijklmnopqrstuvwxyz0123456789-._~", r) {
			return "", fmt.Errorf("host %q holds %q: only letters, digits, dash, dot and underscore, no port", s, r)
		}
	}
	return host, nil
}

// Pattern reads the path of a route. "/photos/*" takes /photos and everything below it, segment by segment; "/*" takes
// every path; any other path takes just itself. The result is in the form that requests are compared in; a prefix comes
// without its final slash and asterisk.
func Pattern(s string) (path string, exact bool, err error) {
	if !strings.HasPrefix(s, "/") {
		return "", false, fmt.Errorf("path %q does not begin with a slash", s)
	}
	if len(s) > maxPattern {
		return "", false, fmt.Errorf("path has %d characters; it may have %d", len(s), maxPattern)
	}
	body, prefix := strings.CutSuffix(s, "/*")
	for _, bad := range []string{"*", "?", "#"} {
		if strings.Contains(body, bad) {
			return "", false, fmt.Errorf("path %q holds %q: an asterisk may only be the whole last segment, and a path has no query", s, bad)
		}
	}
	if body == "" {
		return "", false, nil
	}
	path, err = normalise(body)
	if err != nil {
		return "", false, fmt.Errorf("path %q %w", s, err)
	}
	if !prefix {
		return path, true, nil
	}
	path = strings.TrimSuffix(path, "/") // left there by dot segments
	if strings.HasSuffix(body, "/") || strings.HasSuffix(path, "/") {
		return "", false, fmt.Errorf("path %q has an empty segment before the asterisk", s)
	}
	return path, false, nil
}

// normalise removes dot segments and decodes percent-encoded bytes (RFC 3986 6.2.2) but "%2F" and "%25", whose digits
// become upper case.
func normalise(path string) (string, error) {
	var kept []string
	segments := strings.Split(path[1:], "/")
	for i, raw := range segments {
		s, err := decode(raw)
		if err != nil {
			return "", err
		}
		switch s {
		case ".", "..":
			if s == ".." && len(kept) > 0 {
				kept = kept[:len(kept)-1]
			}
			if i == len(segments)-1 {
				kept = append(kept, "")
			}
		default:
			kept = append(kept, s)
		}
	}
	if len(kept) > maxSegments {
		return "", fmt.Errorf("has %d segments; the card follows %d", len(kept), maxSegments)
	}
	return "/" + strings.Join(kept, "/"), nil
}

func decode(s string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c <= ' ' || c == 0x7f {
			return "", fmt.Errorf("holds %q: write it percent-encoded", c)
		}
		if c != '%' {
			b.WriteByte(c)
			continue
		}
		var v byte
		if len(s) < i+3 || strings.Trim(s[i+1:i+3], "0123456789abcdefABCDEF") != "" {
			return "", errors.New("holds a percent sign that begins no percent-encoded byte")
		}
		fmt.Sscanf(s[i+1:i+3], "%02x", &v)
		if v == '/' || v == '%' {
			b.WriteString(strings.ToUpper(s[i : i+3]))
		} else {
			b.WriteByte(v)
		}
		i += 2
	}
	return b.String(), nil
}
