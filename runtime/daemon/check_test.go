package daemon_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"splicenic/runtime/view"
)

// checked is a configuration with a group that is asked, and one that is sorry for it.
const checked = base + `
services:
  - name: web
    listen: [198.18.0.80:80]
    default: app
groups:
  - name: app
    check: {type: %s, interval: 200ms, timeout: 100ms, rise: 2, fall: 1}
    quorum: 1
    sorry: spare
    servers: [{address: 198.18.1.11:80}, {address: 198.18.1.12:80}]
  - {name: spare, servers: [{address: 198.18.1.13:80}]}
`

// A switchable network loses what goes to and comes from servers that are off.
func (r *rig) off() map[netip.Addr]bool {
	off := map[netip.Addr]bool{}
	r.nets[1].drop = func(toServer bool, b []byte) bool {
		if len(b) < 34 || b[12] != 8 || b[13] != 0 { // they still answer ARP: it is the service that is gone
			return false
		}
		at := 26
		if toServer {
			at = 30
		}
		return off[netip.AddrFrom4([4]byte(b[at:at+4]))]
	}
	return off
}

// slots are the addresses that the slots in force of a group name.
func (r *rig) slots(group string) (list []string) {
	r.Helper()
	err := r.d.View(func(v *view.View) error {
		groups, err := v.Groups(context.Background())
		for _, g := range groups {
			for _, s := range g.Servers {
				if g.Name == group && !s.Closed {
					list = append(list, s.Address)
				}
			}
		}
		return err
	})
	if err != nil {
		r.Fatal(err)
	}
	return list
}

// TestCaseC17: two servers fail and one comes back, while a client asks every 10 ms. No request meets an empty table, the
// sorry server is in use within a check interval and out of use after the rise count, and both are logged. What was
// asked between a server's end and the check that notices may wait for it; nothing of what is asked later does.
func TestCaseC17(t *testing.T) {
	for _, kind := range []string{"tcp", "http"} {
		t.Run(kind, func(t *testing.T) {
			r := newRig(t, small)
			r.httpServers("198.18.1.11:80", "198.18.1.12:80", "198.18.1.13:80")
			c := r.client("198.18.0.10")
			off := r.off()
			r.apply(fmt.Sprintf(checked, kind))
			b1, b2 := netip.MustParseAddr("198.18.1.11"), netip.MustParseAddr("198.18.1.12")

			asked := 0 // requests without an answer
			// probe asks every 10 ms and looks at the table each millisecond.
			probe := func(d time.Duration) (by map[string]int) {
				by = map[string]int{}
				count := func() bool {
					for conn, answer := range c.answers {
						_, body, _ := strings.Cut(answer, "\r\n\r\n")
						by[body]++
						delete(c.answers, conn)
					}
					return c.open == 0
				}
				for end := r.now + d; r.now < end; r.run(time.Millisecond) {
					if count(); r.now%(10*time.Millisecond) == 0 {
						c.get("198.18.0.80:80", "a", "/")
						asked++
					}
					if len(r.slots("app")) == 0 {
						t.Fatalf("the table is empty at %v", r.now)
					}
				}
				r.until("answers", 20*time.Second, count)
				for _, n := range by {
					asked -= n
				}
				return by
			}
			only := func(when string, by map[string]int, want ...string) {
				t.Helper()
				for _, w := range want {
					if by[w] == 0 {
						t.Errorf("%s: nothing from %s: %v", when, w, by)
					}
					delete(by, w)
				}
				if len(by) != 0 {
					t.Errorf("%s: also %v", when, by)
				}
			}
			only("both up", probe(500*time.Millisecond), "198.18.1.11:80", "198.18.1.12:80")
			off[b1], off[b2] = true, true
			start := r.now
			r.until("sorry server in use", time.Second, func() bool {
				if len(r.slots("app")) == 0 {
					t.Fatal("the table is empty")
				}
				return fmt.Sprint(r.slots("app")) == "[198.18.1.13:80]"
			})
			if d := r.now - start; d > 300*time.Millisecond { // an interval, and the time-out of the check that begins at its end
				t.Errorf("sorry server in use after %v", d)
			}
			only("both down", probe(500*time.Millisecond), "198.18.1.13:80")
			off[b1] = false
			start = r.now
			r.until("first server back", 2*time.Second, func() bool {
				if len(r.slots("app")) == 0 {
					t.Fatal("the table is empty")
				}
				return fmt.Sprint(r.slots("app")) == "[198.18.1.11:80]"
			})
			if d := r.now - start; d < 200*time.Millisecond || d > 500*time.Millisecond {
				t.Errorf("first server back after %v", d)
			}
			only("one back", probe(500*time.Millisecond), "198.18.1.11:80")
			off[b2] = false
			r.run(time.Second)
			only("both back", probe(500*time.Millisecond), "198.18.1.11:80", "198.18.1.12:80")

			if c.failed != 0 || c.reset != 0 || asked != 0 {
				t.Errorf("%d requests failed, %d were reset, %d have no answer", c.failed, c.reset, asked)
			}
			log := r.log.String()
			for _, want := range []string{
				`msg="server is down" server=198.18.1.11:80`, `msg="server is down" server=198.18.1.12:80`, `msg="group lost its quorum" group=app sorry=spare`,
				`msg="server is up" server=198.18.1.11:80`, `msg="group has its quorum again" group=app sorry=spare`, `msg="server is up" server=198.18.1.12:80`,
			} {
				i := strings.Index(log, want)
				if i < 0 {
					t.Errorf("not in the log, or not in this order: %s\n%s", want, log)
					continue
				}
				if !strings.Contains(want, "12:80") { // the two fall in either order
					log = log[i:]
				}
			}
		})
	}
}

// TestDownServer: a server that is down has no slot and is closed; its health shows in the counters and the lists. One
// that no group takes for dead any more is open again.
func TestDownServer(t *testing.T) {
	r := newRig(t, small)
	r.httpServers("198.18.1.11:80", "198.18.1.12:80", "198.18.1.13:80")
	off := r.off()
	r.apply(fmt.Sprintf(checked, "tcp"))
	r.run(time.Second)
	off[netip.MustParseAddr("198.18.1.11")] = true
	r.until("down", time.Second, func() bool { return fmt.Sprint(r.slots("app")) == "[198.18.1.12:80]" })
	if _, e, ok := r.server("198.18.1.11:80"); !ok || e.ControlClosed != 1 {
		t.Errorf("server that is down: %+v", e)
	}
	app := r.d.Health()["app"]
	if list := app.Servers; len(list) != 2 || list[0].State != "down" || list[1].State != "up" || list[0].Result != "no answer to SYN" || list[1].Result != "connected" || list[0].Falls != 1 {
		t.Errorf("checks %+v", list)
	}
	if app.Check != "tcp" || app.Weight != 1 || app.Quorum != 1 || app.Lost || app.Serving != "app" {
		t.Errorf("group %+v", app)
	}
	if err := r.d.View(func(v *view.View) error {
		servers, err := v.Servers(context.Background())
		for _, s := range servers {
			if want := map[string]string{"198.18.1.11:80": "down", "198.18.1.12:80": "up", "198.18.1.13:80": ""}[s.Address]; s.State != want {
				t.Errorf("server %s is %q, want %q", s.Address, s.State, want)
			}
		}
		groups, err2 := v.Groups(context.Background())
		if len(groups) != 2 || groups[0].Health == nil || len(groups[0].Health.Servers) != 2 || groups[0].Health.Servers[0].State != "down" {
			t.Errorf("groups %+v", groups)
		}
		return errors.Join(err, err2)
	}); err != nil {
		t.Error(err)
	}
	health, _ := r.d.Counters()["health"].(view.Stats)
	if health["up"] != uint64(1) || health["down"] != uint64(1) || health["falls"] != uint64(1) {
		t.Errorf("counters %v", health)
	}
	// Without the check it is taken for healthy.
	r.load(strings.Replace(fmt.Sprintf(checked, "tcp"), "check: {type: tcp, interval: 200ms, timeout: 100ms, rise: 2, fall: 1}", "check: {type: none}", 1))
	r.run(10 * time.Millisecond)
	if _, e, _ := r.server("198.18.1.11:80"); e.ControlClosed != 0 || len(r.slots("app")) != 2 || len(r.d.Health()["app"].Servers) != 0 {
		t.Errorf("server that nobody asks: %+v", e)
	}
}

// TestReloadKeepsHealth: a reload, with another check too, neither brings a server in nor takes one out.
func TestReloadKeepsHealth(t *testing.T) {
	r := newRig(t, small)
	r.httpServers("198.18.1.11:80", "198.18.1.12:80", "198.18.1.13:80")
	off := r.off()
	text := fmt.Sprintf(checked, "tcp")
	r.apply(text)
	off[netip.MustParseAddr("198.18.1.11")] = true
	r.until("down", time.Second, func() bool { return len(r.slots("app")) == 1 })
	for _, text := range []string{text, strings.Replace(text, "fall: 1", "fall: 2", 1), strings.Replace(text, "rise: 2", "rise: 2, start: down", 1)} {
		r.load(text)
		for range 50 {
			r.run(time.Millisecond)
			if got := fmt.Sprint(r.slots("app")); got != "[198.18.1.12:80]" {
				t.Fatalf("after a reload: %s", got)
			}
		}
	}
}

// TestSorry says who serves a group whose servers are down.
func TestSorry(t *testing.T) {
	for _, tt := range []struct {
		name, app, spare string // more of the groups
		want             string // slots of app with 198.18.1.11 off
		body             string // what a client gets
	}{
		{"quorum of two", "quorum: 2, sorry: spare", "", "[198.18.1.13:80]", "198.18.1.13:80"},
		{"quorum of two and nobody sorry", "quorum: 2", "", "[198.18.1.12:80]", "198.18.1.12:80"},
		{"quorum of two and an answer", "quorum: 2, sorry: {reply: 503}", "", "[]", "503 Service Unavailable\n"},
		{"one is enough", "sorry: spare", "", "[198.18.1.12:80]", "198.18.1.12:80"},
		{"sorry for the sorry", "quorum: 2, sorry: spare", ", check: {type: tcp, port: 9, interval: 100ms, fall: 1}, sorry: last", "[198.18.1.12:80]", "198.18.1.12:80"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, small)
			r.httpServers("198.18.1.11:80", "198.18.1.12:80", "198.18.1.13:80")
			c := r.client("198.18.0.10")
			off := r.off()
			r.apply(base + `
services: [{name: web, listen: [198.18.0.80:80], default: app}]
groups:
  - {name: app, check: {type: tcp, interval: 100ms, timeout: 100ms, fall: 1}, servers: [{address: 198.18.1.11:80}, {address: 198.18.1.12:80}], ` + tt.app + `}
  - {name: spare, servers: [{address: 198.18.1.13:80}]` + tt.spare + `}
  - {name: last, servers: [{address: 198.18.1.12:80}]}
`)
			off[netip.MustParseAddr("198.18.1.11")] = true
			r.run(500 * time.Millisecond)
			if got := fmt.Sprint(r.slots("app")); got != tt.want {
				t.Errorf("slots %s, want %s", got, tt.want)
			}
			if got := c.fetch("198.18.0.80:80", "a", "/"); got != tt.body {
				t.Errorf("answer %q, want %q", got, tt.body)
			}
		})
	}
}

// TestChecksUnderFlood: frames for the host, as many as an attacker likes, do not make a server be down.
func TestChecksUnderFlood(t *testing.T) {
	r := newRig(t, small)
	r.httpServers("198.18.1.11:80", "198.18.1.12:80", "198.18.1.13:80")
	r.apply(fmt.Sprintf(checked, "http"))
	r.run(200 * time.Millisecond)
	for i := range 400 { // frames of one reason, of which 128 are looked at in a step
		for k := range 150 {
			r.nets[1].send(stray(r.nets[1].mac, uint16(1024+i), uint16(k+1)))
		}
		r.now += time.Millisecond
		for range 5 { // the card takes a batch at once
			r.emu.Step(r.now)
		}
		r.step()
	}
	if n := beyondShare(r); n == 0 {
		t.Error("the flood was no flood")
	}
	for _, c := range r.d.Health()["app"].Servers {
		if c.State != "up" || c.Failed != 0 || c.Passed < 2 {
			t.Errorf("%+v", c)
		}
	}
}

// stray is a segment for the card's own address that belongs to nothing.
func stray(to [6]byte, from, dst uint16) []byte {
	b := make([]byte, 54)
	copy(b, to[:])
	b[6], b[12], b[13] = 2, 8, 0
	ip := b[14:]
	ip[0], ip[3], ip[8], ip[9] = 0x45, 40, 64, 6
	copy(ip[12:], []byte{198, 18, 1, 99, 198, 18, 1, 1})
	t := ip[20:]
	t[0], t[1], t[2], t[3], t[12], t[13] = byte(from>>8), byte(from), byte(dst>>8), byte(dst), 0x50, 0x10
	put := func(at []byte, sum uint32) {
		for sum > 0xffff {
			sum = sum&0xffff + sum>>16
		}
		at[0], at[1] = byte(^sum>>8), byte(^sum)
	}
	words := func(b []byte) (s uint32) {
		for i := 0; i < len(b); i += 2 {
			s += uint32(b[i])<<8 | uint32(b[i+1])
		}
		return s
	}
	put(ip[10:], words(ip[:20]))
	put(t[16:], words(ip[12:20])+6+20+words(t[:20]))
	return b
}

// beyondShare is how many exceptions nobody looked at.
func beyondShare(r *rig) (n uint64) {
	beyond, _ := r.d.Counters()["beyond_share"].(view.Stats)
	for _, v := range beyond {
		n += v.(uint64)
	}
	return n
}
