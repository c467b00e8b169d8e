package decap

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"splicenic/tools/netlab"
)

// vnetBytes is the length of struct virtio_net_hdr, which stands before each packet on both sides.
const vnetBytes = 10

// etherBytes is the length of an Ethernet header, whose VLAN tag the kernel takes off.
const etherBytes = 14

// maxPacket is the longest packet, coalesced ones included.
const maxPacket = vnetBytes + etherBytes + 65536

// Start makes the far end of tunnels in a namespace. Close ends it.
func Start(cfg Config) (*Decap, error) {
	if cfg.TUN == "" {
		cfg.TUN = "decap0"
	}
	d := &Decap{rules: cfg.Rules, counters: newCounters(), done: make(chan struct{})}
	if err := d.open(&cfg); err != nil {
		return nil, errors.Join(fmt.Errorf("start decapsulation in %s: %w", cfg.Namespace.Name(), err), d.closeFiles())
	}
	go d.run()
	return d, nil
}

// Decap is the far end of tunnels. Make one with Start.
type Decap struct {
	rules  Rules
	packet *os.File   // AF_PACKET socket
	tun    *os.File   // TUN device
	gather gather     // run's
	guards []*os.File // sockets that keep the kernel silent
	done   chan struct{}

	mu       sync.Mutex
	counters Counters
}

func (d *Decap) open(cfg *Config) error {
	n := cfg.Namespace
	err := n.Do(func() (err error) {
		if d.tun, err = openTUN(cfg.TUN); err != nil {
			return err
		}
		if d.packet, err = openPacket(cfg.Interface); err != nil {
			return err
		}
		return d.guard(cfg)
	})
	if err != nil {
		return err
	}
	for _, s := range [][2]string{
		{"net.ipv4.conf.all.rp_filter", "0"}, {"net.ipv4.conf." + cfg.TUN + ".rp_filter", "0"},
		{"net.ipv4.conf.all.arp_ignore", "1"}, {"net.ipv4.conf.all.arp_announce", "2"},
	} {
		if err := n.Sysctl(s[0], s[1]); err != nil {
			return err
		}
	}
	if err := n.Up(cfg.TUN); err != nil {
		return err
	}
	for _, vip := range cfg.VIPs {
		if err := n.Addr("lo", vip); err != nil {
			return err
		}
		if err := settle(n, netip.MustParsePrefix(vip).Addr()); err != nil { // Addr has parsed it
			return err
		}
	}
	return nil
}

// settle waits until packets to an address are delivered here: the kernel adds the local route of an IPv6 address later than
// the address. A socket at it that gets what it sends to itself has seen that route.
func settle(n *netlab.Namespace, a netip.Addr) (err error) {
	const most, each = 10 * time.Second, 5 * time.Millisecond
	var c *net.UDPConn
	err = n.Do(func() (err error) {
		c, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, 0)))
		return err
	})
	if err != nil {
		return err
	}
	defer c.Close()
	self := c.LocalAddr().(*net.UDPAddr).AddrPort()
	for end := time.Now().Add(most); time.Now().Before(end); {
		if _, err = c.WriteToUDPAddrPort([]byte{0}, self); err != nil {
			time.Sleep(each)
			continue
		}
		c.SetReadDeadline(time.Now().Add(each))
		if _, _, err = c.ReadFromUDPAddrPort(make([]byte, 1)); err == nil {
			return nil
		}
	}
	return fmt.Errorf("%s is not delivered here after %v: %w", a, most, err)
}

// openTUN makes a TUN device.
func openTUN(name string) (*os.File, error) {
	request, err := unix.NewIfreq(name)
	if err != nil {
		return nil, fmt.Errorf("name of TUN %q: %w", name, err)
	}
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: "/dev/net/tun", Err: err}
	}
	request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
		unix.Close(fd)
		return nil, os.NewSyscallError("ioctl TUNSETIFF", err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// openPacket makes a socket that sees what arrives on an interface.
func openPacket(name string) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket AF_PACKET", err)
	}
	f := os.NewFile(uintptr(fd), "packets of "+name)
	request, err := unix.NewIfreq(name)
	if err == nil {
		err = unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, request)
	}
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1)
	}
	if err == nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20) // what the limit allows will do
		const all = unix.ETH_P_ALL>>8 | unix.ETH_P_ALL&0xff<<8                  // in network byte order
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: int(request.Uint32())})
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("listen to %s: %w", name, err)
	}
	return f, nil
}

// guard opens the sockets that take what the kernel would complain about.
func (d *Decap) guard(cfg *Config) error {
	port := int(cfg.Rules.Port)
	if port == 0 {
		port = 6080
	}
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		for _, proto := range []int{protoIPv4, protoIPv6, protoGRE} {
			fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, proto)
			if err != nil {
				return os.NewSyscallError("socket SOCK_RAW", err)
			}
			if err := discard(fd); err != nil {
				unix.Close(fd)
				return err
			}
			d.guards = append(d.guards, os.NewFile(uintptr(fd), "guard"))
		}
		fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return os.NewSyscallError("socket SOCK_DGRAM", err)
		}
		d.guards = append(d.guards, os.NewFile(uintptr(fd), "guard"))
		var at unix.Sockaddr = &unix.SockaddrInet4{Port: port}
		if family == unix.AF_INET6 {
			_ = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1)
			at = &unix.SockaddrInet6{Port: port}
		}
		if err := unix.Bind(fd, at); err != nil {
			return fmt.Errorf("bind port %d: %w", port, err)
		}
	}
	return nil
}

// discard has a socket throw away what it gets. One whose buffer is full does not count as a receiver, and the kernel would
// answer that it does not know the protocol.
func discard(fd int) error {
	nothing := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: 0}}
	return os.NewSyscallError("setsockopt SO_ATTACH_FILTER", unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &nothing[0]}))
}

// run takes packets until the socket is closed.
func (d *Decap) run() {
	defer close(d.done)
	conn, err := d.packet.SyscallConn()
	if err != nil {
		return
	}
	b := make([]byte, maxPacket)
	for {
		n, host := 0, false
		var inner error
		err := conn.Read(func(fd uintptr) bool {
			var from unix.Sockaddr
			n, from, inner = unix.Recvfrom(int(fd), b, unix.MSG_TRUNC)
			if ll, ok := from.(*unix.SockaddrLinklayer); ok {
				host = ll.Pkttype == unix.PACKET_HOST
			}
			return inner != unix.EAGAIN
		})
		if err != nil {
			return // closed
		}
		if inner == nil && host && n > vnetBytes+etherBytes && n <= len(b) {
			d.take(b[:n])
		}
	}
}

// take opens a packet and gives what is in it to the kernel.
func (d *Decap) take(b []byte) {
	vnet, p := b[:vnetBytes], b[vnetBytes+etherBytes:]
	for _, at := range []int{2, 6} { // the header's length, and where the checksum begins
		n := binary.NativeEndian.Uint16(vnet[at:])
		binary.NativeEndian.PutUint16(vnet[at:], n-min(n, etherBytes))
	}
	inner, kind, reason := []byte(nil), Kind(""), Coalesced
	segmented := vnet[1] != unix.VIRTIO_NET_HDR_GSO_NONE
	if vnet[0]&unix.VIRTIO_NET_HDR_F_NEEDS_CSUM == 0 && !segmented && !d.restored(p) { // no fragment lacks a checksum
		whole, fragment := d.gather.add(p)
		if fragment && whole == nil {
			return
		}
		if fragment {
			b = make([]byte, vnetBytes+etherBytes, vnetBytes+etherBytes+len(whole))
			b = append(b, whole...)
			vnet, p = b[:vnetBytes], b[vnetBytes+etherBytes:]
		}
	}
	switch {
	case !segmented && complete(vnet, p), segmented && p[0]>>4 != 4 && p[0]>>4 != 6:
		inner, kind, reason = d.rules.Open(p)
	case segmented:
		if o, why := parse(p); why != None || o.proto == protoTCP {
			reason = Foreign
			if vip, ok := d.rules.vip(&o); ok && why == None {
				inner, kind, reason = restorePartial(p, &o, vip), DSCP, None
			}
		}
	default:
		reason = Short
	}
	var err error
	if reason == None {
		if kind != DSCP || !segmented {
			clear(vnet)
		}
		_, err = d.tun.Write(join(vnet, inner, b))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case reason == Foreign:
		d.counters.Foreign++
	case reason != None:
		d.counters.Refused[reason]++
	case err != nil:
		d.counters.Undelivered++
	default:
		d.counters.Kinds[kind]++
		d.counters.Packets++
		d.counters.Bytes += uint64(len(inner))
	}
}

// restored says whether a packet is one of L3DSR, whose fragments stay such.
func (d *Decap) restored(p []byte) bool {
	o, why := parse(p)
	if why != None {
		return false
	}
	_, ok := d.rules.vip(&o)
	return ok
}

// join puts the header right before the packet; both lie in b, the header first.
func join(vnet, inner, b []byte) []byte {
	at := cap(b) - cap(inner) - vnetBytes // inner is a part of b, behind the header
	copy(b[at:], vnet)
	return b[at : at+vnetBytes+len(inner)]
}

// complete puts the checksum in place that a packet's sender left to the hardware; false where its place is not in it.
func complete(vnet, p []byte) bool {
	if vnet[0]&unix.VIRTIO_NET_HDR_F_NEEDS_CSUM == 0 {
		return true
	}
	start, offset := int(binary.NativeEndian.Uint16(vnet[6:])), int(binary.NativeEndian.Uint16(vnet[8:]))
	if start+offset+2 > len(p) {
		return false
	}
	c := ^fold(sum(p[start:], 0))
	if c == 0 {
		c = 0xffff // right for every protocol, and what UDP wants
	}
	binary.BigEndian.PutUint16(p[start+offset:], c)
	return true
}

// Counters tells what came so far.
func (d *Decap) Counters() Counters {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.counters.clone()
}

// Close ends it.
func (d *Decap) Close() error {
	err := d.packet.Close()
	<-d.done
	d.packet = nil
	return errors.Join(err, d.closeFiles())
}

func (d *Decap) closeFiles() error {
	var errs []error
	for _, f := range append(d.guards, d.packet, d.tun) {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}
