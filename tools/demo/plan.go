package demo

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// configuration is what the demo's card runs with. %s is each port's wire.
const configuration = `card: emu
emu: {client: %s, server: %s}
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
      - {host: shop.example, path: /logo.png, to: static}
      - {path: /api/*, to: app}
    default: app
  - name: web6
    listen: ["[2001:db8::80]:80"]
    mode: splice
    protocol: http
    routes:
      - {host: img.example, path: /photos/*, to: static6}
    default: app6
groups:
  - name: app
    scheduler: wrr
    servers:
      - {address: 198.18.1.11:80, weight: 2}
      - {address: 198.18.1.12:80, weight: 1}
  - {name: static, servers: [{address: 198.18.1.13:80}]}
  - name: app6
    scheduler: rr
    servers:
      - {address: "[2001:db8:1::11]:80"}
      - {address: "[2001:db8:1::12]:80"}
  - {name: static6, servers: [{address: "[2001:db8:1::13]:80"}]}
`

// The ends of the network. Everything else is in configuration.
var (
	clientPrefixes = []netip.Prefix{netip.MustParsePrefix("198.18.0.10/24"), netip.MustParsePrefix("2001:db8::10/64")}
	serverGateways = []netip.Addr{netip.MustParseAddr("198.18.1.1"), netip.MustParseAddr("2001:db8:1::1")}
	servers        = []server{
		{"alpha", []netip.Prefix{netip.MustParsePrefix("198.18.1.11/24"), netip.MustParsePrefix("2001:db8:1::11/64")}},
		{"beta", []netip.Prefix{netip.MustParsePrefix("198.18.1.12/24"), netip.MustParsePrefix("2001:db8:1::12/64")}},
		{"gamma", []netip.Prefix{netip.MustParsePrefix("198.18.1.13/24"), netip.MustParsePrefix("2001:db8:1::13/64")}},
	}
	vips = []netip.AddrPort{netip.MustParseAddrPort("198.18.0.80:80"), netip.MustParseAddrPort("[2001:db8::80]:80")}
)

type server struct {
	name     string
	prefixes []netip.Prefix
}

// serverNamed returns the name of the server with an address, empty where there is none.
func serverNamed(a netip.Addr) string {
	for _, s := range servers {
		for _, p := range s.prefixes {
			if p.Addr() == a {
				return s.name
			}
		}
	}
	return ""
}

// A request is one line of the plan.
type request struct {
	vip        netip.AddrPort
	host, path string
	may        []string // the servers it may go to
}

// head is the request as it is sent.
func (r *request) head() string {
	return fmt.Sprintf("GET %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: splicectl-demo\r\nAccept: */*\r\nConnection: close\r\n\r\n", r.path, r.host)
}

// MaxRequests is how many requests a demo may have.
const MaxRequests = 1_000_000

// ErrRequests refuses a demo of any other number.
var ErrRequests = fmt.Errorf("a demo has 1 to %d requests", MaxRequests)

func checkRequests(n int) error {
	if n < 1 || n > MaxRequests {
		return ErrRequests
	}
	return nil
}

// plan is the first n requests: the kinds below in turn.
func plan(n int) []request {
	app, static := []string{"alpha", "beta"}, []string{"gamma"}
	kinds := []request{
		{vips[0], "www.example", "/", app},
		{vips[0], "img.example", "/photos/#.jpg", static},
		{vips[0], "img.example", "/index.html", app},
		{vips[0], "shop.example", "/logo.png", static},
		{vips[0], "shop.example", "/cart?item=#", app},
		{vips[0], "www.example", "/api/v1/items/#", app},
		{vips[1], "www.example", "/v6/#", app},
		{vips[1], "img.example", "/photos/#.png", static},
	}
	rs := make([]request, n)
	for i := range rs {
		rs[i] = kinds[i%len(kinds)]
		rs[i].path = strings.ReplaceAll(rs[i].path, "#", strconv.Itoa(i))
	}
	return rs
}
