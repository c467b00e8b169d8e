package daemon

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"splicenic/driver"
	"splicenic/regs"
	"splicenic/runtime/config"
	"splicenic/runtime/neighbour"
)

const wiring = `
emu: {client: mem, server: mem}
ports:
  client: {addresses: [198.18.0.1/24, 2001:db8:1::1/64], gateway: 198.18.0.254}
  server: {addresses: [198.18.1.1/24, 2001:db8:2::1/64]}
`

var plenty = Room{Listeners: 64, Services: 16, Groups: 16, Servers: 64, NextHops: 64, VIPs: 16, LocalAddresses: 16, Rules: 64, URLNodes: 4096, Slots: 64}

func parse(t testing.TB, text string) *config.Config {
	t.Helper()
	c, err := config.Load("t.yaml", []byte(wiring+text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func inputs(t testing.TB, text string) *Inputs {
	return &Inputs{Config: parse(t, text), Room: plenty, MTU: [2]uint16{1500, 1500}}
}

func TestPromise(t *testing.T) {
	const service = `
services: [{name: s, listen: ["%s"], default: g, routes: [{path: /x, to: h}]%s}]
groups:
  - {name: g, servers: [{address: "%s", profile: %s}]}
  - {name: h, servers: [{address: "%s", profile: %s}]}
`
	full := "{mss: 1460, wscale: 7, sack: true, timestamps: true}"
	for _, tt := range []struct {
		name    string
		a, b    string
		service string
		mtu     [2]uint16
		six     bool
		want    promise
	}{
		{"all keep the same", full, full, "", [2]uint16{1500, 1500}, false, promise{1460, 1440, 7, true, true, true, false}},
		{"the least MSS", full, "{mss: 1000, wscale: 7, sack: true, timestamps: true}", "", [2]uint16{1500, 1500}, false, promise{1000, 1440, 7, true, true, true, false}},
		{"the least scale", "{mss: 1460, wscale: 9}", "{mss: 1460, wscale: 2}", "", [2]uint16{1500, 1500}, false, promise{1460, 1440, 2, true, false, false, false}},
		{"scale of zero", "{wscale: 0}", "{wscale: 9}", "", [2]uint16{1500, 1500}, false, promise{536, 1440, 0, true, false, false, false}},
		{"one without a scale", full, "{mss: 1460, sack: true, timestamps: true}", "", [2]uint16{1500, 1500}, false, promise{1460, 1440, 0, false, true, true, false}},
		{"one without SACK", full, "{mss: 1460, wscale: 7, timestamps: true}", "", [2]uint16{1500, 1500}, false, promise{1460, 1440, 7, true, false, true, false}},
		{"nothing said", "{}", full, "", [2]uint16{1500, 1500}, false, promise{536, 1440, 0, false, false, false, false}},
		{"MTU of the server port", full, full, "", [2]uint16{9000, 1400}, false, promise{1360, 1340, 7, true, true, true, false}},
		{"jumbo", "{mss: 8960}", "{mss: 8960}", "", [2]uint16{9000, 9000}, false, promise{8960, 8940, 0, false, false, false, false}},
		{"override", full, full, ", mss: 1200", [2]uint16{1500, 1500}, false, promise{1200, 1200, 7, true, true, true, false}},
		{"override clamped", full, full, ", mss: 9000", [2]uint16{1500, 1500}, false, promise{1460, 1440, 7, true, true, true, false}},
		{"IPv6", full, full, "", [2]uint16{1500, 1500}, true, promise{1460, 1440, 7, true, true, true, false}},
		{"IPv6, nothing said", "{}", "{}", "", [2]uint16{1500, 1500}, true, promise{1460, 1220, 0, false, false, false, false}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			vip, a, b := "198.18.0.80:80", "198.18.1.11:80", "198.18.1.12:80"
			if tt.six {
				vip, a, b = "[2001:db8:1::80]:80", "[2001:db8:2::11]:80", "[2001:db8:2::12]:80"
			}
			c := parse(t, fmt.Sprintf(service, vip, tt.service, a, tt.a, b, tt.b))
			if got := promised(&Inputs{Config: c, MTU: tt.mtu}, &c.Services[0]); got != tt.want {
				t.Errorf("promise %+v, want %+v", got, tt.want)
			}
		})
	}
	t.Run("without a profile", func(t *testing.T) {
		c := parse(t, strings.ReplaceAll(fmt.Sprintf(service, "198.18.0.80:80", "", "198.18.1.11:80", "X", "198.18.1.12:80", "X"), ", profile: X", ""))
		if got := promised(&Inputs{Config: c, MTU: [2]uint16{1500, 1500}}, &c.Services[0]); got != (promise{mss4: 536, mss6: 1440}) {
			t.Errorf("promise %+v", got)
		}
	})
}

// TestPolicies: what a service promises by its policies and by what was learned of its servers. Each profile is that of
// one server; the zero one is of a server that nothing is known of.
func TestPolicies(t *testing.T) {
	all := config.Profile{Known: true, MSS: 1460, WScale: 7, WScaleOn: true, SACK: true, Timestamps: true, ECN: true}
	with := func(f func(*config.Profile)) config.Profile { p := all; f(&p); return p }
	bare := config.Profile{Known: true, MSS: 1460}
	for _, tt := range []struct {
		name     string
		service  string
		profiles []config.Profile
		want     promise
	}{
		{"learned", "", []config.Profile{all, all}, promise{1460, 1440, 7, true, true, true, true}},
		{"one unknown", "", []config.Profile{all, {}}, promise{536, 1440, 0, false, false, false, false}},
		{"MSS known alone", "", []config.Profile{{MSS: 1400}, {MSS: 1300}}, promise{1300, 1440, 0, false, false, false, false}},
		{"unknown, MSS said", "mss: 1300", []config.Profile{{}, {}}, promise{1300, 1300, 0, false, false, false, false}},
		{"MSS said, less kept", "mss: 1300", []config.Profile{{MSS: 1000}, {}}, promise{1000, 1300, 0, false, false, false, false}},
		{"MSS rewritten", "mss: rewrite", []config.Profile{all, {}}, promise{1460, 1440, 0, false, false, false, false}},
		{"MSS rewritten, less kept", "mss: rewrite", []config.Profile{{MSS: 1000}, {}}, promise{1000, 1440, 0, false, false, false, false}},
		{"MSS stripped", "mss: strip", []config.Profile{all, all}, promise{536, 1220, 7, true, true, true, true}},
		{"nonsense of an MSS", "", []config.Profile{all, with(func(p *config.Profile) { p.MSS = 1 })}, promise{64, 1440, 7, true, true, true, true}},
		{"shift of 14", "", []config.Profile{with(func(p *config.Profile) { p.WScale = 14 })}, promise{1460, 1440, 13, true, true, true, true}},
		{"scale preserved", "wscale: preserve", []config.Profile{all, bare}, promise{1460, 1440, 0, false, false, false, false}},
		{"scale rewritten", "wscale: rewrite", []config.Profile{all, bare}, promise{1460, 1440, 0, true, false, false, false}},
		{"scale rewritten, all keep it", "wscale: rewrite", []config.Profile{all, all}, promise{1460, 1440, 7, true, true, true, true}},
		{"scale rewritten, unknown", "wscale: rewrite", []config.Profile{{}}, promise{536, 1440, 0, true, false, false, false}},
		{"scale stripped", "wscale: strip", []config.Profile{all}, promise{1460, 1440, 0, false, true, true, true}},
		{"SACK preserved", "sack: preserve", []config.Profile{all, with(func(p *config.Profile) { p.SACK = false })}, promise{1460, 1440, 7, true, false, true, true}},
		{"SACK rewritten", "sack: rewrite", []config.Profile{all, with(func(p *config.Profile) { p.SACK = false })}, promise{1460, 1440, 7, true, true, true, true}},
		{"SACK rewritten, unknown", "sack: rewrite", []config.Profile{{}}, promise{536, 1440, 0, false, true, false, false}},
		{"SACK stripped", "sack: strip", []config.Profile{all}, promise{1460, 1440, 7, true, false, true, true}},
		{"timestamps preserved", "", []config.Profile{all, with(func(p *config.Profile) { p.Timestamps = false })}, promise{1460, 1440, 7, true, true, false, true}},
		{"timestamps rewritten", "timestamps: rewrite", []config.Profile{all, with(func(p *config.Profile) { p.Timestamps = false })}, promise{1460, 1440, 7, true, true, false, true}},
		{"timestamps rewritten, unknown", "timestamps: rewrite", []config.Profile{all, {}}, promise{536, 1440, 0, false, false, true, false}},
		{"timestamps stripped", "timestamps: strip", []config.Profile{all}, promise{1460, 1440, 7, true, true, false, true}},
		{"ECN preserved", "", []config.Profile{all, with(func(p *config.Profile) { p.ECN = false })}, promise{1460, 1440, 7, true, true, true, false}},
		{"ECN stripped", "ecn: strip", []config.Profile{all}, promise{1460, 1440, 7, true, true, true, false}},
		{"all rewritten, nothing known", "mss: rewrite, wscale: rewrite, sack: rewrite, timestamps: rewrite", []config.Profile{{}, {}}, promise{1460, 1440, 0, true, true, true, false}},
		{"all stripped", "mss: strip, wscale: strip, sack: strip, timestamps: strip, ecn: strip", []config.Profile{all}, promise{536, 1220, 0, false, false, false, false}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := inputs(t, "\nservices: [{name: s, listen: [198.18.0.80:80], default: g, "+tt.service+"}]\ngroups: [{name: g, servers: [{address: 198.18.1.11:80}, {address: 198.18.1.12:80}]}]\n")
			in.Config.Groups[0].Servers = in.Config.Groups[0].Servers[:len(tt.profiles)]
			in.Profiles = map[netip.AddrPort]config.Profile{}
			for i, p := range tt.profiles {
				in.Profiles[in.Config.Groups[0].Servers[i].Addr] = p
			}
			if got := promised(in, &in.Config.Services[0]); got != tt.want {
				t.Errorf("promise %+v, want %+v", got, tt.want)
			}
		})
	}
}

// TestProfileOverrides: what the configuration says of a server counts, whatever was learned.
func TestProfileOverrides(t *testing.T) {
	in := inputs(t, `
services: [{name: s, listen: [198.18.0.80:80], default: g}]
groups: [{name: g, servers: [{address: 198.18.1.11:80, profile: {mss: 1000, ecn: true}}]}]
`)
	addr := in.Config.Groups[0].Servers[0].Addr
	in.Profiles = map[netip.AddrPort]config.Profile{addr: {Known: true, MSS: 1460, WScale: 7, WScaleOn: true, SACK: true, Timestamps: true}}
	im, err := images(in, &indexes{}, &held{})
	if err != nil {
		t.Fatal(err)
	}
	var s regs.ServerEntry
	var v regs.ServiceEntry
	s.Decode(im.servers)
	v.Decode(im.services)
	if s.ProfileKnown != 1 || s.ProfileMss != 1000 || s.ProfileEcn != 1 || s.ProfileSack != 0 || v.PromiseMssIpv4 != 1000 || v.PromiseEcn != 1 || v.PromiseSack != 0 {
		t.Errorf("server %+v, service %+v", s, v)
	}
}

const two = `
services:
  - {name: a, listen: [198.18.0.80:80, 198.18.0.81:8080], default: g, isn: address, defence: off, timeouts: {idle: 5s, wait_head: 1s, reset: false}}
  - {name: b, listen: [198.18.0.81:80], routes: [{host: x, path: /y/*, to: h}]}
groups:
  - {name: g, servers: [{address: 198.18.1.11:80, weight: 2}, {address: 203.0.113.5:80}]}
  - {name: h, scheduler: rr, servers: [{address: 198.18.1.11:80, weight: 9}, {address: 198.18.1.12:80, weight: 0}]}
`

func TestImage(t *testing.T) {
	in := inputs(t, two)
	mac := neighbour.MAC{2, 0, 0, 0, 1, 0xfe}
	in.Neighbours = map[config.Hop]neighbour.MAC{{Port: 0, Neighbor: netip.MustParseAddr("198.18.0.254")}: mac}
	im, err := images(in, &indexes{}, &held{})
	if err != nil {
		t.Fatal(err)
	}
	var services []regs.ServiceEntry
	for i := 0; i < len(im.services); i += regs.ServiceWords {
		var e regs.ServiceEntry
		e.Decode(im.services[i:])
		services = append(services, e)
	}
	want := []regs.ServiceEntry{
		{ControlValid: 1, ControlIdleSilent: 1, ControlIsn: regs.ServiceControlIsnAddress, ControlHasDefault: 1, PromiseMssIpv4: 536, PromiseMssIpv6: 1440, Idle: 5000, WaitHead: 1000},
		{ControlValid: 1, ControlDefence: regs.ServiceControlDefenceAuto, PromiseMssIpv4: 536, PromiseMssIpv6: 1440, UrlRoot: services[1].UrlRoot},
	}
	if diff := cmp.Diff(want, services); diff != "" {
		t.Errorf("services (-want +got):\n%s", diff)
	}
	var listeners []regs.ListenerEntry
	for i := 0; i < len(im.listeners); i += regs.ListenerWords {
		var e regs.ListenerEntry
		e.Decode(im.listeners[i:])
		listeners = append(listeners, e)
	}
	if diff := cmp.Diff([]regs.ListenerEntry{
		{ControlValid: 1, ControlProtocol: 6, ControlPort: 80, IndexVip: 0, IndexService: 0},
		{ControlValid: 1, ControlProtocol: 6, ControlPort: 8080, IndexVip: 1, IndexService: 0},
		{ControlValid: 1, ControlProtocol: 6, ControlPort: 80, IndexVip: 1, IndexService: 1},
	}, listeners); diff != "" {
		t.Errorf("listeners (-want +got):\n%s", diff)
	}
	var servers []string
	for i := 0; i < len(im.servers); i += regs.ServerWords {
		var e regs.ServerEntry
		var h regs.NextHopEntry
		e.Decode(im.servers[i:])
		h.Decode(im.hops[e.RouteNextHop*regs.NextHopWords:])
		servers = append(servers, fmt.Sprintf("%d %v:%d port %d resolved %d %x", e.ControlValid, driver.Address(e.ControlKind, e.Address), e.ControlPort, h.ControlPort, h.ControlResolved, driver.MAC(h.MacLo, h.MacHiAddress)))
	}
	if diff := cmp.Diff([]string{
		"1 198.18.1.11:80 port 1 resolved 0 000000000000",
		"1 203.0.113.5:80 port 0 resolved 1 0200000001fe",
		"1 198.18.1.12:80 port 1 resolved 0 000000000000",
	}, servers); diff != "" {
		t.Errorf("servers (-want +got):\n%s", diff)
	}
	slot := func(i uint32) uint32 { return regs.SetSlotSlotValid(i, 1) }
	if diff := cmp.Diff([][]uint32{{slot(0), slot(0), slot(1)}, {slot(0)}}, [][]uint32{im.slots[0], im.slots[1]}); diff != "" {
		t.Errorf("slots (-want +got):\n%s", diff)
	}
}

// TestServiceFields: what the card is told of a service beside its routes.
func TestServiceFields(t *testing.T) {
	const (
		splice = regs.ServiceControlModeSplice
		http   = regs.ServiceControlProtocolHttp
		tls    = regs.ServiceControlProtocolTls
		tcp    = regs.ServiceControlProtocolTcp
	)
	for _, tt := range []struct {
		service string
		want    regs.ServiceEntry
	}{
		{"default: g", regs.ServiceEntry{ControlProtocol: http, ControlHasDefault: 1}},
		{"default: {reply: {status: 404}}", regs.ServiceEntry{ControlProtocol: http}},
		{"protocol: tls, default: g", regs.ServiceEntry{ControlProtocol: tls, ControlHasDefault: 1}},
		{"protocol: tcp, default: g, server_first: true", regs.ServiceEntry{ControlProtocol: tcp, ControlHasDefault: 1, ControlServerFirst: 1}},
		{"default: g, fallback: 1500ms", regs.ServiceEntry{ControlProtocol: http, ControlHasDefault: 1, Fallback: 1500}},
		{"routes: [{protocol: h2c, to: h}], default: g", regs.ServiceEntry{ControlProtocol: http, ControlHasDefault: 1, ControlHasH2c: 1, H2cGroup: 1}},
		{"default: g, requests: close", regs.ServiceEntry{ControlProtocol: http, ControlHasDefault: 1, ControlRewrite: 1}},
		{"default: g, forwarded: forwarded", regs.ServiceEntry{ControlProtocol: http, ControlHasDefault: 1, ControlRewrite: 1}},
		{"protocol: tls, default: g, proxy: v2", regs.ServiceEntry{ControlProtocol: tls, ControlHasDefault: 1, ControlRewrite: 1}},
		{"protocol: tcp, default: g, proxy: v2, server_first: false", regs.ServiceEntry{ControlProtocol: tcp, ControlHasDefault: 1, ControlRewrite: 1}},
		{"default: g, limits: {target: 100}", regs.ServiceEntry{ControlProtocol: http, ControlHasDefault: 1, ControlRewrite: 1}},
		{"protocol: tls, default: g, limits: {head: 1000}", regs.ServiceEntry{ControlProtocol: tls, ControlHasDefault: 1, ControlRewrite: 1}},
		{"default: g, limits: {head: 65536}", regs.ServiceEntry{ControlProtocol: http, ControlHasDefault: 1}},
	} {
		im, err := images(inputs(t, `
services: [{name: s, listen: ["198.18.0.80:80"], `+tt.service+`}]
groups:
  - {name: g, servers: [{address: "198.18.1.11:80"}]}
  - {name: h, servers: [{address: "198.18.1.12:80"}]}
`), &indexes{}, &held{})
		if err != nil {
			t.Errorf("%s: %v", tt.service, err)
			continue
		}
		var got regs.ServiceEntry
		got.Decode(im.services)
		want := tt.want
		want.ControlValid, want.ControlMode, want.ControlDefence = 1, splice, got.ControlDefence
		want.PromiseMssIpv4, want.PromiseMssIpv6, want.UrlRoot = got.PromiseMssIpv4, got.PromiseMssIpv6, got.UrlRoot
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.service, diff)
		}
	}
}

func TestHealthAndOperator(t *testing.T) {
	in := inputs(t, two)
	in.Down = map[netip.AddrPort]bool{netip.MustParseAddrPort("198.18.1.11:80"): true}
	in.Weights = map[netip.AddrPort]uint16{netip.MustParseAddrPort("198.18.1.12:80"): 1}
	im, err := images(in, &indexes{}, &held{})
	if err != nil {
		t.Fatal(err)
	}
	slot := func(i uint32) uint32 { return regs.SetSlotSlotValid(i, 1) }
	if diff := cmp.Diff([][]uint32{{slot(1)}, {slot(2)}}, [][]uint32{im.slots[0], im.slots[1]}); diff != "" {
		t.Errorf("slots (-want +got):\n%s", diff)
	}
}

func TestImagesIsPure(t *testing.T) {
	in := inputs(t, two)
	first, err := images(in, &indexes{}, &held{})
	if err != nil {
		t.Fatal(err)
	}
	old := first.ix
	for range 5 {
		a, err := images(in, &old, &held{})
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range []struct{ a, b table }{{a.url, first.url}, {a.rules, first.rules}, {a.listeners, first.listeners}, {a.services, first.services}, {a.groups, first.groups}, {a.vips, first.vips}, {a.servers, first.servers}, {a.hops, first.hops}} {
			if !slices.Equal(x.a, x.b) {
				t.Fatal("the same input gave another image")
			}
		}
	}
}

// TestNothingIsRenumbered makes random changes one after another: what stays keeps its index, and no index has two
// meanings while the card may name it.
func TestNothingIsRenumbered(t *testing.T) {
	rnd := rand.New(rand.NewPCG(9, 9))
	old := indexes{}
	var last map[string]uint32
	for round := range 300 {
		var services, groups strings.Builder
		order := rnd.Perm(6)
		for _, g := range order[:1+rnd.IntN(6)] {
			fmt.Fprintf(&services, "  - {name: s%d, listen: [\"198.18.0.%d:80\"], default: g%d, routes: [{path: /%d/*, to: g%d}]}\n", g, 80+g, g, rnd.IntN(4), g)
			fmt.Fprintf(&groups, "  - name: g%d\n    servers:\n", g)
			for _, s := range rnd.Perm(8)[:1+rnd.IntN(4)] {
				fmt.Fprintf(&groups, "      - {address: 198.18.1.%d:80}\n", 10+8*g+s)
			}
		}
		in := inputs(t, "services:\n"+services.String()+"groups:\n"+groups.String())
		busy := map[uint32]bool{}
		for range 10 {
			busy[uint32(rnd.IntN(64))] = true
		}
		keep := &held{servers: func(i uint32) bool { return busy[i] }}
		im, err := images(in, &old, keep)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		now := map[string]uint32{}
		taken := map[string]string{}
		note := func(kind, name string, index uint32) {
			now[kind+name] = index
			place := fmt.Sprint(kind, index)
			if other, ok := taken[place]; ok {
				t.Fatalf("round %d: %s %d is both %s and %s", round, kind, index, other, name)
			}
			taken[place] = name
		}
		for _, n := range im.ix.services.Used() {
			note("service", n.Name, n.Index)
		}
		for _, n := range im.ix.groups.Used() {
			note("group", n.Name, n.Index)
		}
		for _, n := range im.ix.vips.Used() {
			note("vip", n.Name, n.Index)
		}
		for _, n := range im.ix.rules.Used() {
			note("rule", n.Name, n.Index)
		}
		for i, p := range im.ix.serverAt {
			note("server", p.addr.String(), i)
		}
		for name, i := range last {
			if j, ok := now[name]; ok && i != j {
				t.Fatalf("round %d: %s moved from %d to %d", round, name, i, j)
			}
		}
		for _, n := range old.servers.Retired() {
			if p, there := old.serverAt[n.Index]; there && busy[n.Index] {
				if q, still := im.ix.serverAt[n.Index]; !still || q.addr != p.addr {
					t.Fatalf("round %d: server %v at %d is in use and was dropped", round, p.addr, n.Index)
				}
			}
		}
		last, old = now, im.ix
	}
}

// fake is a card's tables in memory that can be told to fail.
type fake struct {
	memories   map[int]*driver.Memory
	words      map[uint64]uint32
	bank       uint32
	generation uint32
	switches   int
	log        []string
	fail       func(op, memory string) error
	corrupt    string // memory whose words read back wrong
}

func newFake() *fake { return newFakeOf(plenty) }

func newFakeOf(r Room) *fake {
	f := &fake{memories: map[int]*driver.Memory{}, words: map[uint64]uint32{}}
	sizes := map[int]uint32{
		regs.MemListener: r.Listeners, regs.MemService: r.Services, regs.MemGroup: r.Groups, regs.MemServer: r.Servers, regs.MemNextHop: r.NextHops,
		regs.MemVip: r.VIPs, regs.MemRule: r.Rules, regs.MemUrl: r.URLNodes, regs.MemSlot: 2 * r.Groups * r.Slots, regs.MemGroupState: r.Groups,
		regs.MemLocalAddress: r.LocalAddresses, regs.MemServerState: r.Servers, regs.MemLocalPort: 1024,
	}
	for i, n := range sizes {
		f.memories[i] = &driver.Memory{Memory: regs.Memories[i], Entries: n}
	}
	return f
}

func (f *fake) Memory(i int) *driver.Memory { return f.memories[i] }

// name finds the memory of an offset.
func (f *fake) name(off uint64) string {
	for i := range regs.Memories {
		if m := &regs.Memories[i]; off >= m.Offset && off < m.Offset+m.Bytes() {
			return m.Name
		}
	}
	return "?"
}

func (f *fake) do(op string, off uint64) error {
	if f.fail != nil {
		return f.fail(op, f.name(off))
	}
	return nil
}

func (f *fake) WriteTable(_ context.Context, off uint64, words []uint32) error {
	if err := f.do("write", off); err != nil {
		return err
	}
	f.log = append(f.log, fmt.Sprintf("%s+%d:%d", f.name(off), off%(1<<20)/4, len(words)))
	for i, w := range words {
		f.words[off+4*uint64(i)] = w
	}
	return nil
}

func (f *fake) ReadTable(_ context.Context, off uint64, words []uint32) error {
	if err := f.do("read", off); err != nil {
		return err
	}
	for i := range words {
		words[i] = f.words[off+4*uint64(i)]
		if f.name(off) == f.corrupt {
			words[i] ^= 0x100
		}
	}
	return nil
}

func (f *fake) WaitBankIdle(context.Context, uint32) error { return f.do("wait", regs.MemUrlOffset) }

func (f *fake) SwitchBank(bank, generation uint32) error {
	if err := f.do("switch", regs.MemUrlOffset); err != nil {
		return err
	}
	f.bank, f.generation = bank, generation
	f.switches++
	f.log = append(f.log, "switch")
	return nil
}

// holds compares the fake card with an image.
func (f *fake) holds(t *testing.T, im *Image) {
	t.Helper()
	compare := func(index int, bank uint32, want table) {
		m := f.memories[index]
		start, _ := m.At(bank, 0)
		for i := range int(m.Entries * m.EntryBytes / 4) {
			w := uint32(0)
			if i < len(want) {
				w = want[i]
			}
			if got := f.words[start+4*uint64(i)]; got != w {
				t.Errorf("%s word %d is %#x, want %#x", m.Name, i, got, w)
				return
			}
		}
	}
	for _, b := range im.banked() {
		compare(b.index, f.bank, b.want)
	}
	compare(regs.MemServer, 0, im.servers)
	compare(regs.MemVip, 0, im.vips)
	compare(regs.MemNextHop, 0, im.hops)
	for g := range plenty.Groups {
		at, _ := f.memories[regs.MemGroupState].At(0, g)
		var s regs.GroupStateEntry
		s.Decode([]uint32{f.words[at], 0, 0, 0})
		count := [2]uint32{s.SelectorCountA, s.SelectorCountB}[s.SelectorArea]
		var want []uint32
		if int(g) < len(im.slots) {
			want = im.slots[g]
		}
		var got []uint32
		for i := range count {
			a, _ := f.memories[regs.MemSlot].At(0, (2*g+s.SelectorArea)*plenty.Slots+i)
			got = append(got, f.words[a])
		}
		if !slices.Equal(got, want) {
			t.Errorf("group %d has slots %#x, want %#x", g, got, want)
		}
	}
}

const three = `
services:
  - {name: a, listen: [198.18.0.80:80], default: g}
  - {name: c, listen: [198.18.0.82:80], routes: [{path: /z, to: k}]}
groups:
  - {name: g, servers: [{address: 198.18.1.11:80}, {address: 198.18.1.13:80, weight: 5}]}
  - {name: k, servers: [{address: 198.18.1.14:80}]}
`

func TestWriterBringsTheCardToTheImage(t *testing.T) {
	f := newFake()
	w := newWriter(f)
	ix := indexes{}
	for i, text := range []string{two, three, two, three, three} {
		free := &held{servers: func(uint32) bool { return i%2 == 0 }}
		im, err := images(inputs(t, text), &ix, free)
		if err != nil {
			t.Fatal(err)
		}
		f.log = nil
		before := f.switches
		if err := w.write(context.Background(), im); err != nil {
			t.Fatal(err)
		}
		f.holds(t, im)
		if changed := i != 4; (f.switches != before) != changed {
			t.Errorf("step %d: %d switches", i, f.switches-before)
		}
		ix = im.ix
	}
}

// TestWriterOrder: what is new is there before the bank switch, what is old goes after it.
func TestWriterOrder(t *testing.T) {
	f := newFake()
	w := newWriter(f)
	a, err := images(inputs(t, two), &indexes{}, &held{})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.write(context.Background(), a); err != nil {
		t.Fatal(err)
	}
	b, err := images(inputs(t, three), &a.ix, &held{})
	if err != nil {
		t.Fatal(err)
	}
	f.log = nil
	if err := w.write(context.Background(), b); err != nil {
		t.Fatal(err)
	}
	at := slices.Index(f.log, "switch")
	var before, after []string
	for i, l := range f.log {
		name, _, _ := strings.Cut(l, "+")
		switch {
		case i < at && !slices.Contains(before, name):
			before = append(before, name)
		case i > at && !slices.Contains(after, name):
			after = append(after, name)
		}
	}
	if diff := cmp.Diff([]string{"next_hop", "server", "url", "rule", "listener", "service", "group", "slot", "vip", "group_state"}, before); diff != "" {
		t.Errorf("before the switch (-want +got):\n%s", diff)
	}
	// Group h is empty now, its servers are closed. Its VIP stays: it is held.
	if diff := cmp.Diff([]string{"group_state", "server"}, after); diff != "" {
		t.Errorf("after the switch (-want +got):\n%s", diff)
	}
}

// TestWriterFails: whatever goes wrong before the switch, the bank in force stays, and the next attempt repairs it.
func TestWriterFails(t *testing.T) {
	boom := errors.New("boom")
	memories := []string{"next_hop", "server", "url", "listener", "service", "slot", "vip"}
	for _, op := range []string{"write", "read", "corrupt", "wait", "switch"} {
		for _, m := range memories {
			t.Run(op+" "+m, func(t *testing.T) {
				f := newFake()
				w := newWriter(f)
				a, err := images(inputs(t, two), &indexes{}, &held{})
				if err != nil {
					t.Fatal(err)
				}
				if err := w.write(context.Background(), a); err != nil {
					t.Fatal(err)
				}
				bank := f.bank
				if op == "corrupt" {
					f.corrupt = m
				} else {
					f.fail = func(o, name string) error {
						if o == op && (name == m || o == "wait" || o == "switch") {
							return boom
						}
						return nil
					}
				}
				b, err := images(inputs(t, three), &a.ix, &held{})
				if err != nil {
					t.Fatal(err)
				}
				err = w.write(context.Background(), b)
				if err == nil || op != "corrupt" && !errors.Is(err, boom) || op == "corrupt" && !strings.Contains(err.Error(), "read back table "+m) {
					t.Errorf("error %v", err)
				}
				if f.bank != bank {
					t.Error("the bank was switched")
				}
				f.fail, f.corrupt = nil, ""
				// Another configuration than the failed one comes next, from the indexes that are in force.
				c, err := images(inputs(t, strings.Replace(three, "198.18.1.14", "198.18.1.99", 1)), &a.ix, &held{})
				if err != nil {
					t.Fatal(err)
				}
				if err := w.write(context.Background(), c); err != nil {
					t.Fatal(err)
				}
				f.holds(t, c)
			})
		}
	}
}

// TestRekey: an entry whose key changes is invalid while it does.
func TestRekey(t *testing.T) {
	f := newFake()
	w := newWriter(f)
	m := memory{regs.MemNextHop, 0}
	hop := func(mac byte) table {
		var e regs.NextHopEntry
		e.ControlValid, e.ControlResolved, e.MacLo, e.MacHiAddress = 1, 1, uint32(mac), uint32(mac)
		t := make(table, regs.NextHopWords)
		e.Encode(t)
		return t
	}
	if err := w.put(context.Background(), m, hop(1)); err != nil {
		t.Fatal(err)
	}
	f.log = nil
	if err := w.put(context.Background(), m, hop(2)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"next_hop+0:1", "next_hop+1:2", "next_hop+0:1"}, f.log); diff != "" {
		t.Errorf("stores (-want +got):\n%s", diff)
	}
}

func TestDifferences(t *testing.T) {
	long := make(table, 100)
	long[0], long[10], long[60], long[99] = 1, 1, 1, 1
	for _, tt := range []struct {
		name       string
		have, want table
		runs       []string
	}{
		{"nothing", table{1, 2}, table{1, 2, 0}, nil},
		{"one", table{1, 2}, table{1, 3}, []string{"1:1"}},
		{"shorter", table{1, 2, 3}, table{1}, []string{"1:2"}},
		{"near ones join, far ones do not", nil, long, []string{"0:11", "60:1", "99:1"}},
	} {
		var got []string
		for _, r := range differences(tt.have, tt.want) {
			got = append(got, fmt.Sprintf("%d:%d", r.at, len(r.words)))
		}
		if diff := cmp.Diff(tt.runs, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

func BenchmarkImages(b *testing.B) {
	var groups strings.Builder
	for i := range 50 {
		fmt.Fprintf(&groups, "      - {address: 198.18.1.%d:80, weight: %d}\n", 10+i, i%7+1)
	}
	in := inputs(b, "services: [{name: s, listen: [\"198.18.0.80:80\"], default: g}]\ngroups:\n  - name: g\n    servers:\n"+groups.String())
	in.Room.Slots = 1024
	b.ReportAllocs()
	for b.Loop() {
		if _, err := images(in, &indexes{}, &held{}); err != nil {
			b.Fatal(err)
		}
	}
}

// TestCompiledOnce: what changes around a configuration does not have its rules compiled again, and they come out as if
// it had.
func TestCompiledOnce(t *testing.T) {
	first := inputs(t, two)
	a, err := images(first, &indexes{}, &held{})
	if err != nil {
		t.Fatal(err)
	}
	in := *first
	in.MTU[1] = 1300 // of something that the rules do not depend on
	b, err := images(&in, &a.ix, &held{})
	if err != nil {
		t.Fatal(err)
	}
	if b.ix.compiled != a.ix.compiled {
		t.Error("compiled again")
	}
	fresh := a.ix
	fresh.compiled = nil
	c, err := images(&in, &fresh, &held{})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(b.url, c.url) || !slices.Equal(b.rules, c.rules) || !slices.Equal(b.services, c.services) || !slices.Equal(b.ix.rules.Names(), c.ix.rules.Names()) {
		t.Error("not what compiling again gives")
	}
	if d, err := images(inputs(t, three), &b.ix, &held{}); err != nil || d.ix.compiled == b.ix.compiled {
		t.Errorf("another configuration is not compiled: %v", err)
	}
}
