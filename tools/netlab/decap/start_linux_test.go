package decap

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"splicenic/tools/netlab"
)

// TestMain takes an ordinary user into a user namespace.
func TestMain(m *testing.M) {
	code, done, err := netlab.Enter()
	switch {
	case done:
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(code)
	case err != nil && !errors.Is(err, netlab.ErrNotPermitted):
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestStart sends a datagram by each tunnel over both families to a server that has the VIP, and gets its answer from there.
func TestStart(t *testing.T) {
	lab, err := netlab.New()
	if errors.Is(err, netlab.ErrNotPermitted) {
		t.Skipf("needs root or user namespaces: %v; run: sudo go test ./tools/netlab/decap", err)
	}
	must(t, err)
	t.Cleanup(func() { must(t, lab.Close()) })
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		t.Skipf("needs /dev/net/tun: %v; run: modprobe tun", err)
	}
	client, err := lab.Namespace("client")
	must(t, err)
	server, err := lab.Namespace("server")
	must(t, err, lab.Link(client, "eth0", server, "eth0"),
		client.Addr("eth0", "198.18.0.10/15"), client.Addr("eth0", "198.18.1.1/15"), server.Addr("eth0", "198.18.1.11/15"),
		client.Addr("eth0", "2001:db8::10/32"), client.Addr("eth0", "2001:db8:1::1/32"), server.Addr("eth0", "2001:db8:1::11/32"))
	d, err := Start(Config{
		Namespace: server, Interface: "eth0", VIPs: []string{"198.18.0.80/32", "2001:db8::80/128"},
		Rules: Rules{DSCP: map[uint8][]netip.Addr{10: {vip4, vip6}}},
	})
	must(t, err)
	t.Cleanup(func() { must(t, d.Close()) })

	var raw [2]int
	must(t, client.Do(func() (err error) {
		for i, family := range []int{unix.AF_INET, unix.AF_INET6} {
			if raw[i], err = unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW); err != nil {
				return err
			}
		}
		return nil
	}))
	defer unix.Close(raw[0])
	defer unix.Close(raw[1])
	send := func(p []byte, to netip.Addr) {
		t.Helper()
		if to.Is4() {
			must(t, unix.Sendto(raw[0], p, 0, &unix.SockaddrInet4{Addr: to.As4()}))
			return
		}
		must(t, unix.Sendto(raw[1], p, 0, &unix.SockaddrInet6{Addr: to.As16()}))
	}
	want := newCounters()
	for _, f := range []struct{ client, vip, server netip.Addr }{{client4, vip4, server4}, {client6, vip6, server6}} {
		at := netip.AddrPortFrom(f.vip, 7000)
		echo(t, server, at)
		from := netip.AddrPortFrom(f.client, 5000)
		conn := packets(t, client, from)
		for _, w := range ways {
			for _, o := range [][2]netip.Addr{{card4, server4}, {card6, server6}} {
				inner := udp(t, from, at, 0, []byte(w.name+" "+o[1].String()))
				want.Kinds[w.kind(inner)]++
				send(w.wrap(t, o[0], o[1], inner), o[1])
				answered(t, conn, at, w.name+" "+o[1].String())
			}
		}
		want.Kinds[DSCP]++
		send(udp(t, from, netip.AddrPortFrom(f.server, 7000), 10, []byte("dscp")), f.server)
		answered(t, conn, at, "dscp")
	}
	send(ip(t, card4, server4, 47, 0, gre(0x2000, udp(t, netip.AddrPortFrom(client4, 1), netip.AddrPortFrom(vip4, 1), 0, nil))), server4)
	for end := time.Now().Add(20 * time.Second); d.Counters().Refused[GREKey] == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a key is not refused")
		}
	}
	got := d.Counters()
	for k, n := range want.Kinds {
		if got.Kinds[k] != n {
			t.Errorf("%s: %d packets, want %d", k, got.Kinds[k], n)
		}
	}
	before := unreachables(t, server)
	for range 1000 { // more than a socket's buffer holds
		send(ip(t, card4, server4, 47, 0, gre(0x2000, udp(t, netip.AddrPortFrom(client4, 1), netip.AddrPortFrom(vip4, 1), 0, nil))), server4)
	}
	if n := unreachables(t, server) - before; n != 0 {
		t.Errorf("the kernel said %d times that it does not know the protocol", n)
	}
	if len(got.Refused) != 1 || got.Undelivered != 0 {
		t.Errorf("counters: %+v", got)
	}
}

// packets is a UDP socket in a namespace.
func packets(t *testing.T, n *netlab.Namespace, at netip.AddrPort) *net.UDPConn {
	t.Helper()
	var conn *net.UDPConn
	must(t, n.Do(func() (err error) {
		conn, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
		return err
	}))
	t.Cleanup(func() { conn.Close() })
	return conn
}

// echo sends datagrams back until the test ends.
func echo(t *testing.T, n *netlab.Namespace, at netip.AddrPort) {
	t.Helper()
	conn := packets(t, n, at)
	done := make(chan struct{})
	t.Cleanup(func() {
		conn.Close()
		<-done
	})
	go func() {
		defer close(done)
		b := make([]byte, 2048)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			if _, err := conn.WriteToUDPAddrPort(b[:n], from); err != nil {
				t.Errorf("answer %q: %v", b[:n], err)
			}
		}
	}()
}

func answered(t *testing.T, conn *net.UDPConn, from netip.AddrPort, want string) {
	t.Helper()
	b := make([]byte, 2048)
	conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	n, who, err := conn.ReadFromUDPAddrPort(b)
	if err != nil || who != from || string(b[:n]) != want {
		t.Errorf("%s: %q from %v, want it from %v: %v", want, b[:n], who, from, err)
	}
}

// unreachables is how often the kernel of a namespace has said by ICMP that a protocol or a port is not there.
func unreachables(t *testing.T, n *netlab.Namespace) (count int) {
	t.Helper()
	var file []byte
	must(t, n.Do(func() (err error) {
		file, err = os.ReadFile("/proc/thread-self/net/snmp")
		return err
	}))
	var names []string
	for line := range strings.Lines(string(file)) {
		fields := strings.Fields(line)
		if fields[0] != "Icmp:" {
			continue
		}
		if names == nil {
			names = fields
			continue
		}
		count, err := strconv.Atoi(fields[slices.Index(names, "OutDestUnreachs")])
		must(t, err)
		return count
	}
	t.Fatal("no counters of ICMP")
	return 0
}
