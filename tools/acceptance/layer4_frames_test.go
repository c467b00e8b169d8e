package acceptance

import (
	"bytes"
	"crypto/tls"
	encoding "encoding/binary" // binary is splicectl
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"splicenic/tools/netlab"
	"splicenic/tools/netlab/decap"
)

// mac is the address of an interface.
func mac(t *testing.T, n *netlab.Namespace, ifname string) (a [6]byte) {
	t.Helper()
	must(t, n.Do(func() error {
		i, err := net.InterfaceByName(ifname)
		if err == nil {
			copy(a[:], i.HardwareAddr)
		}
		return err
	}))
	return a
}

// payload is what stands behind the IP header of a frame, without padding, and whether its checksum holds. Packets are no
// fragments and have no extension headers.
func payload(frame []byte) (b []byte, valid bool) {
	ip := frame[14:]
	sum := func(s uint64, b []byte) uint64 {
		for i, x := range b {
			s += uint64(x) << (8 * (1 - i&1))
		}
		return s
	}
	var s uint64
	switch ip[0] >> 4 {
	case 4:
		at := int(ip[0]&15) * 4
		b = ip[at:encoding.BigEndian.Uint16(ip[2:])]
		if h := sum(0, ip[:at]); h%0xffff != 0 {
			return b, false
		}
		s = sum(uint64(ip[9])+uint64(len(b)), ip[12:20])
	case 6:
		b = ip[40 : 40+int(encoding.BigEndian.Uint16(ip[4:]))]
		s = sum(uint64(ip[6])+uint64(len(b)), ip[8:40])
	}
	return b, sum(s, b)%0xffff == 0 // a sum of ones' complement that is zero
}

// TestCaseC01: on one segment with servers that have the VIP on lo, whoever asks for the VIP gets one answer, of the card; what
// goes to a server by dr is as the client sent it, but for the MAC addresses and the hop.
func TestCaseC01(t *testing.T) {
	t.Parallel()
	f := &farm{product: setUp(t)}
	must(t, f.lab.Link(f.client, "eth0", f.servers, "client"))
	must(t, f.lab.Link(f.card, "eth1", f.servers, "card1"))
	must(t, f.lab.Link(f.card, "eth2", f.servers, "card2"))
	members := []string{"client", "card1", "card2"}
	for n := 21; n <= 22; n++ {
		name := fmt.Sprint("server", n)
		host, err := f.lab.Namespace(name)
		must(t, err)
		must(t, f.lab.Link(host, "eth0", f.servers, name))
		members = append(members, name)
		b := &backend{Namespace: host, a4: netip.MustParseAddr(fmt.Sprint("198.18.1.", n)), a6: netip.MustParseAddr(fmt.Sprint("2001:db8:1::", n))}
		for _, a := range [][2]string{{"eth0", b.a4.String() + "/24"}, {"eth0", b.a6.String() + "/64"}, {"lo", farm4 + "/32"}, {"lo", farm6 + "/128"}} {
			must(t, host.Addr(a[0], a[1]))
		}
		must(t, host.Route("198.18.0.0/24", "eth0"))
		must(t, host.Route("2001:db8::/64", "eth0"))
		must(t, host.Sysctl("net.ipv4.conf.all.arp_ignore", "1"))
		must(t, host.Sysctl("net.ipv4.conf.all.arp_announce", "2"))
		f.direct = append(f.direct, b)
	}
	bridge(t, f.servers, members)
	for _, a := range []string{"198.18.0.10/24", "2001:db8::10/64"} {
		must(t, f.client.Addr("eth0", a))
	}
	must(t, f.client.Route("198.18.1.0/24", "eth0"))
	must(t, f.client.Route("2001:db8:1::/64", "eth0"))
	must(t, f.client.Offload("eth0", netlab.Offload{})) // the kernel writes checksums, and cuts segments itself
	dr := &ways[len(ways)-1]
	for _, b := range f.direct {
		for _, fam := range families {
			f.answer(b, "tcp", netip.AddrPortFrom(fam.vip, dr.port))
			f.answer(b, "udp", netip.AddrPortFrom(fam.vip, dr.port))
		}
	}
	f.begin(f.services("scheduler: rr", func(w *way, _ int, _ string) (string, bool) { return "", w == dr || w.mode == "dr" }))

	t.Run("who has the VIP", func(t *testing.T) {
		answers := f.whoHas(t, netip.MustParseAddr(farm4), 20)
		want := mac(t, f.card, "eth1")
		if len(answers) != 20 {
			t.Errorf("%d answers to 20 questions", len(answers))
		}
		for _, a := range answers {
			if a != want {
				t.Errorf("%x answered, want %x", a, want)
			}
		}
	})
	for _, fam := range families {
		for _, protocol := range []string{"tcp", "udp"} {
			t.Run(fam.name+" "+protocol, func(t *testing.T) {
				vip := netip.AddrPortFrom(fam.vip, dr.port)
				sent := f.watch(t, f.client, "eth0", unix.ETH_P_ALL)
				arrived := []*watches{f.watch(t, f.direct[0].Namespace, "eth0", unix.ETH_P_IP, unix.ETH_P_IPV6), f.watch(t, f.direct[1].Namespace, "eth0", unix.ETH_P_IP, unix.ETH_P_IPV6)}
				by := f.once(t, protocol, netip.AddrPort{}, vip, "bye\n")
				at := slices.IndexFunc(f.direct, func(b *backend) bool { return b.Name() == by.server })
				if by.seen != by.from {
					t.Errorf("the server saw %s, want %s", by.seen, by.from)
				}
				own := func(frames [][]byte) (fs [][]byte) {
					for _, frame := range frames {
						if from, to, ok := ends(frame); ok && from == by.from && to == vip {
							fs = append(fs, frame)
						}
					}
					return fs
				}
				f.await("all frames arrived", 5*time.Second, func() bool {
					out := own(sent.seen())
					if len(out) == 0 || len(out) != len(own(arrived[at].seen())) {
						return false
					}
					b, _ := payload(out[len(out)-1])
					return protocol == "udp" || b[13]&1 != 0 // FIN: the client's last segment, since the server ends first
				})
				outgoing, incoming := own(sent.stop()), own(arrived[at].stop())
				if n := len(own(arrived[1-at].stop())); n != 0 || len(outgoing) == 0 || len(outgoing) != len(incoming) {
					t.Fatalf("%d frames sent, %d arrived, and %d at the other server", len(outgoing), len(incoming), n)
				}
				server, card := mac(t, f.direct[at].Namespace, "eth0"), mac(t, f.card, "eth2")
				for i := range outgoing {
					was, _ := payload(outgoing[i])
					is, valid := payload(incoming[i])
					if !bytes.Equal(was, is) || !valid {
						t.Errorf("frame %d: sent %x, arrived %x, checksums valid: %v", i, was, is, valid)
					}
					if [6]byte(incoming[i][:6]) != server || [6]byte(incoming[i][6:]) != card {
						t.Errorf("frame %d from %x to %x, want from %x to %x", i, incoming[i][6:12], incoming[i][:6], card, server)
					}
				}
			})
		}
	}
}

// bridge joins interfaces, or skips the test.
func bridge(t *testing.T, n *netlab.Namespace, members []string) {
	t.Helper()
	err := n.Bridge("bridge", members...)
	if errors.Is(err, syscall.EOPNOTSUPP) {
		t.Skipf("needs a kernel with bridges: %v; run: modprobe bridge", err)
	}
	must(t, err)
}

// whoHas asks for an IPv4 address by broadcast from the client, and returns who answered.
func (f *farm) whoHas(t *testing.T, a netip.Addr, times int) (answers [][6]byte) {
	t.Helper()
	w := f.watch(t, f.client, "eth0", unix.ETH_P_ARP)
	own := mac(t, f.client, "eth0")
	question := slices.Concat([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, own[:], []byte{8, 6, 0, 1, 8, 0, 6, 4, 0, 1}, own[:], families[0].client.AsSlice(), make([]byte, 6), a.AsSlice())
	must(t, f.client.Do(func() error {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		i, err := net.InterfaceByName("eth0")
		for range times {
			err = errors.Join(err, unix.Sendto(fd, question, 0, &unix.SockaddrLinklayer{Ifindex: i.Index}))
			time.Sleep(20 * time.Millisecond) // the card answers so many a second
		}
		return err
	}))
	read := func() {
		answers = nil
		for _, frame := range w.seen() {
			if len(frame) >= 42 && frame[21] == 2 && [4]byte(frame[28:32]) == a.As4() {
				answers = append(answers, [6]byte(frame[22:28]))
			}
		}
	}
	f.await("as many answers", 5*time.Second, func() bool { read(); return len(answers) >= times })
	time.Sleep(100 * time.Millisecond) // for one too many
	read()
	return answers
}

// TestCaseC25: a splice whose server is at the end of a tunnel offers the client no more than fits through it, and a ClientHello
// of 1900 bytes and more arrives, as do answers that come back through the card.
func TestCaseC25(t *testing.T) {
	t.Parallel()
	cert := selfSigned(t)
	f := newFarm(t, 1)
	b := f.routed[0]
	far, err := decap.Start(decap.Config{Namespace: b.Namespace, Interface: "eth0", VIPs: []string{farm4 + "/32", farm6 + "/128"}})
	must(t, err)
	t.Cleanup(func() { must(t, far.Close()) })
	const most = 1 << 20 // bytes that the server sends
	for _, fam := range families {
		ln, err := b.Listen("tcp", netip.AddrPortFrom(fam.vip, 443).String())
		must(t, err)
		done := make(chan struct{})
		t.Cleanup(func() { ln.Close(); <-done })
		go func() {
			defer close(done)
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				_ = c.SetDeadline(time.Now().Add(patience))
				s := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{cert.Certificate}, NextProtos: []string{"http/1.1"}})
				_, _ = io.WriteString(s, strings.Repeat("y", most))
				_ = s.Close()
			}
		}()
	}
	f.begin(farmPorts + `services:
  - {name: four, listen: ["198.18.0.80:443"], protocol: tls, default: four}
  - {name: six, listen: ["[2001:db8::80]:443"], protocol: tls, default: six}
groups:
  - {name: four, method: tun, return: card, check: {type: none}, servers: [{address: "198.18.1.11:443"}]}
  - {name: six, method: tun, return: card, check: {type: none}, servers: [{address: "[2001:db8:1::11]:443"}]}
`)
	for i, mss := range []uint16{1440, 1400} {
		fam := families[i]
		t.Run(fam.name, func(t *testing.T) {
			answers := f.watch(t, f.client, "eth0", unix.ETH_P_IP, unix.ETH_P_IPV6)
			outer := f.watch(t, b.Namespace, "eth0", unix.ETH_P_IP, unix.ETH_P_IPV6)
			c, err := f.client.Dial(t.Context(), "tcp", netip.AddrPortFrom(fam.vip, 443).String())
			must(t, err)
			defer c.Close()
			must(t, c.SetDeadline(time.Now().Add(patience)))
			counted := &countingConn{Conn: c}
			s := tls.Client(counted, &tls.Config{RootCAs: cert.pool, ServerName: "a.example", NextProtos: []string{"http/1.1", strings.Repeat("a", 250), strings.Repeat("b", 250)}})
			if err := s.Handshake(); err != nil {
				t.Fatalf("handshake after a hello of %d bytes: %v", counted.first, err)
			}
			if counted.first < 1900 {
				t.Errorf("the hello has %d bytes, want 1900 and more", counted.first)
			}
			if n, err := io.Copy(io.Discard, s); err != nil || n != most {
				t.Errorf("%d bytes came, then %v", n, err)
			}
			if got := offered(answers.stop()); got == 0 || got > mss {
				t.Errorf("the card offered an MSS of %d, want %d at most", got, mss)
			}
			wrapped := 0 // bytes that came to the server in tunnels
			for _, frame := range outer.stop() {
				if len(frame) > 1514 {
					t.Errorf("an outer packet of %d bytes", len(frame))
				}
				if ip := frame[14:]; ip[0]>>4 == 4 && ip[9] == 4 || ip[0]>>4 == 6 && ip[6] == 41 {
					wrapped += len(ip)
				}
			}
			if wrapped < counted.first {
				t.Errorf("%d bytes came in tunnels", wrapped)
			}
		})
	}
	if c := far.Counters(); c.Kinds[decap.IPv4] == 0 || c.Kinds[decap.IPv6] == 0 || len(c.Refused) > 0 {
		t.Errorf("tunnels: %+v", c)
	}
}

// A countingConn knows how long the first write was.
type countingConn struct {
	net.Conn
	first int // bytes
}

func (c *countingConn) Write(b []byte) (int, error) {
	if c.first == 0 {
		c.first = len(b)
	}
	return c.Conn.Write(b)
}

// offered is the MSS of the first SYN-ACK of some frames; zero: none.
func offered(frames [][]byte) uint16 {
	for _, frame := range frames {
		if _, _, ok := ends(frame); !ok {
			continue
		}
		if b, _ := payload(frame); len(b) >= 24 && b[13]&0x12 == 0x12 && b[20] == 2 {
			return encoding.BigEndian.Uint16(b[22:])
		}
	}
	return 0
}

// TestFamilies: IPv4 clients of an IPv6 server and the other way round. By nat the server sees RFC 6052's address.
func TestFamilies(t *testing.T) {
	t.Parallel()
	f := newFarm(t, 1)
	f.answerAll()
	b := f.routed[0]
	var services, groups strings.Builder
	rows := []struct {
		name, mode     string
		client, server int // family
		port           uint16
		seen           string
	}{
		{"IPv4 to IPv6 by fullnat", "fullnat", 0, 1, 9001, "2001:db8:1::1"},
		{"IPv6 to IPv4 by fullnat", "fullnat", 1, 0, 9002, "198.18.1.1"},
		{"IPv4 to IPv6 by nat", "nat", 0, 1, 9003, "64:ff9b::c612:a"},
	}
	for i, x := range rows {
		fmt.Fprintf(&services, "  - {name: s%d, listen: [%q], mode: %s, default: g%d}\n", i, netip.AddrPortFrom(families[x.client].vip, x.port), x.mode, i)
		fmt.Fprintf(&groups, "  - {name: g%d, check: {type: none}, servers: [{address: %q}]}\n", i, netip.AddrPortFrom(b.address(x.server), 9001))
	}
	f.begin(farmPorts + "services:\n" + services.String() + "groups:\n" + groups.String())
	for _, x := range rows {
		t.Run(x.name, func(t *testing.T) {
			for range 5 {
				r := f.once(t, "tcp", netip.AddrPort{}, netip.AddrPortFrom(families[x.client].vip, x.port), strings.Repeat("long", 2000)+"\nbye\n")
				if r.server != b.Name() || r.seen.Addr().String() != x.seen {
					t.Errorf("server %s saw %s, want %s", r.server, r.seen, x.seen)
				}
			}
		})
	}
	f.atRest()
}

// TestDatagramFragments: datagrams of 3000 bytes, which every host cuts, arrive through nat and through tunnels, and their
// answers as well.
func TestDatagramFragments(t *testing.T) {
	t.Parallel()
	f := newFarm(t, 2)
	f.answerAll()
	f.begin(f.config("scheduler: rr"))
	line := strings.Repeat("0123456789", 300)
	for _, w := range ways {
		for _, fam := range families {
			t.Run(w.name+" "+fam.name, func(t *testing.T) {
				for range 5 {
					r := f.once(t, "udp", netip.AddrPort{}, netip.AddrPortFrom(fam.vip, w.port), line)
					if w.mode != "fullnat" && r.seen != r.from {
						t.Errorf("server %s saw %s, want %s", r.server, r.seen, r.from)
					}
				}
			})
		}
	}
	if n := f.number("runtime.actions.reassembled"); n == 0 {
		t.Error("nothing was put together")
	}
}

// TestL3DSR: the DSCP tells direct servers which VIP is meant; no header is added.
func TestL3DSR(t *testing.T) {
	t.Parallel()
	f := newFarm(t, 2)
	f.answerAll()
	f.begin(strings.ReplaceAll(f.services("scheduler: rr", func(w *way, _ int, _ string) (string, bool) { return "", w.name == "ipip" }), "{type: ipip}", fmt.Sprintf("{type: dscp, dscp: %d}", l3dsr)))
	for _, w := range ways {
		if w.name != "ipip" {
			continue
		}
		for i, fam := range families {
			for _, protocol := range []string{"tcp", "udp"} {
				t.Run(fam.name+" "+protocol, func(t *testing.T) {
					answers := f.ask(t, protocol, netip.AddrPortFrom(fam.vip, w.port), 20)
					f.seen(t, &w, i, answers)
					shares(t, answers, w.servers(f), []int{1, 1})
				})
			}
		}
	}
	for _, b := range f.direct {
		if c := b.far.Counters(); c.Kinds[decap.DSCP] == 0 || len(c.Kinds) != 1 || len(c.Refused) > 0 {
			t.Errorf("%s: %+v", b.Name(), c)
		}
	}
}
