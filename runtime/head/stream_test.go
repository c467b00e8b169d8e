package head

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"splicenic/runtime/config"
)

// heads are those of well-known clients and some that are harder to alter.
var heads = []string{
	lines("GET /index.html HTTP/1.1", "Host: b.example", "User-Agent: curl/8.5.0", "Accept: */*"),
	lines("GET / HTTP/1.1", "Host: b.example:8080", "Connection: keep-alive", "Accept-Encoding: gzip,deflate", "Cookie: a=b; c=d"),
	"\r\n" + lines("POST /form HTTP/1.1", "Content-Length: 40", "HOST:b.example", "Keep-Alive: timeout=5", "connection:  keep-alive , X-Hop ", "X-Hop: 1", "X-Forwarded-For: 203.0.113.7"),
	lines("GET /chat HTTP/1.1", "Host: b.example", "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="),
	lines("PUT /u HTTP/1.1", "Host: b.example", "Expect: 100-continue", "Transfer-Encoding: chunked", `Forwarded: for="[2001:db8::1]:_p";proto=https`),
	lines("GET / HTTP/1.0"),
	lines("GET http://b.example/ HTTP/1.1", "Host: b.example", "Proxy-Connection: keep-alive", "Connection: TE, close", "TE: trailers"),
}

// alters are all ways to alter.
func alters() (all []Alter) {
	for _, forwarded := range []config.Forwarded{config.NoForwarded, config.XForwardedFor, config.ForwardedRFC} {
		for _, existing := range []config.Existing{config.Append, config.Replace, config.Refuse} {
			for _, closing := range []bool{false, true} {
				all = append(all, Alter{Forwarded: forwarded, Existing: existing, Close: closing,
					Client: netip.MustParseAddrPort("192.0.2.10:40001"), VIP: netip.MustParseAddrPort("198.51.100.80:80")})
			}
		}
	}
	return all
}

// altered says what of head, whose altered form is out, is not as a says.
func altered(t *testing.T, a *Alter, head, out []byte, h *Head) {
	t.Helper()
	if len(out) <= len(head)+maxGrowth && len(out) > MaxHead {
		return // beyond what is parsed
	}
	g, err := Parse(out)
	if err != nil {
		t.Fatalf("%q is altered to %q: %v", head, out, err)
	}
	if g.Method != h.Method || g.Target != h.Target || g.Authority != h.Authority || g.Path != h.Path || g.Minor != h.Minor ||
		g.Length != h.Length || g.Chunked != h.Chunked || g.Upgrade != h.Upgrade || g.Expect != h.Expect {
		t.Fatalf("%q is altered to %q: it says another thing", head, out)
	}
	// What need not change is there byte by byte, in its order.
	touched := slices.Clone(traces)
	if a.Forwarded == config.NoForwarded {
		touched = nil
	}
	if a.Close {
		touched = append(touched, "connection", "keep-alive", "proxy-connection")
		for _, f := range h.Fields {
			if strings.EqualFold(f.Name, "connection") {
				for option := range list(f.Value) {
					if !stays(strings.ToLower(option)) && !strings.EqualFold(option, "upgrade") {
						touched = append(touched, strings.ToLower(option))
					}
				}
			}
		}
	}
	rest := func(b []byte, h *Head) string {
		at, kept := 0, ""
		for _, f := range h.Fields {
			if slices.Contains(touched, strings.ToLower(f.Name)) {
				kept += string(b[at:f.Begin])
				at = f.End
			}
		}
		return kept + string(b[at:])
	}
	if got, want := rest(out, g), rest(head, h); got != want {
		t.Fatalf("%q is altered to %q: of the rest %q is left, want %q", head, out, got, want)
	}
	before, after := h.Header(), g.Header()
	if a.Close {
		for _, option := range strings.Split(strings.Join(after["connection"], ","), ",") {
			if o := strings.ToLower(strings.Trim(option, " \t")); o != "close" && o != "" && o != "upgrade" {
				t.Fatalf("%q is altered to %q: option %q", head, out, option)
			}
		}
		if !strings.Contains(strings.ToLower(strings.Join(after["connection"], ",")), "close") || after["keep-alive"] != nil || after["proxy-connection"] != nil {
			t.Fatalf("%q is altered to %q: it is not closed", head, out)
		}
		again, err := (&Alter{Close: true}).Apply(nil, out, g)
		if err != nil || !bytes.Equal(again, out) {
			t.Fatalf("closed twice %q becomes %q, %v", out, again, err)
		}
	}
	name, ours := "x-forwarded-for", "192.0.2.10"
	switch a.Forwarded {
	case config.NoForwarded:
		return
	case config.ForwardedRFC:
		name, ours = "forwarded", `for="192.0.2.10:40001";by="198.51.100.80:80"`
	}
	old := before[name]
	if a.Existing != config.Append {
		old = nil
	}
	values := after[name]
	if len(values) != max(len(old), 1) {
		t.Fatalf("%q is altered to %q: %d fields %s", head, out, len(values), name)
	}
	last, ok := strings.CutPrefix(values[len(values)-1], strings.Join(old[len(old)-min(len(old), 1):], ""))
	if last = strings.TrimPrefix(last, ", "); !ok || !slices.Equal(values[:len(values)-1], old[:max(len(old), 1)-1]) || !strings.HasPrefix(last, ours) {
		t.Fatalf("%q is altered to %q: %s %q before, %q behind", head, out, name, old, values)
	}
}

// FuzzAlter alters whatever is a head.
func FuzzAlter(f *testing.F) {
	for i, s := range heads {
		f.Add([]byte(s), uint8(i))
	}
	f.Add([]byte(lines("GET / HTTP/1.1", "Host: a,b", "Connection: host, connection, content-length", "Content-Length: 1", "X-Forwarded-For:", "Forwarded: a=\"\\\"\",b=c")), uint8(3))
	all := alters()
	f.Fuzz(func(t *testing.T, b []byte, which uint8) {
		if len(b) > MaxHead+1 {
			return
		}
		h, err := Parse(b)
		if err != nil {
			return
		}
		if end, _ := End(b, 0); end != len(b) {
			t.Fatalf("a head of %d bytes ends at %d", len(b), end)
		}
		a := all[int(which)%len(all)]
		out, err := a.Apply(nil, b, h)
		if err != nil {
			if s := statusOf(err); s != 400 && s != 431 || out != nil {
				t.Fatalf("status %d with %d bytes", s, len(out))
			}
			return
		}
		altered(t, &a, b, out, h)
	})
}

// TestAlteredStream lets heads arrive cut at every place, alters them every way and lets a server of the standard library
// read the stream it gets: a PROXY header, the altered head, and the body as the client sent it.
func TestAlteredStream(t *testing.T) {
	const body = "GET /3 HTTP/1.1\r\nHost: b.example\r\n\r\n1234" // looks like a request and is none
	for _, head := range heads {
		h, err := Parse([]byte(head))
		if err != nil {
			t.Fatalf("%q: %v", head, err)
		}
		behind := ""
		switch {
		case h.Length > 0:
			behind = body
		case h.Chunked:
			behind = "28\r\n" + body + "\r\n0\r\n\r\n"
		}
		stream := head + behind
		for cut := range len(stream) + 1 {
			end, scanned := End([]byte(stream[:cut]), 0)
			if end == 0 {
				if cut >= len(head) {
					t.Fatalf("%q: no end in %d bytes", head, cut)
				}
				end, _ = End([]byte(stream), scanned)
			}
			if end != len(head) {
				t.Fatalf("%q cut at %d: end %d", head, cut, end)
			}
		}
		for _, a := range alters() {
			out, err := a.Apply(ProxyV2(nil, a.Client, a.VIP), []byte(head), h)
			if err != nil {
				if a.Existing == config.Append || !strings.Contains(strings.ToLower(head), "forwarded") {
					t.Errorf("%+v refuses %q: %v", a, head, err)
				}
				continue
			}
			const proxyHeader = 16
			n := proxyHeader + int(binary.BigEndian.Uint16(out[proxyHeader-2:]))
			altered(t, &a, []byte(head), out[n:], h)
			r := bufio.NewReader(strings.NewReader(strings.TrimLeft(string(out[n:])+behind, "\r\n")))
			q, err := http.ReadRequest(r)
			if err != nil {
				t.Fatalf("%q: %v", out[n:], err)
			}
			got, err := io.ReadAll(q.Body)
			if want := behind != ""; err != nil || string(got) != map[bool]string{true: body}[want] {
				t.Errorf("body %q, %v", got, err)
			}
			if _, err := r.ReadByte(); err != io.EOF && !h.Chunked {
				t.Errorf("something follows the body of %q: %v", head, err)
			}
			if q.Close != (a.Close || strings.Contains(head, "close") || h.Minor == 0) {
				t.Errorf("%+v: %q closes: %v", a, out[n:], q.Close)
			}
		}
	}
}

// FuzzHello reads records as they arrive: a hello is whole at one place only, and what is wrong stays wrong.
func FuzzHello(f *testing.F) {
	for _, b := range helloSeeds() {
		f.Add(b, uint16(len(b)/2))
	}
	f.Fuzz(func(t *testing.T, b []byte, cut uint16) {
		if len(b) > 8192 {
			return
		}
		whole, err := ParseHello(b)
		part, partErr := ParseHello(b[:min(int(cut), len(b))])
		if partErr != nil && partErr.(*Error).More {
			return // anything may come of it
		}
		if (partErr == nil) != (err == nil) {
			t.Fatalf("the begin: %v, the whole: %v", partErr, err)
		}
		if err == nil && (part.SNI != whole.SNI || part.Bytes != whole.Bytes || whole.Bytes > len(b)) {
			t.Fatalf("the begin: %+v, the whole: %+v", part, whole)
		}
	})
}
