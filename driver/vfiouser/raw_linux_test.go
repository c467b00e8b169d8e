package vfiouser

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"splicenic/driver/device"
	"splicenic/driver/device/devicetest"
)

const late = 10 * time.Second

// shm returns a directory on a tmpfs whose path is short enough for a socket.
func shm(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "vfiouser")
	if err != nil {
		t.Skip("needs a tmpfs at /dev/shm: ", err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// pciCard is a scratch card with a PCI Express capability, and a record of what its host did to it.
type pciCard struct {
	*devicetest.Card
	mu    sync.Mutex
	calls []string
	host  device.Memory
}

func newPCICard() *pciCard { return &pciCard{Card: devicetest.NewCard()} }

func (c *pciCard) note(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, fmt.Sprintf(format, args...))
}

// took returns the record and starts a new one.
func (c *pciCard) took() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := strings.Join(c.calls, " ")
	c.calls = nil
	return s
}

func (c *pciCard) ReadConfig(off uint32, p []byte) error {
	if err := c.Card.ReadConfig(off, p); err != nil {
		return err
	}
	for at, v := range map[uint32]byte{cfgStatus: statusCaps, cfgCapabilities: 0x40, 0x40: capExpress, 0x47: capFLR >> 24, cfgPin: 1} {
		if covers(off, len(p), at) {
			p[at-off] |= v
		}
	}
	return nil
}

func (c *pciCard) MapDMA(iova, size uint64) error {
	c.note("map %#x+%#x", iova, size)
	return c.Card.MapDMA(iova, size)
}

func (c *pciCard) UnmapDMA(iova, size uint64) error {
	c.note("unmap %#x+%#x", iova, size)
	return c.Card.UnmapDMA(iova, size)
}

func (c *pciCard) SetHost(m device.Memory) {
	c.note("host %v", m != nil)
	c.mu.Lock()
	c.host = m
	c.mu.Unlock()
	c.Card.SetHost(m)
}

func (c *pciCard) memory() device.Memory {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.host
}

func (c *pciCard) SetVectors(raise []func()) error {
	set := 0
	for _, r := range raise {
		if r != nil {
			set++
		}
	}
	c.note("vectors %d/%d", set, len(raise))
	return c.Card.SetVectors(raise)
}

func (c *pciCard) Reset() error {
	c.note("reset")
	return c.Card.Reset()
}

// rawServer serves fn until the test ends, or stop is called.
func rawServer(t testing.TB, fn device.Function, cfg Config) (path string, stop func()) {
	t.Helper()
	path = filepath.Join(shm(t), "card.sock")
	srv, err := Listen(path, fn, cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- srv.Serve(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Serve: %v", err)
			}
		case <-time.After(late):
			t.Error("Serve does not end")
		}
	})
	t.Cleanup(stop)
	return path, stop
}

// rawClient sends what it is told.
type rawClient struct {
	t  testing.TB
	c  *conn
	id uint16
}

func rawDial(t testing.TB, path string) *rawClient {
	t.Helper()
	sock, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	return newRaw(t, sock)
}

func newRaw(t testing.TB, sock *net.UnixConn) *rawClient {
	t.Helper()
	c, err := newConn(sock)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.close)
	return &rawClient{t: t, c: c}
}

// send sends a message and returns its id.
func (r *rawClient) send(cmd command, flags uint32, payload []byte, fds ...int) uint16 {
	r.t.Helper()
	r.id++
	r.sendAs(r.id, cmd, flags, payload, fds...)
	return r.id
}

func (r *rawClient) sendAs(id uint16, cmd command, flags uint32, payload []byte, fds ...int) {
	r.t.Helper()
	b := append(start(nil), payload...)
	putHeader(b, header{id: id, cmd: cmd, flags: flags})
	if err := r.c.write(b, fds); err != nil {
		r.t.Fatalf("send %v: %v", cmd, err)
	}
}

// recv receives the next message.
func (r *rawClient) recv() message {
	r.t.Helper()
	m, err := r.c.read(time.Now().Add(late))
	if err != nil {
		r.t.Fatalf("receive: %v", err)
	}
	m.body = append([]byte(nil), m.body...)
	return m
}

// call sends a command and receives its reply.
func (r *rawClient) call(cmd command, payload []byte, fds ...int) ([]byte, errno) {
	r.t.Helper()
	id := r.send(cmd, 0, payload, fds...)
	m := r.recv()
	if !m.reply() || m.id != id || m.cmd != cmd || m.failed() != (m.errno != 0) || m.failed() && len(m.body) != 0 {
		r.t.Fatalf("reply to %v: %+v", cmd, m)
	}
	return m.body, errno(m.errno)
}

// must is call for a command that succeeds.
func (r *rawClient) must(cmd command, payload []byte, fds ...int) []byte {
	r.t.Helper()
	b, e := r.call(cmd, payload, fds...)
	if e != 0 {
		r.t.Fatalf("%v: %v", cmd, e)
	}
	return b
}

// hello exchanges versions as QEMU does.
func (r *rawClient) hello() *rawClient {
	r.t.Helper()
	r.must(cmdVersion, append(append([]byte{0, 0, 0, 0}, qemuVersion...), 0))
	return r
}

// gone waits for the other end to close.
func (r *rawClient) gone() {
	r.t.Helper()
	m, err := r.c.read(time.Now().Add(late))
	if err == nil {
		r.t.Fatalf("received %+v, want the end", m.header)
	}
	if err == errIdle {
		r.t.Fatal("the connection stays open")
	}
}

func mapReq(iova, size, offset uint64) []byte {
	return appendDMAMap(nil, dmaMap{dmaMapBytes, dmaRead | dmaWrite, offset, iova, size})
}

func unmapReq(iova, size uint64) []byte {
	return appendDMAUnmap(nil, dmaUnmap{dmaUnmapBytes, 0, iova, size})
}

func storeReq(region uint32, off uint64, v uint32) []byte {
	return appendRegionAccess(nil, regionAccess{off, region, 4, le.AppendUint32(nil, v)})
}

func loadReq(region uint32, off uint64) []byte {
	return appendRegionAccess(nil, regionAccess{offset: off, region: region, count: 4})
}

func irqReq(flags, index, start, count uint32) []byte {
	return appendIRQSet(nil, irqSet{argsz: irqSetBytes, flags: flags, index: index, start: start, count: count})
}

func configReq(off uint64, data ...byte) []byte {
	return appendRegionAccess(nil, regionAccess{off, regionConfig, uint32(len(data)), data})
}

func (r *rawClient) load(region uint32, off uint64) uint32 {
	r.t.Helper()
	return le.Uint32(r.must(cmdRegionRead, loadReq(region, off))[accessBytes:])
}

func (r *rawClient) post(region uint32, off uint64, v uint32) {
	r.t.Helper()
	r.send(cmdRegionWrite, flagNoReply, storeReq(region, off, v))
}

// Registers of the scratch card.
const (
	regScratch   = 0x04
	regInterrupt = 0x08
	regSource    = 0x10
	regTarget    = 0x18
	regLength    = 0x20
	regStart     = 0x24
	regStatus    = 0x28
)

// copy has the scratch card copy, with posted stores only.
func (r *rawClient) copy(dst, src uint64, n uint32) {
	r.t.Helper()
	for _, x := range []struct {
		off uint64
		v   uint32
	}{{regSource, uint32(src)}, {regSource + 4, uint32(src >> 32)}, {regTarget, uint32(dst)}, {regTarget + 4, uint32(dst >> 32)}, {regLength, n}, {regStart, 1}} {
		r.post(0, x.off, x.v)
	}
}

// copied has the scratch card copy and says whether it could.
func (r *rawClient) copied(dst, src uint64, n uint32) bool {
	r.t.Helper()
	r.copy(dst, src, n)
	return r.load(0, regStatus) == 0
}
