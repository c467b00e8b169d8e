package emu_test

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"os"
	"testing"
	"time"

	"splicenic/emu"
	"splicenic/emu/frame"
	"splicenic/emu/port"
	"splicenic/regs"
	"splicenic/tools/tcppeer"
)

// The silicon that the flood meets: two gigabit ports at 64 bytes leave a frame 44.7 cycles of 133 MHz, and each port has a
// receive FIFO of 512 frames.
const (
	frameTime = 44_700 * time.Second / 133_000_000 / 1000
	fifoDepth = 512
	quantum   = 16 // frames the card takes between two looks at the FIFOs
)

// A fifo is a port whose received frames wait in a FIFO; what comes when it is full is lost.
type fifo struct {
	mac         [6]byte
	slots       [fifoDepth][]byte
	first, used int
	budget      int // frames the card may still take
	lost        int
	out         func(b []byte)
}

func (p *fifo) offer(b []byte) bool {
	if p.used == fifoDepth {
		p.lost++
		return false
	}
	s := &p.slots[(p.first+p.used)%fifoDepth]
	*s = append((*s)[:0], b...)
	p.used++
	return true
}

// Receive hands frames over as the card has time for.
func (p *fifo) Receive(fs []frame.Frame) int {
	n := min(len(fs), p.used, p.budget)
	for i := range fs[:n] {
		fs[i].End = fs[i].Start + uint32(copy(fs[i].Buf[fs[i].Start:], p.slots[p.first]))
		fs[i].Offload = frame.Offload{}
		p.first = (p.first + 1) % fifoDepth
	}
	p.used, p.budget = p.used-n, p.budget-n
	return n
}

// Transmit hands the card's frames on at once.
func (p *fifo) Transmit(fs []*frame.Frame) int {
	for _, f := range fs {
		p.out(f.Bytes())
	}
	return len(fs)
}

func (p *fifo) MAC() [6]byte            { return p.mac }
func (p *fifo) MTU() int                { return 1500 }
func (p *fifo) Link() port.LinkState    { return port.LinkState{Up: true, Mbps: 1000} }
func (p *fifo) BufferBytes() int        { return frame.Headroom + 18 + 1500 }
func (p *fifo) Offloads() port.Offloads { return port.Offloads{} }
func (p *fifo) FD() int                 { return -1 }
func (p *fifo) Overruns() uint64        { return uint64(p.lost) }
func (p *fifo) Close() error            { return nil }

// A battle is a card under a flood of spoofed SYNs, with clients that want to be served and their server.
type battle struct {
	*bench
	ports   [2]*fifo
	clients [2]*tcppeer.Host // with timestamps and all they allow, and without
	server  *tcppeer.Host
	rng     *rand.Rand
	spoofed []byte

	dialled, done, failed int
	syns, lostSyns        int // of the clients, all they sent and those that met a full FIFO
	most                  int // pages that the flood held at a time, at most
}

const floodPages = 65_536

func newBattle(t *testing.T, mode uint32) *battle {
	t.Helper()
	x := &battle{rng: rand.New(rand.NewPCG(1, 2))}
	for i, mac := range [][6]byte{clientMAC, serverMAC} {
		x.ports[i] = &fifo{mac: mac}
	}
	g := small()
	g.Pages, g.Heads, g.CamClientWords, g.CamServerWords = floodPages, 1024, 4*floodPages, 8*floodPages
	c, err := emu.New(emu.Config{Geometry: g, Client: x.ports[0], Server: x.ports[1], Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	x.bench = &bench{TB: t, card: c}
	x.serve()
	x.entry(regs.MemService, 0, 0, &regs.ServiceEntry{
		ControlValid: 1, ControlHasDefault: 1, ControlDefence: mode, PromiseMssIpv4: 1460, PromiseMssIpv6: 1440,
		PromiseWscale: 2, PromiseWscaleOn: 1, PromiseSack: 1, PromiseTimestamps: 1,
	})
	x.store(regs.DefencePagesOn, floodPages/8)
	x.store(regs.DefencePagesOff, floodPages/4)
	x.peers()
	s := syn(0, 0)
	s.mss = 1460
	x.spoofed = s.build(false)
	return x
}

func (x *battle) peers() {
	request, response := []byte(request), make([]byte, 5000)
	address := func(a uint32) (b netip.Addr) { return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, a))) }
	for i := range x.clients {
		cfg := tcppeer.Config{
			MAC: peerMAC, NextHop: clientMAC, Addresses: []netip.Prefix{netip.PrefixFrom(clientAt(i), 24)}, RTO: 30 * time.Millisecond, TimeWait: -1,
			Seed: uint64(i), Send: func(b []byte) {
				first := b[47]&(flagSYN|flagACK) == flagSYN
				if first {
					x.syns++
				}
				if !x.ports[0].offer(b) && first {
					x.lostSyns++
				}
			},
			Handle: func(c *tcppeer.Conn, e tcppeer.Event) {
				switch e {
				case tcppeer.Established:
					c.Write(request)
				case tcppeer.PeerClosed:
					if len(c.Bytes()) != len(response) {
						x.failed++
					}
					c.CloseWrite()
				case tcppeer.Closed:
					x.done++
				case tcppeer.Reset, tcppeer.TimedOut:
					x.failed++
				}
			},
		}
		if i == 0 {
			cfg.Timestamps, cfg.SACK, cfg.WindowScale = true, true, 7
		}
		x.clients[i] = tcppeer.New(cfg)
	}
	x.server = tcppeer.New(tcppeer.Config{
		MAC: peerMAC, Addresses: []netip.Prefix{netip.PrefixFrom(address(serverAddress), 32)}, RTO: 30 * time.Millisecond, TimeWait: -1,
		Timestamps: true, SACK: true, WindowScale: 2, Send: func(b []byte) { x.ports[1].offer(b) },
		Handle: func(c *tcppeer.Conn, e tcppeer.Event) {
			if e == tcppeer.Data && len(c.Bytes()) == len(request) {
				c.Write(response)
				c.CloseWrite()
			}
		},
	})
	x.server.Listen(8080)
	x.ports[0].out = func(b []byte) {
		if host := int(b[32]) - 64; b[30] == 198 && b[31] == 18 && host >= 0 && host < len(x.clients) {
			x.clients[host].Receive(x.now, b)
		}
	}
	x.ports[1].out = func(b []byte) { x.server.Receive(x.now, b) }
}

func clientAt(i int) netip.Addr { return netip.AddrFrom4([4]byte{198, 18, byte(64 + i), 1}) }

// spoof puts n SYNs of nobody into the client port's FIFO.
func (x *battle) spoof(n int) {
	b := x.spoofed
	for range n {
		from, seq, sport := 0xc613_0000|x.rng.Uint32()&0xffff, x.rng.Uint32(), uint16(x.rng.Uint32())|1
		binary.BigEndian.PutUint32(b[26:], from)
		binary.BigEndian.PutUint16(b[34:], sport)
		binary.BigEndian.PutUint32(b[38:], seq)
		binary.BigEndian.PutUint16(b[24:], 0)
		binary.BigEndian.PutUint16(b[24:], ^frame.Fold(frame.Sum(b[14:34], 0)))
		binary.BigEndian.PutUint16(b[50:], 0)
		binary.BigEndian.PutUint16(b[50:], ^frame.Fold(frame.Sum(b[34:], frame.Pseudo4(b[14:], 6, len(b)-34))))
		x.ports[0].offer(b)
	}
}

// take lets the card take as many frames as its time allows, the few of the server first.
func (x *battle) take(frames int) {
	x.ports[1].budget = min(x.ports[1].used, frames/2)
	x.ports[0].budget = frames - x.ports[1].budget
	x.card.Step(x.now)
}

func (x *battle) tick() {
	for _, h := range x.clients {
		h.Tick(x.now)
	}
	x.server.Tick(x.now)
}

func (x *battle) dial() {
	i := x.dialled % len(x.clients)
	remote := netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 18, 0, 80}), 80)
	if _, err := x.clients[i].Dial(x.now, netip.AddrPortFrom(clientAt(i), 0), remote); err != nil {
		x.Fatal(err)
	}
	x.dialled++
}

// fight floods the card with n SYNs, nine for ten frames that it has time for, in bursts, while a client a millisecond
// connects.
func (x *battle) fight(n int) {
	const burst = 32 // SYNs that come at once, on average
	due := time.Duration(0)
	for start, left := x.now, n; left > 0; {
		x.now += quantum * frameTime
		if x.rng.IntN(10*burst) < 9*quantum {
			b := min(1+x.rng.IntN(2*burst-1), left)
			x.spoof(b)
			left -= b
		}
		if x.now-start >= due {
			due += time.Millisecond
			x.tick()
			x.dial()
			live := int(x.load(regs.AmuLive))
			x.most = max(x.most, live-x.clients[0].Len()-x.clients[1].Len())
		}
		x.take(quantum)
	}
}

// rest lets time pass without a flood.
func (x *battle) rest(most time.Duration, done func() bool) bool {
	for end := x.now + most; !done(); {
		if x.now >= end {
			return false
		}
		x.now += time.Millisecond
		x.tick()
		for range 8 {
			x.take(64)
		}
	}
	return true
}

// TestFlood: spoofed SYNs fill nine tenths of the line. With defence always they hold no page, with auto no more than it
// takes to notice; every client is served, and no SYN has to be sent again but those that met a full FIFO; afterwards auto
// is off again. SPLICE_LONG=1 sends two million of them.
func TestFlood(t *testing.T) {
	n := 200_000
	if os.Getenv("SPLICE_LONG") != "" {
		n = 2_000_000
	}
	for _, tt := range []struct {
		name  string
		mode  uint32
		bound int // pages
	}{
		{"always", regs.ServiceControlDefenceAlways, 0},
		{"auto", regs.ServiceControlDefenceAuto, 20_000},
	} {
		t.Run(tt.name, func(t *testing.T) {
			x := newBattle(t, tt.mode)
			x.fight(n)
			if !x.rest(2*time.Second, func() bool { return x.done+x.failed >= x.dialled }) || x.failed != 0 {
				t.Errorf("%d of %d clients served, %d failed", x.done, x.dialled, x.failed)
			}
			if x.most > tt.bound {
				t.Errorf("the flood held %d pages, want at most %d", x.most, tt.bound)
			}
			if again := x.syns - x.dialled; again > x.lostSyns {
				t.Errorf("%d SYNs sent again, %d met a full FIFO", again, x.lostSyns)
			}
			sent, opened := x.load64(regs.DefenceCookieSent), x.load64(regs.ConnectionOpened)
			if tt.mode == regs.ServiceControlDefenceAlways && opened != uint64(x.dialled) {
				t.Errorf("%d connections opened, %d dialled", opened, x.dialled)
			}
			if got := sent + opened - x.load64(regs.DefenceCookieValid) + uint64(x.ports[0].lost); got < uint64(n) {
				t.Errorf("%d cookies, %d pages and %d lost for %d SYNs", sent, opened, x.ports[0].lost, n)
			}
			if tt.mode == regs.ServiceControlDefenceAuto {
				x.want(regs.DefenceSwitchedOn, 1)
			}
			if !x.rest(20*time.Second, func() bool { return regs.DefenceStatusActive(x.load(regs.DefenceStatus)) == 0 }) {
				t.Error("the stage is still active")
			}
			if !x.rest(20*time.Second, func() bool { return x.load(regs.AmuFree) == floodPages }) {
				t.Errorf("%d pages are still in use", floodPages-x.load(regs.AmuFree))
			}
			t.Logf("%d clients; flood %d SYNs, %d lost in the FIFO; of the clients' SYNs %d lost, %d sent again; %d pages held by the flood; %d cookies sent, %d came back",
				x.dialled, n, x.ports[0].lost, x.lostSyns, x.syns-x.dialled, x.most, sent, x.load64(regs.DefenceCookieValid))
		})
	}
}
