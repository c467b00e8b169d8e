package daemon

import (
	"fmt"
	"testing"
)

// TestCaseC25Promise: what a tunnel adds is taken off what clients are promised, and so is what a longer header takes.
func TestCaseC25Promise(t *testing.T) {
	for _, tt := range []struct {
		name, listen, server string
		mss4, mss6           uint16
	}{
		{"IPv4 in IPv4", "198.18.0.80:80", "{address: 198.18.1.11:80, method: tun, return: card", 1440, 1420},
		{"IPv6 in IPv6", "'[2001:db8:9::80]:80'", "{address: '[2001:db8:2::11]:80', method: tun, return: card", 1420, 1400},
		{"IPv6 in IPv4", "'[2001:db8:9::80]:80'", "{address: 198.18.1.11:80, method: tun, return: card", 1440, 1420},
		{"gre", "198.18.0.80:80", "{address: 198.18.1.11:80, method: tun, return: card, tunnel: {type: gre}", 1436, 1416},
		{"gue", "198.18.0.80:80", "{address: 198.18.1.11:80, method: tun, return: card, tunnel: {type: gue}", 1428, 1408},
		{"none", "198.18.0.80:80", "{address: 198.18.1.11:80", 1460, 1440},
		{"fullnat to IPv6", "198.18.0.80:80", "{address: '[2001:db8:2::11]:80', method: fullnat", 1440, 1440},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := inputs(t, fmt.Sprintf(`
services: [{name: web, listen: [%s], default: app}]
groups: [{name: app, servers: [%s, profile: {mss: 65495}}]}]
`, tt.listen, tt.server))
			if got := promised(in, &in.Config.Services[0]); got.mss4 != tt.mss4 || got.mss6 != tt.mss6 {
				t.Errorf("%d and %d, want %d and %d", got.mss4, got.mss6, tt.mss4, tt.mss6)
			}
		})
	}
}

// TestServerNames: the name of a server's entry says what its connections were told, and nothing else is one.
func TestServerNames(t *testing.T) {
	for name, want := range map[string]bool{
		"198.18.1.11:80/tcp": true, "[2001:db8::1]:53/udp": true, "198.18.1.11:0/tcp/dr": true, "198.18.1.11:80/tcp/fullnat/00ff12ab": true,
		"198.18.1.11:80/tcp/tun/ipip/0/none/0": true, "198.18.1.11:80/udp/tun/gue/6080/remote/0/card": true, "198.18.1.11:80/tcp/tun/dscp/0/none/10": true,
		"": false, "/": false, "198.18.1.11/tcp": false, "198.18.1.11:80": false, "198.18.1.11:80/sctp": false, "198.18.1.11:80/tcp/nat": false, "198.18.1.11:80/tcp/dr/x": false,
		"198.18.1.11:80/tcp/fullnat": false, "198.18.1.11:80/tcp/fullnat/00FF12AB": false, "198.18.1.11:80/tcp/fullnat/xx": false, "198.18.1.11:80/tcp/tun/ipip/0/none": false,
		"198.18.1.11:80/tcp/tun/ipop/0/none/0": false, "198.18.1.11:80/tcp/tun/ipip/00/none/0": false, "198.18.1.11:80/tcp/tun/ipip/0/none/99": false, "198.18.1.11:080/tcp": false,
	} {
		if got := isServer(name); got != want {
			t.Errorf("%q: %v, want %v", name, got, want)
		}
	}
}

// TestAllot: lists of local ports do not overlap, later ones find room, and what was given back is used again.
func TestAllot(t *testing.T) {
	w := newWriter(newFake()) // 1024 entries
	for i, want := range []region{{0, 512}, {512, 256}, {768, 128}} {
		r, err := w.allot(60000, 1)
		if err != nil || r != want {
			t.Fatalf("list %d: %v %v, want %v", i, r, err, want)
		}
		w.lists[uint32(i)] = r
	}
	delete(w.lists, 0)
	if r, err := w.allot(100, 1); err != nil || r != (region{0, 100}) {
		t.Errorf("a small list: %v %v", r, err)
	}
	w.lists = map[uint32]region{1: {0, 1024}}
	if _, err := w.allot(100, 1); err == nil {
		t.Error("a list where there is no room")
	}
}
