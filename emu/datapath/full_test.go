package datapath

import (
	"net/netip"
	"testing"
	"time"

	"splicenic/regs"
)

// manyHandshakes lets n clients each send a SYN, and those that are answered an ACK; it returns how many SYN-ACKs and
// RSTs came.
func (b *bench) manyHandshakes(t *testing.T, w world, n int) (accepted, refused int) {
	t.Helper()
	for i := range n {
		c := &conn{b: b, w: w, port: uint16(10000 + i%50000), cseq: uint32(i) << 20}
		c.w.client = addressAt(w.client, i/50000)
		out := b.push(0, c.client(flagSYN, "", plainOptions...))
		s := one(t, out[0])
		switch {
		case s.flags == flagSYN|flagACK:
			accepted++
			c.cack = s.seq + 1
			if out := b.push(0, c.client(flagACK, "")); len(out[0])+len(out[1]) != 0 {
				t.Fatalf("handshake ACK %d draws %v", i, out)
			}
		case s.flags == flagRST|flagACK && s.seq == 0 && s.ack == c.cseq && s.to == c.w.client && s.dport == c.port:
			refused++
		default:
			t.Fatalf("SYN %d draws %v", i, s)
		}
	}
	return accepted, refused
}

func addressAt(a netip.Addr, i int) netip.Addr {
	for range i {
		a = a.Next()
	}
	return a
}

// TestMoreHandshakesThanPages sends more handshakes than there are pages, or CAM places: every one beyond gets one RST,
// counted by its reason, and after the time-outs everything is back.
func TestMoreHandshakesThanPages(t *testing.T) {
	for _, tt := range []struct {
		name       string
		w          world
		pages, cam uint32
		handshakes int
		counter    regs.Reg
	}{
		{"pages, IPv4", world4, 2949, 8192, 3000, regs.AmuNoPage},
		{"pages, IPv6", world6, 2949, 16384, 3000, regs.AmuNoPage},
		{"CAM places, IPv4", world4, 4096, 2048, 3000, regs.AmuNoCamPlace},
		{"CAM places, IPv6", world6, 4096, 2048, 3000, regs.AmuNoCamPlace},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := smallGeometry()
			g.Pages, g.CamClientWords, g.CamServerWords = tt.pages, tt.cam, tt.cam
			b := newBench(t, g)
			for i := range regs.Reg(4) {
				b.r.Set(regs.CamHashKey+4*i, 0x9e3779b9*uint32(i+1))
			}
			b.c.cams[ClientSide].Rekey()
			b.serve(tt.w, 0, regs.ServiceEntry{})
			b.r.Set(regs.TimerWaitHead, 500)
			b.now = time.Second
			accepted, refused := b.manyHandshakes(t, tt.w, tt.handshakes)
			if accepted+refused != tt.handshakes || refused == 0 {
				t.Fatalf("%d accepted and %d refused of %d", accepted, refused, tt.handshakes)
			}
			if tt.counter == regs.AmuNoPage && accepted != int(tt.pages) {
				t.Errorf("accepted %d, want %d", accepted, tt.pages)
			}
			for _, x := range []struct {
				r    regs.Reg
				want uint64
			}{
				{tt.counter, uint64(refused)}, {regs.AmuNoPage + regs.AmuNoCamPlace - tt.counter, 0},
				{regs.ConnectionOpened, uint64(accepted)}, {regs.ConnectionEstablished, uint64(accepted)},
				{regs.TransmitRst + clientEnd, uint64(refused)},
			} {
				if got := b.r.Get64(x.r); got != x.want {
					t.Errorf("%s: got %d, want %d", x.r.Name(), got, x.want)
				}
			}
			b.check(t)
			b.wait(610 * time.Millisecond)
			b.check(t)
			b.allFree(t)
			if got := b.r.Get64(regs.AmuAllocated); got != b.r.Get64(regs.AmuFreed) {
				t.Errorf("allocated %d, freed %d", got, b.r.Get64(regs.AmuFreed))
			}
			if got := b.r.Get64(regs.ConnectionExpiredWaitHead); got != uint64(accepted) {
				t.Errorf("expired_wait_head: got %d, want %d", got, accepted)
			}
			again, _ := b.manyHandshakes(t, tt.w, 100)
			if again != 100 {
				t.Errorf("afterwards %d of 100 handshakes are accepted", again)
			}
		})
	}
}

// TestServerCAMFull: a connection that finds no server-side place ends with one RST, counted as such.
func TestServerCAMFull(t *testing.T) {
	g := smallGeometry()
	g.CamServerWords, g.Heads = 16, 64
	b := newBench(t, g)
	b.serve(world4, 0, regs.ServiceEntry{})
	b.now = time.Second
	got := map[bool]int{}
	for i := range 40 {
		c := &conn{b: b, w: world4, port: uint16(41000 + i), cseq: 1, opts: plainOptions}
		c.reach(t, WaitHead)
		out := b.push(0, c.client(flagACK, request))
		got[len(out[1]) == 1]++
		if len(out[1]) == 0 && (len(out[0]) != 2 || out[0][1].flags&flagRST == 0) {
			t.Fatalf("connection %d: %v", i, out)
		}
		b.check(t)
	}
	if got[true] == 0 || got[true] > 16 || b.r.Get64(regs.AmuNoCamPlace) != uint64(got[false]) {
		t.Errorf("%d asked the server, %d were refused, no_cam_place counts %d", got[true], got[false], b.r.Get64(regs.AmuNoCamPlace))
	}
}

// TestHeadBuffersRunOut: without a free buffer the first payload is dropped unacknowledged; its repetition succeeds when
// one is free.
func TestHeadBuffersRunOut(t *testing.T) {
	g := smallGeometry()
	g.Heads = 2
	b := newBench(t, g)
	b.serve(world4, 0, regs.ServiceEntry{})
	b.now = time.Second
	var cs []*conn
	for range 3 {
		cs = append(cs, b.waiting(t, plainOptions))
	}
	for i, c := range cs {
		out := b.push(0, c.at(0, flagACK, request[:5]))
		if got, want := len(out[0]) == 1, i < 2; got != want {
			t.Errorf("connection %d: acknowledged %v, want %v", i, got, want)
		}
	}
	if got := b.r.Get64(regs.HeadNoneFree); got != 1 {
		t.Errorf("none_free: got %d, want 1", got)
	}
	if got := b.r.Get(regs.HeadLowest); got != 0 {
		t.Errorf("lowest: got %d, want 0", got)
	}
	b.check(t)
	b.kill(t, cs[0])
	if ack := one(t, b.push(0, cs[2].at(0, flagACK, request[:5]))[0]); ack.ack != cs[2].cseq+5 {
		t.Errorf("repeated: %v", ack)
	}
	b.check(t)
}
