package datapath

import (
	"math/rand/v2"
	"testing"
	"time"

	"splicenic/regs"
)

// TestPassedBatchLikeAlone: batches of up to 64 frames for services of every method give the same as the frames one at a
// time. Between them stand commands, the host's stores, and time.
func TestPassedBatchLikeAlone(t *testing.T) {
	for seed := range uint64(4) {
		r := rand.New(rand.NewPCG(seed, 0x15))
		l := newL4World(t)
		x := &twin{t: t, batched: newL4World(t).b, alone: l.b}
		for step := range l4Steps() / 10 {
			var raws [][]byte
			var want [2][][]byte
			port, n := r.IntN(2), 1+r.IntN(BatchMax)
			if len(l.asked) == 0 {
				port = 0
			}
			for len(raws) < n {
				raw := []byte(nil)
				if port == 0 {
					raw = l.fromClient(t, r)
				} else {
					raw = l.fromServer(t, r)
				}
				raws = append(raws, raw)
				out := x.alone.pushRaw(port, raw)
				for p := range out {
					want[p] = append(want[p], out[p]...)
				}
				if port == 0 {
					l.notes(t, out)
				}
			}
			x.compare("batch", x.batched.pushRaw(port, raws...), want)
			for _, b := range []*bench{x.batched, x.alone} {
				b.now += time.Duration(step%7) * 40 * time.Millisecond
			}
			x.scan(step)
			for range r.IntN(3) {
				if s := l.draw(t, r); s.raw == nil {
					x.compare("step", s.play(x.batched), s.play(x.alone))
				}
			}
			if step%20 == 0 {
				x.sameState(step)
			}
		}
		x.sameState(0)
		x.batched.check(t)
		if got := x.batched.r.Get64(regs.PassEstablished); got < 30 {
			t.Errorf("seed %d: %d connections: the frames do not go where they should", seed, got)
		}
	}
}

// FuzzPass gives services of every method raw frames, host's commands of the verb pass, stores and time: no panic, every
// frame is accounted for once and what comes out is whole, and counts, templates and local ports agree with the pages.
func FuzzPass(f *testing.F) {
	l := newL4World(f)
	r := rand.New(rand.NewPCG(1, 0x16))
	for range 300 {
		l.notes(f, l.draw(f, r).play(l.b))
	}
	b, start := l.b, l.b.now
	kept := newL4World(f).b
	kept.restoredFrom(b)
	for i := range 24 {
		in := pack(modeSums, l.fromClient(f, r))
		in = append(in, pack(modeSums|modePort, l.fromServer(f, r))...)
		in = append(in, pack(modeTime|uint8(i)<<5, []byte{byte(i), byte(i * 7), 1, 2, 3, 4, 5, 6, 7, 8})...)
		f.Add(in)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		b.t = t
		b.restoredFrom(kept)
		b.now = start
		split(data, func(mode byte, raw []byte) {
			if mode&(modeTime|modeSums) != modeTime || len(raw) < 10 {
				b.passFuzzed(t, mode, raw)
				return
			}
			e := &regs.CommandEntry{ControlType: regs.CommandControlTypePass, HandleN: uint32(raw[0]) % 48, HandleGeneration: uint32(raw[1]), FlagsTemplate: uint32(raw[2] & 1), FlagsFromServer: uint32(raw[2] >> 1 & 1),
				FlagsModule: uint32(raw[2] >> 2 & 1), KeyControlKind: uint32(raw[3] & 3), KeyControlProtocol: [4]uint32{protocolTCP, protocolUDP, protocolTCP, uint32(raw[3])}[raw[3]>>2&3], KeyControlVlan: uint32(raw[3] >> 4),
				KeyIndexIndex: uint32(raw[4]) % 20, KeyPortsPort: 40000 + uint32(raw[5]&15), KeyPortsDestination: 70 + uint32(raw[5]>>4), Value: words(world4.client)[0] + uint32(raw[6]&3),
				Bar2Offset: uint32(raw[7]) % 20, Boundary: uint32(raw[8])%20 | uint32(raw[9])<<16}
			if raw[2]&8 != 0 { // the generation in force
				e.HandleGeneration = handleOf(e.HandleN, b.c.page(e.HandleN)) >> 20
			}
			if raw[2]&16 != 0 {
				e.ControlType = [2]uint32{regs.CommandControlTypeReset, regs.CommandControlTypeFree}[raw[2]>>5&1]
			}
			l4Step{command: e}.play(b)
		})
		b.check(t)
		b.l4Books(t, l.lists)
	})
}

// passFuzzed runs one frame, and holds what it comes to to the parser's books.
func (b *bench) passFuzzed(t *testing.T, mode byte, raw []byte) {
	if mode&modeTime != 0 {
		l4Step{wait: time.Duration(mode>>5)*300*time.Millisecond + time.Millisecond}.play(b)
	}
	f := &b.buf[0]
	f.End = f.Start + uint32(copy(f.Buf[f.Start:], raw))
	if mode&modeSums != 0 {
		mend(f.Bytes(), false)
	}
	raw = append([]byte(nil), f.Bytes()...)
	before := b.accounts()
	out := b.pushRaw(int(mode&modePort), raw)
	after := b.accounts()
	if n := after.drops - before.drops + after.classes - before.classes + after.exceptions - before.exceptions; n != 1 {
		t.Fatalf("a frame is counted %d times: % x", n, raw)
	}
	for p := range out {
		for _, g := range out[p] {
			whole(t, b, g)
		}
	}
	b.exceptions()
	b.events()
}

// TestTwins: a server whose method is changed has an entry of its own for each while connections go on by the old one,
// and the wire tells them apart by nothing but the connections.
func TestTwins(t *testing.T) {
	for _, x := range []struct {
		name     string
		old, now uint32
		anyPort  bool
	}{
		{"nat to fullnat", methodNAT, methodFullNAT, false},
		{"fullnat to nat", methodFullNAT, methodNAT, false},
		{"nat of one port to nat of every port", methodNAT, methodNAT, true},
	} {
		t.Run(x.name, func(t *testing.T) {
			b := newBench(t, smallGeometry())
			m := method{method: x.old, w: world4, server: world4.server}
			b.serveBy(&m)
			b.attach()
			b.now = 5 * time.Second
			first := &play{b: b, m: &m, port: 4242, cnext: 100, snext: 900}
			first.open(t)
			// The host gives the server as it is now another entry, and the slot to that.
			now := m
			now.method = x.now
			e := regs.ServerEntry{ControlValid: 1, ControlKind: kindIPv4, ControlProtocol: protocolTCP, ControlPort: 8080, ControlMethod: x.now, Address: words(m.server)}
			if x.anyPort {
				e.ControlPort, e.TunnelAnyPort = 0, 1
			}
			set(b.m.Server, 5, regs.ServerWords, &e)
			b.fillPorts(5, 100, localPorts)
			set(b.m.Slot, 0, regs.SlotWords, &regs.SlotEntry{SlotServer: 5, SlotValid: 1})
			b.m.Server[regs.ServerControl] |= regs.ServerControlClosedMask
			b.m.Dirty = ^uint32(0)
			second := &play{b: b, m: &now, port: 4243, cnext: 500, snext: 70000}
			if x.anyPort { // whose server takes the client's port: 80
				syn := buildFrame(t, &tcp{from: m.w.client, to: m.w.vip, sport: 4243, dport: 80, seq: 1, flags: flagSYN, srcMAC: clientMAC, dstMAC: portMAC[0]})
				if got := one(t, b.push(0, syn)[1]); got.to != m.server || got.dport != 80 {
					t.Fatalf("the new one's SYN: %v", got)
				}
			} else {
				second.open(t)
			}
			for range 3 {
				first.client(t, flagACK|flagPSH, "to the old one")
				first.server(t, flagACK|flagPSH, "from the old one")
				if len(first.seen)+len(first.told) != 1 {
					t.Fatalf("the old connection: %v, %v", first.seen, first.told)
				}
				if x.anyPort {
					continue
				}
				second.server(t, flagACK|flagPSH, "from the new one")
				if len(second.told) != 1 {
					t.Fatal("the new connection's server is not heard")
				}
				second.client(t, flagACK|flagPSH, "to the new one")
			}
			b.check(t)
		})
	}
}
