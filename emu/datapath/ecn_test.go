package datapath

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"splicenic/emu/frame"
	"splicenic/regs"
)

// remark sets the traffic class and the AE bit of an untagged frame.
func remark(raw []byte, tos uint8, ae bool) []byte {
	at, end := 34, 14+int(binary.BigEndian.Uint16(raw[16:])) // what lies behind is padding
	if raw[14]>>4 == 6 {
		at, end = 54, 54+int(binary.BigEndian.Uint16(raw[18:]))
	}
	raw = append([]byte(nil), raw[:end]...)
	if at == 54 {
		raw[14], raw[15] = raw[14]&0xf0|tos>>4, raw[15]&0x0f|tos<<4
	} else {
		raw[15] = tos
	}
	if ae {
		raw[at+12] |= flagAE
	}
	return sumUp(raw)
}

// TestECN: ECN is agreed upon where client, service and server all do; then every mark passes as it is. Else none does.
func TestECN(t *testing.T) {
	const both = flagECE | flagCWR
	for _, w := range []world{caseWorld4, caseWorld6} {
		for _, offer := range []struct {
			flags uint8
			ae    bool
			ecn   bool
		}{{0, false, false}, {both, false, true}, {both, true, true}, {flagECE, false, false}, {flagCWR, true, false}, {0, true, false}} {
			for promised := range uint32(2) {
				for _, answer := range []uint8{0, flagECE, flagCWR, both} {
					t.Run(fmt.Sprintf("%v offer %#x %v promise %d answer %#x", w.client, offer.flags, offer.ae, promised, answer), func(t *testing.T) {
						promise := full
						promise.PromiseEcn = promised
						b, c := caseBench(t, w, promise)
						agreed := offer.ecn && promised != 0
						wantSynAck, wantSyn := uint8(flagSYN|flagACK), uint8(flagSYN)
						if agreed {
							wantSynAck, wantSyn = wantSynAck|flagECE, wantSyn|both
						}
						sa := one(t, b.push(0, remark(c.client(flagSYN|offer.flags, "", plainOptions...), 0, offer.ae))[0])
						if sa.flags != wantSynAck || sa.ae || sa.tos != 0 {
							t.Fatalf("SYN-ACK %v, AE %v, class %#x; want flags %#x", sa, sa.ae, sa.tos, wantSynAck)
						}
						c.cack = sa.seq + 1
						b.push(0, c.client(flagACK, ""))
						first := c.cseq
						syn := one(t, b.push(0, c.client(flagACK|flagPSH, request))[1])
						if syn.flags != wantSyn || syn.ae || syn.tos != 0 {
							t.Fatalf("our SYN %v, AE %v, class %#x; want flags %#x", syn, syn.ae, syn.tos, wantSyn)
						}
						c.sack = first
						one(t, b.push(1, c.server(flagSYN|flagACK|answer, "", c.sopts...))[1])
						c.sack = c.cseq
						one(t, b.push(1, c.server(flagACK, ""))[0])
						b.passMarks(t, c, agreed && answer == flagECE)
						b.check(t)
					})
				}
			}
		}
	}
}

// passMarks sends marked segments both ways and checks what comes of the marks.
func (b *bench) passMarks(t *testing.T, c *conn, carried bool) {
	t.Helper()
	for tos := range uint8(4) {
		for _, flags := range []uint8{0, flagECE, flagCWR, flagECE | flagCWR} {
			for _, ae := range []bool{false, true} {
				marked := tos != 0 || flags != 0 || ae
				want := tcp{tos: 0xb8 | tos, flags: flagACK | flags, ae: ae}
				if !carried {
					want = tcp{tos: 0xb8, flags: flagACK}
				}
				for side := range Side(sides) {
					raw := c.client(flagACK|flags, "up")
					c.sack = c.cseq
					if side == ServerSide {
						raw = c.server(flagACK|flags, "down")
						c.cack += 4
					}
					before := b.r.Get64(regs.PmuEcnCleared)
					got := one(t, b.push(int(side), remark(raw, 0xb8|tos, ae))[1-side])
					if got.tos != want.tos || got.flags != want.flags || got.ae != want.ae {
						t.Errorf("side %d, class %#x, flags %#x, AE %v: got %v, class %#x, AE %v", side, 0xb8|tos, flags, ae, got, got.tos, got.ae)
					}
					if n := b.r.Get64(regs.PmuEcnCleared) - before; (n == 1) != (marked && !carried) || n > 1 {
						t.Errorf("side %d, class %#x, flags %#x, AE %v: ecn_cleared grew by %d", side, 0xb8|tos, flags, ae, n)
					}
				}
			}
		}
	}
}

// TestECNCoalesced: the marks of a coalesced frame pass or go with it, and so does what its offload header says of CWR.
func TestECNCoalesced(t *testing.T) {
	for _, w := range []world{caseWorld4, caseWorld6} {
		for side := range Side(sides) {
			for _, carried := range []bool{true, false} {
				b, c := caseBench(t, w, full)
				c.reach(t, Spliced)
				if carried {
					b.c.page(b.pageOf(t))[regs.PageAScale] |= regs.PageAScaleEcnMask
				}
				payload := strings.Repeat("x", 5000)
				raw := c.client(flagACK|flagCWR|flagECE, payload)
				if side == ServerSide {
					raw = c.server(flagACK|flagCWR|flagECE, payload)
				}
				f := &b.buf[0]
				f.Start, f.End = frame.Headroom, frame.Headroom+uint32(copy(f.Buf[frame.Headroom:], remark(raw, 2, false)))
				offload(f, 1460)
				f.Offload.GSOType |= frame.GSOECN
				b.out.Reset()
				b.c.Process(int(side), b.buf[:1], b.out)
				if out := b.out.Ports[1-side]; len(out) != 1 || (f.Offload.GSOType&frame.GSOECN != 0) != carried {
					t.Fatalf("side %d, carried %v: %d frames, GSO type %#x", side, carried, len(out), f.Offload.GSOType)
				}
				for i, s := range wire(t, f) {
					wantFlags, wantTOS := uint8(flagACK), uint8(0)
					if carried {
						wantFlags, wantTOS = flagACK|flagECE, 2
						if i == 0 {
							wantFlags |= flagCWR
						}
					}
					if s.flags != wantFlags || s.tos != wantTOS {
						t.Errorf("side %d, carried %v, segment %d: %v, class %#x", side, carried, i, s, s.tos)
					}
				}
				if got, want := b.r.Get64(regs.PmuEcnCleared), uint64(1); (got == want) == carried {
					t.Errorf("side %d, carried %v: ecn_cleared %d", side, carried, got)
				}
			}
		}
	}
}

// TestCongestionBeforeSplice: until the splice the card is the receiver. What the network marks is told to the client
// until it says that it knows, and to no client that did not agree to ECN.
func TestCongestionBeforeSplice(t *testing.T) {
	for _, w := range []world{caseWorld4, caseWorld6} {
		for promised := range uint32(2) {
			promise := full
			promise.PromiseEcn = promised
			b, c := caseBench(t, w, promise)
			c.cack = one(t, b.push(0, c.client(flagSYN|flagECE|flagCWR, "", plainOptions...))[0]).seq + 1
			b.push(0, c.client(flagACK, ""))
			for i, s := range []struct {
				flags, tos uint8
				want       uint8
			}{{flagACK, 2, flagACK}, {flagACK, 3, flagACK | flagECE}, {flagACK, 2, flagACK | flagECE}, {flagACK | flagCWR, 2, flagACK}, {flagACK | flagCWR, 3, flagACK | flagECE}} {
				if promised == 0 {
					s.want = flagACK
				}
				payload := request[4*i : 4*i+4]
				if got := one(t, b.push(0, remark(c.client(s.flags, payload), s.tos, false))[0]); got.flags != s.want || got.ack != c.cseq {
					t.Errorf("promised %d, segment %d: ACK %v, want flags %#x", promised, i, got, s.want)
				}
			}
			b.check(t)
		}
	}
}
