package acceptance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"splicenic/emu/urltable"
	"splicenic/runtime/head"
	"splicenic/runtime/rule"
)

// refused is the outcome of a request that no server gets.
const refused = "refused"

// TestConformance asks the card, nginx and haproxy where heads go that servers are known to read in different ways.
// The card refuses a head, or routes it as both others do. Where a row is neither, or is refused though both others agree, it
// names the section that says why.
func TestConformance(t *testing.T) {
	need(t, "nginx", "nginx-light")
	need(t, "haproxy", "haproxy")
	dir, err := os.MkdirTemp("", "conformance") // t.TempDir is too long for the name of a socket
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	nginx, haproxy := nginxOracle(t, dir), haproxyOracle(t, dir)

	table := newConformanceTable(t)
	seen := map[string]bool{}
	agreed := 0
	for _, row := range conformance {
		if seen[row.in] {
			t.Errorf("%s: this head is there already", row.name)
		}
		seen[row.in] = true
		t.Run(row.name, func(t *testing.T) {
			got, n, h := table.byCard(row.in), askAt(t, nginx, row.in), askAt(t, haproxy, row.in)
			if host := table.byHost(row.in); host != got {
				t.Errorf("card %s, host %s", got, host)
			}
			t.Logf("card %s, nginx %s, haproxy %q  %s", got, n, h, row.rfc)
			switch {
			case got == n && got == h:
				agreed++
			case got == refused && n != h:
			case row.rfc == "":
				t.Errorf("card %s, nginx %s, haproxy %s for %.200q: no reason given", got, n, h, row.in)
			}
		})
	}
	if len(seen) < 200 {
		t.Errorf("%d heads, want 200 at least", len(seen))
	}
	t.Logf("%d heads, all three agree on %d", len(seen), agreed)
}

// conformanceHosts are the hosts that the three tell apart; each has a group of its own, and one for what is below /photos.
var conformanceHosts = []string{"a.example", "b.example", "[2001:db8::a]"}

// A conformanceTable says with rules what the configurations of the servers say.
type conformanceTable struct {
	routes  []rule.Route
	groups  []string // names, by Route.Group
	image   *rule.Image
	matcher *rule.Matcher
}

func newConformanceTable(t *testing.T) *conformanceTable {
	t.Helper()
	c := new(conformanceTable)
	add := func(host, path, group string) {
		m := rule.Match{}
		var err error
		if host != "" {
			m.Host, err = rule.Host(host)
			must(t, err)
		}
		if path != "" {
			m.Path, err = rule.Pattern(path)
			must(t, err)
		}
		c.routes = append(c.routes, rule.Route{Match: m, Group: uint32(len(c.groups))})
		c.groups = append(c.groups, group)
	}
	for _, host := range conformanceHosts {
		add(host, "/photos/*", host+"/photos")
		add(host, "", host)
	}
	add("", "/photos/*", "default/photos")
	var err error
	c.image, err = rule.Compile([]rule.Service{{Name: "s", Routes: c.routes}}, rule.Indexes{Size: 64}, 1<<12, nil)
	must(t, err)
	c.matcher = rule.NewMatcher(c.routes)
	return c
}

// byCard is where the card sends the request that in begins with.
func (c *conformanceTable) byCard(in string) string {
	if !urltable.CanStart(in[0]) {
		return refused
	}
	if is, maybe := urltable.Preface([]byte(in)); is || maybe {
		return refused // no service of the others' takes HTTP/2 without TLS
	}
	end, _ := urltable.FindEnd([]byte(in), 0)
	var r urltable.Request
	if end == 0 || urltable.ParseHead([]byte(in)[:end], &r) != urltable.OK {
		return refused
	}
	index, v := urltable.Match(&urltable.Tables{Nodes: c.image.Nodes, Rules: c.image.Rules}, c.image.Roots[0], &r)
	if v == urltable.Matched {
		for _, rule := range c.image.List {
			if rule.Index == index {
				return c.groups[rule.Group]
			}
		}
	}
	return "default"
}

// byHost is where the host sends it, which reads the heads that do not fit the card.
func (c *conformanceTable) byHost(in string) string {
	if is, maybe := urltable.Preface([]byte(in)); is || maybe {
		return refused
	}
	end, _ := head.End([]byte(in), 0)
	if end == 0 {
		return refused
	}
	h, err := head.Parse([]byte(in)[:end])
	if err != nil {
		return refused
	}
	if place, ok := c.matcher.Match(&rule.Request{Method: h.Method, Host: h.Host, Path: h.Path, Query: h.Query, Header: h.Header()}); ok {
		return c.groups[c.routes[place].Group]
	}
	return "default"
}

func nginxOracle(t *testing.T, dir string) (socket string) {
	socket = filepath.Join(dir, "nginx.sock")
	var b strings.Builder
	if os.Getuid() == 0 {
		b.WriteString("user root;\n")
	}
	fmt.Fprintf(&b, "daemon off; pid %s/nginx.pid; error_log %s/error.log info; worker_processes 1;\nevents { worker_connections 256; }\n", dir, dir)
	fmt.Fprintf(&b, "http {\n access_log off; merge_slashes off; client_max_body_size 0; large_client_header_buffers 4 16k;\n")
	for _, path := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		fmt.Fprintf(&b, " %s_temp_path %s/%s;\n", path, dir, path)
	}
	for _, host := range append([]string{"default"}, conformanceHosts...) {
		listen, name := "", host
		if host == "default" {
			listen, name = " default_server", `""`
		}
		fmt.Fprintf(&b, " server { listen unix:%s%s; server_name %s; location = /photos { return 200 \"%s/photos\"; } location ^~ /photos/ { return 200 \"%s/photos\"; } location / { return 200 \"%s\"; } }\n",
			socket, listen, name, host, host, host)
	}
	b.WriteString("}\n")
	file := filepath.Join(dir, "nginx.conf")
	must(t, os.WriteFile(file, []byte(b.String()), 0o644))
	oracle(t, socket, "nginx", "-e", filepath.Join(dir, "error.log"), "-p", dir, "-c", file)
	return socket
}

func haproxyOracle(t *testing.T, dir string) (socket string) {
	socket = filepath.Join(dir, "haproxy.sock")
	var b strings.Builder
	fmt.Fprintf(&b, "global\n expose-experimental-directives\n maxconn 256\n tune.bufsize 32768\n tune.http.maxhdr 200\ndefaults\n mode http\n timeout client 10s\n timeout server 10s\n timeout connect 10s\n timeout http-request 10s\n")
	fmt.Fprintf(&b, "frontend f\n bind unix@%s\n http-request normalize-uri percent-decode-unreserved\n http-request normalize-uri path-strip-dot\n http-request normalize-uri path-strip-dotdot full\n acl photos path /photos\n acl photos path_beg /photos/\n", socket)
	for i, host := range conformanceHosts {
		fmt.Fprintf(&b, " acl h%d req.hdr(host),host_only -m str -i %s\n", i, host)
		fmt.Fprintf(&b, " http-request return status 200 content-type text/plain string %s/photos if h%d photos\n http-request return status 200 content-type text/plain string %s if h%d\n", host, i, host, i)
	}
	b.WriteString(" http-request return status 200 content-type text/plain string default/photos if photos\n http-request return status 200 content-type text/plain string default\n")
	file := filepath.Join(dir, "haproxy.cfg")
	must(t, os.WriteFile(file, []byte(b.String()), 0o644))
	oracle(t, socket, "haproxy", "-db", "-f", file)
	return socket
}

// oracle runs a server until the test ends and returns when it listens.
func oracle(t *testing.T, socket, program string, args ...string) {
	t.Helper()
	var log strings.Builder
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = &log, &log
	must(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-ended
		if t.Failed() {
			t.Logf("%s: %q", program, log.String())
		}
	})
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if c, err := net.Dial("unix", socket); err == nil {
			must(t, c.Close())
			return
		}
		select {
		case <-tick.C:
		case err := <-ended:
			ended <- err
			t.Fatalf("%s ended: %v\n%s", program, err, log.String())
		case <-ctx.Done():
			t.Fatalf("%s does not listen\n%s", program, log.String())
		}
	}
}

// askAt sends one request and says what became of it: the body of an answer with status 200, else refused.
func askAt(t *testing.T, socket, in string) string {
	t.Helper()
	c, err := net.Dial("unix", socket)
	must(t, err)
	defer c.Close()
	must(t, c.SetDeadline(time.Now().Add(30*time.Second)))
	_, err = io.WriteString(c, in)
	if err == nil {
		err = c.(*net.UnixConn).CloseWrite()
	}
	if err != nil && !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ENOTCONN) {
		t.Fatal(err)
	}
	out, err := io.ReadAll(c)
	if err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Fatal(err)
	}
	answer := string(out)
	for strings.HasPrefix(answer, "HTTP/1.1 100 ") {
		_, answer, _ = strings.Cut(answer, "\r\n\r\n")
	}
	if !strings.HasPrefix(answer, "HTTP/1.1 200 ") {
		if to := answer; to != "" && !strings.HasPrefix(to, "HTTP/") && !strings.HasPrefix(to, "<") {
			return to // as HTTP/0.9 has it
		}
		return refused
	}
	fields, body, _ := strings.Cut(answer, "\r\n\r\n")
	if body, _, _ = strings.Cut(body, "HTTP/1.1 "); body != "" { // the next request's
		return body
	}
	return "no body: " + fields
}
