package acceptance

import (
	"fmt"
	"net/netip"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"splicenic/tools/netlab"
	"splicenic/tools/netlab/decap"
)

// A farm is the product in front of servers that are hosts of their own on one segment. Answers of the routed ones go through
// the card; the direct ones have the VIPs on lo and another wire to the client, which the card does not see.
type farm struct {
	*product
	routed, direct []*backend
}

// A backend is a server of a farm.
type backend struct {
	*netlab.Namespace
	a4, a6 netip.Addr
	far    *decap.Decap // of a direct one
	resets atomic.Int64 // connections that others ended by RST
}

// The VIPs of a farm.
const (
	farm4 = "198.18.0.80"
	farm6 = "2001:db8::80"
)

// l3dsr is the DSCP that tells direct servers the VIPs.
const l3dsr = 10

// newFarm makes a farm of so many servers of each kind. The product does not run yet.
func newFarm(t *testing.T, each int) *farm {
	t.Helper()
	f := &farm{product: setUp(t)}
	must(t, f.lab.Link(f.client, "eth0", f.card, "eth1"))
	must(t, f.lab.Link(f.card, "eth2", f.servers, "card"))
	for _, a := range []string{"198.18.0.10/24", "2001:db8::10/64"} {
		must(t, f.client.Addr("eth0", a))
	}
	members := []string{"card"}
	for i := range 2 * each {
		direct, n := i >= each, 11+i
		if direct {
			n = 21 + i - each
		}
		name := fmt.Sprint("server", n)
		host, err := f.lab.Namespace(name)
		must(t, err)
		must(t, f.lab.Link(host, "eth0", f.servers, name))
		members = append(members, name)
		b := &backend{Namespace: host, a4: netip.MustParseAddr(fmt.Sprint("198.18.1.", n)), a6: netip.MustParseAddr(fmt.Sprint("2001:db8:1::", n))}
		must(t, host.Addr("eth0", b.a4.String()+"/24"))
		must(t, host.Addr("eth0", b.a6.String()+"/64"))
		if !direct {
			must(t, host.Route("default", "198.18.1.1"))
			must(t, host.Route("default", "2001:db8:1::1"))
			f.routed = append(f.routed, b)
			continue
		}
		f.bypass(b, n)
		f.direct = append(f.direct, b)
	}
	bridge(t, f.servers, members)
	must(t, f.client.Sysctl("net.ipv4.ip_local_port_range", "1024 65000"))
	must(t, f.client.Sysctl("net.ipv4.ip_local_reserved_ports", "30000-31999"))
	return f
}

// bypass joins a server with the client by a wire of their own, over which it answers from the VIPs.
func (f *farm) bypass(b *backend, n int) {
	f.t.Helper()
	must(f.t, f.lab.Link(f.client, b.Name(), b.Namespace, "eth1"))
	for _, x := range [][3]string{{"198.18.0.0/24", fmt.Sprintf("198.18.%d.1", n), fmt.Sprintf("198.18.%d.2/24", n)}, {"2001:db8::/64", fmt.Sprintf("2001:db8:%d::1", n), fmt.Sprintf("2001:db8:%d::2/64", n)}} {
		clients, gateway, own := x[0], x[1], x[2]
		must(f.t, f.client.Addr(b.Name(), gateway+own[strings.IndexByte(own, '/'):]))
		must(f.t, b.Addr("eth1", own))
		must(f.t, b.Route(clients, gateway))
	}
	var err error
	b.far, err = decap.Start(decap.Config{Namespace: b.Namespace, Interface: "eth0", VIPs: []string{farm4 + "/32", farm6 + "/128"},
		Rules: decap.Rules{DSCP: map[uint8][]netip.Addr{l3dsr: {netip.MustParseAddr(farm4), netip.MustParseAddr(farm6)}}}})
	must(f.t, err)
	f.t.Cleanup(func() { must(f.t, b.far.Close()) })
}

// A way is how packets reach the servers of a service.
type way struct {
	name, mode, tunnel string
	port               uint16 // of the service: the server's too, but for nat and fullnat
	direct             bool
	kinds              [2]decap.Kind // of packets to an IPv4 server and to an IPv6 server, where a tunnel leads there
}

var ways = []way{
	{name: "nat", mode: "nat", port: 8001},
	{name: "fullnat", mode: "fullnat", port: 8002},
	{name: "ipip", mode: "tun", tunnel: "{type: ipip}", port: 8003, direct: true, kinds: [2]decap.Kind{decap.IPv4, decap.IPv6}},
	{name: "gre", mode: "tun", tunnel: "{type: gre}", port: 8004, direct: true, kinds: [2]decap.Kind{decap.GRE, decap.GRE}},
	{name: "gue", mode: "tun", tunnel: "{type: gue}", port: 8005, direct: true, kinds: [2]decap.Kind{decap.GUE, decap.GUE}},
	{name: "dr", mode: "dr", port: 8006, direct: true},
}

// serverPort is the port at which servers of a way listen: not the service's where the card translates.
func (w *way) serverPort() uint16 {
	if w.direct {
		return w.port
	}
	return w.port + 1000
}

// servers are the farm's servers of a way.
func (w *way) servers(f *farm) []*backend {
	if w.direct {
		return f.direct
	}
	return f.routed
}

// families are the two of each way.
var families = []struct {
	name        string
	vip, client netip.Addr
}{{"IPv4", netip.MustParseAddr(farm4), netip.MustParseAddr("198.18.0.10")}, {"IPv6", netip.MustParseAddr(farm6), netip.MustParseAddr("2001:db8::10")}}

// address is the server's of a family.
func (b *backend) address(family int) netip.Addr {
	if family == 0 {
		return b.a4
	}
	return b.a6
}

// farmPorts begins every configuration of a farm.
const farmPorts = `card: emu
emu: {client: eth1, server: eth2}
ports:
  client: {addresses: [198.18.0.1/24, "2001:db8::1/64"]}
  server: {addresses: [198.18.1.1/24, "2001:db8:1::1/64"]}
`

// config is a configuration with a service for each way, family and protocol, and keys of every group.
func (f *farm) config(group string) string {
	return f.services(group, func(*way, int, string) (string, bool) { return "", true })
}

// services is config of those services that are wanted, with more keys of theirs.
func (f *farm) services(group string, wanted func(w *way, family int, protocol string) (keys string, ok bool)) string {
	var services, groups strings.Builder
	for _, w := range ways {
		for i, fam := range families {
			name, used := w.name+fam.name[3:], false
			for _, protocol := range []string{"tcp", "udp"} {
				if keys, ok := wanted(&w, i, protocol); ok {
					used = true
					fmt.Fprintf(&services, "  - {name: %s-%s, listen: [%q], mode: %s, protocol: %s, default: %s, timeouts: {idle: 10s}%s}\n", name, protocol, netip.AddrPortFrom(fam.vip, w.port), w.mode, protocol, name, keys)
				}
			}
			if !used {
				continue
			}
			fmt.Fprintf(&groups, "  - {name: %s, check: {type: none}, %s", name, group)
			if w.tunnel != "" {
				groups.WriteString(", tunnel: " + w.tunnel)
			}
			groups.WriteString(", servers: [")
			for k, b := range w.servers(f) {
				if k > 0 {
					groups.WriteString(", ")
				}
				fmt.Fprintf(&groups, "{address: %q, weight: %d}", netip.AddrPortFrom(b.address(i), w.serverPort()), 1+k)
			}
			groups.WriteString("]}\n")
		}
	}
	return farmPorts + "services:\n" + services.String() + "groups:\n" + groups.String()
}

// answerAll has the servers of every way answer.
func (f *farm) answerAll() {
	f.t.Helper()
	for _, w := range ways {
		for i := range families {
			for _, b := range w.servers(f) {
				at := netip.AddrPortFrom(b.address(i), w.serverPort())
				if w.direct {
					at = netip.AddrPortFrom(families[i].vip, w.port)
				}
				f.answer(b, "tcp", at)
				f.answer(b, "udp", at)
			}
		}
	}
}

// TestLayer4 has real clients talk to real servers by every way, family and protocol: every connection is answered, by whom
// the scheduler chose, who sees the client as the way says; answers of direct servers do not touch the card.
func TestLayer4(t *testing.T) {
	n := 200
	if long {
		n = 10_000
	}
	f := newFarm(t, 3)
	f.answerAll()
	f.begin(f.config("scheduler: rr"))
	// The card sees no end of a connection whose answers go past it, so that its page leaves by this time-out.
	f.set("timer.closing", 2000)
	for _, w := range ways {
		for i, fam := range families {
			for _, protocol := range []string{"tcp", "udp"} {
				t.Run(w.name+" "+fam.name+" "+protocol, func(t *testing.T) {
					var past *watches
					if w.direct {
						past = f.watch(t, f.card, "eth2", unix.ETH_P_IP, unix.ETH_P_IPV6)
					}
					began := time.Now()
					answers := f.ask(t, protocol, netip.AddrPortFrom(fam.vip, w.port), n)
					t.Logf("%d in %v", n, time.Since(began).Round(time.Millisecond))
					f.seen(t, &w, i, answers)
					shares(t, answers, w.servers(f), []int{1, 1, 1})
					if w.direct {
						for _, frame := range past.stop() {
							if from, _, ok := ends(frame); ok && from.Addr() == fam.vip {
								t.Errorf("an answer touched the card: %x", frame)
								break
							}
						}
					}
				})
			}
		}
	}
	f.atRest()
	f.unwrapped(n)
}

// unwrapped checks that the tunnels' far ends have taken out what connections are made of, and refused nothing.
func (f *farm) unwrapped(n int) {
	f.t.Helper()
	got := map[decap.Kind]int{}
	for _, b := range f.direct {
		c := b.far.Counters()
		for k, v := range c.Kinds {
			got[k] += int(v)
		}
		if len(c.Refused) > 0 || c.Undelivered > 0 {
			f.t.Errorf("%s: refused %v, %d undelivered", b.Name(), c.Refused, c.Undelivered)
		}
	}
	want := map[decap.Kind]int{} // the least: SYN, ACK, a line, FIN; and one datagram
	for _, w := range ways {
		for i := range families {
			if w.tunnel != "" {
				want[w.kinds[i]] += 5 * n
			}
		}
	}
	for k, v := range got {
		if v < want[k] || want[k] == 0 {
			f.t.Errorf("%d packets by %s, want %d and more", v, k, want[k])
		}
	}
	if len(got) != len(want) {
		f.t.Errorf("packets by %v, want %v", got, want)
	}
}

// set writes a register.
func (p *product) set(name string, value int) {
	p.t.Helper()
	if out, err := exec.Command(binary, "reg", "set", name, strconv.Itoa(value), "--socket", p.socket).CombinedOutput(); err != nil {
		p.t.Fatalf("reg set %s: %v\n%s", name, err, out)
	}
}

// seen checks which client the servers saw.
func (f *farm) seen(t *testing.T, w *way, family int, answers []reply) {
	t.Helper()
	for _, a := range answers {
		want := a.from
		if w.mode == "fullnat" {
			want = netip.AddrPortFrom([]netip.Addr{netip.MustParseAddr("198.18.1.1"), netip.MustParseAddr("2001:db8:1::1")}[family], a.seen.Port())
		}
		if a.seen != want {
			t.Errorf("server %s saw %s, want %s", a.server, a.seen, want)
			return
		}
	}
}
