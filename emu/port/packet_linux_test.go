package port_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"splicenic/emu/frame"
	"splicenic/emu/port"
	"splicenic/tools/netlab"
)

// addTag puts VLAN tags behind the addresses of a frame, as a sender does who knows of no offload.
func addTag(f *frame.Frame, tags ...byte) *frame.Frame {
	b := f.Bytes()
	out := append(append(append([]byte(nil), b[:12]...), tags...), b[12:]...)
	o := f.Offload
	if o.CsumStart != 0 {
		o.CsumStart += uint16(len(tags))
	}
	if o.HdrLen != 0 {
		o.HdrLen += uint16(len(tags))
	}
	return wrap(out, o)
}

// TestPacketCarries sends raw frames over a veth pair: whatever the kernel takes out of a frame on the way is in it again.
func TestPacketCarries(t *testing.T) {
	near, far := wirePair(t)
	sound := func(s super) *frame.Frame { // full checksum, no offload header
		f := plain(s, nil)
		if v := port.Complete(f); v != port.Good {
			t.Fatal(v)
		}
		return f
	}
	coalesced := func(s super) *frame.Frame { f, _ := s.frame(); return f }
	tcp := super{payload: 200, flags: 0x18}
	for _, tt := range []struct {
		name string
		f    *frame.Frame
	}{
		{"plain", sound(tcp)},
		{"shortest", wrap(make([]byte, 14), frame.Offload{})},
		{"longest", sound(super{payload: 1500 - 40, flags: 0x10})},
		{"A27: partial checksum", plain(tcp, nil)},
		{"coalesced", coalesced(super{payload: 4000, size: 1460, flags: 0x18})},
		{"coalesced, IPv6", coalesced(super{ip6: true, payload: 4000, size: 1440, flags: 0x18})},
		{"coalesced, 64 KiB", coalesced(super{payload: 65000, size: 1460, flags: 0x18})},
		{"tag", addTag(sound(tcp), 0x81, 0, 0, 5)},
		{"tag with priority and DEI", addTag(sound(tcp), 0x81, 0, 0xf0, 5)},
		{"tag of VLAN 0", addTag(sound(tcp), 0x81, 0, 0xe0, 0)},
		{"longest with tag", addTag(sound(super{payload: 1500 - 40, flags: 0x10}), 0x81, 0, 0, 5)},
		{"service tag", addTag(sound(tcp), 0x88, 0xa8, 0, 5)},
		{"service tag and tag", addTag(sound(tcp), 0x88, 0xa8, 0, 5, 0x81, 0, 0, 6)},
		{"two tags", addTag(sound(tcp), 0x81, 0, 0, 5, 0x81, 0, 0, 6)},
		{"tag, partial checksum", addTag(plain(tcp, nil), 0x81, 0, 0, 5)},
		{"tag, coalesced", addTag(coalesced(super{payload: 4000, size: 1456, flags: 0x18}), 0x81, 0, 0, 5)},
		{"tag, coalesced, IPv6", addTag(coalesced(super{ip6: true, payload: 4000, size: 1456, flags: 0x18}), 0x81, 0, 0, 5)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if n := near.Transmit([]*frame.Frame{tt.f}); n != 1 {
				t.Fatalf("took %d frames, want 1", n)
			}
			got := take(t, far, 1)[0]
			sameBytes(t, got.Bytes(), tt.f.Bytes())
			o, want := got.Offload, tt.f.Offload
			o.Flags &^= frame.DataValid
			o.HdrLen, want.HdrLen = 0, 0 // a hint
			if o != want {
				t.Errorf("offload: got %+v, want %+v", o, want)
			}
			// Whatever it is, its wire frames are right.
			wire, v := cut(&got)
			if v != port.Good {
				t.Fatalf("verdict %v", v)
			}
			for _, w := range wire {
				if len(w) > 60 {
					verify(t, w)
				}
			}
		})
	}
	if n := refused(near); n != 0 {
		t.Errorf("%d frames refused", n)
	}
}

// sameBytes shows the first bytes that differ.
func sameBytes(t *testing.T, got, want []byte) {
	t.Helper()
	at := 0
	for at < min(len(got), len(want)) && got[at] == want[at] {
		at++
	}
	if at < max(len(got), len(want)) {
		t.Errorf("%d bytes, want %d; from byte %d on got %x, want %x", len(got), len(want), at,
			got[at:min(at+16, len(got))], want[at:min(at+16, len(want))])
	}
}

func refused(p port.Port) uint64 { return p.(interface{ Refused() uint64 }).Refused() }

// TestNothingStale is the part of A23 that concerns a port: a frame never has the offload header or the tag of the one
// that was in its buffer before.
func TestNothingStale(t *testing.T) {
	near, far := wirePair(t)
	coalesced, _ := super{payload: 4000, size: 1456, flags: 0x18}.frame()
	frames := []*frame.Frame{
		addTag(coalesced, 0x81, 0, 0, 5),
		wrap(bytes.Repeat([]byte{2}, 60), frame.Offload{}),
		plain(super{payload: 100}, nil),
		addTag(wrap(bytes.Repeat([]byte{2}, 60), frame.Offload{}), 0x88, 0xa8, 0, 6),
	}
	fs := buffers(1, far.BufferBytes())
	for round := range 3 {
		for i, f := range frames {
			near.Transmit([]*frame.Frame{f})
			fs[0].Start = frame.Headroom
			check(t, wait(far, func() bool { return far.Receive(fs) == 1 }))
			sameBytes(t, fs[0].Bytes(), f.Bytes())
			o, want := fs[0].Offload, f.Offload
			o.HdrLen, want.HdrLen = 0, 0
			if o != want {
				t.Errorf("round %d, frame %d: offload %+v, want %+v", round, i, o, want)
			}
		}
	}
}

// TestPacketRefuses counts what the kernel does not take, and sends the rest.
func TestPacketRefuses(t *testing.T) {
	near, far := wirePair(t)
	good := func(b byte) *frame.Frame { return wrap(bytes.Repeat([]byte{b}, 60), frame.Offload{}) }
	long := wrap(make([]byte, 1600), frame.Offload{})
	runt := wrap(make([]byte, 5), frame.Offload{})
	liar, _ := super{payload: 4000, size: 1460}.frame()
	liar.Offload.CsumStart = 60000
	batch := []*frame.Frame{good(2), long, good(4), runt, liar, good(6)}
	if n := near.Transmit(batch); n != len(batch) {
		t.Errorf("took %d frames, want %d", n, len(batch))
	}
	if got, want := refused(near), uint64(3); got != want {
		t.Errorf("refused %d, want %d", got, want)
	}
	for i, f := range take(t, far, 3) {
		if got, want := f.Bytes(), batch[2*i+i/2].Bytes(); !bytes.Equal(got, want) {
			t.Errorf("frame %d: got %x, want %x", i, got, want)
		}
	}
}

func TestPacketTooLongForBuffer(t *testing.T) {
	near, far := wirePair(t)
	near.Transmit([]*frame.Frame{wrap(make([]byte, 1000), frame.Offload{})})
	fs := buffers(1, frame.Headroom+100)
	check(t, wait(far, func() bool { return far.Receive(fs) == 1 }))
	if got, want := fs[0].End, uint32(frame.Headroom+1000); got != want {
		t.Errorf("end %d, want %d, beyond the buffer", got, want)
	}
}

// TestPacketOverruns fills the socket; what it has no room for is counted.
func TestPacketOverruns(t *testing.T) {
	near, far := wirePair(t)
	batch := make([]*frame.Frame, 64)
	for i := range batch {
		batch[i] = wrap(make([]byte, 1514), frame.Offload{})
	}
	sent := 0
	for far.Overruns() == 0 && sent < 1_000_000 {
		sent += near.Transmit(batch)
	}
	fs := buffers(64, far.BufferBytes())
	received := 0
	for n := far.Receive(fs); n > 0; n = far.Receive(fs) {
		received += n
		for i := range fs {
			fs[i].Start = frame.Headroom
		}
	}
	if lost := int(far.Overruns()); lost == 0 || received+lost > sent {
		t.Errorf("sent %d, received %d, overruns %d", sent, received, lost)
	}
}

func TestPacketAllocates(t *testing.T) {
	near, far := wirePair(t)
	coalesced, _ := super{payload: 4000, size: 1456, flags: 0x18}.frame()
	out := []*frame.Frame{wrap(make([]byte, 60), frame.Offload{}), addTag(coalesced, 0x81, 0, 0, 5)}
	in := buffers(2, far.BufferBytes())
	deadline := time.Now().Add(patience)
	n := testing.AllocsPerRun(100, func() {
		in[0].Start, in[1].Start = frame.Headroom, frame.Headroom
		near.Transmit(out)
		for got := 0; got < 2 && time.Now().Before(deadline); {
			got += far.Receive(in[got:])
		}
		near.Link()
		near.MTU()
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// readSysctl reads a variable inside a namespace.
func readSysctl(t *testing.T, n *netlab.Namespace, path string) (s string) {
	t.Helper()
	check(t, n.Do(func() error {
		b, err := os.ReadFile("/proc/sys/net/" + path)
		s = strings.TrimSpace(string(b))
		return err
	}))
	return s
}

// TestPacketOwns checks that an open port has the interface for itself and gives it back as it was.
func TestPacketOwns(t *testing.T) {
	lab := newLab(t)
	peer, card := namespace(t, lab, "peer"), namespace(t, lab, "card")
	// The peer's own IPv6 would announce its groups when the machine is slow enough, between the frames below.
	check(t, peer.Sysctl("net.ipv6.conf.default.disable_ipv6", "1"))
	check(t, lab.Link(peer, "eth0", card, "eth1"), lab.Link(peer, "other", card, "eth9"),
		card.Addr("eth9", "198.18.9.1/24"), card.Sysctl("net.ipv4.ip_forward", "1"), card.Down("eth1"))
	state := func() string {
		var flags net.Flags
		check(t, card.Do(func() error {
			i, err := net.InterfaceByName("eth1")
			if err == nil {
				flags = i.Flags & net.FlagUp
			}
			return err
		}))
		return fmt.Sprint(flags, " ipv6 off ", readSysctl(t, card, "ipv6/conf/eth1/disable_ipv6"),
			", forwarding ", readSysctl(t, card, "ipv4/conf/eth1/forwarding"), ", arp_ignore ", readSysctl(t, card, "ipv4/conf/eth1/arp_ignore"))
	}
	const before, during = "0 ipv6 off 0, forwarding 1, arp_ignore 0", "up ipv6 off 1, forwarding 0, arp_ignore 8"
	if got := state(); got != before {
		t.Fatalf("before: %s, want %s", got, before)
	}
	var p port.Port
	check(t, card.Do(func() (err error) { p, err = port.Open("eth1"); return err }))
	if got := state(); got != during {
		t.Errorf("open: %s, want %s", got, during)
	}

	// An ARP request for an address of another interface: the kernel must leave the answer to the card. Had it answered,
	// that would have come before the card's own frame.
	far := openIn(t, peer, "eth0")
	mac := p.MAC()
	arp := append(bytes.Repeat([]byte{0xff}, 6), 2, 0, 0, 0, 0, 9, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 9,
		198, 18, 9, 7, 0, 0, 0, 0, 0, 0, 198, 18, 9, 1)
	arp = append(arp, make([]byte, 18)...)
	far.Transmit([]*frame.Frame{wrap(arp, frame.Offload{})})
	// A packet to the interface's own MAC address and an address that the kernel would forward to.
	packet := super{payload: 100, flags: 0x18}
	routed := plain(packet, nil)
	copy(routed.Bytes(), mac[:])
	far.Transmit([]*frame.Frame{routed})
	for _, f := range take(t, p, 2) {
		if !bytes.Equal(f.Bytes(), arp) && !bytes.Equal(f.Bytes(), routed.Bytes()) {
			t.Errorf("the card got %x", f.Bytes())
		}
	}
	mark := append(bytes.Repeat([]byte{0xff}, 6), append(mac[:], bytes.Repeat([]byte{0x88, 0xb5}, 24)...)...)
	p.Transmit([]*frame.Frame{wrap(mark, frame.Offload{})})
	if got := take(t, far, 1)[0]; !bytes.Equal(got.Bytes(), mark) {
		t.Errorf("somebody else answered: %x", got.Bytes())
	}

	if got, want := p.MTU(), 1500; got != want {
		t.Errorf("MTU %d, want %d", got, want)
	}
	if got := p.Link(); !got.Up || got.Mbps != 10000 {
		t.Errorf("link %+v, want up with 10000 Mbit/s", got)
	}
	check(t, peer.Down("eth0"))
	check(t, wait(p, func() bool { return !p.Link().Up })) // the kernel takes up to a second
	check(t, p.Close(), p.Close())
	if got := state(); got != before {
		t.Errorf("closed: %s, want %s", got, before)
	}
	// What has an address of its own link only is free.
	check(t, peer.Up("eth0"), card.Up("eth1"))
	check(t, openIn(t, card, "eth1").Close())
}

func TestPacketErrors(t *testing.T) {
	lab := newLab(t)
	peer, card := namespace(t, lab, "peer"), namespace(t, lab, "card")
	for _, name := range []string{"eth1", "eth2", "eth3"} {
		check(t, lab.Link(peer, name, card, name))
	}
	check(t, card.Addr("eth2", "198.18.0.1/24"), card.Addr("eth3", "2001:db8::1/64"))
	openIn(t, card, "eth1")
	for _, tt := range []struct{ name, spec, want string }{
		{"address", "eth2", `open port "eth2": it has the address 198.18.0.1/24, and a card needs an interface for itself; free it with: ip address flush dev eth2`},
		{"IPv6 address", "eth3", `open port "eth3": it has the address 2001:db8::1/64, and a card needs an interface for itself; free it with: ip address flush dev eth3`},
		{"another card", "eth1", `open port "eth1": another card holds the interface`},
		{"loopback", "lo", `open port "lo": not an Ethernet interface`},
		{"none", "eth4", `open port "eth4": no such interface; list them with: ip link`},
		{"long name", "a-name-beyond-bounds", `open port "a-name-beyond-bounds": no such interface; list them with: ip link`},
		{"long TAP name", "tap:a-name-beyond-bounds", `open port "tap:a-name-beyond-bounds": name of 20 bytes; an interface's has 1 to 15`},
		{"no TAP name", "tap:", `open port "tap:": name of 0 bytes; an interface's has 1 to 15`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := card.Do(func() error { p, err := port.Open(tt.spec); _ = p; return err })
			if err == nil || err.Error() != tt.want {
				t.Errorf("got  %v\nwant %s", err, tt.want)
			}
			if (tt.name == "another card") != errors.Is(err, port.ErrBusy) {
				t.Errorf("errors.Is ErrBusy: %t", errors.Is(err, port.ErrBusy))
			}
		})
	}
	// The failures left eth2 and eth3 alone.
	if got := readSysctl(t, card, "ipv6/conf/eth3/disable_ipv6"); got != "0" {
		t.Errorf("disable_ipv6 is %s after a refusal", got)
	}
}

// TestPacketWithoutRights runs this test's binary as nobody.
func TestPacketWithoutRights(t *testing.T) {
	const child = "PORT_TEST_CHILD"
	if os.Getenv(child) != "" {
		_, err := port.Open("eth0")
		fmt.Println(err)
		return
	}
	if os.Getuid() != 0 || os.Getenv("NETLAB_ENTERED") != "" {
		t.Skip("needs root, to become somebody else")
	}
	lab := newLab(t)
	a, b := namespace(t, lab, "a"), namespace(t, lab, "b")
	check(t, lab.Link(a, "eth0", b, "eth0"))
	self, err := os.ReadFile("/proc/self/exe")
	check(t, err)
	dir, err := os.MkdirTemp("", "port")
	check(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	binary := filepath.Join(dir, "port.test")
	check(t, os.Chmod(dir, 0o755), os.WriteFile(binary, self, 0o755))
	cmd := a.Command(t.Context(), binary, "-test.run=^TestPacketWithoutRights$")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), child+"=1", "NETLAB_ENTERED=1")
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: 65534, Gid: 65534}
	out, err := cmd.CombinedOutput()
	check(t, err)
	if want := `open port "eth0": a card on a kernel interface needs root, or CAP_NET_RAW and CAP_NET_ADMIN`; !strings.Contains(string(out), want) {
		t.Errorf("got %s, want %s", out, want)
	}
}

// line is a client and a server on one subnet with a bridge of two ports between them.
type line struct {
	client, server *netlab.Namespace
	*bridge
}

// newLine makes a line. kind is "packet", or "tap" for a client on a TAP.
func newLine(t testing.TB, kind string, cut bool, client, server netlab.Offload) *line {
	t.Helper()
	lab := newLab(t)
	l := &line{client: namespace(t, lab, "client"), server: namespace(t, lab, "server"), bridge: &bridge{cut: cut}}
	card := namespace(t, lab, "card")
	check(t, lab.Link(card, "eth2", l.server, "eth0"))
	if kind == "tap" {
		needTun(t)
		l.ports[0] = openIn(t, l.client, "tap:eth0")
		check(t, l.client.Up("eth0"))
	} else {
		check(t, lab.Link(l.client, "eth0", card, "eth1"))
		l.ports[0] = openIn(t, card, "eth1")
		check(t, l.client.Offload("eth0", client))
	}
	l.ports[1] = openIn(t, card, "eth2")
	check(t, l.server.Offload("eth0", server),
		l.client.Addr("eth0", "198.18.0.10/24"), l.server.Addr("eth0", "198.18.0.20/24"),
		l.client.Addr("eth0", "2001:db8::10/64"), l.server.Addr("eth0", "2001:db8::20/64"))
	l.start(t)
	return l
}

// result is what a stream's receiver has seen.
type result struct {
	n   int64
	sum []byte
	err error
}

// upload sends n bytes from client to server over a kernel TCP connection, both summed by a hash where there is one, and
// says how long it took.
func (l *line) upload(t testing.TB, address string, n int64, newHash func() hash.Hash) time.Duration {
	t.Helper()
	ln, err := l.server.Listen("tcp", address)
	check(t, err)
	defer ln.Close()
	done := make(chan result, 1)
	go func() { done <- drain(ln, newHash()) }()

	begin := time.Now()
	c, err := l.client.Dial(t.Context(), "tcp", address)
	check(t, err)
	check(t, c.SetDeadline(time.Now().Add(patience)))
	h := newHash()
	block := make([]byte, 1<<20)
	r := rand.New(rand.NewPCG(1, uint64(n)))
	for i := range block {
		block[i] = byte(r.Uint32())
	}
	for sent := int64(0); sent < n; {
		b := block[:min(int64(len(block)), n-sent)]
		b[0] = byte(sent >> 20) // no two blocks in a row are the same
		h.Write(b)
		m, err := c.Write(b)
		check(t, err)
		sent += int64(m)
	}
	check(t, c.Close())
	got := <-done
	took := time.Since(begin)
	check(t, got.err)
	if got.n != n || !bytes.Equal(got.sum, h.Sum(nil)) {
		t.Errorf("%d bytes of %d arrived, hash %x, want %x", got.n, n, got.sum, h.Sum(nil))
	}
	return took
}

// drain reads one connection to its end.
func drain(ln net.Listener, h hash.Hash) (r result) {
	c, err := ln.Accept()
	if err != nil {
		return result{err: err}
	}
	defer c.Close()
	buf := make([]byte, 1<<18)
	for {
		n, err := c.Read(buf)
		h.Write(buf[:n])
		r.n += int64(n)
		if err != nil {
			r.sum = h.Sum(nil)
			if err != io.EOF {
				r.err = err
			}
			return r
		}
	}
}

// noHash costs nothing.
type noHash struct{}

func (noHash) Write(p []byte) (int, error) { return len(p), nil }
func (noHash) Sum(b []byte) []byte         { return b }
func (noHash) Reset()                      {}
func (noHash) Size() int                   { return 0 }
func (noHash) BlockSize() int              { return 1 }

// badSums is how many TCP segments the kernel of a namespace has dropped for their checksum.
func badSums(t testing.TB, n *netlab.Namespace) (count string) {
	t.Helper()
	check(t, n.Do(func() error {
		b, err := os.ReadFile("/proc/thread-self/net/snmp")
		var tcp []string
		for l := range strings.Lines(string(b)) {
			if strings.HasPrefix(l, "Tcp:") {
				tcp = append(tcp, l)
			}
		}
		if err != nil || len(tcp) != 2 {
			return fmt.Errorf("read snmp: %v, %q", err, tcp)
		}
		names, values := strings.Fields(tcp[0]), strings.Fields(tcp[1])
		for i, name := range names {
			if name == "InCsumErrors" {
				count = values[i]
			}
		}
		return nil
	}))
	return count
}

// TestPacketStream has two kernels talk TCP through a pair of ports, with every mix of offloads, handed through or cut.
func TestPacketStream(t *testing.T) {
	on := netlab.Offload{Segmentation: true, Receive: true, Checksum: true}
	sums := netlab.Offload{Checksum: true}
	off := netlab.Offload{}
	for _, tt := range []struct {
		name           string
		kind           string
		cut            bool
		client, server netlab.Offload
		address        string
	}{
		{"on, through", "packet", false, on, on, "198.18.0.20:80"},
		{"on, through, IPv6", "packet", false, on, on, "[2001:db8::20]:80"},
		{"on, cut", "packet", true, on, on, "198.18.0.20:80"},
		{"on, cut, IPv6", "packet", true, on, on, "[2001:db8::20]:80"},
		{"off, through", "packet", false, off, off, "198.18.0.20:80"},
		{"partial checksums only, cut", "packet", true, sums, sums, "198.18.0.20:80"},
		{"client on, server off", "packet", false, on, off, "198.18.0.20:80"},
		{"client off, server on", "packet", true, off, on, "[2001:db8::20]:80"},
		{"TAP, through", "tap", false, on, on, "198.18.0.20:80"},
		{"TAP, cut, IPv6", "tap", true, on, on, "[2001:db8::20]:80"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newLine(t, tt.kind, tt.cut, tt.client, tt.server)
			const n = 24 << 20
			l.upload(t, tt.address, n, sha256.New)
			l.halt(t)
			for _, ns := range []*netlab.Namespace{l.client, l.server} {
				if got := badSums(t, ns); got != "0" {
					t.Errorf("%s dropped %s segments for their checksum", ns.Name(), got)
				}
			}
			up := l.seen[0]
			if coalesced := up.coalesced > 0 && up.longest > 20_000; coalesced != tt.client.Segmentation {
				t.Errorf("coalesced %d of %d frames up to %d bytes; segmentation offload is %t", up.coalesced, up.frames, up.longest, tt.client.Segmentation)
			}
			if partial := up.partial > 0; partial != tt.client.Checksum {
				t.Errorf("%d of %d partial checksums; checksum offload is %t", up.partial, up.frames, tt.client.Checksum)
			}
			if r := refused(l.ports[0]) + refused(l.ports[1]); r != 0 {
				t.Errorf("%d frames refused", r)
			}
			t.Logf("%+v", l.seen)
		})
	}
}

// needTun skips where this user may make no TAP.
func needTun(t testing.TB) {
	t.Helper()
	f, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("needs root and /dev/net/tun: %v", err)
	}
	check(t, f.Close())
}

// TestTapCarries sends raw frames out of a TAP's kernel side. Tags stay in place all the way.
func TestTapCarries(t *testing.T) {
	lab := newLab(t)
	host := namespace(t, lab, "host")
	needTun(t)
	tap := openIn(t, host, "tap:wire0")
	if tap.Link().Up {
		t.Error("link up before the interface is")
	}
	kernel := openIn(t, host, "wire0") // brings it up
	if !tap.Link().Up || tap.MTU() != 1500 {
		t.Errorf("link %+v, MTU %d", tap.Link(), tap.MTU())
	}
	if tap.MAC() == kernel.MAC() {
		t.Error("both ends have one MAC address")
	}
	if err := host.Do(func() error { p, err := port.Open("tap:wire0"); _ = p; return err }); !errors.Is(err, port.ErrBusy) {
		t.Errorf("a second port on it: %v, want ErrBusy", err)
	}
	coalesced, _ := super{payload: 4000, size: 1456, flags: 0x18}.frame()
	for _, tt := range []struct {
		name string
		f    *frame.Frame
	}{
		{"plain", wrap(bytes.Repeat([]byte{2}, 60), frame.Offload{})},
		{"tag", addTag(wrap(bytes.Repeat([]byte{2}, 60), frame.Offload{}), 0x81, 0, 0, 5)},
		{"partial checksum", plain(super{payload: 100, flags: 0x18}, nil)},
		{"coalesced", coalesced},
		{"tag, coalesced", addTag(coalesced, 0x81, 0, 0, 5)},
	} {
		for _, dir := range []struct {
			name     string
			from, to port.Port
		}{{"to the port", kernel, tap}, {"from the port", tap, kernel}} {
			t.Run(tt.name+" "+dir.name, func(t *testing.T) {
				if n := dir.from.Transmit([]*frame.Frame{tt.f}); n != 1 {
					t.Fatalf("took %d frames, want 1", n)
				}
				got := take(t, dir.to, 1)[0]
				sameBytes(t, got.Bytes(), tt.f.Bytes())
				o, want := got.Offload, tt.f.Offload
				o.Flags &^= frame.DataValid
				o.HdrLen, want.HdrLen = 0, 0
				if o != want {
					t.Errorf("offload: got %+v, want %+v", o, want)
				}
			})
		}
	}
	liar, _ := super{payload: 4000, size: 1460}.frame()
	liar.Offload.CsumStart = 60000
	if n := tap.Transmit([]*frame.Frame{liar}); n != 1 || refused(tap) != 1 {
		t.Errorf("took %d frames, refused %d; want 1 and 1", n, refused(tap))
	}
}

// TestPortsLeaveNothing counts descriptors.
func TestPortsLeaveNothing(t *testing.T) {
	lab := newLab(t)
	a, b := namespace(t, lab, "a"), namespace(t, lab, "b")
	check(t, lab.Link(a, "eth0", b, "eth0"), b.Addr("eth0", "198.18.0.1/24"))
	descriptors := func() int {
		es, err := os.ReadDir("/proc/self/fd")
		check(t, err)
		return len(es)
	}
	before := descriptors()
	for range 3 {
		check(t, a.Do(func() error {
			p, err := port.Open("eth0")
			if err != nil {
				return err
			}
			if _, err := port.Open("eth0"); err == nil {
				t.Error("two ports on one interface")
			}
			return p.Close()
		}))
		check(t, b.Do(func() error {
			if _, err := port.Open("eth0"); err == nil {
				t.Error("a port on an interface with an address")
			}
			return nil
		}))
	}
	if got := descriptors(); got != before {
		t.Errorf("%d descriptors, %d before", got, before)
	}
}

// BenchmarkForward takes frames from one packet port and gives them to another, whose far end throws them away. Only that
// is timed: the frames are already in the socket.
func BenchmarkForward(b *testing.B) {
	for _, n := range []int{60, 512, 1514, 9014, 65000} {
		for _, batch := range []int{1, 16, 64, 256} {
			b.Run(fmt.Sprintf("bytes=%d/batch=%d", n, batch), func(b *testing.B) { benchmarkForward(b, n, batch) })
		}
	}
}

func benchmarkForward(b *testing.B, size, batch int) {
	lab := newLab(b)
	source, card, sink := namespace(b, lab, "source"), namespace(b, lab, "card"), namespace(b, lab, "sink")
	check(b, lab.Link(source, "eth0", card, "eth1"), lab.Link(card, "eth2", sink, "eth0"))
	for _, e := range []struct {
		n    *netlab.Namespace
		name string
	}{{source, "eth0"}, {card, "eth1"}, {card, "eth2"}, {sink, "eth0"}} {
		check(b, e.n.MTU(e.name, 9000))
	}
	from, in, out := openIn(b, source, "eth0"), openIn(b, card, "eth1"), openIn(b, card, "eth2")
	f, _ := super{payload: size - 54, flags: 0x10, size: 1448}.frame()
	if size < 9014 {
		f.Offload = frame.Offload{}
	}
	load := make([]*frame.Frame, 16)
	for i := range load {
		load[i] = f
	}
	// As many as surely fit the socket's buffer.
	refill := min(4096, receiveRoom(in)/(2*size+2048))
	fs := buffers(batch, in.BufferBytes())
	ptrs := make([]*frame.Frame, batch)
	for i := range fs {
		ptrs[i] = &fs[i]
	}
	b.SetBytes(int64(size))
	b.ReportAllocs()
	b.ResetTimer()
	done := 0
	for done < b.N {
		b.StopTimer()
		waiting := 0
		for waiting < refill {
			waiting += from.Transmit(load[:min(len(load), refill-waiting)])
		}
		b.StartTimer()
		for got := 0; got < waiting; {
			for i := range fs {
				fs[i].Start = frame.Headroom
			}
			n := in.Receive(fs)
			if n == 0 {
				break // some were lost on the way
			}
			if out.Transmit(ptrs[:n]) != n {
				b.Fatal("frames were not taken")
			}
			got += n
			done += n
		}
	}
	b.StopTimer()
	seconds := b.Elapsed().Seconds()
	b.ReportMetric(seconds/float64(done)*1e9, "ns/op")
	b.ReportMetric(float64(done)/seconds, "packets/s")
	b.ReportMetric(float64(done)*float64(size)*8/seconds/1e9, "Gbit/s")
}

// BenchmarkStream is TCP between two kernels through two packet ports and one goroutine, 256 MiB a time.
func BenchmarkStream(b *testing.B) {
	on := netlab.Offload{Segmentation: true, Receive: true, Checksum: true}
	for _, tt := range []struct {
		name string
		cut  bool
		o    netlab.Offload
	}{{"offload=on", false, on}, {"offload=on/cut", true, on}, {"offload=off", false, netlab.Offload{}}} {
		b.Run(tt.name, func(b *testing.B) {
			l := newLine(b, "packet", tt.cut, tt.o, tt.o)
			const n = 256 << 20
			b.SetBytes(n)
			var took time.Duration
			for b.Loop() {
				took += l.upload(b, "198.18.0.20:80", n, func() hash.Hash { return noHash{} })
			}
			b.ReportMetric(float64(b.N)*n*8/took.Seconds()/1e9, "Gbit/s")
		})
	}
}
