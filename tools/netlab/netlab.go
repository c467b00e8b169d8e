package netlab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path"
	"runtime"
	"strings"
	"sync"
)

// ErrNotPermitted says that this process may make neither kind of namespace. Whoever meets it goes on without a lab.
var ErrNotPermitted = errors.New("network namespaces are not permitted here")

// errClosed is the answer of a lab after Close.
var errClosed = errors.New("the lab is closed")

// ranges are what Addr accepts: RFC 2544 and RFC 3849.
var ranges = [...]netip.Prefix{netip.MustParsePrefix("198.18.0.0/15"), netip.MustParsePrefix("2001:db8::/32")}

// A Lab is a set of namespaces and the commands that run in them. New is the only way to one.
type Lab struct {
	starts chan func()   // commands start on one thread, see keep
	kept   chan struct{} // closed when keep has returned

	mu         sync.Mutex
	closed     bool
	namespaces []*Namespace
	running    map[*Cmd]struct{}
}

// New makes an empty lab. Where this process may not make a namespace the error is ErrNotPermitted.
func New() (*Lab, error) {
	probe, err := newNamespace()
	if err != nil {
		return nil, err
	}
	probe.Close()
	l := &Lab{starts: make(chan func()), kept: make(chan struct{}), running: map[*Cmd]struct{}{}}
	go l.keep()
	return l, nil
}

// keep starts commands. The kernel sends a command its death signal when the thread that started it ends, so that must
// be a thread that lives as long as the lab.
func (l *Lab) keep() {
	runtime.LockOSThread() // for good: the thread ends with this goroutine
	defer close(l.kept)
	for start := range l.starts {
		start()
	}
}

// Close kills what still runs and lets go of the namespaces. It may be called twice.
func (l *Lab) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		<-l.kept
		return nil
	}
	l.closed = true
	close(l.starts)
	for c := range l.running {
		c.kill()
	}
	var errs []error
	for _, n := range l.namespaces {
		errs = append(errs, n.handle.Close())
	}
	l.mu.Unlock()
	<-l.kept
	return errors.Join(errs...)
}

// A Namespace is one network stack: a host of the test network.
type Namespace struct {
	lab    *Lab
	name   string
	handle *os.File // of the kernel's namespace; keeps it alive
}

// Namespace adds an empty namespace whose loopback is up. The name appears in errors only.
func (l *Lab) Namespace(name string) (*Namespace, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, fmt.Errorf("make namespace %s: %w", name, errClosed)
	}
	handle, err := newNamespace()
	if err != nil {
		return nil, fmt.Errorf("make namespace %s: %w", name, err)
	}
	n := &Namespace{lab: l, name: name, handle: handle}
	if err := n.quiet(); err != nil {
		handle.Close()
		return nil, err
	}
	l.namespaces = append(l.namespaces, n)
	return n, nil
}

// quiet brings the loopback up and keeps IPv6 from probing for duplicates, which would hold addresses back for a second.
func (n *Namespace) quiet() error {
	// Where /proc/sys is read-only the lab works all the same: Addr asks for no probe itself.
	_ = n.Sysctl("net.ipv6.conf.default.accept_dad", "0")
	return n.Up("lo")
}

// Link joins a and b by a veth pair: aName in a, bName in b, both up.
func (l *Lab) Link(a *Namespace, aName string, b *Namespace, bName string) error {
	err := a.Do(func() error { return addVeth(aName, bName, b.handle) })
	if err == nil {
		err = errors.Join(a.Up(aName), b.Up(bName),
			a.Do(func() error { return settle(aName) }), b.Do(func() error { return settle(bName) }))
	}
	if err != nil {
		return fmt.Errorf("link %s in %s with %s in %s: %w", aName, a.name, bName, b.name, err)
	}
	return nil
}

// Bridge joins interfaces of the namespace into one segment, as a switch does. It comes up with them.
func (n *Namespace) Bridge(ifname string, members ...string) error {
	return n.do("make bridge", ifname, func() error {
		if err := addBridge(ifname); err != nil {
			return err
		}
		for _, m := range members {
			if err := setMaster(m, ifname); err != nil {
				return fmt.Errorf("add %s: %w", m, err)
			}
		}
		return setUp(ifname, true)
	})
}

// Name is what the namespace was called when it was made.
func (n *Namespace) Name() string { return n.name }

// Do calls f on this goroutine with its thread inside the namespace. Goroutines that f starts are not inside; a socket
// or file that f opens stays in the namespace wherever it is used afterwards.
func (n *Namespace) Do(f func() error) (err error) {
	runtime.LockOSThread()
	home, err := enter(n.handle)
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter namespace %s: %w", n.name, err)
	}
	defer func() {
		if back := leave(home); back != nil {
			// The thread stays locked, so that nothing else ever runs on it.
			err = errors.Join(err, fmt.Errorf("leave namespace %s: %w", n.name, back))
			return
		}
		runtime.UnlockOSThread()
	}()
	return f()
}

// do is Do with the operation and its object in the error.
func (n *Namespace) do(what, ifname string, f func() error) error {
	if err := n.Do(f); err != nil {
		return fmt.Errorf("%s on %s in %s: %w", what, ifname, n.name, err)
	}
	return nil
}

// Addr gives an interface an address, written with its prefix length. It is usable at once: IPv6 does not probe for it.
func (n *Namespace) Addr(ifname, prefix string) error {
	p, err := netip.ParsePrefix(prefix)
	if err != nil {
		return fmt.Errorf("set address on %s in %s: %w", ifname, n.name, err)
	}
	if !inRanges(p.Addr()) {
		return fmt.Errorf("set address on %s in %s: %s is not of %s or %s", ifname, n.name, p.Addr(), ranges[0], ranges[1])
	}
	return n.do("set address "+prefix, ifname, func() error { return addAddress(ifname, p) })
}

func inRanges(a netip.Addr) bool {
	for _, r := range ranges {
		if r.Contains(a) {
			return true
		}
	}
	return false
}

// Route sends what goes to prefix, or to everywhere else where prefix is "default", through the gateway via. Where via is
// the name of an interface the prefix is on that link itself.
func (n *Namespace) Route(prefix, via string) error {
	var dst netip.Prefix // invalid: default
	gateway, err := netip.ParseAddr(via)
	ifname := ""
	if err != nil {
		ifname = via
	}
	if prefix != "default" {
		if dst, err = netip.ParsePrefix(prefix); err != nil {
			return fmt.Errorf("set route in %s: %w", n.name, err)
		}
	}
	err = n.Do(func() error { return addRoute(dst, gateway, ifname) })
	if err != nil {
		return fmt.Errorf("set route %s via %s in %s: %w", prefix, via, n.name, err)
	}
	return nil
}

// Neighbour sets the MAC address of a neighbour for good.
func (n *Namespace) Neighbour(ifname, ip string, mac [6]byte) error {
	a, err := netip.ParseAddr(ip)
	if err != nil {
		return fmt.Errorf("set neighbour on %s in %s: %w", ifname, n.name, err)
	}
	return n.do("set neighbour "+ip, ifname, func() error { return addNeighbour(ifname, a, mac) })
}

// MTU sets the largest packet of an interface, in bytes without the Ethernet header.
func (n *Namespace) MTU(ifname string, bytes int) error {
	return n.do("set MTU", ifname, func() error { return setMTU(ifname, bytes) })
}

// MAC sets the address of an interface.
func (n *Namespace) MAC(ifname string, mac [6]byte) error {
	return n.do("set MAC address", ifname, func() error { return setMAC(ifname, mac) })
}

// Up brings an interface up.
func (n *Namespace) Up(ifname string) error {
	return n.do("set up", ifname, func() error { return setUp(ifname, true) })
}

// Down takes an interface down.
func (n *Namespace) Down(ifname string) error {
	return n.do("set down", ifname, func() error { return setUp(ifname, false) })
}

// Offload says what the kernel leaves to an interface.
type Offload struct {
	Segmentation bool // TSO and GSO, both families: coalesced segments go out
	Receive      bool // GRO: received segments are coalesced
	Checksum     bool // transmit checksums are left partial
}

// Offload switches the offloads of an interface.
func (n *Namespace) Offload(ifname string, o Offload) error {
	return n.do("switch offloads", ifname, func() error { return setOffload(ifname, o) })
}

// Sysctl sets a variable below /proc/sys/net of the namespace, by its dotted name.
func (n *Namespace) Sysctl(name, value string) error {
	file := path.Join("/proc/sys", strings.ReplaceAll(name, ".", "/"))
	return n.do("set "+name, "kernel", func() error { return os.WriteFile(file, []byte(value), 0o644) })
}

// Listen listens inside the namespace, with plain TCP (the kernel's multipath TCP would add options of its own).
func (n *Namespace) Listen(network, address string) (ln net.Listener, err error) {
	var lc net.ListenConfig
	lc.SetMultipathTCP(false)
	err = n.Do(func() error {
		ln, err = lc.Listen(context.Background(), network, address)
		return err
	})
	return ln, err
}

// Dial connects from inside the namespace; it fits http.Transport.DialContext. The address must be a literal one: a
// name would be resolved outside.
func (n *Namespace) Dial(ctx context.Context, network, address string) (c net.Conn, err error) {
	if _, err := netip.ParseAddrPort(address); err != nil {
		return nil, fmt.Errorf("dial from %s: %w", n.name, err)
	}
	var d net.Dialer // one literal address: no other goroutine takes part
	d.SetMultipathTCP(false)
	err = n.Do(func() error {
		c, err = d.DialContext(ctx, network, address)
		return err
	})
	return c, err
}
