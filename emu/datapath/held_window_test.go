package datapath

import (
	"testing"
	"time"

	"github.com/google/gopacket/layers"

	"splicenic/regs"
)

// TestHeldPromisesNewestWindow: what the card sends while bytes are held promises the window of the end's newest segment,
// with the acknowledgement of the same (RFC 9293, 3.10.7.4), not the largest ever told.
func TestHeldPromisesNewestWindow(t *testing.T) {
	b, c, _ := holding(t, regs.ServiceEntry{}, plainOptions, plainOptions, 65535)
	first := c.sack
	response := string(make([]byte, 1000))
	b.push(1, c.server(flagACK, response), c.server(flagACK, response), c.server(flagACK, response))
	old := *c
	for _, tt := range []struct {
		name        string
		ack         uint32 // more of the response
		window      uint16
		want        uint32
		wantAck     uint32
		retransmits bool // a segment from below H
	}{
		{"the window closes", 2000, 62000, 62000, 2000, false},
		{"an older segment", 1000, 63000, 62000, 2000, false},
		{"an older one from below H", 1000, 63500, 62000, 2000, true},
		{"opens", 2000, 63000, 63000, 2000, true},
		{"the newest", 3000, 61000, 61000, 3000, false},
	} {
		x := *c
		x.cack, x.window = old.cack+tt.ack, tt.window
		payload := ""
		if tt.retransmits {
			x.cseq, payload = c.boundary()-10, "0123456789"
		}
		b.push(0, x.client(flagACK, payload))
		held := b.resent(t)
		if held.seq != first || uint32(held.window) != tt.want || held.ack != c.sseq-3000+tt.wantAck {
			t.Errorf("%s: held bytes %v, want window %d and ack %#x", tt.name, held, tt.want, c.sseq-3000+tt.wantAck)
		}
	}
	for _, tt := range []struct {
		name   string
		ack    uint32 // of held bytes
		window uint16
		want   uint32 // the right edge
	}{
		{"the server's window closes", 2000, 20000, 22000},
		{"an older segment", 1000, 30000, 22000},
		{"opens", 2000, 25000, 27000},
		{"the newest", 3000, 23000, 26000},
	} {
		x := *c
		x.sack, x.serverWindow = first+tt.ack, tt.window
		b.push(1, x.server(flagACK, ""))
		x.cseq, x.cack = c.boundary()-1, c.cack+3000
		if got := one(t, b.push(0, x.client(flagACK, ""))[0]); got.ack != c.boundary() || got.ack+uint32(got.window)-first != tt.want {
			t.Errorf("%s: the client gets %v, want a right edge of %d", tt.name, got, tt.want)
		}
	}
	b.check(t)
}

// resent waits until the held bytes go again, and returns the first segment of them.
func (b *bench) resent(t *testing.T) tcp {
	t.Helper()
	for range 600 {
		if out := b.wait(100 * time.Millisecond)[1]; len(out) > 0 {
			return out[0]
		}
	}
	t.Fatal("not sent again within a minute")
	return tcp{}
}

// TestHeldClockOfFIN: the TSval of a FIN is an end's newest like any other, and what the card sends after it is not older.
func TestHeldClockOfFIN(t *testing.T) {
	for _, tt := range []struct {
		name    string
		payload string
	}{{"FIN", ""}, {"FIN with data", "the end"}} {
		t.Run(tt.name, func(t *testing.T) {
			b, c, base := holdingStamped(t)
			fin := c.client(flagACK|flagFIN, tt.payload, stamp(900, base)...)
			one(t, b.push(0, fin)[1])
			if held, _ := b.next(t, 1); held.stamp(t, 0) != 900 {
				t.Errorf("held bytes have TSval %d after 900", held.stamp(t, 0))
			}
			c.cack += uint32(len(tt.payload)) + 1
			down := one(t, b.push(1, c.server(flagACK|flagFIN, tt.payload, stamp(7700, 500)...))[0])
			if got := down.stamp(t, 0); got != base+700 {
				t.Fatalf("the server's FIN has TSval base%+d", int32(got-base))
			}
			x := *c
			x.cseq = c.boundary() - uint32(len(tt.payload)) - 2
			if got := one(t, b.push(0, x.client(flagACK, "", stamp(901, base)...))[0]).stamp(t, 0); got != base+700 {
				t.Errorf("our ACK has TSval base%+d after the server's base+700", int32(got-base))
			}
			b.check(t)
		})
	}
}

// holdingStamped brings a connection with timestamps to the splice. The client's clock is at 500 and the server's at 7000,
// which the client knows as base.
func holdingStamped(t *testing.T) (b *bench, c *conn, base uint32) {
	t.Helper()
	b = newBench(t, smallGeometry())
	b.serve(world4, 0, regs.ServiceEntry{PromiseTimestamps: 1})
	b.now = time.Second
	c = &conn{b: b, w: world4, port: 40001, cseq: 0xfffff000, sseq: 0xfffffffe}
	sa := one(t, b.push(0, c.client(flagSYN, "", optMSS(1460), optTS(500, 0)))[0])
	c.cack, base = sa.seq+1, sa.stamp(t, 0)
	c.sack = c.cseq
	b.push(0, c.client(flagACK, "", stamp(500, base)...))
	one(t, b.push(0, c.client(flagACK|flagPSH, request, stamp(500, base)...))[1])
	b.push(1, c.server(flagSYN|flagACK, "", optMSS(1460), optTS(7000, 500)))
	if b.state(c) != Spliced {
		t.Fatalf("state %d, want spliced", b.state(c))
	}
	return b, c, base
}

// TestStrangersTellNothing: before the splice a segment with numbers that no client sends changes neither its window nor
// its clock.
func TestStrangersTellNothing(t *testing.T) {
	for _, tt := range []struct {
		name     string
		seq, ack uint32 // beside the client's
		flags    uint8
	}{
		{"acknowledgement", 0, 1 << 20, flagACK}, {"FIN", 0x1000_0000, 0x2000_0000, flagACK | flagFIN}, {"sequence", 1 << 20, 0, flagACK},
		{"sequence before the first", 0xfff0_0000, 0, flagACK},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, c := asking(t, regs.ServiceEntry{}, plainOptions, plainOptions)
			x := *c
			x.cseq, x.cack, x.window = c.cseq+tt.seq, c.cack+tt.ack, 9
			b.push(0, x.client(tt.flags, "x"))
			if held := one(t, b.push(1, c.server(flagSYN|flagACK, "", plainOptions...))[1]); held.window != c.window {
				t.Errorf("held bytes have window %d, want the client's %d", held.window, c.window)
			}
		})
	}
}

func stamp(val, ecr uint32) []layers.TCPOption {
	return []layers.TCPOption{optNop, optNop, optTS(val, ecr)}
}
