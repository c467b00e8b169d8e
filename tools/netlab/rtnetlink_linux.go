package netlab

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// The requests below are rtnetlink(7) messages of one object each. Every function runs on a thread that is inside the
// namespace it means: the socket is opened, used and closed there.

// vethPeer is VETH_INFO_PEER of linux/veth.h.
const vethPeer = 1

// message is a request being built: the netlink header, the fixed part of its type, attributes.
type message []byte

// newMessage leaves room for the length and the sequence number. Its flags ask for an acknowledgement.
func newMessage(kind, flags uint16, fixed []byte) message {
	m := make(message, unix.SizeofNlMsghdr, 256)
	binary.NativeEndian.PutUint16(m[4:], kind)
	binary.NativeEndian.PutUint16(m[6:], flags|unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	return append(m, fixed...)
}

// attribute adds one attribute, padded to four bytes.
func (m *message) attribute(kind uint16, value []byte) {
	*m = binary.NativeEndian.AppendUint16(*m, uint16(4+len(value)))
	*m = binary.NativeEndian.AppendUint16(*m, kind)
	*m = append(*m, value...)
	*m = append(*m, make([]byte, -len(*m)&3)...)
}

func (m *message) text(kind uint16, s string) { m.attribute(kind, append([]byte(s), 0)) }
func (m *message) number(kind uint16, v uint32) {
	m.attribute(kind, binary.NativeEndian.AppendUint32(nil, v))
}

// nest adds an attribute that holds others, written by fill.
func (m *message) nest(kind uint16, fill func()) {
	at := len(*m)
	m.attribute(kind, nil)
	fill()
	binary.NativeEndian.PutUint16((*m)[at:], uint16(len(*m)-at))
}

// send hands the request to the kernel and returns its answer.
func (m message) send() error {
	binary.NativeEndian.PutUint32(m, uint32(len(m)))
	const sequence = 1
	binary.NativeEndian.PutUint32(m[8:], sequence)
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	if err := unix.Sendto(fd, m, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return os.NewSyscallError("sendto", err)
	}
	answer := make([]byte, 1<<15)
	for {
		n, _, err := unix.Recvfrom(fd, answer, 0)
		if err != nil {
			return os.NewSyscallError("recvfrom", err)
		}
		// An object that was asked for comes before the acknowledgement.
		if n >= unix.SizeofNlMsghdr && binary.NativeEndian.Uint16(answer[4:]) == unix.RTM_NEWLINK {
			continue
		}
		return acknowledged(answer[:n], sequence)
	}
}

// acknowledged reads the answer to a request: NLMSG_ERROR with a negative errno, or zero.
func acknowledged(answer []byte, sequence uint32) error {
	if len(answer) < unix.SizeofNlMsghdr+4 {
		return fmt.Errorf("netlink: answer of %d bytes", len(answer))
	}
	kind, got := binary.NativeEndian.Uint16(answer[4:]), binary.NativeEndian.Uint32(answer[8:])
	if kind != unix.NLMSG_ERROR || got != sequence {
		return fmt.Errorf("netlink: answer of type %d to request %d, want the acknowledgement of %d", kind, got, sequence)
	}
	if errno := -int32(binary.NativeEndian.Uint32(answer[unix.SizeofNlMsghdr:])); errno != 0 {
		return unix.Errno(errno)
	}
	return nil
}

// ifinfo is struct ifinfomsg.
func ifinfo(index int, flags, change uint32) []byte {
	b := make([]byte, unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(b[4:], uint32(index))
	binary.NativeEndian.PutUint32(b[8:], flags)
	binary.NativeEndian.PutUint32(b[12:], change)
	return b
}

// index is the number of an interface of this thread's namespace.
func index(ifname string) (int, error) {
	i, err := net.InterfaceByName(ifname)
	if err != nil {
		return 0, err
	}
	return i.Index, nil
}

// addVeth makes a veth pair, its far end in another namespace.
func addVeth(near, far string, farNamespace *os.File) error {
	if len(near) >= unix.IFNAMSIZ || len(far) >= unix.IFNAMSIZ {
		return fmt.Errorf("interface names are at most %d bytes", unix.IFNAMSIZ-1)
	}
	conn, err := farNamespace.SyscallConn()
	if err != nil {
		return err
	}
	m := newMessage(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL, ifinfo(0, 0, 0))
	m.text(unix.IFLA_IFNAME, near)
	var inner error
	err = conn.Control(func(fd uintptr) {
		m.nest(unix.IFLA_LINKINFO, func() {
			m.text(unix.IFLA_INFO_KIND, "veth")
			m.nest(unix.IFLA_INFO_DATA, func() {
				m.nest(vethPeer, func() {
					m = append(m, ifinfo(0, 0, 0)...)
					m.text(unix.IFLA_IFNAME, far)
					m.number(unix.IFLA_NET_NS_FD, uint32(fd))
				})
			})
		})
		inner = m.send()
	})
	return errors.Join(err, inner)
}

// addBridge makes a bridge without members.
func addBridge(ifname string) error {
	m := newMessage(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL, ifinfo(0, 0, 0))
	m.text(unix.IFLA_IFNAME, ifname)
	m.nest(unix.IFLA_LINKINFO, func() { m.text(unix.IFLA_INFO_KIND, "bridge") })
	return m.send()
}

// setMaster makes an interface a member of a bridge.
func setMaster(ifname, bridge string) error {
	i, err := index(bridge)
	if err != nil {
		return err
	}
	return setLink(ifname, 0, 0, unix.IFLA_MASTER, binary.NativeEndian.AppendUint32(nil, uint32(i)))
}

// setLink changes one thing of an interface.
func setLink(ifname string, flags, change uint32, kind uint16, value []byte) error {
	i, err := index(ifname)
	if err != nil {
		return err
	}
	m := newMessage(unix.RTM_NEWLINK, 0, ifinfo(i, flags, change))
	if value != nil {
		m.attribute(kind, value)
	}
	return m.send()
}

func setUp(ifname string, up bool) error {
	var flags uint32
	if up {
		flags = unix.IFF_UP
	}
	return setLink(ifname, flags, unix.IFF_UP, 0, nil)
}

// settle asks for an interface's state, at which the kernel takes note of a carrier that has just come. Until it does,
// by itself within a second, it drops silently what is sent there.
func settle(ifname string) error {
	i, err := index(ifname)
	if err != nil {
		return err
	}
	return newMessage(unix.RTM_GETLINK, 0, ifinfo(i, 0, 0)).send()
}

func setMTU(ifname string, bytes int) error {
	return setLink(ifname, 0, 0, unix.IFLA_MTU, binary.NativeEndian.AppendUint32(nil, uint32(bytes)))
}

func setMAC(ifname string, mac [6]byte) error {
	return setLink(ifname, 0, 0, unix.IFLA_ADDRESS, mac[:])
}

// family is the address family of a.
func family(a netip.Addr) byte {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

func addAddress(ifname string, p netip.Prefix) error {
	i, err := index(ifname)
	if err != nil {
		return err
	}
	fixed := make([]byte, unix.SizeofIfAddrmsg) // struct ifaddrmsg
	fixed[0], fixed[1] = family(p.Addr()), byte(p.Bits())
	if p.Addr().Is6() {
		fixed[2] = unix.IFA_F_NODAD
	}
	binary.NativeEndian.PutUint32(fixed[4:], uint32(i))
	m := newMessage(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL, fixed)
	m.attribute(unix.IFA_LOCAL, p.Addr().AsSlice())
	m.attribute(unix.IFA_ADDRESS, p.Addr().AsSlice())
	return m.send()
}

// addRoute adds a route through a gateway or, where that is invalid, on a link. An invalid destination is the default.
func addRoute(dst netip.Prefix, gateway netip.Addr, ifname string) error {
	fixed := make([]byte, unix.SizeofRtMsg) // struct rtmsg
	of, scope := gateway, byte(unix.RT_SCOPE_UNIVERSE)
	if dst.IsValid() {
		of = dst.Addr()
		fixed[1] = byte(dst.Bits())
	}
	if !gateway.IsValid() {
		scope = unix.RT_SCOPE_LINK
	}
	fixed[0] = family(of)
	if !of.IsValid() {
		fixed[0] = unix.AF_INET
	}
	fixed[4], fixed[5], fixed[6], fixed[7] = unix.RT_TABLE_MAIN, unix.RTPROT_STATIC, scope, unix.RTN_UNICAST
	m := newMessage(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_EXCL, fixed)
	if dst.IsValid() {
		m.attribute(unix.RTA_DST, dst.Masked().Addr().AsSlice())
	}
	if gateway.IsValid() {
		m.attribute(unix.RTA_GATEWAY, gateway.AsSlice())
		return m.send()
	}
	i, err := index(ifname)
	if err != nil {
		return err
	}
	m.number(unix.RTA_OIF, uint32(i))
	return m.send()
}

func addNeighbour(ifname string, a netip.Addr, mac [6]byte) error {
	i, err := index(ifname)
	if err != nil {
		return err
	}
	fixed := make([]byte, unix.SizeofNdMsg) // struct ndmsg
	fixed[0] = family(a)
	binary.NativeEndian.PutUint32(fixed[4:], uint32(i))
	binary.NativeEndian.PutUint16(fixed[8:], unix.NUD_PERMANENT)
	m := newMessage(unix.RTM_NEWNEIGH, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, fixed)
	m.attribute(unix.NDA_DST, a.AsSlice())
	m.attribute(unix.NDA_LLADDR, mac[:])
	return m.send()
}
