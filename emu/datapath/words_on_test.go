//go:build pagewords

package datapath

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/google/gopacket/layers"

	"splicenic/emu/frame"
	"splicenic/regs"
)

const countsPageWords = true

// Bounds of what a translated packet touches.
const (
	maxLoads  = 24
	maxStores = 8

	maxStretched = 6 // loads more, of a connection that the host reads along on

	// What goes to a local address has no client in it. What an IPv6 client takes more than an IPv4 one comes on top where more than the
	// numbers of the segment count: while bytes are held, at a connection's end, and for coalesced packets.
	addressLoads = 3
)

func marked(words *[regs.PageWords]bool) (n int) {
	for _, m := range words {
		if m {
			n++
		}
	}
	return n
}

// TestPageWords holds every mix of direction, family, options and circumstances to the bounds.
func TestPageWords(t *testing.T) {
	b := newBench(t, smallGeometry())
	b.now = time.Hour
	worlds := []world{world4, world6}
	worlds[1].vlanServer = 9
	for i, w := range worlds {
		b.serve(w, i, regs.ServiceEntry{})
	}
	b.push(0)
	options := map[string][]layers.TCPOption{
		"none": nil, "timestamps": {optNop, optNop, optTS(7, 8)},
		"one block":    {optNop, optNop, sackBlocks(1)},
		"four blocks":  {optNop, optNop, sackBlocks(4)},
		"three and ts": {optTS(7, 8), optNop, optNop, sackBlocks(3)},
		"odd offsets":  {optNop, optTS(1, 2), optNop, optNop, optNop, sackBlocks(1), optNop},
		"unknown":      {{OptionType: 253, OptionLength: 6, OptionData: []byte{1, 2, 3, 4}}},
	}
	flags := map[string]uint8{"ACK": flagACK, "FIN": flagACK | flagFIN, "RST": flagRST, "no ACK": flagPSH, "SYN": flagSYN}
	mostLoads, mostStores, n := 0, 0, 0
	for i, w := range worlds {
		for side := range Side(sides) {
			for fname, fl := range flags {
				for oname, opts := range options {
					for bits := range 512 {
						x := wordsCase{payload: bits&1 != 0, carry: bits&2 != 0, held: bits&4 != 0, otherFIN: bits&8 != 0, gso: bits&16 != 0, legB: bits&32 != 0, last: bits&64 != 0, modular: bits&128 != 0, fullnat: bits&256 != 0}
						if !x.possible(fl, side) {
							continue
						}
						loads, stores := b.countWords(t, i, w, side, fl, opts, x)
						if x.modular {
							loads -= maxStretched
						}
						bound := maxLoads
						if x.fullnat && side == ServerSide && w.kind == kindIPv6 && (x.held || x.otherFIN || x.gso || x.carry || fl&flagFIN != 0) {
							bound += addressLoads
						}
						if loads > bound || stores > maxStores {
							t.Errorf("%v, side %d, %s, %s, %+v: %d loads and %d stores", w.client, side, fname, oname, x, loads, stores)
						}
						mostLoads, mostStores = max(mostLoads, loads), max(mostStores, stores)
						n++
					}
				}
			}
		}
	}
	t.Logf("%d mixes: at most %d words read and %d written", n, mostLoads, mostStores)
	if n < 1000 || mostLoads < 22 || mostStores < 8 {
		t.Errorf("%d mixes, %d and %d words: this cannot be all", n, mostLoads, mostStores)
	}
}

// wordsCase is what lies in the page rather than in the segment.
type wordsCase struct{ payload, carry, held, otherFIN, gso, legB, last, modular, fullnat bool }

func (x wordsCase) possible(flags uint8, side Side) bool {
	switch {
	case x.gso && (!x.payload || flags&(flagSYN|flagRST) != 0 || flags&flagACK == 0):
		return false
	case x.carry && !x.payload, x.legB && x.held, x.last && x.legB, x.modular && (x.fullnat || x.held || x.legB || x.last || flags&flagSYN != 0):
		return false
	}
	return true
}

func sackBlocks(n int) layers.TCPOption {
	o := layers.TCPOption{OptionType: layers.TCPOptionKindSACK, OptionLength: uint8(2 + 8*n)}
	for i := range 2 * n {
		o.OptionData = append(o.OptionData, u32(uint32(1000+i))...)
	}
	return o
}

// countWords sends one segment of a connection and counts what it touches.
func (b *bench) countWords(t *testing.T, index int, w world, side Side, flags uint8, opts []layers.TCPOption, x wordsCase) (loads, stores int) {
	r := rand.New(rand.NewPCG(1, uint64(side)))
	l := randomLeg(r, index, w)
	l.client, l.sack, l.timestamps, l.shiftClient, l.shiftServer = w.client, true, true, 3, -3
	n := b.plantLeg(l)
	p := b.c.page(n)
	if x.fullnat {
		b.moveToLocal(t, n, p, w)
	}
	if x.legB {
		b.moveToLegB(t, n, p)
	}
	if x.carry {
		p[regs.PageBytesClient], p[regs.PageBytesServer] = ^uint32(0), ^uint32(0)
	}
	const fins = regs.PageClientLinkFinClientMask | regs.PageClientLinkFinServerMask
	if x.otherFIN { // the last ACK ends the connection, which is the management unit's
		p[regs.PageClientLink] |= fins
		p[regs.PageFinServer], p[regs.PageFinClient] = 1<<30, 1<<30
		p[regs.PageControl] = regs.SetPageControlState(p[regs.PageControl], uint32(Closing))
	}
	seq, ack := uint32(1000), uint32(2000)
	// The receiver takes the segment, which brings something new in every respect.
	cseq, cack := seq, ack
	if side == ServerSide {
		cseq, cack = seq+l.deltaServer, ack-l.deltaClient
	}
	for _, leg := range []int{0, legWords} {
		own, other := leg+markWords*int(side), leg+markWords*int(1-side)
		p[regs.PageASeqClient+own], p[regs.PageAAckClient+own] = cseq, cack-1
		p[regs.PageASeqClient+other], p[regs.PageAAckClient+other] = cack, cseq
		p[regs.PageAWindow+leg] = 60 | 60<<regs.PageAWindowServerShift
	}
	if x.held {
		p[regs.PageHeldBoundary] = cseq
		if side == ServerSide {
			p[regs.PageHeldBoundary] = cack
		}
		p[regs.PageAIsn] = p[regs.PageHeldBoundary] + p[regs.PageADeltaClient] - 2
		b.c.takeHead(p)
		p[regs.PageHead] = regs.SetPageHeadBytes(p[regs.PageHead], 1)
		p[regs.PageControl] |= regs.PageControlHeldMask | regs.PageControlDeadlineMask
	}
	if x.last { // the segment ends behind it
		p[regs.PageClientLink] |= regs.PageClientLinkLastRequestMask
		p[regs.PageBoundaryClient] = cseq
		if x.payload {
			p[regs.PageBoundaryClient] += 100
		}
		if x.otherFIN && flags&(flagACK|flagRST|flagSYN) == flagACK { // or lies behind it, and goes on as an acknowledgement
			p[regs.PageBoundaryClient] = cseq - 10
		}
	}
	s := tcp{from: w.client, to: w.vip, sport: l.cport, dport: 80, seq: seq, ack: ack, flags: flags, options: opts, vlan: l.vlanClient, window: 77, srcMAC: clientMAC, dstMAC: portMAC[0]}
	if side == ServerSide {
		s.from, s.to, s.sport, s.dport, s.vlan = w.server, w.client, 8080, l.cport, w.vlanServer
		if x.fullnat {
			s.to = localOf(w)
		}
	}
	if x.payload {
		s.payload = make([]byte, 600)
	}
	raw := buildFrame(t, &s)
	f := &b.buf[0]
	f.Start, f.End, f.Offload = frame.Headroom, frame.Headroom+uint32(copy(f.Buf[frame.Headroom:], raw)), frame.Offload{}
	if x.gso {
		offload(f, 100)
	}
	if x.modular {
		p[regs.PageClientLink] |= regs.PageClientLinkPassedMask
		p[regs.PageControl] = regs.SetPageControlHostReason(p[regs.PageControl], reasonModule)
		setPivot(p, side, pivot{at: seq + 50, before: 3, after: 5})
		setPivot(p, 1-side, pivot{at: ack - 50, after: 5})
		b.c.asked.done = true
		defer func() { b.c.asked.done = false }()
	}
	b.out.Reset()
	pageLoads, pageStores = [regs.PageWords]bool{}, [regs.PageWords]bool{}
	b.c.Process(int(side), b.buf[:1], b.out)
	loads, stores = marked(&pageLoads), marked(&pageStores)
	if got := b.out.Ports[1-side]; len(got) != 1 || got[0] != f {
		t.Fatalf("not translated: %+v, flags %#x, side %d", x, flags, side)
	}
	if State(regs.PageControlState(p[regs.PageControl])) == Quarantine {
		b.c.recycle(n, p)
	} else {
		b.c.free(n, p)
	}
	return loads, stores
}

// moveToLegB makes leg set B the one in force in both directions.
func (b *bench) moveToLegB(t *testing.T, n uint32, p *page) {
	t.Helper()
	copy(p[regs.PageBIndex:regs.PageBIndex+legWords], p[regs.PageAIndex:])
	p[regs.PageControl] |= regs.PageControlLegBMask
	p[regs.PageBoundaryClient] = 10
	k, h := b.c.serverKey(p, 0)
	b.c.cams[ServerSide].Erase(&k, h)
	if b.c.cams[ServerSide].Insert(&k, h, handleOf(n, p), true) != 0 {
		t.Fatal("insert of leg B")
	}
}

// TestPassedPageWords holds passed packets to the same bounds.
func TestPassedPageWords(t *testing.T) {
	for name, mode := range passModes {
		b := newBench(t, smallGeometry())
		fs := passedFlows(t, b, mode, 4)
		for side := range fs {
			if fs[side] == nil {
				continue
			}
			f := &b.buf[0]
			f.Start, f.End, f.Offload = frame.Headroom, frame.Headroom+uint32(copy(f.Buf[frame.Headroom:], fs[side][1][:])), frame.Offload{}
			pageLoads, pageStores = [regs.PageWords]bool{}, [regs.PageWords]bool{}
			b.out.Reset()
			b.c.Process(side, b.buf[:1], b.out)
			if loads, stores := marked(&pageLoads), marked(&pageStores); loads > maxLoads || stores > maxStores || loads == 0 {
				t.Errorf("%s, side %d: %d loads and %d stores", name, side, loads, stores)
			}
		}
	}
}

func localOf(w world) netip.Addr {
	if w.client.Is4() {
		return netip.MustParseAddr("198.18.1.100")
	}
	return netip.MustParseAddr("2001:db8:1::100")
}

// moveToLocal makes the server answer to a local address.
func (b *bench) moveToLocal(t *testing.T, n uint32, p *page, w world) {
	t.Helper()
	i := 4 + w.kind
	set(b.m.LocalAddress, int(i), regs.AddressWords, &regs.AddressEntry{ControlValid: 1, ControlKind: w.kind, Address: words(localOf(w))})
	b.m.Dirty = ^uint32(0)
	b.c.Sync()
	k, h := b.c.serverKey(p, 0)
	b.c.cams[ServerSide].Erase(&k, h)
	p[regs.PageAIndex] = regs.SetPageAIndexLocalAddress(regs.SetPageAIndexAnswers(p[regs.PageAIndex], answersLocal), i)
	p[regs.PageAChecksum] = b.c.differences(p)
	k, h = b.c.serverKey(p, 0)
	if b.c.cams[ServerSide].Insert(&k, h, handleOf(n, p), false) != 0 {
		t.Fatal("insert of a local key")
	}
}
