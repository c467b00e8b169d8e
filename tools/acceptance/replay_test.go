package acceptance

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"github.com/google/gopacket/pcapgo"

	"splicenic/driver"
	"splicenic/driver/device"
	"splicenic/driver/vfiouser/vfiousertest"
	"splicenic/emu"
	"splicenic/emu/frame"
	"splicenic/emu/port"
	"splicenic/regs"
	"splicenic/runtime/config"
	"splicenic/runtime/daemon"
	"splicenic/tools/tcppeer"
)

// replayConfig has two rules and a weighted group, and neighbours to resolve.
const replayConfig = `card: emu
emu: {client: mem, server: mem}
ports:
  client: {addresses: [198.18.0.1/24, "2001:db8::1/64"]}
  server: {addresses: [198.18.1.1/24, "2001:db8:1::1/64"]}
services:
  - {name: web, listen: ["198.18.0.80:80"], mode: splice, protocol: http, routes: [{host: img.example, path: /photos/*, to: static}], default: app}
  - {name: web6, listen: ["[2001:db8::80]:80"], mode: splice, protocol: http, default: app6}
groups:
  - {name: app, scheduler: wrr, servers: [{address: "198.18.1.11:80", weight: 2}, {address: "198.18.1.12:80"}]}
  - {name: static, servers: [{address: "198.18.1.13:80"}], profile: {mss: 1460, wscale: 7, sack: true, timestamps: true}}
  - {name: app6, servers: [{address: "[2001:db8:1::11]:80"}]}
`

var replayMACs = [2][6]byte{{2, 0, 0, 0, 0, 1}, {2, 0, 0, 0, 0, 2}}

// recorder is a host at the end of a card's wire; what it gives the card goes to a capture file as well.
type recorder struct {
	*tcppeer.Port
	t   *testing.T
	w   *pcapgo.Writer
	now *time.Duration
}

func (r *recorder) Receive(fs []frame.Frame) int {
	n := r.Port.Receive(fs)
	for i := range fs[:n] {
		b := fs[i].Bytes()
		info := gopacket.CaptureInfo{Timestamp: time.Unix(1_600_000_000, 0).Add(*r.now), CaptureLength: len(b), Length: len(b)}
		if err := r.w.WritePacket(info, b); err != nil {
			r.t.Fatal(err)
		}
	}
	return n
}

// stack is a card with its runtime, stepped by hand.
type stack struct {
	t    *testing.T
	card *emu.Card
	dev  device.Device
	drv  *driver.Card
	d    *daemon.Daemon
	now  time.Duration
}

func newStack(t *testing.T, ports [2]port.Port) *stack {
	t.Helper()
	s := &stack{t: t}
	var err error
	g := emu.Geometry{Pages: 4096, Heads: 128, CamClientWords: 16384, CamServerWords: 16384}
	s.card, err = emu.New(emu.Config{Geometry: g, Client: ports[0], Server: ports[1], Seed: 11})
	must(t, err)
	return s
}

// attach brings the card up and applies the configuration.
func (s *stack) attach() {
	s.t.Helper()
	s.dev = vfiousertest.Join(s.t, s.card)
	var err error
	s.drv, err = driver.Open(context.Background(), s.dev, driver.Config{Pump: func() { s.card.Step(s.now) }, Random: rand.NewChaCha8([32]byte{1})})
	must(s.t, err)
	wall := func() time.Time { return time.Unix(0, 0).Add(s.now) }
	s.d, err = daemon.New(daemon.Config{Card: s.drv, Clock: func() time.Duration { return s.now }, Wall: wall, Random: rand.NewChaCha8([32]byte{2})})
	must(s.t, err)
	c, err := config.Load("replay.yaml", []byte(replayConfig))
	must(s.t, err)
	_, err = s.d.Apply(context.Background(), c)
	must(s.t, err)
}

func (s *stack) step(now time.Duration) {
	s.now = now
	s.card.Step(now)
	if s.d != nil {
		must(s.t, s.d.Step(now))
	}
}

func (s *stack) close() {
	if s.drv != nil {
		must(s.t, s.drv.Shutdown(context.Background()))
		must(s.t, s.dev.Close())
	}
	must(s.t, s.card.Close())
}

// recording is what one run left: its input captures, when the card was stepped, and the card's state at the start of
// the requests.
type recording struct {
	in    [2]string
	steps []time.Duration
	state *emu.State
	from  int // steps before state
}

func record(t *testing.T, dir string, requests int) (r recording) {
	t.Helper()
	now := time.Duration(0)
	done, wrong := 0, 0
	client := tcppeer.Config{MAC: [6]byte{2, 0, 0, 0, 1, 1}, NextHop: replayMACs[0], SACK: true, Timestamps: true, WindowScale: 7, Seed: 1,
		Addresses: []netip.Prefix{netip.MustParsePrefix("198.18.0.10/32"), netip.MustParsePrefix("2001:db8::10/128")},
		Handle: func(c *tcppeer.Conn, e tcppeer.Event) {
			switch e {
			case tcppeer.Established:
				host, path := "www.example", "/"
				if c.Local().Port()%3 == 0 {
					host, path = "img.example", "/photos/1.jpg"
				}
				c.Write(fmt.Appendf(nil, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", path, host))
			case tcppeer.PeerClosed:
				if !bytes.HasSuffix(c.Bytes(), []byte("\r\n\r\nhello")) {
					wrong++
				}
				done++
				c.CloseWrite()
			case tcppeer.Reset, tcppeer.TimedOut:
				wrong++
				done++
			}
		}}
	servers := tcppeer.Config{MAC: [6]byte{2, 0, 0, 0, 1, 2}, NextHop: replayMACs[1], SACK: true, Timestamps: true, WindowScale: 9, Seed: 2,
		Addresses: []netip.Prefix{netip.MustParsePrefix("198.18.1.11/32"), netip.MustParsePrefix("198.18.1.12/32"), netip.MustParsePrefix("198.18.1.13/32"), netip.MustParsePrefix("2001:db8:1::11/128")},
		Handle: func(c *tcppeer.Conn, e tcppeer.Event) {
			switch {
			case e == tcppeer.PeerClosed:
				c.CloseWrite()
			case e == tcppeer.Data && bytes.HasSuffix(c.Bytes(), []byte("\r\n\r\n")):
				c.Discard(len(c.Bytes()))
				c.Write([]byte("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello"))
				c.CloseWrite()
			}
		}}
	var ends [2]*recorder
	var ports [2]port.Port
	var files [2]*os.File
	for i, cfg := range []tcppeer.Config{client, servers} {
		r.in[i] = filepath.Join(dir, fmt.Sprintf("in%d.pcap", i))
		var err error
		files[i], err = os.Create(r.in[i])
		must(t, err)
		w := pcapgo.NewWriterNanos(files[i])
		must(t, w.WriteFileHeader(65535, layers.LinkTypeEthernet))
		// A capture's first frame is time zero. This one, of an EtherType for experiments, makes that the start of the run.
		zero := append(append(replayMACs[i][:], 2, 0, 0, 0, 9, 9, 0x88, 0xb5), make([]byte, 46)...)
		must(t, w.WritePacket(gopacket.CaptureInfo{Timestamp: time.Unix(1_600_000_000, 0), CaptureLength: len(zero), Length: len(zero)}, zero))
		ends[i] = &recorder{tcppeer.NewPort(replayMACs[i], 4096, cfg), t, w, &now}
		ports[i] = ends[i]
	}
	ends[1].Host.Listen(80)
	s := newStack(t, ports)
	defer s.close()
	s.attach()
	step := func() {
		now += 100 * time.Microsecond
		r.steps = append(r.steps, now)
		for _, e := range ends {
			e.Advance(now)
		}
		s.step(now)
	}
	for range 200 {
		step() // neighbours are resolved
	}
	r.from, r.state = len(r.steps), s.card.Snapshot()
	for i := 0; done < requests; {
		for ; i < requests && i < done+16; i++ {
			from, to := "198.18.0.10", "198.18.0.80:80"
			if i%4 == 3 {
				from, to = "2001:db8::10", "[2001:db8::80]:80"
			}
			_, err := ends[0].Host.Dial(now, netip.AddrPortFrom(netip.MustParseAddr(from), 0), netip.MustParseAddrPort(to))
			must(t, err)
		}
		step()
		if now > time.Minute {
			t.Fatalf("%d of %d requests are done after a minute", done, requests)
		}
	}
	for range 20_000 { // past quarantine
		step()
	}
	if wrong != 0 {
		t.Errorf("requests that went wrong: got %d, want 0", wrong)
	}
	if free := s.drv.Load(regs.AmuFree); free != s.drv.Load(regs.GeometryPages) {
		t.Errorf("free pages: got %d, want all", free)
	}
	for _, f := range files {
		must(t, f.Close())
	}
	return r
}

// replay gives a fresh card the captures and returns the output captures. alone: no runtime, from the recorded state.
func (r *recording) replay(t *testing.T, alone bool) (out [2][]byte) {
	t.Helper()
	dir := t.TempDir()
	var ports [2]port.Port
	var names [2]string
	for i := range ports {
		names[i] = filepath.Join(dir, fmt.Sprintf("out%d.pcap", i))
		p, err := port.OpenPcap(r.in[i], names[i])
		must(t, err)
		ports[i] = sameMAC{p, replayMACs[i]}
	}
	port.Align(ports[0].(sameMAC).Pcap, ports[1].(sameMAC).Pcap)
	s := newStack(t, ports)
	steps := r.steps
	if alone {
		must(t, s.card.Restore(r.state))
		steps = steps[r.from:]
	} else {
		s.attach()
	}
	for _, now := range steps {
		s.step(now)
	}
	s.close()
	for i, name := range names {
		var err error
		out[i], err = os.ReadFile(name)
		must(t, err)
	}
	return out
}

// sameMAC is a capture port with the station address of the recorded card.
type sameMAC struct {
	*port.Pcap
	mac [6]byte
}

func (s sameMAC) MAC() [6]byte { return s.mac }

// TestSameCaptureSameOutput: the same captures, clock and seed give the same output captures, byte by byte, twice and
// with one processor and two, for the card alone and with the runtime attached.
func TestSameCaptureSameOutput(t *testing.T) {
	requests := 200
	if long {
		requests = 3000
	}
	r := record(t, t.TempDir(), requests)
	for _, alone := range []bool{false, true} {
		t.Run(map[bool]string{false: "with the runtime", true: "card alone"}[alone], func(t *testing.T) {
			var first [2][]byte
			for i, procs := range []int{1, 1, 2} {
				before := runtime.GOMAXPROCS(procs)
				out := r.replay(t, alone)
				runtime.GOMAXPROCS(before)
				if i == 0 {
					first = out
					for side, b := range out {
						if len(b) < 1000*requests/10 {
							t.Fatalf("output of port %d: only %d bytes for %d requests", side, len(b), requests)
						}
					}
					continue
				}
				for side := range out {
					if !bytes.Equal(out[side], first[side]) {
						t.Errorf("run %d with GOMAXPROCS=%d: output of port %d differs from the first run's (%d and %d bytes)", i, procs, side, len(out[side]), len(first[side]))
					}
				}
			}
			t.Logf("%d and %d bytes of output each time", len(first[0]), len(first[1]))
		})
	}
}
