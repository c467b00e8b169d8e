package daemon_test

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"time"

	"splicenic/regs"
	"splicenic/runtime/daemon"
	"splicenic/runtime/view"
	"splicenic/tools/tcppeer"
)

// optionServer is a server of its own options at an address; it answers as httpServers do.
func (r *rig) optionServer(a string, cfg tcppeer.Config) *tcppeer.Host {
	addr := netip.MustParseAddrPort(a)
	cfg.Addresses, cfg.TimeWait = []netip.Prefix{netip.PrefixFrom(addr.Addr(), addr.Addr().BitLen())}, -1
	cfg.Handle = func(c *tcppeer.Conn, e tcppeer.Event) {
		if e == tcppeer.Data && strings.HasSuffix(string(c.Bytes()), "\r\n\r\n") {
			c.Discard(len(c.Bytes()))
			c.Write([]byte("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + a))
			c.CloseWrite()
		}
	}
	h := r.host(1, cfg)
	h.Listen(addr.Port())
	return h
}

// service reads the service entry in force.
func (r *rig) service(i uint32) (e regs.ServiceEntry) {
	r.Helper()
	bank, _ := r.card.Bank()
	e.Decode(r.entry(regs.MemService, bank, i))
	return e
}

func (r *rig) promises(what string, mss, wscaleOn, wscale, sack, timestamps uint32) {
	r.Helper()
	e := r.service(0)
	if e.PromiseMssIpv4 != mss || e.PromiseWscaleOn != wscaleOn || e.PromiseWscale != wscale || e.PromiseSack != sack || e.PromiseTimestamps != timestamps || e.PromiseEcn != 0 {
		r.Errorf("%s: service promises MSS %d, scale %d %d, SACK %d, timestamps %d, ECN %d; want %d, %d %d, %d, %d, 0", what,
			e.PromiseMssIpv4, e.PromiseWscaleOn, e.PromiseWscale, e.PromiseSack, e.PromiseTimestamps, e.PromiseEcn, mss, wscaleOn, wscale, sack, timestamps)
	}
}

const learning = base + `
services:
  - {name: web, listen: [198.18.0.80:80], default: app}
groups:
  - {name: app, servers: [{address: 198.18.1.11:80}, {address: 198.18.1.12:80}]}
`

var everything = tcppeer.Config{WindowScale: 5, SACK: true, Timestamps: true}

func (r *rig) known(addr string) string {
	r.Helper()
	for _, s := range r.d.Servers() {
		if s.Address.String() == addr {
			return s.From + ": " + s.Profile.String()
		}
	}
	return "no such server"
}

// counter reads a counter of the runtime's.
func (r *rig) counter(group, name string) uint64 {
	r.Helper()
	n, ok := r.d.Counters()[group].(view.Stats)[name].(uint64)
	if !ok {
		r.Fatalf("no counter %s.%s", group, name)
	}
	return n
}

// TestProfilesAreLearned: servers are asked what they keep; until all have answered, the service promises an MSS and is
// open all the same.
func TestProfilesAreLearned(t *testing.T) {
	r := newRig(t, small)
	one := r.optionServer("198.18.1.11:80", everything)
	c := r.client("198.18.0.10")
	r.apply(learning)
	r.run(20 * time.Millisecond)
	r.promises("one server is not there", 536, 0, 0, 0, 0)
	if got := r.known("198.18.1.11:80"); got != "known: mss 1460 wscale 5 sack timestamps" {
		t.Errorf("first server %s", got)
	}
	if _, e, _ := r.server("198.18.1.11:80"); e.ProfileKnown != 1 || e.ProfileMss != 1460 || e.ProfileWscale != 5 || e.ProfileSack != 1 || e.ProfileTimestamps != 1 {
		t.Errorf("first server's entry %+v", e)
	}
	if got := one.Stats(); got.Accepted != 1 || got.Retransmitted != 0 {
		t.Errorf("the probe is to the server %+v", got)
	}
	r.run(2 * time.Second)
	if got := one.Stats(); got.Retransmitted != 0 || one.Len() != 0 {
		t.Errorf("the probe left a connection: %+v", got)
	}

	two := everything
	two.WindowScale, two.MTU = 3, 1400
	r.optionServer("198.18.1.12:80", two)
	r.until("second server", 40*time.Second, func() bool { return strings.HasPrefix(r.known("198.18.1.12:80"), "known") })
	r.run(time.Millisecond)
	r.promises("both known", 1360, 1, 3, 1, 1)
	for range 2 {
		c.fetch("198.18.0.80:80", "x", "/")
	}
	if n := r.card.Load(regs.ConnectionServerLearned); n != 0 || c.reset != 0 {
		t.Errorf("server_learned %d, %d connections reset: what was learned is not so", n, c.reset)
	}
	if got := r.counter("actions", "reset"); got != 0 {
		t.Errorf("%d answers to probes drew an RST as for a closed port", got)
	}
	if got := r.counter("profiles", "learned"); got != 2 {
		t.Errorf("profiles.learned %d", got)
	}
	r.rest()
}

// TestProfileCorrected: the SYN-ACK of a connection corrects what was known, in the step that brings the event; so the
// next connection gets what the server keeps.
func TestProfileCorrected(t *testing.T) {
	r := newRig(t, small)
	r.optionServer("198.18.1.11:80", everything)
	c := r.client("198.18.0.10")
	r.apply(strings.Replace(learning, ", {address: 198.18.1.12:80}", "", 1))
	r.run(20 * time.Millisecond)
	r.promises("as learned", 1460, 1, 5, 1, 1)
	r.nets[1].hosts = nil // another system at the same address
	less := everything
	less.MTU = 1300
	r.optionServer("198.18.1.11:80", less)
	conn := c.get("198.18.0.80:80", "x", "/")
	r.until("mismatch", 5*time.Second, func() bool { return r.card.Load(regs.ConnectionServerProfile) == 1 })
	r.run(2 * time.Millisecond)
	r.promises("corrected", 1260, 1, 5, 1, 1)
	r.until("end", 5*time.Second, func() bool { return c.open == 0 })
	if got := c.answers[conn]; !strings.HasPrefix(got, "HTTP/1.1 503 ") {
		t.Errorf("the first connection got %q, want 503 of the card's own", got)
	}
	c.reset = 0
	if got := c.fetch("198.18.0.80:80", "x", "/"); got != "198.18.1.11:80" {
		t.Errorf("then answered by %q", got)
	}
	r.rest()
}

// TestProfileReadBack: a successor finds in the card what its predecessor had learned, promises it from the first moment,
// and asks again.
func TestProfileReadBack(t *testing.T) {
	for _, state := range []bool{true, false} {
		r := newSuccession(t)
		if !state {
			r.state = ""
		}
		r.optionServer("198.18.1.11:80", everything)
		r.optionServer("198.18.1.12:80", everything)
		r.apply(learning)
		r.run(20 * time.Millisecond)
		r.promises("as learned", 1460, 1, 5, 1, 1)
		generation := r.service(0)
		r.attach()
		before := r.dev.stores
		r.load(learning)
		if got := r.dev.stores - before; got > 2 {
			t.Errorf("%d stores for tables that are right", got)
		}
		if r.service(0) != generation {
			t.Error("another promise")
		}
		asked := r.counter("actions", "probe")
		r.run(100 * time.Millisecond)
		if got := r.counter("actions", "probe"); got != asked+2 {
			t.Errorf("%d servers asked again, want 2", got-asked)
		}
		r.promises("confirmed", 1460, 1, 5, 1, 1)
		r.rest()
	}
}

// TestProfileConfigured: a server whose profile the configuration gives is not asked. One that does not keep it is told of
// once.
func TestProfileConfigured(t *testing.T) {
	r := newRig(t, small)
	h := r.optionServer("198.18.1.11:80", everything)
	c := r.client("198.18.0.10")
	r.apply(strings.Replace(learning, "{address: 198.18.1.11:80}, {address: 198.18.1.12:80}", "{address: 198.18.1.11:80, profile: {mss: 1000, sack: true}}", 1))
	r.run(20 * time.Millisecond)
	r.promises("as configured", 1000, 0, 0, 1, 0)
	if got := h.Stats().Accepted; got != 0 {
		t.Errorf("the server was asked %d times", got)
	}
	if got := r.known("198.18.1.11:80"); got != daemon.Configured+": mss 1000 sack" {
		t.Errorf("the server is %s", got)
	}
	for range 3 {
		if got := c.fetch("198.18.0.80:80", "x", "/"); got == "" {
			t.Error("not answered")
		}
	}
	r.promises("after a difference", 1000, 0, 0, 1, 0)
	if got := strings.Count(r.log.String(), "does not keep the profile"); got != 1 {
		t.Errorf("the difference is told %d times:\n%s", got, &r.log)
	}
	r.rest()
}

// TestProfileOfAnotherConfiguration: a server that leaves the configuration is forgotten, and one that gets a profile there
// has that one.
func TestProfileOfAnotherConfiguration(t *testing.T) {
	r := newRig(t, small)
	r.optionServer("198.18.1.11:80", everything)
	r.optionServer("198.18.1.12:80", everything)
	r.apply(learning)
	r.run(20 * time.Millisecond)
	r.load(strings.Replace(learning, "{address: 198.18.1.11:80}, {address: 198.18.1.12:80}", "{address: 198.18.1.11:80, profile: {mss: 1200}}", 1))
	r.promises("another configuration", 1200, 0, 0, 0, 0)
	if list := r.d.Servers(); len(list) != 1 || list[0].From != daemon.Configured {
		t.Errorf("servers %+v", list)
	}
	if _, err := r.d.Load(context.Background(), "test.yaml", []byte(learning)); err != nil {
		t.Fatal(err)
	}
	r.promises("not known again yet", 536, 0, 0, 0, 0)
	r.run(20 * time.Millisecond)
	r.promises("known again", 1460, 1, 5, 1, 1)
	r.rest()
}
