package datapath

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"splicenic/emu/frame"
	"splicenic/emu/ssram"
	"splicenic/regs"
)

// BenchmarkTranslateRandom sends 64-byte frames of both directions to a full table of spliced connections at random.
func BenchmarkTranslateRandom(b *testing.B) {
	for _, flows := range []int{1024, 294_912} {
		b.Run(map[bool]string{true: "full", false: "cached"}[flows > 100_000], func(b *testing.B) {
			benchTranslate(b, flows)
		})
	}
}

func benchTranslate(b *testing.B, flows int) {
	x := newBench(b, ssram.Geometry{})
	x.serve(world4, 0, regs.ServiceEntry{})
	x.now = time.Second
	x.c.Advance(x.now)
	type flow struct{ client, server [60]byte }
	fs := make([]flow, flows)
	cfg := world4
	for i := range fs {
		cfg.client = netip.AddrFrom4([4]byte{198, 19, byte(i >> 16), byte(i >> 8)})
		port := uint16(10000 + i&255)
		x.plant(cfg, port, uint32(i), uint32(i)*7)
		c := tcp{from: cfg.client, to: cfg.vip, sport: port, dport: 80, seq: uint32(i) + 1, ack: uint32(i)*7 + 1, flags: flagACK, window: 500, srcMAC: clientMAC, dstMAC: portMAC[0]}
		s := tcp{from: cfg.server, to: cfg.client, sport: 8080, dport: port, seq: 1, ack: uint32(i) + 1, flags: flagACK, window: 500, srcMAC: serverMAC, dstMAC: portMAC[1]}
		copy(fs[i].client[:], buildFrame(b, &c))
		copy(fs[i].server[:], buildFrame(b, &s))
	}
	r := rand.New(rand.NewPCG(1, 1))
	for i := range x.buf {
		x.buf[i].Buf = make([]byte, 256+64)
	}
	b.ReportAllocs()
	b.ResetTimer()
	n := 0
	for b.Loop() {
		port := n & 1
		for i := range x.buf {
			f := &x.buf[i]
			fl := &fs[r.Uint32()%uint32(flows)]
			src := &fl.client
			if port == 1 {
				src = &fl.server
			}
			copy(f.Buf[frame.Headroom:], src[:])
			f.Start, f.End, f.Offload = frame.Headroom, frame.Headroom+60, frame.Offload{}
		}
		x.c.Process(port, x.buf, x.out)
		if len(x.out.Ports[1-port]) != BatchMax {
			b.Fatalf("%d of %d translated", len(x.out.Ports[1-port]), BatchMax)
		}
		x.out.Reset()
		n++
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n*BatchMax), "ns/packet")
}

// plant puts a spliced connection into the tables as a life would have left it.
func (b *bench) plant(w world, port uint16, cisn, isn uint32) {
	c := b.c
	n, ok := c.allocate()
	if !ok {
		b.t.Fatal("no page")
	}
	p := c.page(n)
	a := words(w.client)
	p[regs.PageControl] = regs.SetPageControlKind(p[regs.PageControl], w.kind)
	p[regs.PageControl] = regs.SetPageControlServerPort(p[regs.PageControl], 1)
	copy(p[regs.PageClientAddress:], a[:])
	p[regs.PagePorts] = uint32(port) | 80<<16
	p[regs.PageClientMacLo] = binary.BigEndian.Uint32(clientMAC[2:])
	p[regs.PageClientMacHi] = uint32(binary.BigEndian.Uint16(clientMAC[:])) | 1460<<16
	p[regs.PageClientIsn], p[regs.PageAIsn], p[regs.PageIsn] = cisn, cisn, isn
	p[regs.PageALocal] = uint32(port) | 1460<<16
	p[regs.PageLastSeen] = c.tick
	c.setState(p, ServerSyn)
	k, h := c.clientKey(p)
	if c.cams[ClientSide].Insert(&k, h, handleOf(n, p), false) != 0 {
		b.t.Fatal("client CAM")
	}
	k, h = c.serverKey(p, 0)
	if c.cams[ServerSide].Insert(&k, h, handleOf(n, p), false) != 0 {
		b.t.Fatal("server CAM")
	}
	c.serverUse(p, 1)
	c.serverActive(p, 1)
	c.splice(n, p, 1000, b.out)
	b.out.Reset()
}

// maker writes IPv4 segments of one client and server without allocating.
type maker struct{ template [2][60]byte }

func (m *maker) frame(f *frame.Frame, side int, sport, dport uint16, seq, ack uint32, flags uint8, payload []byte) {
	b := f.Buf[frame.Headroom:]
	copy(b, m.template[side][:54])
	n := 54 + copy(b[54:], payload)
	binary.BigEndian.PutUint16(b[16:], uint16(n-14))
	binary.BigEndian.PutUint16(b[24:], 0)
	binary.BigEndian.PutUint16(b[24:], ^frame.Fold(frame.Sum(b[14:34], 0)))
	binary.BigEndian.PutUint16(b[34:], sport)
	binary.BigEndian.PutUint16(b[36:], dport)
	binary.BigEndian.PutUint32(b[38:], seq)
	binary.BigEndian.PutUint32(b[42:], ack)
	b[47] = flags
	binary.BigEndian.PutUint16(b[50:], 0)
	binary.BigEndian.PutUint16(b[50:], ^frame.Fold(frame.Sum(b[34:n], frame.Pseudo4(b[14:], 6, n-34))))
	f.Start, f.End, f.Offload = frame.Headroom, uint32(frame.Headroom+n), frame.Offload{}
}

// BenchmarkLife takes batches of connections through their whole life: handshakes, a request of 512 bytes, one response
// segment, both FINs, quarantine.
func BenchmarkLife(b *testing.B) {
	x := newBench(b, ssram.Geometry{})
	x.serve(world4, 0, regs.ServiceEntry{PromiseMssIpv4: 536, PromiseMssIpv6: 1220}) // the ends below announce no MSS
	var m maker
	copy(m.template[0][:], buildFrame(b, &tcp{from: world4.client, to: world4.vip, flags: flagACK, window: 64000, srcMAC: clientMAC, dstMAC: portMAC[0]}))
	copy(m.template[1][:], buildFrame(b, &tcp{from: world4.server, to: world4.client, flags: flagACK, window: 64000, srcMAC: serverMAC, dstMAC: portMAC[1]}))
	request := bytes.Repeat([]byte("x"), 512)
	copy(request, "GET /photos/cat.jpg HTTP/1.1\r\nHost: img.example\r\nX: ")
	copy(request[508:], "\r\n\r\n")
	response := make([]byte, 1000)
	const n = BatchMax
	var a0 [n]uint32
	ports := uint32(0)
	life := func() {
		x.now += 10 * time.Microsecond * n
		x.c.Advance(x.now)
		base := ports
		ports = (ports + n) % 50000
		step := func(side int, seq, ack func(i int) uint32, flags uint8, payload []byte) {
			for i := range x.buf {
				port := uint16(10000 + base + uint32(i))
				if side == 0 {
					m.frame(&x.buf[i], 0, port, 80, seq(i), ack(i), flags, payload)
				} else {
					m.frame(&x.buf[i], 1, 8080, port, seq(i), ack(i), flags, payload)
				}
			}
			x.out.Reset()
			x.c.Process(side, x.buf, x.out)
		}
		c0 := uint32(x.now / time.Microsecond)
		cseq := func(d uint32) func(int) uint32 { return func(int) uint32 { return c0 + d } }
		sseq := func(d uint32) func(int) uint32 { return func(int) uint32 { return 77 + d } }
		cack := func(d uint32) func(int) uint32 { return func(i int) uint32 { return a0[i] + d } }
		step(0, cseq(0), cseq(0), flagSYN, nil)
		for i, f := range x.out.Ports[0] {
			a0[i] = binary.BigEndian.Uint32(f.Bytes()[38:])
		}
		step(0, cseq(1), cack(1), flagACK, nil)
		step(0, cseq(1), cack(1), flagACK|flagPSH, request)
		step(1, sseq(0), cseq(1), flagSYN|flagACK, nil)
		step(1, sseq(1), cseq(513), flagACK|flagPSH, response)
		step(0, cseq(513), cack(1001), flagACK, nil)
		step(1, sseq(1001), cseq(513), flagACK|flagFIN, nil)
		step(0, cseq(513), cack(1002), flagACK|flagFIN, nil)
		step(1, sseq(1002), cseq(514), flagACK, nil)
		for !x.c.Scan(x.out) {
		}
	}
	b.ReportAllocs()
	lives := 0
	for b.Loop() {
		life()
		lives += n
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(lives), "ns/life")
	if got := x.r.Get64(regs.ConnectionClosedFin); got != uint64(lives) {
		b.Fatalf("closed: got %d, want %d", got, lives)
	}
}
