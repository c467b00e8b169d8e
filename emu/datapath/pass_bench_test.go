package datapath

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"splicenic/emu/frame"
	"splicenic/emu/ssram"
	"splicenic/regs"
)

// passedFlows opens connections by a method and makes a frame of each side of each.
func passedFlows(t testing.TB, x *bench, mode uint32, flows int) (fs [2][][60]byte) {
	w := world4
	x.serve4(w, 0, mode, nil)
	if mode == regs.ServiceControlModeTun {
		set(x.m.LocalAddress, 0, regs.AddressWords, &regs.AddressEntry{ControlValid: 1, ControlKind: kindIPv4, Address: words(netip.MustParseAddr("198.18.1.1"))})
	}
	x.now = time.Second
	x.c.Advance(x.now)
	sides := 1
	if mode <= regs.ServiceControlModeFullnat {
		sides = 2
	}
	for s := range sides {
		fs[s] = make([][60]byte, flows)
	}
	var m [2][60]byte
	copy(m[0][:], buildFrame(t, &tcp{from: w.client, to: w.vip, sport: 1, dport: 80, flags: flagSYN, window: 500, srcMAC: clientMAC, dstMAC: portMAC[0]}))
	copy(m[1][:], buildFrame(t, &tcp{from: w.server, to: w.client, sport: 8080, dport: 1, flags: flagSYN | flagACK, window: 500, srcMAC: serverMAC, dstMAC: portMAC[1]}))
	send := func(side int, b *[60]byte, seq, ack uint32, flags byte) []byte {
		binary.BigEndian.PutUint32(b[38:], seq)
		binary.BigEndian.PutUint32(b[42:], ack)
		b[47] = flags
		put16(b[:], 24, 0)
		put16(b[:], 24, ^frame.Fold(frame.Sum(b[14:34], 0)))
		put16(b[:], 50, 0)
		put16(b[:], 50, ^frame.Fold(frame.Sum(b[34:54], frame.Pseudo4(b[14:], protocolTCP, 20))))
		f := &x.buf[0]
		f.Start, f.End, f.Offload = frame.Headroom, frame.Headroom+uint32(copy(f.Buf[frame.Headroom:], b[:54])), frame.Offload{}
		x.c.Process(side, x.buf[:1], x.out)
		if len(x.out.Ports[1-side]) != 1 {
			t.Fatalf("mode %d: %d frames went on", mode, len(x.out.Ports[1-side]))
		}
		got := x.out.Ports[1-side][0].Bytes()
		x.out.Reset()
		return got
	}
	for i := range flows {
		c, s := &m[0], &m[1]
		copy(c[26:30], []byte{198, 19, byte(i >> 16), byte(i >> 8)})
		put16(c[:], 34, uint16(10000+i&255))
		seen := send(0, c, uint32(i), 0, flagSYN)
		if sides == 2 {
			copy(s[30:34], seen[26:30])
			copy(s[36:38], seen[34:36])
			send(1, s, uint32(i)*7, binary.BigEndian.Uint32(seen[38:])+1, flagSYN|flagACK)
		}
		seen = send(0, c, uint32(i)+1, uint32(i)*7+1, flagACK)
		fs[0][i] = *c
		if sides == 2 {
			send(1, s, uint32(i)*7+1, binary.BigEndian.Uint32(seen[38:]), flagACK)
			fs[1][i] = *s
		}
	}
	return fs
}

var passModes = map[string]uint32{"nat": regs.ServiceControlModeNat, "tun": regs.ServiceControlModeTun, "dr": regs.ServiceControlModeDr}

// BenchmarkPassedRandom sends 64-byte frames to a full table of passed connections at random, by method.
func BenchmarkPassedRandom(b *testing.B) {
	for name, mode := range passModes {
		b.Run(name, func(b *testing.B) {
			x := newBench(b, ssram.Geometry{})
			fs := passedFlows(b, x, mode, 294_912)
			sides := 1
			if fs[1] != nil {
				sides = 2
			}
			r := rand.New(rand.NewPCG(1, 1))
			b.ReportAllocs()
			b.ResetTimer()
			for n := 0; n < b.N; n += BatchMax {
				side := n / BatchMax % sides
				for i := range x.buf {
					f := &x.buf[i]
					f.Start, f.End, f.Offload = frame.Headroom, frame.Headroom+uint32(copy(f.Buf[frame.Headroom:], fs[side][r.IntN(len(fs[side]))][:])), frame.Offload{}
				}
				x.c.Process(side, x.buf, x.out)
				if len(x.out.Ports[1-side]) != BatchMax {
					b.Fatal("a frame did not go on")
				}
				x.out.Reset()
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds()/1e6, "Mpps")
		})
	}
}

// TestPassedAllocations: nothing is allocated for passed connections, whole lives and the scan included.
func TestPassedAllocations(t *testing.T) {
	for name, mode := range passModes {
		x := newBench(t, smallGeometry())
		fs := passedFlows(t, x, mode, 64)
		var m [60]byte
		seq := uint32(1 << 20)
		for what, f := range map[string]func(){
			"segments": func() {
				for side := range fs {
					if fs[side] == nil {
						continue
					}
					for i := range x.buf {
						g := &x.buf[i]
						g.Start, g.End, g.Offload = frame.Headroom, frame.Headroom+uint32(copy(g.Buf[frame.Headroom:], fs[side][i%64][:])), frame.Offload{}
					}
					x.c.Process(side, x.buf, x.out)
					x.out.Reset()
				}
			},
			"reused ports and the scan": func() {
				m = fs[0][5]
				m[47] = flagSYN
				for range 3 {
					seq++
					binary.BigEndian.PutUint32(m[38:], seq)
					put16(m[:], 50, 0)
					put16(m[:], 50, ^frame.Fold(frame.Sum(m[34:54], frame.Pseudo4(m[14:], protocolTCP, 20))))
					g := &x.buf[0]
					g.Start, g.End, g.Offload = frame.Headroom, frame.Headroom+uint32(copy(g.Buf[frame.Headroom:], m[:54])), frame.Offload{}
					x.c.Process(0, x.buf[:1], x.out)
					x.out.Reset()
				}
				x.now += 50 * time.Millisecond
				x.c.Advance(x.now)
				for !x.c.Scan(x.out) {
				}
				x.out.Reset()
			},
		} {
			if got := testing.AllocsPerRun(50, f); got != 0 {
				t.Errorf("%s, %s: %v allocations, want 0", name, what, got)
			}
		}
	}
}
