package bench

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"

	"splicenic/emu/frame"
	"splicenic/emu/port"
	"splicenic/tools/tcppeer"
)

const (
	frameBytes = 64 // on the wire, with the FCS that no frame here has
	clientPort = 1024
	addresses  = 4096 // clients with an address of their own; flow f is connection f / addresses of client f % addresses
)

var request = []byte("GET / HTTP/1.1\r\nHost: bench.example\r\n\r\n")

// endpoint is where flow f comes from.
func endpoint(f uint32) netip.AddrPort {
	a := clients.Addr().As4()
	at := binary.BigEndian.Uint32(a[:]) + 256 + f%addresses
	binary.BigEndian.PutUint32(a[:], at)
	return netip.AddrPortFrom(netip.AddrFrom4(a), uint16(clientPort+f/addresses))
}

// flowOf is the inverse.
func flowOf(e netip.AddrPort) uint32 {
	a, first := e.Addr().As4(), clients.Addr().As4()
	return binary.BigEndian.Uint32(a[:]) - binary.BigEndian.Uint32(first[:]) - 256 + uint32(e.Port()-clientPort)*addresses
}

// isn is the first sequence number of flow f's client and of its server: no table is needed to know them.
func isn(f uint32, side int) uint32 { return bits.Reverse32(f*2+uint32(side)) ^ 0x5bd1e995 }

// flows are live connections; the numbers that no function gives are stored.
type flows struct {
	n      uint32
	server []uint32 // what the client acknowledges: the card's sequence number after its SYN
	seen   []seen   // nil: servers see clients as they are
}

// seen is a client as its server sees it.
type seen struct {
	address uint32
	port    uint16
	shift   uint32 // of its sequence numbers
}

// openFlows sets up n connections through the card, a few thousand at a time.
func openFlows(ctx context.Context, r *rig, n uint32) (*flows, error) {
	const chunk = 4096
	fs := &flows{n: n, server: make([]uint32, n)}
	for first := uint32(0); first < n; first += chunk {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := fs.open(r, first, min(first+chunk, n)); err != nil {
			return nil, err
		}
	}
	return fs, nil
}

// open sets up the flows from first to last-1: handshake, request, and the server's acknowledgement of it.
func (fs *flows) open(r *rig, first, last uint32) error {
	opened, served, failed := uint32(0), uint32(0), 0
	count := func(e tcppeer.Event) {
		if e == tcppeer.Reset || e == tcppeer.TimedOut {
			failed++
		}
	}
	c, s := r.peers(
		tcppeer.Config{ISN: func(local, _ netip.AddrPort) uint32 { return isn(flowOf(local), 0) }, Handle: func(c *tcppeer.Conn, e tcppeer.Event) {
			if e == tcppeer.Established {
				_, fs.server[flowOf(c.Local())] = c.Next()
				c.Write(request)
				opened++
			}
			count(e)
		}},
		tcppeer.Config{ISN: func(_, remote netip.AddrPort) uint32 { return isn(flowOf(remote), 1) }, Handle: func(c *tcppeer.Conn, e tcppeer.Event) {
			if e == tcppeer.Data && len(c.Bytes()) == len(request) {
				served++
			}
			count(e)
		}})
	for f := first; f < last; {
		for ; f < last && c.Waiting() < 64; f++ {
			if _, err := c.Host.Dial(r.now(), endpoint(f), vip); err != nil {
				return fmt.Errorf("open flow %d: %w", f, err)
			}
		}
		r.step()
	}
	for idle := 0; idle < 3; {
		c.Advance(r.now())
		s.Advance(r.now())
		if idle++; r.step() || c.Waiting()+s.Waiting() > 0 {
			idle = 0
		}
	}
	if want := last - first; opened != want || served != want || failed != 0 {
		return fmt.Errorf("open flows %d to %d: %d connected, %d reached the server, %d failed", first, last-1, opened, served, failed)
	}
	return nil
}

// A generator is the far end of one wire: it sends frames of random flows and counts what comes out of the card.
type generator struct {
	*flows
	side     int
	mac      [6]byte
	state    uint64
	template [60]byte
	sum      uint64 // of the template's pseudo-header and TCP header, without what a flow changes
	left     int    // frames that it may still send
	received uint64
	check    func(b []byte) // nil: count only
}

func newGenerator(fs *flows, side int) *generator {
	g := &generator{flows: fs, side: side, mac: cardMAC[side], state: uint64(side)*0x9e3779b97f4a7c15 + 1}
	b := g.template[:]
	src, dst := clients.Addr(), vip
	from := clientMAC
	if side == 1 {
		src, dst, from = backend.Addr(), netip.AddrPortFrom(clients.Addr(), 0), serverMAC
	}
	copy(b[0:], g.mac[:])
	copy(b[6:], from[:])
	copy(b[12:], []byte{0x08, 0x00, 0x45, 0, 0, 46, 0, 0, 0x40, 0, 64, 6})
	copy(b[26:], src.AsSlice())
	copy(b[30:], dst.Addr().AsSlice())
	if side == 0 {
		binary.BigEndian.PutUint16(b[36:], dst.Port())
	} else {
		binary.BigEndian.PutUint16(b[34:], backend.Port())
	}
	const tcpBytes = 26
	b[46], b[47] = 5<<4, 0x18 // ACK, PSH
	binary.BigEndian.PutUint16(b[48:], 0xffff)
	copy(b[54:], "splice")
	if side == 0 {
		clear(b[26:30])
	} else {
		clear(b[30:34])
	}
	g.sum = frame.Sum(b[34:], frame.Pseudo4(b[14:], 6, tcpBytes))
	return g
}

// next picks a random flow (xorshift64*).
func (g *generator) next() uint32 {
	g.state ^= g.state >> 12
	g.state ^= g.state << 25
	g.state ^= g.state >> 27
	return uint32(g.state * 0x2545f4914f6cdd1d >> 32 * uint64(g.n) >> 32)
}

// Receive makes as many frames as the card has room for.
func (g *generator) Receive(fs []frame.Frame) int {
	n := min(len(fs), g.left)
	for i := range fs[:n] {
		f := &fs[i]
		b := f.Buf[f.Start : f.Start+60 : f.Start+60]
		g.fill((*[60]byte)(b), g.next())
		f.End = f.Start + 60
		f.Offload = frame.Offload{}
	}
	g.left -= n
	return n
}

// fill writes the frame of flow f.
func (g *generator) fill(b *[60]byte, f uint32) {
	const network = 198<<24 | 18<<16 | 256
	*b = g.template
	address, port := network+f%addresses, clientPort+f/addresses
	seq, ack := isn(f, 0)+1+uint32(len(request)), uint32(0)
	if g.side == 0 {
		ack = g.server[f]
		binary.BigEndian.PutUint32(b[26:], address)
		binary.BigEndian.PutUint16(b[34:], uint16(port))
	} else {
		seq, ack = isn(f, 1)+1, seq
		if g.seen != nil {
			s := &g.seen[f]
			address, port, ack = s.address, uint32(s.port), ack+s.shift
		}
		binary.BigEndian.PutUint32(b[30:], address)
		binary.BigEndian.PutUint16(b[36:], uint16(port))
	}
	binary.BigEndian.PutUint32(b[38:], seq)
	binary.BigEndian.PutUint32(b[42:], ack)
	binary.BigEndian.PutUint16(b[50:], ^frame.Fold(g.sum+uint64(address)+uint64(port)+uint64(seq)+uint64(ack)))
	binary.BigEndian.PutUint16(b[24:], ^frame.Fold(frame.Sum(b[14:34], 0)))
}

// Transmit counts.
func (g *generator) Transmit(fs []*frame.Frame) int {
	if g.check != nil {
		for _, f := range fs {
			g.check(f.Bytes())
		}
	}
	g.received += uint64(len(fs))
	return len(fs)
}

func (g *generator) MAC() [6]byte            { return g.mac }
func (g *generator) MTU() int                { return 1500 }
func (g *generator) Link() port.LinkState    { return port.LinkState{Up: true, Mbps: 1000} }
func (g *generator) BufferBytes() int        { return frame.Headroom + 18 + 1500 }
func (g *generator) Offloads() port.Offloads { return port.Offloads{} }
func (g *generator) FD() int                 { return -1 }
func (g *generator) Overruns() uint64        { return 0 }
func (g *generator) Close() error            { return nil }
