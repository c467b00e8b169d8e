package daemon_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"splicenic/regs"
	"splicenic/runtime/view"
	"splicenic/tools/tcppeer"
)

// passed is a service whose connections are passed on; what stands in for %s are more of its keys and of its group's.
const passed = base + `
services:
  - name: web
    listen: [198.18.0.80:80]
    mode: nat
    defence: off
    default: app
    %s
groups:
  - name: app
    %s
    servers: [{address: 198.18.1.11:80}, {address: 198.18.1.12:80}]
`

// names fetches n times and lists the last digit of the servers that answered.
func (c *client) names(n int) string {
	c.r.Helper()
	var b strings.Builder
	for range n {
		host, _, _ := strings.Cut(c.fetch("198.18.0.80:80", "a", "/"), ":")
		if host == "" {
			b.WriteByte('-')
			continue
		}
		b.WriteByte(host[len(host)-1])
	}
	return b.String()
}

// keepAlive is a server that answers each request with its name and keeps the connection.
func (r *rig) keepAlive(addrs ...string) {
	for _, a := range addrs {
		addr := netip.MustParseAddrPort(a)
		h := r.host(1, tcppeer.Config{Addresses: []netip.Prefix{netip.PrefixFrom(addr.Addr(), addr.Addr().BitLen())}, TimeWait: -1, Handle: func(c *tcppeer.Conn, e tcppeer.Event) {
			if e == tcppeer.Data && strings.HasSuffix(string(c.Bytes()), "\r\n\r\n") {
				c.Discard(len(c.Bytes()))
				c.Write([]byte(a + ";"))
			}
			if e == tcppeer.PeerClosed {
				c.CloseWrite()
			}
		}})
		h.Listen(addr.Port())
	}
}

// TestCaseC15: weighted round robin gives connections in the order of LVS, without runs. A server at its limit is passed over.
func TestCaseC15(t *testing.T) {
	r := newRig(t, small)
	r.httpServers("198.18.1.11:80", "198.18.1.12:80", "198.18.1.13:80")
	c := r.client("198.18.0.10")
	three := strings.Replace(fmt.Sprintf(passed, "", "scheduler: wrr"), "[{address: 198.18.1.11:80}, {address: 198.18.1.12:80}]",
		"[{address: 198.18.1.11:80, weight: 4, upper: 1}, {address: 198.18.1.12:80, weight: 3}, {address: 198.18.1.13:80, weight: 2}]", 1)
	r.apply(strings.Replace(three, ", upper: 1", "", 1))
	r.run(10 * time.Millisecond)
	if got := c.names(9); got != "112123123" {
		t.Errorf("order %s, want 112123123", got)
	}
	r.run(2 * time.Second) // nothing counts any more
	r.keepAlive("198.18.1.11:80")
	r.apply(three)
	index, _, _ := r.server("198.18.1.11:80")
	hold := 0
	for range 9 { // until one is at A, and stays
		conn, err := c.h.Dial(r.now, netip.AddrPortFrom(c.from, 0), netip.MustParseAddrPort("198.18.0.80:80"))
		if err != nil {
			t.Fatal(err)
		}
		conn.Tag = uint64(len(c.requests))
		c.requests = append(c.requests, "x")
		hold++
		r.run(5 * time.Millisecond)
		state := r.entry(regs.MemServerState, 0, index)
		if state[regs.ServerStateUpper] != 1 {
			t.Fatalf("limit is %d", state[regs.ServerStateUpper])
		}
		if regs.ServerStateFlagsOverloaded(state[regs.ServerStateFlags]) != 0 {
			break
		}
	}
	if got := c.names(10); strings.ContainsAny(got, "1-") || strings.Count(got, "2") != 6 && strings.Count(got, "2") != 5 {
		t.Errorf("with A full: %s", got)
	}
}

// TestCaseC09: a server that is taken out goes on with its connections, and gets no new ones; when the time is over those that
// are left are reset at both ends, nothing of them stays, and they are counted apart from those that ended before.
func TestCaseC09(t *testing.T) {
	r := newRig(t, small)
	r.keepAlive("198.18.1.11:80", "198.18.1.12:80")
	c := r.client("198.18.0.10")
	text := fmt.Sprintf(passed, "", "drain: 10s")
	r.apply(text)
	r.run(10 * time.Millisecond)
	ask := func(conn *tcppeer.Conn) string {
		t.Helper()
		conn.Discard(len(conn.Bytes()))
		conn.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
		r.until("answer", time.Second, func() bool { return strings.HasSuffix(string(conn.Bytes()), ";") })
		return strings.TrimSuffix(string(conn.Bytes()), ";")
	}
	open := func() *tcppeer.Conn {
		t.Helper()
		conn := c.get("198.18.0.80:80", "a", "/")
		r.until("answer", time.Second, func() bool { return strings.HasSuffix(string(conn.Bytes()), ";") })
		return conn
	}
	long, beside, brief := open(), open(), open()
	for i, want := range []string{"198.18.1.11:80", "198.18.1.12:80", "198.18.1.11:80"} {
		if got := ask([]*tcppeer.Conn{long, beside, brief}[i]); got != want {
			t.Fatalf("connection %d at %s", i, got)
		}
	}
	r.apply(edit(t, text, "198.18.1.11:80}", "198.18.1.11:80, weight: 0}"))
	for range 5 {
		if got := ask(long); got != "198.18.1.11:80" {
			t.Errorf("weight 0: request at %s", got)
		}
	}
	opened := 0
	others := func(when string) {
		t.Helper()
		for range 3 {
			if got := ask(open()); got != "198.18.1.12:80" {
				t.Errorf("%s: new connection at %s", when, got)
			}
			opened++
		}
	}
	others("weight 0")
	r.apply(edit(t, text, "{address: 198.18.1.11:80}, ", ""))
	start := r.now
	others("drain")
	brief.CloseWrite()
	for r.now < start+9*time.Second {
		r.run(1500 * time.Millisecond)
		if got := ask(long); got != "198.18.1.11:80" || c.reset != 0 {
			t.Errorf("%v into the drain: request at %s, %d resets", r.now-start, got, c.reset)
		}
	}
	others("end of the drain")
	r.nets[0].frames, r.nets[1].frames = nil, nil
	r.nets[0].record, r.nets[1].record = true, true
	r.until("reset", 2*time.Second, func() bool { return c.reset == 1 })
	if d := r.now - start; d < 10*time.Second || d > 10100*time.Millisecond {
		t.Errorf("reset after %v", d)
	}
	for side, n := range r.nets {
		resets := 0
		for _, f := range n.frames {
			if isTCP(f) && ipOf(f)[33]&4 != 0 {
				resets++
			}
		}
		if resets != 1 {
			t.Errorf("side %d: %d RSTs", side, resets)
		}
		n.record = false
	}
	if n := r.nets[1].hosts[0].Len(); n != 0 {
		t.Errorf("the server still has %d connections", n)
	}
	if got := ask(beside); got != "198.18.1.12:80" || c.reset != 1 {
		t.Errorf("another server's connection is at %s, %d resets", got, c.reset)
	}
	r.run(3 * time.Second)
	if _, _, ok := r.server("198.18.1.11:80"); ok {
		t.Error("the server's entry is there still")
	}
	if got := r.d.Status().Drains; got.Cut != 1 || got.Drained != 1 {
		t.Errorf("drained and cut: %+v", got)
	}
	if got := r.card.Load(regs.AmuLive); got != uint32(1+opened) {
		t.Errorf("%d pages in use, want those of %d connections", got, 1+opened)
	}
}

// TestExpireNodest: connections end with their server where the service says so.
func TestExpireNodest(t *testing.T) {
	r := newRig(t, small)
	r.keepAlive("198.18.1.11:80", "198.18.1.12:80")
	c := r.client("198.18.0.10")
	text := fmt.Sprintf(passed, "expire_nodest: true", "drain: 10s")
	r.apply(text)
	r.run(10 * time.Millisecond)
	c.get("198.18.0.80:80", "a", "/")
	r.run(50 * time.Millisecond)
	r.apply(edit(t, text, "{address: 198.18.1.11:80}, ", ""))
	r.run(20 * time.Millisecond)
	if c.reset != 1 {
		t.Errorf("%d resets", c.reset)
	}
}

// TestCaseC13: what persistence a file says counts from its reload on, be it changed, removed or added: a client that rests is
// remembered for as long, and a new one until it has rested. An open connection of another client survives all of that.
func TestCaseC13(t *testing.T) {
	r := newRig(t, small)
	r.keepAlive("198.18.1.13:80")
	r.httpServers("198.18.1.11:80", "198.18.1.12:80")
	c, other := r.client("198.18.0.10"), r.client("198.18.0.11")
	three := strings.Replace(passed, "servers: [", "servers: [{address: 198.18.1.13:80}, ", 1)
	r.apply(fmt.Sprintf(three, "persistence: {time: 60s}", ""))
	r.run(10 * time.Millisecond)
	kept := other.get("198.18.0.80:80", "a", "/")
	r.until("answer", time.Second, func() bool { return len(kept.Bytes()) > 0 })
	// The server that has it takes no other: those end their connections, and clients rest.
	three = strings.Replace(three, "{address: 198.18.1.13:80}", "{address: 198.18.1.13:80, weight: 0}", 1)
	last := ""
	for i, x := range []struct {
		keys    string
		seconds time.Duration
	}{{"persistence: {time: 60s}", 60}, {"persistence: {time: 13s}", 13}, {"", 0}, {"persistence: {time: 20s}", 20}, {"persistence: {time: 13s}", 13}} {
		r.apply(fmt.Sprintf(three, x.keys, ""))
		if got := r.service(0).Persistence; got != uint32(x.seconds)*1000 {
			t.Errorf("reload %d, %q: %d ms", i, x.keys, got)
		}
		got := c.names(4)
		if same := got == "1111" || got == "2222"; same != (x.seconds != 0) || strings.ContainsAny(got, "3-") {
			t.Errorf("reload %d, %q: servers %s", i, x.keys, got)
		}
		if i == 1 && got[:1] != last {
			t.Errorf("%q: server %s, before the reload %s", x.keys, got, last)
		}
		if x.seconds == 0 {
			continue
		}
		r.pass(x.seconds*time.Second - 500*time.Millisecond)
		if again := c.names(1); again != got[:1] {
			t.Errorf("reload %d, %q: server %s after a rest that is shorter, %s before", i, x.keys, again, got)
		}
		if i == 0 { // what it remembers outlives the reload, and then counts as the file says
			last = got[:1]
			continue
		}
		live := r.card.Load(regs.AmuLive) // the other client's connection and template, and this one's template
		r.pass(x.seconds*time.Second + 4*time.Second)
		if now := r.card.Load(regs.AmuLive); live != 3 || now != 2 {
			t.Errorf("reload %d, %q: %d pages in use, after a rest %d", i, x.keys, live, now)
		}
	}
	kept.Discard(len(kept.Bytes()))
	kept.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
	r.until("answer of the open connection", time.Second, func() bool { return string(kept.Bytes()) == "198.18.1.13:80;" })
	if n := c.reset + c.failed + other.reset + other.failed; n != 0 {
		t.Errorf("%d connections were lost", n)
	}
}

// TestCaseC11: persistence does not hold a client at a server that failed its check or was taken out.
func TestCaseC11(t *testing.T) {
	r := newRig(t, small)
	r.httpServers("198.18.1.11:80", "198.18.1.12:80")
	c := r.client("198.18.0.10")
	off := r.off()
	text := fmt.Sprintf(passed, "persistence: {time: 1800s}", "check: {type: tcp, interval: 200ms, timeout: 100ms, rise: 2, fall: 1}")
	r.apply(text)
	r.run(100 * time.Millisecond)
	first := c.names(3)
	if first != "111" && first != "222" {
		t.Fatalf("persistence: %s", first)
	}
	at := map[byte]string{'1': "198.18.1.11", '2': "198.18.1.12"}[first[0]]
	other := map[byte]string{'1': "222", '2': "111"}[first[0]]
	off[netip.MustParseAddr(at)] = true
	r.run(500 * time.Millisecond)
	if got := c.names(3); got != other {
		t.Errorf("%s down: %s", at, got)
	}
	delete(off, netip.MustParseAddr(at))
	r.run(time.Second)
	if got := c.names(3); got != other { // the template was rewritten
		t.Errorf("%s up again: %s", at, got)
	}
	gone := map[byte]string{'1': "{address: 198.18.1.11:80}, ", '2': ", {address: 198.18.1.12:80}"}[other[0]]
	r.apply(edit(t, text, gone, ""))
	r.run(10 * time.Millisecond)
	if got := c.names(3); got != first {
		t.Errorf("taken out: %s", got)
	}
	if c.reset != 0 || c.failed != 0 {
		t.Errorf("%d resets, %d failed", c.reset, c.failed)
	}
}

// TestFullNAT: servers see the card's local addresses, which it answers for; a successor leaves the lists of ports alone, and
// another method goes on beside the connections of the one before.
func TestFullNAT(t *testing.T) {
	r := newRig(t, small)
	r.keepAlive("198.18.1.11:80", "198.18.1.12:80")
	c := r.client("198.18.0.10")
	text := strings.NewReplacer("mode: nat", "mode: fullnat", "{address: 198.18.1.11:80}, ", "").Replace(fmt.Sprintf(passed, "", "local: [198.18.1.100-198.18.1.101]"))
	r.apply(text)
	r.run(10 * time.Millisecond)
	conn := c.get("198.18.0.80:80", "a", "/")
	r.until("answer", time.Second, func() bool { return strings.HasSuffix(string(conn.Bytes()), ";") })
	seen := r.nets[1].hosts[1].ConnAt(0).Remote()
	if a := seen.Addr().String(); a != "198.18.1.100" && a != "198.18.1.101" || seen.Port() < 1024 {
		t.Errorf("the server sees %s", seen)
	}
	index, e, _ := r.server("198.18.1.12:80")
	before := r.entry(regs.MemServerState, 0, index)
	if e.ControlMethod != regs.MethodFullnat || before[regs.ServerStatePortsSize] == 0 || before[regs.ServerStatePortsFree] != before[regs.ServerStatePortsSize]-1 {
		t.Errorf("method %d, state %v", e.ControlMethod, before)
	}
	r.attach()
	r.apply(text)
	if after := r.entry(regs.MemServerState, 0, index); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("state after a restart %v, before %v", after, before)
	}
	if i, _, _ := r.server("198.18.1.12:80"); i != index {
		t.Errorf("entry %d after a restart, %d before", i, index)
	}
	r.apply(edit(t, text, "mode: fullnat", "mode: dr"))
	if _, e, _ := r.server("198.18.1.12:80"); e.ControlMethod != regs.MethodFullnat || e.ControlClosed == 0 {
		t.Errorf("the entry of the connection: method %d, closed %d", e.ControlMethod, e.ControlClosed)
	}
	conn.Discard(len(conn.Bytes()))
	conn.Write([]byte("x\r\n\r\n"))
	r.until("answer of the old method", time.Second, func() bool { return strings.HasSuffix(string(conn.Bytes()), ";") })
	conn.CloseWrite()
	r.run(5 * time.Second)
	if _, e, _ := r.server("198.18.1.12:80"); e.ControlMethod != regs.MethodDr {
		t.Errorf("the old entry stays: %+v", e)
	}
	if after := r.entry(regs.MemServerState, 0, index); after[regs.ServerStatePortsSize] != 0 {
		t.Errorf("the list of a server that is gone: %v", after)
	}
}

// TestServiceTableMethods: a server that two services reach by two methods has two entries, and each service shows its own; with
// other local addresses it has another entry again, and both count.
func TestServiceTableMethods(t *testing.T) {
	const text = `
emu: {client: mem, server: mem}
ports:
  client: {addresses: [198.18.0.1/24]}
  server: {addresses: [198.18.1.1/24]}
services:
  - {name: plain, listen: ["198.18.0.80:80"], mode: nat, default: plain}
  - {name: full, listen: ["198.18.0.81:80"], mode: fullnat, default: full}
groups:
  - {name: plain, servers: [{address: 198.18.1.11:80}]}
  - {name: full, local: [198.18.1.100], servers: [{address: 198.18.1.11:80}]}
`
	r := newRig(t, small)
	r.keepAlive("198.18.1.11:80")
	c := r.client("198.18.0.10")
	r.apply(text)
	r.run(10 * time.Millisecond)
	conns := []*tcppeer.Conn{c.get("198.18.0.80:80", "a", "/"), c.get("198.18.0.80:80", "a", "/"), c.get("198.18.0.81:80", "a", "/")}
	answered := func() bool {
		return !slices.ContainsFunc(conns, func(c *tcppeer.Conn) bool { return len(c.Bytes()) == 0 })
	}
	r.until("answers", time.Second, answered)
	r.apply(edit(t, text, "198.18.1.100", "198.18.1.101"))
	conns = append(conns, c.get("198.18.0.81:80", "a", "/"))
	r.until("another answer", time.Second, answered)
	services := []view.Service{
		{Name: "plain", Protocol: "tcp", Groups: []view.ServiceGroup{{Servers: []view.ServiceServer{{Address: "198.18.1.11:80", Method: "nat"}}}}},
		{Name: "full", Protocol: "tcp", Groups: []view.ServiceGroup{{Servers: []view.ServiceServer{{Address: "198.18.1.11:80", Method: "fullnat"}}}}},
	}
	if err := r.d.View(func(v *view.View) error {
		table, err := v.ServiceTable(context.Background(), services, nil, true)
		if err != nil {
			return err
		}
		for i := range table.Services {
			s := &table.Services[i]
			if x := s.Groups[0].Servers[0]; s.Traffic.Connections != 2 || x.Traffic != s.Traffic || x.Active != 2 || x.Connections != 2 || x.Closed {
				t.Errorf("%s: %+v of %+v", s.Name, x, s.Traffic)
			}
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// TestCookie: a request that brings a server's cookie goes to that server, also when it takes no new clients, and elsewhere
// when it is down.
func TestCookie(t *testing.T) {
	r := newRig(t, small)
	r.httpServers("198.18.1.11:80", "198.18.1.12:80")
	c := r.client("198.18.0.10")
	off := r.off()
	text := base + `
services:
  - name: web
    listen: [198.18.0.80:80]
    default: app
    persistence: {cookie: SRV}
groups:
  - name: app
    check: {type: tcp, interval: 200ms, timeout: 100ms, rise: 2, fall: 1}
    servers: [{address: 198.18.1.11:80, cookie: a}, {address: 198.18.1.12:80, cookie: b}]
`
	r.apply(text)
	r.run(100 * time.Millisecond)
	with := func(value string) string { return c.fetch("198.18.0.80:80", "a\r\nCookie: x=1; SRV="+value, "/") }
	for _, x := range []struct{ value, want string }{{"a", "198.18.1.11:80"}, {"b", "198.18.1.12:80"}} {
		for range 4 {
			if got := with(x.value); got != x.want {
				t.Errorf("cookie %s: %s", x.value, got)
			}
		}
	}
	if a, b := with("c"), with("c"); a == b {
		t.Errorf("unknown cookie: %s twice", a)
	}
	r.apply(edit(t, text, "cookie: a", "cookie: a, weight: 0"))
	if got := with("a"); got != "198.18.1.11:80" {
		t.Errorf("weight 0: %s", got)
	}
	off[netip.MustParseAddr("198.18.1.11")] = true
	r.run(500 * time.Millisecond)
	if got := with("a"); got != "198.18.1.12:80" {
		t.Errorf("down: %s", got)
	}
}

// TestSources: services of one listener are asked in the order of the file.
func TestSources(t *testing.T) {
	r := newRig(t, small)
	r.httpServers("198.18.1.11:80", "198.18.1.12:80", "198.18.1.13:80")
	r.apply(base + `
services:
  - {name: one, listen: ["198.18.0.80:80-81"], mode: nat, defence: off, default: a, source: [198.18.0.10]}
  - {name: two, listen: ["198.18.0.80:80-81"], mode: nat, defence: off, default: b, source: [198.18.0.10, 198.18.0.11]}
  - {name: three, listen: ["198.18.0.80:80-81", "198.18.0.80:*", "198.18.0.81:*"], default: c, mode: nat, defence: off}
groups:
  - {name: a, servers: [{address: 198.18.1.11:80}]}
  - {name: b, servers: [{address: 198.18.1.12:80}]}
  - {name: c, servers: [{address: 198.18.1.13:80}]}
`)
	r.run(10 * time.Millisecond)
	for from, want := range map[string]string{"198.18.0.10": "198.18.1.11:80", "198.18.0.11": "198.18.1.12:80", "198.18.0.12": "198.18.1.13:80"} {
		c := r.client(from)
		for _, port := range []string{"80", "81", "99"} {
			want := want
			if port == "99" {
				want = "198.18.1.13:80"
			}
			if got := c.fetch("198.18.0.80:"+port, "a", "/"); got != want {
				t.Errorf("%s to port %s: %s, want %s", from, port, got, want)
			}
		}
	}
}

// TestSlowStart: the weight of a server that came up grows, also where all weights are one.
func TestSlowStart(t *testing.T) {
	r := newRig(t, small)
	r.httpServers("198.18.1.11:80", "198.18.1.12:80")
	c := r.client("198.18.0.10")
	off := r.off()
	r.apply(fmt.Sprintf(passed, "", "slow_start: 10s\n    check: {type: tcp, interval: 200ms, timeout: 100ms, rise: 2, fall: 1}"))
	r.run(100 * time.Millisecond)
	off[netip.MustParseAddr("198.18.1.12")] = true
	r.run(500 * time.Millisecond)
	if got := c.names(4); got != "1111" {
		t.Fatalf("down: %s", got)
	}
	delete(off, netip.MustParseAddr("198.18.1.12"))
	r.run(time.Second)
	early := strings.Count(c.names(40), "2")
	r.run(5 * time.Second)
	middle := strings.Count(c.names(40), "2")
	r.run(6 * time.Second)
	late := strings.Count(c.names(40), "2")
	if early > 6 || middle <= early || middle >= 20 || late != 20 {
		t.Errorf("of 40 connections the server that came up got %d, %d and %d", early, middle, late)
	}
}

// TestManyServers: a scheduler that compares more servers than the card can gets its table from the host.
func TestManyServers(t *testing.T) {
	r := newRig(t, small)
	var addrs, list []string
	for i := range 70 {
		a := fmt.Sprintf("198.18.1.%d:80", 11+i)
		addrs, list = append(addrs, a), append(list, "{address: "+a+"}")
	}
	r.keepAlive(addrs...)
	c := r.client("198.18.0.10")
	r.apply(strings.Replace(fmt.Sprintf(passed, "", "scheduler: wlc"), "{address: 198.18.1.11:80}, {address: 198.18.1.12:80}", strings.Join(list, ", "), 1))
	r.run(20 * time.Millisecond)
	for range 140 {
		c.get("198.18.0.80:80", "a", "/")
		r.run(2 * time.Millisecond)
	}
	r.run(50 * time.Millisecond)
	for i, h := range r.nets[1].hosts {
		if n := h.Len(); n < 1 || n > 3 {
			t.Errorf("server %d has %d connections", i, n)
		}
	}
}

// TestViewPassed: connections that are passed on, templates and their servers, in words.
func TestViewPassed(t *testing.T) {
	for method, words := range map[string][]string{
		"nat": {"nat: it sees the client's address", "ip.destination"}, "fullnat": {"fullnat: it sees a local address", "source_port"},
		"tun": {"tun: it gets the client's packet in another", "outer header"}, "dr": {"dr: it gets the client's packet as it is", "ethernet.destination"},
	} {
		t.Run(method, func(t *testing.T) {
			r := newRig(t, small)
			r.keepAlive("198.18.1.11:80", "198.18.1.12:80")
			c := r.client("198.18.0.10")
			r.apply(strings.Replace(fmt.Sprintf(passed, "persistence: {time: 60s}", ""), "mode: nat", "mode: "+method, 1))
			r.run(10 * time.Millisecond)
			c.get("198.18.0.80:80", "a", "/")
			r.run(20 * time.Millisecond)
			err := r.d.View(func(v *view.View) error {
				list, err := v.Connections(context.Background(), view.Filter{})
				if err != nil || len(list) != 2 {
					t.Fatalf("%d pages, error %v", len(list), err)
				}
				var states []string
				for _, x := range list {
					states = append(states, x.IPVS)
					e, err := v.Explain(context.Background(), x.ID)
					if err != nil {
						t.Fatal(err)
					}
					if text := fmt.Sprint(e.Decisions); !x.Passed || x.Server == "" || !strings.HasPrefix(x.Method, method) || !strings.Contains(text, words[0]) || !strings.Contains(text, "group app: a template of this client") {
						t.Errorf("%+v\n%s", x, text)
					}
					if text := fmt.Sprint(e.Fields); strings.Contains(text, words[1]) == x.Template {
						t.Errorf("template %v: fields %s", x.Template, text)
					}
				}
				want := map[bool]string{true: "[ESTABLISHED NONE]", false: "[SYN_RECV NONE]"}[method == "nat" || method == "fullnat"]
				if slices.Sort(states); strings.Join(states, " ") != strings.Trim(want, "[]") && strings.Join(states, " ") != "NONE SYN_RECV" {
					t.Errorf("states %v, want %s", states, want)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}
