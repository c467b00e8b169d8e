package acceptance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"splicenic/runtime/admin"
	"splicenic/tools/card"
	"splicenic/tools/netlab"
)

var (
	binary string // splicectl
	other  string // another build of it, with the same register map
	long   = os.Getenv("SPLICE_LONG") != ""
)

// TestMain takes an ordinary user into a user namespace and builds splicectl.
func TestMain(m *testing.M) {
	code, done, err := netlab.Enter()
	if done {
		os.Exit(code)
	}
	if err != nil && !errors.Is(err, netlab.ErrNotPermitted) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "acceptance")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "splicectl")
	other = filepath.Join(dir, "splicectl-other")
	for _, build := range [][]string{{"-o", binary}, {"-ldflags=-s -w", "-o", other}} {
		if out, err := exec.Command("go", append(append([]string{"build"}, build...), "../splicectl")...).CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build splicectl: %v\n%s", err, out)
			return 1
		}
	}
	return m.Run()
}

// need skips the test where a program is missing, naming the package that has it.
func need(t *testing.T, program, pkg string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Skipf("needs %s: apt-get install %s", program, pkg)
	}
}

const configuration = `card: emu
emu: {client: eth1, server: eth2}
ports:
  client: {addresses: [198.18.0.1/24, "2001:db8::1/64"]}
  server: {addresses: [198.18.1.1/24, "2001:db8:1::1/64"]}
services:
  - name: web
    listen: [198.18.0.80:80]
    mode: splice
    protocol: http
    routes:
      - {host: img.example, path: /photos/*, to: static}
      - {path: /api/*, to: api}
    default: app
  - name: web6
    listen: ["[2001:db8::80]:80"]
    mode: splice
    protocol: http
    default: app6
groups:
  - {name: app, servers: [{address: 198.18.1.11:80}], profile: {mss: 1460, wscale: 7, sack: true, timestamps: true}}
  - {name: static, servers: [{address: 198.18.1.12:80}], profile: {mss: 1460, wscale: 7, sack: true, timestamps: true}}
  - {name: api, servers: [{address: 198.18.1.13:80}], profile: {mss: 1460, wscale: 7, sack: true, timestamps: true}}
  - {name: app6, servers: [{address: "[2001:db8:1::11]:80"}], profile: {mss: 1440, wscale: 7, sack: true, timestamps: true}}
`

// product is splicectl between a client and servers, each in a namespace.
type product struct {
	t                     *testing.T
	lab                   *netlab.Lab
	client, card, servers *netlab.Namespace
	dir, socket           string
	first                 bool // before other processes of the machine, where the test may do that
	cmd                   *netlab.Cmd
	log                   output
}

// output is what a program has said so far.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

func start(t *testing.T, config string) *product {
	t.Helper()
	p := between(t)
	p.begin(config)
	return p
}

// between is a product that does not run yet, between a client and servers.
func between(t *testing.T) *product {
	t.Helper()
	p := setUp(t)
	must(t, p.lab.Link(p.client, "eth0", p.card, "eth1"))
	must(t, p.lab.Link(p.card, "eth2", p.servers, "eth0"))
	for _, a := range []string{"198.18.0.10/24", "2001:db8::10/64"} {
		must(t, p.client.Addr("eth0", a))
	}
	for _, a := range []string{"198.18.1.11/24", "198.18.1.12/24", "198.18.1.13/24", "2001:db8:1::11/64"} {
		must(t, p.servers.Addr("eth0", a))
	}
	must(t, p.servers.Route("default", "198.18.1.1"))
	must(t, p.servers.Route("default", "2001:db8:1::1"))
	must(t, p.client.Sysctl("net.ipv4.ip_local_port_range", "1024 65000"))
	// Ports that tests choose themselves are no connection's by chance.
	must(t, p.client.Sysctl("net.ipv4.ip_local_reserved_ports", "30000-31999"))
	return p
}

// newProduct is a product without a network.
func newProduct(t *testing.T) *product {
	t.Helper()
	lab, err := netlab.New()
	if errors.Is(err, netlab.ErrNotPermitted) {
		t.Skipf("needs root or user namespaces: %v", err)
	}
	must(t, err)
	p := &product{t: t, lab: lab, dir: t.TempDir()}
	p.socket = filepath.Join(p.dir, "splice.sock")
	t.Cleanup(func() {
		if err := lab.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// setUp makes the namespaces, which nothing joins yet.
func setUp(t *testing.T) *product {
	t.Helper()
	p := newProduct(t)
	var err error
	for _, n := range []struct {
		to   **netlab.Namespace
		name string
	}{{&p.client, "client"}, {&p.card, "card"}, {&p.servers, "servers"}} {
		*n.to, err = p.lab.Namespace(n.name)
		must(t, err)
	}
	return p
}

// begin starts the product between namespaces that are joined.
func (p *product) begin(config string) {
	p.t.Helper()
	p.write("splice.yaml", config)
	p.run()
	p.t.Cleanup(p.stop)
	p.await("the runtime answers and every server's next hop is resolved", 10*time.Second, p.resolved)
}

// write writes a file of the product's folder.
func (p *product) write(name, text string) (path string) {
	p.t.Helper()
	path = filepath.Join(p.dir, name)
	must(p.t, os.WriteFile(path, []byte(text), 0o644))
	return path
}

// run starts the runtime, which starts the card or goes on with the one there is.
func (p *product) run() {
	p.t.Helper()
	p.runBy(binary)
}

// runBy starts the runtime of a build.
func (p *product) runBy(splicectl string) {
	p.t.Helper()
	command := []string{splicectl, "run", "-c", filepath.Join(p.dir, "splice.yaml"), "--socket", p.socket}
	if p.first {
		command = append([]string{"nice", "-n", "-15"}, command...)
	}
	p.cmd = p.card.Command(context.Background(), command[0], command[1:]...)
	p.cmd.Env = append(os.Environ(), "SPLICE_CARD=") // the file says which card
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	must(p.t, p.cmd.Start())
}

// kill ends the runtime as no operator does. The card goes on.
func (p *product) kill() {
	p.t.Helper()
	must(p.t, p.cmd.Process.Kill())
	if err := p.cmd.Wait(); err == nil {
		p.t.Error("the runtime ended before it was killed")
	}
}

func (p *product) cardSocket() string { return strings.TrimSuffix(p.socket, ".sock") + ".card.sock" }

// status is what the runtime says about itself.
func (p *product) status() (s admin.Status) {
	p.t.Helper()
	c := &http.Client{Transport: p.transport(), Timeout: 10 * time.Second}
	r, err := c.Get("http://splicenic/v1/status")
	must(p.t, err)
	defer r.Body.Close()
	must(p.t, json.NewDecoder(r.Body).Decode(&s))
	return s
}

// transport asks the runtime's socket.
func (p *product) transport() *http.Transport {
	return &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", p.socket)
	}, DisableKeepAlives: true}
}

// resolved says whether the card knows the way to every server.
func (p *product) resolved() bool {
	c := &http.Client{Transport: p.transport(), Timeout: time.Second}
	r, err := c.Get("http://splicenic/v1/groups")
	if err != nil {
		return false
	}
	defer r.Body.Close()
	var groups []struct {
		Servers []struct{ Resolved bool }
	}
	if err := json.NewDecoder(r.Body).Decode(&groups); err != nil || len(groups) == 0 {
		return false
	}
	for _, g := range groups {
		for _, s := range g.Servers {
			if !s.Resolved {
				return false
			}
		}
	}
	return true
}

// stop ends the product as an operator does and expects an orderly end.
func (p *product) stop() {
	if p.cmd.ProcessState != nil { // the test ended between two runtimes, or with one that failed
		if c, _ := card.Find(context.Background(), p.cardSocket()); c != nil {
			if err := c.Stop(context.Background()); err != nil {
				p.t.Error(err)
			}
			c.Close()
		}
		return
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Error(err)
	}
	if err := p.cmd.Wait(); err != nil {
		p.t.Errorf("splicectl run: %v\n%s", err, p.log.String())
	} else if p.t.Failed() {
		p.t.Logf("splicectl run said:\n%s", p.log.String())
	}
}

// number reads one number of the statistics by its dotted name.
func (p *product) number(name string) float64 {
	p.t.Helper()
	n, ok := p.stat(name)
	if !ok {
		p.t.Fatalf("stats have no number %s", name)
	}
	return n
}

// stat is number where there may be none of that name.
func (p *product) stat(name string) (n float64, ok bool) {
	p.t.Helper()
	out, err := exec.Command(binary, "stats", "-o", "json", "--socket", p.socket).Output()
	must(p.t, err)
	var v any
	must(p.t, json.Unmarshal(out, &v))
	return lookUp(v, name)
}

// lookUp finds a number in nested objects by its dotted name.
func lookUp(v any, name string) (n float64, ok bool) {
	for _, key := range strings.Split(name, ".") {
		m, _ := v.(map[string]any)
		v = m[key]
	}
	n, ok = v.(float64)
	return n, ok
}

// atRest waits until quarantine has passed and checks that every page and head is free again. It asks the socket itself,
// as often as a command line could not.
func (p *product) atRest() {
	p.t.Helper()
	rested := false
	defer func() {
		if !rested {
			out, err := exec.Command(binary, "conn", "list", "--socket", p.socket).CombinedOutput()
			p.t.Logf("connections (%v):\n%.4000s", err, out)
		}
	}()
	c := &http.Client{Transport: p.transport(), Timeout: 10 * time.Second}
	p.await("pages.free = pages.total, heads.free = heads.total, connections.live = 0", 15*time.Second, func() bool {
		r, err := c.Get("http://splicenic/v1/stats")
		must(p.t, err)
		defer r.Body.Close()
		var v any
		must(p.t, json.NewDecoder(r.Body).Decode(&v))
		var ns [5]float64
		for i, name := range []string{"pages.free", "pages.total", "heads.free", "heads.total", "connections.live"} {
			var ok bool
			if ns[i], ok = lookUp(v, name); !ok {
				p.t.Fatalf("stats have no number %s", name)
			}
		}
		rested = ns[0] == ns[1] && ns[2] == ns[3] && ns[4] == 0
		return rested
	})
}

// await looks every few milliseconds until something holds.
func (p *product) await(what string, patience time.Duration, holds func() bool) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			p.t.Fatalf("after %v not: %s", patience, what)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
