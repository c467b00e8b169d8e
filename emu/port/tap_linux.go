package port

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"splicenic/emu/frame"
)

// Tap is a port whose wire ends in a TAP interface of this machine: what the kernel sends there the port receives. The
// interface is the far end and keeps its addresses; the port has a MAC address of its own, made of the name.
type Tap struct {
	device     // its descriptor is a socket of the interface's namespace
	tap    int // descriptor of the TAP
	mac    [6]byte

	transmit transmitBatch
	refused  atomic.Uint64
}

// openTap attaches to a TAP interface, which is made if there is none of that name.
func openTap(name string) (Port, error) {
	request, err := unix.NewIfreq(name)
	if err != nil || name == "" {
		return nil, fmt.Errorf("name of %d bytes; an interface's has 1 to %d", len(name), unix.IFNAMSIZ-1)
	}
	tap, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: "/dev/net/tun", Err: err}
	}
	p := &Tap{tap: tap, mac: localMAC(name)}
	p.fd = -1
	if err := p.attach(request); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

func (p *Tap) attach(request *unix.Ifreq) error {
	request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	err := unix.IoctlIfreq(p.tap, unix.TUNSETIFF, request)
	if errors.Is(err, unix.EBUSY) {
		return ErrBusy
	}
	if errors.Is(err, unix.EPERM) {
		return errors.New("a TAP needs root or CAP_NET_ADMIN")
	}
	if err != nil {
		return os.NewSyscallError("ioctl TUNSETIFF", err)
	}
	if err := unix.IoctlSetPointerInt(p.tap, unix.TUNSETVNETHDRSZ, virtioBytes); err != nil {
		return os.NewSyscallError("ioctl TUNSETVNETHDRSZ", err)
	}
	const takes = unix.TUN_F_CSUM | unix.TUN_F_TSO4 | unix.TUN_F_TSO6 | unix.TUN_F_TSO_ECN
	if err := unix.IoctlSetInt(p.tap, unix.TUNSETOFFLOAD, takes); err != nil {
		return os.NewSyscallError("ioctl TUNSETOFFLOAD", err)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	if p.device, err = newDevice(fd, request.Name()); err != nil {
		return errors.Join(err, unix.Close(fd))
	}
	return nil
}

// MAC is an address made of the name.
func (p *Tap) MAC() [6]byte { return p.mac }

// present says whether the interface is still there, and has the request carry the name it has now. The kernel detaches
// the descriptor for good when the interface goes.
func (p *Tap) present() bool {
	return p.tap >= 0 && unix.IoctlIfreq(p.tap, unix.TUNGETIFF, p.request) == nil
}

// MTU is the interface's, the last it had when it is gone.
func (p *Tap) MTU() int { return p.mtu(p.present()) }

// Link is up while the interface is. It is down for good, with ErrGone, once the interface is deleted.
func (p *Tap) Link() LinkState { return p.link(p.present()) }

// BufferBytes has room for the largest coalesced frame.
func (p *Tap) BufferBytes() int { return frame.Headroom + frame.MaxBytes }

// Offloads is everything: the far end is this machine's own stack.
func (p *Tap) Offloads() Offloads { return Offloads{Checksum: true, Segmentation: true} }

// FD is the TAP's descriptor.
func (p *Tap) FD() int { return p.tap }

// Overruns is zero: the interface counts what its own queue drops.
func (p *Tap) Overruns() uint64 { return 0 }

// Refused counts frames that the kernel did not accept for what they were. Transmit has taken them.
func (p *Tap) Refused() uint64 { return p.refused.Load() }

// Receive reads what the kernel has sent, one frame a system call. Tags are in place.
func (p *Tap) Receive(fs []frame.Frame) int {
	for i := 0; i < len(fs); {
		f := &fs[i]
		n, err := unix.Read(p.tap, f.Buf[f.Start-virtioBytes:])
		if err == unix.EINTR {
			continue
		}
		if err != nil || n < virtioBytes {
			return i
		}
		f.Offload = decodeOffload((*[virtioBytes]byte)(f.Buf[f.Start-virtioBytes:]))
		f.End = f.Start + uint32(n-virtioBytes)
		i++
	}
	return len(fs)
}

// Transmit hands frames to the kernel.
func (p *Tap) Transmit(fs []*frame.Frame) int {
	for i := 0; i < len(fs); {
		switch p.transmit.writeFrame(p.tap, fs[i]) {
		case 0:
			i++
		case unix.EINTR:
		case unix.EINVAL, unix.EMSGSIZE:
			p.refused.Add(1)
			i++
		default: // no room; the interface is down
			return i
		}
	}
	return len(fs)
}

// Close detaches from the interface, which vanishes unless it was made persistent.
func (p *Tap) Close() error {
	if p.tap < 0 {
		return nil
	}
	err := unix.Close(p.tap)
	if p.fd >= 0 {
		err = errors.Join(err, unix.Close(p.fd))
	}
	p.tap, p.fd = -1, -1
	return err
}
