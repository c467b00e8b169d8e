package datapath

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"github.com/google/gopacket/layers"

	"splicenic/emu/frame"
	"splicenic/regs"
)

// restore brings a card back to a snapshot of its own.
func (b *bench) restore(s snapshot) {
	for i, v := range s.registers {
		b.r.Set(dataPathWords()[i], v)
	}
	for name, w := range memories(b.m) {
		if name != "heads" {
			copy(w, s.memories[name])
		}
	}
	b.m.Dirty = 0
	b.c.Reindex()
	b.out.Reset()
}

// populated makes a small card with connections of both families in every state, and a frame of each end of each of
// them as seeds.
func populated(t testing.TB) (b *bench, s snapshot, seeds [][2][]byte) {
	g := tiny(32)
	g.CamClientWords, g.CamServerWords = 64, 64
	b = newBench(t, g)
	tagged := world4
	tagged.vlanClient, tagged.vlanServer = 7, 9
	tagged.vip, tagged.server = world4.vip.Next(), world4.server.Next()
	worlds := []world{world4, world6, tagged}
	for i, w := range worlds {
		b.serve(w, i, full)
	}
	b.attach()
	b.now = time.Second
	opts := []layers.TCPOption{optMSS(1460), optSACK, optTS(9, 0), optNop, optWscale(7)}
	for i, w := range worlds {
		for state := SynRcvd; state <= Quarantine; state++ {
			c := &conn{b: b, w: w, port: uint16(40000 + 10*i + int(state)), cseq: 0xffffff80, sseq: 0x7fffff80, opts: opts, sopts: opts}
			for st := SynRcvd; st <= state; st++ {
				c.seedStep(st)
			}
			seeds = append(seeds, [2][]byte{c.client(flagACK|flagPSH, request, optNop, optNop, optTS(10, 11)), c.server(flagACK, "response", optNop, optNop, optTS(12, 13))},
				[2][]byte{c.client(flagSYN, "", opts...), c.server(flagSYN|flagACK, "", opts...)},
				[2][]byte{c.client(flagFIN|flagACK, ""), c.server(flagRST|flagACK, "")})
		}
	}
	for i, e := range []regs.ServiceEntry{{ControlProtocol: regs.ServiceControlProtocolTls}, {ControlProtocol: regs.ServiceControlProtocolTcp, ControlServerFirst: 1},
		{ControlHasH2c: 1, Fallback: 200}, {ControlRewrite: 1}} {
		w := world4
		for range 4 + i {
			w.vip, w.server = w.vip.Next(), w.server.Next()
		}
		b.serve(w, len(worlds)+i, e)
		c := &conn{b: b, w: w, port: 41000, cseq: 0xffffff80, sseq: 0x7fffff80, opts: plainOptions, sopts: plainOptions}
		c.seedStep(SynRcvd)
		c.seedStep(WaitHead)
		for _, says := range []string{hello, preface, request} {
			x := *c
			seeds = append(seeds, [2][]byte{x.client(flagACK|flagPSH, says), x.server(flagSYN|flagACK, "", plainOptions...)},
				[2][]byte{x.client(flagACK|flagFIN, "more"), x.server(flagACK, "response")})
		}
	}
	for n := uint32(0); n < g.Pages; n += 2 { // of the spliced, half have but one request
		if w := b.c.page(n); w[regs.PageAScale]&regs.PageAScaleArmedMask != 0 {
			w[regs.PageClientLink] |= regs.PageClientLinkLastRequestMask
			w[regs.PageBoundaryClient] = w[regs.PageASeqClient] + 10
		}
	}
	b.r.Set(regs.HostifEvents, ^uint32(0))
	b.exceptions()
	b.events()
	return b, b.snapshot(), seeds
}

// seedStep brings a connection on by one state, without a check; the ends' numbers go with it.
func (c *conn) seedStep(s State) {
	b := c.b
	switch s {
	case SynRcvd:
		c.cack = b.push(0, c.client(flagSYN, "", c.opts...))[0][0].seq + 1
		c.sack = c.cseq
	case WaitHead:
		b.push(0, c.client(flagACK, ""))
	case ServerSyn:
		b.push(0, c.client(flagACK, request))
	case Spliced:
		b.push(1, c.server(flagSYN|flagACK, "", c.sopts...)) // and the request stays held
	case Closing:
		c.sack = c.cseq
		b.push(1, c.server(flagACK, ""))
		b.push(0, c.client(flagFIN|flagACK, ""))
	case Quarantine:
		c.sack = c.cseq
		b.push(1, c.server(flagFIN|flagACK, ""))
		c.cack++
		b.push(0, c.client(flagACK, ""))
	}
}

// Modes of a fuzzed frame, in the byte before it.
const (
	modePort    = 1 << iota // the server's port
	modeSums                // give it right checksums, as far as it has headers
	modeOffload             // and an offload header
	modeTime                // let time pass before it; the upper three bits say how much
	modeGarbled             // offload header from its own bytes
)

// split reads an input: frames behind a mode byte and a length of two bytes.
func split(data []byte, each func(mode byte, raw []byte)) {
	for n := 0; len(data) >= 3 && n < 16; n++ {
		size := min(int(binary.BigEndian.Uint16(data[1:])), len(data)-3, 4000)
		each(data[0], data[3:3+size])
		data = data[3+size:]
	}
}

func pack(mode byte, raw []byte) []byte {
	return append([]byte{mode, byte(len(raw) >> 8), byte(len(raw))}, raw...)
}

// layout finds IP and TCP of a frame, or says that there are none with room for a sum.
func layout(b []byte) (ip, tcp, end int, ok bool) {
	if len(b) < 34 {
		return 0, 0, 0, false
	}
	ip = 14
	ether := binary.BigEndian.Uint16(b[12:])
	if ether == etherVLAN {
		ip, ether = 18, binary.BigEndian.Uint16(b[16:])
	}
	next := byte(0)
	switch {
	case ether == etherIPv4 && len(b) >= ip+20:
		tcp, end, next = ip+int(b[ip]&15)*4, ip+int(binary.BigEndian.Uint16(b[ip+2:])), b[ip+9]
	case ether == etherIPv6 && len(b) >= ip+40:
		tcp, end, next = ip+40, ip+40+int(binary.BigEndian.Uint16(b[ip+4:])), b[ip+6]
		for n := 0; n < 8 && (next == 0 || next == 43 || next == 60) && tcp+8 <= min(end, len(b)); n++ {
			next, tcp = b[tcp], tcp+8+8*int(b[tcp+1])
		}
	default:
		return 0, 0, 0, false
	}
	return ip, tcp, end, next == protocolTCP && tcp >= ip+20 && tcp+20 <= end && end <= len(b)
}

// pseudoHeader is the TCP pseudo-header of a frame.
func pseudoHeader(b []byte, ip, tcp, end int) []byte {
	var p []byte
	if b[ip]>>4 == 4 {
		p = append(p, b[ip+12:ip+20]...)
	} else {
		p = append(p, b[ip+8:ip+40]...)
	}
	n := end - tcp
	return append(p, 0, 0, byte(n>>8), byte(n), 0, protocolTCP)
}

// mend gives a frame right sums where it has the headers for them, and says whether it had.
func mend(b []byte, partial bool) bool {
	ip, tcp, end, ok := layout(b)
	if !ok {
		return false
	}
	if b[ip]>>4 == 4 && tcp <= end {
		b[ip+10], b[ip+11] = 0, 0
		binary.BigEndian.PutUint16(b[ip+10:], reference(b[ip:tcp]))
	}
	pseudo := pseudoHeader(b, ip, tcp, end)
	b[tcp+16], b[tcp+17] = 0, 0
	if partial {
		binary.BigEndian.PutUint16(b[tcp+16:], ^reference(pseudo))
		return true
	}
	binary.BigEndian.PutUint16(b[tcp+16:], reference(append(pseudo, b[tcp:end]...)))
	return true
}

// checkSums recomputes the sums of an emitted frame in full.
func checkSums(t *testing.T, f *frame.Frame) {
	t.Helper()
	b := f.Bytes()
	ip, tcp, end, ok := layout(b)
	if !ok || end != len(b) {
		t.Fatalf("emitted what is no TCP segment up to its end: % x", b)
	}
	if b[ip]>>4 == 4 && reference(b[ip:tcp]) != 0 {
		t.Fatalf("emitted with a wrong IPv4 sum: % x", b)
	}
	pseudo := pseudoHeader(b, ip, tcp, end)
	if f.Offload.GSOType != frame.GSONone {
		if got, want := binary.BigEndian.Uint16(b[tcp+16:]), ^reference(pseudo); got != want || int(f.Offload.CsumStart) != tcp || f.Offload.GSOSize == 0 {
			t.Fatalf("emitted coalesced with sum %#x, want %#x, offload %+v, TCP at %d: % x", got, want, f.Offload, tcp, b)
		}
		return
	}
	if f.Offload != (frame.Offload{}) || reference(append(pseudo, b[tcp:]...)) != 0 {
		t.Fatalf("emitted with a wrong TCP sum, or offload header %+v: % x", f.Offload, b)
	}
}

// accounts are the counters that say what became of a frame.
type accounts struct{ drops, classes, exceptions, reasons, acted uint64 }

func (b *bench) accounts() (a accounts) {
	for port := range regs.Reg(2) {
		at := port * regs.ParserStride
		for r := regs.ParserDropTruncated; r <= regs.ParserDropOffload; r += 8 {
			a.drops += b.r.Get64(r + at)
		}
		a.classes += b.r.Get64(regs.ParserClassSyn+at) + b.r.Get64(regs.ParserClassRequest+at) + b.r.Get64(regs.ParserClassOrdinary+at)
		a.exceptions += b.r.Get64(regs.ParserClassException + at)
		for r := regs.ParserExceptionNotIp; r <= regs.ParserExceptionNoMatch; r += 8 {
			a.reasons += b.r.Get64(r + at)
		}
	}
	a.acted = b.r.Get64(regs.PmuTranslatedClient) + b.r.Get64(regs.PmuTranslatedServer)
	for r := regs.ConnectionOpened; r <= regs.ConnectionDropLastRequest; r += 8 {
		a.acted += b.r.Get64(r)
	}
	for _, r := range []regs.Reg{regs.AmuNoPage, regs.AmuNoCamPlace, regs.AmuDisabled, regs.HeadNoneFree, regs.TransmitSyn + clientEnd, regs.TransmitSyn + serverEnd, regs.TransmitAck + clientEnd} {
		a.acted += b.r.Get64(r)
	}
	for n := range b.m.Geometry.Pages {
		w := b.c.page(n)
		a.acted += uint64(w[regs.PagePacketsClient]) + uint64(w[regs.PagePacketsServer])
	}
	return a
}

// fuzzed runs one frame and holds the card to its books.
func (b *bench) fuzzed(t *testing.T, mode byte, raw []byte) {
	if mode&modeTime != 0 {
		b.now += time.Duration(mode>>5)*300*time.Millisecond + time.Millisecond
		b.c.Advance(b.now)
		for done := false; !done; {
			done = b.c.Scan(b.out)
			b.emitted(t)
		}
		b.exceptions() // of servers that were silent
	}
	f := &b.buf[0]
	f.Start, f.End, f.Offload = frame.Headroom, frame.Headroom+uint32(copy(f.Buf[frame.Headroom:], raw)), frame.Offload{}
	if mode&modeSums != 0 && mend(f.Bytes(), mode&modeOffload != 0) && mode&modeOffload != 0 {
		offloadAnywhere(f)
	}
	if mode&modeGarbled != 0 && len(raw) > 10 {
		o := &f.Offload
		o.Flags, o.GSOType, o.HdrLen, o.GSOSize = raw[0], raw[1], binary.BigEndian.Uint16(raw[2:]), binary.BigEndian.Uint16(raw[4:])
		o.CsumStart, o.CsumOffset = binary.BigEndian.Uint16(raw[6:]), binary.BigEndian.Uint16(raw[8:])
	}
	before := b.accounts()
	b.c.Process(int(mode&modePort), b.buf[:1], b.out)
	after := b.accounts()
	dropped, classed, given := after.drops-before.drops, after.classes-before.classes, after.exceptions-before.exceptions
	if dropped+classed+given != 1 {
		t.Fatalf("a frame counts as %d drops, %d of a class, %d exceptions: % x", dropped, classed, given, raw)
	}
	if classed == 1 && after.acted == before.acted {
		t.Fatalf("a frame of a class leaves no trace: % x", raw)
	}
	got := b.exceptions()
	if uint64(len(got)) != given {
		t.Fatalf("%d exceptions counted, %d given", given, len(got))
	}
	if given == 1 && after.reasons-before.reasons != 1 {
		switch r := got[0].ReasonReason; r {
		case reasonBad, reasonNoRule, reasonNoServer, reasonHeadLarge, reasonHeadMore, reasonServerFailed, reasonKeyExists, reasonRewrite, reasonRuleHost, reasonAnswer,
			reasonNotHTTP, reasonNotTLS, reasonH2C, reasonBadHello: // the URL table and the connection count these
		default:
			t.Fatalf("an exception of reason %d is counted by no reason", r)
		}
	}
	b.emitted(t)
	b.events()
}

// offloadAnywhere is offload for a frame with extension headers or illegal sizes.
func offloadAnywhere(f *frame.Frame) {
	ip, tcp, _, _ := layout(f.Bytes())
	f.Offload = frame.Offload{Flags: frame.NeedsChecksum, GSOType: frame.GSOTCP4, GSOSize: 100, CsumStart: uint16(tcp), CsumOffset: 16, HdrLen: uint16(tcp) + 20}
	if f.Bytes()[ip]>>4 == 6 {
		f.Offload.GSOType = frame.GSOTCP6
	}
}

func (b *bench) emitted(t *testing.T) {
	for p := range b.out.Ports {
		for _, f := range b.out.Ports[p] {
			checkSums(t, f)
		}
	}
	b.out.Reset()
}

// FuzzFrame sends raw frames to a card with connections in every state: no panic, every frame accounted for once, every
// emitted frame with right sums, no page lost or given twice.
func FuzzFrame(f *testing.F) {
	b, s, seeds := populated(f)
	for _, x := range seeds {
		f.Add(append(pack(modeSums, x[0]), pack(modeSums|modePort, x[1])...))
		f.Add(append(pack(modeSums|modePort|modeOffload, x[1]), pack(modeSums|modeTime|0x60, x[0])...))
	}
	f.Add(pack(0, bytes.Repeat([]byte{0xff}, 60)))
	start := b.now
	f.Fuzz(func(t *testing.T, data []byte) {
		b.t = t
		b.restore(s)
		b.now = start
		split(data, func(mode byte, raw []byte) { b.fuzzed(t, mode, raw) })
		b.check(t)
	})
}

// FuzzOptions takes any bytes as the options of a SYN and of segments both ways: a SYN is taken exactly if its options
// are legal, and a translated segment is what the reference makes of it.
func FuzzOptions(f *testing.F) {
	for _, o := range [][]byte{{2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0, 9, 0, 0, 0, 0, 3, 3, 7, 0}, {1, 8, 10, 255, 255, 255, 254, 0, 0, 0, 3, 1}, {5, 18, 1, 2, 3, 4, 5, 6, 7, 8, 255, 255, 255, 255, 0, 0, 0, 0, 1, 1}, {8, 0, 1, 1}} {
		f.Add(o, uint32(0xfffffff0), uint32(0x80000000))
	}
	b := newBench(f, tiny(16))
	b.serve(world4, 0, full)
	b.now = time.Second
	b.c.Advance(b.now)
	empty := b.snapshot()
	f.Fuzz(func(t *testing.T, o []byte, a, d uint32) {
		b.t = t
		o = o[:min(len(o), 40)&^3]
		b.restore(empty)
		c := &conn{b: b, w: world4, port: 40001, cseq: 1, cack: 2, sseq: 3, sack: 4}
		want := 0
		if legalOptions(o) {
			want = 1
		}
		if got := b.pushRaw(0, c.withOptions(flagSYN, o, "")); len(got[0]) != want {
			t.Fatalf("SYN with options % x draws %d frames, want %d", o, len(got[0]), want)
		} else if want == 1 {
			parseFrame(t, got[0][0])
		}
		for i := range 4 {
			b.restore(empty)
			l := &leg{client: world4.client, vip: world4.vip, server: world4.server, cport: 40001, vport: 80, sport: 8080, deltaClient: d, deltaServer: a,
				stampClient: d, stampServer: ^a, sack: i&1 != 0, timestamps: i&2 != 0, clientMAC: clientMAC}
			b.plantLeg(l)
			raw := c.withOptions(flagACK, o, "payload")
			side := i & 1
			if side == 1 {
				x := c.server(flagACK, "")[:54]
				copy(raw[:12], x[:12])
				copy(raw[26:38], x[26:38])
				raw = sumUp(raw)
			}
			if got := b.pushRaw(side, raw)[1-side]; len(got) != 1 || !bytes.Equal(got[0], l.translate(t, Side(side), raw)) {
				t.Fatalf("side %d, options % x:\n got  % x\n want % x", side, o, got, l.translate(t, Side(side), raw))
			}
		}
	})
}

// legalOptions says whether options follow the rules, option by option.
func legalOptions(o []byte) bool {
	for i := 0; i < len(o); {
		switch {
		case o[i] == 0:
			return true
		case o[i] == 1:
			i++
		case i+1 == len(o), o[i+1] < 2, i+int(o[i+1]) > len(o):
			return false
		default:
			i += int(o[i+1])
		}
	}
	return true
}

// FuzzCommands gives the card commands made of any bytes, frames of its connections between them. Without the verbs that
// touch CAM entries themselves, what must always be true stays true.
func FuzzCommands(f *testing.F) {
	b, s, seeds := populated(f)
	for verb := range byte(16) {
		f.Add([]byte{verb, 3, 1, 0, verb, 200, 9, 0, 1, 2, 3, 4})
		f.Add([]byte{1, 0, 0, 0, verb, 18, 1, 6, 4, 5, 1, 1})
	}
	start := b.now
	f.Fuzz(func(t *testing.T, data []byte) {
		b.t = t
		b.restore(s)
		b.now = start
		touched := false
		for i := 0; len(data) >= 4 && i < 64; i++ {
			e := regs.CommandEntry{ControlType: uint32(data[0] & 15), HandleN: uint32(data[1]), HandleGeneration: uint32(data[2] & 7), FlagsToClient: uint32(data[3] & 1), FlagsToServer: uint32(data[3] >> 1 & 1),
				FlagsServerSide: uint32(data[3] >> 2 & 1), KeyControlKind: uint32(data[3] >> 3 & 3), KeyControlProtocol: protocolTCP, KeyPortsPort: 40000 + uint32(data[2]), KeyPortsDestination: 80, Value: words(world4.client)[0],
				KeyIndexIndex: uint32(data[3] >> 5), IovaLo: uint32(len(b.ram)) - 512, Length: uint32(data[3]) * 3}
			if data[0]&0x80 != 0 {
				x := seeds[int(data[1])%len(seeds)]
				b.fuzzed(t, modeSums|data[2]&1, x[data[2]&1])
				data = data[4:]
				continue
			}
			data = data[4:]
			touched = touched || e.ControlType >= regs.CommandControlTypeCamInsert && e.ControlType < regs.CommandControlTypeConnect
			commands, before := b.r.Get64(regs.AmuCommands), b.snapshot()
			done := b.command(e)
			b.emitted(t)
			b.events()
			if got := b.r.Get64(regs.AmuCommands) - commands; got != 1 {
				t.Fatalf("commands grew by %d", got)
			}
			if done.ControlStatus != statusOK && !touched {
				if d := before.diff(b.snapshot()); len(d) > 3 {
					t.Fatalf("a command that failed with status %d changed %v", done.ControlStatus, d)
				}
			}
			if !touched {
				b.check(t)
			}
		}
	})
}
