package canary

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"splicenic/driver"
	"splicenic/driver/device"
	"splicenic/emu"
	"splicenic/emu/port"
	"splicenic/regs"
)

// bench is a card that moves when pumped, behind a device that a test may meddle with.
type bench struct {
	device.Device
	emu   *emu.Card
	card  *driver.Card
	now   time.Duration
	far   [2]*port.Mem
	put   int                 // frames that the host put in
	onPut map[int]func() bool // by their number, from 1: false swallows the frame
}

// Store32 counts what the host puts in.
func (b *bench) Store32(region int, off uint64, v uint32) {
	if region == device.Bar0 && off == uint64(regs.RingProducer.At(regs.RingInject, regs.RingStride)) && b.card != nil {
		b.put++
		if f := b.onPut[b.put]; f != nil && !f() {
			return
		}
	}
	b.Device.Store32(region, off, v)
}

func (b *bench) pump() {
	b.now += time.Millisecond
	b.emu.Step(b.now)
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{onPut: map[int]func() bool{}}
	var near [2]*port.Mem
	for i := range near {
		near[i], b.far[i] = port.Pair(port.MemConfig{MACs: [2][6]byte{{2, 0, 0, 0, 0, byte(i + 1)}}})
	}
	var err error
	b.emu, err = emu.New(emu.Config{Client: near[0], Server: near[1], Geometry: emu.Geometry{
		Pages: 64, Heads: 16, CamClientWords: 256, CamServerWords: 512, Listeners: 16, Services: 16, Groups: 16, Servers: 16,
		NextHops: 16, Vips: 16, LocalAddresses: 16, Rules: 64, UrlNodes: 256, Slots: 16, LocalPorts: 4096,
	}})
	if err != nil {
		t.Fatal(err)
	}
	b.Device = device.Local(b.emu, device.LocalConfig{})
	card, err := driver.Open(t.Context(), b, driver.Config{Pump: b.pump, PumpLimit: 1 << 16})
	if err != nil {
		t.Fatal(err)
	}
	b.card = card
	t.Cleanup(func() {
		_ = card.Shutdown(context.Background())
		if err := errors.Join(b.Device.Close(), b.emu.Close()); err != nil {
			t.Error(err)
		}
	})
	return b
}

func (b *bench) run() (Result, error) { return Run(context.Background(), b.card, Config{Pump: b.pump}) }

// TestCanary: a card that is well splices both families, sends nothing to a wire, and is as after a reset; twice.
func TestCanary(t *testing.T) {
	b := newBench(t)
	for range 2 {
		r, err := b.run()
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Families) != 2 || r.Families[0].Family != "IPv4" || r.Families[1].Family != "IPv6" {
			t.Errorf("families %+v", r.Families)
		}
		for _, f := range r.Families {
			if f.Frames < 17 {
				t.Errorf("%s: %d frames", f.Family, f.Frames)
			}
		}
		bank, generation := b.card.Bank()
		taking := b.card.Load(regs.AmuControl)
		for _, x := range []struct {
			what      string
			got, want uint32
		}{
			{"bank", bank, 0}, {"generation", generation, 0}, {"amu.control", taking, 0},
			{"live", b.card.Load(regs.AmuLive), 0}, {"free", b.card.Load(regs.AmuFree), b.card.Geometry().Pages},
			{"timer.quarantine", b.card.Load(regs.TimerQuarantine), 1000},
		} {
			if x.got != x.want {
				t.Errorf("afterwards %s = %d, want %d", x.what, x.got, x.want)
			}
		}
		for i := range b.far {
			if n := b.card.Load64(regs.PortTxFrames.At(i, regs.PortStride)); n != 0 {
				t.Errorf("%d frames left by port %d", n, i)
			}
		}
		var vip [8]uint32
		at, _ := b.card.Memory(regs.MemVip).At(0, 0)
		if err := b.card.ReadTable(t.Context(), at, vip[:]); err != nil || vip[0] != 0 {
			t.Errorf("a VIP is left: %v, %v", vip, err)
		}
	}
}

// TestFaults: each fault is found at its step, with what was wanted and what came. Frames are counted as the host puts them
// in: SYN, ACK, request, SYN-ACK, response, ACK, FIN, FIN, ACK.
func TestFaults(t *testing.T) {
	corrupt := func(word int, flip uint32) func(*bench) func() bool {
		return func(b *bench) func() bool {
			return func() bool {
				for n := range b.card.Geometry().Pages {
					b.emu.CorruptPage(n, uint32(word), flip)
				}
				return true
			}
		}
	}
	swallow := func(*bench) func() bool { return func() bool { return false } }
	for _, tt := range []struct {
		name   string
		at     int
		fault  func(*bench) func() bool
		family string
		step   string
		got    string
	}{
		{"wrong delta", 5, corrupt(regs.PageADeltaServer, 4), "IPv4", "response of the server", "ACK 198.18.0.80:80 > 198.18.0.100:40000 seq"},
		{"wrong delta over IPv6", 14, corrupt(regs.PageADeltaServer, 1), "IPv6", "response of the server", "[2001:db8::80]:80"},
		{"wrong checksum", 5, corrupt(regs.PageAChecksum, 1<<16), "IPv4", "response of the server", "TCP checksum that is off by"},
		{"wrong checksum toward the server", 6, corrupt(regs.PageAChecksum, 1), "IPv4", "acknowledgement of the client", "TCP checksum that is off by"},
		{"no SYN-ACK", 1, swallow, "IPv4", "SYN of the client", "no answer"},
		{"no SYN to the server", 3, swallow, "IPv4", "request of the client", "no answer"},
		{"SYN-ACK lost", 4, swallow, "IPv4", "SYN-ACK of the server", "as an exception: server_failed"},
		{"response lost", 5, swallow, "IPv4", "response of the server", "no answer"},
		{"last ACK lost", 9, swallow, "IPv4", "last acknowledgement of the client", "no answer"},
		{"no rule takes it", 3, func(b *bench) func() bool {
			return func() bool {
				at, _ := b.card.Memory(regs.MemUrl).At(1, 0)
				for off := range uint64(64) {
					b.Device.Store32(device.Bar2, at+32*off, 0)
				}
				return true
			}
		}, "IPv4", "request of the client", "as an exception: no_rule"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t)
			b.onPut[tt.at] = tt.fault(b)
			_, err := b.run()
			var step *StepError
			if !errors.As(err, &step) {
				t.Fatalf("error %v", err)
			}
			if step.Family != tt.family || step.Step != tt.step || !strings.Contains(step.Got, tt.got) || step.Want == "" {
				t.Errorf("error %v", err)
			}
			if live := b.card.Load(regs.AmuLive); live != 0 {
				t.Errorf("%d connections left", live)
			}
			b.onPut = nil
			if _, err := b.run(); err != nil {
				t.Errorf("afterwards: %v", err)
			}
		})
	}
}

// TestPageKept: a page that does not come free is found.
func TestPageKept(t *testing.T) {
	b := newBench(t)
	b.onPut[9] = func() bool {
		b.Device.Store32(device.Bar0, uint64(regs.TimerQuarantine), regs.TimerQuarantineTicksMask)
		return true
	}
	_, err := b.run()
	var step *StepError
	if !errors.As(err, &step) || step.Step != "end of the connection" || step.Got != "63 and 16" || !errors.Is(err, driver.ErrTimeout) {
		t.Errorf("error %v", err)
	}
}

// TestLost: a card that vanishes at any frame is reported as lost.
func TestLost(t *testing.T) {
	for at := 1; at <= 18; at++ {
		b := newBench(t)
		b.onPut[at] = func() bool { b.emu.Lose(); return true }
		if _, err := b.run(); !errors.Is(err, device.ErrDeviceLost) {
			t.Errorf("lost at frame %d: %v", at, err)
		}
	}
}

// TestInUse: a card that somebody uses is left alone.
func TestInUse(t *testing.T) {
	b := newBench(t)
	if err := b.card.Accept(true); err != nil {
		t.Fatal(err)
	}
	if _, err := b.run(); !errors.Is(err, ErrInUse) {
		t.Errorf("error %v", err)
	}
	if b.put != 0 || b.card.Load(regs.AmuControl) != 1 {
		t.Error("it was touched")
	}
	if err := b.card.Accept(false); err != nil {
		t.Fatal(err)
	}
	if _, err := b.card.Allocate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := b.run(); !errors.Is(err, ErrInUse) {
		t.Errorf("with a connection: %v", err)
	}
}

// TestEnd: the end of ctx ends a wait.
func TestEnd(t *testing.T) {
	b := newBench(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	b.onPut[5] = func() bool { cancel(why); return false }
	if _, err := Run(ctx, b.card, Config{Pump: b.pump}); !errors.Is(err, why) {
		t.Errorf("error %v", err)
	}
}

// TestRunning: with a card that works by itself, over interrupts and time.
func TestRunning(t *testing.T) {
	b := newBench(t)
	if err := b.card.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- b.emu.Run(ctx) }()
	card, err := driver.Open(t.Context(), b.Device, driver.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Run(t.Context(), card, Config{}); err != nil {
		t.Error(err)
	}
	if err := card.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestRead: what is no segment of the card's is said to be none.
func TestRead(t *testing.T) {
	s := segment{from: netip.MustParseAddrPort("198.18.0.1:1"), to: netip.MustParseAddrPort("198.18.0.2:2"), flags: ack, payload: []byte("x")}
	good := s.frame(peerMAC, 0x0800)
	if got, err := read(good, 0x0800); err != nil || got.String() != s.String() {
		t.Fatalf("%v, %v", got, err)
	}
	for i := range good {
		bad := append([]byte(nil), good...)
		bad[i] ^= 1
		if _, err := read(bad, 0x0800); (err == nil) != (i < 12) {
			t.Errorf("byte %d altered: %v", i, err)
		}
	}
	for n := range good {
		if _, err := read(good[:n], 0x0800); err == nil {
			t.Errorf("%d bytes were taken", n)
		}
	}
}
