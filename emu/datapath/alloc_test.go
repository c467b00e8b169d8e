package datapath

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/gopacket/layers"

	"splicenic/emu/frame"
	"splicenic/regs"
)

// steady is a bench with one spliced connection of each family and frames of both its ends.
type steady struct {
	*bench
	raws [2][][]byte // by side
}

func newSteady(t testing.TB, payload int) *steady {
	x := &steady{bench: newBench(t, tiny(64))}
	for i, w := range []world{world4, world6} {
		x.serve(w, i, full)
	}
	x.attach()
	x.now = time.Second
	x.c.Advance(x.now)
	body := strings.Repeat("p", payload)
	opts := []layers.TCPOption{optNop, optNop, optTS(7, 9)}
	for i, w := range []world{world4, world6} {
		for n := range 8 {
			l := &leg{client: w.client, vip: w.vip, server: w.server, cport: uint16(40000 + n), vport: 80, sport: 8080, index: i,
				deltaServer: 0x12345678, stampServer: 99, sack: true, timestamps: true, clientMAC: clientMAC}
			x.plantLeg(l)
			c := &conn{b: x.bench, w: w, port: l.cport, cseq: 1, cack: 2, sseq: 3, sack: 4}
			x.raws[0] = append(x.raws[0], c.client(flagACK, body, opts...))
			x.raws[1] = append(x.raws[1], c.server(flagACK, body, opts...))
		}
	}
	return x
}

// run sends n frames of a side in batches, without a check.
func (x *steady) run(side, n, batch int) (sent int) {
	raws := x.raws[side]
	for n > 0 {
		k := min(n, batch, BatchMax)
		for i := range k {
			f := &x.buf[i]
			f.Start, f.End, f.Offload = frame.Headroom, frame.Headroom+uint32(copy(f.Buf[frame.Headroom:], raws[i%len(raws)])), frame.Offload{}
		}
		x.c.Process(side, x.buf[:k], x.out)
		sent += len(x.out.Ports[1-side])
		x.out.Reset()
		n -= k
	}
	return sent
}

// TestNoAllocations: the pipeline allocates nothing: not for translated segments, not for exceptions and drops, not for
// whole lives, not for the scan.
func TestNoAllocations(t *testing.T) {
	x := newSteady(t, 512)
	stray := (&conn{b: x.bench, w: world4, port: 1, cseq: 1}).client(flagACK, "stray")
	broken := append([]byte(nil), x.raws[0][0]...)
	broken[60] ^= 1
	scan := func() {
		x.now += 20 * time.Millisecond
		x.c.Advance(x.now)
		for !x.c.Scan(x.out) {
		}
		x.out.Reset()
	}
	lives := newLives(t, x, 0)
	x.r.Set(regs.HostifEvents, ^uint32(0))
	for name, f := range map[string]func(){
		"client segments":  func() { x.run(0, BatchMax, BatchMax) },
		"server segments":  func() { x.run(1, BatchMax, BatchMax) },
		"scan":             scan,
		"lives":            lives,
		"lives by a hello": newLives(t, x, regs.ServiceControlProtocolTls),
		"only requests": func() {
			for n := range uint32(8) {
				w := x.c.page(n)
				w[regs.PageClientLink] |= regs.PageClientLinkLastRequestMask
				w[regs.PageBoundaryClient] = 101
			}
			x.run(0, BatchMax, BatchMax)
			for n := range uint32(8) {
				x.c.page(n)[regs.PageClientLink] &^= regs.PageClientLinkLastRequestMask
			}
		},
		"exceptions and drops": func() {
			for i := range x.buf {
				raw := stray
				if i%2 == 0 {
					raw = broken
				}
				f := &x.buf[i]
				f.Start, f.End, f.Offload = frame.Headroom, frame.Headroom+uint32(copy(f.Buf[frame.Headroom:], raw)), frame.Offload{}
			}
			x.c.Process(0, x.buf, x.out)
			x.out.Reset()
			x.r.Set(regs.RingConsumer, x.r.Get(regs.RingProducer))
		},
	} {
		if got := testing.AllocsPerRun(50, f); got != 0 {
			t.Errorf("%s: %v allocations a batch, want 0", name, got)
		}
	}
	if x.r.Get64(regs.ConnectionDropLastRequest) == 0 {
		t.Error("nothing was cut: only requests are not what they should be")
	}
	if got := x.r.Get64(regs.ConnectionSpliced); got < 100 {
		t.Error("no connection was spliced: lives are not what they should be")
	}
}

// newLives returns a function that takes one connection of a service that reads a protocol from SYN to quarantine, and
// then frees its page.
func newLives(t *testing.T, x *steady, protocol uint32) func() {
	t.Helper()
	var m maker
	copy(m.template[0][:], buildFrame(t, &tcp{from: world4.client, to: world4.vip, flags: flagACK, window: 64000, srcMAC: clientMAC, dstMAC: portMAC[0]}))
	copy(m.template[1][:], buildFrame(t, &tcp{from: world4.server, to: world4.client, flags: flagACK, window: 64000, srcMAC: serverMAC, dstMAC: portMAC[1]}))
	x.m.Service[0][regs.ServicePromiseMss] = 536 // the ends announce no MSS
	head, response := []byte(request), []byte("response")
	if protocol == regs.ServiceControlProtocolTls {
		head = []byte(hello)
	}
	n := uint32(len(head))
	var own uint32
	step := func(side int, seq, ack uint32, flags uint8, payload []byte) {
		sport, dport := uint16(50000), uint16(80)
		if side == 1 {
			sport, dport = 8080, 50000
		}
		m.frame(&x.buf[0], side, sport, dport, seq, ack, flags, payload)
		x.c.Process(side, x.buf[:1], x.out)
		if flags == flagSYN {
			own = binary.BigEndian.Uint32(x.out.Ports[0][0].Bytes()[38:])
		}
		x.out.Reset()
	}
	return func() {
		x.m.Service[0][regs.ServiceControl] = regs.SetServiceControlProtocol(x.m.Service[0][regs.ServiceControl], protocol)
		step(0, 1, 0, flagSYN, nil)
		step(0, 2, own+1, flagACK, nil)
		step(0, 2, own+1, flagACK|flagPSH, head)
		step(1, 77, 2, flagSYN|flagACK, nil)
		step(1, 78, 2+n, flagACK|flagPSH, response)
		step(0, 2+n, own+9, flagACK|flagFIN, nil)
		step(1, 86, 3+n, flagACK|flagFIN, nil)
		step(0, 3+n, own+10, flagACK, nil)

		if !x.c.endOldestQuarantine(false) {
			t.Fatal("no page got to quarantine")
		}
		x.r.Set(regs.RingConsumer+regs.RingEvent*regs.RingStride, x.r.Get(regs.RingProducer+regs.RingEvent*regs.RingStride))
	}
}

// BenchmarkTranslate sends segments of one direction of few connections, by payload and batch.
func BenchmarkTranslate(b *testing.B) {
	for side, name := range []string{"client", "server"} {
		for _, bytes := range []int{64, 128, 512, 1518, 9000} {
			for _, batch := range []int{1, 16, 64, 256} {
				b.Run(fmt.Sprintf("%s/%d/batch %d", name, bytes, batch), func(b *testing.B) {
					x := newSteady(b, max(0, bytes-14-60-32))
					b.ReportAllocs()
					b.SetBytes(int64(batch * len(x.raws[side][0])))
					b.ResetTimer()
					n := 0
					for b.Loop() {
						if got := x.run(side, batch, batch); got != batch {
							b.Fatalf("%d of %d translated", got, batch)
						}
						n += batch
					}
					b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "packets/s")
				})
			}
		}
	}
}
