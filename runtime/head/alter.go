package head

import (
	"net/netip"
	"slices"
	"strings"

	"splicenic/runtime/config"
	"splicenic/runtime/rule"
)

// maxGrowth is how much longer altering may make a head: beyond is only who sends a host of thousands of bytes.
const maxGrowth = 4096

// Alter says what becomes of a head before a server gets it. The zero value changes nothing.
//
// Forwarded adds the client's address: at the end of the last field of the name where one is there, else in a field of
// its own at the end of the head. X-Forwarded-For is joined by X-Forwarded-Proto and X-Forwarded-Host, where they are not
// there yet. What a client sent of these fields (see traces) stays with Append; with Replace it goes, whichever of the
// fields is written; with Refuse its request does. Neither policy matters without Forwarded.
//
// Close asks the server to close after the response: the first Connection field becomes "Connection: close", further ones
// go; without one it is added at the end. Of the client's options only Upgrade stays. RFC 9110 7.6.1 lets no intermediary
// drop an option and pass on the field it names, for behind the server it would seem meant for everybody; so fields that
// Connection names go too, and Keep-Alive and Proxy-Connection whether named or not. Fields that every recipient needs (see
// stays) are never removed, since a client could otherwise change by their names what the message means. A head whose
// only options are close and Upgrade already stays as it is but for Keep-Alive and Proxy-Connection. HTTP/1.0 is treated
// alike: its "keep-alive" is an option as any other, and a close that goes without saying is said.
type Alter struct {
	Forwarded config.Forwarded
	Existing  config.Existing
	Close     bool
	Client    netip.AddrPort
	VIP       netip.AddrPort
	TLS       bool // the client speaks TLS: the scheme is https
}

// An edit is what becomes of one field line.
type edit struct {
	drop   bool
	line   string // takes the line's place
	suffix string // goes behind the value
}

// Apply appends the altered head to dst. h is what Parse read from head.
func (a *Alter) Apply(dst, head []byte, h *Head) ([]byte, error) {
	if len(head) != h.Bytes {
		return dst, bad("the head has %d bytes, what was read of it %d", len(head), h.Bytes)
	}
	edits := make([]edit, len(h.Fields))
	var added []string
	if a.Forwarded != config.NoForwarded {
		lines, err := a.trace(h, edits)
		if err != nil {
			return dst, err
		}
		added = lines
	}
	if a.Close {
		added = append(added, closing(h, edits)...)
	}
	before := len(dst)
	at := 0
	for i := range h.Fields {
		f, e := &h.Fields[i], &edits[i]
		dst = append(dst, head[at:f.Begin]...)
		at = f.End
		switch {
		case e.drop:
		case e.line != "":
			dst = append(dst, e.line...)
		case e.suffix != "":
			dst = append(dst, strings.TrimRight(string(head[f.Begin:f.End]), " \t\r\n")...)
			dst = append(append(dst, e.suffix...), crlf...)
		default:
			dst = append(dst, head[f.Begin:f.End]...)
		}
	}
	dst = append(dst, head[at:len(head)-len(crlf)]...)
	for _, line := range added {
		dst = append(dst, line...)
	}
	dst = append(dst, crlf...)
	if len(dst)-before > len(head)+maxGrowth {
		return dst[:before], refuse(431, "the host is too long to be passed on in a forwarded field")
	}
	return dst, nil
}

// traces are the fields that tell of who was before us.
var traces = []string{"forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-port", "x-forwarded-proto"}

// trace lets the head tell of the client.
func (a *Alter) trace(h *Head, edits []edit) (added []string, err error) {
	last := map[string]int{} // where the last field of a name is
	for i := range h.Fields {
		name := strings.ToLower(h.Fields[i].Name)
		if !slices.Contains(traces, name) {
			continue
		}
		switch a.Existing {
		case config.Refuse:
			return nil, bad("the client sent %s itself", h.Fields[i].Name)
		case config.Replace:
			edits[i].drop = true
			continue
		}
		if name == "forwarded" && a.Forwarded == config.ForwardedRFC && !isForwarded(h.Fields[i].Value) {
			// An open quote would swallow what we add.
			return nil, bad("the client sent a malformed Forwarded field")
		}
		last[name] = i
	}
	// extend puts an element at the end of a list field.
	extend := func(name, element string) {
		i, ok := last[strings.ToLower(name)]
		switch {
		case !ok:
			added = append(added, name+": "+element+"\r\n")
		case h.Fields[i].Value == "":
			edits[i].suffix = " " + element
		default:
			edits[i].suffix = ", " + element
		}
	}
	client, scheme := plain(a.Client), "http"
	if a.TLS {
		scheme = "https"
	}
	if a.Forwarded == config.ForwardedRFC {
		element := `for="` + client.String() + `";by="` + plain(a.VIP).String() + `"`
		if h.Authority != "" {
			element += ";host=" + quoted(h.Authority)
		}
		extend("Forwarded", element+";proto="+scheme)
		return added, nil
	}
	extend("X-Forwarded-For", client.Addr().String())
	if _, ok := last["x-forwarded-proto"]; !ok {
		added = append(added, "X-Forwarded-Proto: "+scheme+"\r\n")
	}
	if _, ok := last["x-forwarded-host"]; !ok && h.Authority != "" {
		added = append(added, "X-Forwarded-Host: "+h.Authority+"\r\n")
	}
	return added, nil
}

// plain is an address as it is written in a head: IPv4 never within IPv6, no zone. With a port an IPv6 address is in
// brackets.
func plain(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}

// quoted writes a value of Forwarded: as it is where it is a token, else in quotes (RFC 7239 4).
func quoted(s string) string {
	if rule.Token(s) {
		return s
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}

// isForwarded says whether s is a list as RFC 7239 4 has it, of "name=value" pairs joined by semicolons, so that another
// element can follow. What the pairs say does not matter: nodes may be obfuscated, and address and port without quotes,
// as many write them, end where the pair does.
func isForwarded(s string) bool {
	for {
		s = strings.TrimLeft(s, " \t,;")
		if s == "" {
			return true
		}
		name, rest, ok := strings.Cut(s, "=")
		if !ok || !rule.Token(name) {
			return false
		}
		if s, ok = cutValue(rest); !ok {
			return false
		}
		s = strings.TrimLeft(s, " \t")
		if s != "" && s[0] != ',' && s[0] != ';' {
			return false
		}
	}
}

// cutValue takes a value off s: a quoted string (RFC 9110 5.6.4), or what has no quote in it.
func cutValue(s string) (rest string, ok bool) {
	if !strings.HasPrefix(s, `"`) {
		n := strings.IndexAny(s+",", " \t,;")
		return s[n:], n > 0 && !strings.Contains(s[:n], `"`)
	}
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '"':
			return s[i+1:], true
		case '\\':
			i++
		}
	}
	return "", false
}

// closing has the connection closed behind the response.
func closing(h *Head, edits []edit) (added []string) {
	var named []string // by Connection
	first := -1        // Connection field
	for i := range h.Fields {
		if !strings.EqualFold(h.Fields[i].Name, "Connection") {
			continue
		}
		for option := range list(h.Fields[i].Value) {
			named = append(named, strings.ToLower(option))
		}
		if first < 0 {
			first = i
		}
	}
	line := "Connection: close\r\n"
	if slices.Contains(named, "upgrade") {
		line = "Connection: Upgrade, close\r\n"
	}
	other := func(option string) bool { return option != "close" && option != "upgrade" }
	rewrite := !slices.Contains(named, "close") || slices.ContainsFunc(named, other)
	gone := map[string]bool{"keep-alive": true, "proxy-connection": true}
	for _, name := range named {
		if other(name) && !stays(name) {
			gone[name] = true
		}
	}
	for i := range h.Fields {
		name := strings.ToLower(h.Fields[i].Name)
		switch {
		case name == "connection":
			if rewrite && i == first {
				edits[i] = edit{line: line}
			} else if rewrite {
				edits[i] = edit{drop: true}
			}
		case gone[name]:
			edits[i] = edit{drop: true}
		}
	}
	if first < 0 {
		added = []string{line}
	}
	return added
}

// stays says whether a field is for every recipient, whatever Connection says: it tells where a message goes, how long it is, what it
// holds, who may see it or where it has been.
func stays(name string) bool {
	return slices.Contains([]string{"host", "transfer-encoding", "expect", "authorization", "cookie", "cache-control", "via"}, name) ||
		slices.Contains(traces, name) || strings.HasPrefix(name, "content-")
}
