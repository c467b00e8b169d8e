package vm

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"splicenic/tools/netlab"
	"splicenic/tools/netlab/httpserver"
)

// A network is a client and servers in namespaces of this machine, with a card between them.
type network struct {
	t                     *testing.T
	client, card, servers *netlab.Namespace
}

const (
	vip  = "198.18.0.80:80"
	vip6 = "[2001:db8::80]:80"
)

// servers by name; each listens on both addresses.
var servers = []struct{ name, v4, v6 string }{
	{"alpha", "198.18.1.11", "2001:db8:1::11"}, {"beta", "198.18.1.12", "2001:db8:1::12"}, {"gamma", "198.18.1.13", "2001:db8:1::13"},
}

// configuration is what the runtime in the guest runs with: its card, and the group that the photos go to.
const configuration = `card: %s
ports:
  client: {addresses: [198.18.0.1/24, "2001:db8::1/64"]}
  server: {addresses: [198.18.1.1/24, "2001:db8:1::1/64"]}
services:
  - name: web
    listen: [198.18.0.80:80]
    mode: splice
    protocol: http
    routes:
      - {host: img.example, path: /photos/*, to: %s}
      - {host: img.example, path: /other/*, to: other}
      - {host: img.example, path: /static/*, to: static}
    default: app
  - name: web6
    listen: ["[2001:db8::80]:80"]
    mode: splice
    protocol: http
    default: app6
groups:
  - name: app
    scheduler: wrr
    servers:
      - {address: 198.18.1.11:80, weight: 2}
      - {address: 198.18.1.12:80}
  - {name: static, servers: [{address: 198.18.1.13:80}]}
  - {name: other, servers: [{address: 198.18.1.12:80}]}
  - name: app6
    scheduler: rr
    servers: [{address: "[2001:db8:1::11]:80"}, {address: "[2001:db8:1::12]:80"}]
`

func newNetwork(t *testing.T) *network {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: network namespaces")
	}
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("needs package curl: it is the client")
	}
	lab, err := netlab.New()
	must(t, err)
	t.Cleanup(func() {
		if err := lab.Close(); err != nil {
			t.Error(err)
		}
	})
	n := &network{t: t}
	for _, ns := range []struct {
		to   **netlab.Namespace
		name string
	}{{&n.client, "client"}, {&n.card, "card"}, {&n.servers, "servers"}} {
		*ns.to, err = lab.Namespace(ns.name)
		must(t, err)
	}
	must(t, lab.Link(n.client, "eth0", n.card, "eth1"))
	must(t, lab.Link(n.card, "eth2", n.servers, "eth0"))
	must(t, n.client.Addr("eth0", "198.18.0.10/24"))
	must(t, n.client.Addr("eth0", "2001:db8::10/64"))
	must(t, n.client.Sysctl("net.ipv4.ip_local_port_range", "1024 65000"))
	ctx, stop := context.WithCancel(context.Background())
	var group sync.WaitGroup
	t.Cleanup(func() {
		stop()
		group.Wait()
	})
	for _, s := range servers {
		for _, a := range []string{s.v4 + "/24", s.v6 + "/64"} {
			must(t, n.servers.Addr("eth0", a))
		}
		for _, a := range []string{s.v4, s.v6} {
			ln, err := n.servers.Listen("tcp", net.JoinHostPort(a, "80"))
			must(t, err)
			group.Go(func() {
				if err := httpserver.Serve(ctx, ln, s.name); err != nil {
					t.Error(err)
				}
			})
		}
	}
	must(t, n.servers.Route("default", "198.18.1.1"))
	must(t, n.servers.Route("default", "2001:db8:1::1"))
	return n
}

// curl fetches count URLs one after the other, each on a connection of its own, and returns how often each server answered.
// url has the number of the request for a #.
func (n *network) curl(ctx context.Context, host, url string, count int) (map[string]int, error) {
	c := n.client.Command(ctx, "curl", "--silent", "--show-error", "--globoff", "--http1.1", "--no-keepalive", "--max-time", "20",
		"--header", "Connection: close", "--header", "Host: "+host, "--write-out", "%{http_code}\n", "--config", "-")
	var in, out, errs bytes.Buffer
	for i := range count {
		fmt.Fprintf(&in, "url = %q\n", strings.ReplaceAll(url, "#", fmt.Sprint(i)))
	}
	c.Stdin, c.Stdout, c.Stderr = &in, &out, &errs
	err := c.Run()
	got := map[string]int{}
	// Each answer is a line with the server's name and one with the status.
	lines := strings.Fields(out.String())
	for i := 0; i+1 < len(lines); i += 2 {
		if lines[i+1] != "200" {
			return got, fmt.Errorf("curl %s: status %s", url, lines[i+1])
		}
		got[lines[i]]++
	}
	if err != nil || len(lines) != 2*count {
		return got, fmt.Errorf("curl %s: %d of %d answers, %w: %s", url, len(lines)/2, count, err, tail(errs.Bytes(), 500))
	}
	return got, nil
}

// A session is one connection of a client that is kept open.
type session struct {
	conn net.Conn
	in   *bufio.Reader
}

func (n *network) dial(ctx context.Context, address string) (*session, error) {
	conn, err := n.client.Dial(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return &session{conn, bufio.NewReader(conn)}, nil
}

// get makes one request, which has to be answered in time.
func (s *session) get(path string) error {
	if err := s.conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(s.conn, "GET %s HTTP/1.1\r\nHost: www.example\r\n\r\n", path); err != nil {
		return err
	}
	res, err := http.ReadResponse(s.in, nil)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d", res.StatusCode)
	}
	return err
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
