package admin

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"splicenic/runtime/config"
	"splicenic/runtime/view"
)

// TestTable: services as configurations say them, with what a server inherits from group and service.
func TestTable(t *testing.T) {
	c, err := config.Load("f", []byte(`card: emu
emu: {client: mem, server: mem}
ports:
  client: {addresses: [198.18.0.1/24]}
  server: {addresses: [198.18.1.1/24]}
services:
  - {name: web, listen: [198.18.0.80:80], routes: [{path: /a, to: other}], default: app}
  - {name: direct, listen: [198.18.0.82:80], mode: dr, protocol: tcp, default: mixed, persistence: {time: 90s, netmask: 24}}
  - {name: names, listen: ["198.18.0.83:*"], mode: tun, protocol: udp, default: names, one_packet: true}
groups:
  - {name: other, scheduler: lc, servers: [{address: 198.18.1.12:8080}]}
  - {name: app, scheduler: wrr, servers: [{address: 198.18.1.11:8080, weight: 3}]}
  - {name: mixed, scheduler: wlc, servers: [{address: 198.18.1.21:80, weight: 0}, {address: 198.18.1.22:80, method: nat}, {address: 198.18.1.23:80, method: fullnat}]}
  - {name: names, scheduler: sh, servers: [{address: "198.18.1.31:*"}]}
`))
	if err != nil {
		t.Fatal(err)
	}
	type servers = []view.ServiceServer
	want := []view.Service{
		{Name: "web", Listen: []string{"198.18.0.80:80"}, Mode: "splice", Protocol: "tcp", Groups: []view.ServiceGroup{
			{Name: "app", Scheduler: "wrr", Servers: servers{{Address: "198.18.1.11:8080", Method: "nat", Weight: 3}}},
			{Name: "other", Scheduler: "lc", Servers: servers{{Address: "198.18.1.12:8080", Method: "nat", Weight: 1}}},
		}},
		{Name: "direct", Listen: []string{"198.18.0.82:80"}, Mode: "dr", Protocol: "tcp", Persistence: &view.Persistence{Seconds: 90, Netmask: 24, Netmask6: 128}, Groups: []view.ServiceGroup{
			{Name: "mixed", Scheduler: "wlc", Servers: servers{
				{Address: "198.18.1.21:80", Method: "dr"}, {Address: "198.18.1.22:80", Method: "nat", Weight: 1}, {Address: "198.18.1.23:80", Method: "fullnat", Weight: 1},
			}},
		}},
		{Name: "names", Listen: []string{"198.18.0.83:*"}, Mode: "tun", Protocol: "udp", OnePacket: true, Groups: []view.ServiceGroup{
			{Name: "names", Scheduler: "sh", Servers: servers{{Address: "198.18.1.31:*", Method: "tun", Weight: 1}}},
		}},
	}
	if d := cmp.Diff(want, table(c)); d != "" {
		t.Error(d)
	}
}
