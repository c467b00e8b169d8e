package acceptance

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// nginx starts one nginx in the servers' namespace with a server per address, each of which answers with its name.
func (p *product) nginx() {
	p.t.Helper()
	need(p.t, "nginx", "nginx-light")
	dir := p.dir
	must(p.t, os.MkdirAll(filepath.Join(dir, "logs"), 0o755))
	var b strings.Builder
	fmt.Fprintf(&b, "daemon off; pid %s/nginx.pid; error_log %s/logs/error.log; worker_processes 1;\nevents { worker_connections 4096; }\nhttp {\n access_log off;\n", dir, dir)
	for _, path := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		fmt.Fprintf(&b, " %s_temp_path %s/%s;\n", path, dir, path)
	}
	for name, address := range map[string]string{"app": "198.18.1.11:80", "static": "198.18.1.12:80", "api": "198.18.1.13:80", "app6": "[2001:db8:1::11]:80"} {
		fmt.Fprintf(&b, " server { listen %s backlog=4096; add_header X-Server %s always; location / { return 200 \"%s\\n\"; } }\n", address, name, name)
	}
	b.WriteString("}\n")
	if os.Getuid() == 0 && os.Getenv("NETLAB_ENTERED") == "" {
		must(p.t, os.Chmod(dir, 0o755))
	}
	file := filepath.Join(dir, "nginx.conf")
	must(p.t, os.WriteFile(file, []byte("user root;\n"+b.String()), 0o644))
	cmd := p.servers.Command(context.Background(), "nginx", "-p", dir, "-c", file)
	var log strings.Builder
	cmd.Stdout, cmd.Stderr = &log, &log
	must(p.t, cmd.Start())
	p.t.Cleanup(func() {
		_ = cmd.Cancel()
		_ = cmd.Wait()
		if p.t.Failed() {
			p.t.Logf("nginx: %s", log.String())
		}
	})
	p.await("nginx listens", 10*time.Second, func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		c, err := p.servers.Dial(ctx, "tcp", "198.18.1.13:80")
		if err != nil {
			return false
		}
		return c.Close() == nil
	})
}

// wrkScript asks for the three servers in turn on connections of one request each and checks every answer. In the end it
// prints what wrk itself counted.
const wrkScript = `
local kinds = {
  { "img.example", "/photos/cat.jpg", "static" },
  { "www.example", "/api/v1", "api" },
  { "www.example", "/index.html", "app" },
}
local requests = {}
local seen, wrong = 0, 0
init = function(args)
  for i, k in ipairs(kinds) do
    requests[i] = wrk.format("GET", k[2], { ["Host"] = k[1], ["Connection"] = "close", ["X-Want"] = k[3] })
  end
end
local n = 0
request = function()
  n = n + 1
  return requests[n % #requests + 1]
end
local names = { app = 0, static = 0, api = 0 }
response = function(status, headers, body)
  seen = seen + 1
  local server = headers["X-Server"] or "nobody"
  if status ~= 200 or body ~= server .. "\n" or names[server] == nil then wrong = wrong + 1 else names[server] = names[server] + 1 end
  thread_app, thread_static, thread_api, thread_wrong, thread_seen = names.app, names.static, names.api, wrong, seen
end
local threads = {}
setup = function(thread) table.insert(threads, thread) end
done = function(summary, latency, requests)
  local e = summary.errors
  local t = { 0, 0, 0, 0, 0 }
  for _, th in ipairs(threads) do
    for i, k in ipairs({ "thread_seen", "thread_wrong", "thread_app", "thread_static", "thread_api" }) do t[i] = t[i] + (th:get(k) or 0) end
  end
  print(string.format("RESULT seen=%d wrong=%d app=%d static=%d api=%d connect=%d read=%d write=%d timeout=%d status=%d",
    t[1], t[2], t[3], t[4], t[5], e.connect, e.read, e.write, e.timeout, e.status))
end
`

// TestShortConnections sends many connections of one request each with wrk and with curl.
func TestShortConnections(t *testing.T) {
	need(t, "wrk", "wrk")
	need(t, "curl", "curl")
	connections, curls := 1000, 100
	if long {
		connections, curls = 20_400, 2000
	}
	p := start(t, configuration)
	p.nginx()
	t.Run("wrk", func(t *testing.T) { p.wrk(t, connections) })
	t.Run("curl", func(t *testing.T) {
		p.curl(t, curls, "http://198.18.0.80/", "http://198.18.0.80/api/x", "http://198.18.0.80/photos/1.jpg")
	})
	t.Run("curl over IPv6", func(t *testing.T) { p.curl(t, 20, "http://[2001:db8::80]/") })
	p.atRest()
}

// wrk runs for a few seconds at a time until it has seen enough answers.
func (p *product) wrk(t *testing.T, connections int) {
	script := filepath.Join(p.dir, "wrk.lua")
	must(t, os.WriteFile(script, []byte(wrkScript), 0o644))
	before := p.number("connections.opened")
	total, runs := map[string]int{}, 0
	for ; total["seen"] < connections && runs < 60; runs++ {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		out, err := p.client.Command(ctx, "wrk", "-t1", "-c32", "-d3s", "--timeout", "10s", "-s", script, "http://198.18.0.80/").CombinedOutput()
		cancel()
		if err != nil {
			t.Fatalf("wrk: %v\n%s", err, out)
		}
		for _, f := range strings.Fields(string(out)) {
			if k, v, ok := strings.Cut(f, "="); ok {
				n, _ := strconv.Atoi(v)
				total[k] += n
			}
		}
	}
	opened := int(p.number("connections.opened") - before)
	t.Logf("%d connections in %d runs of 3 s; wrk: %v", opened, runs, total)
	if total["seen"] < connections || opened < connections {
		t.Errorf("got %d answers on %d connections, want %d", total["seen"], opened, connections)
	}
	for _, k := range []string{"wrong", "connect", "read", "write", "timeout", "status"} {
		if total[k] != 0 {
			t.Errorf("%s: got %d, want 0", k, total[k])
		}
	}
	// Requests go round the three kinds, so the servers' shares differ by no more than the connections under way.
	for _, k := range []string{"app", "static", "api"} {
		if d := total[k] - total["seen"]/3; d < -32*runs || d > 32*runs {
			t.Errorf("server %s answered %d of %d requests, want a third", k, total[k], total["seen"])
		}
	}
}

// curl sends n requests with one curl, each on a connection of its own, and checks that the right server answers.
func (p *product) curl(t *testing.T, n int, urls ...string) {
	want := map[string]string{"http://198.18.0.80/": "app", "http://198.18.0.80/api/x": "api", "http://198.18.0.80/photos/1.jpg": "static", "http://[2001:db8::80]/": "app6"}
	var b strings.Builder
	for i := range n {
		url := urls[i%len(urls)]
		host := "www.example"
		if want[url] == "static" {
			host = "img.example"
		}
		if i != 0 {
			b.WriteString("next\n")
		}
		fmt.Fprintf(&b, "url = %q\nheader = \"Host: %s\"\nheader = \"Connection: close\"\nsilent\nshow-error\ngloboff\nmax-time = 10\nwrite-out = \"%%{http_code} %s\\n\"\n", url, host, want[url])
	}
	file := filepath.Join(p.dir, "curl.conf")
	must(t, os.WriteFile(file, []byte(b.String()), 0o644))
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	out, err := p.client.Command(ctx, "curl", "-K", file).CombinedOutput()
	if err != nil {
		t.Fatalf("curl: %v\n%.2000s", err, out)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) != 2*n {
		t.Fatalf("curl printed %d lines, want %d", len(lines), 2*n)
	}
	for i := 0; i < len(lines); i += 2 {
		if lines[i+1] != "200 "+lines[i] {
			t.Errorf("request %d: server %q answered, curl says %q (status, wanted server)", i/2, lines[i], lines[i+1])
		}
	}
}
