package acceptance

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"splicenic/runtime/view"
)

// apply makes the running card follow another configuration.
func (p *product) apply(t *testing.T, config string) {
	t.Helper()
	file := p.write("splice.yaml", config)
	if out, err := exec.Command(binary, "config", "apply", file, "--socket", p.socket).CombinedOutput(); err != nil {
		t.Fatalf("config apply %s: %v\n%s", filepath.Base(file), err, out)
	}
}

// get asks the runtime's socket.
func (p *product) read(t *testing.T, path string, v any) {
	t.Helper()
	c := &http.Client{Transport: p.transport(), Timeout: 10 * time.Second}
	r, err := c.Get("http://splicenic/v1/" + path)
	must(t, err)
	defer r.Body.Close()
	must(t, json.NewDecoder(r.Body).Decode(v))
}

// TestLayer4Weights: weighted round robin gives each server its share to one connection; hashes over address and port spread
// as weights say, as far as chance goes.
func TestLayer4Weights(t *testing.T) {
	n := 300
	if long {
		n = 10_000
	}
	f := newFarm(t, 3)
	f.answerAll()
	f.begin(f.config("scheduler: rr"))
	f.set("timer.closing", 2000)
	for _, scheduler := range []string{"wrr", "sh", "mh"} {
		hash := ""
		if scheduler != "wrr" {
			hash = ", hash: {port: true}"
		}
		f.apply(t, f.config("scheduler: "+scheduler+hash))
		for _, w := range ways {
			if w.mode != "nat" && w.mode != "dr" {
				continue
			}
			for _, fam := range families {
				t.Run(scheduler+" "+w.name+" "+fam.name, func(t *testing.T) {
					answers := f.ask(t, "tcp", netip.AddrPortFrom(fam.vip, w.port), n)
					if scheduler == "wrr" {
						shares(t, answers, w.servers(f), []int{1, 2, 3})
						return
					}
					byChance(t, answers, w.servers(f), []float64{1. / 6, 2. / 6, 3. / 6})
				})
			}
		}
	}
	f.atRest()
}

// byChance checks that servers' shares are within three standard deviations.
func byChance(t *testing.T, answers []reply, servers []*backend, shares []float64) {
	t.Helper()
	got := map[string]int{}
	for _, a := range answers {
		got[a.server]++
	}
	n := float64(len(answers))
	for i, b := range servers {
		mean, deviation := n*shares[i], math.Sqrt(n*shares[i]*(1-shares[i]))
		if d := float64(got[b.Name()]) - mean; math.Abs(d) > 3*deviation {
			t.Errorf("%s answered %d of %d connections, want %.0f ± %.0f", b.Name(), got[b.Name()], len(answers), mean, 3*deviation)
		}
	}
}

// TestOnePacket: every datagram of one socket chooses its server anew, and none leaves a page.
func TestOnePacket(t *testing.T) {
	t.Parallel()
	const n = 99
	f := newFarm(t, 3)
	f.answerAll()
	f.begin(f.services("scheduler: rr", func(w *way, _ int, protocol string) (string, bool) {
		return ", one_packet: true", w.direct && protocol == "udp"
	}))
	for _, w := range ways {
		if !w.direct {
			continue
		}
		for _, fam := range families {
			t.Run(w.name+" "+fam.name, func(t *testing.T) {
				from := netip.AddrPortFrom(fam.client, 30000)
				var answers []reply
				for range n {
					answers = append(answers, f.once(t, "udp", from, netip.AddrPortFrom(fam.vip, w.port), "x\n"))
				}
				shares(t, answers, w.servers(f), []int{1, 1, 1})
				if free, total := f.number("pages.free"), f.number("pages.total"); free != total {
					t.Errorf("%v of %v pages are free", free, total)
				}
			})
		}
	}
}

// TestCaseC07: a client's port, 2348 or one of the next, is used for twenty connections, 50 ms apart. Each is made at once: no
// SYN is sent again.
func TestCaseC07(t *testing.T) {
	most := 100 * time.Millisecond
	if !long { // beside other tests the machine may be busy, but a SYN is sent again after a second
		most = 900 * time.Millisecond
	}
	f := newFarm(t, 1)
	f.answerAll()
	f.begin(f.config("scheduler: rr"))
	t.Run("all", func(t *testing.T) { // ends when all of them have
		for i, w := range ways {
			for _, fam := range families {
				t.Run(w.name+" "+fam.name, func(t *testing.T) {
					t.Parallel()
					from := netip.AddrPortFrom(fam.client, uint16(2348+i))
					var slowest time.Duration
					again := 0
					for range 20 {
						f.free(t, from)
						r := f.once(t, "tcp", from, netip.AddrPortFrom(fam.vip, w.port), "bye\n")
						if r.syns != 0 || r.from != from {
							t.Errorf("%d SYNs were sent again from %s", r.syns, r.from)
						}
						again += r.again
						slowest = max(slowest, r.connected)
						time.Sleep(50 * time.Millisecond) // the case's
					}
					if again > 1 { // one where the machine stood still for 200 ms
						t.Errorf("%d segments of 20 connections were sent again", again)
					}
					if slowest > most {
						t.Errorf("the slowest connection took %v, want less than %v", slowest, most)
					}
				})
			}
		}
	})
}

// free waits until a client's port may be used again: that its FIN was acknowledged takes a moment, though less than it takes to
// send a FIN again.
func (f *farm) free(t *testing.T, at netip.AddrPort) {
	t.Helper()
	for end := time.Now().Add(150 * time.Millisecond); ; time.Sleep(5 * time.Millisecond) {
		var ln net.Listener
		err := f.client.Do(func() (err error) { ln, err = net.Listen("tcp", at.String()); return err })
		if err == nil {
			ln.Close()
			return
		}
		if !errors.Is(err, syscall.EADDRINUSE) || time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// TestCaseC09: a server of weight 0 keeps its connection and gets no new one; taken out of the file it keeps it as long as
// drain says, then both ends get RST.
func TestCaseC09(t *testing.T) {
	t.Parallel()
	drain := 2 * time.Second
	if long {
		drain = 10 * time.Second
	}
	f := newFarm(t, 2)
	f.answerAll()
	config := f.config("scheduler: rr, drain: " + drain.String())
	config = strings.ReplaceAll(config, "idle: 10s", "idle: 1m") // they are silent for as long as the drain takes
	f.begin(config)
	var kept []*talk4
	var vips []netip.AddrPort
	var first []string
	for _, w := range ways[:2] {
		for i, fam := range families {
			vips = append(vips, netip.AddrPortFrom(fam.vip, w.port))
			kept = append(kept, f.talk(t, netip.AddrPort{}, vips[len(vips)-1]))
			if got := kept[len(kept)-1].server(t); got != f.routed[0].Name() {
				t.Fatalf("the first connection is at %s", got)
			}
			first = append(first, fmt.Sprintf("{address: %q, weight: 1}", netip.AddrPortFrom(f.routed[0].address(i), w.serverPort())))
		}
	}
	still := func(when string) {
		t.Helper()
		for i, c := range kept {
			if got := c.server(t); got != f.routed[0].Name() {
				t.Errorf("%s, %s: a request is at %s", vips[i], when, got)
			}
		}
	}
	others := func(when string) {
		t.Helper()
		for _, vip := range vips {
			for range 3 {
				if got := f.once(t, "tcp", netip.AddrPort{}, vip, "bye\n").server; got != f.routed[1].Name() {
					t.Errorf("%s, %s: a new connection is at %s", vip, when, got)
				}
			}
		}
	}
	zero, gone := config, config
	for _, s := range first {
		zero = strings.Replace(zero, s, strings.Replace(s, "weight: 1", "weight: 0", 1), 1)
		gone = strings.Replace(gone, s+", ", "", 1)
	}
	f.apply(t, zero)
	for range 5 {
		still("weight 0")
	}
	others("weight 0")
	began := time.Now() // the drain begins at some time from here on
	f.apply(t, gone)
	still("taken out")
	others("taken out")
	for i, c := range kept {
		must(t, c.SetDeadline(time.Now().Add(drain+5*time.Second)))
		_, err := io.ReadAll(c)
		if took := time.Since(began); !errors.Is(err, syscall.ECONNRESET) || took < drain {
			t.Errorf("%s: %v after %v, want RST after %v", vips[i], err, took, drain)
		}
	}
	f.await("the server's ends are reset", 5*time.Second, func() bool { return int(f.routed[0].resets.Load()) == len(kept) })
	if cut, drained := f.number("runtime.drain.cut"), f.number("runtime.drain.drained"); int(cut) != len(kept) || drained != 0 {
		t.Errorf("%v cut and %v drained, want %d and 0", cut, drained, len(kept))
	}
	f.atRest()
}

// TestCaseC13: persistence counts as the file says from its reload on, changed, removed or added; an open connection survives.
func TestCaseC13(t *testing.T) {
	t.Parallel()
	short := 1.0 // seconds
	if long {
		short = 13
	}
	f := newFarm(t, 3)
	must(t, f.client.Addr("eth0", "198.18.0.11/24"))
	f.answerAll()
	with := func(keys string) string {
		config := f.services("scheduler: rr", func(w *way, family int, protocol string) (string, bool) {
			return keys, w.mode == "nat" && family == 0 && protocol == "tcp"
		})
		return strings.ReplaceAll(config, "idle: 10s", "idle: 1m") // the open connection is silent while another client rests
	}
	f.begin(with(", persistence: {time: 60s}"))
	vip := netip.AddrPortFrom(families[0].vip, ways[0].port)
	open := f.talk(t, netip.MustParseAddrPort("198.18.0.11:0"), vip)
	at := open.server(t)
	ask := func() string { return f.once(t, "tcp", netip.MustParseAddrPort("198.18.0.10:0"), vip, "bye\n").server }
	last := ""
	for _, x := range []struct {
		keys    string
		seconds float64 // zero: none
	}{{", persistence: {time: 60s}", 60}, {fmt.Sprintf(", persistence: {time: %vs}", short), short}, {"", 0}, {", persistence: {time: 20s}", 20}} {
		f.apply(t, with(x.keys))
		var table view.Table
		f.read(t, "services", &table)
		for _, s := range table.Services {
			switch {
			case s.Mode != "nat":
			case s.Persistence == nil && x.seconds != 0, s.Persistence != nil && s.Persistence.Seconds != x.seconds:
				t.Errorf("%q: service %s shows %+v", x.keys, s.Name, s.Persistence)
			}
		}
		var got []string
		for range 4 {
			got = append(got, ask())
		}
		if same := got[0] == got[1] && got[1] == got[2] && got[2] == got[3]; same != (x.seconds != 0) {
			t.Errorf("%q: servers %v", x.keys, got)
		}
		if x.seconds == 60 {
			last = got[0]
		}
		if x.seconds == short && got[0] != last {
			t.Errorf("the template did not outlive the reload: %s, then %v", last, got)
		}
		if x.seconds == short { // another choice after the time
			rested := time.Now()
			f.await("no template but that of the open connection", 20*time.Second, func() bool {
				var table view.Table
				f.read(t, "services", &table)
				return templates(&table) == 1
			})
			if rest := time.Since(rested).Seconds(); rest < short-0.5 {
				t.Errorf("forgotten after %.1f s, not %v", rest, short)
			}
			if again := ask(); again == got[0] {
				t.Errorf("after %v s of rest still at %s", short, again)
			}
		}
		if got := open.server(t); got != at {
			t.Errorf("%q: the open connection is at %s, was at %s", x.keys, got, at)
		}
	}
}

// templates is how many clients persistence keeps.
func templates(table *view.Table) (n int) {
	for _, s := range table.Services {
		for _, g := range s.Groups {
			for _, v := range g.Servers {
				n += int(v.Templates)
			}
		}
	}
	return n
}
