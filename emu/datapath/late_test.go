package datapath

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"splicenic/emu/cam"
	"splicenic/emu/frame"
	"splicenic/regs"
)

// TestLateSegmentsOfBothServers: with leg set B armed by hand, a late segment of the first server goes to the client by leg
// set A, one of the second by leg set B, and a client's by where it begins, on either side of the boundary: byte for byte
// what the slow translation makes of it.
func TestLateSegmentsOfBothServers(t *testing.T) {
	for i, w := range []world{world4, world6} {
		t.Run(fmt.Sprint(w.client), func(t *testing.T) {
			b := newBench(t, smallGeometry())
			b.jumbo()
			b.now = time.Second
			second := w
			second.server = w.server.Next()
			b.serve(w, 0, regs.ServiceEntry{})
			other := second
			other.vip = w.vip.Next()
			b.serve(other, 1, regs.ServiceEntry{})
			b.push(0)
			r := rand.New(rand.NewPCG(3, uint64(i)))
			sent := [sides][2]int{}
			for range 400 {
				a := randomLeg(r, 0, w)
				n := b.plantLeg(a)
				p := b.c.page(n)
				// Leg set B as if it were set A, then where it belongs.
				bLeg := *a
				x := randomLeg(r, 0, second)
				bLeg.server, bLeg.deltaClient, bLeg.deltaServer, bLeg.stampClient, bLeg.stampServer = second.server, x.deltaClient, x.deltaServer, x.stampClient, x.stampServer
				bLeg.shiftClient, bLeg.shiftServer, bLeg.sack, bLeg.timestamps, bLeg.ecn = x.shiftClient, x.shiftServer, x.sack, x.timestamps, x.ecn
				l := *p
				l[regs.PageAIndex] = 1
				l[regs.PageADeltaClient], l[regs.PageADeltaServer] = bLeg.deltaClient, bLeg.deltaServer
				l[regs.PageATimestampClient], l[regs.PageATimestampServer] = bLeg.stampClient, bLeg.stampServer
				scale := l[regs.PageAScale] &^ (regs.PageAScaleSackMask | regs.PageAScaleTimestampsMask | regs.PageAScaleEcnMask)
				scale = regs.SetPageAScaleServer(regs.SetPageAScaleClient(scale, uint32(bLeg.shiftClient)), uint32(bLeg.shiftServer))
				for _, f := range []struct {
					on   bool
					mask uint32
				}{{bLeg.sack, regs.PageAScaleSackMask}, {bLeg.timestamps, regs.PageAScaleTimestampsMask}, {bLeg.ecn, regs.PageAScaleEcnMask}} {
					if f.on {
						scale |= f.mask
					}
				}
				l[regs.PageAScale] = scale
				l[regs.PageAChecksum] = b.c.differences(&l)
				copy(p[regs.PageBIndex:regs.PageBIndex+legWords], l[regs.PageAIndex:])
				boundary := near(r, 0)
				p[regs.PageBoundaryClient] = boundary
				k, h := b.c.serverKey(p, legWords)
				if got := b.c.cams[ServerSide].Insert(&k, h, handleOf(n, p), true); got != cam.OK {
					t.Fatalf("key of leg set B: result %d", got)
				}
				p[regs.PageControl] |= regs.PageControlLegBMask

				for range 8 {
					side := Side(r.IntN(2))
					from := r.IntN(2) // leg set
					set := [2]*leg{a, &bLeg}[from]
					raw, legal := randomFrame(r, set, side, false, nil)
					if side == ClientSide {
						seq := boundary + uint32(r.IntN(3000))
						if from == 0 {
							seq = boundary - 1 - uint32(r.IntN(3000))
						}
						ip, at, _, end := places(raw)
						raw = raw[:end]
						copy(raw[at+4:], u32(seq))
						resum(raw, ip, at)
					}
					want := set.translate(t, side, raw)
					f := &b.buf[0]
					f.Start, f.End, f.Offload = frame.Headroom, frame.Headroom+uint32(copy(f.Buf[frame.Headroom:], raw)), frame.Offload{}
					b.out.Reset()
					b.c.Process(int(side), b.buf[:1], b.out)
					got := b.out.Ports[1-side]
					if len(got) != 1 || !bytes.Equal(got[0].Bytes(), want) {
						t.Fatalf("side %d, leg set %d\n in   % x\n got  %d frames\n want % x", side, from, raw, len(got), want)
					}
					if legal {
						parseFrame(t, got[0].Bytes())
					}
					sent[side][from]++
				}
				b.c.free(n, p)
			}
			for side := range sent {
				for from, n := range sent[side] {
					if n < 100 {
						t.Errorf("side %d, leg set %d: %d segments: this cannot be all", side, from, n)
					}
				}
			}
		})
	}
}
