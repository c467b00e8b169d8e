package port

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"splicenic/emu/frame"
)

// Buffers of the socket, in bytes. A coalesced frame takes up to twice its length, a short one 768 bytes. Beyond the
// system's limits (net.core.rmem_max) only root of the machine gets them.
const (
	receiveBufferBytes  = 32 << 20
	transmitBufferBytes = 8 << 20
)

// packetBatch is how many frames go in one system call.
const packetBatch = 64

// Packet is a port on a kernel interface, by a packet socket (packet(7)). It has the interface for itself: promiscuous,
// LRO off, IPv6 and IPv4 forwarding off. Close brings the interface back to how it was.
//
// The port is that of one interface, not of a name. Once the interface is deleted, or moved to another network namespace,
// the link is down for good, with ErrGone: an interface that has the name afterwards may be anybody's, and only opening
// it says that a card may have it.
//
// Frames come with virtio-net headers, so coalesced segments and partial checksums go through whole in both directions.
// VLAN tags, which the kernel takes out of a frame, are put back. Counters may be read by any goroutine.
type Packet struct {
	device
	mac   [6]byte
	index int32          // of the interface
	bound bool           // the socket is
	undo  []func() error // takes back what open did, the last first

	receive  receiveBatch
	transmit transmitBatch

	dropped atomic.Uint64 // by the socket, as the kernel told so far
	strange atomic.Uint64 // received, but of a kind the virtio-net header cannot express
	refused atomic.Uint64 // transmitted, but nothing the kernel accepts
}

// step is one of opening an interface.
type step struct {
	name string
	do   func(p *Packet, name string) error
}

// opening are the steps of opening an interface of a name. Each says in undo how to take back what it did itself, and
// only that: after a refusal the interface may be another card's.
var opening = [...]step{
	{"socket", (*Packet).openSocket},
	{"reserve", (*Packet).reserve},
	{"silence", (*Packet).silence},
	{"LRO", (*Packet).switchLROOff},
	{"prepare", (*Packet).prepare},
	{"bring up", (*Packet).bringUp},
	{"bind", (*Packet).bind},
}

// openInterface opens a port on the interface of that name in the network namespace of this thread.
func openInterface(name string) (Port, error) {
	p, err := openSteps(name, opening[:])
	if err != nil {
		return nil, err
	}
	return p, nil
}

func openSteps(name string, steps []step) (*Packet, error) {
	i, err := findInterface(name)
	if err != nil {
		return nil, err
	}
	p := &Packet{mac: [6]byte(i.HardwareAddr), index: int32(i.Index)}
	p.fd = -1
	for _, s := range steps {
		if err := s.do(p, name); err != nil {
			return nil, errors.Join(err, p.Close())
		}
	}
	return p, nil
}

func (p *Packet) openSocket(name string) error {
	// Protocol 0 receives nothing until bind, when the socket is ready.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if errors.Is(err, unix.EPERM) {
		return errors.New("a card on a kernel interface needs root, or CAP_NET_RAW and CAP_NET_ADMIN")
	}
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	if p.device, err = newDevice(fd, name); err != nil {
		return errors.Join(err, unix.Close(fd))
	}
	return nil
}

func (p *Packet) reserve(name string) error {
	fd, err := reserve(name)
	if err != nil {
		return err
	}
	p.undo = append(p.undo, func() error { return unix.Close(fd) })
	return nil
}

func (p *Packet) silence(name string) error {
	settings, err := silence(name)
	for _, s := range settings {
		p.undo = append(p.undo, s.restore)
	}
	return err
}

func (p *Packet) switchLROOff(name string) error {
	was, err := setLRO(p.fd, name, false)
	if err != nil {
		return fmt.Errorf("switch LRO off: %w", err)
	}
	if was {
		p.undo = append(p.undo, func() error {
			if !p.present() {
				return nil
			}
			_, err := setLRO(p.fd, p.request.Name(), true)
			return err
		})
	}
	return nil
}

// prepare sets the socket's options.
func (p *Packet) prepare(string) error {
	for _, o := range []struct {
		name   string
		option int
	}{
		{"PACKET_VNET_HDR", unix.PACKET_VNET_HDR},
		{"PACKET_AUXDATA", unix.PACKET_AUXDATA},
		{"PACKET_IGNORE_OUTGOING", unix.PACKET_IGNORE_OUTGOING},
	} {
		if err := unix.SetsockoptInt(p.fd, unix.SOL_PACKET, o.option, 1); err != nil {
			return fmt.Errorf("set %s (Linux 4.20 has all that is needed): %w", o.name, err)
		}
	}
	promiscuous := unix.PacketMreq{Ifindex: p.index, Type: unix.PACKET_MR_PROMISC}
	if err := unix.SetsockoptPacketMreq(p.fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &promiscuous); err != nil {
		return fmt.Errorf("make it promiscuous: %w", err)
	}
	for _, b := range []struct{ force, plain, bytes int }{
		{unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, receiveBufferBytes},
		{unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, transmitBufferBytes},
	} {
		if unix.SetsockoptInt(p.fd, unix.SOL_SOCKET, b.force, b.bytes) == nil {
			continue
		}
		if err := unix.SetsockoptInt(p.fd, unix.SOL_SOCKET, b.plain, b.bytes); err != nil {
			return os.NewSyscallError("setsockopt", err)
		}
	}
	return nil
}

func (p *Packet) bringUp(string) error {
	flags := p.flags()
	if flags&unix.IFF_UP != 0 {
		return nil
	}
	if err := p.setFlags(flags | unix.IFF_UP); err != nil {
		return err
	}
	p.undo = append(p.undo, func() error {
		if !p.present() {
			return nil
		}
		if flags := p.flags(); flags&unix.IFF_UP != 0 {
			return p.setFlags(flags &^ unix.IFF_UP)
		}
		return nil
	})
	return nil
}

func (p *Packet) bind(name string) error {
	settle(p.fd, name)
	all := binary.NativeEndian.Uint16([]byte{unix.ETH_P_ALL >> 8, unix.ETH_P_ALL & 0xff}) // network byte order
	err := unix.Bind(p.fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: int(p.index)})
	p.bound = err == nil
	return os.NewSyscallError("bind", err)
}

// present says whether the interface is still there, and has the request carry the name it has now. The kernel unbinds
// the socket for good when the interface goes, which also tells it from one that got its index.
func (p *Packet) present() bool {
	if p.fd < 0 || p.bound && boundIndex(p.fd) != p.index {
		return false
	}
	p.request.SetUint32(uint32(p.index))
	return unix.IoctlIfreq(p.fd, unix.SIOCGIFNAME, p.request) == nil
}

// MAC is the interface's address.
func (p *Packet) MAC() [6]byte { return p.mac }

// MTU is the interface's, the last it had when it is gone.
func (p *Packet) MTU() int { return p.mtu(p.present()) }

// Link is up while the interface is and has a carrier.
func (p *Packet) Link() LinkState { return p.link(p.present()) }

// BufferBytes has room for the largest coalesced frame.
func (p *Packet) BufferBytes() int { return frame.Headroom + frame.MaxBytes }

// Offloads is everything: what the interface cannot do the kernel does before it.
func (p *Packet) Offloads() Offloads { return Offloads{Checksum: true, Segmentation: true} }

// FD is the socket.
func (p *Packet) FD() int { return p.fd }

// Overruns counts frames the kernel had no room for or could not express.
func (p *Packet) Overruns() uint64 {
	// The kernel's count begins anew with every call.
	if s, err := unix.GetsockoptTpacketStats(p.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS); err == nil {
		p.dropped.Add(uint64(s.Drops))
	}
	return p.dropped.Load() + p.strange.Load()
}

// Refused counts frames that the kernel did not accept for transmission because of what they were: longer than the MTU,
// or with an offload header that does not fit them. Transmit has taken them.
func (p *Packet) Refused() uint64 { return p.refused.Load() }

// Receive takes what has come.
func (p *Packet) Receive(fs []frame.Frame) int {
	total := 0
	for total < len(fs) {
		want := min(len(fs)-total, packetBatch)
		n, err := p.receive.call(p.fd, fs[total:total+want])
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EINVAL:
			p.strange.Add(1)
			continue
		case err != 0:
			return total // nothing there, or the interface went down
		}
		for i := range n {
			p.receive.finish(i, &fs[total+i])
		}
		total += n
		if n < want {
			return total
		}
	}
	return total
}

// Transmit sends frames with their offload headers. It stops where the kernel has no room.
func (p *Packet) Transmit(fs []*frame.Frame) int {
	total := 0
	for total < len(fs) {
		n, err := p.transmit.call(p.fd, fs[total:min(len(fs), total+packetBatch)])
		switch err {
		case 0:
			total += n
		case unix.EINTR:
		case unix.EINVAL, unix.EMSGSIZE:
			p.refused.Add(1) // the first frame of the call, and that one only
			total++
		default: // no room; the interface is down or gone
			return total
		}
	}
	return total
}

// Close gives the interface back as it was. Where it is gone there is nothing to give back.
func (p *Packet) Close() error {
	if p.fd < 0 {
		return nil
	}
	var errs []error
	for _, undo := range slices.Backward(p.undo) {
		errs = append(errs, undo())
	}
	errs = append(errs, unix.Close(p.fd))
	p.fd, p.undo = -1, nil
	return errors.Join(errs...)
}
