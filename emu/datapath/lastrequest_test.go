package datapath

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"splicenic/emu/frame"
	"splicenic/regs"
)

// only is what the cut of a connection's only request depends on, all in the client's numbers.
type only struct {
	boundary       uint32
	has, sent      uint32 // what the server has acknowledged, what the client is known to have sent
	acked, offered uint32 // what the client has acknowledged, what the server has sent
	fin            bool   // the client's FIN has gone on, right behind the boundary
}

// expect is what has to go on of a client's frame, the slow way: nil where nothing does.
func (o *only) expect(t testing.TB, raw []byte) []byte {
	t.Helper()
	ip, at, payload, end := places(raw)
	seq, ack, flags := binary.BigEndian.Uint32(raw[at+4:]), binary.BigEndian.Uint32(raw[at+8:]), raw[at+13]
	length := int(end - payload)
	behind := int(int32(seq - o.boundary)) // of the boundary
	known := o.boundary
	if o.fin {
		known++
	}
	taken := flags&(flagSYN|flagRST|flagACK) == flagACK && int32(ack-o.offered) <= 0
	switch {
	case flags&flagSYN != 0, behind+length <= 0:
		return raw
	case flags&flagRST != 0:
		if (seq == o.has || seq == o.sent) && int32(seq-known) > 0 {
			return remake(raw, ip, at, payload, end, length, known, flags)
		}
		return raw
	case length == 0 && flags&flagFIN == 0:
		if taken && int32(seq-known) > 0 {
			return remake(raw, ip, at, payload, end, 0, known, flags)
		}
		return raw
	case behind < 0:
		flags &^= flagFIN
		if int(binary.BigEndian.Uint16(raw[at+18:])) > -behind {
			flags &^= flagURG
		}
		return remake(raw, ip, at, payload, end, -behind, seq, flags)
	case !taken || int32(ack-o.acked) <= 0:
		return nil
	}
	return remake(raw, ip, at, payload, end, 0, known, flags&^(flagFIN|flagPSH|flagURG))
}

// places says where in a frame the packet, its segment and payload begin and where it ends.
func places(raw []byte) (ip, at, payload, end uint32) {
	i, tcp, to, _ := layout(raw)
	return uint32(i), uint32(tcp), uint32(tcp) + uint32(raw[tcp+12]>>4)*4, uint32(to)
}

// remake writes a frame out again with another length, sequence number and flags, and sums in full.
func remake(raw []byte, ip, at, payload, end uint32, keep int, seq uint32, flags uint8) []byte {
	out := bytes.Clone(raw[:payload+uint32(keep)])
	binary.BigEndian.PutUint32(out[at+4:], seq)
	out[at+13] = flags
	h := out[ip:]
	if h[0]>>4 == 6 {
		binary.BigEndian.PutUint16(h[4:], uint16(len(h)-40))
	} else {
		binary.BigEndian.PutUint16(h[2:], uint16(len(h)))
	}
	resum(out, ip, at)
	return out
}

// resum computes every sum of a frame that ends with its packet.
func resum(out []byte, ip, at uint32) {
	h, n := out[ip:], len(out)-int(at)
	var pseudo []byte
	if h[0]>>4 == 6 {
		pseudo = append(pseudo, h[8:40]...)
	} else {
		h[10], h[11] = 0, 0
		binary.BigEndian.PutUint16(h[10:], reference(h[:20]))
		pseudo = append(pseudo, h[12:20]...)
	}
	out[at+16], out[at+17] = 0, 0
	pseudo = append(pseudo, 0, 0, byte(n>>8), byte(n), 0, protocolTCP)
	binary.BigEndian.PutUint16(out[at+16:], reference(append(pseudo, out[at:]...)))
}

// TestLastRequestAgainstReference: whatever a client sends around the end of its only request, what goes on is byte for
// byte what a slow cut and a slow translation make of it: both families, any options, odd lengths, coalesced and with
// partial sums.
func TestLastRequestAgainstReference(t *testing.T) {
	b := newBench(t, smallGeometry())
	b.jumbo()
	b.now = time.Second
	worlds := []world{world4, world6, world4, world6}
	for i := range worlds {
		for range i {
			worlds[i].vip, worlds[i].server = worlds[i].vip.Next(), worlds[i].server.Next()
		}
		worlds[i].vlanServer = uint16(i / 2 * 7)
		b.serve(worlds[i], i, regs.ServiceEntry{})
	}
	b.push(0)
	r := rand.New(rand.NewPCG(7, 8))
	var cut, dropped, alone, moved, coalesced, partial int
	for round := range max(cases()/4, 10_000) {
		i := r.IntN(len(worlds))
		l := randomLeg(r, i, worlds[i])
		n := b.plantLeg(l)
		w := b.c.page(n)
		o := &only{boundary: near(r, 0), fin: r.IntN(8) == 0}
		o.has, o.sent = o.boundary-uint32(2000+r.IntN(2000)), o.boundary+uint32(r.IntN(2000))
		o.acked = near(r, 0)
		o.offered = o.acked + 5000
		w[regs.PageClientLink] |= regs.PageClientLinkLastRequestMask
		w[regs.PageBoundaryClient] = o.boundary
		if o.fin {
			o.sent = o.boundary + 1
			w[regs.PageClientLink] |= regs.PageClientLinkFinClientMask
			w[regs.PageFinClient] = o.boundary + 1
			b.c.setState(w, Closing)
		}
		w[regs.PageASeqClient], w[regs.PageAAckClient], w[regs.PageASeqServer], w[regs.PageAAckServer] = o.sent, o.acked, o.offered, o.has
		w[regs.PageAWindow] = 0xffff | 0xffff<<regs.PageAWindowServerShift

		raw, legal := randomFrame(r, l, ClientSide, true, nil)
		ip, at, payload, end := places(raw)
		raw = raw[:end]
		seq := o.boundary + uint32(r.IntN(120)) - 60
		switch r.IntN(6) {
		case 0:
			seq = o.boundary - (end - payload) // ends there
		case 1:
			seq = o.sent
		}
		ack := o.acked + uint32(r.IntN(3)*2500) - 2500
		if r.IntN(6) == 0 {
			ack = o.offered + 1 + uint32(r.IntN(1000))
		}
		binary.BigEndian.PutUint32(raw[at+4:], seq)
		binary.BigEndian.PutUint32(raw[at+8:], ack)
		binary.BigEndian.PutUint16(raw[at+18:], uint16(r.IntN(60)))
		if raw[at+13]&(flagSYN|flagRST) == 0 && r.IntN(4) == 0 {
			raw[at+13] |= flagURG
		}
		resum(raw, ip, at)

		want := o.expect(t, raw)
		flags := raw[at+13]
		f := &b.buf[0]
		f.Start, f.End, f.Offload = frame.Headroom, frame.Headroom+uint32(copy(f.Buf[frame.Headroom:], raw)), frame.Offload{}
		whole := false
		switch k := r.IntN(4); {
		case k == 0 && end > payload && flags&(flagSYN|flagRST) == 0:
			size := uint16(1 + r.IntN(50))
			putOffload(f, ip, at, payload, size)
			coalesced, whole = coalesced+1, true
		case k == 1:
			putOffload(f, ip, at, payload, 0)
			f.Offload.GSOType, f.Offload.GSOSize, f.Offload.HdrLen = frame.GSONone, 0, 0
			partial++
		}
		size := f.Offload.GSOSize
		before := b.r.Get64(regs.ConnectionDropLastRequest)
		packets := w[regs.PagePacketsClient]
		b.out.Reset()
		b.c.Process(0, b.buf[:1], b.out)
		got := b.out.Ports[1]
		counted := b.r.Get64(regs.ConnectionDropLastRequest) - before
		switch {
		case len(b.out.Ports[0]) != 0:
			t.Fatalf("round %d: %d frames go back", round, len(b.out.Ports[0]))
		case want == nil:
			dropped++
			if len(got) != 0 || counted != 1 {
				t.Fatalf("round %d: %d frames go on, want none; counted %d", round, len(got), counted)
			}
		default:
			if len(got) != 1 {
				t.Fatalf("round %d: %d frames go on, want one of % x", round, len(got), want)
			}
			kept := uint32(len(want)) - payload
			lost := kept != end-payload || flags&^want[at+13]&flagFIN != 0
			if lost != (counted == 1) {
				t.Fatalf("round %d: lost bytes: %v, counted %d", round, lost, counted)
			}
			wantSeq := binary.BigEndian.Uint32(want[at+4:])
			x := l.translate(t, ClientSide, want)
			g := bytes.Clone(f.Bytes())
			if whole && kept > 0 {
				if f.Offload.GSOSize != size || len(g) != len(x) {
					t.Fatalf("round %d: coalesced as %+v, %d bytes, want %d", round, f.Offload, len(g), len(x))
				}
				if legal && raw[ip]>>4 == 4 {
					wire(t, f)
				}
				_, at, _, _ := places(g)
				sum := reference(g[at:]) // what a port makes of the partial sum
				binary.BigEndian.PutUint16(g[at+16:], sum)
				if d := w[regs.PagePacketsClient] - packets; d != (kept+uint32(size)-1)/uint32(size) {
					t.Fatalf("round %d: counted as %d segments of %d bytes in %d", round, d, size, kept)
				}
			} else if f.Offload != (frame.Offload{}) {
				t.Fatalf("round %d: a plain frame goes on with %+v", round, f.Offload)
			}
			if !bytes.Equal(g, x) && !sameBut(g, x) {
				t.Fatalf("round %d: side 0\n in   % x\n got  % x\n want % x", round, raw, g, x)
			}
			switch {
			case lost && kept == 0:
				alone++
			case lost:
				cut++
			case wantSeq != seq:
				moved++
			}
		}
		if State(regs.PageControlState(w[regs.PageControl])) == Quarantine {
			b.c.recycle(n, w)
		} else {
			b.c.free(n, w)
		}
	}
	t.Logf("%d cut, %d dropped, %d as acknowledgements, %d moved; %d coalesced, %d with partial sums", cut, dropped, alone, moved, coalesced, partial)
	for _, n := range []int{cut, dropped, alone, moved, coalesced, partial} {
		if n < 100 {
			t.Error("this cannot be all")
		}
	}
}

// sameBut says whether two frames differ only in that one has a checksum of zero and the other of all ones, which is the
// same number.
func sameBut(a, b []byte) bool {
	_, at, _, _ := places(a)
	x, y := bytes.Clone(a), bytes.Clone(b)
	if len(x) != len(y) {
		return false
	}
	for _, f := range [][]byte{x, y} {
		if binary.BigEndian.Uint16(f[at+16:]) == 0xffff {
			f[at+16], f[at+17] = 0, 0
		}
	}
	return bytes.Equal(x, y)
}

// putOffload makes a frame one with a partial sum.
func putOffload(f *frame.Frame, ip, at, payload uint32, size uint16) {
	b := f.Bytes()
	n := len(b) - int(at)
	kind, pseudo := uint8(frame.GSOTCP4), uint64(0)
	if b[ip]>>4 == 6 {
		kind, pseudo = frame.GSOTCP6, frame.Pseudo6(b[ip:], protocolTCP, n)
	} else {
		pseudo = frame.Pseudo4(b[ip:], protocolTCP, n)
	}
	binary.BigEndian.PutUint16(b[at+16:], frame.Fold(pseudo))
	f.Offload = frame.Offload{Flags: frame.NeedsChecksum, GSOType: kind, GSOSize: size, CsumStart: uint16(at), CsumOffset: 16, HdrLen: uint16(payload)}
}

// TestSecondRequestGoesNowhere: on a connection with one request, a second one is dropped however it comes; the response
// and its acknowledgements pass; once the client has all of the response, more gets a RST.
func TestSecondRequestGoesNowhere(t *testing.T) {
	const second = "GET /2 HTTP/1.1\r\nHost: img.example\r\n\r\n"
	for _, w := range []world{world4, world6} {
		for _, body := range []string{"", "the body of the first"} {
			b, c := spliced(t, w, regs.ServiceEntry{}, 0xfffffff0, false)
			boundary := c.cseq + uint32(len(body))
			b.onlyRequest(t, boundary)
			tail := c.cseq
			s := c.client(flagACK|flagPSH, body+second)
			out := b.push(0, s)
			if body == "" {
				if len(out[0])+len(out[1]) != 0 {
					t.Fatalf("the second request draws %v", out)
				}
			} else if s := one(t, out[1]); string(s.payload) != body || s.flags != flagACK|flagPSH || s.seq != tail {
				t.Fatalf("the server gets %v, want the body", s)
			}
			c.sack = boundary
			if s := one(t, b.push(1, c.server(flagACK|flagPSH, "response"))[0]); s.seq != c.cack || s.ack != boundary {
				t.Errorf("the response comes as %v", s)
			}
			c.cack += 8
			if s := one(t, b.push(0, c.client(flagACK, ""))[1]); s.seq != boundary || s.ack != c.sseq || len(s.payload) != 0 {
				t.Errorf("its acknowledgement comes as %v, want seq %#x ack %#x", s, boundary, c.sseq)
			}
			one(t, b.push(1, c.server(flagACK|flagFIN, ""))[0])
			again := c.client(flagACK|flagPSH, "x")
			if out := b.push(0, again); len(out[0])+len(out[1]) != 0 {
				t.Errorf("a repetition before the end is known draws %v", out)
			}
			c.cack++
			if s := one(t, b.push(0, c.client(flagACK, ""))[1]); s.seq != boundary || s.ack != c.sseq {
				t.Errorf("the FIN's acknowledgement comes as %v", s)
			}
			out = b.push(0, c.client(flagACK|flagPSH, second))
			if s := one(t, out[0]); s.flags&flagRST == 0 || s.seq != c.cack {
				t.Errorf("the client gets %v, want RST seq %#x", s, c.cack)
			}
			if s := one(t, out[1]); s.flags != flagRST || s.seq != boundary {
				t.Errorf("the server gets %v, want RST seq %#x", s, boundary)
			}
			if got := b.r.Get64(regs.ConnectionDropLastRequest); got != 3 {
				t.Errorf("drop_last_request = %d, want 3", got)
			}
			b.check(t)
			b.allFree(t)
		}
	}
}

// TestOnlyRequestEnds: a connection with one request ends in good order, by a RST of the client that has sent more, and by
// a time-out, with numbers that the server takes.
func TestOnlyRequestEnds(t *testing.T) {
	for _, more := range []string{"", "GET /2"} {
		t.Run(fmt.Sprintf("FIN behind %q", more), func(t *testing.T) {
			b, c := spliced(t, world4, regs.ServiceEntry{}, 0x10203040, false)
			boundary := c.cseq
			b.onlyRequest(t, boundary)
			if more == "" {
				c.finish(t)
				b.check(t)
				return
			}
			b.push(0, c.client(flagACK, more))
			if out := b.push(0, c.client(flagACK|flagFIN, "")); len(out[0])+len(out[1]) != 0 {
				t.Errorf("a FIN behind bytes that went nowhere draws %v", out)
			}
			if got := b.state(c); got != Spliced {
				t.Errorf("state %d", got)
			}
		})
		t.Run(fmt.Sprintf("RST behind %q", more), func(t *testing.T) {
			b, c := spliced(t, world4, regs.ServiceEntry{}, 0x10203040, false)
			boundary := c.cseq
			b.onlyRequest(t, boundary)
			if more != "" {
				b.push(0, c.client(flagACK, more))
				c.from(t, ClientSide, 1, 0, flagRST, "") // not exact: as it came, for the server to answer
				if got := b.state(c); got != Spliced {
					t.Fatalf("a RST that is not exact leads to state %d", got)
				}
			}
			if s := c.from(t, ClientSide, 0, 0, flagRST, ""); s.seq != boundary || b.state(c) != Quarantine {
				t.Errorf("the server gets %v, want RST seq %#x; state %d", s, boundary, b.state(c))
			}
			b.check(t)
		})
		t.Run(fmt.Sprintf("idle behind %q", more), func(t *testing.T) {
			b, c := spliced(t, world4, regs.ServiceEntry{}, 0x10203040, false)
			b.r.Set(regs.TimerIdle, 3000)
			boundary := c.cseq
			b.onlyRequest(t, boundary)
			if more != "" {
				b.push(0, c.client(flagACK, more))
			}
			out := b.wait(4 * time.Second)
			if s := one(t, out[1]); s.flags != flagRST || s.seq != boundary {
				t.Errorf("the server gets %v, want RST seq %#x", s, boundary)
			}
			if s := one(t, out[0]); s.flags&flagRST == 0 || s.ack != boundary {
				t.Errorf("the client gets %v, want RST ack %#x", s, boundary)
			}
			b.allFree(t)
		})
	}
	// A repeated SYN-ACK of the server draws an ACK that it takes.
	b, c := spliced(t, world4, regs.ServiceEntry{}, 0x10203040, false)
	boundary := c.cseq
	b.onlyRequest(t, boundary)
	b.push(0, c.client(flagACK, "GET /2"))
	c.sseq = 0x10203040
	if s := one(t, b.push(1, c.server(flagSYN|flagACK, "", c.sopts...))[1]); s.seq != boundary {
		t.Errorf("the server gets %v, want seq %#x", s, boundary)
	}
}

// TestOnlyRequestHeld: what lies behind the only request is never held, neither between the head's end and the splice nor
// afterwards, while the head itself is sent until the server has it.
func TestOnlyRequestHeld(t *testing.T) {
	const rest = "body"
	for _, x := range []struct {
		name  string
		body  int // bytes of rest that belong to the request
		later string
		fin   bool
	}{
		{"no body", 0, rest + "GET /2", false},
		{"body and more", 4, rest + "GET /2", false},
		{"body in part", 4, rest[:2], false},
		{"body alone", 4, rest, false},
		{"body and FIN", 4, rest, true},
		{"more and FIN", 0, "GET /2", true},
		{"FIN", 0, "", true},
	} {
		t.Run(x.name, func(t *testing.T) {
			b, c := waiting(t, regs.ServiceEntry{}, plainOptions)
			first := c.cseq
			one(t, b.push(0, c.client(flagACK|flagPSH, request))[1])
			boundary := c.cseq + uint32(x.body)
			b.onlyRequest(t, boundary)
			flags := uint8(flagACK | flagPSH)
			if x.fin {
				flags |= flagFIN
			}
			before := b.r.Get64(regs.ConnectionDropLastRequest)
			segment := c.client(flags, x.later)
			out := b.push(0, segment)
			kept := min(len(x.later), x.body)
			end := first + uint32(len(request)+kept)
			if x.fin && kept == len(x.later) {
				end++
			}
			if cut := kept < len(x.later); cut != (b.r.Get64(regs.ConnectionDropLastRequest) == before+1) {
				t.Error("drop_last_request is off")
			}
			if kept > 0 || x.fin && len(x.later) == 0 {
				if s := one(t, out[0]); s.ack != end {
					t.Errorf("acknowledged: %v, want %#x", s, end)
				}
			} else if len(out[0]) != 0 {
				t.Errorf("nothing was taken, and draws %v", out[0])
			}
			c.sack, c.serverWindow = first, 65535
			out = b.push(1, c.server(flagSYN|flagACK, "", c.sopts...))
			all := ""
			for _, s := range out[1] {
				all += string(s.payload)
			}
			if want := request + x.later[:kept]; all != want {
				t.Errorf("the server gets %q, want %q", all, want)
			}
			// While it is held, all of it again with more behind; then once the server has it.
			again := *c
			again.cseq = first
			out = b.push(0, again.client(flagACK|flagPSH, request+x.later+strings.Repeat("z", 100)))
			if len(out[1]) != 0 && kept == x.body {
				t.Errorf("while held: the server gets %v", out[1])
			}
			c.sack = end
			one(t, b.push(1, c.server(flagACK, ""))[0])
			out = b.push(0, again.client(flagACK|flagPSH, "GET /3"))
			if len(out[0])+len(out[1]) != 0 {
				t.Errorf("a third request draws %v", out)
			}
			b.check(t)
		})
	}
}

// TestBoundaryBehindH: where the head buffer held more than the only request before the host knew its end, the server's
// numbers go on behind all that the client was acknowledged.
func TestBoundaryBehindH(t *testing.T) {
	b, c := waiting(t, regs.ServiceEntry{}, plainOptions)
	first := c.cseq
	one(t, b.push(0, c.client(flagACK|flagPSH, request+"GET /2"))[1])
	b.onlyRequest(t, first+uint32(len(request)))
	c.sack, c.serverWindow = first, 65535
	b.push(1, c.server(flagSYN|flagACK, "", c.sopts...))
	if got := b.c.page(b.pageOf(t))[regs.PageBoundaryClient]; got != c.cseq {
		t.Errorf("boundary %#x, want H, which is %#x", got, c.cseq)
	}
	c.sack = c.cseq
	one(t, b.push(1, c.server(flagACK, ""))[0])
	if s := one(t, b.push(0, c.client(flagACK|flagFIN, ""))[1]); s.flags&flagFIN == 0 || s.seq != c.sack {
		t.Errorf("the FIN goes on as %v", s)
	}
}
