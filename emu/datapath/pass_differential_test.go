package datapath

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"splicenic/regs"
)

// TestPassedReference compares what nat makes of segments and datagrams with the slow translator: only addresses, ports,
// hops, MAC addresses and sums may differ, whatever the options.
func TestPassedReference(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	b := newBench(t, smallGeometry())
	b.jumbo()
	b.now = time.Hour
	worlds := []world{world4, world6}
	worlds[1].vlanServer = 9
	for i, w := range worlds {
		b.serve(w, i, regs.ServiceEntry{})
	}
	b.push(0)
	buf, compared := make([]byte, 4096), 0
	for range cases() / 4 {
		i := r.IntN(2)
		l := randomLeg(r, i, worlds[i])
		l.deltaClient, l.deltaServer, l.stampClient, l.stampServer, l.shiftClient, l.shiftServer = 0, 0, 0, 0, 0, 0
		l.sack, l.timestamps, l.ecn = true, false, true
		n := b.plantLeg(l)
		w := b.c.page(n)
		w[regs.PageClientLink] |= regs.PageClientLinkPassedMask
		side := Side(r.IntN(2))
		raw, _ := randomFrame(r, l, side, false, buf)
		if k, _ := b.kindOf(int(side), raw); k != SYN && k != SYNData && k != SYNACK { // whose MSS is lowered
			want := l.translate(t, side, raw)
			if got := b.pushRaw(int(side), raw)[1-side]; len(got) != 1 || !bytes.Equal(got[0], want) {
				t.Fatalf("side %d:\n in   % x\n got  % x\n want % x", side, raw, got, want)
			}
			compared++
		}
		b.c.free(n, w)
	}
	if compared < 1000 {
		t.Errorf("%d compared", compared)
	}
}
