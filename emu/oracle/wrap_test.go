package oracle_test

import (
	"net/netip"
	"testing"
	"time"

	"splicenic/regs"
	"splicenic/tools/tcppeer"
)

// TestIdleHour leaves a connection alone for an hour of virtual time but for keep-alive probes of both ends, and goes on
// with it.
func TestIdleHour(t *testing.T) {
	all := peers{7, true, true}
	x := newTransfer(50_000, 50_000)
	cfg := config{promise: all.promise()}
	all.set(&cfg.client)
	all.set(&cfg.server)
	cfg.client.Handle, cfg.server.Handle = x.handle(0), x.handle(1)
	n := newNetwork(t, cfg)
	if _, err := n.client.Host.Dial(0, netip.AddrPortFrom(clientAddress, 40_000), vip); err != nil {
		t.Fatal(err)
	}
	// Both flows stop before their ends.
	up, down := x.up.want, x.down.want
	x.up.want, x.down.want = up-10_000, down-10_000
	x.hold = true
	n.until("first part", time.Minute, func() bool {
		x.done()
		return x.up.got == x.up.want && x.down.got == x.down.want
	})
	const hour, every = time.Hour, 75 * time.Second
	probes := 0
	for end := n.now + hour; n.now < end; probes++ {
		next := n.now + every
		for n.now < next {
			n.step()
		}
		before := [2]uint64{n.client.Host.Stats().Segments, n.server.Host.Stats().Segments}
		x.conns[probes%2].KeepAlive()
		n.until("answer", time.Second, func() bool {
			return [2]uint64{n.client.Host.Stats().Segments, n.server.Host.Stats().Segments}[probes%2] > before[probes%2]
		})
	}
	if got := n.load(regs.AmuLive); got != 1 {
		t.Fatalf("%d connections live after an hour", got)
	}
	x.up.want, x.down.want, x.hold = up, down, false
	n.until("second part", time.Minute, x.done)
	x.check(t)
	if s := n.sound(); s.Resets != 0 || probes < 45 {
		t.Errorf("%d probes, %+v", probes, s)
	}
}

// isnOfCard finds a time at which the card's sequence number for a client port is below 2^32 by less than margin: it
// goes up by one every four microseconds.
func (n *network) isnOfCard(port uint16, margin uint32) {
	n.Helper()
	c, err := n.client.Host.Dial(n.now, netip.AddrPortFrom(clientAddress, port), vip)
	if err != nil {
		n.Fatal(err)
	}
	n.until("handshake", time.Minute, func() bool { return c.State() == tcppeer.Open })
	dialed := n.now
	_, isn := c.Sequence()
	c.Abort()
	n.until("rest", time.Minute, func() bool { return n.load(regs.AmuLive)+n.load(regs.AmuQuarantined) == 0 })
	// The wait is over a little early; the next SYN leaves at once.
	wait := time.Duration(-margin-isn) * 4 * time.Microsecond
	n.now = max(n.now, dialed+wait)
}

// TestWrap sends across the end of the sequence space, of each of the three sides and of all, in both directions.
func TestWrap(t *testing.T) {
	const margin = 200_000
	near := func(netip.AddrPort, netip.AddrPort) uint32 { return 1<<32 - margin/2 }
	edge := func(netip.AddrPort, netip.AddrPort) uint32 { return 1<<32 - 1 } // the SYN has the last number
	for _, tt := range []struct {
		name           string
		client, server func(netip.AddrPort, netip.AddrPort) uint32
		card           bool
	}{
		{"client", near, nil, false},
		{"server", nil, near, false},
		{"card", nil, nil, true},
		{"all", near, near, true},
		{"SYN at the last number", edge, edge, true},
	} {
		for wi, w := range wires {
			if testing.Short() && wi > 1 {
				continue
			}
			t.Run(tt.name+"/"+w.name, func(t *testing.T) {
				all := peers{7, true, true}
				x := newTransfer(2*margin, 2*margin)
				cfg := config{promise: all.promise(), seed: uint64(wi)}
				all.set(&cfg.client)
				all.set(&cfg.server)
				cfg.client.ISN, cfg.server.ISN = tt.client, tt.server
				var handle func(c *tcppeer.Conn, e tcppeer.Event)
				cfg.client.Handle = func(c *tcppeer.Conn, e tcppeer.Event) {
					if handle != nil {
						handle(c, e)
					}
				}
				cfg.server.Handle = x.handle(1)
				n := newNetwork(t, cfg)
				if tt.card {
					n.isnOfCard(40_000, margin/2)
				}
				for i := range cfg.wires {
					n.impair(i, w.how, uint64(wi))
				}
				handle = x.handle(0)
				c, err := n.client.Host.Dial(n.now, netip.AddrPortFrom(clientAddress, 40_000), vip)
				if err != nil {
					t.Fatal(err)
				}
				n.until("handshake", time.Minute, func() bool { x.done(); return c.State() >= tcppeer.Open })
				isn, peer := c.Sequence()
				for _, s := range []struct {
					who  string
					isn  uint32
					want bool
				}{{"client", isn, tt.client != nil}, {"card", peer, tt.card}} {
					if wraps := -s.isn < margin; wraps != s.want {
						t.Errorf("the %s begins at %#x, which wraps: %v, want %v", s.who, s.isn, wraps, s.want)
					}
				}
				n.until("transfer", 20*time.Minute, x.done)
				x.check(t)
				if s := n.sound(); s.Resets != 0 {
					t.Errorf("%+v", s)
				}
			})
		}
	}
}

// TestLarge carries so much through one splice that the numbers of both directions go round: 5 GiB each way with
// SPLICE_LONG. The short one starts close to the end.
func TestLarge(t *testing.T) {
	size := int64(8 << 20)
	if long() {
		size = 5 << 30
	}
	all := peers{7, true, true}
	x := newTransfer(size, size)
	cfg := config{promise: all.promise()}
	for _, c := range []*tcppeer.Config{&cfg.client, &cfg.server} {
		all.set(c)
		c.WindowBytes = 128 << 10
		c.ISN = func(netip.AddrPort, netip.AddrPort) uint32 { return 1<<32 - 1<<20 }
	}
	start := time.Now()
	n := carry(t, cfg, x)
	s := n.sound()
	if s.Resets != 0 || s.BytesUp != uint64(x.up.want) || s.BytesDown != uint64(size) {
		t.Errorf("%+v", s)
	}
	t.Logf("%d MiB each way in %v of real and %v of virtual time, %d frames", size>>20, time.Since(start).Round(time.Second), n.now.Round(time.Second), s.Frames)
}
