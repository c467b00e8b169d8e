package ruletest

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"github.com/google/gopacket/pcapgo"

	"splicenic/runtime/head"
)

const file = `card: emu
emu: {client: mem, server: mem}
ports:
  client: {addresses: [198.18.0.1/24, "2001:db8::1/64"]}
  server: {addresses: [198.18.1.1/24, "2001:db8:1::1/64"]}
services:
  - name: web
    listen: [198.18.0.80:80]
    limits: {target: 100, head: 1000}
    routes:
      - {host: a.example, path: /x/*, to: app}
      - {path: {regex: /r}, to: app}
      - {source: 192.0.2.0/24, to: {reply: 403}}
      - {protocol: h2c, to: app}
  - name: tls
    listen: [198.18.0.80:443]
    protocol: tls
    routes:
      - {sni: b.example, to: app}
      - {sni: "*.example", alpn: h2, to: app}
  - name: raw
    listen: [198.18.0.80:25]
    protocol: tcp
    default: app
  - name: plain
    listen: [198.18.0.80:81]
    default: {reply: 404}
groups:
  - {name: app, servers: [{address: 198.18.1.11:80}]}
`

// hello is a smallest ClientHello with a name of the server.
func hello(name string) []byte {
	var ext []byte
	ext = binary.BigEndian.AppendUint16(ext, 0)
	ext = binary.BigEndian.AppendUint16(ext, uint16(len(name)+5))
	ext = binary.BigEndian.AppendUint16(ext, uint16(len(name)+3))
	ext = append(ext, 0)
	ext = binary.BigEndian.AppendUint16(ext, uint16(len(name)))
	ext = append(ext, name...)
	body := append([]byte{3, 3}, make([]byte, 32)...)
	body = append(body, 0, 0, 2, 0x13, 0x01, 1, 0)
	body = binary.BigEndian.AppendUint16(body, uint16(len(ext)))
	body = append(body, ext...)
	message := append([]byte{1, 0}, binary.BigEndian.AppendUint16(nil, uint16(len(body)))...)
	message = append(message, body...)
	return append(binary.BigEndian.AppendUint16([]byte{22, 3, 1}, uint16(len(message))), message...)
}

func get(target, host string) string {
	return "GET " + target + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n"
}

func TestTest(t *testing.T) {
	client := netip.MustParseAddr("192.0.2.9")
	for _, tt := range []struct {
		name, service, input string
		client               netip.Addr
		verdict, to, why     string
		line                 int
		lost                 string // of the others, in order
	}{
		{name: "a rule", service: "web", input: get("/x/1", "a.example"), verdict: "rule", to: "group app", line: 11, lost: "path, source"},
		{name: "with a body", service: "web", input: get("/x/1", "a.example") + strings.Repeat("x", 2000), verdict: "rule", to: "group app", line: 11, lost: "path, source"},
		{name: "two would", service: "web", input: get("/x", "a.example"), client: client, verdict: "rule", to: "group app", line: 11, lost: "path, a rule before it"},
		{name: "a slow one", service: "web", input: get("/r", "c"), client: client, verdict: "rule", to: "group app", line: 12, lost: "host, a rule before it"},
		{name: "an answer", service: "web", input: get("/q", "c"), client: client, verdict: "rule", to: "reply 403", line: 13, lost: "host, path"},
		{name: "none", service: "web", input: get("/q", "c"), verdict: "none", why: "404 Not Found", lost: "host, path, source"},
		{name: "a default", service: "plain", input: get("/q", "c"), verdict: "default", to: "reply 404", why: "no rule takes it"},
		{name: "two hosts", service: "web", input: "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", verdict: "refused", why: "400 Bad Request"},
		{name: "no end", service: "web", input: "GET / HTTP/1.1\r\nHost: a\r\n", verdict: "refused", why: "400 Bad Request"},
		{name: "nothing", service: "web", verdict: "refused", why: "400 Bad Request"},
		{name: "long target", service: "web", input: get("/"+strings.Repeat("x", 100), "c"), verdict: "refused", why: "414 "},
		{name: "long head", service: "web", input: get("/", strings.Repeat("x", 1000)), verdict: "refused", why: "431 "},
		{name: "version", service: "web", input: "GET / HTTP/3.0\r\n\r\n", verdict: "refused", why: "505 "},
		{name: "TLS", service: "web", input: string(hello("b.example")), verdict: "refused", why: "begins like TLS"},
		{name: "HTTP/2", service: "web", input: head.Preface + "...", verdict: "rule", to: "group app"},
		{name: "HTTP/2 not wanted", service: "plain", input: head.Preface, verdict: "refused", why: "no route of the service has protocol: h2c"},
		{name: "a name", service: "tls", input: string(hello("B.example")), verdict: "rule", to: "group app", line: 19, lost: "alpn"},
		{name: "another name", service: "tls", input: string(hello("c.example")), verdict: "none", why: "the client gets an alert", lost: "host, alpn"},
		{name: "HTTP for TLS", service: "tls", input: get("/", "b.example"), verdict: "refused"},
		{name: "anything", service: "raw", input: "EHLO a\r\n", verdict: "default", to: "group app"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			answers, err := Test("x.yaml", file, &Question{Service: tt.service, Client: tt.client, Input: []byte(tt.input)})
			if err != nil || len(answers) != 1 {
				t.Fatalf("%d answers, %v", len(answers), err)
			}
			a := answers[0]
			line := 0
			if a.Rule != nil {
				line = a.Rule.Line
			}
			var lost []string
			for _, o := range a.Others {
				lost = append(lost, o.Lost)
			}
			if a.Verdict != tt.verdict || a.To != tt.to || line != tt.line || !strings.Contains(a.Why, tt.why) {
				t.Errorf("got %+v", a)
			}
			if got := strings.Join(lost, ", "); got != tt.lost {
				t.Errorf("the others lost by %q, want %q", got, tt.lost)
			}
			if slow := a.Rule != nil && a.Rule.Slow != ""; slow != (tt.line == 12) {
				t.Errorf("slow %v", slow)
			}
			var text bytes.Buffer
			if Write(&text, answers); !strings.HasPrefix(text.String(), "service "+tt.service+": ") || !strings.Contains(text.String(), tt.to) || !strings.Contains(text.String(), tt.why) {
				t.Errorf("text\n%s", text.String())
			}
		})
	}
}

// TestPrintable: what a request holds in percent-encoded bytes tells a terminal nothing.
func TestPrintable(t *testing.T) {
	answers, err := Test("x.yaml", file, &Question{Service: "web", Input: []byte(get("/%1b%5b2J%0a%c3%a4%c2%9b%ff", "a.example"))})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := answers[0].Request, "GET a.example/%1B[2J%0Aä%C2%9B%FF"; got != want {
		t.Errorf("request %q, want %q", got, want)
	}
}

func TestHead(t *testing.T) {
	for _, tt := range []struct {
		method, url string
		fields      []string
		want        string
	}{
		{"GET", "http://a.example/x?y", nil, "GET /x?y HTTP/1.1\r\nHost: a.example\r\n\r\n"},
		{"PUT", "https://a.example:81", []string{"A: b"}, "PUT / HTTP/1.1\r\nHost: a.example:81\r\nA: b\r\n\r\n"},
		{"GET", "http://a.example?y", nil, "GET /?y HTTP/1.1\r\nHost: a.example\r\n\r\n"},
		{"GET", "/x", []string{"host: b"}, "GET /x HTTP/1.1\r\nhost: b\r\n\r\n"},
		{"GET", "/x\r\ny", nil, ""},
		{"GET", "/x", []string{"A: b\nc"}, ""},
	} {
		got, err := Head(tt.method, tt.url, tt.fields)
		if string(got) != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("%s %s: %q, %v; want %q", tt.method, tt.url, got, err, tt.want)
		}
	}
	if got := string(Typed("a\nb\r\n\n\n")); got != "a\r\nb\r\n\r\n" {
		t.Errorf("typed %q", got)
	}
}

// segment is a frame of a capture.
type segment struct {
	from, to string
	seq      uint32
	syn      bool
	data     string
}

func (s segment) frame(t *testing.T) []byte {
	t.Helper()
	from, to := netip.MustParseAddrPort(s.from), netip.MustParseAddrPort(s.to)
	ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolTCP, SrcIP: from.Addr().AsSlice(), DstIP: to.Addr().AsSlice()}
	tcp := &layers.TCP{SrcPort: layers.TCPPort(from.Port()), DstPort: layers.TCPPort(to.Port()), Seq: s.seq, SYN: s.syn, ACK: !s.syn || from.Port() < 1024, Window: 1000}
	if err := tcp.SetNetworkLayerForChecksum(ip); err != nil {
		t.Fatal(err)
	}
	b := gopacket.NewSerializeBuffer()
	eth := &layers.Ethernet{SrcMAC: make([]byte, 6), DstMAC: make([]byte, 6), EthernetType: layers.EthernetTypeIPv4}
	if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, eth, ip, tcp, gopacket.Payload(s.data)); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// save writes a capture as a pcap or a pcapng file.
func save(t *testing.T, ng bool, list []segment) []byte {
	t.Helper()
	var file bytes.Buffer
	type writer interface {
		WritePacket(gopacket.CaptureInfo, []byte) error
	}
	var w writer
	if ng {
		n, err := pcapgo.NewNgWriter(&file, layers.LinkTypeEthernet)
		if err != nil {
			t.Fatal(err)
		}
		defer n.Flush()
		w = n
	} else {
		p := pcapgo.NewWriter(&file)
		if err := p.WriteFileHeader(65536, layers.LinkTypeEthernet); err != nil {
			t.Fatal(err)
		}
		w = p
	}
	for i, s := range list {
		b := s.frame(t)
		if err := w.WritePacket(gopacket.CaptureInfo{Timestamp: time.Unix(int64(i), 0), CaptureLength: len(b), Length: len(b)}, b); err != nil {
			t.Fatal(err)
		}
	}
	if n, ok := w.(*pcapgo.NgWriter); ok {
		if err := n.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	return file.Bytes()
}

func TestCapture(t *testing.T) {
	const c1, c2, web, tls, server = "192.0.2.9:40001", "198.18.0.5:40002", "198.18.0.80:80", "198.18.0.80:443", "198.18.1.11:80"
	head, name := get("/x/1", "a.example"), string(hello("b.example"))
	list := []segment{
		{c1, web, 0xfffffff0, true, ""},
		{web, c1, 7, true, ""},
		{c2, tls, 100, true, ""},
		{c1, web, 5, false, head[20:]},               // ahead of its place
		{c1, web, 5, false, strings.Repeat("z", 10)}, // the first one stays
		{c2, tls, 101, false, name[:9]},
		{c1, web, 0xfffffff1, false, head[:25]}, // and overlapping
		{web, c1, 8, false, "HTTP/1.1 200 OK\r\n\r\n"},
		{c2, tls, 110, false, name[9:]},
		{c1, web, 500, true, ""}, // the same ports again
		{c1, web, 501, false, get("/q", "c")},
		{c1, server, 1, true, ""}, // behind the card
		{c1, server, 2, false, head},
	}
	for _, ng := range []bool{false, true} {
		file1 := save(t, ng, list)
		answers, err := Test("x.yaml", file, &Question{Input: file1})
		if err != nil || len(answers) != 3 {
			t.Fatalf("%d answers, %v", len(answers), err)
		}
		for i, want := range []string{"web rule group app 192.0.2.9", "tls rule group app 198.18.0.5", "web rule reply 403 192.0.2.9"} {
			if a := &answers[i]; a.Service+" "+a.Verdict+" "+a.To+" "+a.Client != want {
				t.Errorf("ng %v: %+v, want %s", ng, a, want)
			}
		}
		if answers, err = Test("x.yaml", file, &Question{Service: "tls", Input: file1}); err != nil || len(answers) != 1 {
			t.Errorf("ng %v: of one service %d answers, %v", ng, len(answers), err)
		}
		if answers, err = Test("x.yaml", file, &Question{Service: "plain", Input: file1}); err != nil || len(answers) != 1 {
			t.Errorf("ng %v: of streams to no listener %d answers, %v", ng, len(answers), err)
		}
		if _, err = Test("x.yaml", file, &Question{Input: save(t, ng, list[11:])}); err == nil || !strings.Contains(err.Error(), "none of the 1 streams") {
			t.Errorf("ng %v: of none %v", ng, err)
		}
		for n := range len(file1) { // cut anywhere
			if isCapture(file1[:n]) {
				_, _ = streamsOf(file1[:n])
			}
		}
	}
}

func FuzzCapture(f *testing.F) {
	f.Add([]byte{0xd4, 0xc3, 0xb2, 0xa1})
	f.Add([]byte{0x0a, 0x0d, 0x0d, 0x0a, 28, 0, 0, 0, 0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 1<<14 || !isCapture(b) {
			return
		}
		streams, err := streamsOf(b)
		if err != nil && len(streams) > 0 && !strings.Contains(err.Error(), "length") {
			t.Fatal(err)
		}
		for _, s := range streams {
			if len(s.start()) > maxStart {
				t.Fatalf("%d bytes of a stream", len(s.start()))
			}
		}
	})
}

// TestHello: what is made for a URL is decided like a hello of a client, and only where the service speaks TLS.
func TestHello(t *testing.T) {
	for _, tt := range []struct {
		name, url, service string
		alpn               []string
		request, to, err   string
	}{
		{"name", "https://b.example/x?y", "tls", nil, `hello for "b.example"`, "group app", ""},
		{"port", "https://b.example:8443", "tls", nil, `hello for "b.example"`, "group app", ""},
		{"protocols", "https://c.example", "tls", []string{"h2", "http/1.1"}, `hello for "c.example", alpn h2,http/1.1`, "group app", ""},
		{"protocol that no rule wants", "https://c.example", "tls", []string{"http/1.1"}, `hello for "c.example", alpn http/1.1`, "", ""},
		{"address", "https://[2001:db8::1]:443/", "tls", nil, `hello for ""`, "", ""},
		{"HTTP", "https://a.example/x/1", "web", nil, "GET a.example/x/1", "group app", ""},
		{"HTTP has no protocols", "https://a.example/x/1", "web", []string{"h2"}, "", "", "alpn is part of a TLS hello"},
		{"protocol without a name", "https://b.example", "tls", []string{""}, "", "", "no hello can be made"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			q := Question{Service: tt.service, ALPN: len(tt.alpn) > 0}
			var err error
			if q.Hello, err = Hello(tt.url, tt.alpn); err == nil {
				if q.Input, err = Head("GET", tt.url, nil); err != nil {
					t.Fatal(err)
				}
				var got []Answer
				if got, err = Test("x.yaml", file, &q); err == nil && (got[0].Request != tt.request || got[0].To != tt.to) {
					t.Errorf("request %q to %q, want %q to %q", got[0].Request, got[0].To, tt.request, tt.to)
				}
			}
			if (err != nil) != (tt.err != "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("error %v, want %q", err, tt.err)
			}
		})
	}
	if _, err := Head("GET", "a.example/x", nil); err == nil || !strings.Contains(err.Error(), "write http://a.example/x") {
		t.Errorf("error of a URL without its scheme: %v", err)
	}
}

// TestRoom: what is kept of a capture is bounded, however far apart the segments of its streams are.
func TestRoom(t *testing.T) {
	room := maxStart + 10
	var near, far, late stream
	near.put(0, []byte("GET"), &room)
	far.put(maxStart-1, []byte("x"), &room)
	late.put(maxStart-1, []byte("x"), &room)
	late.put(0, []byte("x"), &room)
	if string(near.start()) != "GET" || len(far.bytes) != maxStart || len(late.bytes) != 0 || room != 0 {
		t.Errorf("kept %q, %d and %d bytes; room for %d", near.start(), len(far.bytes), len(late.bytes), room)
	}
}
