package config

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// four is a configuration with everything about layer 4 in it.
const four = `emu: {client: eth1, server: eth2}
ports:
  client: {addresses: [198.18.0.1/24, "2001:db8:1::1/64"]}
  server: {addresses: [198.18.1.1/24, "2001:db8:2::1/64"]}
services:
  - name: web4
    listen: ["198.18.0.80:80", "198.18.0.80:8000-8003"]
    mode: nat
    default: app
    source: [198.18.0.0/25, 198.18.0.129]
    sloppy: true
    persistence: {time: 300s, netmask: 24, netmask6: 64, ports: all}
    expire_quiescent: true
    expire_nodest: true
    conn_reuse: false
    module: ftp
    timeouts: {idle: 15m}
  - {name: rest, listen: ["198.18.0.80:80", "198.18.0.80:8000-8003"], mode: fullnat, default: full}
  - {name: names, listen: ["198.18.0.81:53", "[2001:db8:1::53]:53"], mode: dr, protocol: udp, one_packet: true, default: dns}
  - {name: all, listen: ["198.18.0.82:*"], mode: tun, default: far}
  - {name: shop, listen: ["198.18.0.83:80"], default: spliced, persistence: {cookie: SRV}}
groups:
  - name: app
    scheduler: wlc
    slow_start: 30s
    drain: 60s
    servers:
      - {address: 198.18.1.11:80, weight: 3, upper: 1000, lower: 800}
      - {address: "198.18.1.12:*"}
      - {address: "[2001:db8:2::11]:80"}
  - name: full
    scheduler: maglev
    hash: {port: true, fallback: true}
    local: [198.18.1.100, 198.18.1.101-198.18.1.103, "2001:db8:2::100"]
    servers: [{address: 198.18.1.13:80}, {address: "[2001:db8:2::13]:8080"}]
  - name: dns
    servers: [{address: 198.18.1.14:53, method: tun}, {address: 198.18.1.15:53, method: tun, tunnel: {type: gue, checksum: remote}}, {address: 198.18.1.15, method: tun}]
  - name: far
    method: tun
    tunnel: {type: gre, checksum: full}
    servers: [{address: 198.18.1.16}, {address: 198.18.1.17, tunnel: {type: dscp, dscp: 10}}, {address: "198.18.1.18:*", method: dr, tunnel: {}}]
  - name: spliced
    servers: [{address: 198.18.1.19:80, cookie: a, method: tun, return: card}, {address: 198.18.1.20:8080, cookie: b}]
`

func TestLayer4(t *testing.T) {
	c := load(t, strings.Replace(four, ", method: dr, tunnel: {}", "", 1))
	opts := cmp.Options{cmpopts.IgnoreTypes(Position{}), cmpopts.IgnoreUnexported(Route{}), cmpopts.EquateComparable(netip.Prefix{}, netip.Addr{}, netip.AddrPort{})}
	web := c.Services[0]
	want := Service{
		Name: "web4", Mode: NAT, Protocol: TCP, Default: Target{Group: "app"}, Sloppy: true, Source: []netip.Prefix{netip.MustParsePrefix("198.18.0.0/25"), netip.MustParsePrefix("198.18.0.129/32")},
		Persistence: Persistence{Time: 5 * time.Minute, Netmask: 24, Netmask6: 64, AllPorts: true}, ExpireQuiescent: true, ExpireNodest: true, KeepServer: true, Module: "ftp", Idle: 15 * time.Minute,
		Listen: []Listen{
			{Addr: netip.MustParseAddrPort("198.18.0.80:80")}, {Addr: netip.MustParseAddrPort("198.18.0.80:8000")}, {Addr: netip.MustParseAddrPort("198.18.0.80:8001")},
			{Addr: netip.MustParseAddrPort("198.18.0.80:8002")}, {Addr: netip.MustParseAddrPort("198.18.0.80:8003")},
		},
	}
	if diff := cmp.Diff(want, web, opts); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if names := c.Services[2]; !names.OnePacket || names.Protocol != UDP || names.Mode != DR || names.Defence != DefenceOff {
		t.Errorf("service names: %+v", names)
	}
	if all := c.Services[3]; all.Listen[0].Addr != netip.MustParseAddrPort("198.18.0.82:0") || all.Defence != DefenceOff || all.Protocol != TCP {
		t.Errorf("service all: %+v", all)
	}
	if d := c.Services[1].Defence; d != DefenceAuto {
		t.Errorf("defence of fullnat: %v", d)
	}
	full := c.Group("full")
	if full.Scheduler != Maglev || full.Hash != (Hash{true, true}) || len(full.Local) != 5 {
		t.Errorf("group full: %+v", full)
	}
	app := c.Group("app")
	if s := app.Servers[0]; s.Upper != 1000 || s.Lower != 800 || app.SlowStart != 30*time.Second || app.Drain != time.Minute || app.Scheduler != "wlc" {
		t.Errorf("group app: %+v", app)
	}
	far := c.Group("far").Servers
	if diff := cmp.Diff(Tunnel{Type: GRE, Checksum: FullChecksum}, far[0].Tunnel, opts); diff != "" || far[1].Tunnel.DSCP != 10 || far[2].Addr.Port() != 0 {
		t.Errorf("tunnels %+v\n%s", far, diff)
	}
	if gue := c.Group("dns").Servers[1].Tunnel; gue.Type != GUE || gue.Port != 6080 || gue.Checksum != RemoteChecksum {
		t.Errorf("gue: %+v", gue)
	}
	if s := c.Group("spliced").Servers; !s[0].Return || s[0].Cookie != "a" || c.Services[4].Persistence.Cookie != "SRV" {
		t.Errorf("spliced: %+v", s)
	}
	if got := len(Diff(c, c)); got != 0 {
		t.Errorf("%d differences from itself", got)
	}
	asked := c.Asked(Listener{netip.MustParseAddrPort("198.18.0.80:80"), false})
	if len(asked) != 2 || asked[0].Name != "web4" || asked[1].Name != "rest" {
		t.Errorf("asked: %v", asked)
	}
}

// TestPools: a group counts once for each protocol and default method that services use it with.
func TestPools(t *testing.T) {
	c := load(t, strings.NewReplacer("listen: [198.18.0.80:80]\n", "listen: [198.18.0.80:80]\n    mode: dr\n",
		"groups:", "  - {name: u, listen: [198.18.0.80:80], mode: nat, protocol: udp, default: app}\n  - {name: s, listen: [198.18.0.81:80], default: app}\n  - {name: n, listen: [198.18.0.82:80], mode: nat, default: app}\n  - {name: said, listen: [198.18.0.83:80], mode: tun, default: b}\ngroups:").Replace(small)+
		"  - {name: b, method: dr, servers: [{address: 198.18.1.12}]}\n  - {name: idle, servers: [{address: 198.18.1.13:80}]}\n")
	var got []string
	for _, p := range c.Pools() {
		got = append(got, fmt.Sprint(c.PoolName(p), " ", p.Method(&p.Group.Servers[0]), " ", len(c.Users(p))))
	}
	want := []string{"app dr 1", "app/udp nat 1", "app/nat nat 2", "b dr 1", "idle nat 0"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// service puts keys into the service of the least configuration, and server others into its server.
func layer4(service, server, group string) string {
	text := strings.Replace(small, "    default: app\n", "    default: app\n    "+service+"\n", 1)
	if server != "" {
		text = strings.Replace(text, "{address: 198.18.1.11:80}", server, 1)
	}
	if group != "" {
		text += "    " + group + "\n"
	}
	return text
}

func TestLayer4Problems(t *testing.T) {
	six := strings.NewReplacer("[198.18.1.1/24]", `[198.18.1.1/24, "2001:db8:2::1/64"]`)
	for _, tt := range []struct {
		name, text string
		want       string // in the error; empty: there is none
		near       string
	}{
		{"mode of ipvsadm", layer4("mode: masq", "", ""), `"masq" is no mode`, "nat"},
		{"mode of keepalived", layer4("mode: droute", "", ""), `"droute" is no mode`, "dr"},
		{"netmask of ipvsadm", layer4("mode: nat\n    persistence: {time: 300s, netmask: 255.255.255.0}", "", ""), "persistence.netmask: wants the number of bits: for 255.255.255.0 write 24", ""},
		{"netmask with holes", layer4("mode: nat\n    persistence: {time: 300s, netmask: 255.0.255.0}", "", ""), `wants netmask (1 to 32), got "255.0.255.0"`, ""},
		{"mode near", layer4("mode: fulnat", "", ""), `x.yaml:9:11: services[0].mode: "fulnat" is no mode; there is splice, nat, fullnat, tun, dr`, "fullnat"},
		{"http passed on", layer4("mode: nat\n    protocol: http", "", ""), "services[0].protocol: with mode: nat nobody reads http", ""},
		{"udp spliced", layer4("protocol: udp", "", ""), "datagrams cannot be spliced", ""},
		{"routes", layer4("mode: tun\n    routes: [{path: /x, to: app}]", "", ""), "x.yaml:10:13: services[0].routes: is for services that are spliced; with mode: tun", ""},
		{"isn", layer4("mode: nat\n    isn: keyed", "", ""), "services[0].isn: is for services that are spliced", ""},
		{"sloppy spliced", layer4("sloppy: true", "", ""), "services[0].sloppy: is for services whose connections are passed on at once", ""},
		{"idle", layer4("idle: 15m", "", ""), "services[0].idle: is written timeouts: {idle: 15m}", ""},
		{"no default", strings.Replace(layer4("mode: nat", "", ""), "    default: app\n", "", 1), "services[0].default: is missing: with mode: nat", ""},
		{"answer", strings.Replace(layer4("mode: nat", "", ""), "default: app", "default: {reply: 404}", 1), "a tcp service cannot answer", ""},

		{"one_packet nat", layer4("mode: nat\n    protocol: udp\n    one_packet: true", "", ""), "one_packet of service web (line 6) keeps no pages", ""},
		{"one_packet tcp", layer4("mode: dr\n    one_packet: true", "", ""), "services[0].one_packet: is about datagrams", ""},
		{"one_packet dr", layer4("mode: dr\n    protocol: udp\n    one_packet: true", "", ""), "", ""},
		{"one_packet persistent", layer4("mode: dr\n    protocol: udp\n    one_packet: true\n    persistence: {time: 1m}", "", ""), "chooses a server for every datagram", ""},
		{"sloppy udp", layer4("mode: dr\n    protocol: udp\n    sloppy: true", "", ""), "datagrams have none", ""},
		{"module wrong", layer4("mode: nat\n    module: sip", "", ""), `"sip" is no module; there is ftp, tftp`, ""},
		{"module of another protocol", layer4("mode: nat\n    module: tftp", "", ""), "tftp is spoken over udp, and the service is protocol: tcp", ""},
		{"module past the card", layer4("mode: dr\n    module: ftp", "", ""), "module: ftp of service web (line 6) reads along in both directions", ""},
		{"persistence without time", layer4("mode: nat\n    persistence: {netmask: 24}", "", ""), "services[0].persistence: time is missing", ""},
		{"persistence without a unit", layer4("mode: nat\n    persistence: {time: 300}", "", ""), "services[0].persistence.time: duration 300 has no unit", ""},
		{"persistence mask", layer4("mode: nat\n    persistence: {time: 1m, netmask: 33}", "", ""), "netmask is 33; it may be 1 to 32", ""},
		{"persistence ports", layer4("mode: nat\n    persistence: {time: 1m, ports: al}", "", ""), `"al" is no ports`, "all"},
		{"persistence spliced", layer4("persistence: {time: 1m}", "", ""), "a spliced service persists by cookie", ""},
		{"cookie passed on", layer4("mode: nat\n    persistence: {cookie: x}", "", ""), "it needs mode: splice and protocol: http", ""},
		{"cookie that leads nowhere", layer4("persistence: {cookie: x}", "", ""), "leads nowhere: no server of service web has a cookie", ""},
		{"cookie of two", layer4("persistence: {cookie: x}", "{address: 198.18.1.11:80, cookie: a}, {address: 198.18.1.12:80, cookie: a}", ""), `"a" leads to the server at line 12 already`, ""},
		{"cookie value", layer4("persistence: {cookie: x}", "{address: 198.18.1.11:80, cookie: 'a;b'}", ""), "is no value of a cookie", ""},

		{"defence dr", layer4("mode: dr\n    defence: auto", "", ""), "x.yaml:10:14: services[0].defence: auto cannot be: with dr (server 198.18.1.11:80, line 13) replies go past the card", ""},
		{"defence tun of one server", layer4("mode: nat\n    defence: always", "{address: 198.18.1.11:80, method: tun}", ""), "always cannot be: with tun", ""},
		{"defence off", layer4("mode: dr\n    defence: off", "", ""), "", ""},
		{"defence udp", layer4("mode: nat\n    protocol: udp\n    defence: always", "", ""), "cookies answer SYNs", ""},

		{"splice dr", small + "    method: dr\n", "x.yaml:11:15: groups[0].servers[0].method: service web (line 6) is spliced, and a splice needs the replies through the card; with dr they go past it", ""},
		{"splice tun", small + "    method: tun\n", "with tun they go past it unless the server returns them", ""},
		{"splice tun return", small + "    method: tun\n    return: card\n", "", ""},
		{"splice dscp", small + "    method: tun\n    return: card\n    tunnel: {type: dscp, dscp: 3}\n", "with a type of tunnel that has a header", ""},
		{"splice fullnat", small + "    method: fullnat\n", "", ""},
		{"splice any port", layer4("", `{address: "198.18.1.11:*"}`, ""), "is spliced: its servers have a port", ""},
		{"return nat", layer4("mode: nat", "", "return: card"), "is about servers behind a tunnel; with nat replies come back through the card anyway", ""},
		{"tunnel nat", layer4("mode: nat", "", "tunnel: {type: gre}"), "is for the method tun", ""},
		{"tunnel near", layer4("mode: tun", "", "tunnel: {type: gree}"), `"gree" is no type`, "gre"},
		{"tunnel port", layer4("mode: tun", "", "tunnel: {port: 6080}"), "port is that of gue; ipip has none", ""},
		{"tunnel checksum", layer4("mode: tun", "", "tunnel: {checksum: full}"), "checksum is that of gre and gue", ""},
		{"tunnel remote", layer4("mode: tun", "", "tunnel: {type: gre, checksum: remote}"), "checksum: remote is an option of gue", ""},
		{"tunnel dscp", layer4("mode: tun", "", "tunnel: {type: gue, dscp: 1}"), "dscp is for type: dscp", ""},
		{"tunnel without dscp", layer4("mode: tun", "", "tunnel: {type: dscp}"), "dscp is missing", ""},
		{"tunnel dscp large", layer4("mode: tun", "", "tunnel: {type: dscp, dscp: 64}"), "dscp is 64; it may be 1 to 63", ""},

		{"nat without port", layer4("mode: nat", "{address: 198.18.1.11}", ""), `"198.18.1.11" has no port: write 198.18.1.11:80, or 198.18.1.11:* for`, ""},
		{"nat any port", layer4("mode: nat", `{address: "198.18.1.11:*"}`, ""), "", ""},
		{"dr without port", layer4("mode: dr", "{address: 198.18.1.11}", ""), "", ""},
		{"dr with every port", strings.Replace(layer4("mode: dr", "", ""), "198.18.0.80:80", `"198.18.0.80:*"`, 1), "port 80 of server 198.18.1.11:80 cannot serve every port of service web (line 7)", ""},
		{"nat64", six.Replace(layer4("mode: nat", `{address: "[2001:db8:2::11]:80"}`, "")), "", ""},
		{"nat64 spliced", six.Replace(layer4("", `{address: "[2001:db8:2::11]:80"}`, "")), "nat keeps the client's address", ""},
		{"nat46", strings.Replace(layer4("mode: nat", "", ""), "198.18.0.80:80", `"[2001:db8::80]:80"`, 1), "use fullnat", ""},
		{"fullnat46", strings.Replace(layer4("mode: fullnat", "", ""), "198.18.0.80:80", `"[2001:db8::80]:80"`, 1), "", ""},
		{"fullnat without a local address", strings.NewReplacer("[198.18.1.1/24]", `[198.18.1.1/24, "2001:db8:2::1/64"], gateway: "2001:db8:2::2"`).Replace(layer4("mode: fullnat", `{address: "[2001:db8:3::11]:80"}`, "")), "", ""},
		{"dr of another family", six.Replace(layer4("mode: dr", `{address: "2001:db8:2::11"}`, "")), "dr leaves the packet as it is", ""},
		{"tun of another family", six.Replace(layer4("mode: tun", `{address: "2001:db8:2::11"}`, "")), "", ""},
		{"dscp of another family", six.Replace(layer4("mode: tun", `{address: "2001:db8:2::11"}`, "tunnel: {type: dscp, dscp: 1}")), "tun leaves the packet as it is", ""},

		{"local is a VIP", layer4("mode: fullnat", "", "local: [198.18.0.80]"), "198.18.0.80 is a VIP or a server at line 7", ""},
		{"local is a server", layer4("mode: fullnat", "", "local: [198.18.1.10-198.18.1.12]"), "198.18.1.11 is a VIP or a server", ""},
		{"local twice", layer4("mode: fullnat", "", "local: [198.18.1.100, 198.18.1.99-198.18.1.101]"), "198.18.1.100 is given twice", ""},
		{"local backward", layer4("mode: fullnat", "", "local: [198.18.1.104-198.18.1.101]"), "is no address and no range of addresses", ""},
		{"local many", layer4("mode: fullnat", "", `local: ["2001:db8:2::-2001:db8:2::ffff"]`), "makes more than 1024 local addresses", ""},
		{"local broadcast", layer4("mode: fullnat", "", "local: [198.18.1.255]"), "names subnet 198.18.1.0/24 or its broadcast address", ""},

		{"range", strings.Replace(layer4("mode: nat", "", ""), "198.18.0.80:80", "198.18.0.80:80-90", 1), "", ""},
		{"range spliced", strings.Replace(small, "198.18.0.80:80", "198.18.0.80:80-90", 1), "", ""},
		{"range backward", strings.Replace(small, "198.18.0.80:80", "198.18.0.80:90-80", 1), "the range 90-80 ends before it begins", ""},
		{"range too long", strings.Replace(small, "198.18.0.80:80", "198.18.0.80:1-65535", 1), "comes to 65535 listeners", ""},
		{"range of nothing", strings.Replace(small, "198.18.0.80:80", "198.18.0.80:80-", 1), `"80-" is no range of ports`, ""},
		{"range twice", strings.Replace(small, "198.18.0.80:80", "198.18.0.80:80-90, 198.18.0.80:85", 1), "198.18.0.80:85/tcp is listened on at line 7 already", ""},
		{"range of IPv6", strings.Replace(layer4("mode: fullnat", "", ""), "198.18.0.80:80", `"2001:db8::1:80-81"`, 1), "is no address in front of a port", ""},
		{"every port spliced", strings.Replace(small, "198.18.0.80:80", `"198.18.0.80:*"`, 1), "a spliced service names its ports", ""},
		{"every port", strings.Replace(layer4("mode: nat", "", ""), "198.18.0.80:80", `"198.18.0.80:*"`, 1), "", ""},
		{"tcp and udp", strings.Replace(layer4("mode: nat", "", ""), "groups:", "  - {name: u, listen: [198.18.0.80:80], mode: nat, protocol: udp, default: app}\ngroups:", 1), "", ""},

		{"source not a net", layer4("source: [x]", "", ""), `services[0].source[0]: "x" is no network`, ""},
		{"second without the first's source", strings.Replace(layer4("", "", ""), "groups:", "  - {name: b, listen: [198.18.0.80:80], default: app, source: [198.18.0.0/25]}\ngroups:", 1), "198.18.0.80:80/tcp is listened on at line 7 already, by service web for every client: put b before it", ""},
		{"first with source", strings.Replace(layer4("source: 198.18.0.0/25", "", ""), "groups:", "  - {name: b, listen: [198.18.0.80:80], default: app}\ngroups:", 1), "", ""},
		{"who is next differs", strings.NewReplacer("[198.18.0.80:80]", "[198.18.0.80:80, 198.18.0.80:81]", "groups:", "  - {name: b, listen: [198.18.0.80:80], default: app}\ngroups:").Replace(layer4("source: 198.18.0.0/25", "", "")),
			"who is asked after service web has to be the same for all its listeners: at 198.18.0.80:81/tcp it is nobody, at 198.18.0.80:80 b", ""},
		{"five services", strings.Replace(layer4("source: 198.18.0.1", "", ""), "groups:", `  - {name: b, listen: [198.18.0.80:80], default: app, source: 198.18.0.2}
  - {name: c, listen: [198.18.0.80:80], default: app, source: 198.18.0.3}
  - {name: d, listen: [198.18.0.80:80], default: app, source: 198.18.0.4}
  - {name: e, listen: [198.18.0.80:80], default: app, source: 198.18.0.5}
groups:`, 1), "198.18.0.80:80/tcp has 5 services; one listener may have 4", ""},

		{"scheduler near", layer4("", "", "scheduler: wlcc"), `"wlcc" is no scheduler`, "wlc"},
		{"hash of wlc", layer4("", "", "scheduler: wlc\n    hash: {port: true}"), "groups[0].hash: is for the schedulers sh and mh; this one is wlc", ""},
		{"lower", layer4("", "{address: 198.18.1.11:80, upper: 5, lower: 5}", ""), "lower 5 is not less than upper 5", ""},
		{"lower alone", layer4("", "{address: 198.18.1.11:80, lower: 5}", ""), "lower 5 is not less than upper 0", ""},
		{"upper near", layer4("", "{address: 198.18.1.11:80, uper: 5}", ""), "unknown key of a server", "upper"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := Load("x.yaml", []byte(tt.text))
			if tt.want == "" {
				if err != nil {
					t.Fatalf("error %v", err)
				}
				if len(Diff(nil, c)) == 0 {
					t.Error("no facts")
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("error is\n%v\nwant in it\n%s", err, tt.want)
			}
			if got := err.(Problems)[0].Near; got != tt.near {
				t.Errorf("near %q, want %q", got, tt.near)
			}
		})
	}
}

// TestCaseC23: with dr and tun a server has the port of the service; another one is an error, not ignored.
func TestCaseC23(t *testing.T) {
	for _, mode := range []string{"dr", "tun"} {
		for _, by := range []struct{ how, service, group string }{
			{"service", "mode: " + mode, ""}, {"group", "mode: nat", "method: " + mode}, {"server", "mode: nat", ""},
		} {
			server := "{address: 198.18.1.11:8080}"
			if by.how == "server" {
				server = "{address: 198.18.1.11:8080, method: " + mode + "}"
			}
			_, err := Load("x.yaml", []byte(layer4(by.service, server, by.group)))
			want := "x.yaml:12:15: groups[0].servers[0]: port 8080 of server 198.18.1.11:8080 is not port 80 of service web (line 7): with " + mode
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s by %s: error %v\nwant in it %s", mode, by.how, err, want)
			}
		}
	}
	for _, mode := range []string{"nat", "fullnat", "splice"} {
		load(t, layer4("mode: "+mode, "{address: 198.18.1.11:8080}", ""))
	}
}
