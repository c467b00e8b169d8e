package port

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// device is a kernel interface seen through a socket of its network namespace.
type device struct {
	fd      int
	request *unix.Ifreq
	mbps    uint32
	lastMTU int
}

func newDevice(fd int, name string) (device, error) {
	r, err := unix.NewIfreq(name)
	if err != nil {
		return device{fd: -1}, fmt.Errorf("name of %d bytes; an interface's has 1 to %d", len(name), unix.IFNAMSIZ-1)
	}
	d := device{fd: fd, request: r, mbps: speed(fd, name)}
	d.mtu(true)
	return d, nil
}

// flags are the interface's IFF_ flags, or 0 when it is gone.
func (d *device) flags() uint16 {
	if unix.IoctlIfreq(d.fd, unix.SIOCGIFFLAGS, d.request) != nil {
		return 0
	}
	return d.request.Uint16()
}

func (d *device) setFlags(flags uint16) error {
	d.request.SetUint16(flags)
	return os.NewSyscallError("ioctl SIOCSIFFLAGS", unix.IoctlIfreq(d.fd, unix.SIOCSIFFLAGS, d.request))
}

// mtu is the interface's MTU. present says that the request names the interface and not one made since; the last MTU
// stays.
func (d *device) mtu(present bool) int {
	if present && unix.IoctlIfreq(d.fd, unix.SIOCGIFMTU, d.request) == nil {
		d.lastMTU = int(d.request.Uint32())
	}
	return d.lastMTU
}

// link is the interface's; for present see mtu.
func (d *device) link(present bool) LinkState {
	if !present {
		return LinkState{Err: ErrGone}
	}
	const up = unix.IFF_UP | unix.IFF_RUNNING
	return LinkState{Up: d.flags()&up == up, Mbps: d.mbps}
}

// findInterface looks an interface up in the namespace of this thread, and says whether a card may have it.
func findInterface(name string) (*net.Interface, error) {
	i, err := net.InterfaceByName(name)
	if err != nil {
		return nil, errors.New("no such interface; list them with: ip link")
	}
	if len(i.HardwareAddr) != 6 || i.Flags&(net.FlagLoopback|net.FlagPointToPoint) != 0 {
		return nil, errors.New("not an Ethernet interface")
	}
	addrs, err := i.Addrs()
	if err != nil {
		return nil, fmt.Errorf("list its addresses: %w", err)
	}
	for _, a := range addrs {
		n, ok := a.(*net.IPNet)
		if ok && n.IP.To4() == nil && n.IP.IsLinkLocalUnicast() {
			continue // goes away with IPv6
		}
		return nil, fmt.Errorf("it has the address %s, and a card needs an interface for itself; free it with: ip address flush dev %s", a, name)
	}
	return i, nil
}

// reserve makes sure that no other card has the interface: a name in the abstract socket space of the network namespace,
// which the kernel takes back when the descriptor closes.
func reserve(name string) (fd int, err error) {
	fd, err = unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	err = unix.Bind(fd, &unix.SockaddrUnix{Name: "@splicenic/port/" + name})
	if err == nil {
		return fd, nil
	}
	unix.Close(fd)
	if errors.Is(err, unix.EADDRINUSE) {
		return -1, ErrBusy
	}
	return -1, os.NewSyscallError("bind", err)
}

// quiet are the variables that keep the kernel's own stack off a wire the card answers on: no IPv6, no forwarding of
// what is meant for the card, no ARP replies for addresses of other interfaces.
var quiet = [...]struct{ format, value string }{
	{"/proc/sys/net/ipv6/conf/%s/disable_ipv6", "1"},
	{"/proc/sys/net/ipv4/conf/%s/forwarding", "0"},
	{"/proc/sys/net/ipv4/conf/%s/arp_ignore", "8"},
}

// setting is a kernel variable with the value it had. The descriptor means the variable of the namespace it was opened
// in, whatever thread writes to it.
type setting struct {
	file *os.File
	old  string
}

// silence sets the variables and returns what brings their old values back. A kernel without IPv6 has fewer of them.
func silence(name string) (undo []setting, err error) {
	for _, q := range quiet {
		path := fmt.Sprintf(q.format, name)
		s, changed, err := change(path, q.value)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return undo, fmt.Errorf("%w; set it with: echo %s >%s", err, q.value, path)
		}
		if changed {
			undo = append(undo, s)
		}
	}
	return undo, nil
}

// change sets one variable, unless it has the value already.
func change(path, value string) (s setting, changed bool, err error) {
	old, err := os.ReadFile(path)
	if err != nil {
		return setting{}, false, err
	}
	if strings.TrimSpace(string(old)) == value {
		return setting{}, false, nil
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return setting{}, false, err
	}
	if _, err := f.WriteString(value); err != nil {
		f.Close()
		return setting{}, false, err
	}
	return setting{f, string(old)}, true, nil
}

// restore brings back the old value. It is no error when the interface has gone, and its variables with it.
func (s setting) restore() error {
	_, err := s.file.WriteAt([]byte(s.old), 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		err = nil
	}
	return errors.Join(err, s.file.Close())
}
