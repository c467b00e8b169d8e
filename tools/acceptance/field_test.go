package acceptance

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"splicenic/emu/port"
	"splicenic/tools/netlab"
)

// A field is the product between many clients and many servers, each in a namespace with kernel settings of its own, and
// a wire on either side of the card that can be made bad:
//
//	clients ─ west ─ link ─ card ─ link ─ east ─ servers
//
// west and east are routers. Client i and server j have the addresses of home(i) and site(j); server j is behind the VIPs
// of vip(j).
type field struct {
	*product
	clients, servers []*netlab.Namespace
	west, east       *netlab.Namespace
	wires            [2][2]port.Port // west's and east's; of each the end away from the card first
	links            [2]*port.Link
	unlink           func()
}

// place is one host's addresses in the two families, and its router's.
type place struct{ v4, v6, router4, router6 string }

func home(i int) place {
	return place{fmt.Sprintf("198.18.%d.2", 64+i), fmt.Sprintf("2001:db8:1:%x::2", 64+i), fmt.Sprintf("198.18.%d.1", 64+i), fmt.Sprintf("2001:db8:1:%x::1", 64+i)}
}

func site(j int) place {
	return place{fmt.Sprintf("198.18.%d.2", 128+j), fmt.Sprintf("2001:db8:1:%x::2", 128+j), fmt.Sprintf("198.18.%d.1", 128+j), fmt.Sprintf("2001:db8:1:%x::1", 128+j)}
}

// The card's own addresses and the routers' on its subnets.
const (
	cardWest4, cardWest6 = "198.18.0.1", "2001:db8::1"
	cardEast4, cardEast6 = "198.18.1.1", "2001:db8:0:1::1"
	west4, west6         = "198.18.0.254", "2001:db8::fe"
	east4, east6         = "198.18.1.254", "2001:db8:0:1::fe"
)

// Listeners of a server. All but plain are for one host in turn.
const (
	plainPort = 80
	mptcpPort = 81 // IPPROTO_MPTCP
	fastPort  = 82 // Fast Open
)

// vip is the address clients reach server j at.
func vip(j, family, serverPort int) string {
	host := fmt.Sprintf("198.18.0.%d", 100+j)
	if family == 6 {
		host = fmt.Sprintf("2001:db8::%x", 256+j)
	}
	return net.JoinHostPort(host, strconv.Itoa(serverPort))
}

// fieldConfig is a service for each listener of n servers; service is appended to each service's line, group to each
// group's.
func fieldConfig(n int, ports []int, service string, group func(j, family int) string) string {
	var services, groups strings.Builder
	for j := range n {
		for _, family := range []int{4, 6} {
			for _, p := range ports {
				name := fmt.Sprintf("s%d-%d-%d", j, p, family)
				address := site(j).v4
				if family == 6 {
					address = site(j).v6
				}
				fmt.Fprintf(&services, "  - {name: %s, listen: [\"%s\"], mode: splice, protocol: http, default: %s%s}\n", name, vip(j, family, p), name, service)
				fmt.Fprintf(&groups, "  - {name: %s, servers: [{address: \"%s\"}]%s}\n", name, net.JoinHostPort(address, strconv.Itoa(p)), group(j, family))
			}
		}
	}
	return fmt.Sprintf(`card: emu
emu: {client: eth1, server: eth2}
ports:
  client: {addresses: [%s/24, "%s/64"], gateway: [%s, "%s"]}
  server: {addresses: [%s/24, "%s/64"], gateway: [%s, "%s"]}
services:
%sgroups:
%s`, cardWest4, cardWest6, west4, west6, cardEast4, cardEast6, east4, east6, services.String(), groups.String())
}

// newField builds the network around a card that does not run yet.
func newField(t *testing.T, clients, servers int) *field {
	t.Helper()
	f := &field{product: newProduct(t)}
	f.card, f.west, f.east = f.namespace("card"), f.namespace("west"), f.namespace("east")
	lines := f.namespace("lines")
	must(t, f.lab.Link(f.west, "out", lines, "w0"))
	must(t, f.lab.Link(lines, "w1", f.card, "eth1"))
	must(t, f.lab.Link(f.card, "eth2", lines, "e1"))
	must(t, f.lab.Link(lines, "e0", f.east, "out"))
	f.router(f.west, west4, west6, cardWest4, cardWest6)
	f.router(f.east, east4, east6, cardEast4, cardEast6)
	for i := range clients {
		f.clients = append(f.clients, f.host(fmt.Sprintf("client%d", i), f.west, home(i)))
	}
	for j := range servers {
		f.servers = append(f.servers, f.host(fmt.Sprintf("server%d", j), f.east, site(j)))
	}
	for side, names := range [2][2]string{{"w0", "w1"}, {"e0", "e1"}} {
		for end, name := range names {
			must(t, lines.Do(func() (err error) { f.wires[side][end], err = port.Open(name); return err }))
			t.Cleanup(func() {
				if err := f.wires[side][end].Close(); err != nil {
					t.Error(err)
				}
			})
		}
	}
	t.Cleanup(func() { f.unlink() })
	f.impair(port.Impairment{}, port.Impairment{})
	return f
}

func (f *field) namespace(name string) *netlab.Namespace {
	f.t.Helper()
	n, err := f.lab.Namespace(name)
	must(f.t, err)
	return n
}

// router gives a namespace its link to the card.
func (f *field) router(n *netlab.Namespace, v4, v6, card4, card6 string) {
	f.t.Helper()
	must(f.t, n.Sysctl("net.ipv4.ip_forward", "1"))
	must(f.t, n.Sysctl("net.ipv6.conf.all.forwarding", "1"))
	must(f.t, n.Addr("out", v4+"/24"))
	must(f.t, n.Addr("out", v6+"/64"))
	must(f.t, n.Route("default", card4))
	must(f.t, n.Route("default", card6))
}

// host is a namespace behind a router.
func (f *field) host(name string, router *netlab.Namespace, p place) *netlab.Namespace {
	f.t.Helper()
	n := f.namespace(name)
	must(f.t, f.lab.Link(n, "eth0", router, name))
	must(f.t, n.Addr("eth0", p.v4+"/24"))
	must(f.t, n.Addr("eth0", p.v6+"/64"))
	must(f.t, router.Addr(name, p.router4+"/24"))
	must(f.t, router.Addr(name, p.router6+"/64"))
	must(f.t, n.Route("default", p.router4))
	must(f.t, n.Route("default", p.router6))
	must(f.t, n.Sysctl("net.ipv4.tcp_no_metrics_save", "1")) // one cell's losses are not the next one's start
	return n
}

// impair puts new wires in place, the same in both directions. What is on the way is lost.
func (f *field) impair(west, east port.Impairment) {
	if f.unlink != nil {
		f.unlink()
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for side, how := range [2]port.Impairment{west, east} {
		ends := f.wires[side]
		l := port.NewLink(port.LinkConfig{A: ends[0], B: ends[1], AB: how, BA: how, Seed: uint64(1 + side)})
		f.links[side] = l
		running.Go(func() {
			if err := l.Run(ctx); err != nil {
				f.t.Errorf("link %d: %v", side, err)
			}
		})
	}
	f.unlink = func() { cancel(); running.Wait(); f.unlink = func() {} }
}

// A flavour is what one end's socket does beside plain TCP.
type flavour uint8

const (
	plain flavour = iota
	multipath
	fastOpen
)

// listen opens a listener of a namespace.
func listen(n *netlab.Namespace, how flavour, address string) (ln net.Listener, err error) {
	lc := net.ListenConfig{}
	lc.SetMultipathTCP(how == multipath)
	if how == fastOpen {
		lc.Control = setsockopt(unix.IPPROTO_TCP, unix.TCP_FASTOPEN, 64)
	}
	err = n.Do(func() error {
		ln, err = lc.Listen(context.Background(), "tcp", address)
		return err
	})
	return ln, err
}

// dial connects from a namespace to a literal address, at once with Fast Open.
func dial(ctx context.Context, n *netlab.Namespace, how flavour, address string) (c *net.TCPConn, err error) {
	var d net.Dialer
	d.SetMultipathTCP(how == multipath)
	if how == fastOpen {
		d.Control = setsockopt(unix.IPPROTO_TCP, unix.TCP_FASTOPEN_CONNECT, 1)
	}
	err = n.Do(func() error {
		conn, err := d.DialContext(ctx, "tcp", address)
		if err == nil {
			c = conn.(*net.TCPConn)
		}
		return err
	})
	return c, err
}

func setsockopt(level, option, value int) func(string, string, syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) error {
		var inner error
		if err := c.Control(func(fd uintptr) { inner = unix.SetsockoptInt(int(fd), level, option, value) }); err != nil {
			return err
		}
		return os.NewSyscallError("setsockopt", inner)
	}
}

// kernelCounters reads one of the kernel's files of "Name: labels" and "Name: values" lines for a namespace, by "Name.label".
func kernelCounters(n *netlab.Namespace, file string) (map[string]int64, error) {
	var text []byte
	err := n.Do(func() (err error) {
		text, err = os.ReadFile(filepath.Join("/proc/thread-self/net", file))
		return err
	})
	if err != nil {
		return nil, err
	}
	counters := map[string]int64{}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	for i := 0; i+1 < len(lines); i += 2 {
		labels, values := strings.Fields(lines[i]), strings.Fields(lines[i+1])
		for k := 1; k < len(labels) && k < len(values); k++ {
			v, err := strconv.ParseInt(values[k], 10, 64)
			if err != nil {
				return nil, fmt.Errorf("%s: %s%s: %w", file, labels[0], labels[k], err)
			}
			counters[strings.TrimSuffix(labels[0], ":")+"."+labels[k]] = v
		}
	}
	return counters, nil
}

// counter reads one counter of /proc/net/snmp or /proc/net/netstat.
func (f *field) counter(n *netlab.Namespace, name string) int64 {
	f.t.Helper()
	for _, file := range []string{"snmp", "netstat"} {
		cs, err := kernelCounters(n, file)
		must(f.t, err)
		if v, ok := cs[name]; ok {
			return v
		}
	}
	f.t.Fatalf("the kernel has no counter %s", name)
	return 0
}

const patience = 60 * time.Second // of a transfer over a bad wire
