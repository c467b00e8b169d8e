package config

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// published is the small configuration with a zone, which has everything in it.
const published = small + `dns:
  zone: lb.example.
  file: /run/lb.zone
  listen: 198.51.100.1:53
  nameserver: ns1.lb.example
  ttl: 10s
  records: [{name: www, service: web}, {name: "@", service: web}]
  transfer: [198.51.100.0/24, "2001:db8::/32"]
  peers:
    - {address: 198.51.100.2:53, nameserver: ns2.lb.example, vips: [198.18.2.80]}
    - {address: "[2001:db8:5::3]:53", vips: ["2001:db8:5::80"]}
`

func TestDNS(t *testing.T) {
	got := load(t, published).DNS
	want := &DNS{
		Zone: "lb.example", File: "/run/lb.zone", Listen: netip.MustParseAddrPort("198.51.100.1:53"), Address: netip.MustParseAddr("198.51.100.1"),
		Nameserver: "ns1.lb.example", Contact: "hostmaster.lb.example", TTL: 10 * time.Second,
		Records: []DNSRecord{{Name: "www", Service: "web"}, {Name: "@", Service: "web"}},
		Peers: []DNSPeer{
			{Address: netip.MustParseAddrPort("198.51.100.2:53"), Nameserver: "ns2.lb.example", VIPs: []netip.Addr{netip.MustParseAddr("198.18.2.80")}},
			{Address: netip.MustParseAddrPort("[2001:db8:5::3]:53"), VIPs: []netip.Addr{netip.MustParseAddr("2001:db8:5::80")}},
		},
		Transfer: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("2001:db8::/32")},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreTypes(Position{}), cmpopts.EquateComparable(netip.Prefix{}, netip.Addr{}, netip.AddrPort{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got.Peers[0].At.Line == 0 || got.At.Line == 0 {
		t.Errorf("positions %v, %v", got.At, got.Peers[0].At)
	}
	changes := Diff(load(t, small), load(t, published))
	if len(changes) != 1 || changes[0].Name != "dns" || changes[0].Op != "add" {
		t.Errorf("changes: %+v", changes)
	}
	if c := load(t, strings.Replace(published, "  ttl: 10s\n", "", 1)); c.DNS.TTL != 5*time.Second {
		t.Errorf("ttl %v by default", c.DNS.TTL)
	}
}

func TestDNSProblems(t *testing.T) {
	for _, tt := range []struct{ name, old, new, key, want string }{
		{"no mapping", published[len(small):], "dns: lb.example\n", "dns", "wants a mapping"},
		{"no zone", "  zone: lb.example.\n", "", "dns", "zone is missing"},
		{"no name server", "  nameserver: ns1.lb.example\n", "", "dns", "nameserver is missing: say what this director is called, such as ns1.lb.example"},
		{"no records", `  records: [{name: www, service: web}, {name: "@", service: web}]` + "\n", "", "dns", "records is missing"},
		{"nowhere to", "  file: /run/lb.zone\n  listen: 198.51.100.1:53\n", "  address: 198.51.100.1\n", "dns", "neither file nor listen"},
		{"a zone with an empty label", "zone: lb.example.", "zone: lb..example", "dns.zone", "a label is empty"},
		{"a label too long", "zone: lb.example.", "zone: " + strings.Repeat("a", 64) + ".example", "dns.zone", "more than 63"},
		{"a zone too long", "zone: lb.example.", "zone: " + strings.Repeat("abc.", 60) + "example", "dns.zone", "room for 240"},
		{"an underscore", "name: www", "name: _own", "dns.records[0].name", "letters, digits and dashes"},
		{"a wildcard", "name: www", `name: "*"`, "dns.records[0].name", "letters, digits and dashes"},
		{"a dash at the end", "name: www", "name: www-", "dns.records[0].name", "begins or ends with a dash"},
		{"no name", "{name: www, service: web}", "{service: web}", "dns.records[0]", "wants name and service"},
		{"no such service", "{name: www, service: web}", "{name: www, service: wep}", "dns.records[0].service", "there is no service wep"},
		{"twice", `name: "@"`, "name: WWW", "dns.records[1]", "leads to service web at line 18 already"},
		{"the name server's name", "name: www", "name: NS1", "dns.records[0].name", "is the name server"},
		{"relative file", "/run/lb.zone", "lb.zone", "dns.file", "begins with a slash"},
		{"no port", "listen: 198.51.100.1:53", "listen: 198.51.100.1", "dns.listen", "write 198.51.100.1:53"},
		{"port 0", "listen: 198.51.100.1:53", "listen: 198.51.100.1:0", "dns.listen", "port 0"},
		{"everywhere", "listen: 198.51.100.1:53", "listen: 0.0.0.0:53", "dns.listen", "name one"},
		{"on a VIP", "listen: 198.51.100.1:53", "listen: 198.18.0.80:53", "dns.listen", "is a VIP of service web (line 7): its frames go to the card"},
		{"on the card's address", "listen: 198.51.100.1:53", "listen: 198.18.1.1:53", "dns.listen", "is the card's own address"},
		{"a name server without an address", "  listen: 198.51.100.1:53\n", "", "dns.address", "name server ns1.lb.example lies in zone lb.example"},
		{"ttl 0", "ttl: 10s", "ttl: 0", "dns.ttl", "ttl is 0s; it may be 1s to 1h"},
		{"ttl with a fraction", "ttl: 10s", "ttl: 1500ms", "dns.ttl", "whole seconds"},
		{"ttl too long", "ttl: 10s", "ttl: 2h", "dns.ttl", "ttl is 2h0m0s"},
		{"no network", "198.51.100.0/24", "198.51.100.7/24", "dns.transfer[0]", "no network"},
		{"a peer without VIPs", ", vips: [198.18.2.80]}", "}", "dns.peers[0]", "wants address"},
		{"a peer at this address", "198.51.100.2:53", "198.51.100.1:53", "dns.peers[0].address", "at line 13 already"},
		{"a peer of this name", "nameserver: ns2.lb.example", "nameserver: NS1.lb.example", "dns.peers[0].nameserver", "this director's own"},
		{"a peer with this VIP", "vips: [198.18.2.80]", "vips: [198.18.0.80]", "dns.peers[0].vips[0]", "a VIP belongs to one director"},
		{"an unknown key", "  ttl: 10s", "  tll: 10s", "dns.tll", "unknown key"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if !strings.Contains(published, tt.old) {
				t.Fatalf("%q is not in the configuration", tt.old)
			}
			_, err := Load("x.yaml", []byte(strings.Replace(published, tt.old, tt.new, 1)))
			var ps Problems
			if !errors.As(err, &ps) || ps[0].Key != tt.key || !strings.Contains(ps[0].Message, tt.want) || ps[0].Line < 12 {
				t.Errorf("got %v, want %s: ...%s...", err, tt.key, tt.want)
			}
		})
	}
	c := load(t, strings.Replace(published, "198.51.100.1:53", "127.0.0.1:53", 1))
	if n := len(c.Warnings); n != 1 || !strings.Contains(c.Warnings[0].Message, "leads every resolver to itself") {
		t.Errorf("warnings: %v", c.Warnings)
	}
}
