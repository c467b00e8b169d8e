package port_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"splicenic/emu/frame"
	"splicenic/emu/port"
	"splicenic/tools/netlab"
)

// TestMain takes an ordinary user into a user namespace, where the tests of kernel interfaces run too.
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

// patience bounds every wait in these tests.
const patience = 30 * time.Second

func newLab(t testing.TB) *netlab.Lab {
	t.Helper()
	lab, err := netlab.New()
	if errors.Is(err, netlab.ErrNotPermitted) {
		t.Skipf("needs root or user namespaces: %v", err)
	}
	check(t, err)
	t.Cleanup(func() { check(t, lab.Close()) })
	return lab
}

func check(t testing.TB, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func namespace(t testing.TB, lab *netlab.Lab, name string) *netlab.Namespace {
	t.Helper()
	n, err := lab.Namespace(name)
	check(t, err)
	return n
}

// openIn opens a port inside a namespace and closes it with the test.
func openIn(t testing.TB, n *netlab.Namespace, spec string) (p port.Port) {
	t.Helper()
	err := n.Do(func() (err error) {
		p, err = port.Open(spec)
		return err
	})
	check(t, err)
	t.Cleanup(func() { check(t, p.Close()) })
	return p
}

// wirePair is two ports on the two ends of a veth pair.
func wirePair(t testing.TB) (near, far port.Port) {
	t.Helper()
	lab := newLab(t)
	a, b := namespace(t, lab, "near"), namespace(t, lab, "far")
	check(t, lab.Link(a, "eth0", b, "eth0"))
	near, far = openIn(t, a, "eth0"), openIn(t, b, "eth0")
	check(t, wait(far, func() bool { return near.Link().Up && far.Link().Up }))
	return near, far
}

// deleteLink deletes an interface, and with it the far end if it is one of a pair.
func deleteLink(t testing.TB, n *netlab.Namespace, name string) {
	t.Helper()
	check(t, n.Do(func() error { return askLink(name, unix.RTM_DELLINK, nil) }))
}

// moveLink moves an interface to another namespace. It comes there down, with the index it had where that is free.
func moveLink(t testing.TB, from, to *netlab.Namespace, name string) {
	t.Helper()
	var there *os.File
	check(t, to.Do(func() (err error) { there, err = os.Open("/proc/thread-self/ns/net"); return err }))
	defer there.Close()
	attribute := binary.NativeEndian.AppendUint16(nil, unix.SizeofRtAttr+4)
	attribute = binary.NativeEndian.AppendUint16(attribute, unix.IFLA_NET_NS_FD)
	attribute = binary.NativeEndian.AppendUint32(attribute, uint32(there.Fd()))
	check(t, from.Do(func() error { return askLink(name, unix.RTM_NEWLINK, attribute) }))
}

// askLink asks the kernel for a change of an interface of this thread's namespace.
func askLink(name string, kind uint16, attributes []byte) error {
	i, err := net.InterfaceByName(name)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	order := binary.NativeEndian
	m := make([]byte, unix.SizeofNlMsghdr+unix.SizeofIfInfomsg)
	order.PutUint32(m[unix.SizeofNlMsghdr+4:], uint32(i.Index))
	m = append(m, attributes...)
	order.PutUint32(m, uint32(len(m)))
	order.PutUint16(m[4:], kind)
	order.PutUint16(m[6:], unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	if err := unix.Sendto(fd, m, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	answer := make([]byte, 4096)
	got, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil {
		return err
	}
	if got < unix.SizeofNlMsghdr+4 {
		return fmt.Errorf("netlink: answer of %d bytes", got)
	}
	if errno := -int32(order.Uint32(answer[unix.SizeofNlMsghdr:])); errno != 0 {
		return unix.Errno(errno)
	}
	return nil
}

// withoutAdmin calls f on a thread that may open packet sockets but change nothing about interfaces. Only what is in
// effect goes away, so that the thread gets it back.
func withoutAdmin(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var was [2]unix.CapUserData
	if err := unix.Capget(&header, &was[0]); err != nil {
		return err
	}
	less := was
	less[0].Effective &^= 1 << unix.CAP_NET_ADMIN
	if err := unix.Capset(&header, &less[0]); err != nil {
		return err
	}
	return errors.Join(f(), unix.Capset(&header, &was[0]))
}

// wait polls a port's descriptor until done says so.
func wait(p port.Port, done func() bool) error {
	for deadline := time.Now().Add(patience); !done(); {
		if time.Now().After(deadline) {
			return fmt.Errorf("nothing within %v", patience)
		}
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(p.FD()), Events: unix.POLLIN}}, 10)
		if err != nil && err != unix.EINTR {
			return err
		}
	}
	return nil
}

// take waits for n frames.
func take(t testing.TB, p port.Port, n int) (got []frame.Frame) {
	t.Helper()
	err := wait(p, func() bool {
		fs := buffers(n-len(got), p.BufferBytes())
		got = append(got, fs[:p.Receive(fs)]...)
		return len(got) == n
	})
	if err != nil {
		t.Fatalf("got %d frames of %d: %v", len(got), n, err)
	}
	return got
}

// bridge forwards between two ports, as they are or cut to wire frames, until it is stopped.
type bridge struct {
	ports [2]port.Port
	cut   bool

	stop chan struct{}
	wg   sync.WaitGroup

	// What has passed, from ports[i]; to be read after halt.
	seen [2]traffic
	err  error
}

// traffic is what a bridge has seen in one direction.
type traffic struct {
	frames, coalesced, partial, lost int
	longest                          int
}

// start begins forwarding.
func (b *bridge) start(t testing.TB) {
	b.stop = make(chan struct{})
	b.wg.Add(1)
	go func() {
		defer b.wg.Done()
		b.err = b.run()
	}()
	t.Cleanup(func() { b.halt(t) })
}

// halt ends forwarding; twice is fine.
func (b *bridge) halt(t testing.TB) {
	t.Helper()
	select {
	case <-b.stop:
	default:
		close(b.stop)
	}
	b.wg.Wait()
	if b.err != nil {
		t.Error(b.err)
	}
}

func (b *bridge) run() error {
	fds := []unix.PollFd{{Fd: int32(b.ports[0].FD()), Events: unix.POLLIN}, {Fd: int32(b.ports[1].FD()), Events: unix.POLLIN}}
	fs := buffers(64, b.ports[0].BufferBytes())
	f := forwarder{out: make([]*frame.Frame, 0, 64)}
	for {
		select {
		case <-b.stop:
			return nil
		default:
		}
		busy := 0
		for i := range b.ports {
			for j := range fs {
				fs[j].Start = frame.Headroom
			}
			n := b.ports[i].Receive(fs)
			busy += n
			if err := f.forward(b.ports[1-i], fs[:n], b.cut, &b.seen[i]); err != nil {
				return err
			}
		}
		if busy > 0 {
			continue
		}
		if _, err := unix.Poll(fds, 5); err != nil && err != unix.EINTR {
			return err
		}
	}
}

type forwarder struct {
	cutter port.Cutter
	wire   []frame.Frame
	out    []*frame.Frame
}

func (f *forwarder) forward(to port.Port, fs []frame.Frame, cut bool, seen *traffic) error {
	f.out = f.out[:0]
	for i := range fs {
		p := &fs[i]
		seen.frames++
		seen.longest = max(seen.longest, p.Len())
		if p.Offload.GSOType != 0 {
			seen.coalesced++
		}
		if p.Offload.Flags&frame.NeedsChecksum != 0 {
			seen.partial++
		}
		if !cut {
			f.out = append(f.out, p)
			continue
		}
		if err := f.cutUp(to, p, seen); err != nil {
			return err
		}
	}
	seen.lost += len(f.out) - to.Transmit(f.out)
	return nil
}

// cutUp sends the wire frames of p.
func (f *forwarder) cutUp(to port.Port, p *frame.Frame, seen *traffic) error {
	n, v := f.cutter.Begin(p)
	if v != port.Good {
		return fmt.Errorf("verdict %v on a frame of %d bytes with %+v", v, p.Len(), p.Offload)
	}
	for len(f.wire) < int(n) {
		f.wire = append(f.wire, buffers(1, frame.Headroom+9018)...)
	}
	var out []*frame.Frame
	for i := range int(n) {
		f.wire[i].Start = frame.Headroom
		f.cutter.Next(&f.wire[i])
		out = append(out, &f.wire[i])
	}
	seen.lost += len(out) - to.Transmit(out)
	return nil
}

// receiveRoom is the size of a port's socket buffer.
func receiveRoom(p port.Port) int {
	n, err := unix.GetsockoptInt(p.FD(), unix.SOL_SOCKET, unix.SO_RCVBUF)
	if err != nil {
		panic(err)
	}
	return n
}
