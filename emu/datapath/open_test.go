package datapath

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/gopacket/layers"

	"splicenic/regs"
)

// TestPortZero takes a connection from client port 0 through its life: nothing of it may stay behind.
func TestPortZero(t *testing.T) {
	b := newBench(t, smallGeometry())
	b.serve(world4, 0, regs.ServiceEntry{})
	b.now = time.Second
	c := &conn{b: b, w: world4, port: 0, cseq: 1, sseq: 2, opts: plainOptions, sopts: plainOptions}
	c.splice(t)
	b.translateBothWays(t, c)
	b.check(t)
	b.closeBoth(t, c)
	b.check(t)
}

// TestMSSFitsTheLink: the promise is the service's, and never more than the port's MTU has room for; what the server is
// offered is the client's, and never more than the way to the server has room for. Options are not taken off.
func TestMSSFitsTheLink(t *testing.T) {
	for _, tt := range []struct {
		w                          world
		mtu                        [2]uint32 // of the ports
		hop                        uint32    // of the next hop, zero: the port's
		promise, offer             uint16
		wantToClient, wantToServer uint16
	}{
		{world4, [2]uint32{1500, 1500}, 0, 1460, 1460, 1460, 1460},
		{world4, [2]uint32{1500, 1500}, 0, 8960, 1460, 1460, 1460},
		{world6, [2]uint32{1500, 1500}, 0, 1460, 1440, 1440, 1440},
		{world6, [2]uint32{9000, 9000}, 0, 8940, 8940, 8940, 8940},
		{world6, [2]uint32{9000, 9000}, 0, 8960, 8940, 8940, 8940},
		{world4, [2]uint32{9000, 9000}, 0, 8960, 8960, 8960, 8960},
		{world4, [2]uint32{9000, 1500}, 0, 1460, 8960, 1460, 1460},
		{world4, [2]uint32{9000, 9000}, 1400, 1360, 8960, 1360, 1360},
		{world6, [2]uint32{9000, 9000}, 1400, 1340, 8940, 1340, 1340},
		{world4, [2]uint32{1500, 1500}, 9000, 1460, 1460, 1460, 1460},
		{world4, [2]uint32{1500, 1500}, 0, 1300, 500, 1300, 500},
	} {
		t.Run(fmt.Sprintf("%v promise %d offer %d", tt.w.client, tt.promise, tt.offer), func(t *testing.T) {
			b := newBench(t, smallGeometry())
			b.serve(tt.w, 0, regs.ServiceEntry{PromiseMssIpv4: uint32(tt.promise), PromiseMssIpv6: uint32(tt.promise)})
			b.m.NextHop[regs.NextHopMacHi] |= tt.hop << regs.NextHopMacHiMtuShift
			for i, mtu := range tt.mtu {
				b.r.Set(regs.PortMtu+regs.Reg(i)*regs.PortStride, mtu)
			}
			b.now = time.Second
			opts := []layers.TCPOption{optMSS(tt.offer)}
			c := &conn{b: b, w: tt.w, port: 40001, cseq: 1, sseq: 2, opts: opts, sopts: opts}
			sa := one(t, b.push(0, c.client(flagSYN, "", opts...))[0])
			if got := mssOf(t, sa); got != tt.wantToClient {
				t.Errorf("promised %d, want %d", got, tt.wantToClient)
			}
			c.cack = sa.seq + 1
			b.push(0, c.client(flagACK, ""))
			if got := mssOf(t, one(t, b.push(0, c.client(flagACK, request))[1])); got != tt.wantToServer {
				t.Errorf("offered %d, want %d", got, tt.wantToServer)
			}
		})
	}
}

func mssOf(t *testing.T, s tcp) uint16 {
	t.Helper()
	o := s.option(layers.TCPOptionKindMSS)
	if len(o) != 2 {
		t.Fatalf("no MSS in %v", s)
	}
	return uint16(o[0])<<8 | uint16(o[1])
}

// TestUnspecifiedSource: nobody can be answered at ::.
func TestUnspecifiedSource(t *testing.T) {
	b := newBench(t, smallGeometry())
	w := world6
	w.client = netip.IPv6Unspecified()
	b.serve(w, 0, regs.ServiceEntry{})
	c := &conn{b: b, w: w, port: 40001}
	if out := b.push(0, c.client(flagSYN, "")); len(out[0])+len(out[1]) != 0 {
		t.Errorf("a SYN from :: draws %v", out)
	}
	if got := b.r.Get64(regs.ParserDropIpSource); got != 1 {
		t.Errorf("drop_ip_source: got %d, want 1", got)
	}
	b.check(t)
	b.allFree(t)
}

// TestLowWatermarks: falling below a watermark raises its cause once.
func TestLowWatermarks(t *testing.T) {
	b := newBench(t, smallGeometry())
	b.serve(world4, 0, regs.ServiceEntry{})
	b.attach()
	b.r.Set(regs.AmuLowWatermark, 250)
	b.r.Set(regs.HeadLowWatermark, 30)
	b.now = time.Second
	cause := func() uint32 { return b.r.Get(regs.HostifCause) }
	for i := range 8 {
		want := uint32(0)
		if 256-i < 250 {
			want |= regs.HostifCausePagesLowMask
		}
		if 32-i < 30 {
			want |= regs.HostifCauseHeadLowMask
		}
		if got := cause(); got != want {
			t.Errorf("after %d connections: cause %#x, want %#x", i, got, want)
		}
		c := &conn{b: b, w: world4, port: uint16(41000 + i), opts: plainOptions}
		c.reach(t, WaitHead)
		b.push(0, c.client(flagACK, "GET"))
	}
	b.check(t)
}

// TestISN: initial sequence numbers are keyed by the connection and follow a clock (RFC 6528); or, where the service asks
// for it, the address of the page.
func TestISN(t *testing.T) {
	isn := func(key uint32, now time.Duration, port uint16, isnKind uint32) (seq, n uint32) {
		b := newBench(t, smallGeometry())
		b.serve(world4, 0, regs.ServiceEntry{ControlIsn: isnKind})
		for i := range regs.Reg(4) {
			b.r.Set(regs.TransmitIsnKey+4*i, key+uint32(i))
		}
		b.now = now
		c := &conn{b: b, w: world4, port: port, cseq: 1}
		seq = one(t, b.push(0, c.client(flagSYN, "", plainOptions...))[0]).seq
		return seq, b.pageOf(t)
	}
	base, _ := isn(1, time.Second, 40001, regs.ServiceControlIsnKeyed)
	if again, _ := isn(1, time.Second, 40001, regs.ServiceControlIsnKeyed); again != base {
		t.Errorf("the same connection at the same time: %#x and %#x", base, again)
	}
	if later, _ := isn(1, time.Second+400*time.Microsecond, 40001, regs.ServiceControlIsnKeyed); later-base != 100 {
		t.Errorf("400 microseconds later: %d more, want 100", later-base)
	}
	if other, _ := isn(1, time.Second, 40002, regs.ServiceControlIsnKeyed); other == base {
		t.Error("another port has the same number")
	}
	if other, _ := isn(2, time.Second, 40001, regs.ServiceControlIsnKeyed); other == base {
		t.Error("another key gives the same number")
	}
	if got, n := isn(1, time.Second, 40001, regs.ServiceControlIsnAddress); got != n {
		t.Errorf("isn: address: got %#x, want page %d", got, n)
	}
}

// TestPromisedOptions: a SYN-ACK carries what the service promises and the client offered, nothing else.
func TestPromisedOptions(t *testing.T) {
	for bits := range 64 {
		promise := regs.ServiceEntry{PromiseWscale: 5}
		opts := []layers.TCPOption{optMSS(1460)}
		promised, offered := bits&7, bits>>3
		promise.PromiseWscaleOn, promise.PromiseSack, promise.PromiseTimestamps = uint32(promised&1), uint32(promised>>1&1), uint32(promised>>2)
		if offered&1 != 0 {
			opts = append(opts, optWscale(8))
		}
		if offered&2 != 0 {
			opts = append(opts, optSACK)
		}
		if offered&4 != 0 {
			opts = append(opts, optTS(1234, 0))
		}
		b := newBench(t, smallGeometry())
		b.serve(world4, 0, promise)
		b.now = time.Second
		c := &conn{b: b, w: world4, port: 40001, cseq: 1, sseq: 9, opts: opts}
		sa := one(t, b.push(0, c.client(flagSYN, "", opts...))[0])
		checkOptions(t, fmt.Sprintf("promised %03b offered %03b: SYN-ACK", promised, offered), sa, promised&offered, 5, 1234)
		c.cack = sa.seq + 1
		b.push(0, c.client(flagACK, ""))
		syn := one(t, b.push(0, c.client(flagACK, request))[1])
		checkOptions(t, fmt.Sprintf("promised %03b offered %03b: our SYN", promised, offered), syn, promised&offered, 8, 0)
	}
}

func checkOptions(t *testing.T, what string, s tcp, want int, wscale uint8, ecr uint32) {
	t.Helper()
	got := 0
	for _, o := range s.options {
		switch o.OptionType {
		case layers.TCPOptionKindMSS, layers.TCPOptionKindNop:
		case layers.TCPOptionKindWindowScale:
			got |= 1
			if o.OptionData[0] != wscale {
				t.Errorf("%s: window scale %d, want %d", what, o.OptionData[0], wscale)
			}
		case layers.TCPOptionKindSACKPermitted:
			got |= 2
		case layers.TCPOptionKindTimestamps:
			got |= 4
			if e := o.OptionData[4:]; uint32(e[0])<<24|uint32(e[1])<<16|uint32(e[2])<<8|uint32(e[3]) != ecr {
				t.Errorf("%s: TSecr % x, want %d", what, e, ecr)
			}
		default:
			t.Errorf("%s: option kind %d", what, o.OptionType)
		}
	}
	if got != want {
		t.Errorf("%s: options %03b, want %03b", what, got, want)
	}
}
