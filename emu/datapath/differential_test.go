package datapath

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"os"
	"testing"
	"time"

	"splicenic/emu/cam"
	"splicenic/emu/frame"
	"splicenic/regs"
)

type camKey = cam.Key

// cases is how many random segments the unit is compared with the reference over.
func cases() int {
	if os.Getenv("SPLICE_LONG") != "" {
		return 10_000_000
	}
	if raceEnabled {
		return 20_000
	}
	return 200_000
}

// near is a random number that, with add, often lies around 0 or 2^31.
func near(r *rand.Rand, add uint32) uint32 {
	switch r.IntN(4) {
	case 0:
		return uint32(r.IntN(7)) - 3 - add
	case 1:
		return 1<<31 + uint32(r.IntN(7)) - 3 - add
	case 2:
		return uint32(r.IntN(7)) - 3
	}
	return r.Uint32()
}

// randomOptions makes option bytes: known ones at any offset, unknown ones, illegal ones where legal is false.
func randomOptions(r *rand.Rand, l *leg, side Side, legal bool) (o []byte) {
	takeAck, addVal, takeEcr := l.deltaServer, l.stampClient, l.stampServer
	if side == ServerSide {
		takeAck, addVal, takeEcr = l.deltaClient, l.stampServer, l.stampClient
	}
	limit := 4 * r.IntN(11)
	for len(o) < limit {
		room := limit - len(o)
		switch k := r.IntN(12); {
		case k < 4:
			o = append(o, 1)
		case k < 6 && room >= 10:
			o = append(o, 8, 10)
			o = binary.BigEndian.AppendUint32(o, near(r, addVal))
			ecr := near(r, -takeEcr)
			if r.IntN(8) == 0 {
				ecr = 0
			}
			o = binary.BigEndian.AppendUint32(o, ecr)
		case k < 8 && room >= 10:
			blocks := 1 + r.IntN(min(4, (room-2)/8))
			o = append(o, 5, byte(2+8*blocks))
			for range 2 * blocks {
				o = binary.BigEndian.AppendUint32(o, near(r, -takeAck))
			}
		case k == 8 && room >= 4:
			o = append(o, 2, 4, byte(r.Uint32()), byte(r.Uint32()))
		case k == 9 && room >= 3: // unknown, or a known kind with a length it does not have
			n := 2 + r.IntN(min(room-1, 12))
			o = append(o, []byte{253, 30, 34, 3, 4, 8, 5}[r.IntN(7)], byte(n))
			for range n - 2 {
				o = append(o, byte(r.Uint32()))
			}
			if k := o[len(o)-n]; k == 8 && n == 10 || k == 5 && n == 10 {
				o[len(o)-n] = 253
			}
		case k == 10 && r.IntN(3) == 0: // the end; what follows means nothing
			for o = append(o, 0); len(o) < limit; {
				o = append(o, byte(r.Uint32()))
			}
		case k == 11 && !legal && r.IntN(3) == 0:
			for o = append(o, []byte{8, 5, 253}[r.IntN(3)], []byte{0, 1, byte(room + 1)}[r.IntN(3)]); len(o) < limit; {
				o = append(o, byte(r.Uint32()))
			}
			o = o[:limit]
		}
	}
	return o
}

// randomFlags are those of a segment that is translated in any state: no SYN where FIN and RST may have led to
// quarantine.
func randomFlags(r *rand.Rand, closing bool) byte {
	switch k := r.IntN(16); {
	case k == 0:
		return flagPSH | byte(r.IntN(2))*flagURG
	case k == 1 && closing:
		return flagACK | flagFIN
	case k == 2 && closing:
		return flagRST | byte(r.IntN(2))*flagACK
	case k == 3 && !closing:
		return flagSYN
	case k == 4:
		return flagACK | flagECE | flagCWR
	}
	return flagACK
}

// randomFrame makes a frame of one side of a connection.
func randomFrame(r *rand.Rand, l *leg, side Side, closing bool, buf []byte) (raw []byte, legal bool) {
	flags := randomFlags(r, closing)
	flags |= byte(r.IntN(2)) * flagPSH
	legal = flags&flagSYN != 0 || r.IntN(4) != 0
	src, dst, sport, dport := l.client, l.vip, l.cport, l.vport
	dm, sm := portMAC[0], l.clientMAC
	tag, vlan := l.tagClient, l.vlanClient
	addSeq, takeAck := l.deltaClient, l.deltaServer
	if side == ServerSide {
		src, dst, sport, dport = l.server, l.client, l.sport, l.cport
		dm, sm = portMAC[1], serverMAC
		tag, vlan = l.tagServer, l.vlanServer
		addSeq, takeAck = l.deltaServer, l.deltaClient
	}
	if vlan == 0 && r.IntN(8) == 0 {
		tag = true // a priority tag names no VLAN
	}
	raw = append(append(buf[:0], dm[:]...), sm[:]...)
	if tag {
		raw = append(raw, 0x81, 0, byte(r.IntN(16)<<4)|byte(vlan>>8), byte(vlan))
	}
	opts := randomOptions(r, l, side, legal)
	payload := r.IntN(40)
	if r.IntN(64) == 0 {
		payload = r.IntN(1400)
	}
	length := 20 + len(opts) + payload
	if src.Is4() {
		raw = append(raw, 8, 0, 0x45, byte(r.Uint32()))
		raw = binary.BigEndian.AppendUint16(raw, uint16(20+length))
		raw = append(raw, byte(r.Uint32()), byte(r.Uint32()), byte(r.IntN(2)<<6), 0, byte(2+r.IntN(254)), protocolTCP, 0, 0)
		raw = append(append(raw, src.AsSlice()...), dst.AsSlice()...)
		ip := raw[len(raw)-20:]
		binary.BigEndian.PutUint16(ip[10:], reference(ip))
	} else {
		var ext []byte
		next := byte(protocolTCP)
		for range r.IntN(4) / 2 { // destination or hop-by-hop options, padding only
			h := make([]byte, 8*(1+r.IntN(2)))
			h[0], h[1], h[2], h[3] = next, byte(len(h)/8-1), 1, byte(len(h)-4)
			ext = append(h, ext...)
			next = 60
		}
		if next == 60 && r.IntN(2) == 0 {
			next = 0
		}
		raw = append(raw, 0x86, 0xdd, 0x60|byte(r.IntN(16)), byte(r.Uint32()), byte(r.Uint32()), byte(r.Uint32()))
		raw = binary.BigEndian.AppendUint16(raw, uint16(len(ext)+length))
		raw = append(raw, next, byte(2+r.IntN(254)))
		raw = append(append(raw, src.AsSlice()...), dst.AsSlice()...)
		raw = append(raw, ext...)
	}
	at := len(raw)
	raw = binary.BigEndian.AppendUint16(raw, sport)
	raw = binary.BigEndian.AppendUint16(raw, dport)
	raw = binary.BigEndian.AppendUint32(raw, near(r, addSeq))
	raw = binary.BigEndian.AppendUint32(raw, near(r, -takeAck))
	raw = append(raw, byte(20+len(opts))<<2|byte(r.IntN(16)), flags, byte(r.Uint32()>>r.IntN(9)), byte(r.Uint32()>>r.IntN(9)), 0, 0, byte(r.Uint32()), byte(r.Uint32()))
	raw = append(raw, opts...)
	for range payload {
		raw = append(raw, byte(r.Uint32()))
	}
	pseudo := make([]byte, 0, 2048)
	pseudo = append(append(pseudo, src.AsSlice()...), dst.AsSlice()...)
	pseudo = binary.BigEndian.AppendUint32(pseudo, uint32(length))
	pseudo = append(append(pseudo, 0, 0, 0, protocolTCP), raw[at:]...)
	sum := reference(pseudo)
	if sum == 0 && r.IntN(2) == 0 {
		sum = 0xffff // the other zero
	}
	binary.BigEndian.PutUint16(raw[at+16:], sum)
	for len(raw) < 60 || r.IntN(16) == 0 {
		raw = append(raw, byte(r.Uint32()))
	}
	return raw, legal
}

// randomLeg makes the parameters of a connection to server i.
func randomLeg(r *rand.Rand, i int, w world) *leg {
	l := &leg{client: randomAddress(r, w.client), vip: w.vip, server: w.server, cport: uint16(1 + r.IntN(65535)), vport: 80, sport: 8080, index: i,
		deltaClient: near(r, 0), deltaServer: near(r, 0), stampClient: near(r, 0), stampServer: near(r, 0),
		shiftClient: r.IntN(29) - 14, shiftServer: r.IntN(29) - 14, sack: r.IntN(4) != 0, timestamps: r.IntN(4) != 0, ecn: r.IntN(2) != 0,
		tagServer: w.vlanServer != 0, vlanServer: w.vlanServer}
	if r.IntN(3) == 0 {
		l.tagClient, l.vlanClient = true, uint16(r.IntN(4096))
	}
	if r.IntN(2) == 0 {
		l.deltaClient, l.shiftClient, l.shiftServer = 0, 0, 0
	}
	for j := range l.clientMAC {
		l.clientMAC[j] = byte(r.Uint32()) &^ 1
	}
	return l
}

// randomAddress is a neighbour of an address.
func randomAddress(r *rand.Rand, a netip.Addr) netip.Addr {
	b := a.AsSlice()
	for i := 2; i < len(b); i++ {
		b[i] = byte(r.Uint32())
	}
	a, _ = netip.AddrFromSlice(b)
	return a
}

// TestTranslateAgainstReference compares every byte of every translated frame with the reference's.
func TestTranslateAgainstReference(t *testing.T) {
	b := newBench(t, smallGeometry())
	b.jumbo()
	b.now = time.Second
	worlds := make([]world, 8)
	for i := range worlds {
		w := [2]world{world4, world6}[i%2]
		for range i {
			w.vip, w.server = w.vip.Next(), w.server.Next()
		}
		w.vlanServer = uint16([4]int{0, 0, 5, 4095}[i/2])
		worlds[i] = w
		b.serve(w, i, regs.ServiceEntry{})
	}
	b.push(0)
	seed := uint64(time.Now().UnixNano())
	if os.Getenv("SPLICE_LONG") == "" {
		seed = 1
	}
	r := rand.New(rand.NewPCG(seed, 2))
	raws := make([][]byte, BatchMax)
	for i := range raws {
		raws[i] = make([]byte, 0, 2048)
	}
	for done := 0; done < cases(); {
		b.compare(t, r, worlds, raws, 4)
		done += 4 * BatchMax
	}
	if b.r.Get64(regs.PmuCarries) == 0 || b.r.Get64(regs.PmuWindowClamped) == 0 {
		t.Error("no addition carried, or no window was clamped: the cases do not cover what they should")
	}
}

// compare plants connections, sends some batches of random segments of theirs and takes them away again.
func (b *bench) compare(t *testing.T, r *rand.Rand, worlds []world, raws [][]byte, batches int) {
	var legs []*leg
	var pages []uint32
	for i := range 16 {
		l := randomLeg(r, i%len(worlds), worlds[i%len(worlds)])
		legs, pages = append(legs, l), append(pages, b.plantLeg(l))
	}
	total := func(reg regs.Reg) uint64 { return b.r.Get64(reg) }
	counted := [...]regs.Reg{regs.PmuSackBlocks, regs.PmuTimestamps, regs.PmuSackRemoved, regs.PmuWindowRounded, regs.PmuWindowClamped, regs.PmuEcnCleared}
	var before [len(counted)]uint64
	for i, reg := range counted {
		before[i] = total(reg)
	}
	var want [BatchMax][]byte
	var legal [BatchMax]bool
	closing := r.IntN(4) != 0
	for range batches {
		side := Side(r.IntN(2))
		for i := range BatchMax {
			l := legs[r.IntN(len(legs))]
			raws[i], legal[i] = randomFrame(r, l, side, closing, raws[i])
			want[i] = l.translate(t, side, raws[i])
			f := &b.buf[i]
			f.Start, f.End, f.Offload = frame.Headroom, frame.Headroom+uint32(copy(f.Buf[frame.Headroom:], raws[i])), frame.Offload{}
		}
		b.out.Reset()
		b.c.Process(int(side), b.buf, b.out)
		got := b.out.Ports[1-side]
		if len(got) != BatchMax || len(b.out.Ports[side]) != 0 {
			t.Fatalf("%d frames go on and %d back, want %d and 0", len(got), len(b.out.Ports[side]), BatchMax)
		}
		for i, f := range got {
			if !bytes.Equal(f.Bytes(), want[i]) {
				t.Fatalf("side %d\n in   % x\n got  % x\n want % x", side, raws[i], f.Bytes(), want[i])
			}
			if legal[i] {
				parseFrame(t, f.Bytes())
			}
		}
	}
	var sums [len(counted)]uint64
	for _, l := range legs {
		for i, n := range [...]uint64{l.sackBlocks, l.stamps, l.sackDrops, l.windowsRounded, l.windowsClamped, l.unmarked} {
			sums[i] += n
		}
	}
	for i, reg := range counted {
		if got := total(reg) - before[i]; got != sums[i] {
			t.Fatalf("%s grew by %d, want %d", reg.Name(), got, sums[i])
		}
	}
	for _, n := range pages {
		w := b.c.page(n)
		if State(regs.PageControlState(w[regs.PageControl])) == Quarantine {
			b.c.recycle(n, w)
			continue
		}
		b.c.free(n, w)
	}
}
