package acceptance

import (
	encoding "encoding/binary" // binary is splicectl
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"golang.org/x/sys/unix"

	"splicenic/tools/netlab"
)

// A segment is a TCP segment that a tap has seen. gopacket read it.
type segment struct {
	from, to netip.AddrPort
	out      bool // sent by this end
	*layers.TCP
}

// timestamps are the segment's TSval and TSecr.
func (s *segment) timestamps() (val, ecr uint32, ok bool) {
	for _, o := range s.Options {
		if o.OptionType == layers.TCPOptionKindTimestamps && len(o.OptionData) == 8 {
			return encoding.BigEndian.Uint32(o.OptionData), encoding.BigEndian.Uint32(o.OptionData[4:]), true
		}
	}
	return 0, 0, false
}

// A tap sees the TCP segments of IPv4 that come and go at an interface.
type tap struct {
	file *os.File
	done chan struct{}

	mu       sync.Mutex
	segments []segment
}

// newTap taps an interface until the test ends or the tap is closed.
func newTap(t *testing.T, n *netlab.Namespace, ifname string) *tap {
	t.Helper()
	p := &tap{done: make(chan struct{})}
	must(t, n.Do(func() error {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return os.NewSyscallError("socket", err)
		}
		p.file = os.NewFile(uintptr(fd), "tap")
		i, err := net.InterfaceByName(ifname)
		if err != nil {
			return err
		}
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20); err != nil && !errors.Is(err, unix.EPERM) {
			return os.NewSyscallError("setsockopt", err)
		}
		all := encoding.NativeEndian.Uint16([]byte{unix.ETH_P_ALL >> 8, unix.ETH_P_ALL & 0xff})
		return os.NewSyscallError("bind", unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: i.Index}))
	}))
	go p.read()
	t.Cleanup(p.close)
	return p
}

func (p *tap) close() {
	p.file.Close()
	<-p.done
}

func (p *tap) read() {
	defer close(p.done)
	raw, err := p.file.SyscallConn()
	if err != nil {
		return
	}
	b := make([]byte, 1<<17)
	for {
		var n int
		var from unix.Sockaddr
		var inner error
		err := raw.Read(func(fd uintptr) bool {
			n, from, inner = unix.Recvfrom(int(fd), b, 0)
			return !errors.Is(inner, unix.EAGAIN)
		})
		if err != nil || inner != nil {
			return
		}
		ll, _ := from.(*unix.SockaddrLinklayer)
		if s, ok := parseSegment(b[:n]); ok {
			s.out = ll != nil && ll.Pkttype == unix.PACKET_OUTGOING
			p.mu.Lock()
			p.segments = append(p.segments, s)
			p.mu.Unlock()
		}
	}
}

func parseSegment(b []byte) (segment, bool) {
	pkt := gopacket.NewPacket(b, layers.LayerTypeEthernet, gopacket.Default) // copies
	ip, _ := pkt.Layer(layers.LayerTypeIPv4).(*layers.IPv4)
	tcp, _ := pkt.Layer(layers.LayerTypeTCP).(*layers.TCP)
	if ip == nil || tcp == nil {
		return segment{}, false
	}
	from, _ := netip.AddrFromSlice(ip.SrcIP.To4())
	to, _ := netip.AddrFromSlice(ip.DstIP.To4())
	return segment{netip.AddrPortFrom(from, uint16(tcp.SrcPort)), netip.AddrPortFrom(to, uint16(tcp.DstPort)), false, tcp}, true
}

// of are the segments so far in which a port of the client takes part.
func (p *tap) of(client uint16) (ss []segment) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.segments {
		if s.from.Port() == client || s.to.Port() == client {
			ss = append(ss, s)
		}
	}
	return ss
}

// handshake finds the first SYN and the first SYN-ACK of the client's port.
func (p *tap) handshake(client uint16) (syn, synAck *segment) {
	for _, s := range p.of(client) {
		switch {
		case !s.SYN:
		case s.ACK && synAck == nil:
			synAck = &s
		case !s.ACK && syn == nil:
			syn = &s
		}
	}
	return syn, synAck
}
