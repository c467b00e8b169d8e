package emu_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"splicenic/driver/device"
	"splicenic/emu"
	"splicenic/emu/port"
	"splicenic/regs"
)

// traffic makes frames that reach every state: handshakes of few clients in any order, data, ends, nonsense.
type traffic struct {
	rng *rand.Rand
	isn map[uint16]uint32 // of the card toward a client port, as its SYN-ACK told
}

func (x *traffic) next() (p int, raw []byte) {
	sport := uint16(1000 + x.rng.IntN(40))
	if x.rng.IntN(3) == 0 {
		s := segment{dst: serverMAC, from: serverAddress, to: clientAddress, sport: 8080, dport: sport, seq: 5000 + uint32(x.rng.IntN(3)), ack: 78, flags: flagACK}
		switch x.rng.IntN(6) {
		case 0, 1:
			s.flags |= flagSYN
			s.mss = 1460
		case 2:
			s.flags |= flagFIN
		case 3:
			s.flags = flagRST
		case 4:
			s.payload = []byte("a response")
		}
		return 1, s.build(false)
	}
	s := syn(sport, 77)
	switch x.rng.IntN(8) {
	case 0, 1:
	case 2:
		s.seq, s.ack, s.flags = 78, x.isn[sport]+1, flagACK
	case 3, 4:
		s.seq, s.ack, s.flags, s.payload = 78, x.isn[sport]+1, flagACK, []byte(request)
	case 5:
		s.seq, s.ack, s.flags = 78+uint32(len(request)), x.isn[sport]+1+uint32(x.rng.IntN(20)), flagACK|flagFIN
	case 6:
		s.seq, s.ack, s.flags = 78, 0, flagRST
	case 7:
		return 0, append(peerFrame(clientMAC, 0x0806), byte(sport))
	}
	return 0, s.build(false)
}

// learn notes the card's sequence numbers.
func (x *traffic) learn(out []sent) {
	for _, f := range out {
		if len(f.bytes) >= 54 && f.port == 0 && f.bytes[47] == flagSYN|flagACK {
			x.isn[uint16(f.bytes[36])<<8|uint16(f.bytes[37])] = uint32(f.bytes[38])<<24 | uint32(f.bytes[39])<<16 | uint32(f.bytes[40])<<8 | uint32(f.bytes[41])
		}
	}
}

func (x *traffic) clone(seed uint64) *traffic {
	return &traffic{rand.New(rand.NewPCG(seed, 1)), maps.Clone(x.isn)}
}

// visible is the card's state as a host can read it, region by region, with the secrets as they were stored.
func (h *host) visible() *emu.State {
	s := &emu.State{Registers: map[uint32]uint32{}, Secrets: map[string]uint32{}}
	for i := range regs.Blocks {
		b := &regs.Blocks[i]
		for inst := range b.Instances {
			for j := range b.Registers {
				r := &b.Registers[j]
				for e := range r.Count {
					at := b.Offset + uint32(inst)*b.Stride + r.Offset + e*r.Stride
					for w := uint32(0); w < r.Bytes(); w += 4 {
						if r.Access != regs.WO {
							s.Registers[at+w] = h.load(regs.Reg(at + w))
						}
					}
				}
			}
		}
	}
	for i := range 2 {
		for j := range regs.TransmitIsnKeyCount {
			s.Secrets[regs.TransmitIsnKey.At(i, regs.TransmitStride).At(j, regs.TransmitIsnKeyStride).Name()] = secret(i, j)
		}
	}
	for j := range regs.DefenceKeyCount {
		s.Secrets[regs.DefenceKey.At(j, regs.DefenceKeyStride).Name()] = secret(2, j)
	}
	for i := range regs.Memories {
		m := &regs.Memories[i]
		for bank := range m.Banks { // the small geometry fills no more than this of a bank
			p := h.memory(m.At(bank, 0), int(min(1<<20, uint64(m.Max)*uint64(m.EntryBytes))))
			s.Windows = append(s.Windows, emu.Window{Offset: m.At(bank, 0), Bytes: p})
		}
	}
	s.Config, s.Msix = make([]byte, 4096), make([]byte, 0x8008)
	if err := errors.Join(h.card.ReadConfig(0, s.Config), h.card.ReadRegion(device.Bar4, 0, s.Msix)); err != nil {
		h.Fatal(err)
	}
	return s
}

func secret(i, j int) uint32 { return 0x1234_5678*uint32(i+1) + uint32(j) }

func newStateHost(t *testing.T) *host {
	h := newHost(t, emu.Config{Seed: 9}, port.MemConfig{Queue: 2048})
	for i := range 2 {
		for j := range regs.TransmitIsnKeyCount {
			h.store(regs.TransmitIsnKey.At(i, regs.TransmitStride).At(j, regs.TransmitIsnKeyStride), secret(i, j))
		}
	}
	for j := range regs.DefenceKeyCount {
		h.store(regs.DefenceKey.At(j, regs.DefenceKeyStride), secret(2, j))
	}
	return h
}

// run gives the card frames in batches of any size and returns all it sends.
func (h *host) run(x *traffic, frames int) (out []sent) {
	h.Helper()
	for frames > 0 {
		for range min(frames, x.rng.IntN(100)) {
			p, raw := x.next()
			h.send(p, raw, noOffload)
			frames--
		}
		h.now += 37e6
		h.card.Step(h.now)
		h.card.Step(h.now)
		got := h.drain()
		x.learn(got)
		out = append(out, got...)
		// The host keeps up with its rings.
		for _, ring := range []int{regs.RingException, regs.RingEvent, regs.RingCompletion} {
			h.store(regs.RingConsumer.At(ring, regs.RingStride), h.load(regs.RingProducer.At(ring, regs.RingStride)))
		}
	}
	return out
}

// defend has the card answer with cookies, whose secrets change every second, and count SYNs by source.
func (h *host) defend(mode uint32) {
	h.entry(regs.MemService, 0, 0, &regs.ServiceEntry{ControlValid: 1, ControlHasDefault: 1, PromiseMssIpv4: 1460, PromiseMssIpv6: 1440, ControlDefence: mode})
	for _, x := range []struct {
		r regs.Reg
		v uint32
	}{
		{regs.DefencePeriod, 1000}, {regs.DefenceRateOn, 60}, {regs.DefenceRateOff, 60}, {regs.DefenceCalm, 100},
		{regs.DefenceSourceRate, 25}, {regs.DefenceSourceBurst, 10},
	} {
		h.store(x.r, x.v)
	}
}

// TestNoHiddenState stops a card between two steps, reads everything a host can read, gives it to a fresh card with a
// copy of host memory, and finds no difference from then on.
func TestNoHiddenState(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			frames := 100_000
			a := newStateHost(t)
			a.serve()
			if seed > 1 {
				a.defend(regs.ServiceControlDefenceAuto + uint32(seed) - 2)
				frames = 40_000
			}
			x := &traffic{rand.New(rand.NewPCG(seed, 7)), map[uint16]uint32{}}
			a.run(x, 5_000+int(seed)*777)
			// Stop in the middle of a bulk command.
			a.post(bulk(regs.CommandControlTypeRead, regs.MemHeadOffset, 400_000, a.frames.IOVA)) // runs past the buffers: fails later
			a.step()
			state := a.visible()

			b := newStateHost(t)
			if err := b.card.Restore(state); err != nil {
				t.Fatal(err)
			}
			b.now, b.sequence, b.producer, b.consumer = a.now, a.sequence, a.producer, a.consumer
			for i := range a.rings {
				if a.rings[i].IOVA != b.rings[i].IOVA {
					t.Fatal("the rings lie elsewhere")
				}
				copy(b.rings[i].Bytes, a.rings[i].Bytes)
			}
			copy(b.frames.Bytes, a.frames.Bytes)
			gotA, gotB := a.run(x.clone(seed), frames), b.run(x.clone(seed), frames)
			compareSent(t, gotA, gotB)
			for i := range a.rings {
				if !bytes.Equal(a.rings[i].Bytes, b.rings[i].Bytes) {
					t.Errorf("ring %d differs", i)
				}
			}
			if !bytes.Equal(a.frames.Bytes, b.frames.Bytes) {
				t.Error("exceptions differ")
			}
			compareState(t, a.card.Snapshot(), b.card.Snapshot())
			if a.load(regs.ConnectionSpliced) == 0 || a.load(regs.ConnectionClosedRst) == 0 {
				t.Errorf("%d connections spliced, %d reset: the traffic reaches too little", a.load(regs.ConnectionSpliced), a.load(regs.ConnectionClosedRst))
			}
			if seed > 1 && (a.load(regs.DefenceCookieValid) == 0 || a.load(regs.DefenceSwitchedOff) == 0 || a.load(regs.DefenceSourceLimited) == 0) {
				t.Errorf("%d cookies came back, the stage ended %d times, %d SYNs limited: the traffic reaches too little",
					a.load(regs.DefenceCookieValid), a.load(regs.DefenceSwitchedOff), a.load(regs.DefenceSourceLimited))
			}
			t.Logf("%d frames sent, %d connections opened, %d spliced", len(gotA), a.load(regs.ConnectionOpened), a.load(regs.ConnectionSpliced))
		})
	}
}

func compareSent(t *testing.T, a, b []sent) {
	t.Helper()
	for i := range min(len(a), len(b)) {
		if a[i].port != b[i].port || !bytes.Equal(a[i].bytes, b[i].bytes) || a[i].offload != b[i].offload {
			t.Fatalf("frame %d:\n% x\n% x", i, a[i].bytes, b[i].bytes)
		}
	}
	if len(a) != len(b) {
		t.Fatalf("%d frames and %d", len(a), len(b))
	}
}

func compareState(t *testing.T, a, b *emu.State) {
	t.Helper()
	for _, r := range slices.Sorted(maps.Keys(a.Registers)) {
		if a.Registers[r] != b.Registers[r] {
			t.Errorf("%s = %#x and %#x", regs.Reg(r).Name(), a.Registers[r], b.Registers[r])
		}
	}
	if !maps.Equal(a.Secrets, b.Secrets) {
		t.Error("secrets differ")
	}
	if !slices.EqualFunc(a.Windows, b.Windows, func(v, w emu.Window) bool { return v.Offset == w.Offset && bytes.Equal(v.Bytes, w.Bytes) }) {
		t.Error("memories differ")
	}
	if !bytes.Equal(a.Config, b.Config) || !bytes.Equal(a.Msix, b.Msix) {
		t.Error("configuration space or BAR4 differ")
	}
}

// TestSnapshotRestore: a snapshot is the whole state, and restoring it over another state leaves nothing of that.
func TestSnapshotRestore(t *testing.T) {
	a := newStateHost(t)
	a.serve()
	x := &traffic{rand.New(rand.NewPCG(1, 7)), map[uint16]uint32{}}
	a.run(x, 3000)
	before, now := a.card.Snapshot(), a.now
	first := a.run(x.clone(1), 3000)
	if err := a.card.Restore(before); err != nil {
		t.Fatal(err)
	}
	compareState(t, before, a.card.Snapshot())
	a.now = now
	compareSent(t, first, a.run(x.clone(1), 3000))
}

func TestRestoreRefused(t *testing.T) {
	b := newBench(t, emu.Config{}, port.MemConfig{})
	for name, s := range map[string]*emu.State{
		"no register": {Registers: map[uint32]uint32{0xf0000: 1}},
		"geometry":    {Registers: map[uint32]uint32{uint32(regs.GeometryPages): 5}},
		"short space": {Config: make([]byte, 256)},
		"no secret":   {Secrets: map[string]uint32{"transmit.isn": 1}},
	} {
		if err := b.card.Restore(s); err == nil {
			t.Errorf("%s: restored", name)
		}
	}
}

// TestDeterminism: the same seed and input give the same output.
func TestDeterminism(t *testing.T) {
	run := func() []sent {
		a := newStateHost(t)
		a.serve()
		return a.run(&traffic{rand.New(rand.NewPCG(4, 7)), map[uint16]uint32{}}, 10_000)
	}
	compareSent(t, run(), run())
}

// TestLongReads reads BAR2 over the borders of windows.
func TestLongReads(t *testing.T) {
	b := newBench(t, emu.Config{}, port.MemConfig{})
	b.serve()
	p := make([]byte, 8<<20)
	if err := b.card.ReadRegion(device.Bar2, regs.MemListenerOffset, p); err != nil {
		t.Fatal(err)
	}
	if p[0] == 0 || p[regs.MemVipOffset-regs.MemListenerOffset] == 0 {
		t.Error("entries missing")
	}
}
