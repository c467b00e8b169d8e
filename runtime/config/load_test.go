package config

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml/lexer"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"splicenic/runtime/rule"
)

// good is a configuration with everything in it, line by line as the tests below count.
const good = `card: auto
emu: {client: eth1, server: eth2}
ports:
  client: {addresses: [198.18.0.1/24, {address: 2001:db8:1::1/64, vlan: 7}], gateway: [198.18.0.254, "2001:db8:1::fe"], forward: off}
  server:
    addresses:
      - 198.18.1.1/24
      - 2001:db8:2::1/64
    forward: routed
services:
  - name: web
    listen: [198.18.0.80:80]
    defence: off
    protocol: http
    isn: address
    mss: 1400
    timeouts: {idle: 2h, wait_head: 1.5s, reset: false}
    routes:
      - {host: IMG.example, path: /photos/*, to: static}
      - {path: /health, to: app}
      - {to: app}
  - name: six
    listen: ["[2001:db8:9::80]:80", "[2001:db8:9::81]:8080"]
    default: six
groups:
  - name: app
    scheduler: wrr
    method: nat
    profile: {mss: 1460, wscale: 7, sack: true, timestamps: true}
    servers:
      - {address: 198.18.1.11:8080, weight: 3}
      - {address: 198.18.1.12:8080, profile: {sack: true}, method: nat}
      - {address: 203.0.113.9:80, weight: 0}
  - {name: static, scheduler: rr, servers: [{address: 198.18.1.21:80}]}
  - {name: six, servers: [{address: "[2001:db8:2::11]:80"}]}
seed: 42
socket: /run/x.sock
defence: {rate_on: 5000, rate_off: 4000, source_rate: 100, source_burst: 9}
`

func load(t *testing.T, text string) *Config {
	t.Helper()
	c, err := Load("x.yaml", []byte(text))
	if err != nil {
		t.Fatalf("load: %v", err)
	}
	return c
}

func TestLoad(t *testing.T) {
	c := load(t, good)
	full := Profile{Known: true, MSS: 1460, WScale: 7, WScaleOn: true, SACK: true, Timestamps: true}
	want := &Config{
		File: "x.yaml", Text: good,
		Card: Card{Body: Auto},
		Emu:  Emu{Client: Wire{Kind: Interface, Name: "eth1"}, Server: Wire{Kind: Interface, Name: "eth2"}},
		Client: Port{
			Addresses: []Address{{Prefix: netip.MustParsePrefix("198.18.0.1/24")}, {Prefix: netip.MustParsePrefix("2001:db8:1::1/64"), VLAN: 7}},
			Gateways:  []Gateway{{Address: netip.MustParseAddr("198.18.0.254")}, {Address: netip.MustParseAddr("2001:db8:1::fe")}},
		},
		Server: Port{Addresses: []Address{{Prefix: netip.MustParsePrefix("198.18.1.1/24")}, {Prefix: netip.MustParsePrefix("2001:db8:2::1/64")}}, Forward: true},
		Services: []Service{
			{Name: "web", Listen: []Listen{{Addr: netip.MustParseAddrPort("198.18.0.80:80")}}, ISN: ByAddress, Defence: DefenceOff, MSS: 1400, Idle: 2 * time.Hour, WaitHead: 1500 * time.Millisecond, IdleSilent: true,
				Routes: []Route{
					{Match: rule.Match{Host: "img.example", Path: rule.Path{Kind: rule.PrefixPath, Text: "/photos"}}, To: Target{Group: "static"}},
					{Match: rule.Match{Path: rule.Path{Kind: rule.ExactPath, Text: "/health"}}, To: Target{Group: "app"}},
					{To: Target{Group: "app"}},
				}},
			{Name: "six", Listen: []Listen{{Addr: netip.MustParseAddrPort("[2001:db8:9::80]:80")}, {Addr: netip.MustParseAddrPort("[2001:db8:9::81]:8080")}}, Default: Target{Group: "six"}},
		},
		Groups: []Group{
			{Name: "app", Scheduler: WeightedRoundRobin, Servers: []Server{
				{Addr: netip.MustParseAddrPort("198.18.1.11:8080"), Weight: 3, Method: NAT, Profile: full},
				{Addr: netip.MustParseAddrPort("198.18.1.12:8080"), Weight: 1, Method: NAT, Profile: Profile{Known: true, SACK: true}},
				{Addr: netip.MustParseAddrPort("203.0.113.9:80"), Weight: 0, Method: NAT, Profile: full},
			}},
			{Name: "static", Scheduler: RoundRobin, Servers: []Server{{Addr: netip.MustParseAddrPort("198.18.1.21:80"), Weight: 1}}},
			{Name: "six", Scheduler: WeightedRoundRobin, Servers: []Server{{Addr: netip.MustParseAddrPort("[2001:db8:2::11]:80"), Weight: 1}}},
		},
		Seed: 42, Socket: "/run/x.sock", Defence: Pressure{RateOn: 5000, RateOff: 4000, SourceRate: 100, SourceBurst: 9},
	}
	if diff := cmp.Diff(want, c, cmpopts.IgnoreTypes(Position{}), cmpopts.IgnoreUnexported(Config{}, Route{}), cmpopts.IgnoreFields(Config{}, "Warnings"), cmpopts.EquateComparable(netip.Prefix{}, netip.Addr{}, netip.AddrPort{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := c.Groups[1].At; got.Line != 34 {
		t.Errorf("group static is at line %d, want 34", got.Line)
	}
}

// TestPolicies reads how options are treated.
func TestPolicies(t *testing.T) {
	for _, tt := range []struct {
		text string
		want Options
		mss  uint16
		warn string
	}{
		{"", Options{}, 0, ""},
		{"mss: preserve\n    wscale: preserve\n    sack: preserve\n    timestamps: preserve\n    ecn: preserve", Options{}, 0, ""},
		{"mss: rewrite\n    wscale: rewrite\n    sack: rewrite\n    timestamps: rewrite\n    ecn: strip", Options{Rewrite, Rewrite, Rewrite, Rewrite, Strip}, 0, ""},
		{"mss: strip\n    wscale: strip\n    sack: strip\n    timestamps: strip", Options{Strip, Strip, Strip, Strip, Preserve}, 0, ""},
		{"mss: 1400\n    wscale: strip", Options{WScale: Strip}, 1400, ""},
		{"timestamps: rewrite\n    routes: [{path: /x, to: bare}]", Options{Timestamps: Rewrite}, 0, "server 198.18.1.12:80 (line 14) sends no timestamps"},
		{"timestamps: preserve\n    routes: [{path: /x, to: bare}]", Options{}, 0, ""},
	} {
		text := strings.Replace(small, "    default: app\n", "    default: app\n    "+tt.text+"\n", 1) + "  - {name: bare, servers: [{address: 198.18.1.12:80, profile: {mss: 1460, ecn: true}}]}\n"
		c := load(t, text)
		if s := c.Services[0]; s.Options != tt.want || s.MSS != tt.mss {
			t.Errorf("%q: %+v, MSS %d", tt.text, s.Options, s.MSS)
		}
		var warnings []string
		for _, w := range c.Warnings {
			if !strings.Contains(w.Message, "no service uses") && !strings.HasSuffix(w.Key, ".requests") {
				warnings = append(warnings, w.String())
			}
		}
		if (tt.warn == "") != (len(warnings) == 0) || !strings.Contains(strings.Join(warnings, "\n"), tt.warn) {
			t.Errorf("%q: warnings %q, want %q", tt.text, warnings, tt.warn)
		}
		if g := c.Group("bare"); g.Servers[0].Profile != (Profile{Known: true, MSS: 1460, ECN: true}) {
			t.Errorf("profile %+v", g.Servers[0].Profile)
		}
	}
}

func TestRoute(t *testing.T) {
	c := load(t, good)
	for _, tt := range []struct {
		to   string
		want Hop
		ok   bool
	}{
		{"198.18.1.11", Hop{1, 0, netip.MustParseAddr("198.18.1.11")}, true},
		{"203.0.113.9", Hop{0, 0, netip.MustParseAddr("198.18.0.254")}, true},
		{"2001:db8:1::5", Hop{0, 7, netip.MustParseAddr("2001:db8:1::5")}, true},
		{"2001:db8:ffff::1", Hop{0, 7, netip.MustParseAddr("2001:db8:1::fe")}, true},
	} {
		got, ok := c.Route(netip.MustParseAddr(tt.to))
		if got != tt.want || ok != tt.ok {
			t.Errorf("route to %s: %+v %v, want %+v %v", tt.to, got, ok, tt.want, tt.ok)
		}
	}
}

// small is the least configuration; the tests below change a line of it.
const small = `emu: {client: eth1, server: eth2}
ports:
  client: {addresses: [198.18.0.1/24]}
  server: {addresses: [198.18.1.1/24]}
services:
  - name: web
    listen: [198.18.0.80:80]
    default: app
groups:
  - name: app
    servers: [{address: 198.18.1.11:80}]
`

// nested is a mapping in a mapping in a mapping.
func nested(depth int) string {
	var b strings.Builder
	for i := range depth {
		fmt.Fprintf(&b, ":\n%*sc", 4+i, "")
	}
	return b.String()
}

// pcaps is small with two pcap wires, each on a line of its own.
func pcaps(client, server string) string {
	return strings.Replace(small, "emu: {client: eth1, server: eth2}", "emu:\n  client: \"pcap:"+client+"\"\n  server: \"pcap:"+server+"\"", 1)
}

func TestProblems(t *testing.T) {
	replace := func(old, new string) string {
		if !strings.Contains(small, old) {
			t.Fatalf("%q is not in the configuration", old)
		}
		return strings.Replace(small, old, new, 1)
	}
	for _, tt := range []struct {
		name, text string
		want       string // in the error
		near       string
	}{
		{"unknown key", small + "sevices: []\n", "x.yaml:12:1: sevices: unknown key of the configuration", "services"},
		{"unknown key below", replace("listen:", "lisen:"), "x.yaml:7:5: services[0].lisen: unknown key of a service", "listen"},
		{"unknown key without a near one", small + "zzzzzzzz: 1\n", "zzzzzzzz: unknown key of the configuration; there is card, emu, ports, services, groups, defence, log, dns, seed, socket", ""},
		{"duplicate key", small + "emu: {client: eth3}\n", "x.yaml:12:1: emu: is given twice, first at line 1", ""},
		{"duplicate key in a flow", replace("{address: 198.18.1.11:80}", "{address: 198.18.1.11:80, address: 198.18.1.12:80}"), "x.yaml:11:41: groups[0].servers[0].address: is given twice", ""},
		{"no value", replace("    default: app", "    default:"), "x.yaml:8:5: services[0].default: has no value", ""},
		{"list wanted", replace("listen: [198.18.0.80:80]", "listen: 198.18.0.80:80"), `services[0].listen: wants a list, got "198.18.0.80:80": write [198.18.0.80:80]`, ""},
		{"mapping wanted", replace("{addresses: [198.18.0.1/24]}", "eth1"), `ports.client: wants a mapping (a port: addresses, gateway, forward, snat), got "eth1"`, ""},
		{"text wanted", replace("name: web", "name: 80"), "services[0].name: wants a name, got the number 80", ""},
		{"number wanted", replace("{address: 198.18.1.11:80}", "{address: 198.18.1.11:80, weight: heavy}"), `wants weight (0 to 65535), got "heavy"`, ""},
		{"number out of range", replace("{address: 198.18.1.11:80}", "{address: 198.18.1.11:80, weight: 65536}"), "weight is 65536", ""},
		{"number negative", replace("{address: 198.18.1.11:80}", "{address: 198.18.1.11:80, weight: -1}"), "weight is -1", ""},
		{"reset wanted", replace("    default: app", "    default: app\n    timeouts: {reset: never}"), `services[0].timeouts.reset: wants true or false, got "never"`, ""},
		{"boolean wanted", replace("    default: app", "    default: app\n") + "    profile: {sack: 1}\n", "wants true or false", ""},
		{"empty item", replace("[198.18.0.80:80]", "[198.18.0.80:80, ]"), "", ""},
		{"null item", replace("[198.18.0.80:80]", "[~]"), "services[0].listen[0]: has no value", ""},
		{"alias", replace("[198.18.0.80:80]", "*x"), "services[0].listen: wants a list, got an anchor", ""},
		{"merge key", small + "<<: {seed: 1}\n", "wants a word as key", ""},
		{"syntax", small + "a: [1\n", "x.yaml:12:", ""},
		{"indented too little", replace("    default: app", "   default: app"), "x.yaml:8:4: value is not allowed in this context (is it indented like the lines it belongs to?)", ""},
		{"tab", replace("    default: app", "\tdefault: app"), "(YAML is indented with spaces, no tabs)", ""},
		{"two documents", small + "---\n" + small, "wants one document", ""},
		{"empty", "", "the file holds nothing: it wants ports, services and groups", ""},
		{"only remarks", "# nothing yet\n\n", "the file holds nothing", ""},
		{"only a mark", "---\n", "the file holds nothing", ""},
		{"byte order mark", "\ufeff" + small, "", ""},
		{"only a byte order mark", "\ufeff", "the file holds nothing", ""},
		{"not a mapping", "- a\n", "wants a mapping", ""},
		{"nul byte", "a: 1\nb: \x00", "x.yaml:2:4: byte 0x00 is no text", ""},
		{"control character", "a: \x7f", "byte 0x7f is no text", ""},
		{"latin 1", "# \xe9\n", "x.yaml:1:3: byte 0xe9 is not UTF-8", ""},
		{"utf-16", "\xff\xfea\x00", "byte 0xff is not UTF-8: save the file as UTF-8 text", ""},
		{"too large", strings.Repeat("#", MaxBytes+1), "the file is larger than 16777216 bytes", ""},
		{"deep", strings.Repeat("[", 40), "x.yaml:1:33: nests deeper than 32 levels", ""},
		{"deep by indentation", strings.Repeat("- ", 40) + "x", "nests deeper than 32 levels", ""},
		{"deep by keys", "a" + nested(40), "nests deeper than 32 levels", ""},
		{"brackets in quotes", strings.Replace(small, "groups:", strings.Repeat("# [[[[[[[[[[\n", 40)+"groups:", 1), "", ""},
		{"many keys", strings.Repeat("a: 1\n", 1001), "x.yaml:1001:2: is one of more than 1000 keys of one mapping", ""},
		{"many keys below another", "x:\n" + strings.Repeat("  a: 1\n  # b\n", 1001), "more than 1000 keys", ""},
		{"many keys in braces", "{" + strings.Repeat("a: 1, ", 1002) + "}", "more than 1000 keys", ""},
		{"many lines, few keys", strings.Replace(small, "ports:", strings.Repeat("# a: 1\n\n", 2000)+"ports:", 1), "", ""},
		{"many lines in brackets", small + "    x: [\n" + strings.Repeat("{a: 1, b: 2},\n", 1500) + "]\n", "groups[0].x: unknown key", ""},
		{"many lines in braces, few keys", small + "    x: [{\n" + strings.Repeat("a: 1,\nb: 2},\n{", 1500) + "}]\n", "groups[0].x: unknown key", ""},
		{"many lines of text", small + "    x: |\n" + strings.Repeat("      a: 1\n", 1500), "groups[0].x: unknown key", ""},
		{"many items", small + "x:\n" + strings.Repeat("- a: 1\n  b: 2\n", 1500), "x.yaml:12:1: x: unknown key", ""},
		{"many nodes", strings.Repeat("- a: 1\n", 500_000), "x.yaml:166667:1: the file has more than 500000 nodes", ""},
		{"many words", "[" + strings.Repeat("a,", 600_000) + "]", "more than 500000 nodes", ""},
		{"many remarks", strings.Repeat("#\n", 600_000), "more than 500000 nodes", ""},
		{"many brackets", strings.Repeat("]", 600_000), "more than 500000 nodes", ""},

		{"octal", replace("{address: 198.18.1.11:80}", "{address: 198.18.1.11:80, weight: 010}"), "weight is 010; write it in plain decimal digits", ""},
		{"hexadecimal", replace("{address: 198.18.1.11:80}", "{address: 198.18.1.11:80, weight: 0x3}"), "weight is 0x3; write it in plain decimal digits", ""},
		{"binary", replace("{address: 198.18.1.11:80}", "{address: 198.18.1.11:80, weight: 0b1}"), "weight is 0b1; write it in plain decimal digits", ""},
		{"underscore", replace("{address: 198.18.1.11:80}", "{address: 198.18.1.11:80, weight: 1_0}"), "weight is 1_0; write it in plain decimal digits", ""},
		{"plus", replace("{address: 198.18.1.11:80}", "{address: 198.18.1.11:80, weight: +3}"), "+3", ""},
		{"leading zeros", small + "seed: 0042\n", "seed is 0042; write it in plain decimal digits", ""},
		{"fraction", replace("{address: 198.18.1.11:80}", "{address: 198.18.1.11:80, weight: 1.5}"), "got the number 1.5", ""},

		{"mode wrong", replace("    default: app", "    default: app\n    mode: splce"), `"splce" is no mode`, "splice"},
		{"scheduler wrong", small + "    scheduler: wr\n", `"wr" is no scheduler`, "rr"},
		{"wildcard without quotes", replace("    default: app", `    routes: [{host: *.example, to: app}]`), "x.yaml:8:21: services[0].routes[0].host: host *.example has to be quoted (\"*.example\")", ""},
		{"asterisk alone", replace("    default: app", `    routes: [{host: *, to: app}]`), "begins with an asterisk has to be quoted", ""},
		{"asterisk alone in a block", replace("    default: app", "    routes:\n      - host: *\n        to: app"), "begins with an asterisk has to be quoted", ""},
		{"many anchors", strings.Repeat("&a ", 600_000), "more than 500000 nodes", ""},
		{"xdp later", replace("client: eth1", "client: xdp:eth1"), "not supported yet", ""},

		{"address wrong", replace("198.18.0.1/24", "198.18.0.300/24"), "is no address with its subnet", ""},
		{"address without subnet", replace("198.18.0.1/24", "198.18.0.1"), "is no address with its subnet", ""},
		{"subnet address", replace("198.18.0.1/24", "198.18.0.0/24"), "names the subnet or its broadcast address", ""},
		{"broadcast address", replace("198.18.0.1/24", "198.18.0.255/24"), "names the subnet or its broadcast address", ""},
		{"multicast", replace("198.18.0.1/24", "224.0.0.1/24"), "is a multicast address", ""},
		{"loopback", replace("198.18.0.80:80", "127.0.0.1:80"), "is a loopback address", ""},
		{"unspecified", replace("198.18.0.80:80", "0.0.0.0:80"), "is the unspecified address", ""},
		{"class e", replace("198.18.0.80:80", "250.0.0.1:80"), "is reserved", ""},
		{"mapped", replace("198.18.0.80:80", `"[::ffff:198.18.0.80]:80"`), "write 198.18.0.80", ""},
		{"link-local", replace("198.18.0.80:80", `"[fe80::1]:80"`), "is a link-local address", ""},
		{"zone", replace("198.18.0.80:80", `"[2001:db8::1%eth0]:80"`), "has a zone", ""},
		{"port missing", replace("198.18.0.80:80", "198.18.0.80"), "has no port: write 198.18.0.80:80", ""},
		{"port zero", replace("198.18.0.80:80", "198.18.0.80:0"), "port 0", ""},
		{"port too large", replace("198.18.0.80:80", "198.18.0.80:65536"), "is no address and port", ""},
		{"whole space", replace("198.18.0.1/24", "198.18.0.1/0"), "whole address space", ""},
		{"vip is subnet", replace("198.18.0.80:80", "198.18.0.0:80"), "names subnet 198.18.0.0/24", ""},

		{"server out of reach", replace("198.18.1.11", "203.0.113.11"), "x.yaml:11:15: groups[0].servers[0]: no port's subnet holds 203.0.113.11 and no gateway leads there", ""},
		{"server is a VIP", replace("198.18.1.11:80", "198.18.0.80:81"), "is an address of the card itself (line 7)", ""},
		{"server is the card", replace("198.18.1.11:80", "198.18.1.1:80"), "is an address of the card itself (line 4)", ""},
		{"families", replace("198.18.0.80:80", `"[2001:db8::80]:80"`), "nat keeps the client's address", ""},
		{"gateway outside", replace("{addresses: [198.18.1.1/24]}", "{addresses: [198.18.1.1/24], gateway: 198.18.2.1}"), "lies in no subnet of this port", ""},
		{"gateway is us", replace("{addresses: [198.18.1.1/24]}", "{addresses: [198.18.1.1/24], gateway: 198.18.1.1}"), "is the port's own address", ""},
		{"two gateways", replace("{addresses: [198.18.1.1/24]}", "{addresses: [198.18.1.1/24], gateway: [198.18.1.2, 198.18.1.3]}"), "second gateway", ""},
		{"overlap", replace("198.18.1.1/24", "198.18.0.2/16"), "overlaps 198.18.0.0/24 at line 3", ""},
		{"same subnet on both ports", replace("198.18.1.1/24", "198.18.0.2/24"), "overlaps", ""},
		{"same subnet on two VLANs", replace("[198.18.1.1/24]", "[198.18.1.1/24, {address: 198.18.1.2/24, vlan: 5}]"), "overlaps", ""},
		{"same address", replace("198.18.1.1/24", "198.18.0.1/24"), "is the address at line 3 too", ""},
		{"vlan", replace("[198.18.1.1/24]", "[{address: 198.18.1.1/24, vlan: 4095}]"), "vlan is 4095", ""},
		{"address missing", replace("[198.18.1.1/24]", "[{vlan: 5}]"), "address is missing", ""},
		{"ports missing", strings.Replace(small, "ports:", "ports: {}\nx:", 1), "unknown key", ""},
		{"no client", replace("  client: {addresses: [198.18.0.1/24]}\n", ""), "ports.client: is missing", ""},
		{"no addresses", replace("{addresses: [198.18.1.1/24]}", "{}"), "has 0 addresses", ""},

		{"emu beside vfio", "card: vfio:0000:65:00.0\n" + small, "emu: wires the emulated card, but card is vfio:0000:65:00.0 (line 1)", ""},
		{"emu beside vfio-user", "card: vfio-user:/run/x.sock\n" + small, "remove one of them", ""},
		{"emulator without wires", "card: emu\n" + strings.Replace(small, "emu: {client: eth1, server: eth2}\n", "", 1), "needs wires", ""},
		{"card wrong", "card: fpga\n" + small, `"fpga" is no card`, ""},
		{"pci address", "card: vfio:0000:3b:20.0\n" + small, "is no card", ""},
		{"wire missing", replace("{client: eth1, server: eth2}", "{server: eth2}"), "client is missing", ""},
		{"wire twice", replace("server: eth2", "server: eth1"), "is wired to eth1 as emu.client is at line 1", ""},
		{"wire twice as a tap", replace("server: eth2", "server: tap:eth1"), "is wired to tap:eth1 as emu.client is at line 1", ""},
		{"wire name", replace("server: eth2", "server: averylonginterfacename"), "is no name of an interface: it has 1 to 15 bytes", ""},
		{"wire name with NUL", replace("server: eth2", `server: "\u0000"`), "is no name of an interface", ""},
		{"wire name with a break", replace("server: eth2", `server: "a\nb"`), "is no name of an interface", ""},
		{"wire name with a space", replace("server: eth2", `server: "a\u00a0b"`), "is no name of an interface", ""},
		{"wire name with a slash", replace("server: eth2", "server: a/b"), "is no name of an interface", ""},
		{"wire name empty", replace("server: eth2", `server: ""`), "is no name of an interface", ""},
		{"wire name with dots", replace("server: eth2", `server: ".."`), "is no name of an interface", ""},
		{"wire name of 15 bytes", replace("server: eth2", "server: abcdefghijklmno"), "", ""},
		{"tap with NUL", replace("server: eth2", `server: "tap:a\0"`), "is no name of an interface", ""},
		{"tap with a colon", replace("server: eth2", `server: "tap:a:b"`), "is no name of an interface", ""},
		{"tap without a name", replace("server: eth2", `server: "tap:"`), "is no name of an interface", ""},
		{"pcap with NUL", replace("server: eth2", `server: "pcap:a\0,b"`), "holds a NUL byte, which no file name has", ""},
		{"pcap of one file", replace("server: eth2", `server: "pcap:a,./a"`), "reads and writes one file", ""},
		{"pcaps that write one file", pcaps("a,x", "b,./x"), "x.yaml:3:11: emu.server: writes ./x as emu.client at line 2 does: give each wire a file of its own", ""},
		{"pcap that reads what the other writes", pcaps("a,x", "x,b"), "emu.server: reads x, which emu.client at line 2 writes", ""},
		{"pcap that writes what the other reads", pcaps("a,x", "b,a"), "emu.server: writes a, which emu.client at line 2 reads", ""},
		{"pcaps that write nothing", pcaps("a,/dev/null", "b,/dev/null"), "", ""},
		{"pcaps that read one file", pcaps("a,x", "a,y"), "", ""},
		{"wire kind", replace("server: eth2", "server: tpa:x"), "is no wire", "tap"},
		{"wire pcap", replace("server: eth2", "server: pcap:x"), "pcap:IN,OUT", ""},
		{"wire for nothing", replace("  server: {addresses: [198.18.1.1/24]}\n", ""), "emu.server: is wired, but ports.server has no addresses", ""},
		{"addresses for nothing", replace(", server: eth2", ""), "ports.server: has addresses, but emu.server is not wired", ""},
		{"one subnet", strings.NewReplacer(", server: eth2", "", "  server: {addresses: [198.18.1.1/24]}\n", "", "198.18.1.11", "198.18.0.11").Replace(small), "one port with one subnet needs fullnat", ""},

		{"name missing", replace("  - name: web\n    listen", "  - listen"), "services[0]: name is missing", ""},
		{"name wrong", replace("name: web", "name: we b"), `holds ' '`, ""},
		{"same name", small + "  - {name: app, servers: [{address: 198.18.1.12:80}]}\n", "x.yaml:12:5: groups[1].name: group app is at line 10 already", ""},
		{"group unknown", replace("default: app", "default: aqp"), "x.yaml:8:14: services[0].default: there is no group aqp", "app"},
		{"route without group", replace("    default: app", "    default: app\n    routes: [{path: /x}]"), "to is missing", ""},
		{"nowhere to go", replace("    default: app\n", ""), "has neither routes nor default", ""},
		{"no listen", replace("    listen: [198.18.0.80:80]\n", ""), "listen: is missing", ""},
		{"no servers", replace("    servers: [{address: 198.18.1.11:80}]\n", ""), "group app has no server", ""},
		{"path wrong", replace("    default: app", "    default: app\n    routes: [{path: x, to: app}]"), "does not begin with a slash", ""},
		{"host wrong", replace("    default: app", "    default: app\n    routes: [{host: a.example:80, to: app}]"), "no port", ""},
		{"profiles differ", small + "  - {name: b, servers: [{address: 198.18.1.11:80, profile: {sack: true}}]}\n", "has another profile at line 11", ""},
		{"no policy", replace("    default: app", "    default: app\n    sack: rewirte"), `"rewirte" is no sack; there is preserve, rewrite, strip`, "rewrite"},
		{"no policy of mss", replace("    default: app", "    default: app\n    mss: keep"), `"keep" is no mss`, ""},
		{"a policy that is true", replace("    default: app", "    default: app\n    timestamps: true"), "wants timestamps (preserve, rewrite, strip), got true", ""},
		{"an MSS in quotes", replace("    default: app", "    default: app\n    mss: \"1460\""), `mss "1460" is in quotes; write it without`, ""},
		{"ECN rewritten", replace("    default: app", "    default: app\n    ecn: rewrite"), "ecn cannot be rewritten", ""},
		{"mss too small", replace("    default: app", "    default: app\n    mss: 100"), "mss is 100", ""},
		{"address and auto", replace("    default: app", "    default: app\n    isn: address"), "x.yaml:6:5: services[0].isn: isn: address and defence: auto do not go together", ""},
		{"address and always", replace("    default: app", "    default: app\n    isn: address\n    defence: always"), "isn: address and defence: always do not go together", ""},
		{"address and off", replace("    default: app", "    default: app\n    isn: address\n    defence: off"), "", ""},
		{"defence", replace("    default: app", "    default: app\n    defence: alwys"), `"alwys" is no defence`, "always"},
		{"defence as a switch", replace("    default: app", "    default: app\n    defence: true"), "wants defence (auto, off, always), got true", ""},
		{"rates the wrong way round", small + "defence: {rate_on: 9, rate_off: 10}\n", "defence: rate_on 9 is less than rate_off 10", ""},
		{"rate below the default", small + "defence: {rate_on: 9}\n", "rate_on 9 is less than rate_off 10000, the default: ", ""},
		{"burst alone", small + "defence: {source_burst: 9}\n", "source_burst limits nothing without source_rate", ""},
		{"rate of zero", small + "defence: {source_rate: 0}\n", "source_rate is 0; it may be 1 to 268435455", ""},
		{"rate with a unit", small + "defence: {source_rate: 100/s}\n", "wants source_rate (1 to 268435455), got", ""},
		{"unknown mark", small + "defence: {sorce_rate: 9}\n", "unknown key", "source_rate"},
		{"socket relative", small + "socket: x.sock\n", "is no path of a socket", ""},
		{"socket with NUL", small + "socket: \"/x\\0\"\n", "is no path of a socket", ""},
		{"card with NUL", "card: \"vfio-user:/x\\0\"\n" + small, "is no card", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Load("x.yaml", []byte(tt.text))
			if tt.want == "" {
				if err != nil {
					t.Errorf("error %v", err)
				}
				return
			}
			var p Problems
			if !errors.As(err, &p) {
				t.Fatalf("error %v, want Problems", err)
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error is\n%v\nwant in it\n%s", err, tt.want)
			}
			for _, x := range p {
				if x.File != "x.yaml" || x.Line < 1 || x.Column < 1 {
					t.Errorf("no position: %+v", x)
				}
			}
			if tt.near != "" && !strings.Contains(err.Error(), fmt.Sprintf("did you mean %q?", tt.near)) {
				t.Errorf("error %v does not offer %q", err, tt.near)
			}
		})
	}
}

func TestAllProblemsAtOnce(t *testing.T) {
	_, err := Load("x.yaml", []byte("cart: auto\nports: 7\nservices: [{nam: x}, {name: 5}]\n"))
	var p Problems
	if !errors.As(err, &p) || len(p) != 4 {
		t.Fatalf("got %d problems, want 4:\n%v", len(p), err)
	}
	for i := 1; i < len(p); i++ {
		if p[i].Line < p[i-1].Line {
			t.Errorf("out of order: %v", err)
		}
	}
}

func TestWarnings(t *testing.T) {
	text := strings.Replace(small, "    default: app", "    default: app\n    routes: [{path: /x/*, to: app}, {path: /x/y/../*, to: app}]", 1) +
		"  - {name: idle, servers: [{address: 198.18.1.12:80, weight: 0}]}\n"
	got := load(t, text).Warnings.Error()
	for _, want := range []string{"x.yaml:9:37: services[0].routes[1]: takes no request", "no service uses group idle", "every weight of group idle is 0"} {
		if !strings.Contains(got, want) {
			t.Errorf("warnings are\n%s\nwant in them %s", got, want)
		}
	}
}

func TestOneArmed(t *testing.T) {
	c := load(t, strings.NewReplacer(", server: eth2", "", "  server: {addresses: [198.18.1.1/24]}\n", "", "[198.18.0.1/24]", "[198.18.0.1/24, 198.18.1.1/24]").Replace(small))
	if !c.OneArmed || len(c.Ports()) != 1 {
		t.Errorf("one-armed %v, %d ports", c.OneArmed, len(c.Ports()))
	}
}

// TestPlainScalars: a colon within a word makes no mapping, wherever the word stands.
func TestPlainScalars(t *testing.T) {
	c := load(t, strings.NewReplacer("{addresses: [198.18.1.1/24]}", "{addresses: [198.18.1.1/24, 2001:db8::1/64, {address: 2001:db8:1::1/64}]}",
		"groups:", "  - {name: b, listen: [198.18.0.81:80, '198.18.0.82:80', \"198.18.0.83:80\"], default: app}\ngroups:").Replace(small))
	if got := c.Server.Addresses[1].Prefix.String(); got != "2001:db8::1/64" {
		t.Errorf("address %s", got)
	}
	for i, want := range []string{"198.18.0.81:80", "198.18.0.82:80", "198.18.0.83:80"} {
		if got := c.Services[1].Listen[i].Addr.String(); got != want {
			t.Errorf("listen %s, want %s", got, want)
		}
	}
	for _, bad := range []string{"{198.18.0.81: 80}", "198.18.0.81: 80"} {
		if _, err := Load("x.yaml", []byte(strings.Replace(small, "[198.18.0.80:80]", "["+bad+"]", 1))); err == nil || !strings.Contains(err.Error(), "got a mapping") {
			t.Errorf("listen [%s]: error %v", bad, err)
		}
	}
}

// TestIdleReset: idle connections are reset unless the service says otherwise.
func TestIdleReset(t *testing.T) {
	for timeouts, silent := range map[string]bool{"": false, "timeouts: {idle: 1h}": false, "timeouts: {reset: true}": false, "timeouts: {reset: false}": true} {
		c := load(t, strings.Replace(small, "    default: app", "    default: app\n    "+timeouts, 1))
		if got := c.Services[0].IdleSilent; got != silent {
			t.Errorf("%q: silent %v, want %v", timeouts, got, silent)
		}
	}
}

func TestRoutedVIP(t *testing.T) {
	load(t, strings.Replace(small, "198.18.0.80:80", "203.0.113.80:80", 1))
}

// TestCaseF03: a duration needs a unit, in the file and wherever else it is read.
func TestCaseF03(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want time.Duration
		err  string
	}{
		{"5", 0, "has no unit: write 5s or 5ms"},
		{"5s", 5 * time.Second, ""},
		{`"5"`, 0, "has no unit"},
		{"1.5s", 1500 * time.Millisecond, ""},
		{"1.5", 0, "has no unit"},
		{"-1s", 0, "is negative"},
		{"-1", 0, "has no unit"},
		{"0", 0, ""},
		{"0s", 0, ""},
		{"5 s", 0, "without a space"},
		{"1us", 0, "finer than a millisecond"},
		{"2h30m", 150 * time.Minute, ""},
		{"100h", 0, "more than"},
		{"soon", 0, "is no duration"},
		{"true", 0, "wants a duration"},
		{"9999999999999999999h", 0, "is no duration"},
	} {
		c, err := Load("x.yaml", []byte(strings.Replace(small, "    default: app", "    default: app\n    timeouts: {wait_head: "+tt.in+"}", 1)))
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) || !strings.Contains(err.Error(), "services[0].timeouts.wait_head") {
				t.Errorf("wait_head %s: error %v, want %q", tt.in, err, tt.err)
			}
		} else if err != nil || c.Services[0].WaitHead != tt.want {
			t.Errorf("wait_head %s: error %v", tt.in, err)
		}
		if s := strings.Trim(tt.in, `"`); s != "true" {
			got, err := ParseDuration(s)
			if got != tt.want || (err == nil) != (tt.err == "") {
				t.Errorf("ParseDuration(%q) = %v, %v; want %v, %q", s, got, err, tt.want, tt.err)
			}
		}
	}
}

// TestCaseF17: what is there twice is an error that names both lines.
func TestCaseF17(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"same server twice in a group", small + "      # again\n  - name: b\n    servers:\n      - {address: 198.18.1.11:80}\n      - {address: 198.18.1.12:80}\n      - {address: 198.18.1.11:80}\n",
			"x.yaml:17:9: groups[1].servers[2]: server 198.18.1.11:80 is in group b at line 15 already"},
		{"same VIP, port and protocol in two services", strings.Replace(small, "groups:", "  - {name: other, listen: [198.18.0.80:80], default: app}\ngroups:", 1),
			"x.yaml:9:28: services[1].listen[0]: 198.18.0.80:80/tcp is listened on at line 7 already"},
		{"same VIP and port twice in one service", strings.Replace(small, "[198.18.0.80:80]", "[198.18.0.80:80, 198.18.0.80:80]", 1),
			"x.yaml:7:30: services[0].listen[1]: 198.18.0.80:80/tcp is listened on at line 7 already"},
		{"names that differ in case", strings.Replace(small, "groups:", "  - {name: Web, listen: [198.18.0.81:80], default: app}\ngroups:", 1),
			"x.yaml:9:5: services[1].name: service Web differs from web at line 6 in case only"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Load("x.yaml", []byte(tt.text))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error is\n%v\nwant in it\n%s", err, tt.want)
			}
		})
	}
}

func TestReadFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "x.yaml")
	if err := os.WriteFile(name, []byte(small), 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err := ReadFile(name); err != nil || c.File != name {
		t.Errorf("read %s: %v", name, err)
	}
	if _, err := ReadFile(name + "x"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(MaxBytes + 1); err != nil {
		t.Fatal(err)
	}
	f.Close()
	for _, name := range []string{name, "/dev/zero"} {
		var p Problems
		if _, err := ReadFile(name); !errors.As(err, &p) || !strings.Contains(err.Error(), "larger than") {
			t.Errorf("large file %s: %v", name, err)
		}
	}
}

// TestManyRoutes: lists may be long, however they are written.
func TestManyRoutes(t *testing.T) {
	const n = 1500
	for _, tt := range []struct{ name, before, route, after string }{
		{"one a line", "    routes:\n", "      - {path: /%d, to: app}\n", ""},
		{"three lines each", "    routes:\n", "      - path: /%d\n        to: app\n\n", ""},
		{"in brackets, one a line", "    routes: [\n", "      {path: /%d, to: app},\n", "    ]\n"},
		{"in brackets, not indented", "    routes: [\n", "{path: /%d,\nto: app},\n", "]\n"},
		{"all on one line", "    routes: [", "{path: /%d, to: app}, ", "]\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var b strings.Builder
			b.WriteString(tt.before)
			for i := range n {
				fmt.Fprintf(&b, tt.route, i)
			}
			b.WriteString(tt.after)
			if c := load(t, strings.Replace(small, "    default: app\n", b.String(), 1)); len(c.Services[0].Routes) != n {
				t.Errorf("%d routes, want %d", len(c.Services[0].Routes), n)
			}
		})
	}
}

// TestMeasure counts as the tree does: each node once, be it written by indentation or in brackets.
func TestMeasure(t *testing.T) {
	for _, tt := range []struct {
		name, text   string
		nodes, marks int // exactly, and by the marks
	}{
		{"scalar", "a\n", 1, 1},
		{"mapping", "a: 1\n", 3, 3},
		{"mapping of two", "a: 1\nb: 2\n", 5, 5},
		{"list", "- a\n- b\n", 3, 3},
		{"list of mappings", "- a: 1\n- a: 1\n", 7, 7},
		{"mapping of a list", "a:\n- 1\n- 2\nb: 3\n", 7, 7},
		{"in braces", "{a: 1, b: 2}\n", 5, 5},
		{"in brackets", "a: [{b: 1}, c]\n", 7, 7},
		{"remark", "# {a: 1}\na: 1\n", 4, 4},
		{"quotes", "a: '[1, 2]'\n", 3, 5},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, c := meter{}, census{nodes: 1}
			for _, tok := range lexer.Tokenize(tt.text) {
				m.add(tok)
			}
			for row := range strings.Lines(tt.text) {
				c.add([]byte(row))
			}
			if m.nodes != tt.nodes || c.nodes != tt.marks {
				t.Errorf("%d nodes, about %d; want %d, about %d", m.nodes, c.nodes, tt.nodes, tt.marks)
			}
		})
	}
}

func TestDiff(t *testing.T) {
	a := load(t, small)
	b := load(t, strings.NewReplacer("[198.18.0.80:80]", "[198.18.0.80:80, 198.18.0.81:80]", "{address: 198.18.1.11:80}", "{address: 198.18.1.11:80, weight: 2}, {address: 198.18.1.12:80}",
		"default: app", "default: app\n    routes: [{path: /x, to: app}]\n    defence: always").Replace(small)+"defence: {rate_on: 30000}\n")
	want := []Change{
		{"change", "setting", "defence", "", "rate_on 30000"},
		{"add", "vip", "198.18.0.81", "", ""},
		{"add", "listener", "198.18.0.81:80", "", "web"},
		{"change", "service", "web", "default app, isn keyed, defence auto, idle 0s, wait_head 0s, reset true", "default app, isn keyed, defence always, idle 0s, wait_head 0s, reset true"},
		{"add", "rule", "web /x", "", "app"},
		{"change", "server", "app 198.18.1.11:80", "weight 1", "weight 2"},
		{"add", "server", "app 198.18.1.12:80", "", "weight 1"},
	}
	if diff := cmp.Diff(want, Diff(a, b)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := Diff(a, a); len(got) != 0 || got == nil {
		t.Errorf("no difference: %v", got)
	}
	if got := Diff(nil, a); len(got) < 8 {
		t.Errorf("from nothing: %v", got)
	}
}

func TestNear(t *testing.T) {
	for _, tt := range []struct{ in, want string }{{"sevices", "services"}, {"serviecs", "services"}, {"PORTS", "ports"}, {"x", ""}, {"absolutely", ""}, {strings.Repeat("services", 100), ""}} {
		if got := Near(tt.in, []string{"ports", "services", "groups", "seed"}); got != tt.want {
			t.Errorf("Near(%q) = %q, want %q", tt.in, got, tt.want)
		}
	}
}

func FuzzLoad(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte(small))
	f.Add([]byte(four))
	f.Add([]byte(layer4("mode: dr\n    protocol: udp\n    one_packet: true\n    source: 2001:db8::/32", "{address: \"[2001:db8::1]:*\", upper: 9, lower: 1}", "local: [198.18.1.2-198.18.1.9]\n    tunnel: {type: dscp, dscp: 63}")))
	f.Add([]byte("a: &x [1]\nb: *x\n? [a]\n: b\n<<: *x\n"))
	f.Add([]byte("ports: {client: {addresses: [{address: 1/0, vlan: -1}], gateway: []}}\nservices: [{routes: [{path: '%'}]}]\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 1<<14 {
			return
		}
		c, err := Load("x.yaml", text)
		var p Problems
		if err != nil && (!errors.As(err, &p) || len(p) == 0) {
			t.Fatalf("error %v is no Problems", err)
		}
		if (c == nil) != (err != nil) {
			t.Fatal("neither a configuration nor an error")
		}
		if c == nil {
			return
		}
		Diff(nil, c)
		for _, g := range c.Groups {
			for _, s := range g.Servers {
				if _, ok := c.Route(s.Addr.Addr()); !ok {
					t.Fatalf("no way to %s", s.Addr)
				}
			}
		}
		again, err := Load("x.yaml", []byte(c.Text))
		if err != nil || len(Diff(c, again)) != 0 {
			t.Fatalf("the same text gives %v", err)
		}
	})
}

// TestDiffNoDefault: a service without a default is said to have none.
func TestDiffNoDefault(t *testing.T) {
	c, err := Load("x.yaml", []byte(strings.Replace(small, "    default: app", "    routes: [{path: /x, to: app}]", 1)))
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range Diff(nil, c) {
		if x.Kind == "service" && !strings.HasPrefix(x.To, "no default, isn keyed") {
			t.Errorf("service %s: %q", x.Name, x.To)
		}
	}
}
