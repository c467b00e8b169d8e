package vfiouser_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"splicenic/driver/device"
	"splicenic/driver/device/devicetest"
	"splicenic/driver/vfiouser"
)

// logBuffer is a log that is read while it is written.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestBusy: a second client is refused in words that name both processes, and the first goes on.
func TestBusy(t *testing.T) {
	var log logBuffer
	s, _, c := scratch(t, vfiouser.Config{Log: slog.New(slog.NewTextHandler(&log, nil))})
	o := s.options()
	o.Dir += "2"
	for range 3 {
		_, err := vfiouser.Dial(t.Context(), s.path, o)
		wantErr(t, "second Dial", err, device.ErrBusy)
		var op *device.OpError
		if !errors.As(err, &op) || op.Dev != "card" {
			t.Errorf("second Dial: %v, want an OpError that names the device", err)
		}
		if pid := fmt.Sprintf("process %d", os.Getpid()); err != nil && strings.Count(err.Error(), pid) != 2 {
			t.Errorf("second Dial: %v, want client and server named as %q", err, pid)
		}
	}
	c.Store32(device.Bar0, 4, 7)
	if got := c.Load32(device.Bar0, 4); got != 7 || c.Err() != nil {
		t.Errorf("the first client: %d, %v", got, c.Err())
	}
	pid := fmt.Sprint(os.Getpid())
	if l := log.String(); !strings.Contains(l, "client="+pid+" refused="+pid) {
		t.Errorf("the log does not name both:\n%s", l)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	next := s.dial(o)
	if got := next.Load32(device.Bar0, 4); got != 7 {
		t.Errorf("the next client finds %d", got)
	}
}

// TestListen: one server at a time, whatever a dead one left.
func TestListen(t *testing.T) {
	noLeaks(t)
	dir := runDir(t)
	s := serveAt(t, devicetest.NewCard(), vfiouser.Config{}, dir)
	_, err := vfiouser.Listen(s.path, devicetest.NewCard(), vfiouser.Config{})
	wantErr(t, "second Listen", err, device.ErrBusy)
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("process %d", os.Getpid())) {
		t.Errorf("second Listen: %v, want the process named", err)
	}
	if st, err := os.Stat(s.path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("socket: %v, %v", st.Mode(), err)
	}
	s.end()
	if es, err := os.ReadDir(dir); err != nil || len(es) != 0 {
		t.Errorf("left behind: %v, %v", es, err)
	}
	// A server that died leaves its socket and its lock file.
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: s.path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	dead.Close()
	if err := os.WriteFile(s.path+".lock", []byte("holder 1\nuser 2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s = serveAt(t, devicetest.NewCard(), vfiouser.Config{Mode: 0o660}, dir)
	if st, err := os.Stat(s.path); err != nil || st.Mode().Perm() != 0o660 {
		t.Errorf("socket: %v, %v", st.Mode(), err)
	}
	s.dial(s.options()).Close()
	s.end()
	// Something else in its place is not removed.
	if err := os.WriteFile(s.path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := vfiouser.Listen(s.path, devicetest.NewCard(), vfiouser.Config{}); err == nil {
		t.Error("Listen over a file succeeded")
	}
	if b, err := os.ReadFile(s.path); err != nil || string(b) != "precious" {
		t.Errorf("the file is %q, %v", b, err)
	}
	if _, err := vfiouser.Listen(filepath.Join(dir, strings.Repeat("x", 200)), devicetest.NewCard(), vfiouser.Config{}); err == nil {
		t.Error("Listen on a path that is too long succeeded")
	}
	srv, err := vfiouser.Listen(filepath.Join(dir, "unserved"), devicetest.NewCard(), vfiouser.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := srv.Close(); err != nil {
		t.Error(err)
	}
}

// TestDialNobody: no socket, or one that nobody listens on.
func TestDialNobody(t *testing.T) {
	noLeaks(t)
	dir := runDir(t)
	o := vfiouser.Options{Memfd: true}
	if _, err := vfiouser.Dial(t.Context(), filepath.Join(dir, "none"), o); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Dial: %v", err)
	}
	if _, err := vfiouser.Dial(t.Context(), filepath.Join(dir, "none"), vfiouser.Options{}); err == nil {
		t.Error("Dial without a place for memory succeeded")
	}
}

// TestNotices: what the card's owner says reaches the client, even if it said so before (case D11: the request to let go
// does not get lost).
func TestNotices(t *testing.T) {
	removal, fault := make(chan struct{}), make(chan struct{})
	s, _, c := scratch(t, vfiouser.Config{Removal: removal, Error: fault})
	select {
	case <-c.RemovalRequested():
		t.Error("removal requested at the start")
	case <-c.ErrorNotice():
		t.Error("error at the start")
	default:
	}
	close(removal)
	<-c.RemovalRequested()
	close(fault)
	<-c.ErrorNotice()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	c = s.dial(s.options())
	<-c.RemovalRequested()
	<-c.ErrorNotice()
}

// TestServerGone: waits and loads end at once with the loss of the device when the card process ends.
func TestServerGone(t *testing.T) {
	s, _, c := scratch(t, vfiouser.Config{})
	m := alloc(t, c, "ring", 4096)
	if err := c.EnableVectors(4); err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	for v := range 4 {
		go func() {
			_, err := c.Wait(context.Background(), v)
			done <- err
		}()
	}
	early := alloc(t, c, "early", 4096)
	s.end()
	for range 4 {
		wantErr(t, "Wait", <-done, device.ErrDeviceLost)
	}
	if got := c.Load32(device.Bar0, 0); got != ^uint32(0) {
		t.Errorf("Load32 = %#x", got)
	}
	c.Store32(device.Bar0, 4, 1)
	wantErr(t, "Err", c.Err(), device.ErrDeviceLost)
	_, err := c.AllocDMA("x", 1)
	wantErr(t, "AllocDMA", err, device.ErrDeviceLost)
	wantErr(t, "Reset", c.Reset(), device.ErrDeviceLost)
	m.Bytes[0] = 1 // still the owner's
	if err := early.Close(); err != nil {
		t.Errorf("Close of memory before the device's: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if err := m.Close(); err != nil {
		t.Errorf("Close of memory: %v", err)
	}
}

// stuckCard does not come back from a load of BAR2 until it may.
type stuckCard struct {
	*devicetest.Card
	leave chan struct{}
}

func (c *stuckCard) ReadRegion(region int, off uint64, p []byte) error {
	if region == device.Bar2 {
		<-c.leave
	}
	return c.Card.ReadRegion(region, off, p)
}

// TestServerHangs: a card process that does not answer is lost after Options.Timeout.
func TestServerHangs(t *testing.T) {
	card := &stuckCard{devicetest.NewCard(), make(chan struct{})}
	s := serve(t, card, vfiouser.Config{})
	o := s.options()
	o.Timeout = 50_000_000
	c := s.dial(o)
	if got := c.Load32(device.Bar2, 0); got != ^uint32(0) {
		t.Errorf("Load32 = %#x", got)
	}
	wantErr(t, "Err", c.Err(), device.ErrDeviceLost)
	if err := c.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	close(card.leave)
}

// TestDialCancelled: ctx ends a Dial that gets no answer.
func TestDialCancelled(t *testing.T) {
	noLeaks(t)
	path := filepath.Join(runDir(t), "silent")
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		if c, err := ln.Accept(); err == nil {
			cancel()
			defer c.Close()
			c.Read(make([]byte, 1<<16))
			c.Read(make([]byte, 1<<16))
		}
	}()
	_, err = vfiouser.Dial(ctx, path, vfiouser.Options{Memfd: true})
	wantErr(t, "Dial", err, context.Canceled)
}

// TestBusMaster is case D17: without bit 2 of the command register there is no DMA, and Close takes it away.
func TestBusMaster(t *testing.T) {
	s, card, c := scratch(t, vfiouser.Config{})
	h := card.NewHarness(c)
	src, dst := alloc(t, c, "source", 4096), alloc(t, c, "destination", 4096)
	src.Bytes[0] = 1
	for _, command := range []byte{2, 6, 0, 6} {
		if err := c.WriteConfig(4, []byte{command}); err != nil {
			t.Fatal(err)
		}
		clear(dst.Bytes)
		err := h.Copy(dst.IOVA, src.IOVA, 64)
		if on := command&4 != 0; (err == nil) != on || (dst.Bytes[0] == 1) != on {
			t.Errorf("command %d: %v, copied %d", command, err, dst.Bytes[0])
		}
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	c = s.dial(s.options())
	var b [2]byte
	if err := c.ReadConfig(4, b[:]); err != nil || b[0] != 2 {
		t.Errorf("command register after Close: %#x, %v", b[0], err)
	}
}

// TestAccessAllocs: neither side allocates for a load, a store or an interrupt.
func TestAccessAllocs(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates; run without -race")
	}
	_, card, c := scratch(t, vfiouser.Config{})
	h := card.NewHarness(c)
	if err := c.EnableVectors(1); err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(1000, func() {
		c.Store32(device.Bar2, 0, c.Load32(device.Bar0, 0))
		c.Store64(device.Bar2, 8, c.Load64(device.Bar2, 0))
		h.Raise(0)
		if _, err := c.Wait(context.Background(), 0); err != nil {
			t.Error(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
