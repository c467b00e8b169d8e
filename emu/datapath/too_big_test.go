package datapath

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/google/gopacket/layers"

	"splicenic/emu/frame"
	"splicenic/regs"
)

// mayFragment clears DF in an IPv4 frame.
func mayFragment(raw []byte) []byte {
	raw = append([]byte(nil), raw...)
	ip := raw[14:]
	if binary.BigEndian.Uint16(raw[12:]) == etherVLAN {
		ip = raw[18:]
	}
	ip[6] &^= dontFragment
	ip[10], ip[11] = 0, 0
	binary.BigEndian.PutUint16(ip[10:], reference(ip[:20]))
	return raw
}

// TestTooBig: a segment larger than the next network takes whole is the host's, unchanged and with nothing of it noted,
// unless its sender lets it be cut; then it leaves as a coalesced frame of segments that fit.
func TestTooBig(t *testing.T) {
	tagged := caseWorld4
	tagged.vlanClient, tagged.vlanServer = 7, 9
	for _, tt := range []struct {
		name       string
		w          world
		side       Side
		mtu        [2]uint32 // of the ports
		path       uint32    // of the server's next hop
		n          int       // payload bytes
		flags      uint8
		df         bool
		given, cut bool
		room       uint16
	}{
		{name: "fits the port to the byte", w: caseWorld4, mtu: [2]uint32{1500, 1400}, n: 1360, df: true},
		{name: "one byte more", w: caseWorld4, mtu: [2]uint32{1500, 1400}, n: 1361, df: true, given: true},
		{name: "fits the path to the byte", w: caseWorld4, mtu: [2]uint32{1500, 1500}, path: 600, n: 560, df: true},
		{name: "more than the path takes", w: caseWorld4, mtu: [2]uint32{1500, 1500}, path: 600, n: 561, df: true, given: true},
		{name: "a path larger than the port", w: caseWorld4, mtu: [2]uint32{1500, 1400}, path: 1500, n: 1361, df: true, given: true},
		{name: "to the client", w: caseWorld4, side: ServerSide, mtu: [2]uint32{1400, 1500}, path: 600, n: 1360, df: true},
		{name: "to the client, one byte more", w: caseWorld4, side: ServerSide, mtu: [2]uint32{1400, 1500}, n: 1361, df: true, given: true},
		{name: "IPv6 fits", w: caseWorld6, mtu: [2]uint32{1500, 1400}, n: 1340},
		{name: "IPv6, one byte more", w: caseWorld6, mtu: [2]uint32{1500, 1400}, n: 1341, given: true},
		{name: "IPv6 to the client", w: caseWorld6, side: ServerSide, mtu: [2]uint32{1400, 1500}, n: 1341, given: true},
		{name: "tagged", w: tagged, mtu: [2]uint32{1500, 1400}, n: 1361, df: true, given: true},
		{name: "may be cut", w: caseWorld4, mtu: [2]uint32{1500, 1400}, n: 1361, cut: true, room: 1360},
		{name: "may be cut, tagged", w: tagged, mtu: [2]uint32{1500, 1400}, n: 1450, cut: true, room: 1360},
		{name: "may be cut for the path", w: caseWorld4, mtu: [2]uint32{1500, 1500}, path: 600, n: 1400, flags: flagCWR | flagFIN, cut: true, room: 560},
		{name: "may be cut, to the client", w: caseWorld4, side: ServerSide, mtu: [2]uint32{700, 1500}, n: 1400, cut: true, room: 660},
		{name: "urgent bytes are not cut", w: caseWorld4, mtu: [2]uint32{1500, 1400}, n: 1361, flags: flagURG, given: true},
		{name: "a RST is not cut", w: caseWorld4, mtu: [2]uint32{1500, 1400}, n: 1361, flags: flagRST, given: true},
		{name: "an MTU without room", w: caseWorld4, mtu: [2]uint32{1500, 1400}, path: 47, n: 100, given: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, c := spliced(t, tt.w, regs.ServiceEntry{}, 0x7fffffff, false)
			for i, m := range tt.mtu {
				b.r.Set(regs.PortMtu+regs.Reg(i)*regs.PortStride, m)
			}
			b.m.NextHop[regs.NextHopMacHi] = regs.SetNextHopMacHiMtu(b.m.NextHop[regs.NextHopMacHi], tt.path)
			b.exceptions()
			n := b.pageOf(t)
			if tt.flags&flagCWR != 0 { // which only passes where both ends do ECN
				b.c.page(n)[regs.PageAScale] |= regs.PageAScaleEcnMask
			}
			was := *b.c.page(n)
			payload := strings.Repeat("0123456789abcdef", 100)[:tt.n]
			raw := c.client(flagACK|flagPSH|tt.flags, payload)
			if tt.side == ServerSide {
				raw = c.server(flagACK|flagPSH|tt.flags, payload)
			}
			if !tt.df && tt.w.kind == kindIPv4 {
				raw = mayFragment(raw)
			}
			f := &b.buf[0]
			f.Start, f.End, f.Offload = frame.Headroom, frame.Headroom+uint32(copy(f.Buf[frame.Headroom:], raw)), frame.Offload{}
			b.out.Reset()
			b.c.Process(int(tt.side), b.buf[:1], b.out)
			sent, given := b.out.Ports[1-tt.side], b.exceptions()
			if tt.given {
				if len(sent) != 0 || len(given) != 1 || given[0].ReasonReason != reasonTooBig || given[0].HandleN != n || given[0].ReasonSide != uint32(tt.side) {
					t.Fatalf("%d frames sent, exceptions %+v", len(sent), given)
				}
				if !bytes.Equal(given[0].frame, raw) {
					t.Errorf("the host gets\n% x, came\n% x", given[0].frame, raw)
				}
				if got := b.r.Get64(regs.ParserExceptionTooBig + regs.Reg(tt.side)*regs.ParserStride); got != 1 {
					t.Errorf("exception_too_big is %d", got)
				}
				if *b.c.page(n) != was {
					t.Errorf("the page changed:\n%x, was\n%x", *b.c.page(n), was)
				}
				return
			}
			if len(sent) != 1 || len(given) != 0 {
				t.Fatalf("%d frames sent, %d exceptions", len(sent), len(given))
			}
			if !tt.cut {
				if sent[0].Offload != (frame.Offload{}) {
					t.Errorf("offload header %+v", sent[0].Offload)
				}
				parseFrame(t, sent[0].Bytes())
				return
			}
			want := uint8(frame.GSOTCP4)
			if tt.flags&flagCWR != 0 {
				want |= frame.GSOECN
			}
			if o := sent[0].Offload; o.GSOSize != tt.room || o.GSOType != want {
				t.Fatalf("offload header %+v, want segments of %d", o, tt.room)
			}
			var got []byte
			for i, s := range wire(t, sent[0]) {
				last := len(got)+len(s.payload) == tt.n
				if len(s.payload) > int(tt.room) || s.flags&flagFIN != 0 != (last && tt.flags&flagFIN != 0) || s.flags&flagPSH != 0 != last || i > 0 && s.flags&flagCWR != 0 {
					t.Errorf("segment %d: %d bytes, flags %#x", i, len(s.payload), s.flags)
				}
				got = append(got, s.payload...)
			}
			if string(got) != payload {
				t.Errorf("the segments carry %q", got)
			}
		})
	}
}

// TestCoalescedFitsThePath: segments of a coalesced frame are made smaller where the path takes less than its port.
func TestCoalescedFitsThePath(t *testing.T) {
	b, c := caseBench(t, caseWorld4, full)
	c.opts = []layers.TCPOption{optMSS(1460), optNop, optNop, optTS(1, 0)}
	c.sopts = []layers.TCPOption{optMSS(1460), optNop, optNop, optTS(1, 1)}
	c.reach(t, Spliced)
	b.m.NextHop[regs.NextHopMacHi] = regs.SetNextHopMacHiMtu(b.m.NextHop[regs.NextHopMacHi], 800)
	f := b.pushCoalesced(0, c.client(flagACK, strings.Repeat("x", 20000), optNop, optNop, optTS(2, 2)), 1448)
	if f.Offload.GSOSize != 800-52 {
		t.Errorf("gso_size %d, want %d", f.Offload.GSOSize, 800-52)
	}
	wire(t, f)
}
