package exception

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"splicenic/regs"
	"splicenic/runtime/config"
)

// A waiting connection, as the card has it: what its client sent, and what of that lies in the head buffer.
type waiting struct {
	page  regs.PageEntry
	card  bool   // it behaves as the card does; else the bench's outcomes say what becomes of commands
	sent  []byte // by the client so far
	held  []byte // in the head buffer
	fin   bool
	takes int

	connects []Connect // that were carried out
	outcomes map[uint32]Outcome
	stream   []byte // for the server, as far as the card was given it
	total    int    // of the stream
	kept     int    // bytes held that the host took and left there
	late     []byte // the client sends this between two commands
	left     bool   // the connection does not wait any more
}

const testISN = 0xffff_f000 // sequence numbers wrap

func (w *waiting) boundary() uint32 {
	n := testISN + 1 + uint32(len(w.sent))
	if w.fin {
		n++
	}
	return n
}

// arrive puts bytes of the client's into the head buffer.
func (w *waiting) arrive(b []byte) {
	w.sent, w.held = append(w.sent, b...), append(w.held, b...)
}

func (b *bench) take(handle uint32, keep bool, to []byte) (int, uint32, Outcome) {
	w := b.waiting[handle]
	if w == nil || w.left {
		return 0, 0, TooLate
	}
	if len(w.held) > regs.HeadBytes {
		b.Fatalf("the test holds %d bytes", len(w.held))
	}
	w.takes++
	n := copy(to, w.held)
	if w.kept = n; !keep {
		w.kept = 0
		w.held = nil
		w.page.ControlHostReason, w.page.ControlWaitingHost = regs.ExceptionReasonReasonHeadMore, 0
	}
	boundary := w.boundary()
	if w.late != nil && !keep {
		w.arrive(w.late)
		w.late = nil
	}
	return n, boundary, Taken
}

// connect checks a command as the card does, and carries it out.
func (w *waiting) connect(b *bench, x *Connect) Outcome {
	gathers := w.page.ControlHostReason == regs.ExceptionReasonReasonHeadMore
	if w.left || gathers && len(w.held) != w.kept {
		return TooLate
	}
	w.total = len(w.sent)
	if x.Replace != nil {
		w.total += int(x.Inserted)
		if w.total > 64<<10+3*regs.HeadBytes || len(x.Replace) != min(w.total, regs.HeadBytes) {
			b.Errorf("%d bytes replace a stream of %d", len(x.Replace), w.total)
			return Unusable
		}
	} else if gathers {
		b.Errorf("nothing replaces the bytes of a gathered head")
		return Unusable
	}
	if x.Group {
		if o := w.outcomes[x.Target]; o != Taken {
			return o
		}
	}
	if w.stream = w.held; x.Replace != nil {
		w.stream = bytes.Clone(x.Replace)
		w.page.AIsn = testISN - uint32(x.Inserted)
	}
	c := *x
	c.Replace = nil
	w.connects = append(w.connects, c)
	w.left, w.page.ControlState, w.page.ControlHeld = true, regs.PageControlStateSpliced, 1
	w.page.HeadBytes = uint32(len(w.stream))
	return Taken
}

// acked has the server acknowledge all that the card was given.
func (w *waiting) acked() {
	w.page.AAckServer = w.page.AIsn + 1 + uint32(len(w.stream))
	w.page.HeadBytes = 0
}

func (b *bench) feed(handle uint32, chunk []byte) Outcome {
	w := b.waiting[handle]
	if w.page.HeadBytes != 0 || len(chunk) != min(w.total-len(w.stream), regs.HeadBytes) {
		b.Errorf("fed %d bytes, the server is owed %d", len(chunk), w.total-len(w.stream))
		return TooLate
	}
	w.stream = append(w.stream, chunk...)
	w.page.HeadBytes = uint32(len(chunk))
	return Taken
}

const (
	testService = 4
	testHandle  = 9 | 3<<20
)

// groups of the tests, by index.
var testGroups = map[string]uint32{"app": 1, "api": 2, "calm": 3, "last": 5, "h2": 6}

const contentText = `
emu: {client: mem, server: mem}
ports:
  client: {addresses: [198.18.0.1/24]}
  server: {addresses: [198.18.1.1/24]}
services:
  - {name: web, listen: ["198.51.100.80:80"], %s}
groups:
  - {name: app, servers: [{address: 198.18.1.11:80}], sorry: calm}
  - {name: api, servers: [{address: 198.18.1.12:80}]}
  - {name: calm, servers: [{address: 198.18.1.13:80}], sorry: %s}
  - {name: last, servers: [{address: 198.18.1.14:80}]}
  - {name: h2, servers: [{address: 198.18.1.15:80}]}
`

// contentBench is a bench with one service, whose rules have the indexes 70, 71, … in the order of the file.
func contentBench(t *testing.T, service string) *bench {
	t.Helper()
	calm := "{reply: {status: 503, body: later}}"
	if strings.Contains(service, "protocol: t") {
		calm = "last"
	}
	c, err := config.Load("t.yaml", fmt.Appendf(nil, contentText, service, calm))
	if err != nil {
		t.Fatal(err)
	}
	b := newBench(t, "off")
	s := &Service{Service: &c.Services[0], Answers: map[uint32]int{}}
	for i, r := range s.Routes {
		s.Rules = append(s.Rules, uint32(71+i))
		if r.To.Reply != nil {
			s.Answers[uint32(70+i)] = i
		}
	}
	st := b.h.st
	st.Config, st.Services, st.Groups = c, map[uint32]*Service{testService: s}, map[uint32]*config.Group{}
	for name, i := range testGroups {
		st.Groups[i] = c.Group(name)
	}
	b.h.Configure(st, 0)
	b.quiet()
	b.waiting = map[uint32]*waiting{}
	return b
}

// client is a connection whose client sent bytes.
func (b *bench) client(handle uint32, sent string, group uint32) *waiting {
	w := &waiting{card: true}
	w.page = regs.PageEntry{ClientIsn: testISN, AIsn: testISN, IndexService: testService, ChoiceGroup: group, PortsClient: 40001, PortsVip: 80, ControlKind: regs.PageControlKindIpv4}
	w.page.ClientAddress[0] = 0xc000020a // 192.0.2.10
	w.arrive([]byte(sent))
	b.waiting[handle] = w
	return w
}

// ask hands a connection to the host.
func (b *bench) ask(handle, reason uint32) {
	b.Helper()
	b.given(&regs.ExceptionEntry{ReasonReason: reason, HandleN: handle & 0xfffff, HandleGeneration: handle >> 20, IndexService: testService})
}

const (
	rewrite  = regs.ExceptionReasonReasonRewrite
	ruleHost = regs.ExceptionReasonReasonRuleHost
	large    = regs.ExceptionReasonReasonHeadTooLarge
	headMore = regs.ExceptionReasonReasonHeadMore
	heldMore = regs.ExceptionReasonReasonHeldMore
)

// hello is a smallest ClientHello for b.example.
func hello() []byte {
	b := append([]byte("\x16\x03\x01\x00\x41\x01\x00\x00\x3d\x03\x03"), make([]byte, 32)...)
	return append(b, "\x00\x00\x02\x13\x01\x01\x00\x00\x12\x00\x00\x00\x0e\x00\x0c\x00\x00\x09b.example"...)
}

// TestRewrite: what a server is sent in place of what its client sent, and what the card is told of it.
func TestRewrite(t *testing.T) {
	const get = "GET /x HTTP/1.1\r\nHost: a.example\r\n\r\n"
	for _, tt := range []struct {
		name, service, sent, want string
		fin                       bool
		last                      int // boundary from the first byte on; zero: none
		counts                    []Reason
	}{
		{"nothing to do", "default: app, requests: close", "GET /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "GET /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", false, 47, nil},
		{"close", "default: app, requests: close", get, get[:len(get)-2] + "Connection: close\r\n\r\n", false, len(get), nil},
		{"close, with FIN", "default: app, requests: close", get, get[:len(get)-2] + "Connection: close\r\n\r\n", true, len(get), nil},
		{"close, part of a body", "default: app, requests: close", "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc",
			"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\nConnection: close\r\n\r\nabc", false, 48 + 10 + 1, nil},
		{"close, two requests", "default: app, requests: close", get + get, get[:len(get)-2] + "Connection: close\r\n\r\n", false, 2 * len(get), []Reason{BehindLast}},
		{"close, a chunked body", "default: app, requests: close", "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
			"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n0\r\n\r\n", false, 0, []Reason{EndUnknown}},
		{"forwarded", "default: app, forwarded: x-forwarded-for", get, get[:len(get)-2] + "X-Forwarded-For: 192.0.2.10\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Host: a.example\r\n\r\n", false, 0, nil},
		{"forwarded, two requests", "default: app, forwarded: forwarded", get + get, get[:len(get)-2] + `Forwarded: for="192.0.2.10:40001";by="198.51.100.80:80";host=a.example;proto=http` + "\r\n\r\n" + get, false, 0, nil},
		{"a limit only", "default: app, limits: {head: 4096}", get, get, false, 0, nil},
		{"HTTP/2", "default: app, forwarded: forwarded, routes: [{protocol: h2c, to: h2}]", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", false, 0, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := contentBench(t, tt.service)
			w := b.client(testHandle, tt.sent, testGroups["app"])
			w.fin = tt.fin
			b.ask(testHandle, rewrite)
			if len(w.connects) != 1 {
				t.Fatalf("connects %+v, replies %q", w.connects, b.replies)
			}
			want := Connect{Target: testGroups["app"], Group: true, Inserted: int32(len(tt.want) - len(tt.sent))}
			if tt.last != 0 {
				want.Last, want.Boundary = true, testISN+1+uint32(tt.last)
			}
			if strings.HasPrefix(tt.name, "close, part") {
				want.Boundary = testISN + 1 + uint32(strings.Index(tt.sent, "abc")) + 10
			}
			if got := w.connects[0]; fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("got %+v, want %+v", got, want)
			}
			if string(w.stream) != tt.want {
				t.Errorf("the server gets %q, want %q", w.stream, tt.want)
			}
			for _, r := range tt.counts {
				b.wantCount(r, 1)
			}
		})
	}
}

// TestProxyHeader: the header goes before the client's bytes, whatever these are, and names what a ClientHello names.
func TestProxyHeader(t *testing.T) {
	for _, tt := range []struct {
		name, service, sent string
		tlvs                map[byte]string
	}{
		{"http", "default: app, proxy: v2", "GET / HTTP/1.1\r\nHost: a\r\n\r\nrest", nil},
		{"tls", "protocol: tls, default: app, proxy: v2", string(hello()), map[byte]string{2: "b.example"}},
		{"tcp", "protocol: tcp, default: app, proxy: v2", "\x00\x01\x02", nil},
		{"a server that speaks first", "protocol: tcp, server_first: true, default: app, proxy: v2", "", nil},
		{"a client that says nothing", "default: app, proxy: v2, fallback: 1s", "", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := contentBench(t, tt.service)
			ids := map[string]bool{}
			for n := range uint32(2) {
				w := b.client(testHandle+n, tt.sent, testGroups["app"])
				b.ask(testHandle+n, rewrite)
				if len(w.connects) != 1 {
					t.Fatalf("connects %+v, resets %v", w.connects, b.resets)
				}
				header, ok := bytes.CutSuffix(w.stream, []byte(tt.sent))
				if !ok || len(header) < 28 || int(w.connects[0].Inserted) != len(header) {
					t.Fatalf("the server gets %q, %d bytes inserted", w.stream, w.connects[0].Inserted)
				}
				if got, want := string(header[:28]), "\r\n\r\n\x00\r\nQUIT\n\x21\x11"+string(header[14:16])+"\xc0\x00\x02\x0a\xc6\x33\x64\x50\x9c\x41\x00\x50"; got != want {
					t.Errorf("header %q, want %q", got, want)
				}
				got := map[byte]string{}
				for rest := header[28:]; len(rest) >= 3; {
					n := int(binary.BigEndian.Uint16(rest[1:]))
					got[rest[0]] = string(rest[3 : 3+n])
					rest = rest[3+n:]
				}
				ids[got[5]] = true
				for k, v := range tt.tlvs {
					if got[k] != v {
						t.Errorf("TLV %d: %q, want %q", k, got[k], v)
					}
				}
			}
			if len(ids) != 2 || ids[""] {
				t.Errorf("unique ids %v", ids)
			}
		})
	}
}

// TestRuleOfTheHost: a request that the card leaves to the host goes where the host's rules say.
func TestRuleOfTheHost(t *testing.T) {
	const routes = `routes: [{path: /old/*, to: {redirect: {prefix: /new}}}, {path: {regex: "/v[0-9]+/.*"}, to: api}, {path: /exact, to: {reply: {status: 410, body: gone}}}], default: %s`
	for _, tt := range []struct {
		name, fallback, path string
		group, rule          uint32 // zero: answered
		answer               string
	}{
		{"a rule", "app", "/v2/x", 2, 72, ""},
		{"the default", "app", "/v/x", 1, 0, ""},
		{"an answer", "app", "/exact", 0, 0, "410"},
		{"the default is an answer", "{reply: {status: 404, body: nothing}}", "/v/x", 0, 0, "404"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := contentBench(t, fmt.Sprintf(routes, tt.fallback))
			w := b.client(testHandle, "GET "+tt.path+" HTTP/1.1\r\nHost: a\r\n\r\n", 0)
			b.ask(testHandle, ruleHost)
			if tt.group == 0 {
				if len(b.replies) != 1 || !strings.HasPrefix(b.replies[0], "HTTP/1.1 "+tt.answer+" ") || len(w.connects) != 0 {
					t.Errorf("replies %q, connects %+v", b.replies, w.connects)
				}
				b.wantCount(Answered, 1)
				return
			}
			want := Connect{Target: tt.group, Group: true, Rule: tt.rule}
			if len(w.connects) != 1 || fmt.Sprint(w.connects[0]) != fmt.Sprint(want) {
				t.Errorf("connects %+v, want %+v", w.connects, want)
			}
			b.wantCount(RuleByHost, 1)
			b.wantCount(Rewritten, 0)
		})
	}
}

// TestGather: a head that outgrows the head buffer is gathered, decided about by the host, and what the server is owed
// goes to the card part by part.
func TestGather(t *testing.T) {
	long := func(n int) string {
		return "GET /v2/x HTTP/1.1\r\nHost: a\r\nCookie: " + strings.Repeat("c", n) + "\r\n\r\n"
	}
	for _, tt := range []struct {
		name, service, head, body string
		late                      int // bytes of the end that come while the host decides
		fin                       bool
	}{
		{"just over a buffer", "default: app", long(regs.HeadBytes), "", 0, false},
		{"the largest", "default: app", long(65300), "body", 0, false},
		{"a body behind it", "default: app", long(9000), strings.Repeat("b", 3000), 0, false},
		{"with FIN", "default: app", long(20000), "", 0, true},
		{"altered", "default: app, proxy: v2, forwarded: x-forwarded-for, requests: close", long(20000), "", 0, false},
		{"more while it is on its way", "default: app", long(9000), strings.Repeat("b", 2000), 1500, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := contentBench(t, `routes: [{path: /v2/*, to: api}], `+tt.service)
			all := tt.head + tt.body
			w := b.client(testHandle, all[:regs.HeadBytes], 0)
			rest := all[regs.HeadBytes : len(all)-tt.late]
			b.ask(testHandle, large)
			for len(rest) > 0 {
				n := min(len(rest), 4096)
				w.arrive([]byte(rest[:n]))
				if rest = rest[n:]; len(rest) == 0 {
					w.fin = tt.fin
					w.late = []byte(all[len(all)-tt.late:])
				}
				b.ask(testHandle, headMore)
			}
			if len(w.connects) != 1 || w.connects[0].Target != testGroups["api"] || w.connects[0].Rule != 71 {
				t.Fatalf("connects %+v, replies %.60q, resets %v", w.connects, b.replies, b.resets)
			}
			for range 20 {
				if len(w.stream) == w.total {
					break
				}
				w.acked()
				b.ask(testHandle, heldMore)
				b.ask(testHandle, heldMore) // told twice
			}
			want := all
			if tt.name == "altered" {
				want = tt.head[:len(tt.head)-2] + "X-Forwarded-For: 192.0.2.10\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Host: a\r\nConnection: close\r\n\r\n"
				if !w.connects[0].Last || w.connects[0].Boundary != testISN+1+uint32(len(all)) {
					t.Errorf("the only request ends at %d", w.connects[0].Boundary-testISN-1)
				}
				w.stream = w.stream[16+binary.BigEndian.Uint16(w.stream[14:]):]
			}
			if string(w.stream) != want {
				t.Errorf("the server gets %d bytes, want %d", len(w.stream), len(want))
			}
			if len(b.h.gathers.of)+len(b.h.feeds.of) != 0 {
				t.Errorf("%d gathered and %d to be fed are kept", len(b.h.gathers.of), len(b.h.feeds.of))
			}
			b.wantCount(HeadGathered, 1)
			b.wantCount(Rewritten, 1)
		})
	}
}

// TestGatherHello: a ClientHello of many records that outgrows the buffer.
func TestGatherHello(t *testing.T) {
	message := hello()[5:]
	message = append(message[:len(message):len(message)], "\xff\x00\x30\x00"...) // an extension of 12,288 bytes
	message = append(message, make([]byte, 0x3000)...)
	binary.BigEndian.PutUint16(message[2:], uint16(len(message)-4)) // the sizes of the message
	at := 4 + 2 + 32 + 1 + 4 + 2
	binary.BigEndian.PutUint16(message[at:], uint16(len(message)-at-2))
	var records []byte
	for rest := message; len(rest) > 0; {
		n := min(len(rest), 1000)
		records = append(append(records, 22, 3, 1, byte(n>>8), byte(n)), rest[:n]...)
		rest = rest[n:]
	}
	b := contentBench(t, "protocol: tls, routes: [{sni: b.example, to: api}], default: app")
	w := b.client(testHandle, string(records[:regs.HeadBytes]), 0)
	b.ask(testHandle, large)
	w.arrive(records[regs.HeadBytes:])
	b.ask(testHandle, headMore)
	if len(w.connects) != 1 || w.connects[0].Target != testGroups["api"] {
		t.Fatalf("connects %+v, replies %q, resets %v", w.connects, b.replies, b.resets)
	}
	w.acked()
	b.ask(testHandle, heldMore)
	if !bytes.Equal(w.stream, records) {
		t.Errorf("the server gets %d bytes, want %d", len(w.stream), len(records))
	}
}

// TestTooLarge: where gathering ends.
func TestTooLarge(t *testing.T) {
	for _, tt := range []struct {
		name, service, head string
		want                Reason
	}{
		{"a target", "default: app", "GET /" + strings.Repeat("x", 8900) + " HTTP/1.1\r\nHost: a\r\n\r\n", RefusedTarget},
		{"a target without end", "default: app", "GET /" + strings.Repeat("x", 70000), RefusedTarget},
		{"a target beyond the service's limit", "default: app, limits: {target: 100}", "GET /" + strings.Repeat("x", 9000), RefusedTarget},
		{"a head", "default: app", "GET / HTTP/1.1\r\nHost: a\r\nCookie: " + strings.Repeat("x", 70000), RefusedHead},
		{"a head beyond the service's limit", "default: app, limits: {head: 9000}", "GET / HTTP/1.1\r\nHost: a\r\nCookie: " + strings.Repeat("x", 9500), RefusedHead},
		{"no head at all", "default: app", "GET / HTTP/1.1\r\nHost: a\r\nbroken\r\nX: " + strings.Repeat("x", 9500) + "\r\n\r\n", RefusedRequest},
		{"a hello", "protocol: tls, default: app", strings.Repeat("\x16\x03\x01\x00\x04\x01\x00\xff\x00", 9000), RefusedHead},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := contentBench(t, tt.service)
			w := b.client(testHandle, tt.head[:regs.HeadBytes], 0)
			b.ask(testHandle, large)
			for rest := tt.head[regs.HeadBytes:]; len(rest) > 0 && len(b.replies) == 0; {
				n := min(len(rest), regs.HeadBytes)
				w.arrive([]byte(rest[:n]))
				rest = rest[n:]
				b.ask(testHandle, headMore)
			}
			if len(b.replies) != 1 || len(w.connects) != 0 {
				t.Fatalf("replies %.60q, connects %+v", b.replies, w.connects)
			}
			b.wantCount(tt.want, 1)
			if len(b.h.gathers.of) != 0 {
				t.Errorf("%d heads are kept", len(b.h.gathers.of))
			}
		})
	}
}

// TestRequestLimits: limits below a head buffer hold for requests that the card found whole.
func TestRequestLimits(t *testing.T) {
	for limits, want := range map[string]Reason{"target: 16": RefusedTarget, "head: 256": RefusedHead} {
		b := contentBench(t, "default: app, limits: {"+limits+"}")
		if !Alters(b.h.st.Services[testService].Service) {
			t.Errorf("%s: the card does not ask the host", limits)
		}
		w := b.client(testHandle, "GET /0123456789abcdef HTTP/1.1\r\nHost: a\r\nX: "+strings.Repeat("x", 300)+"\r\n\r\n", 1)
		b.ask(testHandle, rewrite)
		if len(w.connects) != 0 {
			t.Errorf("%s: connects %+v", limits, w.connects)
		}
		b.wantCount(want, 1)
	}
}

// TestGathersAreBounded: the oldest of too many large heads is told so; memory stays within its bound.
func TestGathersAreBounded(t *testing.T) {
	b := contentBench(t, "default: app")
	begin := "GET / HTTP/1.1\r\nHost: a\r\nCookie: " + strings.Repeat("x", 8000)
	begin += strings.Repeat("x", regs.HeadBytes-len(begin))
	for n := range uint32(maxGathers + 10) {
		b.now += time.Millisecond
		b.client(n, begin, 0)
		b.ask(n, large)
	}
	if len(b.h.gathers.of) != maxGathers {
		t.Errorf("%d heads are kept, want %d", len(b.h.gathers.of), maxGathers)
	}
	b.wantCount(DropGatherFull, 10)
	b.wantCount(RefusedTooMany, 10)
	for n := range uint32(10) {
		if b.h.gathers.of[n] != nil {
			t.Errorf("head %d is kept, which is among the oldest", n)
		}
	}
	if len(b.replies) != 10 || !strings.HasPrefix(b.replies[0], "HTTP/1.1 503 ") {
		t.Errorf("%d replies", len(b.replies))
	}
}

// TestFeedsAreBounded: a request whose server would be owed bytes that there is no room for is refused; those that are
// on their way stay.
func TestFeedsAreBounded(t *testing.T) {
	b := contentBench(t, "routes: [{path: /r, to: last}], default: last")
	head := "GET / HTTP/1.1\r\nHost: a\r\nCookie: " + strings.Repeat("x", 9000) + "\r\n\r\n"
	for n := range uint32(maxFeeds + 1) {
		w := b.client(n, head[:regs.HeadBytes], 0)
		b.ask(n, large)
		w.arrive([]byte(head[regs.HeadBytes:]))
		b.ask(n, headMore)
	}
	if len(b.h.feeds.of) != maxFeeds {
		t.Errorf("%d are kept, want %d", len(b.h.feeds.of), maxFeeds)
	}
	b.wantCount(DropFeedFull, 1)
	b.wantCount(RefusedNoServer, 1)
}

// TestForgotten: what is kept of a connection goes with it, whether its end is told or not.
func TestForgotten(t *testing.T) {
	b := contentBench(t, "default: app")
	head := "GET / HTTP/1.1\r\nHost: a\r\nCookie: " + strings.Repeat("x", 9000) + "\r\n\r\n"
	for n := range uint32(4) {
		w := b.client(n, head[:regs.HeadBytes], 0)
		b.ask(n, large)
		if n%2 == 0 {
			w.arrive([]byte(head[regs.HeadBytes:]))
			b.ask(n, headMore)
		}
	}
	b.h.Closed(0)
	b.h.Closed(1)
	if len(b.h.feeds.of) != 1 || len(b.h.gathers.of) != 1 {
		t.Errorf("%d and %d are kept, want 1 and 1", len(b.h.feeds.of), len(b.h.gathers.of))
	}
	b.advance(2 * sweepInterval)
	if len(b.h.feeds.of) != 1 || len(b.h.gathers.of) != 1 {
		t.Errorf("of connections that live %d and %d are kept, want 1 and 1", len(b.h.feeds.of), len(b.h.gathers.of))
	}
	b.waiting = nil
	b.conns = nil
	b.advance(2 * sweepInterval)
	if len(b.h.feeds.of) != 0 || len(b.h.gathers.of) != 0 {
		t.Errorf("of connections that are gone %d and %d are kept", len(b.h.feeds.of), len(b.h.gathers.of))
	}
}

// TestNobodyHasTheRest: a server that is owed bytes which a runtime before this one had is given up.
func TestNobodyHasTheRest(t *testing.T) {
	b := contentBench(t, "default: app")
	w := b.client(testHandle, "x", 0)
	w.page.ControlHeld = 1
	w.acked()
	b.h.Handle(&regs.ExceptionEntry{ReasonReason: heldMore, HandleN: 9, HandleGeneration: 3}, nil, b.now)
	b.wantCount(DropFeedLost, 1)
	if !slices.Equal(b.resets, []uint32{testHandle}) {
		t.Errorf("resets %v", b.resets)
	}
	b.client(testHandle+1, "x", 0)
	b.ask(testHandle+1, headMore)
	b.wantCount(RefusedTooMany, 1)
}

// TestRefusals: how a request ends that nobody serves, by reason and by what the service's clients speak.
func TestRefusals(t *testing.T) {
	const (
		bad      = regs.ExceptionReasonReasonBadRequest
		noRule   = regs.ExceptionReasonReasonNoRule
		noServer = regs.ExceptionReasonReasonNoServer
		badHello = regs.ExceptionReasonReasonBadHello
	)
	get := "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
	for _, tt := range []struct {
		name, protocol string
		reason         uint32
		sent           string
		counter        Reason
		want           string // begin of the answer; empty: RST
	}{
		{"malformed", "http", bad, "GET / HTTP/1.1\r\nHost : a\r\n\r\n", RefusedRequest, "HTTP/1.1 400 "},
		{"malformed for the card only", "http", bad, get, RefusedRequest, "HTTP/1.1 400 "},
		{"version", "http", bad, "GET / HTTP/2.0\r\nHost: a\r\n\r\n", RefusedVersion, "HTTP/1.1 505 "},
		{"no rule", "http", noRule, get, RefusedNoRule, "HTTP/1.1 404 "},
		{"no rule", "tls", noRule, string(hello()), RefusedNoRule, "\x15\x03\x03\x00\x02\x02\x70"},
		{"no server", "http", noServer, get, RefusedNoServer, "HTTP/1.1 503 "},
		{"no server", "tls", noServer, string(hello()), RefusedNoServer, ""},
		{"no server", "tcp", noServer, "x", RefusedNoServer, ""},
		{"time-out", "http", regs.ExceptionReasonReasonHeadTimeout, "GET /", RefusedTimeout, "HTTP/1.1 408 "},
		{"time-out", "tls", regs.ExceptionReasonReasonHeadTimeout, "\x16", RefusedTimeout, ""},
		{"a hello", "http", regs.ExceptionReasonReasonNotHttp, string(hello()), RefusedNotHTTP, "HTTP/1.1 400 "},
		{"a request", "tls", regs.ExceptionReasonReasonNotTls, get, RefusedNotTLS, "\x15\x03\x03\x00\x02\x02\x0a"},
		{"HTTP/2", "http", regs.ExceptionReasonReasonH2c, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", RefusedH2C, "HTTP/1.1 505 "},
		{"an empty record", "tls", badHello, "\x16\x03\x01\x00\x00", RefusedHello, "\x15\x03\x03\x00\x02\x02\x0a"},
		{"a cut extension", "tls", badHello, string(hello()[:52]) + "\x00\x12\x00\x00\x00\x0f" + string(hello()[58:]), RefusedHello, "\x15\x03\x03\x00\x02\x02\x32"},
	} {
		t.Run(tt.name+", "+tt.protocol, func(t *testing.T) {
			b := contentBench(t, "protocol: "+tt.protocol+", default: last")
			b.client(testHandle, tt.sent, testGroups["last"])
			b.ask(testHandle, tt.reason)
			b.wantCount(tt.counter, 1)
			if tt.want == "" {
				if len(b.replies) != 0 || !slices.Equal(b.resets, []uint32{testHandle}) {
					t.Errorf("replies %q, resets %v", b.replies, b.resets)
				}
				b.wantCount(Refused, 1)
				return
			}
			if len(b.replies) != 1 || !strings.HasPrefix(b.replies[0], tt.want) || len(b.resets) != 0 {
				t.Fatalf("replies %q, resets %v, want %q", b.replies, b.resets, tt.want)
			}
			if _, body, _ := strings.Cut(b.replies[0], "\r\n\r\n"); tt.protocol == "http" && body == "" {
				t.Errorf("no body in %q", b.replies[0])
			}
			b.replied = Unusable // no head buffer
			b.client(testHandle+1, tt.sent, testGroups["last"])
			b.ask(testHandle+1, tt.reason)
			if len(b.resets) != 1 {
				t.Errorf("an answer that the card has no room for is followed by %d resets", len(b.resets))
			}
		})
	}
}

// TestHeadRequestsGetNoBody: whatever the answer is.
func TestHeadRequestsGetNoBody(t *testing.T) {
	for _, tt := range []struct {
		name, service, sent string
		reason              uint32
	}{
		{"no rule", "routes: [{host: z, to: app}]", "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n", regs.ExceptionReasonReasonNoRule},
		{"malformed", "default: app", "HEAD / HTTP/1.1\r\nHost : a\r\n\r\n", regs.ExceptionReasonReasonBadRequest},
		{"time-out", "default: app", "HEAD / HT", regs.ExceptionReasonReasonHeadTimeout},
		{"the default", "default: {reply: {status: 200, body: hi}}", "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n", regs.ExceptionReasonReasonNoRule},
		{"too large", "default: app", "HEAD /" + strings.Repeat("x", regs.HeadBytes-6), large},
		{"no server for an altered head", "default: last, proxy: v2", "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c" + strings.Repeat("p", 12) + "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n", regs.ExceptionReasonReasonServerFailed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := contentBench(t, tt.service)
			b.client(testHandle, tt.sent, testGroups["last"])
			b.ask(testHandle, tt.reason)
			if len(b.replies) != 1 || !strings.HasSuffix(b.replies[0], "\r\n\r\n") || !strings.Contains(b.replies[0], "\r\nContent-Length: ") {
				t.Errorf("replies %q", b.replies)
			}
		})
	}
}

// TestSorry: a request that no server of its group takes goes to what is sorry for the group, and so on.
func TestSorry(t *testing.T) {
	const get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
	app, calm := testGroups["app"], testGroups["calm"]
	for _, tt := range []struct {
		name, service string
		reason        uint32
		outcomes      map[uint32]Outcome // of groups
		want          []uint32
		answer        string
	}{
		{"the card found no server", "default: app", regs.ExceptionReasonReasonNoServer, nil, []uint32{calm}, ""},
		{"the host found no server", "default: app, requests: close", rewrite, map[uint32]Outcome{app: Unusable}, []uint32{calm}, ""},
		{"nobody is there", "default: app", regs.ExceptionReasonReasonNoServer, map[uint32]Outcome{calm: Unusable}, nil, "later"},
		{"nobody is there for an altered head", "default: app, requests: close", rewrite, map[uint32]Outcome{app: Unusable, calm: Unusable}, nil, "later"},
		{"servers failed", "default: app", regs.ExceptionReasonReasonServerFailed, nil, []uint32{calm}, ""},
		{"enough servers were tried", "default: app", regs.ExceptionReasonReasonServerFailed, map[uint32]Outcome{calm: TooLate}, nil, "503 Service Unavailable\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := contentBench(t, tt.service)
			w := b.client(testHandle, get, app)
			w.outcomes = tt.outcomes
			b.ask(testHandle, tt.reason)
			var got []uint32
			for _, x := range w.connects {
				got = append(got, x.Target)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("connects to %v, want %v", got, tt.want)
			}
			if tt.answer != "" && (len(b.replies) != 1 || !strings.HasSuffix(b.replies[0], "\r\n\r\n"+tt.answer)) {
				t.Errorf("replies %q, want %q", b.replies, tt.answer)
			}
		})
	}
}

// TestSorryKeepsATry: of the servers that the card tries, a sorry group has the last one.
func TestSorryKeepsATry(t *testing.T) {
	b := contentBench(t, "default: app")
	b.others = []uint32{3, 4, 5, 6}
	for i, failed := range []uint32{3, 4} {
		w := b.client(testHandle, "GET / HTTP/1.1\r\nHost: a\r\n\r\n", testGroups["app"])
		e := serverFailed(testHandle&0xfffff, failed)
		e.HandleGeneration, e.IndexService = testHandle>>20, testService
		b.given(e)
		want := []Connect{{Target: 4}, {Target: testGroups["calm"], Group: true}}[i]
		if len(w.connects) != 1 || fmt.Sprint(w.connects[0]) != fmt.Sprint(want) {
			t.Errorf("after server %d: connects %+v, want %+v", failed, w.connects, want)
		}
	}
}

// TestRedirects: where clients are told to go.
func TestRedirects(t *testing.T) {
	for _, tt := range []struct{ route, target, host, want string }{
		{"{path: /*, to: {redirect: {scheme: https}}}", "/a%20b?q=1", "A.Example:8080", "https://a.example/a%20b?q=1"},
		{"{path: /*, to: {redirect: {scheme: https, port: 8443}}}", "/", "a", "https://a:8443/"},
		{"{path: /*, to: {redirect: {host: b.example}}}", "http://a/x", "a", "http://b.example/x"},
		{"{path: /*, to: {redirect: {host: b.example, port: 81}}}", "/x", "a", "http://b.example:81/x"},
		{"{path: /*, to: {redirect: {path: /new}}}", "/old?x", "a", "http://a/new?x"},
		{"{path: /old/*, to: {redirect: {prefix: /new}}}", "/old/a/b?x=y", "a", "http://a/new/a/b?x=y"},
		{"{path: /old/*, to: {redirect: {prefix: /new}}}", "/old", "a", "http://a/new"},
		{"{path: /old/*, to: {redirect: {prefix: /}}}", "/old", "a", "http://a/"},
		{"{path: /old/*, to: {redirect: {prefix: /}}}", "/old/x", "a", "http://a/x"},
		{"{path: /old/*, to: {redirect: {prefix: /new}}}", "/old/%0d%0aSet-Cookie:%20x%3fy%2f%25", "a", "http://a/new/%0D%0ASet-Cookie:%20x%3Fy%2F%25"},
		{"{path: /*, to: {redirect: {scheme: https}}}", "/", "[2001:db8::1]:80", "https://[2001:db8::1]/"},
		{"{path: /*, to: {redirect: {scheme: https}}}", "*", "a", "https://a/"},
	} {
		b := contentBench(t, "routes: ["+tt.route+"], default: app")
		method := "GET "
		if tt.target == "*" {
			method = "OPTIONS "
		}
		w := b.client(testHandle, method+tt.target+" HTTP/1.1\r\nHost: "+tt.host+"\r\n\r\n", 0)
		w.page.Rule = 71
		b.ask(testHandle, regs.ExceptionReasonReasonAnswer)
		if len(b.replies) != 1 || !strings.HasPrefix(b.replies[0], "HTTP/1.1 302 ") || !strings.Contains(b.replies[0], "\r\nLocation: "+tt.want+"\r\n") {
			t.Errorf("%s, %s: replies %q, want %s", tt.route, tt.target, b.replies, tt.want)
		}
		b.wantCount(Answered, 1)
	}
}

// TestToldTwice: an exception that comes again, or of a connection that has gone on, changes nothing.
func TestToldTwice(t *testing.T) {
	b := contentBench(t, "default: app, requests: close")
	w := b.client(testHandle, "GET / HTTP/1.1\r\nHost: a\r\n\r\n", 1)
	b.ask(testHandle, rewrite)
	e := &regs.ExceptionEntry{ReasonReason: rewrite, HandleN: 9, HandleGeneration: 3, IndexService: testService}
	b.h.Handle(e, nil, b.now)
	e.ReasonReason = headMore
	b.h.Handle(e, nil, b.now)
	e.HandleGeneration = 4
	b.h.Handle(e, nil, b.now)
	if len(w.connects) != 1 || len(b.replies)+len(b.resets) != 0 {
		t.Errorf("connects %+v, replies %q, resets %v", w.connects, b.replies, b.resets)
	}
	b.wantCount(DropLate, 3)
}

// TestFlood: frames and refusals beyond their share of a step are counted and cost no more, and connections that wait for
// a server are served as if there was no flood.
func TestFlood(t *testing.T) {
	b := contentBench(t, "default: app, requests: close")
	var told int
	b.h.cfg.Tell = func(netip.AddrPort, string, Reason) { told++ }
	const flood = 5 * frameShare
	for n := range uint32(flood) {
		b.h.Handle(&regs.ExceptionEntry{ReasonReason: regs.ExceptionReasonReasonFragment}, nil, b.now)
		b.client(1000+n, "GET\r\n\r\n", 0)
		b.ask(1000+n, regs.ExceptionReasonReasonBadRequest)
		w := b.client(5000+n, "GET / HTTP/1.1\r\nHost: a\r\n\r\n", 1)
		b.ask(5000+n, rewrite)
		if len(w.connects) != 1 {
			t.Fatalf("request %d is not served", n)
		}
	}
	b.wantCount(DropShare, flood-frameShare)
	if got := b.h.Dropped()[regs.ExceptionReasonReasonFragment]; got != flood-frameShare {
		t.Errorf("%d fragments are counted as dropped, want %d", got, flood-frameShare)
	}
	b.wantCount(DropMalformed, frameShare)
	b.wantCount(RefusedRequest, flood)
	b.wantCount(Replied, wordShare)
	b.wantCount(Refused, flood-wordShare)
	if told != tellBurst {
		t.Errorf("%d refusals were told, want %d", told, tellBurst)
	}
	b.advance(0)
	b.h.Handle(&regs.ExceptionEntry{ReasonReason: regs.ExceptionReasonReasonFragment}, nil, b.now)
	b.wantCount(DropMalformed, frameShare+1)
}

// FuzzContent: whatever a client sends, in whatever parts, its connection ends up with one decision or waits for more;
// what a server gets is what the client sent, where nothing has to be altered; and nothing is kept without bound. The
// card of the tests checks every command.
func FuzzContent(f *testing.F) {
	services := []string{
		"default: app", "default: app, requests: close", "default: app, proxy: v2, forwarded: {field: forwarded, existing: refuse}",
		"protocol: tls, routes: [{sni: b.example, to: api}], default: app, proxy: v2", "protocol: tls, routes: [{sni: b.example, to: api}]",
		`routes: [{path: {regex: "/v[0-9]"}, to: api}, {path: /old/*, to: {redirect: {prefix: /new}}}], default: {reply: {status: 404}}`,
		"protocol: tcp, default: app, proxy: v2", "default: app, limits: {target: 20, head: 9000}",
	}
	f.Add(uint8(0), uint32(rewrite), []byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), uint16(0), uint16(100))
	f.Add(uint8(1), uint32(rewrite), []byte("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabcGET / HTTP/1.1\r\n"), uint16(0), uint16(100))
	f.Add(uint8(2), uint32(large), []byte("GET / HTTP/1.1\r\nHost: a\r\nX: \r\n\r\n"), uint16(28), uint16(20000))
	f.Add(uint8(3), uint32(ruleHost), hello(), uint16(0), uint16(0))
	f.Add(uint8(4), uint32(large), hello(), uint16(5), uint16(9000))
	f.Add(uint8(5), uint32(regs.ExceptionReasonReasonAnswer), []byte("GET /old/%0d%0a?x HTTP/1.1\r\nHost: a\r\n\r\n"), uint16(0), uint16(0))
	f.Add(uint8(6), uint32(rewrite), []byte{}, uint16(0), uint16(0))
	f.Add(uint8(7), uint32(large), []byte("GET /0123456789012345678901234567890123456789 HTTP/1.1\r\n"), uint16(20), uint16(8192))
	f.Fuzz(func(t *testing.T, service uint8, reason uint32, sent []byte, at, pad uint16) {
		b := contentBench(t, services[int(service)%len(services)])
		n := min(int(at), len(sent))
		sent = slices.Concat(sent[:n], bytes.Repeat([]byte{'x'}, int(pad)), sent[n:])
		if reason %= exceptionReasons; reason == heldMore {
			reason = large
		}
		w := b.client(testHandle, string(sent[:min(len(sent), regs.HeadBytes)]), testGroups["app"])
		w.page.Rule = 72
		b.h.Handle(&regs.ExceptionEntry{ReasonReason: reason, HandleN: 9, HandleGeneration: 3}, nil, 0) // it waits for something else
		if reason < regs.ExceptionReasonReasonBadRequest || reason == regs.ExceptionReasonReasonUnclassified || reason == regs.ExceptionReasonReasonTooBig {
			return
		}
		b.ask(testHandle, reason)
		for rest := sent[len(w.sent):]; len(rest) > 0 && w.page.ControlHostReason == headMore && !w.left && len(b.replies)+len(b.resets) == 0; {
			n := min(len(rest), 4000)
			w.arrive(rest[:n])
			rest = rest[n:]
			b.ask(testHandle, headMore)
		}
		if len(w.connects)+len(b.replies)+len(b.resets) > 1 {
			t.Errorf("connects %+v, replies %q, resets %v", w.connects, b.replies, b.resets)
		}
		if p := b.h.gathers.of[testHandle]; p != nil && (len(p.bytes) > mostStream || w.left) {
			t.Errorf("%d bytes are kept", len(p.bytes))
		}
		if w.left {
			for range 20 {
				if len(w.stream) == w.total {
					break
				}
				w.acked()
				b.ask(testHandle, heldMore)
			}
			if len(w.stream) != w.total || len(b.h.feeds.of) != 0 {
				t.Errorf("the server gets %d of %d bytes", len(w.stream), w.total)
			}
			if x := w.connects[0]; x.Inserted == 0 && !x.Last && !bytes.Equal(w.stream, w.sent) {
				t.Errorf("the server gets %q, sent were %q", w.stream, w.sent)
			}
		}
		for _, r := range b.replies {
			if len(r) > regs.HeadBytes || strings.Contains(r, "\r\n\r\n") && strings.ContainsAny(strings.ReplaceAll(r[:strings.Index(r, "\r\n\r\n")], "\r\n", ""), "\r\n") {
				t.Errorf("reply %q", r)
			}
		}
	})
}
