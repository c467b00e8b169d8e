package daemon_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"splicenic/emu"
	"splicenic/runtime/config"
	"splicenic/runtime/rule"
	"splicenic/tools/tcppeer"
)

// manyRules is the configuration of a test with n rules over a tenth as many hosts in front of its own; all lead to group
// to.
func manyRules(t *testing.T, n int, to string) *config.Config {
	t.Helper()
	c, err := config.Load("many.yaml", []byte(web))
	if err != nil {
		t.Fatal(err)
	}
	s := &c.Services[0]
	own := s.Routes
	s.Routes = make([]config.Route, 0, n+len(own))
	for i := range n {
		m := rule.Match{Host: fmt.Sprintf("shop-%d.example", i/10), Path: rule.Path{Kind: rule.PrefixPath, Text: fmt.Sprintf("/section-%d/items", i%10)}}
		s.Routes = append(s.Routes, config.Route{Match: m, To: config.Target{Group: to}})
	}
	s.Routes = append(s.Routes, own...)
	return c
}

// TestManyRulesDuringTransfer: while 100,000 rules are applied, twice, to a card that carries a transfer, every frame of it
// goes through, and requests find the old rules before the switch and the new ones behind it.
func TestManyRulesDuringTransfer(t *testing.T) {
	n := 100_000
	if testing.Short() {
		n = 2000
	}
	g := small
	r := newRig(t, emu.Geometry{Pages: g.Pages, Heads: g.Heads, CamClientWords: g.CamClientWords, CamServerWords: g.CamServerWords})
	r.httpServers("198.18.1.12:8080", "198.18.1.21:80", "198.18.1.31:80")
	server := netip.MustParseAddrPort("198.18.1.11:8080")
	var from *tcppeer.Conn
	r.host(1, tcppeer.Config{Addresses: []netip.Prefix{netip.PrefixFrom(server.Addr(), 32)}, TimeWait: -1, Handle: func(c *tcppeer.Conn, e tcppeer.Event) {
		if e == tcppeer.Data && bytes.HasSuffix(c.Bytes(), []byte("\r\n\r\n")) {
			c.Discard(len(c.Bytes()))
			from = c
		}
	}}).Listen(server.Port())
	r.apply(web)
	got := 0
	client := netip.MustParseAddr("198.18.0.10")
	h := r.host(0, tcppeer.Config{Addresses: []netip.Prefix{netip.PrefixFrom(client, 32)}, TimeWait: -1, Handle: func(c *tcppeer.Conn, e tcppeer.Event) {
		switch e {
		case tcppeer.Established:
			c.Write([]byte("GET /transfer HTTP/1.1\r\nHost: x\r\n\r\n"))
		case tcppeer.Data:
			got += len(c.Bytes())
			c.Discard(len(c.Bytes()))
		}
	}})
	if _, err := h.Dial(r.now, netip.AddrPortFrom(client, 0), netip.MustParseAddrPort("198.18.0.80:80")); err != nil {
		t.Fatal(err)
	}
	r.until("splice", 3*time.Second, func() bool { return from != nil })
	r.run(20 * time.Millisecond)
	for _, net := range r.nets {
		net.record, net.frames, net.sent = true, nil, nil
	}
	// A piece goes through each time that the runtime waits for the card.
	sent, pumped := 0, 0
	piece := bytes.Repeat([]byte("piece of a transfer "), 50)
	move := func() {
		r.now += 100 * time.Microsecond
		for _, net := range r.nets {
			net.receive(r.now)
		}
	}
	r.busy = func() {
		if pumped++; sent-got < 4*len(piece) {
			from.Write(piece)
			sent += len(piece)
		}
		move()
	}
	for _, group := range []string{"static", "api"} {
		before := sent
		a, err := r.d.Apply(context.Background(), manyRules(t, n, group))
		if err != nil {
			t.Fatal(err)
		}
		if c := a.Capacity; int(c.Rules) < n || c.Nodes == 0 || c.Bytes == 0 || c.Slow != 0 {
			t.Errorf("capacity %+v", c)
		}
		if sent-before < 10*len(piece) {
			t.Fatalf("%d bytes were sent while the rules went to the card, in %d steps: the test shows little", sent-before, pumped)
		}
		busy := r.busy
		r.busy = nil
		r.until("transfer", time.Second, func() bool { return got == sent })
		want := map[string]string{"static": "198.18.1.21:80", "api": "198.18.1.31:80"}[group]
		c := r.client("198.18.0.2" + fmt.Sprint(len(group)))
		if answer := c.fetch("198.18.0.80:80", "shop-7.example", "/section-3/items/x"); answer != want {
			t.Errorf("with rules that lead to %s %q answers", group, answer)
		}
		r.busy = busy
	}
	if len(r.nets[1].sent) == 0 || got != sent {
		t.Errorf("%d of %d bytes came", got, sent)
	}
	// The transfer's frames of the server's side are those of the client's: none was lost, none sent again.
	if in, out := payloads(r.nets[1].sent, piece[:20]), payloads(r.nets[0].frames, piece[:20]); in != out || in != sent/20 {
		t.Errorf("the server sent %d pieces, the client got %d; want %d", in, out, sent/20)
	}
}

// payloads counts how often a text is in frames.
func payloads(frames [][]byte, text []byte) (n int) {
	for _, f := range frames {
		n += bytes.Count(f, text)
	}
	return n
}

// TestTooManyNodes: routes that the URL table has no room for are refused, and the old ones stay in force.
func TestTooManyNodes(t *testing.T) {
	g := small
	g.UrlNodes, g.Rules = 600, 1<<12
	r := newRig(t, g)
	r.httpServers("198.18.1.11:8080", "198.18.1.12:8080", "198.18.1.21:80", "198.18.1.31:80")
	r.apply(web)
	before := r.d.Status()
	c := manyRules(t, 2000, "static")
	if _, err := r.d.Capacity(c); !errors.Is(err, rule.ErrTooBig) {
		t.Errorf("capacity: %v", err)
	}
	if _, err := r.d.Apply(context.Background(), c); !errors.Is(err, rule.ErrTooBig) {
		t.Errorf("apply: %v", err)
	}
	if after := r.d.Status(); after.Applied != before.Applied || after.LastReload.OK {
		t.Errorf("status %+v", after)
	}
	if got := r.client("198.18.0.20").fetch("198.18.0.80:80", "x.example", "/api/x"); got != "198.18.1.31:80" {
		t.Errorf("%q answers", got)
	}
	fits := manyRules(t, 50, "static")
	room, err := r.d.Capacity(fits)
	if err != nil {
		t.Fatal(err)
	}
	a, err := r.d.Apply(context.Background(), fits)
	if err != nil {
		t.Fatal(err)
	}
	if a.Capacity != room || room.NodeRoom != 600 {
		t.Errorf("capacity %+v, before %+v", a.Capacity, room)
	}
}
