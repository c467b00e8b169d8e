package datapath

import (
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"github.com/google/gopacket/layers"

	"splicenic/emu/frame"
	"splicenic/regs"
)

// Faults that others had, as tests by number: here those of a running splice and its end.

// TestCaseA09: SACK edges move with the acknowledgement, both ways, up to four blocks, D-SACK too.
func TestCaseA09(t *testing.T) {
	for _, w := range []world{caseWorld4, caseWorld6} {
		b, c := caseBench(t, w, full)
		c.opts = []layers.TCPOption{optMSS(1460), optNop, optNop, optSACK}
		c.sopts = c.opts
		c.reach(t, Spliced)
		l, s := c.cack, c.sseq // the next byte, in the client's and in the server's numbers
		payload := strings.Repeat("d", 1400)
		for i := range 3 {
			raw := c.server(flagACK, payload)
			if i != 1 {
				one(t, b.push(1, raw)[0])
			}
		}
		blocks := func(edges ...uint32) layers.TCPOption {
			o := layers.TCPOption{OptionType: layers.TCPOptionKindSACK, OptionLength: uint8(2 + 4*len(edges))}
			for _, e := range edges {
				o.OptionData = append(o.OptionData, u32(e)...)
			}
			return o
		}
		for _, tt := range []struct {
			name  string
			edges []uint32
		}{
			{"one", []uint32{2800, 4200}},
			{"D-SACK", []uint32{0, 1400, 2800, 4200}},
			{"D-SACK of two blocks", []uint32{3000, 3100, 2800, 4200, 7000, 8400}},
			{"four", []uint32{2800, 4200, 7000, 8400, 10000, 11000, 12000, 13000}},
			{"across the wrap", []uint32{1<<31 - 1, 1<<31 + 1, ^uint32(0) - l, 2}},
		} {
			var ours, theirs []uint32
			for _, e := range tt.edges {
				ours, theirs = append(ours, l+e), append(theirs, s+e)
			}
			x := *c
			x.cack = l + 1400
			got := one(t, b.push(0, x.client(flagACK, "", optNop, optNop, blocks(ours...)))[1])
			if want := blocks(theirs...).OptionData; got.ack != s+1400 || string(got.option(layers.TCPOptionKindSACK)) != string(want) {
				t.Errorf("%s from the client: ack %#x blocks % x, want %#x, % x", tt.name, got.ack, got.option(layers.TCPOptionKindSACK), s+1400, want)
			}
			x = *c
			x.sack = c.cseq - 100
			ours = ours[:0]
			for _, e := range tt.edges {
				ours = append(ours, c.cseq+e) // with the client's own address and port its numbers are the server's too
			}
			got = one(t, b.push(1, x.server(flagACK, "", optNop, optNop, blocks(ours...)))[0])
			if want := blocks(ours...).OptionData; got.ack != c.cseq-100 || string(got.option(layers.TCPOptionKindSACK)) != string(want) {
				t.Errorf("%s from the server: ack %#x blocks % x, want %#x, % x", tt.name, got.ack, got.option(layers.TCPOptionKindSACK), c.cseq-100, want)
			}
		}
	}
}

// TestCaseA11: whichever end speaks first after the splice, the numbers of its first segment are right.
func TestCaseA11(t *testing.T) {
	head := "POST /u HTTP/1.1\r\nHost: b.example\r\nContent-Length: 20000\r\n\r\n"
	for _, w := range []world{caseWorld4, caseWorld6} {
		for _, serverFirst := range []bool{true, false} {
			for _, early := range []int{0, 4000, 8000} { // body bytes that are there before the splice
				b, c := caseBench(t, w, full)
				first, sisn := c.cseq+1, c.sseq
				c.reach(t, WaitHead)
				body := strings.Repeat("0123456789", 2000)
				sent := head + body[:min(early, 1000)]
				b.push(0, c.client(flagACK|flagPSH, sent))
				for at := 1000; at < early; at += 1000 {
					b.push(0, c.client(flagACK, body[at:at+1000]))
					sent += body[at : at+1000]
				}
				l := c.cack
				if got := c.serverBytes(t, first); got != sent {
					t.Fatalf("the server gets %d bytes, want %d", len(got), len(sent))
				}
				h := c.cseq // the server has acknowledged nothing of what is held
				down := func() {
					if s := one(t, b.push(1, c.server(flagACK, "100"))[0]); s.seq != l || s.ack != h {
						t.Errorf("server first %v, early %d: first server segment %v, want seq %#x ack %#x", serverFirst, early, s, l, h)
					}
				}
				up := func() {
					seq := c.cseq
					if s := one(t, b.push(0, c.client(flagACK, body[early:early+1000]))[1]); s.seq != seq || s.ack != sisn+1 {
						t.Errorf("server first %v, early %d: first client segment %v, want seq %#x ack %#x", serverFirst, early, s, seq, sisn+1)
					}
				}
				if serverFirst {
					down()
					up()
				} else {
					up()
					down()
				}
				b.check(t)
			}
		}
	}
}

// TestCaseA13: the client's FIN closes one direction; the response goes on to its end.
func TestCaseA13(t *testing.T) {
	for _, w := range []world{caseWorld4, caseWorld6} {
		b, c := caseBench(t, w, full)
		c.reach(t, WaitHead)
		first := c.cseq
		one(t, b.push(0, c.client(flagFIN|flagPSH|flagACK, request))[1])
		fin := c.cseq
		if got := c.serverBytes(t, first); got != request {
			t.Fatalf("the server gets %q", got)
		}
		c.sack = fin
		response := strings.Repeat("r", 65536)
		l, got := c.cack, 0
		if ack := one(t, b.push(1, c.server(flagACK, ""))[0]); ack.ack != fin {
			t.Fatalf("the FIN is acknowledged with %v, want ack %#x", ack, fin)
		}
		for at := 0; at < len(response); at += 1024 {
			s := one(t, b.push(1, c.server(flagACK, response[at:at+1024]))[0])
			if s.seq != l+uint32(got) || s.flags&(flagRST|flagFIN) != 0 {
				t.Fatalf("at %d: %v", at, s)
			}
			got += len(s.payload)
			c.cack = l + uint32(got)
			one(t, b.push(0, c.client(flagACK, ""))[1])
			if out := b.wait(31 * time.Millisecond); len(out[0])+len(out[1]) != 0 {
				t.Fatalf("the card sends %v", out)
			}
		}
		if b.state(c) != Closing {
			t.Errorf("state before the server's FIN: %d", b.state(c))
		}
		one(t, b.push(1, c.server(flagFIN|flagACK, ""))[0])
		if b.state(c) != Closing {
			t.Errorf("state before its acknowledgement: %d", b.state(c))
		}
		c.cack++
		one(t, b.push(0, c.client(flagACK, ""))[1])
		if b.state(c) != Quarantine || got != len(response) {
			t.Errorf("state %d after %d bytes", b.state(c), got)
		}
		b.check(t)
	}
}

// TestCaseA15: only a RST that its receiver takes for exact ends the connection. Of a splice the ends answer; before it
// the card answers what is in range with its own numbers, so that the sender can make it exact, and not for ever.
func TestCaseA15(t *testing.T) {
	for _, w := range []world{caseWorld4, caseWorld6} {
		for side := range Side(sides) {
			b, c := caseBench(t, w, full)
			c.reach(t, Spliced)
			one(t, b.push(1, c.server(flagACK, "some data"))[0])
			c.cack += 9
			one(t, b.push(0, c.client(flagACK, ""))[1])
			rst := func(off uint32) [2][]tcp {
				x := *c
				x.cseq, x.sseq = x.cseq+off, x.sseq+off
				if side == ClientSide {
					return b.push(0, x.client(flagRST, ""))
				}
				return b.push(1, x.server(flagRST, ""))
			}
			for _, off := range []uint32{1, 1000, 1 << 20, 1 << 31, ^uint32(0)} {
				for range 3 {
					out := rst(off)
					if len(out[side]) != 0 || len(out[1-side]) != 1 || b.state(c) != Spliced {
						t.Errorf("side %d, RST off by %#x: %v, state %d", side, off, out, b.state(c))
					}
				}
			}
			if out := rst(0); len(out[side]) != 0 || len(out[1-side]) != 1 || b.state(c) != Quarantine {
				t.Errorf("side %d, exact RST: %v, state %d", side, out, b.state(c))
			}
			if got := b.r.Get64(regs.ConnectionClosedRst); got != 1 {
				t.Errorf("closed_rst: got %d, want 1", got)
			}
			b.check(t)
			b.wait(1100 * time.Millisecond)
			b.allFree(t)
		}
	}
	for _, w := range []world{caseWorld4, caseWorld6} {
		for _, s := range []State{SynRcvd, WaitHead, ServerSyn} {
			b, c := caseBench(t, w, full)
			c.reach(t, s)
			room := uint32(8192)
			if s == ServerSyn {
				room -= uint32(len(request))
			}
			rst := func(off uint32) [2][]tcp {
				x := *c
				x.cseq += off
				return b.push(0, x.client(flagRST, ""))
			}
			n := uint64(0)
			for _, off := range []uint32{1 << 31, ^uint32(0), room + 1} {
				n++
				if out := rst(off); len(out[0])+len(out[1]) != 0 || b.state(c) != s || b.r.Get64(regs.ConnectionDropRst) != n {
					t.Errorf("state %d, RST off by %#x: %v", s, off, out)
				}
			}
			var answer tcp
			for _, off := range []uint32{1, 77, room} {
				n++
				out := rst(off)
				answer = one(t, out[0])
				if answer.flags != flagACK || answer.seq != c.cack || answer.ack != c.cseq || len(answer.payload) != 0 || len(out[1]) != 0 || b.state(c) != s || b.r.Get64(regs.ConnectionDropRst) != n {
					t.Errorf("state %d, RST in range, off by %#x: %v, state %d", s, off, out, b.state(c))
				}
			}
			answers := 3
			for range 100 { // as many as a sender cares to send
				answers += len(rst(1)[0])
			}
			if storm := b.r.Get64(regs.ConnectionDropStorm); answers != maxAnswers || storm != uint64(103-answers) {
				t.Errorf("state %d: %d answers and %d drops to 103 RSTs", s, answers, storm)
			}
			x := *c
			x.cseq = answer.ack // what the sender makes of the answer, if it meant it
			if out := b.push(0, x.client(flagRST, "")); len(out[0]) != 0 || (len(out[1]) == 1) != (s == ServerSyn) {
				t.Errorf("state %d, exact RST: %v", s, out)
			}
			b.check(t)
			b.allFree(t)
		}
		// A server's RST to our SYN counts if it acknowledges it.
		b, c := caseBench(t, w, full)
		c.reach(t, ServerSyn)
		for i, x := range []struct {
			flags uint8
			ack   uint32
		}{{flagRST, 0}, {flagRST | flagACK, 1}, {flagRST | flagACK, ^uint32(0)}, {flagRST | flagACK, 1 << 31}} {
			y := *c
			y.sack += x.ack
			if out := b.push(1, y.server(x.flags, "")); len(out[0])+len(out[1]) != 0 || b.state(c) != ServerSyn || b.r.Get64(regs.ConnectionDropRst) != uint64(i+1) {
				t.Errorf("a server's RST %+v: %v, state %d", x, out, b.state(c))
			}
		}
		if b.push(1, c.server(flagRST|flagACK, "")); b.state(c) == ServerSyn {
			t.Error("an exact RST of the server is not taken")
		}
	}
}

// TestRSTOnTheWay: while bytes of a side are on their way a RST is exact at either end of them, in range between, and goes
// on in any case, with or without an acknowledgement, whatever that says.
func TestRSTOnTheWay(t *testing.T) {
	for _, isn := range []uint32{0x10203040, ^uint32(100)} {
		for side := range Side(sides) {
			for _, legB := range []bool{false, true} {
				for off := range uint32(14) {
					b, c := spliced(t, caseWorld4, regs.ServiceEntry{}, isn, legB)
					c.from(t, side, 0, 0, flagACK, "0123456789")
					for _, flags := range []uint8{flagRST, flagRST | flagACK} {
						s := c.from(t, side, off-2, 12345, flags, "")
						if b.state(c) == Quarantine {
							if flags == flagRST && off != 2 && off != 12 {
								t.Errorf("side %d, leg B %v: a RST %d behind the lower end, of ten, ends the connection", side, legB, int32(off-2))
							}
							break
						}
						if off == 2 || off == 12 {
							t.Errorf("side %d, leg B %v: a RST at %d of ten does not end the connection", side, legB, int32(off-2))
						}
						if s.flags != flags {
							t.Errorf("goes on as %v", s)
						}
					}
					b.check(t)
				}
			}
		}
	}
}

// TestRSTWithDataOnTheWay: a RST behind data that is not acknowledged yet is exact too.
func TestRSTWithDataOnTheWay(t *testing.T) {
	for side := range Side(sides) {
		b, c := caseBench(t, caseWorld4, full)
		c.reach(t, Spliced)
		if side == ClientSide {
			one(t, b.push(0, c.client(flagACK, "upload"))[1])
			one(t, b.push(0, c.client(flagRST|flagACK, ""))[1])
		} else {
			one(t, b.push(1, c.server(flagACK, "download"))[0])
			one(t, b.push(1, c.server(flagRST|flagACK, ""))[0])
		}
		if b.state(c) != Quarantine {
			t.Errorf("side %d: state %d, want quarantine", side, b.state(c))
		}
		b.check(t)
	}
}

// TestBlindSYN: a SYN or a RST from nowhere moves no mark that a later RST is measured by.
func TestBlindSYN(t *testing.T) {
	b, c := caseBench(t, caseWorld4, full)
	c.reach(t, Spliced)
	x := *c
	x.cseq += 1 << 20
	one(t, b.push(0, x.client(flagSYN, ""))[1])
	one(t, b.push(0, x.client(flagRST, ""))[1])
	if got := b.state(c); got != Spliced {
		t.Errorf("a blind SYN and a RST behind it: state %d, want spliced", got)
	}
	b.check(t)
}

// TestCaseA23: frames are never merged, and none goes on with another's offload header.
func TestCaseA23(t *testing.T) {
	b, c := caseBench(t, caseWorld4, full)
	b.serve(caseWorld6, 1, full)
	c.reach(t, Spliced)
	c6 := &conn{b: b, w: caseWorld6, port: c.port, cseq: c.cseq - uint32(len(request)) - 1, sseq: 9, opts: plainOptions, sopts: plainOptions}
	c6.reach(t, Spliced)
	var raws [][]byte
	for _, ttl := range []uint8{64, 64, 63} {
		raws = append(raws, buildFrame(t, &tcp{from: c.w.client, to: c.w.vip, sport: c.port, dport: 80, seq: c.cseq, ack: c.cack, flags: flagACK, window: 9, ttl: ttl, payload: []byte("0123456789abcdef"), srcMAC: clientMAC, dstMAC: portMAC[0]}))
		c.cseq += 16
	}
	bad := c.client(flagACK, "0123456789abcdef")
	bad[len(bad)-1] ^= 1
	fragment := c.client(flagACK, "0123456789abcdef")
	fragment[20] |= 0x20
	binary.BigEndian.PutUint16(fragment[24:], 0)
	binary.BigEndian.PutUint16(fragment[24:], reference(fragment[14:34]))
	raws = append(raws, bad, fragment, c6.client(flagACK, "0123456789abcdef"))

	for i, raw := range raws {
		f := &b.buf[i]
		f.Start, f.End, f.Offload = frame.Headroom, frame.Headroom+uint32(copy(f.Buf[frame.Headroom:], raw)), frame.Offload{}
		if i == 0 { // the first comes coalesced of one, with an offload header
			offload(f, 16)
		}
	}
	b.out.Reset()
	b.c.Process(0, b.buf[:len(raws)], b.out)
	got := b.out.Ports[1]
	if len(got) != 4 || len(b.out.Ports[0]) != 0 {
		t.Fatalf("%d frames go on, want 4", len(got))
	}
	for i, f := range got {
		if (f.Offload != frame.Offload{}) != (i == 0) {
			t.Errorf("frame %d goes on with offload header %+v", i, f.Offload)
		}
		if i > 0 {
			if s := parseFrame(t, f.Bytes()); len(s.payload) != 16 || s.ttl != [...]uint8{63, 63, 62, 63}[i] {
				t.Errorf("frame %d: %v, ttl %d", i, s, s.ttl)
			}
		}
	}
	for _, x := range []struct {
		r    regs.Reg
		want uint64
	}{{regs.ParserDropTcpChecksum, 1}, {regs.ParserExceptionFragment, 1}} {
		if got := b.r.Get64(x.r); got != x.want {
			t.Errorf("%s: got %d, want %d", x.r.Name(), got, x.want)
		}
	}
}

// TestCaseA23Places: wherever in a batch a coalesced frame comes, from either side, between frames of its own flow, broken
// ones and ones that make the card answer, it alone goes on with an offload header, its own; a frame that is used again
// keeps nothing of what it was.
func TestCaseA23Places(t *testing.T) {
	const n = 8
	for _, w := range []world{caseWorld4, caseWorld6} {
		for side := range Side(sides) {
			for at := range n {
				for broken := range n {
					b, c := caseBench(t, w, full)
					c.reach(t, Spliced)
					waits := &conn{b: b, w: w, port: c.port + 1, cseq: 5, sseq: 6, opts: plainOptions, sopts: plainOptions}
					waits.reach(t, WaitHead)
					for round := range 2 {
						b.out.Reset()
						for i := range n {
							build := c.client
							if side == ServerSide {
								build = c.server
							}
							raw := build(flagACK, strings.Repeat(string(rune('a'+i)), 30))
							if side == ClientSide && i == (at+1)%n && i != broken {
								x := *waits
								x.cseq--
								raw = x.client(flagACK, "") // the card answers
							}
							f := &b.buf[i]
							f.Start, f.End, f.Offload = frame.Headroom, frame.Headroom+uint32(copy(f.Buf[frame.Headroom:], raw)), frame.Offload{}
							if i == at && round == 0 {
								offload(f, 10)
							}
							if i == broken {
								b.buf[i].Bytes()[len(raw)-25] ^= 0x40
								if i == at && round == 0 {
									b.buf[i].Offload.CsumStart++
								}
							}
						}
						b.c.Process(int(side), b.buf[:n], b.out)
						for _, f := range b.out.Ports[1-side] {
							whole := f == &b.buf[at] && round == 0
							if (f.Offload != frame.Offload{}) != whole || whole && f.Offload.GSOSize != 10 || len(f.Bytes()) < 84 {
								t.Errorf("side %d, coalesced at %d, broken at %d, round %d: %d bytes go on with %+v", side, at, broken, round, len(f.Bytes()), f.Offload)
							}
							if !whole {
								parseFrame(t, f.Bytes())
							}
						}
						for _, f := range b.out.Ports[side] {
							if (f.Offload != frame.Offload{}) {
								t.Errorf("an answer of the card has %+v", f.Offload)
							}
						}
						want := n - 1
						if side == ClientSide && (at+1)%n != broken {
							want--
							if len(b.out.Ports[0]) != 1 {
								t.Errorf("%d answers, want 1", len(b.out.Ports[0]))
							}
						}
						if got := len(b.out.Ports[1-side]); got != want {
							t.Errorf("side %d, coalesced at %d, broken at %d, round %d: %d frames go on, want %d", side, at, broken, round, got, want)
						}
					}
				}
			}
		}
	}
}
