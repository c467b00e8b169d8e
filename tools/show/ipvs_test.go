package show

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"splicenic/runtime/view"
)

// TestIPVS: the layout of ipvsadm -L -n, with --stats and --rate.
func TestIPVS(t *testing.T) {
	rate := &view.Rate{Connections: 12.4, PacketsClient: 99.5, BytesServer: 3e9}
	table := view.Table{Pages: 294912, Services: []view.Service{
		{Name: "web", Listen: []string{"198.18.0.80:80"}, Mode: "dr", Protocol: "tcp", Persistence: &view.Persistence{Seconds: 300, Netmask: 24, Netmask6: 128}, Rate: rate,
			Traffic: view.Traffic{Connections: 99_999_999, PacketsClient: 100_000_000, PacketsServer: 0, BytesClient: 1_000_000_000, BytesServer: 100_000_000_000},
			Groups: []view.ServiceGroup{{Scheduler: "wrr", Servers: []view.ServiceServer{
				{Address: "198.18.1.11:80", Method: "dr", Weight: 3, Active: 12, Inactive: 40, Rate: rate, Traffic: view.Traffic{Connections: 7, BytesServer: 100_000_000_000_000}},
				{Address: "198.18.1.12:80", Method: "nat", Weight: 1},
				{Address: "198.18.2.13:80", Method: "tun", Weight: 0},
				{Address: "198.18.1.14:80", Method: "fullnat", Weight: 65535, Active: 1234567},
			}}}},
		{Name: "any", Listen: []string{"198.18.0.81:*", "[2001:db8::81]:*"}, Mode: "nat", Protocol: "tcp", Persistence: &view.Persistence{Seconds: 1.5, Netmask: 32, Netmask6: 64},
			Groups: []view.ServiceGroup{{Scheduler: "sh", Servers: []view.ServiceServer{{Address: "[2001:db8:1::11]:*", Method: "nat", Weight: 1}}}}},
		{Name: "names", Listen: []string{"198.18.0.83:53"}, Mode: "dr", Protocol: "udp", OnePacket: true, Groups: []view.ServiceGroup{{Scheduler: "rr"}}},
		{Name: "content", Listen: []string{"198.18.0.84:80"}, Mode: "splice", Protocol: "tcp", Groups: []view.ServiceGroup{
			{Scheduler: "wlc", Servers: []view.ServiceServer{{Address: "198.18.1.11:8080", Method: "nat", Weight: 1}}},
			{Scheduler: "rr", Servers: []view.ServiceServer{{Address: "198.18.1.11:8080", Method: "nat", Weight: 1}, {Address: "198.18.1.12:8080", Method: "nat", Weight: 1}}},
		}},
		{Name: "answers", Listen: []string{"198.18.0.85:80"}, Mode: "splice", Protocol: "tcp"},
	}}
	for _, tt := range []struct {
		name  string
		write func(b *bytes.Buffer)
		want  string
	}{
		{"list", func(b *bytes.Buffer) { IPVS(b, table) }, `
SpliceNIC virtual servers (size=294912)
Prot LocalAddress:Port Scheduler Flags
  -> RemoteAddress:Port           Forward Weight ActiveConn InActConn
TCP  198.18.0.80:80 wrr persistent 300 mask 255.255.255.0
  -> 198.18.1.11:80               Route   3      12         40
  -> 198.18.1.12:80               Masq    1      0          0
  -> 198.18.2.13:80               Tunnel  0      0          0
  -> 198.18.1.14:80               FullNAT 65535  1234567    0
TCP  198.18.0.81:0 sh persistent 1.5
  -> [2001:db8:1::11]:0           Masq    1      0          0
TCP  [2001:db8::81]:0 sh persistent 1.5 mask 64
  -> [2001:db8:1::11]:0           Masq    1      0          0
UDP  198.18.0.83:53 rr ops
TCP  198.18.0.84:80 wlc
  -> 198.18.1.11:8080             Splice  1      0          0
  -> 198.18.1.12:8080             Splice  1      0          0
TCP  198.18.0.85:80 -
`},
		{"stats", func(b *bytes.Buffer) { IPVSStats(b, view.Table{Pages: 8, Services: table.Services[:1]}) }, `
SpliceNIC virtual servers (size=8)
Prot LocalAddress:Port               Conns   InPkts  OutPkts  InBytes OutBytes
  -> RemoteAddress:Port
TCP  198.18.0.80:80               99999999  100000K        0    1000M     100G
  -> 198.18.1.11:80                      7        0        0        0     100T
  -> 198.18.1.12:80                      0        0        0        0        0
  -> 198.18.2.13:80                      0        0        0        0        0
  -> 198.18.1.14:80                      0        0        0        0        0
`},
		{"rate", func(b *bytes.Buffer) { IPVSRate(b, view.Table{Pages: 8, Services: table.Services[:1]}) }, `
SpliceNIC virtual servers (size=8)
Prot LocalAddress:Port                 CPS    InPPS   OutPPS    InBPS   OutBPS
  -> RemoteAddress:Port
TCP  198.18.0.80:80                     12      100        0        0    3000M
  -> 198.18.1.11:80                     12      100        0        0    3000M
  -> 198.18.1.12:80                      0        0        0        0        0
  -> 198.18.2.13:80                      0        0        0        0        0
  -> 198.18.1.14:80                      0        0        0        0        0
`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var b bytes.Buffer
			tt.write(&b)
			if d := cmp.Diff(strings.TrimPrefix(tt.want, "\n"), b.String()); d != "" {
				t.Error(d)
			}
		})
	}
}
