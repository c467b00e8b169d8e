package acceptance

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// comings is the configuration of the tests below: what each service of layer 4 does to a server, and servers to come and go.
const comings = `card: emu
emu: {client: eth1, server: eth2}
ports:
  client: {addresses: [198.18.0.1/24, "2001:db8::1/64"]}
  server: {addresses: [198.18.1.1/24, "2001:db8:1::1/64"]}
services:
  - {name: nat, listen: ["198.18.0.80:80"], mode: nat, default: app}
  - {name: full, listen: ["198.18.0.81:80"], mode: fullnat, default: app}
  - {name: kept, listen: ["198.18.0.82:80"], mode: nat, default: app, persistence: {time: 60s}}
  - {name: names, listen: ["198.18.0.80:53"], mode: nat, protocol: udp, default: names}
  - {name: full-names, listen: ["198.18.0.81:53"], mode: fullnat, protocol: udp, default: names}
groups:
  - name: app
    scheduler: SCHEDULER
    check: {type: tcp, interval: 500ms, timeout: 1s}
    servers: [{address: "198.18.1.11:80"}, {address: "198.18.1.12:80", weight: 2}MORE]
  - {name: names, scheduler: rr, servers: [{address: "198.18.1.11:53"}, {address: "198.18.1.12:53"}]}
`

// come is comings with a scheduler and more servers of app. Where clients are hashed, those of a full server go on to the
// next one.
func come(scheduler, more string) string {
	if scheduler == "sh" || scheduler == "mh" {
		scheduler += "\n    hash: {fallback: true}"
	}
	return strings.NewReplacer("SCHEDULER", scheduler, "MORE", more).Replace(comings)
}

// echoes has every server say its address to who connects, and then back what it gets.
func (p *product) echoes(addresses ...string) {
	p.t.Helper()
	for _, a := range addresses {
		ln, err := p.servers.Listen("tcp", a)
		must(p.t, err)
		p.t.Cleanup(func() { ln.Close() })
		go func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				go func() {
					defer c.Close()
					fmt.Fprintln(c, c.LocalAddr())
					_, _ = io.Copy(c, c)
				}()
			}
		}()
	}
}

// talkTo connects and learns the server.
func (p *product) talkTo(ctx context.Context, at string) (c net.Conn, r *bufio.Reader, server string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if c, err = p.client.Dial(ctx, "tcp", at); err != nil {
		return nil, nil, "", err
	}
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	r = bufio.NewReader(c)
	if server, err = r.ReadString('\n'); err != nil {
		c.Close()
		return nil, nil, "", err
	}
	return c, r, strings.TrimSpace(server), nil
}

// say sends a line and wants it back.
func say(c net.Conn, r *bufio.Reader, text string) error {
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := fmt.Fprintln(c, text); err != nil {
		return err
	}
	got, err := r.ReadString('\n')
	if err == nil && strings.TrimSpace(got) != text {
		return fmt.Errorf("%q came back, want %q", got, text)
	}
	return err
}

// talks keeps connections to every TCP service, some long and some short, until ctx ends.
func (p *product) talks(ctx context.Context, wg *sync.WaitGroup) (said, opened *atomic.Int64) {
	said, opened = new(atomic.Int64), new(atomic.Int64)
	for i, at := range []string{"198.18.0.80:80", "198.18.0.81:80", "198.18.0.82:80", "198.18.0.80:80", "198.18.0.81:80", "198.18.0.82:80"} {
		wg.Go(func() {
			c, r, server, err := p.talkTo(context.Background(), at)
			if err != nil {
				p.t.Errorf("long connection to %s: %v", at, err)
				return
			}
			defer c.Close()
			for n := 0; ctx.Err() == nil; n++ {
				if err := say(c, r, fmt.Sprintf("%d %d", i, n)); err != nil {
					p.t.Errorf("long connection of %s to %s by %s, line %d: %v", c.LocalAddr(), server, at, n, err)
					return
				}
				said.Add(1)
				time.Sleep(time.Millisecond)
			}
		})
		wg.Go(func() {
			for ctx.Err() == nil {
				c, r, server, err := p.talkTo(context.Background(), at)
				if err == nil {
					err = say(c, r, "short")
					c.Close()
				}
				if err != nil {
					p.t.Errorf("short connection to %s %s: %v", at, server, err)
					return
				}
				opened.Add(1)
			}
		})
	}
	return said, opened
}

// resident is how much memory the runtime has beside files and what it shares, in KiB.
func (p *product) resident() (kib int) {
	p.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	must(p.t, err)
	_, line, _ := strings.Cut(string(b), "RssAnon:")
	_, err = fmt.Sscan(line, &kib)
	must(p.t, err)
	return kib
}

// TestPassedReloads reloads ten times a second during traffic, each time with other servers, weights and scheduler. No
// connection notices, long or short, by nat, fullnat or persistence; the log has no error; the runtime does not grow.
func TestPassedReloads(t *testing.T) {
	d := 4 * time.Second
	if long {
		d = 30 * time.Second
	}
	p := between(t)
	must(t, p.servers.Addr("eth0", "198.18.1.14/24"))
	p.echoes("198.18.1.11:80", "198.18.1.12:80", "198.18.1.13:80", "198.18.1.14:80")
	p.begin(come("wrr", `, {address: "198.18.1.13:80"}, {address: "198.18.1.14:80"}`))
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	said, opened := p.talks(ctx, &wg)
	more := []string{"", `, {address: "198.18.1.13:80", weight: 3}`, `, {address: "198.18.1.14:80"}, {address: "198.18.1.13:80", weight: 0}`, `, {address: "198.18.1.14:80", upper: 100}`}
	schedulers := []string{"wrr", "wlc", "sh", "mh", "rr", "p2c", "sed"}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	reloads, early := 0, 0
	for end := time.Now().Add(d); time.Now().Before(end); reloads++ {
		<-tick.C
		text := come(schedulers[reloads%len(schedulers)], more[reloads%len(more)])
		must(t, os.Rename(p.write("next.yaml", text), filepath.Join(p.dir, "splice.yaml"))) // never half a file
		must(t, p.cmd.Process.Signal(syscall.SIGHUP))
		if reloads == int(d/time.Second)*3 {
			early = p.resident()
		}
	}
	cancel()
	wg.Wait()
	late := p.resident()
	t.Logf("%d reloads, %d lines, %d short connections; %d KiB, then %d", reloads, said.Load(), opened.Load(), early, late)
	if late > early*3/2 {
		t.Errorf("the runtime has %d KiB, before %d", late, early)
	}
	for line := range strings.Lines(p.log.String()) {
		if strings.Contains(line, "level=ERROR") || strings.Contains(line, "level=WARN") {
			t.Errorf("the log says %s", line)
		}
	}
}

// TestPassedTakeover kills the runtime during traffic of layer 4. Connections go on, also new ones, which need no runtime;
// clients stay at their servers; and the next runtime goes on with all of it.
func TestPassedTakeover(t *testing.T) {
	p := between(t)
	p.echoes("198.18.1.11:80", "198.18.1.12:80")
	p.begin(come("wrr", ""))
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	said, opened := p.talks(ctx, &wg)
	home := ""
	for i := range 3 {
		for _, when := range []string{"before", "without a runtime", "after"} {
			switch when {
			case "without a runtime":
				p.kill()
			case "after":
				p.run()
				p.await("the runtime answers", 10*time.Second, p.resolved)
				if s := p.status().Attached; s != "continued" {
					t.Errorf("%s, want continued", s)
				}
			}
			had, opened0 := said.Load(), opened.Load()
			p.await("traffic", 5*time.Second, func() bool { return said.Load() > had+50 && opened.Load() > opened0+50 })
			c, _, server, err := p.talkTo(t.Context(), "198.18.0.82:80")
			must(t, err)
			c.Close()
			if home == "" {
				home = server
			}
			if server != home {
				t.Errorf("kill %d, %s: the client comes to %s, before to %s", i, when, server, home)
			}
		}
	}
	cancel()
	wg.Wait()
	t.Logf("%d lines, %d short connections", said.Load(), opened.Load())
	if lost := p.status().Exceptions.Lost; lost != 0 {
		t.Errorf("%d exceptions were missed", lost)
	}
}

// TestManyDatagrams sends from 10,000 ports, and each gets its answer from the VIP.
func TestManyDatagrams(t *testing.T) {
	p := between(t)
	for _, a := range []string{"198.18.1.11:53", "198.18.1.12:53"} {
		var c net.PacketConn
		must(t, p.servers.Do(func() (err error) { c, err = net.ListenPacket("udp", a); return err }))
		defer c.Close()
		go func() {
			b := make([]byte, 2048)
			for {
				n, from, err := c.ReadFrom(b)
				if err != nil {
					return
				}
				_, _ = c.WriteTo(b[:n], from)
			}
		}()
	}
	p.begin(come("wrr", ""))
	const flows = 10_000
	for _, at := range []string{"198.18.0.80:53", "198.18.0.81:53"} {
		var failed atomic.Int64
		var wg sync.WaitGroup
		for w := range 4 {
			wg.Go(func() {
				for i := w; i < flows && failed.Load() < 5; i += 4 {
					if err := p.datagram(t.Context(), at, fmt.Sprint(at, i)); err != nil {
						failed.Add(1)
						t.Errorf("flow %d to %s: %v", i, at, err)
					}
				}
			})
		}
		wg.Wait()
	}
}
