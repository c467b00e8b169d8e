package urltable

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
)

// vector writes b behind its length in n bytes.
func vector(n int, b ...byte) []byte {
	var length [4]byte
	binary.BigEndian.PutUint32(length[:], uint32(len(b)))
	return append(length[4-n:], b...)
}

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

func extension(kind uint16, data []byte) []byte {
	return join([]byte{byte(kind >> 8), byte(kind)}, vector(2, data...))
}

func sni(names ...string) []byte {
	var list []byte
	for _, name := range names {
		list = join(list, []byte{0}, vector(2, []byte(name)...))
	}
	return extension(extensionSNI, vector(2, list...))
}

func alpn(names ...string) []byte {
	var list []byte
	for _, name := range names {
		list = join(list, vector(1, []byte(name)...))
	}
	return extension(extensionALPN, vector(2, list...))
}

// body is a ClientHello without its header; without extensions it ends behind the compression methods.
func body(extensions ...[]byte) []byte {
	b := join([]byte{3, 3}, make([]byte, 32), vector(1), vector(2, 0x13, 0x01), vector(1, 0))
	if len(extensions) > 0 {
		b = join(b, vector(2, join(extensions...)...))
	}
	return b
}

func message(kind byte, body []byte) []byte { return join([]byte{kind}, vector(3, body...)) }

// records cuts a message into records of at most n bytes each.
func records(message []byte, n int) (out []byte) {
	for len(message) > 0 {
		n := min(n, len(message))
		out = join(out, []byte{recordHandshake, 3, 1}, vector(2, message[:n]...))
		message = message[n:]
	}
	return out
}

// whole is a hello in one record.
func whole(extensions ...[]byte) []byte {
	return records(message(clientHello, body(extensions...)), maxRecord)
}

// feed gives b to FindHello as it arrives, step bytes at a time, and returns the end and how much was there when it came.
func feed(t *testing.T, b []byte, step int) (end, arrived int) {
	t.Helper()
	var scanned, have uint32
	for n := 0; n < len(b); {
		n = min(len(b), n+step)
		e, to, bytes := FindHello(b[:n], scanned, have)
		if to < scanned || to > uint32(n) || bytes < have || int(e) > n {
			t.Fatalf("of %d bytes: end %d, scanned %d to %d, have %d to %d", n, e, scanned, to, have, bytes)
		}
		if e != 0 {
			return int(e), n
		}
		scanned, have = to, bytes
	}
	return 0, len(b)
}

func TestParseHello(t *testing.T) {
	grease := extension(0x0a0a, []byte{0})
	long := strings.Repeat("a.", 126) + "b"
	for _, tt := range []struct {
		name  string
		in    []byte
		v     Verdict
		alert uint8
		sni   string
		alpn  string // with commas
	}{
		{"name", whole(sni("b.example")), OK, 0, "b.example", ""},
		{"name in capitals", whole(sni("B.eXample")), OK, 0, "B.eXample", ""},
		{"name and protocols", whole(grease, sni("b.example"), alpn("h2", "http/1.1"), grease), OK, 0, "b.example", "h2,http/1.1"},
		{"protocols first", whole(alpn("\x0a\x0a", "h2"), sni("b.example")), OK, 0, "b.example", "\x0a\x0a,h2"},
		{"no name", whole(alpn("h2")), OK, 0, "", "h2"},
		{"outer name of an encrypted hello", whole(extension(0xfe0d, make([]byte, 200)), sni("public.example")), OK, 0, "public.example", ""},
		{"no extensions", whole(), OK, 0, "", ""},
		{"empty list of extensions", records(message(clientHello, join(body(), vector(2))), 100), OK, 0, "", ""},
		{"longest name", whole(sni(long)), OK, 0, long, ""},
		{"post-quantum key share", whole(extension(51, make([]byte, 1300)), sni("b.example")), OK, 0, "b.example", ""},
		{"in records of one byte", records(message(clientHello, body(sni("b.example"), alpn("h2"))), 1), OK, 0, "b.example", "h2"},
		{"in records of 40 bytes", records(message(clientHello, body(sni("b.example"), alpn("h2"))), 40), OK, 0, "b.example", "h2"},
		{"address as name", whole(sni("192.0.2.1")), OK, 0, "192.0.2.1", ""},

		{"nothing", nil, NotTLS, 0, "", ""},
		{"http", []byte("CONNECT b.example:443 HTTP/1.1\r\n\r\n"), NotTLS, 0, "", ""},
		{"sslv2", []byte("\x80\x2e\x01\x00\x02"), NotTLS, 0, "", ""},
		{"alert", []byte("\x15\x03\x01\x00\x02\x02\x28"), NotTLS, 0, "", ""},
		{"record of another version", []byte("\x16\x02\x00\x00\x01\x01"), NotTLS, 0, "", ""},

		{"empty record", []byte("\x16\x03\x01\x00\x00"), BadHello, alertUnexpectedMessage, "", ""},
		{"empty record before", join([]byte("\x16\x03\x01\x00\x00"), whole(sni("b.example"))), BadHello, alertUnexpectedMessage, "", ""},
		{"record too long", []byte("\x16\x03\x01\x40\x01\x01"), BadHello, alertRecordOverflow, "", ""},
		{"other message", records(message(2, body()), 100), BadHello, alertUnexpectedMessage, "", ""},
		{"message behind", records(join(message(clientHello, body()), message(clientHello, body())), 1000), BadHello, alertUnexpectedMessage, "", ""},
		{"alert between", join(records(message(clientHello, body(sni("b.example")))[:20], 20), []byte("\x15\x03\x01\x00\x02\x01\x5a")), BadHello, alertUnexpectedMessage, "", ""},
		{"message too long", records([]byte{1, 1, 0, 0, 0}, 100), BadHello, alertIllegalParameter, "", ""},
		{"version", records(message(clientHello, append([]byte{2, 0}, body()[2:]...)), 100), BadHello, alertProtocolVersion, "", ""},
		{"empty hello", records(message(clientHello, nil), 100), BadHello, alertDecodeError, "", ""},
		{"session too long", records(message(clientHello, join([]byte{3, 3}, make([]byte, 32), vector(1, make([]byte, 33)...), vector(2, 0, 1), vector(1, 0))), 200), BadHello, alertDecodeError, "", ""},
		{"no suites", records(message(clientHello, join([]byte{3, 3}, make([]byte, 32), vector(1), vector(2), vector(1, 0))), 200), BadHello, alertDecodeError, "", ""},
		{"odd suites", records(message(clientHello, join([]byte{3, 3}, make([]byte, 32), vector(1), vector(2, 1), vector(1, 0))), 200), BadHello, alertDecodeError, "", ""},
		{"no compression", records(message(clientHello, join([]byte{3, 3}, make([]byte, 32), vector(1), vector(2, 0, 1), vector(1))), 200), BadHello, alertDecodeError, "", ""},
		{"byte behind the extensions", records(message(clientHello, append(body(sni("a")), 0)), 200), BadHello, alertDecodeError, "", ""},
		{"extensions cut", records(message(clientHello, append(body(), 0)), 200), BadHello, alertDecodeError, "", ""},
		{"extension cut", records(message(clientHello, join(body(), vector(2, 0, 0, 0, 9, 1))), 200), BadHello, alertDecodeError, "", ""},
		{"two names", whole(sni("a.example", "b.example")), BadHello, alertIllegalParameter, "", ""},
		{"two lists of names", whole(sni("a.example"), sni("a.example")), BadHello, alertIllegalParameter, "", ""},
		{"two lists of protocols", whole(alpn("h2"), alpn("h2")), BadHello, alertIllegalParameter, "", ""},
		{"no name in the list", whole(extension(0, vector(2))), BadHello, alertDecodeError, "", ""},
		{"list of names cut", whole(extension(0, []byte{0, 9, 0, 0, 1, 'a'})), BadHello, alertDecodeError, "", ""},
		{"list of names empty inside", whole(extension(0, nil)), BadHello, alertDecodeError, "", ""},
		{"other type of name", whole(extension(0, vector(2, 1, 0, 1, 'a'))), BadHello, alertIllegalParameter, "", ""},
		{"empty name", whole(sni("")), BadHello, alertDecodeError, "", ""},
		{"name too long", whole(sni(long + "c")), BadHello, alertIllegalParameter, "", ""},
		{"final dot", whole(sni("b.example.")), BadHello, alertIllegalParameter, "", ""},
		{"nul in name", whole(sni("b.example\x00.evil")), BadHello, alertIllegalParameter, "", ""},
		{"slash in name", whole(sni("b/example")), BadHello, alertIllegalParameter, "", ""},
		{"no protocol", whole(extension(16, vector(2))), BadHello, alertDecodeError, "", ""},
		{"empty protocol", whole(alpn("h2", "")), BadHello, alertDecodeError, "", ""},
		{"protocol cut", whole(extension(16, []byte{0, 2, 2, 'h'})), BadHello, alertDecodeError, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var h Hello
			check := func(in []byte) {
				t.Helper()
				if v := ParseHello(in, &h); v != tt.v || h.Alert != tt.alert {
					t.Fatalf("verdict %v alert %d, want %v %d", v, h.Alert, tt.v, tt.alert)
				}
				var names []string
				for list := h.ALPN; len(list) > 0; list = list[1+list[0]:] {
					names = append(names, string(list[1:1+list[0]]))
				}
				if got := strings.Join(names, ","); string(h.SNI) != tt.sni || got != tt.alpn {
					t.Errorf("name %q protocols %q, want %q %q", h.SNI, got, tt.sni, tt.alpn)
				}
			}
			check(tt.in)
			for _, step := range []int{1, 7, 1 << 20} {
				end, arrived := feed(t, tt.in, step)
				switch {
				case len(tt.in) == 0:
				case end == 0:
					t.Fatalf("in steps of %d: no end", step)
				case tt.v == OK && end != len(tt.in):
					t.Errorf("in steps of %d: end %d, want %d", step, end, len(tt.in))
				default:
					check(tt.in[:end])
				}
				if tt.v != OK && end != arrived {
					t.Errorf("in steps of %d: end %d of the %d bytes that made it malformed", step, end, arrived)
				}
			}
		})
	}
}

// A hello is not taken for whole before its last byte, and not looked at twice: what lies before scanned is overwritten
// as soon as it was looked at, but for the message's header.
func TestFindHelloLooksOnce(t *testing.T) {
	m := message(clientHello, body(sni("b.example"), extension(51, make([]byte, 1300))))
	for _, size := range []int{1, 2, 3, 5, 100, maxRecord} {
		in := records(m, size)
		keep := len(records(m[:messageHeader], size))
		var scanned, have uint32
		buf := make([]byte, 0, len(in))
		for i, b := range in {
			buf = append(buf, b)
			end, to, bytes := FindHello(buf, scanned, have)
			if last := i == len(in)-1; (end != 0) != last || last && int(end) != len(in) {
				t.Fatalf("records of %d bytes: end %d after %d of %d", size, end, i+1, len(in))
			}
			for k := max(keep, int(scanned)); k < int(to); k++ {
				buf[k] = 0xee
			}
			scanned, have = to, bytes
		}
	}
}

// captured returns what a client of the standard library sends first.
func captured(t testing.TB, config *tls.Config) []byte {
	t.Helper()
	client, server := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		tls.Client(client, config).Handshake()
	}()
	head := make([]byte, recordHeader)
	if _, err := io.ReadFull(server, head); err != nil {
		t.Fatal(err)
	}
	b := append(head, make([]byte, int(head[3])<<8|int(head[4]))...)
	if _, err := io.ReadFull(server, b[recordHeader:]); err != nil {
		t.Fatal(err)
	}
	server.Close()
	<-done
	client.Close()
	return b
}

func TestHelloOfStandardLibrary(t *testing.T) {
	for _, config := range []*tls.Config{
		{ServerName: "b.example", NextProtos: []string{"h2", "http/1.1"}},
		{ServerName: "b.example", MaxVersion: tls.VersionTLS12},
		{ServerName: "b.example", CurvePreferences: []tls.CurveID{tls.X25519MLKEM768}},
	} {
		in := captured(t, config)
		var h Hello
		for _, step := range []int{1, 500, len(in)} {
			if end, arrived := feed(t, in, step); end != len(in) || arrived != len(in) {
				t.Errorf("in steps of %d: end %d after %d, want %d", step, end, arrived, len(in))
			}
		}
		if v := ParseHello(in, &h); v != OK || string(h.SNI) != "b.example" {
			t.Errorf("verdict %v name %q", v, h.SNI)
		}
		for _, p := range config.NextProtos {
			if !Offers(h.ALPN, []byte(p)) {
				t.Errorf("protocol %q is not among %q", p, h.ALPN)
			}
		}
		if Offers(h.ALPN, []byte("http")) {
			t.Error("offers what is the begin of a protocol only")
		}
	}
}

func TestPreface(t *testing.T) {
	for _, tt := range []struct {
		in        string
		is, maybe bool
	}{
		{"", false, true},
		{"P", false, true},
		{"PRI * HT", false, true},
		{"PRI * HTTP/2.0\r\n\r\n", false, true},
		{preface[:23], false, true},
		{preface, true, false},
		{preface + "\x00\x00\x00\x04", true, false},
		{"PROPFIND / HTTP/1.1", false, false},
		{"PRI * HTTP/1.1\r\n\r\n", false, false},
		{preface[:23] + "x", false, false},
		{"\r\n" + preface, false, false},
	} {
		if is, maybe := Preface([]byte(tt.in)); is != tt.is || maybe != tt.maybe {
			t.Errorf("%q: is %v maybe %v, want %v %v", tt.in, is, maybe, tt.is, tt.maybe)
		}
	}
}

func FuzzHello(f *testing.F) {
	f.Add(whole(sni("b.example"), alpn("h2")), uint8(3))
	f.Add(records(message(clientHello, body(sni("b.example"))), 1), uint8(1))
	f.Add(records(join(message(clientHello, body()), []byte{1}), 100), uint8(200))
	f.Add([]byte("\x16\x03\x01\x00\x00"), uint8(1))
	f.Add([]byte("GET / HTTP/1.1\r\n"), uint8(1))
	f.Fuzz(func(t *testing.T, in []byte, step uint8) {
		if len(in) > maxPath {
			return
		}
		once, _, _ := FindHello(in, 0, 0)
		end, _ := feed(t, in, int(step)+1)
		if (end == 0) != (once == 0) {
			t.Fatalf("end %d in pieces, %d in one go", end, once)
		}
		if end == 0 {
			return
		}
		var h, again Hello
		v := ParseHello(in[:end], &h)
		if v == OK && end != int(once) {
			t.Fatalf("end %d in pieces, %d in one go", end, once)
		}
		want, ok := reference(in[:end])
		if ok != (v == OK) || ok && (want.sni != string(h.SNI) || want.alpn != string(h.ALPN)) {
			t.Fatalf("%v name %q protocols %q, reference %v %+v", v, h.SNI, h.ALPN, ok, want)
		}
		if v == OK { // cutting a message otherwise does not change what it says
			var m []byte
			for at := 0; at < end; {
				n := int(in[at+3])<<8 | int(in[at+4])
				m = append(m, in[at+5:at+5+n]...)
				at += 5 + n
			}
			if v := ParseHello(records(m, int(step)+1), &again); v != OK || !bytes.Equal(again.SNI, h.SNI) || !bytes.Equal(again.ALPN, h.ALPN) {
				t.Fatalf("in records of %d: %v %q %q", int(step)+1, v, again.SNI, again.ALPN)
			}
		}
	})
}

type names struct{ sni, alpn string }

// reference reads a hello with a reader and errors instead of slices and alerts.
func reference(in []byte) (n names, ok bool) {
	defer func() {
		if r := recover(); r != nil {
			if _, is := r.(short); !is {
				panic(r)
			}
			n, ok = names{}, false
		}
	}()
	var m []byte
	for b := (&cursor{in}); len(b.b) > 0; {
		if b.number(1) != 0x16 || b.number(1) != 3 {
			panic(short{})
		}
		b.number(1)
		fragment := b.vector(2)
		if len(fragment) == 0 || len(fragment) > 16384 {
			panic(short{})
		}
		m = append(m, fragment...)
	}
	c := &cursor{m}
	kind, c := c.number(1), &cursor{nil}
	c.b = m[1:]
	inner := &cursor{c.vector(3)}
	if kind != 1 || len(c.b) != 0 || inner.number(1) != 3 {
		return n, false
	}
	inner.take(33)
	if len(inner.vector(1)) > 32 {
		return n, false
	}
	if k := len(inner.vector(2)); k == 0 || k&1 != 0 {
		return n, false
	}
	if len(inner.vector(1)) == 0 {
		return n, false
	}
	if len(inner.b) == 0 {
		return n, true
	}
	list := &cursor{inner.vector(2)}
	if len(inner.b) != 0 {
		return n, false
	}
	for seen := map[int]bool{}; len(list.b) > 0; {
		kind, data := list.number(2), &cursor{nil}
		data.b = list.vector(2)
		if kind != 0 && kind != 16 {
			continue
		}
		if seen[kind] {
			return names{}, false
		}
		seen[kind] = true
		entries := &cursor{data.vector(2)}
		if len(data.b) != 0 || len(entries.b) == 0 {
			return names{}, false
		}
		if kind == 16 {
			n.alpn = string(entries.b)
			for len(entries.b) > 0 {
				if len(entries.vector(1)) == 0 {
					return names{}, false
				}
			}
			continue
		}
		if entries.number(1) != 0 {
			return names{}, false
		}
		n.sni = string(entries.vector(2))
		if len(entries.b) != 0 || n.sni == "" || len(n.sni) > 253 || strings.HasSuffix(n.sni, ".") ||
			strings.Trim(n.sni, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._") != "" {
			return names{}, false
		}
	}
	return n, true
}

type cursor struct{ b []byte }

// short is what a cursor panics with where bytes are missing.
type short struct{}

func (c *cursor) take(n int) []byte {
	if n > len(c.b) {
		panic(short{})
	}
	b := c.b[:n]
	c.b = c.b[n:]
	return b
}

func (c *cursor) number(n int) (v int) {
	for _, b := range c.take(n) {
		v = v<<8 | int(b)
	}
	return v
}

func (c *cursor) vector(n int) []byte { return c.take(c.number(n)) }

func ExampleParseHello() {
	segment := whole(sni("b.example"), alpn("h2", "http/1.1"))
	end, _, _ := FindHello(segment, 0, 0)
	var h Hello
	v := ParseHello(segment[:end], &h)
	fmt.Printf("%v %s %v\n", v, h.SNI, Offers(h.ALPN, []byte("h2")))
	// Output: ok b.example true
}
