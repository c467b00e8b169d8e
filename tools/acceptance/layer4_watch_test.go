package acceptance

import (
	encoding "encoding/binary" // binary is splicectl
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"splicenic/tools/netlab"
)

// A watch keeps the frames at an interface. Where a protocol is named it sees those that arrive, else those that leave as well.
type watch struct {
	file *os.File
	done chan struct{}

	mu     sync.Mutex
	frames [][]byte
}

// A watches is a watch for each protocol.
type watches struct{ all []*watch }

// watch watches until the test ends, or it is told to stop.
func (f *farm) watch(t *testing.T, n *netlab.Namespace, ifname string, protocols ...uint16) *watches {
	t.Helper()
	ws := new(watches)
	t.Cleanup(func() { ws.stop() })
	for _, protocol := range protocols {
		w := &watch{done: make(chan struct{})}
		must(t, n.Do(func() error {
			fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return os.NewSyscallError("socket", err)
			}
			w.file = os.NewFile(uintptr(fd), "watch")
			i, err := net.InterfaceByName(ifname)
			if err != nil {
				return err
			}
			if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20); err != nil && !errors.Is(err, unix.EPERM) {
				return os.NewSyscallError("setsockopt", err)
			}
			network := encoding.NativeEndian.Uint16(encoding.BigEndian.AppendUint16(nil, protocol))
			return os.NewSyscallError("bind", unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: network, Ifindex: i.Index}))
		}))
		go w.read()
		ws.all = append(ws.all, w)
	}
	return ws
}

// stop ends the watch and returns what it has seen, protocol by protocol. It may be called again.
func (ws *watches) stop() (frames [][]byte) {
	for _, w := range ws.all {
		w.file.Close()
		<-w.done
		frames = append(frames, w.frames...)
	}
	return frames
}

// seen is what the watch has seen so far.
func (ws *watches) seen() (frames [][]byte) {
	for _, w := range ws.all {
		w.mu.Lock()
		frames = append(frames, w.frames...)
		w.mu.Unlock()
	}
	return frames
}

func (w *watch) read() {
	defer close(w.done)
	b := make([]byte, 1<<17)
	for {
		n, err := w.file.Read(b)
		if err != nil {
			return
		}
		w.mu.Lock()
		w.frames = append(w.frames, slices.Clone(b[:n]))
		w.mu.Unlock()
	}
}

// ends are the addresses of a frame, and its ports where it is TCP or UDP and no fragment but the first.
func ends(frame []byte) (from, to netip.AddrPort, ok bool) {
	if len(frame) < 14+20 {
		return from, to, false
	}
	ip := frame[14:]
	var a, b netip.Addr
	var protocol byte
	at := 40
	switch ip[0] >> 4 {
	case 4:
		a, b = netip.AddrFrom4([4]byte(ip[12:16])), netip.AddrFrom4([4]byte(ip[16:20]))
		protocol, at = ip[9], int(ip[0]&15)*4
		if encoding.BigEndian.Uint16(ip[6:])&0x1fff != 0 {
			protocol = 0
		}
	case 6:
		if len(ip) < 40 {
			return from, to, false
		}
		a, b = netip.AddrFrom16([16]byte(ip[8:24])), netip.AddrFrom16([16]byte(ip[24:40]))
		protocol = ip[6]
	default:
		return from, to, false
	}
	if protocol != unix.IPPROTO_TCP && protocol != unix.IPPROTO_UDP || len(ip) < at+8 {
		return netip.AddrPortFrom(a, 0), netip.AddrPortFrom(b, 0), true
	}
	return netip.AddrPortFrom(a, encoding.BigEndian.Uint16(ip[at:])), netip.AddrPortFrom(b, encoding.BigEndian.Uint16(ip[at+2:])), true
}
