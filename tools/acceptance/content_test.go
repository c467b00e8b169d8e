package acceptance

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"splicenic/emu/port"
	"splicenic/tools/netlab"
)

// vips are the addresses of the services of a content, by family.
var vips = map[int]string{4: "198.18.0.80", 6: "2001:db8::80"}

// Ports of a content's services.
const (
	webPort     = 80  // host rules
	tlsPort     = 443 // the same rules for server names
	limitedPort = 81  // heads of 4,000 bytes at most
	h2cPort     = 82  // HTTP/2 without TLS goes to D
	closePort   = 83  // requests: close
	addressPort = 84  // PROXY v2 and X-Forwarded-For
)

// contentGroups are the groups of a content, each of one server: for HTTP, for everything else, and for what comes behind
// a PROXY header.
var contentGroups = []struct {
	prefix string
	port   int
}{{"", 80}, {"t", 443}, {"p", 84}}

// contentHosts are the backends' addresses.
var contentHosts = []struct{ name, v4, v6 string }{
	{"B1", "198.18.1.11", "2001:db8:1::11"},
	{"B2", "198.18.1.12", "2001:db8:1::12"},
	{"D", "198.18.1.13", "2001:db8:1::13"},
}

// contentConfig is a configuration with the host rule of all cases: a.example to B1, b.example to B2, all else to D.
func contentConfig(logFile string) string {
	var services, groups strings.Builder
	for _, f := range []int{4, 6} {
		to := func(prefix, backend string) string {
			return fmt.Sprintf("%s%s-%d", prefix, strings.ToLower(backend), f)
		}
		service := func(name string, port int, prefix, host, more string) {
			fmt.Fprintf(&services, "  - name: %s%d\n    listen: [\"%s\"]\n%s", name, f, net.JoinHostPort(vips[f], fmt.Sprint(port)), more)
			fmt.Fprintf(&services, "    default: %s\n", to(prefix, "D"))
			fmt.Fprintf(&services, "    routes:\n      - {%s: a.example, to: %s}\n      - {%s: B.Example, to: %s}\n", host, to(prefix, "B1"), host, to(prefix, "B2"))
			if host == "host" {
				fmt.Fprintf(&services, "      - {host: \"[2001:db8::a]\", to: %s}\n", to(prefix, "B2"))
			}
			if name == "h2c" {
				fmt.Fprintf(&services, "      - {protocol: h2c, to: %s}\n", to(prefix, "D"))
			}
		}
		service("web", webPort, "", "host", "")
		service("tls", tlsPort, "t", "sni", "    protocol: tls\n")
		service("limited", limitedPort, "", "host", "    limits: {target: 2000, head: 4000}\n")
		service("h2c", h2cPort, "", "host", "")
		service("close", closePort, "", "host", "    requests: close\n")
		service("address", addressPort, "p", "host", "    proxy: v2\n    forwarded: x-forwarded-for\n")
		for _, g := range contentGroups {
			for _, h := range contentHosts {
				address := map[int]string{4: h.v4, 6: h.v6}[f]
				fmt.Fprintf(&groups, "  - {name: %s, servers: [{address: \"%s\"}], profile: {mss: 1400, wscale: 7, sack: true, timestamps: true}}\n",
					to(g.prefix, h.name), net.JoinHostPort(address, fmt.Sprint(g.port)))
			}
		}
	}
	return fmt.Sprintf(`card: emu
emu: {client: eth1, server: eth2}
log: {file: %s}
ports:
  client: {addresses: [198.18.0.1/24, "2001:db8::1/64"]}
  server: {addresses: [198.18.1.1/24, "2001:db8:1::1/64"]}
services:
%sgroups:
%s`, logFile, services.String(), groups.String())
}

// A content is the product between a client and backends that say who answers and keep what they got.
type content struct {
	*product
	link      *port.Link // between the client and the card
	lose      atomic.Pointer[func(frame []byte) bool]
	listeners []net.Listener
	serving   sync.WaitGroup
	ports     atomic.Int32 // of the client, each used once

	mu     sync.Mutex
	visits map[string]*visit // by the client's address
}

// A visit is a connection that a backend has.
type visit struct {
	backend string
	got     bytes.Buffer
	err     error
}

func newContent(t *testing.T) *content {
	t.Helper()
	c := newContentNet(t)
	c.listen()
	c.begin(contentConfig(c.dir + "/connections.log"))
	return c
}

// newContentNet is a content whose product does not run yet, without backends.
func newContentNet(t *testing.T) *content {
	t.Helper()
	c := &content{product: setUp(t), visits: map[string]*visit{}}
	c.ports.Store(20000)
	lines, err := c.lab.Namespace("lines")
	must(t, err)
	must(t, c.lab.Link(c.client, "eth0", lines, "l0"))
	must(t, c.lab.Link(lines, "l1", c.card, "eth1"))
	must(t, c.lab.Link(c.card, "eth2", c.servers, "eth0"))
	must(t, c.client.Addr("eth0", "198.18.0.10/24"))
	must(t, c.client.Addr("eth0", "2001:db8::10/64"))
	for _, h := range contentHosts {
		must(t, c.servers.Addr("eth0", h.v4+"/24"))
		must(t, c.servers.Addr("eth0", h.v6+"/64"))
	}
	must(t, c.servers.Route("default", "198.18.1.1"))
	must(t, c.servers.Route("default", "2001:db8:1::1"))
	c.wire(lines)
	return c
}

// wire joins the client with the card by a link that can lose frames of the client.
func (c *content) wire(lines *netlab.Namespace) {
	c.t.Helper()
	var ends [2]port.Port
	for i, name := range []string{"l0", "l1"} {
		must(c.t, lines.Do(func() (err error) { ends[i], err = port.Open(name); return err }))
	}
	drop := func(_ uint64, frame []byte) bool {
		f := c.lose.Load()
		return f != nil && (*f)(frame)
	}
	c.link = port.NewLink(port.LinkConfig{A: ends[0], B: ends[1], AB: port.Impairment{Drop: drop}})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.link.Run(ctx) }()
	c.t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-done, ends[0].Close(), ends[1].Close()); err != nil {
			c.t.Error(err)
		}
	})
}

// listen starts the backends.
func (c *content) listen() {
	c.t.Helper()
	for _, h := range contentHosts {
		for _, g := range contentGroups {
			for _, address := range []string{h.v4, h.v6} {
				ln, err := c.servers.Listen("tcp", net.JoinHostPort(address, fmt.Sprint(g.port)))
				must(c.t, err)
				c.listeners = append(c.listeners, ln)
				serve := httpBackend
				if g.prefix == "t" {
					serve = rawBackend
				}
				c.serving.Go(func() { c.accept(ln, h.name, serve) })
			}
		}
	}
	c.t.Cleanup(c.closeBackends)
}

func (c *content) closeBackends() {
	for _, ln := range c.listeners {
		ln.Close()
	}
	c.serving.Wait()
}

// A backend's way with a connection. All that it reads is kept.
type backendFunc func(conn *net.TCPConn, r *bufio.Reader, name string) error

func (c *content) accept(ln net.Listener, name string, serve backendFunc) {
	for {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		v := &visit{backend: name}
		c.mu.Lock()
		if c.visits[conn.RemoteAddr().String()] != nil {
			v.err = errors.New("a second connection of the same client")
		}
		c.visits[conn.RemoteAddr().String()] = v
		c.mu.Unlock()
		c.serving.Go(func() {
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(patience))
			err := serve(conn.(*net.TCPConn), bufio.NewReader(io.TeeReader(conn, &v.got)), name)
			v.err = errors.Join(v.err, err)
		})
	}
}

// rawBackend says its name when the first byte has come, and ends when the client does. It is the same server for a
// ClientHello, and one that speaks first for a client that only listens.
func rawBackend(conn *net.TCPConn, r *bufio.Reader, name string) error {
	if _, err := r.Peek(1); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, name+"\n"); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, r)
	return err
}

// httpBackend answers requests with its name, their first line and how many bytes of body they had.
func httpBackend(conn *net.TCPConn, r *bufio.Reader, name string) error {
	if b, _ := r.Peek(12); bytes.Equal(b, []byte("\r\n\r\n\x00\r\nQUIT\n")) { // a PROXY header
		b, err := r.Peek(16)
		if err != nil {
			return err
		}
		if _, err := r.Discard(16 + int(b[14])<<8 + int(b[15])); err != nil {
			return err
		}
	}
	for {
		b, err := r.Peek(3)
		for err == nil && string(b[:2]) == "\r\n" {
			_, _ = r.Discard(2)
			b, err = r.Peek(3)
		}
		switch {
		case err == io.EOF && len(bytes.Trim(b, "\r\n")) == 0:
			return nil
		case err != nil:
			return err
		case string(b) == "PRI":
			return rawBackend(conn, r, name)
		}
		q, err := http.ReadRequest(r)
		if err != nil {
			return errors.Join(err, rawBackend(conn, r, name))
		}
		if q.Header.Get("Expect") != "" {
			if q.URL.Path == "/refuse" {
				_, err := io.WriteString(conn, "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
				return errors.Join(err, conn.CloseWrite(), rest(r))
			}
			if _, err := io.WriteString(conn, "HTTP/1.1 100 Continue\r\n\r\n"); err != nil {
				return err
			}
		}
		n, err := io.Copy(io.Discard, q.Body)
		if err != nil {
			return err
		}
		body := fmt.Sprintf("%s %s %.40s %d\n", name, q.Method, q.RequestURI, n)
		length := fmt.Sprintf("Content-Length: %d\r\n", len(body))
		if !q.ProtoAtLeast(1, 1) {
			length = "" // until close
		}
		if _, err := fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\n%s\r\n%s", length, body); err != nil {
			return err
		}
		if q.Close {
			return errors.Join(conn.CloseWrite(), rest(r))
		}
	}
}

// rest reads what is left.
func rest(r io.Reader) error {
	_, err := io.Copy(io.Discard, r)
	return err
}

// A talk is what a client says on a connection, and what has to come of it.
type talk struct {
	name    string
	port    int
	pieces  []string // each in a segment of its own, acknowledged before the next one is sent
	backend string   // "": none
	answers []string // in turn: how one of HTTP begins, or its body without the end of its line; a line; an alert
	end     bool     // whoever answers also ends the connection
	reset   bool     // the backend, which has closed, may be told that nobody reads any more
	stream  string   // what the backend gets; "": what the client sends
	burst   bool     // pieces do not wait for an acknowledgement
	waits   string   // the card's state of the connection before the last piece
}

// one is a talk of one piece.
func one(name string, port int, in, backend string, answers ...string) talk {
	return talk{name: name, port: port, pieces: []string{in}, backend: backend, answers: answers}
}

// bytewise is a stream in segments of one byte.
func bytewise(s string) []string { return strings.Split(s, "") }

// refusal is a talk that no backend hears of.
func refusal(name string, port int, in, answer string) talk {
	return talk{name: name, port: port, pieces: []string{in}, answers: []string{answer}, end: true}
}

// run holds all talks at once, over both families, and checks what came of them.
func (c *content) run(talks []talk) {
	c.t.Helper()
	type result struct {
		talk
		family int
		client string
		err    error
	}
	var results []*result
	var running sync.WaitGroup
	room := make(chan struct{}, 100)
	for _, tk := range talks {
		for _, f := range slices.Sorted(maps.Keys(vips)) {
			r := &result{talk: tk, family: f}
			results = append(results, r)
			room <- struct{}{}
			running.Go(func() {
				defer func() { <-room }()
				r.client, r.err = c.hold(&r.talk, f)
			})
		}
	}
	running.Wait()
	c.atRest()
	c.closeBackends()
	for _, r := range results {
		what := fmt.Sprintf("%s, IPv%d", r.name, r.family)
		if r.err != nil {
			c.t.Errorf("%s: %v", what, r.err)
		}
		v := c.visits[r.client]
		switch {
		case r.backend == "" && v == nil:
		case r.backend == "":
			c.t.Errorf("%s: %s got %.200q, want nobody to", what, v.backend, v.got.String())
		case v == nil:
			c.t.Errorf("%s: no backend had it, want %s", what, r.backend)
		default:
			want := r.stream
			if want == "" {
				want = strings.Join(r.pieces, "")
			}
			if r.reset && errors.Is(v.err, unix.ECONNRESET) {
				v.err = nil
			}
			if v.backend != r.backend || v.got.String() != want || v.err != nil {
				c.t.Errorf("%s: %s got %.300q (%v), want %s to get %.300q", what, v.backend, v.got.String(), v.err, r.backend, want)
			}
		}
	}
}

// hold holds one talk.
func (c *content) hold(tk *talk, family int) (client string, err error) {
	conn, err := c.connect(family, tk.port)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	client = conn.LocalAddr().String()
	sent := make(chan error, 1)
	go func() { sent <- c.send(tk, conn) }()
	var got bytes.Buffer
	r := bufio.NewReader(io.TeeReader(conn, &got))
	for i, want := range tk.answers {
		begin := got.Len() - r.Buffered()
		if err := readAnswer(r, want); err != nil {
			return client, fmt.Errorf("answer %d after %.200q: %w", i, got.String(), err)
		}
		answer := got.String()[begin : got.Len()-r.Buffered()]
		if _, body, _ := strings.Cut(answer, "\r\n\r\n"); !strings.HasPrefix(answer, want) && body != want+"\n" {
			return client, fmt.Errorf("answer %d is %.300q, want %q", i, answer, want)
		}
	}
	if tk.end {
		if n, err := io.Copy(io.Discard, r); err != nil || n != 0 {
			return client, fmt.Errorf("%d bytes behind the answer, then %v", n, err)
		}
		if tk.backend == "" {
			_ = conn.SetLinger(0) // what is still to be sent goes nowhere
		}
		return client, nil
	}
	if err := <-sent; err != nil {
		return client, err
	}
	if err := conn.CloseWrite(); err != nil {
		return client, err
	}
	if n, err := io.Copy(io.Discard, r); err != nil || n != 0 {
		return client, fmt.Errorf("%d bytes behind the last answer, then %v", n, err)
	}
	return client, nil
}

// readAnswer reads an answer of a kind: as many bytes where an alert is wanted, a line, or an answer of HTTP.
func readAnswer(r *bufio.Reader, want string) error {
	switch {
	case want[0] == alert(0)[0]:
		_, err := io.CopyN(io.Discard, r, int64(len(want)))
		return err
	case strings.HasSuffix(want, "\n"):
		_, err := r.ReadBytes('\n')
		return err
	}
	a, err := http.ReadResponse(r, nil)
	if err != nil {
		return err
	}
	return rest(a.Body)
}

// send sends the talk's pieces.
func (c *content) send(tk *talk, conn *net.TCPConn) error {
	for i, p := range tk.pieces {
		if i > 0 && !tk.burst {
			if err := acknowledged(conn); err != nil {
				return err
			}
		}
		if tk.waits != "" && i == len(tk.pieces)-1 {
			if got := c.state(conn.LocalAddr()); got != tk.waits {
				return fmt.Errorf("state %s before the last piece, want %s", got, tk.waits)
			}
		}
		if _, err := io.WriteString(conn, p); err != nil {
			return err
		}
	}
	return nil
}

// acknowledged waits until the other end has acknowledged all that was sent.
func acknowledged(conn *net.TCPConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); ; <-tick.C {
		n, inner := 0, error(nil)
		if err := raw.Control(func(fd uintptr) { n, inner = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) }); err != nil {
			return err
		}
		if inner != nil || n == 0 {
			return inner
		}
		if time.Now().After(end) {
			return fmt.Errorf("%d bytes are not acknowledged", n)
		}
	}
}

// connect connects from a port that no other connection of this test has.
func (c *content) connect(family, to int) (*net.TCPConn, error) {
	d := net.Dialer{Timeout: patience, LocalAddr: &net.TCPAddr{Port: int(c.ports.Add(1))}}
	d.SetMultipathTCP(false)
	var conn net.Conn
	err := c.client.Do(func() (err error) {
		conn, err = d.DialContext(context.Background(), "tcp", net.JoinHostPort(vips[family], fmt.Sprint(to)))
		return err
	})
	if err != nil {
		return nil, err
	}
	return conn.(*net.TCPConn), conn.SetDeadline(time.Now().Add(patience))
}

// state is what the card says of a client's connection.
func (c *content) state(client net.Addr) string {
	h := &http.Client{Transport: c.transport(), Timeout: 10 * time.Second}
	r, err := h.Get("http://splicenic/v1/connections")
	if err != nil {
		return err.Error()
	}
	defer r.Body.Close()
	var all []struct{ Client, State string }
	if err := json.NewDecoder(r.Body).Decode(&all); err != nil {
		return err.Error()
	}
	for _, x := range all {
		if x.Client == client.String() {
			return x.State
		}
	}
	return "none"
}

// counted checks that a counter of the statistics has grown to a value.
func (c *content) counted(name string, want float64) {
	c.t.Helper()
	if got := c.number(name); got != want {
		c.t.Errorf("%s = %v, want %v", name, got, want)
	}
}
