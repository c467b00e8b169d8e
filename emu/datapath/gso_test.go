package datapath

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/google/gopacket/layers"

	"splicenic/emu/frame"
	"splicenic/regs"
)

// offload makes a plain frame with a full sum into a coalesced one: segments of size bytes, the pseudo-header's sum only.
func offload(f *frame.Frame, size uint16) {
	b := f.Bytes()
	at := uint32(14)
	if binary.BigEndian.Uint16(b[12:]) == etherVLAN {
		at = 18
	}
	ip := b[at:]
	var pseudo uint64
	tcp, kind := at+20, uint8(frame.GSOTCP4)
	if ip[0]>>4 == 6 {
		tcp, kind = at+40, frame.GSOTCP6
		pseudo = frame.Pseudo6(ip, protocolTCP, int(binary.BigEndian.Uint16(ip[4:])))
	} else {
		pseudo = frame.Pseudo4(ip, protocolTCP, int(binary.BigEndian.Uint16(ip[2:]))-20)
	}
	binary.BigEndian.PutUint16(b[tcp+16:], frame.Fold(pseudo))
	f.Offload = frame.Offload{Flags: frame.NeedsChecksum, GSOType: kind, GSOSize: size, CsumStart: uint16(tcp), CsumOffset: 16,
		HdrLen: uint16(tcp) + uint16(b[tcp+12]>>4)*4}
}

// pushCoalesced runs one coalesced frame through the pipeline; the caller looks at b.out.
func (b *bench) pushCoalesced(port int, raw []byte, size uint16) *frame.Frame {
	f := &b.buf[0]
	f.Start, f.End = frame.Headroom, frame.Headroom+uint32(copy(f.Buf[frame.Headroom:], raw))
	offload(f, size)
	b.out.Reset()
	b.c.Advance(b.now)
	b.c.Process(port, b.buf[:1], b.out)
	return f
}

// wire cuts a coalesced frame into the segments a wire would carry, each with sums in full, the slow way.
func wire(t *testing.T, f *frame.Frame) (ss []tcp) {
	t.Helper()
	b, o := f.Bytes(), f.Offload
	if o.Flags != frame.NeedsChecksum || o.CsumOffset != 16 || int(o.HdrLen) > len(b) {
		t.Fatalf("offload header %+v", o)
	}
	at := int(o.CsumStart)
	hlen := at + int(b[at+12]>>4)*4
	if int(o.HdrLen) != hlen {
		t.Fatalf("hdr_len %d, headers end at %d", o.HdrLen, hlen)
	}
	// The field must hold the pseudo-header's sum over the whole length: completing it gives a valid segment.
	sum := reference(b[at:])
	whole := append([]byte(nil), b...)
	binary.BigEndian.PutUint16(whole[at+16:], sum)
	parseFrame(t, whole)

	payload := b[hlen:]
	for off := 0; off < len(payload); off += int(o.GSOSize) {
		part := payload[off:min(off+int(o.GSOSize), len(payload))]
		s := append(append([]byte(nil), b[:hlen]...), part...)
		ip := s[14:]
		if binary.BigEndian.Uint16(s[12:]) == etherVLAN {
			ip = s[18:]
		}
		n := len(s) - at
		pseudo := append([]byte(nil), ip[12:20]...)
		if ip[0]>>4 == 6 {
			binary.BigEndian.PutUint16(ip[4:], uint16(n))
			pseudo = append([]byte(nil), ip[8:40]...)
		} else {
			binary.BigEndian.PutUint16(ip[2:], uint16(20+n))
			ip[10], ip[11] = 0, 0
			binary.BigEndian.PutUint16(ip[10:], reference(ip[:20]))
		}
		binary.BigEndian.PutUint32(s[at+4:], binary.BigEndian.Uint32(b[at+4:])+uint32(off))
		if off+len(part) < len(payload) {
			s[at+13] &^= flagFIN | flagPSH
		}
		if off > 0 {
			s[at+13] &^= flagCWR
		}
		s[at+16], s[at+17] = 0, 0
		pseudo = append(pseudo, 0, 0, byte(n>>8), byte(n), 0, protocolTCP)
		binary.BigEndian.PutUint16(s[at+16:], reference(append(pseudo, s[at:]...)))
		ss = append(ss, parseFrame(t, s))
	}
	return ss
}

// TestCoalesced carries coalesced frames of every size both ways, over VLANs and both families: whole, with the right
// pseudo-header sum, counted as wire segments.
func TestCoalesced(t *testing.T) {
	inTag, outTag, bothTags := caseWorld4, caseWorld6, caseWorld4
	inTag.vlanClient, outTag.vlanServer = 7, 9
	bothTags.vlanClient, bothTags.vlanServer = 7, 9
	big := strings.Repeat("0123456789abcdef", 4096)
	for _, w := range []world{caseWorld4, caseWorld6, inTag, outTag, bothTags} {
		for side := range Side(sides) {
			b, c := caseBench(t, w, full)
			c.opts = []layers.TCPOption{optMSS(1460), optSACK, optTS(0xfffffff0, 0), optNop, optWscale(7)}
			c.sopts = c.opts
			c.cseq = 0xffff8000
			c.reach(t, Spliced)
			wantPackets := uint32(b.c.page(b.pageOf(t))[packetsWord(side)])
			for _, n := range []int{1, 700, 1388, 1389, 2776, 20000, 65535 - 60 - 20} {
				seq := c.cseq
				flags := uint8(flagACK | flagPSH | flagCWR)
				payload := big[:min(n, len(big))]
				var raw []byte
				want := tcp{}
				if side == ClientSide {
					raw = c.client(flags, payload, optNop, optNop, optTS(5, 6))
					c.sack = c.cseq
					want = tcp{from: w.client, to: w.server, sport: c.port, dport: 8080, seq: seq, ack: c.sseq, vlan: w.vlanServer}
				} else {
					raw = c.server(flags, payload, optNop, optNop, optTS(5, 6))
					want = tcp{from: w.vip, to: w.client, sport: 80, dport: c.port, seq: c.cack, ack: c.sack, vlan: w.vlanClient}
					c.cack += uint32(len(payload))
				}
				f := b.pushCoalesced(int(side), raw, 1388)
				out := b.out.Ports[1-side]
				if len(out) != 1 || out[0] != f || f.Offload.GSOSize != 1388 {
					t.Fatalf("%v side %d, %d bytes: %d frames, offload %+v", w.client, side, n, len(out), f.Offload)
				}
				ss := wire(t, f)
				var all []byte
				for i, s := range ss {
					if s.from != want.from || s.to != want.to || s.sport != want.sport || s.dport != want.dport || s.vlan != want.vlan ||
						s.seq != want.seq+uint32(len(all)) || s.ack != want.ack {
						t.Fatalf("%v side %d, %d bytes, segment %d: %v, want %v", w.client, side, n, i, s, want)
					}
					all = append(all, s.payload...)
				}
				if !bytes.Equal(all, []byte(payload)) {
					t.Fatalf("%v side %d: %d bytes came out as %d", w.client, side, n, len(all))
				}
				wantPackets += uint32(len(ss))
				if got := b.c.page(b.pageOf(t))[packetsWord(side)]; got != wantPackets {
					t.Errorf("%v side %d, %d bytes: packets %d, want %d wire segments", w.client, side, n, got, wantPackets)
				}
			}
			b.check(t)
		}
	}
}

func packetsWord(side Side) int {
	if side == ClientSide {
		return regs.PagePacketsClient
	}
	return regs.PagePacketsServer
}

// TestCoalescedFitsTheEgress: the segment size is lowered to what the end it goes to takes, options taken off, and never
// raised.
func TestCoalescedFitsTheEgress(t *testing.T) {
	for _, tt := range []struct {
		client, server uint16 // MSS each end announced
		side           Side
		size, want     uint16
	}{
		{1460, 1460, ClientSide, 1448, 1448},
		{1460, 1460, ClientSide, 1460, 1448},
		{1460, 8960, ClientSide, 8948, 8948},
		{1000, 8960, ServerSide, 1448, 988},
		{1460, 1460, ServerSide, 500, 500},
		{536, 1460, ServerSide, 8948, 524},
	} {
		promise := full
		promise.PromiseMssIpv4 = 536
		b, c := caseBench(t, caseWorld4, promise)
		c.opts = []layers.TCPOption{optMSS(tt.client), optNop, optNop, optTS(1, 0)}
		c.sopts = []layers.TCPOption{optMSS(tt.server), optNop, optNop, optTS(1, 1)}
		c.reach(t, Spliced)
		raw := c.client(flagACK, strings.Repeat("x", 20000), optNop, optNop, optTS(2, 2))
		if tt.side == ServerSide {
			raw = c.server(flagACK, strings.Repeat("x", 20000), optNop, optNop, optTS(2, 2))
		}
		f := b.pushCoalesced(int(tt.side), raw, tt.size)
		if f.Offload.GSOSize != tt.want || len(b.out.Ports[1-tt.side]) != 1 {
			t.Errorf("%+v: gso_size %d", tt, f.Offload.GSOSize)
		}
		wire(t, f)
	}
}

// TestHostileOffload: an offload header that does not fit its frame is counted, and the frame goes nowhere.
func TestHostileOffload(t *testing.T) {
	for _, w := range []world{caseWorld4, caseWorld6} {
		for i, spoil := range []func(f *frame.Frame, at int){
			func(f *frame.Frame, _ int) { f.Offload.Flags = 0 },
			func(f *frame.Frame, _ int) { f.Offload.Flags = frame.DataValid },
			func(f *frame.Frame, _ int) { f.Offload.CsumStart++ },
			func(f *frame.Frame, _ int) { f.Offload.CsumStart = 0 },
			func(f *frame.Frame, _ int) { f.Offload.CsumStart = 65535 },
			func(f *frame.Frame, _ int) { f.Offload.CsumOffset = 6 },
			func(f *frame.Frame, _ int) { f.Offload.CsumOffset = 65535 },
			func(f *frame.Frame, _ int) { f.Offload.GSOSize = 0 },
			func(f *frame.Frame, _ int) { f.Offload.GSOType ^= frame.GSOTCP4 ^ frame.GSOTCP6 },
			func(f *frame.Frame, _ int) { f.Offload.GSOType = frame.GSOUDP },
			func(f *frame.Frame, _ int) { f.Offload.GSOType = 77 },
			func(f *frame.Frame, _ int) { f.Offload.GSOType = frame.GSOECN },
			func(f *frame.Frame, at int) { f.Bytes()[at+16]++ },
			func(f *frame.Frame, at int) { f.Bytes()[at+13] |= flagRST },
			func(f *frame.Frame, at int) { f.Bytes()[at+13] |= flagSYN },
			func(f *frame.Frame, _ int) { f.Offload.GSOType, f.Offload.CsumOffset = frame.GSONone, 0 },
			func(f *frame.Frame, _ int) { f.Offload.GSOType, f.Offload.CsumStart = frame.GSONone, 65535 },
			func(f *frame.Frame, at int) { f.Offload.GSOType = frame.GSONone; f.Bytes()[at+17]++ },
		} {
			b, c := caseBench(t, w, full)
			c.reach(t, Spliced)
			raw := c.client(flagACK, strings.Repeat("x", 5000))
			f := &b.buf[0]
			f.Start, f.End = frame.Headroom, frame.Headroom+uint32(copy(f.Buf[frame.Headroom:], raw))
			offload(f, 1448)
			spoil(f, int(f.Offload.CsumStart))
			b.out.Reset()
			before := b.r.Get64(regs.ParserDropOffload)
			b.c.Process(0, b.buf[:1], b.out)
			if got := b.r.Get64(regs.ParserDropOffload) - before; got != 1 || len(b.out.Ports[0])+len(b.out.Ports[1]) != 0 {
				t.Errorf("%v row %d: drop_offload grew by %d, %d frames sent", w.client, i, got, len(b.out.Ports[0])+len(b.out.Ports[1]))
			}
			b.check(t)
		}
	}
}

// TestCoalescedRequest: a request that comes coalesced is held as it is; what does not fit is not acknowledged.
func TestCoalescedRequest(t *testing.T) {
	for _, n := range []int{2000, 8192, 30000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			b, c := waiting(t, regs.ServiceEntry{}, plainOptions)
			head := "POST /u HTTP/1.1\r\nHost: a.example\r\nContent-Length: 99999\r\n\r\n"
			all := head + strings.Repeat("b", n-len(head))
			first := c.cseq
			b.pushCoalesced(0, c.client(flagACK, all), 1460)
			out := b.drain()
			kept := min(n, 8192)
			if ack := one(t, out[0]); ack.ack != first+uint32(kept) || len(out[1]) != 1 {
				t.Fatalf("got %v, want ack %#x and our SYN", out, first+uint32(kept))
			}
			if got := c.serverBytes(t, first); got != all[:kept] {
				t.Errorf("the server gets %d bytes, want %d", len(got), kept)
			}
			// The whole frame again, across H, is dropped until the server has acknowledged; then what is beyond goes on.
			c.cseq = first
			again := c.client(flagACK, all)
			b.pushCoalesced(0, again, 1460)
			straddles := b.r.Get64(regs.ConnectionDropStraddlesHeld)
			if out := b.drain(); len(out[1]) != 0 || (n > 8192) != (straddles == 1) {
				t.Errorf("again: %v, drop_straddles_held %d", out, straddles)
			}
			c.cseq = first + uint32(kept)
			c.sack = c.cseq
			one(t, b.push(1, c.server(flagACK, ""))[0])
			if n > 8192 {
				f := b.pushCoalesced(0, c.client(flagACK, all[kept:]), 1460)
				if ss := wire(t, f); ss[0].seq != first+uint32(kept) {
					t.Errorf("the rest begins with %v", ss[0])
				}
			}
			b.check(t)
		})
	}
}
