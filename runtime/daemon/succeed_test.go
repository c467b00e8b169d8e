package daemon_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"splicenic/emu"
	"splicenic/regs"
	"splicenic/runtime/daemon"
	"splicenic/runtime/neighbour"
	"splicenic/runtime/view"
	"splicenic/tools/tcppeer"
)

// newSuccession is a rig whose runtimes keep a state file.
func newSuccession(t *testing.T) *rig {
	t.Helper()
	r := &rig{state: filepath.Join(t.TempDir(), "splice.state.json")}
	r.init(t, small)
	return r
}

// splice opens a connection to the slow server that stays.
func (r *rig) splice(c *client, s *slowServer) *tcppeer.Conn {
	r.Helper()
	conn := c.get("198.18.0.80:80", "www.example", "/")
	r.until("splice", time.Second, func() bool { return s.conn != nil && len(s.conn.Bytes()) > 0 })
	r.run(20 * time.Millisecond)
	return conn
}

// finish ends the slow server's connection, which has to be as good as ever.
func (r *rig) finish(c *client, s *slowServer, conn *tcppeer.Conn) {
	r.Helper()
	s.conn.Write([]byte("late"))
	s.conn.CloseWrite()
	r.until("late answer", 5*time.Second, func() bool { return strings.HasSuffix(c.answers[conn], "late") })
	if c.reset != 0 || c.failed != 0 {
		r.Errorf("%d connections were reset, %d timed out", c.reset, c.failed)
	}
}

// TestSuccessor: the card serves while it has no runtime; the next one finds everything as it is and leaves it so.
func TestSuccessor(t *testing.T) {
	r := newSuccession(t)
	slow := r.slowServer()
	r.httpServers("198.18.1.12:8080", "198.18.1.21:80", "198.18.1.31:80")
	c := r.client("198.18.0.10")
	r.apply(web)
	if st := r.d.Status(); st.Attached != daemon.Reset || st.StateErrors != 0 {
		t.Errorf("attached %s, %d state errors", st.Attached, st.StateErrors)
	}
	conn := r.splice(c, slow)
	r.d = nil
	r.run(100 * time.Millisecond)
	if got := c.fetchBeside("198.18.0.80:80", "img.example", "/photos/1", 1); got != "198.18.1.21:80" {
		t.Errorf("without a runtime answered by %q", got)
	}
	if got := c.fetchBeside("198.18.0.80:80", "x", "/api/1", 1); got != "198.18.1.31:80" {
		t.Errorf("without a runtime answered by %q", got)
	}
	bank, selector, ports := r.card.Load(regs.TableBank), r.entry(regs.MemGroupState, 0, 0), r.card.Load(regs.PortControl)

	r.attach()
	if st := r.d.Status(); st.Attached != daemon.Adopted || st.Accepting || opened(r.d) {
		t.Errorf("before the first apply: attached %s, accepting %v", st.Attached, st.Accepting)
	}
	before := r.dev.stores
	a := r.load(web)
	if st := r.d.Status(); !st.Accepting || !opened(r.d) || st.Unresolved != 0 || st.TableErrors != 0 {
		t.Errorf("after it: accepting %v, %d unresolved, %d table errors", st.Accepting, st.Unresolved, st.TableErrors)
	}
	if got := r.dev.stores - before; got > 2 {
		t.Errorf("%d stores for the configuration that is in force", got)
	}
	if got := r.card.Load(regs.TableBank); got != bank || a.Generation != regs.TableBankGeneration(bank) {
		t.Errorf("bank register went from %#x to %#x, applied %d", bank, got, a.Generation)
	}
	if got := r.entry(regs.MemGroupState, 0, 0); got[regs.GroupStateSelector] != selector[regs.GroupStateSelector] || got[regs.GroupStateCursor] != selector[regs.GroupStateCursor] {
		t.Errorf("group 0 went from %x to %x", selector, got)
	}
	if got := r.card.Load(regs.PortControl); got != ports {
		t.Errorf("port 0 went from %#x to %#x", ports, got)
	}
	for _, n := range r.d.Neighbours() {
		if n.Port == 1 && n.State != neighbour.Stale {
			t.Errorf("%s is %v", n.Addr, n.State)
		}
	}
	r.run(50 * time.Millisecond)
	for _, n := range r.d.Neighbours() {
		if n.Port == 1 && n.State != neighbour.Reachable {
			t.Errorf("%s is %v", n.Addr, n.State)
		}
	}
	if strings.Contains(r.log.String(), "level=ERROR") || !strings.Contains(r.log.String(), `names="state file"`) {
		t.Errorf("log:\n%s", &r.log)
	}
	if err := r.d.View(func(v *view.View) error {
		list, err := v.Connections(context.Background(), view.Filter{Service: "web", State: "spliced"})
		if len(list) != 1 || list[0].Server != "198.18.1.11:8080" || list[0].Group != "app" {
			t.Errorf("connections %+v", list)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
	r.finish(c, slow, conn)
	r.rest()
}

// TestSuccessorChanges: the successor of a runtime applies another configuration, with the state file, without one and
// with one that is not to be believed: connections stay, and what is out of the configuration goes when they end.
func TestSuccessorChanges(t *testing.T) {
	for _, tt := range []struct {
		name, log string
		do        func(name string, text []byte) error
	}{
		{"as it is", `names="state file"`, nil},
		{"missing", "no state file", func(name string, _ []byte) error { return os.Remove(name) }},
		{"empty", "not a state file", func(name string, _ []byte) error { return os.WriteFile(name, nil, 0o600) }},
		{"cut off", "not a state file", func(name string, text []byte) error { return os.WriteFile(name, text[:len(text)/2], 0o600) }},
		{"of another card", "not about the tables", func(name string, text []byte) error {
			return os.WriteFile(name, []byte(strings.Replace(string(text), `"serial":0`, `"serial":1`, 1)), 0o600)
		}},
		{"of another generation", "not about the tables", func(name string, text []byte) error {
			return os.WriteFile(name, []byte(strings.ReplaceAll(string(text), `"generation":`, `"generation":9`)), 0o600)
		}},
		{"hostile", "not a state file", func(name string, text []byte) error {
			return os.WriteFile(name, []byte(strings.Replace(string(text), `"groups":[`, `"groups":["\u00000",`, 1)), 0o600)
		}},
		{"no file at all", "card adopted", func(string, []byte) error { return nil }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newSuccession(t)
			slow := r.slowServer()
			r.httpServers("198.18.1.12:8080", "198.18.1.21:80", "198.18.1.31:80", "198.18.1.13:8080")
			c := r.client("198.18.0.10")
			r.apply(web)
			conn := r.splice(c, slow)
			text, err := os.ReadFile(r.state)
			if err == nil && tt.do != nil {
				err = tt.do(r.state, text)
			}
			if err != nil {
				t.Fatal(err)
			}
			if tt.name == "no file at all" {
				r.state = ""
			}
			was, _, _ := r.server("198.18.1.11:8080")
			r.attach()
			// A server is another, the groups come in another order, one has another name, and there is one more service.
			r.load(edit(t, web, "{address: 198.18.1.11:8080, weight: 3}", "{address: 198.18.1.13:8080}", "to: static", "to: fixed", "  - {name: static, servers: [{address: 198.18.1.21:80}]}\n", "",
				"groups:", "  - {name: more, listen: [198.18.0.81:80], default: fixed}\ngroups:\n  - {name: fixed, servers: [{address: 198.18.1.21:80}]}"))
			if !strings.Contains(r.log.String(), tt.log) {
				t.Errorf("the log does not say %q:\n%s", tt.log, &r.log)
			}
			if i, e, ok := r.server("198.18.1.11:8080"); !ok || i != was || e.ControlClosed == 0 {
				t.Errorf("the old server is at %d (%v), was at %d; closed %d", i, ok, was, e.ControlClosed)
			}
			r.run(3 * time.Second)
			for _, x := range []struct{ vip, host, path, want string }{
				{"198.18.0.80:80", "img.example", "/photos/1", "198.18.1.21:80"}, {"198.18.0.80:80", "x", "/api/1", "198.18.1.31:80"},
				{"198.18.0.81:80", "x", "/", "198.18.1.21:80"},
			} {
				if got := c.fetchBeside(x.vip, x.host, x.path, 1); got != x.want {
					t.Errorf("%s%s was answered by %q, want %q", x.vip, x.path, got, x.want)
				}
			}
			for range 4 {
				if got := c.fetchBeside("198.18.0.80:80", "x", "/", 1); got != "198.18.1.12:8080" && got != "198.18.1.13:8080" {
					t.Errorf("answered by %q", got)
				}
			}
			r.finish(c, slow, conn)
			r.until("entry removed", 15*time.Second, func() bool { _, _, ok := r.server("198.18.1.11:8080"); return !ok })
			r.rest()

			// And the one after that finds the file of this one.
			r.attach()
			r.load(web)
			if want := `names="state file"`; r.state != "" && strings.Count(r.log.String(), want) == 0 {
				t.Errorf("the next one does not say %q:\n%s", want, &r.log)
			}
		})
	}
}

// TestSuccessionIsCheap: taking a card of full size over costs at most 400 accesses to its BARs, the first configuration
// included. Without a state file all pages are read, which is two stores for each MiB more.
func TestSuccessionIsCheap(t *testing.T) {
	r := &rig{state: filepath.Join(t.TempDir(), "splice.state.json")}
	r.init(t, emu.Geometry{})
	slow := r.slowServer()
	r.httpServers("198.18.1.12:8080", "198.18.1.21:80", "198.18.1.31:80")
	c := r.client("198.18.0.10")
	r.apply(web)
	conn := r.splice(c, slow)
	for _, most := range []int{400, 400 + 2*regs.MemPageCount*regs.PageBytes>>20} {
		if most > 400 {
			if err := os.Remove(r.state); err != nil {
				t.Fatal(err)
			}
		}
		r.attach()
		r.load(web)
		if got := r.dev.loads + r.dev.stores; got > most {
			t.Errorf("%d loads and %d stores, want at most %d", r.dev.loads, r.dev.stores, most)
		}
	}
	r.finish(c, slow, conn)
}

// TestNextHopGoneMeanwhile: a next hop stays in use as the card has it until nobody answers there.
func TestNextHopGoneMeanwhile(t *testing.T) {
	r := newSuccession(t)
	r.httpServers("198.18.1.11:8080", "198.18.1.12:8080", "198.18.1.21:80", "198.18.1.31:80")
	r.apply(web)
	r.nets[1].hosts = nil
	r.attach()
	r.load(web)
	resolved := func() (n int) {
		for i := range uint32(4) {
			n += int(regs.NextHopControlResolved(r.entry(regs.MemNextHop, 0, i)[regs.NextHopControl]))
		}
		return n
	}
	r.run(2900 * time.Millisecond)
	if got := resolved(); got != 4 {
		t.Errorf("%d next hops are resolved, want 4", got)
	}
	r.run(200 * time.Millisecond)
	if got := resolved(); got != 0 {
		t.Errorf("%d next hops are resolved after nobody answered", got)
	}
}

// TestKilledWhileOpening: tables that were never in force are nobody's inheritance.
func TestKilledWhileOpening(t *testing.T) {
	r := newSuccession(t)
	r.load(web)
	r.run(5 * time.Millisecond)
	r.attach()
	if got := r.d.Status().Attached; got != daemon.Reset {
		t.Errorf("attached %s", got)
	}
	r.httpServers("198.18.1.11:8080", "198.18.1.12:8080", "198.18.1.21:80", "198.18.1.31:80")
	c := r.client("198.18.0.10")
	r.apply(web)
	if got := c.fetch("198.18.0.80:80", "x", "/api/"); got != "198.18.1.31:80" {
		t.Errorf("answered by %q", got)
	}
}

// TestFirstApplyFails: a configuration that cannot be applied leaves an adopted card alone.
func TestFirstApplyFails(t *testing.T) {
	r := newSuccession(t)
	r.httpServers("198.18.1.11:8080", "198.18.1.12:8080", "198.18.1.21:80", "198.18.1.31:80")
	c := r.client("198.18.0.10")
	r.apply(web)
	bank := r.card.Load(regs.TableBank)
	r.attach()
	var b strings.Builder
	for i := range r.card.Geometry().Slots + 1 {
		fmt.Fprintf(&b, "      - {address: \"198.18.1.%d:%d\"}\n", 100+i%100, 1000+i)
	}
	text := edit(t, web, "    servers: [{address: 198.18.1.11:8080, weight: 3}, {address: 198.18.1.12:8080}]\n", "    servers:\n"+b.String())
	if _, err := r.d.Load(context.Background(), "test.yaml", []byte(text)); err == nil {
		t.Error("applied")
	}
	r.run(1500 * time.Millisecond)
	if got := r.card.Load(regs.TableBank); got != bank {
		t.Errorf("bank register went from %#x to %#x", bank, got)
	}
	if got := c.fetch("198.18.0.80:80", "x", "/api/"); got != "198.18.1.31:80" {
		t.Errorf("answered by %q", got)
	}
	r.load(web)
	if got := r.card.Load(regs.TableBank); got != bank || !r.d.Status().Accepting {
		t.Errorf("bank register went from %#x to %#x", bank, got)
	}
}

// TestStateFileNotWritten: a runtime that cannot write its state file works, and says so.
func TestStateFileNotWritten(t *testing.T) {
	r := &rig{state: filepath.Join(t.TempDir(), "none", "splice.state.json")}
	r.init(t, small)
	r.httpServers("198.18.1.11:8080", "198.18.1.12:8080", "198.18.1.21:80", "198.18.1.31:80")
	c := r.client("198.18.0.10")
	r.apply(web)
	if got := r.d.Status().StateErrors; got == 0 || !strings.Contains(r.log.String(), "state file not written") {
		t.Errorf("%d errors, log:\n%s", got, &r.log)
	}
	if got := c.fetch("198.18.0.80:80", "x", "/api/"); got != "198.18.1.31:80" {
		t.Errorf("answered by %q", got)
	}
}

// TestKilledAgainAndAgain changes a configuration to and fro and kills the runtime each time, one store later than the time
// before, doorbells included. One connection lives through all of it.
func TestKilledAgainAndAgain(t *testing.T) {
	least := 1
	if os.Getenv("SPLICE_LONG") != "" {
		least = 100
	}
	r := newSuccession(t)
	slow := r.slowServer()
	r.httpServers("198.18.1.12:8080", "198.18.1.21:80", "198.18.1.31:80", "198.18.1.13:8080")
	c := r.client("198.18.0.10")
	other := edit(t, web, "{address: 198.18.1.12:8080}", "{address: 198.18.1.13:8080}", "{path: /api/*, to: api}", "{path: /app/*, to: api}", "[198.18.0.80:80]", "[198.18.0.80:80, 198.18.0.81:80]")
	r.apply(web)
	conn := r.splice(c, slow)
	texts, paths := [2]string{other, web}, [2]string{"/app/1", "/api/1"}
	kills, rounds := 0, 0
	for k := 0; ; k++ {
		text, path := texts[kills%2], paths[kills%2]
		r.dev.left = k
		_, err := r.d.Load(context.Background(), "test.yaml", []byte(text))
		if err != nil && !errors.Is(err, errKilled) {
			t.Fatalf("killed after %d stores: %v", k, err)
		}
		if err == nil && r.dev.Err() == nil { // it is done before
			texts, paths = [2]string{texts[1], texts[0]}, [2]string{paths[1], paths[0]}
			if rounds++; kills >= least {
				break
			}
			k = -1
			continue
		}
		r.d = nil
		r.run(3 * time.Millisecond)
		r.attach()
		if got := r.d.Status().Attached; got != daemon.Adopted {
			t.Fatalf("killed after %d stores: attached %s", k, got)
		}
		r.load(text)
		r.until("neighbours", time.Second, func() bool { return r.resolved() })
		if got := c.fetchBeside("198.18.0.80:80", "x", path, 1); got != "198.18.1.31:80" {
			t.Fatalf("killed after %d stores: %s is answered by %q", k, path, got)
		}
		slow.conn.Write([]byte("."))
		kills++
		want := strings.Repeat(".", kills)
		r.until("bytes of the old connection", time.Second, func() bool { return strings.HasSuffix(string(conn.Bytes()), want) && len(conn.Bytes()) == kills })
	}
	r.dev.left = -1
	t.Logf("killed %d times", kills)
	if kills < 15*rounds {
		t.Errorf("killed only %d times in %d rounds", kills, rounds)
	}
	r.finish(c, slow, conn)
	r.rest()
}

// resolved says whether all next hops in use are.
func (r *rig) resolved() bool {
	for i := range uint32(6) {
		w := r.entry(regs.MemNextHop, 0, i)[regs.NextHopControl]
		if regs.NextHopControlValid(w) != regs.NextHopControlResolved(w) {
			return false
		}
	}
	return true
}

// TestForgottenByARestart: what a runtime knows of its servers ends with it, as README's limits say. The next one takes a server
// that is down for what start says, gives a server that came up slowly its whole weight, and lets connections of a server
// that drains go on past the deadline; they, and all others, outlive the restart.
func TestForgottenByARestart(t *testing.T) {
	for _, start := range []string{"up", "down"} {
		t.Run("start: "+start, func(t *testing.T) {
			r := newSuccession(t)
			r.keepAlive("198.18.1.13:80", "198.18.1.14:80")
			r.httpServers("198.18.1.11:80", "198.18.1.12:80", "198.18.1.15:80")
			c, kept := r.client("198.18.0.10"), r.client("198.18.0.11")
			off := r.off()
			text := strings.Replace(fmt.Sprintf(passed, "", "drain: 2s\n    slow_start: 60s\n    check: {type: tcp, interval: 200ms, timeout: 100ms, rise: 2, fall: 1, start: "+start+"}"),
				"{address: 198.18.1.12:80}", "{address: 198.18.1.12:80}, {address: 198.18.1.15:80}, {address: 198.18.1.13:80}", 1)
			before := edit(t, text, "198.18.1.11:80}, {address: 198.18.1.12:80}, {address: 198.18.1.15:80}, ", "198.18.1.14:80}, ")
			ask := func(conn *tcppeer.Conn) string {
				t.Helper()
				conn.Discard(len(conn.Bytes()))
				conn.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
				r.until("answer", time.Second, func() bool { return strings.HasSuffix(string(conn.Bytes()), ";") })
				return string(conn.Bytes())
			}
			// One connection at a server that is going to drain, and one at a server that is going to have no weight.
			r.apply(before)
			r.run(time.Second)
			conns := []*tcppeer.Conn{kept.get("198.18.0.80:80", "a", "/"), kept.get("198.18.0.80:80", "a", "/")}
			r.run(50 * time.Millisecond)
			var at []string
			for _, conn := range conns {
				at = append(at, ask(conn))
			}
			if slices.Sort(at); at[0] != "198.18.1.13:80;" || at[1] != "198.18.1.14:80;" {
				t.Fatalf("connections at %v", at)
			}
			text = edit(t, text, "198.18.1.13:80}", "198.18.1.13:80, weight: 0}")
			r.apply(text)
			r.run(500 * time.Millisecond)
			down, slow := netip.MustParseAddr("198.18.1.11"), netip.MustParseAddr("198.18.1.12")
			off[down], off[slow] = true, true
			r.run(500 * time.Millisecond)
			delete(off, slow)
			r.run(500 * time.Millisecond)
			if got := c.names(30); strings.Contains(got, "1") || start == "up" && strings.Count(got, "5") < 24 {
				t.Fatalf("one down and one slow: %s", got)
			}

			r.attach() // within the drain
			r.load(text)
			open := func() bool {
				_, e, ok := r.server("198.18.1.11:80")
				return ok && e.ControlClosed == 0
			}
			if got := open(); got != (start == "up") {
				t.Errorf("the server that is down takes connections at first: %v", got)
			}
			r.run(time.Second)
			if open() {
				t.Error("the server that is down takes connections a second later")
			}
			if start == "up" { // else all have come up just now, and start slowly
				if got := c.names(30); strings.Count(got, "5") != 15 || strings.Count(got, "2") != 15 {
					t.Errorf("after the restart: %s", got)
				}
			}
			r.run(5 * time.Second)
			if _, e, ok := r.server("198.18.1.14:80"); !ok || e.ControlClosed == 0 {
				t.Errorf("the entry of the server that drained is there: %v, closed: %d", ok, e.ControlClosed)
			}
			for _, conn := range conns {
				if got := ask(conn); !slices.Contains(at, got) {
					t.Errorf("after the deadline: an answer of %q", got)
				}
			}
			if got := r.d.Status().Drains; got.Cut != 0 || got.Drained != 0 || kept.reset != 0 {
				t.Errorf("%+v, %d resets", got, kept.reset)
			}
		})
	}
}
