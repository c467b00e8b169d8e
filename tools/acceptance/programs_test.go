package acceptance

import (
	"bufio"
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"splicenic/tools/netlab"
)

// programsConfig is a configuration for programs as they are: nginx, haproxy and servers of Go behind services of all kinds.
const programsConfig = `card: emu
emu: {client: eth1, server: eth2}
log: {file: LOG}
ports:
  client: {addresses: [198.18.0.1/24, "2001:db8::1/64"]}
  server: {addresses: [198.18.1.1/24, "2001:db8:1::1/64"]}
services:
  - {name: first, listen: [198.18.0.80:80], routes: ROUTES, default: app}
  - {name: close, listen: [198.18.0.80:81], requests: close, routes: ROUTES, default: app}
  - {name: proxied, listen: [198.18.0.80:82], proxy: v2, routes: [{path: /haproxy, to: haproxy}], default: behind-proxy}
  - {name: proxied6, listen: ["[2001:db8::80]:82"], proxy: v2, default: behind-proxy6}
  - {name: all, listen: [198.18.0.80:83], proxy: v2, forwarded: forwarded, requests: close, default: behind-proxy}
  - {name: append, listen: [198.18.0.80:90], forwarded: x-forwarded-for, default: app}
  - {name: replace, listen: [198.18.0.80:91], forwarded: {field: x-forwarded-for, existing: replace}, default: app}
  - {name: refuse, listen: [198.18.0.80:92], forwarded: {field: x-forwarded-for, existing: refuse}, default: app}
  - {name: forwarded, listen: [198.18.0.80:93], forwarded: {field: forwarded, existing: append}, default: app}
  - {name: forwarded6, listen: ["[2001:db8::80]:93"], forwarded: {field: forwarded, existing: append}, default: app6}
  - {name: h2c, listen: [198.18.0.80:84], routes: [{protocol: h2c, to: h2}], default: app}
  - {name: banner, listen: [198.18.0.80:25], protocol: tcp, default: banner}
  - {name: banner-proxied, listen: [198.18.0.80:26], protocol: tcp, proxy: v2, default: banner-proxied}
  - {name: fallback, listen: [198.18.0.80:27], fallback: 200ms, routes: [{path: /api/*, to: app}], default: banner}
  - name: tls
    listen: [198.18.0.80:443]
    protocol: tls
    routes: [{sni: a.example, to: tls-go}, {sni: "*.b.example", to: tls-nginx}, {alpn: acme-tls/1, to: tls-other}]
    default: tls-other
  - {name: named, listen: [198.18.0.80:444], protocol: tls, routes: [{sni: a.example, to: tls-go}]}
  - {name: tls-proxied, listen: [198.18.0.80:445], protocol: tls, proxy: v2, default: tls-haproxy}
groups:
  - {name: app, servers: [{address: 198.18.1.11:80}]}
  - {name: app6, servers: [{address: "[2001:db8:1::11]:80"}]}
  - {name: static, servers: [{address: 198.18.1.12:80}]}
  - {name: go, servers: [{address: 198.18.1.13:80}]}
  - {name: behind-proxy, servers: [{address: 198.18.1.11:8080}]}
  - {name: behind-proxy6, servers: [{address: "[2001:db8:1::11]:8080"}]}
  - {name: haproxy, servers: [{address: 198.18.1.12:8080}]}
  - {name: h2, servers: [{address: 198.18.1.11:8084}]}
  - {name: banner, servers: [{address: 198.18.1.11:25}]}
  - {name: banner-proxied, servers: [{address: 198.18.1.13:26}]}
  - {name: tls-go, servers: [{address: 198.18.1.11:443}]}
  - {name: tls-nginx, servers: [{address: 198.18.1.12:443}]}
  - {name: tls-other, servers: [{address: 198.18.1.13:443}]}
  - {name: tls-haproxy, servers: [{address: 198.18.1.12:8443}]}
`

const programsRoutes = `[{path: /up, to: go}, {path: /ws, to: go}, {host: img.example, path: /photos/*, to: static}, {path: /old/*, to: {redirect: {prefix: /new, status: 301}}}, {path: /gone, to: {reply: {status: 410, body: "gone for good\n", content_type: text/plain}}}]`

// seen is what nginx tells about a request: who it is, who the client is, and fields that came.
const seen = `"$server_name $remote_addr xff=[$http_x_forwarded_for] forwarded=[$http_forwarded] connection=[$http_connection] $request_method $request_uri\n"`

const seenBehindProxy = `"behind-proxy $proxy_protocol_addr $proxy_protocol_port $proxy_protocol_server_addr $proxy_protocol_server_port forwarded=[$http_forwarded] connection=[$http_connection]\n"`

const programsNginx = `
 server { listen 198.18.1.11:80; listen [2001:db8:1::11]:80; server_name app; location / { return 200 SEEN; } }
 server { listen 198.18.1.12:80; server_name static; location / { return 200 SEEN; } }
 server { listen 198.18.1.11:8084 http2; server_name h2; location / { return 200 SEEN; } }
 server { listen 198.18.1.12:443 ssl; server_name tls-nginx; ssl_certificate CERT; ssl_certificate_key CERT; location / { return 200 SEEN; } }
 server { listen 198.18.1.11:8080 proxy_protocol; listen [2001:db8:1::11]:8080 proxy_protocol; server_name behind-proxy; client_max_body_size 0;
  location / { return 200 BEHIND; }
  location /up { proxy_pass http://198.18.1.13:80; proxy_http_version 1.1; proxy_request_buffering off; }
  location /ws { proxy_pass http://198.18.1.13:80; proxy_http_version 1.1; proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade; }
 }
`

const programsHAProxy = `global
 maxconn 256
defaults
 mode http
 timeout client 20s
 timeout server 20s
 timeout connect 20s
frontend plain
 bind 198.18.1.12:8080 accept-proxy
 http-request return status 200 content-type text/plain lf-string "haproxy %[src] %[src_port] %[dst] %[dst_port] id=%[fc_pp_unique_id,length] authority=[%[fc_pp_authority]]\n"
frontend tls
 bind 198.18.1.12:8443 accept-proxy ssl crt CERT alpn h2,http/1.1
 http-request return status 200 content-type text/plain lf-string "haproxy %[src] %[src_port] %[dst] %[dst_port] id=%[fc_pp_unique_id,length] authority=[%[fc_pp_authority]]\n"
`

// TestPrograms has programs that others wrote talk through the card.
func TestPrograms(t *testing.T) {
	need(t, "nginx", "nginx-light")
	need(t, "haproxy", "haproxy")
	need(t, "curl", "curl")
	need(t, "wrk", "wrk")
	need(t, "openssl", "openssl")
	p := between(t)
	logFile := filepath.Join(p.dir, "connections.log")
	certificate := selfSigned(t)
	pem := p.write("cert.pem", certificate.pem)
	if os.Getuid() == 0 && os.Getenv("NETLAB_ENTERED") == "" {
		must(t, os.Chmod(p.dir, 0o755))
	}
	with := strings.NewReplacer("SEEN", seen, "BEHIND", seenBehindProxy, "CERT", pem, "LOG", logFile, "ROUTES", programsRoutes)
	p.serveHTTP("198.18.1.13:80")
	p.serveBanner("198.18.1.11:25", false)
	p.serveBanner("198.18.1.13:26", true)
	p.serveTLS("198.18.1.11:443", "go", certificate)
	p.serveTLS("198.18.1.13:443", "other", certificate)
	p.runNginx(with.Replace(programsNginx), "198.18.1.11:8080")
	p.runServer("198.18.1.12:8443", "haproxy", "-db", "-f", p.write("haproxy.cfg", with.Replace(programsHAProxy)))
	p.begin(with.Replace(programsConfig))
	p.await("all servers' profiles are known", 20*time.Second, func() bool {
		for _, s := range p.status().Servers {
			if s.Profile == "unknown" {
				return false
			}
		}
		return true
	})

	// What a client sends behind an answer of the card's own is not read, so that such a connection ends by this time-out.
	if out, err := exec.Command(binary, "reg", "set", "timer.closing", "2000", "--socket", p.socket).CombinedOutput(); err != nil {
		t.Fatalf("reg set: %v\n%s", err, out)
	}

	t.Run("curl", p.testCurl)
	t.Run("uploads", p.testUploads)
	t.Run("wrk", p.testWrk)
	t.Run("websockets", p.testWebsockets)
	t.Run("banner", p.testBanner)
	t.Run("h2c", p.testH2C)
	t.Run("hello of crypto/tls cut everywhere", func(t *testing.T) { p.testCutHello(t, certificate) })
	t.Run("openssl", p.testOpenSSL)
	t.Run("PROXY", p.testProxy)
	t.Run("forwarded", p.testForwarded)
	p.atRest()
	t.Run("log", func(t *testing.T) { p.testLog(t, logFile) })
}

// in runs a program to its good end and returns all that it says.
func (p *product) in(n *netlab.Namespace, t *testing.T, program string, args ...string) string {
	t.Helper()
	out, err := p.try(n, program, args...)
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", program, args, err, out)
	}
	return out
}

// try runs a program and returns all that it says.
func (p *product) try(n *netlab.Namespace, program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	out, err := n.Command(ctx, program, args...).CombinedOutput()
	return string(out), err
}

// runServer runs a server in the servers' namespace until the test ends, and returns when it listens.
func (p *product) runServer(address, program string, args ...string) {
	p.t.Helper()
	log := new(output)
	cmd := p.servers.Command(context.Background(), program, args...)
	cmd.Stdout, cmd.Stderr = log, log
	must(p.t, cmd.Start())
	p.t.Cleanup(func() {
		_ = cmd.Cancel()
		_ = cmd.Wait()
		if p.t.Failed() {
			p.t.Logf("%s: %s", program, log.String())
		}
	})
	p.await(program+" listens", 20*time.Second, func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		c, err := p.servers.Dial(ctx, "tcp", address)
		return err == nil && c.Close() == nil
	})
}

// runNginx runs nginx with servers, of which one listens at address.
func (p *product) runNginx(servers, address string) {
	p.t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "user root;\ndaemon off; pid %s/nginx.pid; error_log %s/error.log; worker_processes 1;\nevents { worker_connections 1024; }\nhttp {\n access_log off; keepalive_requests 100000;\n", p.dir, p.dir)
	for _, path := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		fmt.Fprintf(&b, " %s_temp_path %s/%s;\n", path, p.dir, path)
	}
	file := p.write("nginx.conf", b.String()+servers+"}\n")
	p.runServer(address, "nginx", "-e", filepath.Join(p.dir, "error.log"), "-p", p.dir, "-c", file)
}

// serve accepts connections until the test ends, which ends those that are left.
func (p *product) serve(address string, handle func(*net.TCPConn) error) {
	p.t.Helper()
	ln, err := p.servers.Listen("tcp", address)
	must(p.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	p.t.Cleanup(func() {
		cancel()
		ln.Close()
		serving.Wait()
	})
	serving.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer c.Close()
				defer context.AfterFunc(ctx, func() { c.Close() })()
				_ = c.SetDeadline(time.Now().Add(patience))
				if err := handle(c.(*net.TCPConn)); err != nil && ctx.Err() == nil {
					p.t.Errorf("server at %s: %v", address, err)
				}
			})
		}
	})
}

// serveHTTP runs a server of Go: /up tells what was uploaded, /ws speaks to websockets.
func (p *product) serveHTTP(address string) {
	p.t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/up", func(w http.ResponseWriter, r *http.Request) {
		h := sha256.New()
		n, err := io.Copy(h, r.Body)
		fmt.Fprintf(w, "%s %d %s coding=%v error=%v\n", r.Method, n, sum(h), r.TransferEncoding, err)
	})
	mux.HandleFunc("/ws", echoWebsocket)
	ln, err := p.servers.Listen("tcp", address)
	must(p.t, err)
	s := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	p.t.Cleanup(func() { s.Close() })
	go func() { _ = s.Serve(ln) }()
}

const banner = "220 mail.example at your service\r\n"

// serveBanner speaks first, then says what it got. Behind a PROXY header it tells whom that is about.
func (p *product) serveBanner(address string, behindProxy bool) {
	p.serve(address, func(c *net.TCPConn) error {
		r := bufio.NewReader(c)
		who := "nobody"
		if behindProxy {
			b, err := r.Peek(28)
			if err != nil {
				return fmt.Errorf("read PROXY header: %w", err)
			}
			who = fmt.Sprintf("%v:%d", net.IP(b[16:20]), int(b[24])<<8|int(b[25]))
			if _, err := r.Discard(16 + int(b[14])<<8 + int(b[15])); err != nil {
				return err
			}
		}
		if _, err := io.WriteString(c, banner); err != nil {
			return err
		}
		all, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(c, "%s said %q\n", who, all)
		return err
	})
}

const vipHost = "http://198.18.0.80"

// testCurl fetches by rules, twice on a connection, and the card's own answers.
func (p *product) testCurl(t *testing.T) {
	const fields = "xff=[] forwarded=[] connection=[]"
	for _, tt := range []struct {
		name string
		args []string
		want string
	}{
		{"default", []string{vipHost + "/x"}, "app 198.18.0.10 " + fields + " GET /x\n"},
		{"rule", []string{"-H", "Host: IMG.example", vipHost + "/%70hotos/./7"}, "static 198.18.0.10 " + fields + " GET /%70hotos/./7\n"},
		{"HEAD", []string{"-I", "-o", "/dev/null", "-w", "%{http_code}\n", vipHost + "/x"}, "200\n"},
		{"two requests, one connection", []string{"-o", "/dev/null", "-o", "/dev/null", "-w", "%{http_code} %{num_connects}\n", vipHost + "/1", vipHost + "/2"}, "200 1\n200 0\n"},
		{"requests: close", []string{"-o", "/dev/null", "-o", "/dev/null", "-w", "%{http_code} %{num_connects}\n", vipHost + ":81/1", vipHost + ":81/2"}, "200 1\n200 1\n"},
		{"requests: close, as the server sees it", []string{vipHost + ":81/1"}, "app 198.18.0.10 xff=[] forwarded=[] connection=[close] GET /1\n"},
		{"the client's options are replaced", []string{"-H", "Connection: keep-alive, TE", vipHost + ":81/1"}, "app 198.18.0.10 xff=[] forwarded=[] connection=[close] GET /1\n"},
		{"redirect", []string{"-o", "/dev/null", "-w", "%{http_code} %{redirect_url}\n", vipHost + "/old/a?b"}, "301 " + vipHost + "/new/a?b\n"},
		{"redirect followed", []string{"-L", vipHost + "/old/a?b"}, "app 198.18.0.10 " + fields + " GET /new/a?b\n"},
		{"reply", []string{"-w", "%{http_code} %{content_type}\n", vipHost + "/gone"}, "gone for good\n410 text/plain\n"},
		{"reply to HEAD", []string{"-I", "-o", "/dev/null", "-w", "%{http_code} %{size_download}\n", vipHost + "/gone"}, "410 0\n"},
		{"replies, one connection each", []string{"-o", "/dev/null", "-o", "/dev/null", "-w", "%{http_code} %{num_connects}\n", vipHost + "/gone", vipHost + "/gone"}, "410 1\n410 1\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := p.in(p.client, t, "curl", append([]string{"-sS", "-g", "--path-as-is", "--max-time", "20"}, tt.args...)...)
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	t.Run("the end of a reply", func(t *testing.T) {
		c, err := p.client.Dial(context.Background(), "tcp", "198.18.0.80:80")
		must(t, err)
		defer c.Close()
		must(t, c.SetDeadline(time.Now().Add(patience)))
		_, err = io.WriteString(c, "GET /gone HTTP/1.1\r\nHost: x\r\n\r\n")
		must(t, err)
		if b, err := io.ReadAll(c); err != nil || !strings.HasSuffix(string(b), "\r\n\r\ngone for good\n") {
			t.Errorf("got %q, then %v, want the answer and FIN", b, err)
		}
	})
}

// testUploads has curl wait for 100, and send chunks.
func (p *product) testUploads(t *testing.T) {
	const bytes = 3 << 20
	file := filepath.Join(p.dir, "upload")
	b, err := io.ReadAll(stream(9, bytes))
	must(t, err)
	must(t, os.WriteFile(file, b, 0o644))
	want := fmt.Sprintf("%d %x", bytes, sha256.Sum256(b))
	for _, port := range []string{"80", "81", "82", "83"} {
		url := vipHost + ":" + port + "/up"
		for _, tt := range []struct {
			name, want string
			args       []string
		}{
			{"length, 100-continue", "PUT " + want + " coding=[] error=<nil>\n", []string{"-H", "Expect: 100-continue", "--expect100-timeout", "30", "-T", file, url}},
			{"chunks, 100-continue", "PUT " + want + " coding=[chunked] error=<nil>\n", []string{"-H", "Expect: 100-continue", "--expect100-timeout", "30", "-H", "Transfer-Encoding: chunked", "-T", file, url}},
			{"chunks at once", "POST " + want + " coding=[chunked] error=<nil>\n", []string{"-H", "Expect:", "-H", "Transfer-Encoding: chunked", "--data-binary", "@" + file, url}},
		} {
			t.Run(tt.name+", port "+port, func(t *testing.T) {
				trace := filepath.Join(t.TempDir(), "head")
				got := p.in(p.client, t, "curl", append([]string{"-sS", "--max-time", "60", "-D", trace}, tt.args...)...)
				if got != tt.want {
					t.Errorf("got %q, want %q", got, tt.want)
				}
				heads, err := os.ReadFile(trace)
				must(t, err)
				if waited := strings.HasPrefix(string(heads), "HTTP/1.1 100 "); waited != strings.Contains(tt.name, "100") {
					t.Errorf("the heads of the answers are %q", heads)
				}
			})
		}
	}
}

// keepAliveScript checks each answer of nginx and prints what was wrong.
const keepAliveScript = `
wrk.headers["Host"] = "img.example"
local threads = {}
function setup(thread) table.insert(threads, thread) end
seen, wrong = 0, 0
function response(status, headers, body)
  seen = seen + 1
  if status ~= 200 or string.sub(body, 1, 7) ~= "static " then wrong = wrong + 1 end
end
function done(summary, latency, requests)
  local e, s, w = summary.errors, 0, 0
  for _, th in ipairs(threads) do s = s + th:get("seen"); w = w + th:get("wrong") end
  print(string.format("seen=%d wrong=%d connect=%d read=%d write=%d timeout=%d", s, w, e.connect, e.read, e.write, e.timeout))
end
`

// testWrk keeps connections alive, where the service lets it.
func (p *product) testWrk(t *testing.T) {
	script := p.write("keepalive.lua", keepAliveScript)
	const connections = 16
	for _, tt := range []struct {
		name, port string
		one        bool // request per connection
	}{{"requests: first", "80", false}, {"requests: close", "81", true}} {
		t.Run(tt.name, func(t *testing.T) {
			before := p.number("connections.opened")
			duration := "1s"
			if long {
				duration = "20s"
			}
			out := p.in(p.client, t, "wrk", "-t1", "-c", strconv.Itoa(connections), "-d", duration, "--timeout", "20s", "-s", script, vipHost+":"+tt.port+"/photos/1")
			got := map[string]int{}
			for _, f := range strings.Fields(out) {
				if k, v, ok := strings.Cut(f, "="); ok {
					got[k], _ = strconv.Atoi(v)
				}
			}
			opened := int(p.number("connections.opened") - before)
			t.Logf("%d answers on %d connections: %v", got["seen"], opened, got)
			for _, k := range []string{"wrong", "connect", "read", "write", "timeout"} {
				if got[k] != 0 {
					t.Errorf("%s: got %d, want 0", k, got[k])
				}
			}
			switch {
			case got["seen"] < 2*connections:
				t.Errorf("%d answers", got["seen"])
			case !tt.one && opened > 2*connections:
				t.Errorf("%d connections for %d clients that keep theirs", opened, connections)
			case tt.one && opened < got["seen"]:
				t.Errorf("%d answers on %d connections", got["seen"], opened)
			}
		})
	}
}

// websocketKey is what a websocket's server answers a key with (RFC 6455 4.2.2).
func websocketKey(key string) string {
	h := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	return base64.StdEncoding.EncodeToString(h[:])
}

// echoWebsocket sends frames back, unmasked, until it is told to close.
func echoWebsocket(w http.ResponseWriter, r *http.Request) {
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		http.Error(w, "no websocket", http.StatusBadRequest)
		return
	}
	c, rw, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	fmt.Fprintf(rw, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n", websocketKey(r.Header.Get("Sec-WebSocket-Key")))
	for rw.Flush() == nil {
		op, payload, err := readFrame(rw.Reader)
		if err != nil {
			return
		}
		if _, err := rw.Write(wsFrame(op, payload, false)); err != nil {
			return
		}
		if op == 8 {
			_ = rw.Flush()
			return
		}
	}
}

// wsFrame is one frame of a websocket of at most 64 KiB (RFC 6455 5.2).
func wsFrame(op byte, payload []byte, masked bool) []byte {
	b := []byte{0x80 | op, 126, byte(len(payload) >> 8), byte(len(payload))}
	if !masked {
		return append(b, payload...)
	}
	b[1] |= 0x80
	b = append(b, 1, 2, 3, 4)
	for i, x := range payload {
		b = append(b, x^byte(1+i%4))
	}
	return b
}

// readFrame reads one of those.
func readFrame(r *bufio.Reader) (op byte, payload []byte, err error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	if head[1]&0x7f != 126 {
		return 0, nil, fmt.Errorf("a frame with head %x", head)
	}
	var mask [4]byte
	if head[1]&0x80 != 0 {
		if _, err := io.ReadFull(r, mask[:]); err != nil {
			return 0, nil, err
		}
	}
	payload = make([]byte, int(head[2])<<8|int(head[3]))
	_, err = io.ReadFull(r, payload)
	for i := range payload {
		payload[i] ^= mask[i%4]
	}
	return head[0] & 0x0f, payload, err
}

// testWebsockets upgrades connections: what comes behind stays spliced, both ways, also where a server is asked to close.
func (p *product) testWebsockets(t *testing.T) {
	frames := 200
	for _, port := range []string{"80", "81", "82", "83"} {
		t.Run("port "+port, func(t *testing.T) {
			c, err := p.client.Dial(context.Background(), "tcp", "198.18.0.80:"+port)
			must(t, err)
			defer c.Close()
			must(t, c.SetDeadline(time.Now().Add(patience)))
			const key = "dGhlIHNhbXBsZSBub25jZQ=="
			_, err = io.WriteString(c, "GET /ws HTTP/1.1\r\nHost: www.example\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: "+key+"\r\n\r\n")
			must(t, err)
			r := bufio.NewReader(c)
			a, err := http.ReadResponse(r, nil)
			must(t, err)
			if a.StatusCode != http.StatusSwitchingProtocols || a.Header.Get("Sec-WebSocket-Accept") != websocketKey(key) {
				t.Fatalf("the answer is %s %v", a.Status, a.Header)
			}
			sent := make(chan error, 1)
			go func() {
				var err error
				for i := range frames {
					_, e := c.Write(wsFrame(2, message(i), true))
					err = errors.Join(err, e)
				}
				_, e := c.Write(wsFrame(8, []byte{3, 232}, true))
				sent <- errors.Join(err, e)
			}()
			for i := range frames {
				op, got, err := readFrame(r)
				if err != nil || op != 2 || string(got) != string(message(i)) {
					t.Fatalf("frame %d: op %d, %d bytes, %v", i, op, len(got), err)
				}
			}
			if op, _, err := readFrame(r); err != nil || op != 8 {
				t.Errorf("the last frame: op %d, %v", op, err)
			}
			must(t, <-sent)
			if n, err := io.Copy(io.Discard, r); n != 0 || err != nil {
				t.Errorf("%d bytes behind the close, then %v", n, err)
			}
		})
	}
}

// message is the payload of a frame.
func message(i int) []byte {
	b := make([]byte, 1+i*37%4000)
	for k := range b {
		b[k] = byte(i + k)
	}
	return b
}

// testBanner has servers speak first, at services that know it and at one that finds it out.
func (p *product) testBanner(t *testing.T) {
	for _, tt := range []struct{ name, port, who string }{
		{"protocol: tcp", "25", "nobody"}, {"behind a PROXY header", "26", "the client"}, {"fallback", "27", "nobody"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := p.client.Dial(context.Background(), "tcp", "198.18.0.80:"+tt.port)
			must(t, err)
			defer c.Close()
			must(t, c.SetDeadline(time.Now().Add(patience)))
			r := bufio.NewReader(c)
			if got, err := r.ReadString('\n'); err != nil || got != banner {
				t.Fatalf("the banner is %q, %v", got, err)
			}
			_, err = io.WriteString(c, "QUIT\r\n")
			must(t, err)
			must(t, c.(*net.TCPConn).CloseWrite())
			who := tt.who
			if who == "the client" {
				who = c.LocalAddr().String()
			}
			if got, err := io.ReadAll(r); err != nil || string(got) != who+" said \"QUIT\\r\\n\"\n" {
				t.Errorf("then %q, %v, want %s to have said QUIT", got, err, who)
			}
		})
	}
	t.Run("fallback, and a client that speaks", func(t *testing.T) {
		if got := p.in(p.client, t, "curl", "-sS", "--max-time", "20", vipHost+":27/api/x"); !strings.HasPrefix(got, "app 198.18.0.10 ") {
			t.Errorf("got %q", got)
		}
	})
}

// testH2C speaks HTTP/2 without TLS.
func (p *product) testH2C(t *testing.T) {
	const known = "--http2-prior-knowledge"
	got := p.in(p.client, t, "curl", "-sS", "--max-time", "20", known, "-w", "%{http_version}\n", vipHost+":84/x")
	if want := "h2 198.18.0.10 xff=[] forwarded=[] connection=[] GET /x\n2\n"; got != want {
		t.Errorf("routed: got %q, want %q", got, want)
	}
	if got := p.in(p.client, t, "curl", "-sS", "--max-time", "20", "--http1.1", vipHost+":84/x"); !strings.HasPrefix(got, "app 198.18.0.10 ") {
		t.Errorf("HTTP/1.1 where h2c is routed: got %q", got)
	}
	before := p.number("runtime.actions.refused_h2c")
	if out, err := p.try(p.client, "curl", "-sS", "--max-time", "20", known, vipHost+"/x"); err == nil {
		t.Errorf("not routed: curl got %q", out)
	}
	if got := p.number("runtime.actions.refused_h2c") - before; got != 1 {
		t.Errorf("refused_h2c rose by %v, want 1", got)
	}
	// An upgrade to h2c is the server's to take or leave; nginx leaves it.
	if got := p.in(p.client, t, "curl", "-sS", "--max-time", "20", "--http2", "-w", "%{http_version}\n", vipHost+"/x"); !strings.HasPrefix(got, "app ") || !strings.HasSuffix(got, "\n1.1\n") {
		t.Errorf("upgrade: got %q", got)
	}
}

// testLog reads the log of connections.
func (p *product) testLog(t *testing.T, file string) {
	type line struct {
		Client, VIP, Service, Match, Server, End string
		Rule                                     *int
		Head                                     *struct{ Method, Host, Path, SNI string }
		PacketsClient                            int  `json:"packets_client"`
		BytesServer                              int  `json:"bytes_server"`
		Handshake                                *int `json:"handshake_ms"`
		Splice                                   *int `json:"splice_ms"`
		FirstByte                                *int `json:"first_byte_ms"`
		Duration                                 *int `json:"duration_ms"`
		Partial                                  bool
	}
	opened := int(p.number("connections.opened"))
	var lines []line
	p.await("the log has a line for each connection", 10*time.Second, func() bool {
		b, err := os.ReadFile(file)
		must(t, err)
		if strings.Count(string(b), "\n") < opened {
			return false
		}
		lines = nil
		for d := json.NewDecoder(strings.NewReader(string(b))); d.More(); {
			var l line
			must(t, d.Decode(&l))
			lines = append(lines, l)
		}
		return true
	})
	if len(lines) != opened {
		t.Errorf("%d lines for %d connections", len(lines), opened)
	}
	// One line that has to be there for each.
	wanted := map[string]func(*line) bool{
		"a rule": func(l *line) bool {
			return l.Service == "first" && l.Server == "198.18.1.12:80" && l.Rule != nil && strings.Contains(l.Match, "img.example") && l.Head != nil &&
				l.Head.Method == "GET" && strings.EqualFold(l.Head.Host, "img.example") && l.Head.Path == "/%70hotos/./7"
		},
		"the default": func(l *line) bool {
			return l.Service == "first" && l.Server == "198.18.1.11:80" && l.Rule == nil && l.Head != nil && l.Head.Path == "/x"
		},
		"altered":   func(l *line) bool { return l.Service == "all" && l.Server == "198.18.1.11:8080" && l.Head != nil },
		"TLS":       func(l *line) bool { return l.Service == "tls" && l.Head != nil && l.Head.SNI == "www.b.example" },
		"a banner":  func(l *line) bool { return l.Service == "banner" && l.Server == "198.18.1.11:25" && l.Head == nil },
		"h2c":       func(l *line) bool { return l.Service == "h2c" && l.Server == "198.18.1.11:8084" },
		"an answer": func(l *line) bool { return l.Service == "first" && l.Server == "" },
		"a websocket": func(l *line) bool {
			return l.Service == "close" && l.Head != nil && l.Head.Path == "/ws" && l.BytesServer > 100_000
		},
	}
	for what, is := range wanted {
		found := false
		for i := range lines {
			found = found || is(&lines[i])
		}
		if !found {
			t.Errorf("no line tells of %s", what)
		}
	}
	ends := map[string]int{}
	for i := range lines {
		l := &lines[i]
		ends[l.End]++
		if l.Partial || l.Service == "" || !strings.Contains(l.Client, "10") || l.VIP == "" || l.Handshake == nil || l.Duration == nil || l.PacketsClient == 0 {
			t.Errorf("line %d lacks something: %+v", i, *l)
		}
		if l.Server != "" && (l.Splice == nil || l.FirstByte == nil || *l.Handshake > *l.Splice || *l.Splice > *l.FirstByte || *l.FirstByte > *l.Duration) {
			t.Errorf("line %d: times are missing or not in order: %+v", i, *l)
		}
		if t.Failed() && i > 50 {
			break
		}
	}
	t.Logf("%d lines, ends: %v", len(lines), ends)
}
