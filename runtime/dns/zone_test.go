package dns

import (
	"bytes"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"

	"splicenic/runtime/config"
)

// file is a director with two services of both families; tests replace its last line.
const file = `emu: {client: eth1, server: eth2}
ports:
  client: {addresses: [198.18.0.1/24, 2001:db8:1::1/64]}
  server: {addresses: [198.18.1.1/24, 2001:db8:2::1/64]}
services:
  - {name: web4, listen: [198.18.0.80:80, 198.18.0.81:80, 198.18.0.80:8080], default: app4}
  - {name: web6, listen: ["[2001:db8:1::80]:80"], default: app6}
  - {name: secure, listen: [198.18.0.80:443], protocol: tls, default: app4}
groups:
  - {name: app4, servers: [{address: 198.18.1.11:80}]}
  - {name: app6, servers: [{address: "[2001:db8:2::11]:80"}]}
dns: `

// common is what most tests publish.
const common = `{zone: lb.Example, listen: 127.0.0.1:5300, address: 198.51.100.1, nameserver: ns1.lb.example, records: [{name: www, service: web4}, {name: WWW, service: web6}, {name: only4.Deep, service: web4}]`

// peered is common with two other directors.
const peered = common + `, peers: [{address: 127.0.0.2:5300, nameserver: ns2.example.net, vips: [198.18.2.80, "2001:db8:3::80"]}, {address: 127.0.0.3:5300, nameserver: ns3.lb.example, vips: [198.18.4.80]}]}`

func load(t testing.TB, text string) *config.Config {
	t.Helper()
	return loadWhole(t, file+text)
}

func loadWhole(t testing.TB, text string) *config.Config {
	t.Helper()
	c, err := config.Load("x.yaml", []byte(text+"\n"))
	if err != nil {
		t.Fatalf("load: %v", err)
	}
	return c
}

// all but those named have their quorum.
func allBut(names ...string) func(string) bool {
	return func(service string) bool { return !strings.Contains(" "+strings.Join(names, " ")+" ", " "+service+" ") }
}

func addrs(list ...string) (all []netip.Addr) {
	for _, a := range list {
		all = append(all, netip.MustParseAddr(a))
	}
	return all
}

func TestMake(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		quorum     func(string) bool
		heard      []Heard
		want       string
	}{
		{"all work", common + "}", allBut(), nil, `
lb.Example. 5 IN SOA ns1.lb.example. hostmaster.lb.Example. 7 5 5 100 5
lb.Example. 3600 IN NS ns1.lb.example.
ns1.lb.example. 3600 IN A 198.51.100.1
www.lb.Example. 5 IN A 198.18.0.80
www.lb.Example. 5 IN A 198.18.0.81
www.lb.Example. 5 IN AAAA 2001:db8:1::80
only4.Deep.lb.Example. 5 IN A 198.18.0.80
only4.Deep.lb.Example. 5 IN A 198.18.0.81
`},
		{"one service lost its quorum", common + "}", allBut("web4"), nil, `
lb.Example. 5 IN SOA ns1.lb.example. hostmaster.lb.Example. 7 5 5 100 5
lb.Example. 3600 IN NS ns1.lb.example.
ns1.lb.example. 3600 IN A 198.51.100.1
www.lb.Example. 5 IN AAAA 2001:db8:1::80
; out, nobody serves it: www.lb.Example. A
; out, nobody serves it: only4.Deep.lb.Example. A
`},
		{"a VIP of two services goes with either", `{zone: lb.example, file: /run/x, nameserver: ns.example.net, contact: who.example.net, ttl: 60s, records: [{name: "@", service: web4}, {name: "@", service: secure}]}`, allBut("secure"), nil, `
lb.example. 60 IN SOA ns.example.net. who.example.net. 7 60 60 1200 60
lb.example. 60 IN A 198.18.0.81
lb.example. 3600 IN NS ns.example.net.
`},
		{"peers that live", peered, allBut("web6"), []Heard{
			{Alive: true, Live: map[string][]netip.Addr{"www": addrs("2001:db8:3::80", "198.18.2.80", "203.0.113.66"), "only4.deep": addrs("198.18.2.80")}},
			{Live: map[string][]netip.Addr{"www": addrs("198.18.4.80")}},
		}, `
lb.Example. 5 IN SOA ns1.lb.example. hostmaster.lb.Example. 7 5 5 100 5
lb.Example. 3600 IN NS ns1.lb.example.
lb.Example. 3600 IN NS ns2.example.net.
lb.Example. 3600 IN NS ns3.lb.example.
ns1.lb.example. 3600 IN A 198.51.100.1
ns3.lb.example. 3600 IN A 127.0.0.3
www.lb.Example. 5 IN A 198.18.0.80
www.lb.Example. 5 IN A 198.18.0.81
www.lb.Example. 5 IN A 198.18.2.80
www.lb.Example. 5 IN AAAA 2001:db8:3::80
only4.Deep.lb.Example. 5 IN A 198.18.0.80
only4.Deep.lb.Example. 5 IN A 198.18.0.81
only4.Deep.lb.Example. 5 IN A 198.18.2.80
`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			z := Make(load(t, tt.text), 7, tt.quorum, tt.heard)
			text := z.String()
			var got strings.Builder
			for line := range strings.Lines(text) {
				if !strings.HasPrefix(line, "; Kept") && line[0] != '$' {
					got.WriteString(strings.ReplaceAll(line, "\t", " "))
				}
			}
			if diff := cmp.Diff(strings.TrimPrefix(tt.want, "\n"), got.String()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			// A second opinion: the text is a zone file with the same records.
			p := dns.NewZoneParser(strings.NewReader(text), "", "")
			n := 0
			for _, ok := p.Next(); ok; _, ok = p.Next() {
				n++
			}
			if want := len(z.records()) + 1; p.Err() != nil || n != want {
				t.Errorf("the parser finds %d records, want %d: %v", n, want, p.Err())
			}
			if serial, err := parseSerial(strings.NewReader(text)); err != nil || serial != 7 {
				t.Errorf("serial %d, %v", serial, err)
			}
		})
	}
}

func TestSame(t *testing.T) {
	c := load(t, common+"}")
	a := Make(c, 1, allBut(), nil)
	for _, tt := range []struct {
		name string
		b    *Zone
		want bool
	}{
		{"serial only", Make(c, 2, allBut(), nil), true},
		{"quorum", Make(c, 1, allBut("web6"), nil), false},
		{"TTL", Make(load(t, common+", ttl: 6s}"), 1, allBut(), nil), false},
		{"none", nil, false},
	} {
		if got := a.Same(tt.b); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
	if nobody := Make(c, 1, allBut("web4", "web6"), nil); len(nobody.out()) != 3 {
		t.Errorf("out: %v", nobody.out())
	}
}

// ask builds a question.
func asks(name string, kind uint16, change ...func(*dns.Msg)) *dns.Msg {
	q := new(dns.Msg)
	q.SetQuestion(name, kind)
	for _, f := range change {
		f(q)
	}
	return q
}

func edns(size uint16) func(*dns.Msg) { return func(q *dns.Msg) { q.SetEdns0(size, true) } }

func TestReply(t *testing.T) {
	c := load(t, common+"}")
	z, lost := Make(c, 7, allBut(), nil), Make(c, 7, allBut("web4"), nil)
	const soa = "lb.Example. 5 IN SOA ns1.lb.example. hostmaster.lb.Example. 7 5 5 100 5"
	for _, tt := range []struct {
		name  string
		z     *Zone
		q     *dns.Msg
		rcode int
		aa    bool
		want  string // answer | authority | additional but OPT
	}{
		{"A, as it was written", z, asks("WwW.lB.eXample.", dns.TypeA), 0, true, "WwW.lB.eXample. 5 IN A 198.18.0.80; WwW.lB.eXample. 5 IN A 198.18.0.81 | | "},
		{"AAAA", z, asks("www.lb.example.", dns.TypeAAAA), 0, true, "www.lb.example. 5 IN AAAA 2001:db8:1::80 | | "},
		{"no such type", z, asks("only4.deep.lb.example.", dns.TypeAAAA), 0, true, " | " + soa + " | "},
		{"no such type as any", z, asks("www.lb.example.", dns.TypeMX), 0, true, " | " + soa + " | "},
		{"a name with names below it only", z, asks("deep.lb.example.", dns.TypeA), 0, true, " | " + soa + " | "},
		{"no such name", z, asks("nope.lb.example.", dns.TypeA), dns.RcodeNameError, true, " | " + soa + " | "},
		{"below a name", z, asks("x.www.lb.example.", dns.TypeA), dns.RcodeNameError, true, " | " + soa + " | "},
		{"SOA", z, asks("LB.example.", dns.TypeSOA), 0, true, "LB.example. 5 IN SOA ns1.lb.example. hostmaster.lb.Example. 7 5 5 100 5 | | "},
		{"SOA of a name in the zone", z, asks("www.lb.example.", dns.TypeSOA), 0, true, " | " + soa + " | "},
		{"NS with its address", z, asks("lb.example.", dns.TypeNS), 0, true, "lb.example. 3600 IN NS ns1.lb.example. | | ns1.lb.example. 3600 IN A 198.51.100.1"},
		{"ANY", z, asks("www.lb.example.", dns.TypeANY), 0, true, `www.lb.example. 5 IN HINFO "RFC8482" "" | | `},
		{"ANY of nothing", z, asks("nope.lb.example.", dns.TypeANY), dns.RcodeNameError, true, " | " + soa + " | "},
		{"own", z, asks("www._own.lb.example.", dns.TypeA), 0, true, "www._own.lb.example. 5 IN A 198.18.0.80; www._own.lb.example. 5 IN A 198.18.0.81 | | "},
		{"lost quorum", lost, asks("www.lb.example.", dns.TypeA), dns.RcodeServerFailure, false, " | | "},
		{"lost quorum, the other family", lost, asks("www.lb.example.", dns.TypeAAAA), 0, true, "www.lb.example. 5 IN AAAA 2001:db8:1::80 | | "},
		{"lost quorum, a family that never was", lost, asks("only4.deep.lb.example.", dns.TypeAAAA), 0, true, " | " + soa + " | "},
		{"lost quorum, to a peer", lost, asks("www._own.lb.example.", dns.TypeA), 0, true, " | " + soa + " | "},
		{"nothing known yet", nil, asks("www.lb.example.", dns.TypeA), dns.RcodeServerFailure, false, " | | "},
		{"another zone", z, asks("www.example.", dns.TypeA), dns.RcodeRefused, false, " | | "},
		{"the zone above", z, asks("example.", dns.TypeNS), dns.RcodeRefused, false, " | | "},
		{"the root", z, asks(".", dns.TypeNS), dns.RcodeRefused, false, " | | "},
		{"transfer", z, asks("lb.example.", dns.TypeAXFR), dns.RcodeRefused, false, " | | "},
		{"another class", z, asks("version.bind.", dns.TypeTXT, func(q *dns.Msg) { q.Question[0].Qclass = dns.ClassCHAOS }), dns.RcodeRefused, false, " | | "},
		{"two questions", z, asks("www.lb.example.", dns.TypeA, func(q *dns.Msg) { q.Question = append(q.Question, q.Question[0]) }), dns.RcodeFormatError, false, " | | "},
		{"no question", z, &dns.Msg{}, dns.RcodeFormatError, false, " | | "},
		{"an update", z, asks("lb.example.", dns.TypeSOA, func(q *dns.Msg) { q.Opcode = dns.OpcodeUpdate }), dns.RcodeNotImplemented, false, " | | "},
		{"EDNS of another version", z, asks("www.lb.example.", dns.TypeA, edns(4096), func(q *dns.Msg) { q.IsEdns0().SetVersion(1) }), dns.RcodeBadVers, false, " | | "},
		{"two OPT records", z, asks("www.lb.example.", dns.TypeA, edns(512), edns(512)), dns.RcodeFormatError, false, " | | "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := Reply(tt.z, tt.q, true)
			var got []string
			for _, section := range [][]dns.RR{r.Answer, r.Ns, r.Extra} {
				var list []string
				for _, rr := range section {
					if rr.Header().Rrtype != dns.TypeOPT {
						list = append(list, strings.ReplaceAll(rr.String(), "\t", " "))
					}
				}
				got = append(got, strings.Join(list, "; "))
			}
			// The turn has gone on where an earlier row asked for the same; rotation has a test of its own.
			want := strings.ReplaceAll(tt.want, "| |", "|  |")
			if diff := cmp.Diff(want, strings.Join(got, " | ")); diff != "" || r.Rcode != tt.rcode || r.Authoritative != tt.aa || !r.Response || r.RecursionAvailable {
				t.Errorf("%s, authoritative %v, want %s %v (-want +got):\n%s", dns.RcodeToString[r.Rcode], r.Authoritative, dns.RcodeToString[tt.rcode], tt.aa, diff)
			}
			if _, err := r.Pack(); err != nil {
				t.Errorf("pack: %v", err)
			}
		})
	}
	if r := Reply(z, asks("www.lb.example.", dns.TypeA, func(q *dns.Msg) { q.Response = true }), true); r != nil {
		t.Errorf("an answer is answered: %v", r)
	}
}

// TestNotReady looks at what comes with SERVFAIL where the client understands it.
func TestNotReady(t *testing.T) {
	r := Reply(nil, asks("www.lb.example.", dns.TypeA, edns(4096)), true)
	opt := r.IsEdns0()
	if opt == nil || len(opt.Option) != 1 || opt.Option[0].(*dns.EDNS0_EDE).InfoCode != dns.ExtendedErrorCodeNotReady || opt.UDPSize() != maxUDP || opt.Do() {
		t.Errorf("got %v", r)
	}
}

func TestRotation(t *testing.T) {
	z := Make(load(t, common+"}"), 1, allBut(), nil)
	var first []string
	for range 4 {
		r := Reply(z, asks("www.lb.example.", dns.TypeA), true)
		Reply(z, asks("www.lb.example.", dns.TypeAAAA), true) // a resolver asks for both; each has its own turn
		first = append(first, r.Answer[0].(*dns.A).A.String())
	}
	if diff := cmp.Diff([]string{"198.18.0.80", "198.18.0.81", "198.18.0.80", "198.18.0.81"}, first); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestTruncation asks for more addresses than fit.
func TestTruncation(t *testing.T) {
	var listen []string
	for i := range 100 {
		listen = append(listen, netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 18, 0, byte(100 + i)}), 80).String())
	}
	text := strings.Replace(file, "198.18.0.80:80, 198.18.0.81:80", strings.Join(listen, ", "), 1)
	c := loadWhole(t, text+common+"}")
	z := Make(c, 1, allBut(), nil)
	for _, tt := range []struct {
		name  string
		q     *dns.Msg
		udp   bool
		limit int
		tc    bool
	}{
		{"plain", asks("www.lb.example.", dns.TypeA), true, 512, true},
		{"EDNS says less than may be", asks("www.lb.example.", dns.TypeA, edns(100)), true, 512, true},
		{"EDNS says more than is sent", asks("www.lb.example.", dns.TypeA, edns(65535)), true, maxUDP, true},
		{"TCP", asks("www.lb.example.", dns.TypeA), false, 65535, false},
	} {
		r := Reply(z, tt.q, tt.udp)
		b, err := r.Pack()
		if err != nil || len(b) > tt.limit || r.Truncated != tt.tc || !tt.tc && len(r.Answer) != 101 {
			t.Errorf("%s: %d bytes, truncated %v, %d records: %v", tt.name, len(b), r.Truncated, len(r.Answer), err)
		}
	}
}

func TestNextSerial(t *testing.T) {
	at := time.Unix(1_800_000_000, 0)
	for _, tt := range []struct {
		name  string
		last  uint32
		known bool
		want  uint32
	}{
		{"the first", 0, false, 1_800_000_000},
		{"older than the clock", 1_700_000_000, true, 1_800_000_000},
		{"twice in a second", 1_800_000_000, true, 1_800_000_001},
		{"ahead of the clock", 1_800_000_500, true, 1_800_000_501},
		{"ahead by more than half the numbers is behind", 4_200_000_000, true, 1_800_000_000},
	} {
		if got := nextSerial(tt.last, tt.known, at); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
	if got := nextSerial(1<<32-1, true, time.Unix(1<<32-1, 0)); got != 1 {
		t.Errorf("after the last number: %d", got)
	}
}

func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "lb.zone")
	for _, text := range []string{"one\n", "another\n"} {
		if err := writeFile(name, text); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(name)
		if st, e := os.Stat(name); err != nil || e != nil || string(got) != text || st.Mode().Perm() != 0o644 {
			t.Errorf("%q, %v, %v", got, err, e)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "taken"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := writeFile(filepath.Join(dir, "taken"), "x"); err == nil {
		t.Error("a directory was replaced")
	}
	if list, _ := os.ReadDir(dir); len(list) != 2 {
		t.Errorf("left behind: %v", list)
	}
	if _, ok, err := readSerial(filepath.Join(dir, "none")); ok || err != nil {
		t.Errorf("no file: %v %v", ok, err)
	}
	if _, _, err := readSerial(name); err == nil {
		t.Error("a file without a zone has a serial number")
	}
}

func TestLimiter(t *testing.T) {
	var c counters
	l := &limiter{key: [2]uint64{1, 2}, counts: &c}
	count := func(from string, n int, now time.Duration) (got [3]int) {
		for range n {
			got[l.allow(netip.MustParseAddr(from), now)]++
		}
		return got
	}
	for _, tt := range []struct {
		name, from string
		n          int
		now        time.Duration
		want       [3]int
	}{
		{"at once", "192.0.2.1", 500, 0, [3]int{400, 50, 50}},
		{"the network is one client", "192.0.2.200", 2, 0, [3]int{0, 1, 1}},
		{"in IPv6 form too", "::ffff:192.0.2.200", 2, 0, [3]int{0, 1, 1}},
		{"another network", "192.0.3.1", 400, 0, [3]int{400, 0, 0}},
		{"an IPv6 network", "2001:db8:0:1::1", 400, 0, [3]int{400, 0, 0}},
		{"the same /56", "2001:db8:0:2::1", 2, 0, [3]int{0, 1, 1}},
		{"another /56", "2001:db8:0:102::1", 2, 0, [3]int{2, 0, 0}},
		{"half a second later", "192.0.2.1", 110, time.Second / 2, [3]int{100, 5, 5}},
		{"much later", "192.0.2.1", 402, time.Hour, [3]int{400, 1, 1}},
	} {
		if got := count(tt.from, tt.n, tt.now); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
	if c.slipped.Load() != c.limited.Load() || c.limited.Load() != 59 {
		t.Errorf("slipped %d, dropped %d", c.slipped.Load(), c.limited.Load())
	}
}

func TestHeardIn(t *testing.T) {
	q := asks("www._own.lb.example.", dns.TypeA)
	answer := func(change ...func(*dns.Msg)) *dns.Msg {
		r := new(dns.Msg)
		r.SetReply(q)
		r.Authoritative = true
		for _, s := range []string{"www._own.lb.example. 5 IN A 198.18.2.80", "other. 5 IN A 198.18.2.81", "www._own.lb.example. 5 IN AAAA 2001:db8::1"} {
			rr, err := dns.NewRR(s)
			if err != nil {
				t.Fatal(err)
			}
			r.Answer = append(r.Answer, rr)
		}
		for _, f := range change {
			f(r)
		}
		return r
	}
	for _, tt := range []struct {
		name string
		r    *dns.Msg
		want []netip.Addr
		ok   bool
	}{
		{"what was asked", answer(), addrs("198.18.2.80"), true},
		{"no such name", answer(func(r *dns.Msg) { r.Rcode = dns.RcodeNameError }), nil, true},
		{"not ready", answer(func(r *dns.Msg) { r.Rcode = dns.RcodeServerFailure }), nil, false},
		{"not the director", answer(func(r *dns.Msg) { r.Authoritative = false }), nil, false},
		{"another number", answer(func(r *dns.Msg) { r.Id++ }), nil, false},
		{"another question", answer(func(r *dns.Msg) { r.Question[0].Name = "x." }), nil, false},
		{"cut", answer(func(r *dns.Msg) { r.Truncated = true }), nil, false},
		{"a question", answer(func(r *dns.Msg) { r.Response = false }), nil, false},
	} {
		got, err := heardIn(q, tt.r)
		if diff := cmp.Diff(tt.want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" || (err == nil) != tt.ok {
			t.Errorf("%s: %v (-want +got):\n%s", tt.name, err, diff)
		}
	}
}

// FuzzQuestion sends hostile bytes as a datagram and on a connection. Whatever comes in, an answer is a message, is no
// longer than it may be, and is none of a question.
func FuzzQuestion(f *testing.F) {
	z := Make(load(f, peered), 7, allBut("web6"), nil)
	for _, q := range []*dns.Msg{
		asks("www.lb.example.", dns.TypeA), asks("www.lb.example.", dns.TypeAAAA, edns(4096)), asks("lb.example.", dns.TypeAXFR),
		asks("lb.example.", dns.TypeANY, edns(0)), asks("nope.lb.example.", dns.TypeMX), {},
	} {
		b, err := q.Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		f.Add(b[:len(b)-1])
	}
	at := time.Unix(1_800_000_000, 0)
	s := New(Config{Now: func() time.Time { at = at.Add(time.Second); return at }})
	s.cfg = load(f, common+", transfer: [127.0.0.0/8]}")
	s.zone.Store(z)
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) > maxQuestion {
			return
		}
		before := bytes.Clone(in)
		check := func(b []byte, limit int) {
			if b == nil {
				return
			}
			var r dns.Msg
			if err := r.Unpack(b); err != nil || len(b) > limit || !r.Response || len(in) < headerBytes || in[2]&0x80 != 0 || r.Id != uint16(in[0])<<8|uint16(in[1]) {
				t.Fatalf("%d bytes, %v: %v", len(b), err, &r)
			}
		}
		check(s.datagram(in, netip.MustParseAddrPort("192.0.2.1:53"), make([]byte, maxUDP)), maxUDP)
		if len(in) >= headerBytes {
			for _, r := range s.stream(in, netip.MustParseAddr("127.0.0.1")) {
				check(s.pack(r, nil), dns.MaxMsgSize)
			}
		}
		if !bytes.Equal(before, in) {
			t.Fatal("the question was changed")
		}
	})
}

// FuzzSerial reads hostile zone files.
func FuzzSerial(f *testing.F) {
	f.Add([]byte(Make(load(f, peered), 7, allBut(), nil).String()))
	for _, s := range []string{"", ". SOA a b (1 2 3 4 5)", "$INCLUDE /etc/passwd\n", "$GENERATE 0-2147483647 a$ A 192.0.2.1\n. SOA a b 1 2 3 4 5", "$ORIGIN x\n@ 5 IN SOA a b 4294967296 1 1 1 1"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if _, err := parseSerial(bytes.NewReader(text)); err == nil && !bytes.Contains(bytes.ToUpper(text), []byte("SOA")) && !bytes.Contains(text, []byte("6")) {
			t.Fatal("a serial number without an SOA")
		}
	})
}
