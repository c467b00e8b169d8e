package config

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// TestTranslation: the pool of ports.server.snat, and what is wrong with one.
func TestTranslation(t *testing.T) {
	const text = `
emu: {client: mem, server: mem}
ports:
  client: {addresses: [198.18.0.1/24, 2001:db8:1::1/64]CLIENT}
  server: {addresses: [198.18.1.1/24, 2001:db8:2::1/64], forward: routed, snat: POOL}
services: [{name: web, listen: [198.18.0.80:80], default: app}]
groups: [{name: app, servers: [{address: 198.18.1.11:80}]}]
`
	load := func(pool, client string) (*Config, error) {
		return Load("x.yaml", []byte(strings.NewReplacer("POOL", pool, "CLIENT", client).Replace(text)))
	}
	c, err := load("[198.18.0.90, 2001:db8:1::90]", "")
	if err != nil {
		t.Fatal(err)
	}
	if want := []netip.Addr{netip.MustParseAddr("198.18.0.90"), netip.MustParseAddr("2001:db8:1::90")}; !slices.Equal(c.Server.SNAT.Addresses(), want) {
		t.Errorf("pool %v, want %v", c.Server.SNAT.Pool, want)
	}
	other, err := load("[198.18.0.91]", "")
	if err != nil {
		t.Fatal(err)
	}
	if d := Diff(c, other); len(d) != 1 || d[0].Name != "ports.server" || !strings.HasSuffix(d[0].To, "snat 198.18.0.91, forward routed") {
		t.Errorf("difference %+v", d)
	}
	for _, tt := range []struct{ name, pool, client, want string }{
		{"empty", "[]", "", "x.yaml:5:81: ports.server.snat: has 0 addresses; it may have 1 to 16"},
		{"no address", "[198.18.0]", "", `ports.server.snat[0]: "198.18.0" is no address`},
		{"reserved", "[255.255.255.255]", "", "is reserved"},
		{"twice", "[198.18.0.90, 198.18.0.90]", "", "198.18.0.90 is there twice"},
		{"a VIP", "[198.18.0.80]", "", "a service listens on 198.18.0.80"},
		{"of the servers", "[198.18.1.90]", "", "lies in a subnet of this port"},
		{"our own", "[198.18.0.1]", "", "is the card's own address (line 4)"},
		{"at the client port", "[198.18.0.90]", ", snat: [198.18.0.91]", "write it under ports.server"},
		{"no list", "true", "", "ports.server.snat"},
	} {
		if _, err := load(tt.pool, tt.client); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
	if _, err := Load("x.yaml", []byte(strings.NewReplacer("POOL", "[198.18.0.90]", "CLIENT", "", "forward: routed", "forward: off").Replace(text))); err == nil || !strings.Contains(err.Error(), "needs forward: routed") {
		t.Errorf("not routed: %v", err)
	}
}
