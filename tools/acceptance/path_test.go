package acceptance

import (
	"bufio"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"splicenic/tools/netlab"
)

const routed = `card: emu
emu: {client: eth1, server: eth2}
ports:
  client: {addresses: [198.18.0.1/24, "2001:db8::1/64"], gateway: [198.18.0.254, "2001:db8::fe"]}
  server: {addresses: [198.18.1.1/24, "2001:db8:1::1/64"], gateway: [198.18.1.254, "2001:db8:1::fe"]}
services:
  - {name: web, listen: [198.18.0.80:80], default: app}
  - {name: web6, listen: ["[2001:db8::80]:80"], default: app6}
groups:
  - {name: app, servers: [{address: 198.18.3.11:80}], profile: {mss: 1460, wscale: 7, sack: true, timestamps: true}}
  - {name: app6, servers: [{address: "[2001:db8:3::11]:80"}], profile: {mss: 1440, wscale: 7, sack: true, timestamps: true}}
`

// behindRouters puts a router between each side and the card. Each says that the way on takes less than its links do: it
// tells senders of larger packets, as a router does before a narrow link.
func behindRouters(t *testing.T) *product {
	t.Helper()
	need(t, "ip", "iproute2")
	p := setUp(t)
	for _, side := range []struct {
		name       string
		host       *netlab.Namespace
		card       string // the card's port
		net        int    // of the host; the router has its last address
		cardNet    int
		host4      string
		host6      string
		mtu4, mtu6 int
	}{
		{"client's router", p.client, "eth1", 2, 0, "198.18.2.10", "2001:db8:2::10", 1200, 1300},
		{"servers' router", p.servers, "eth2", 3, 1, "198.18.3.11", "2001:db8:3::11", 1100, 1290},
	} {
		r, err := p.lab.Namespace(side.name)
		must(t, err)
		must(t, p.lab.Link(side.host, "eth0", r, "far"))
		must(t, p.lab.Link(r, "near", p.card, side.card))
		net4, net6 := fmt.Sprintf("198.18.%d.", side.net), fmt.Sprintf("2001:db8:%d::", side.net)
		card4, card6 := fmt.Sprintf("198.18.%d.", side.cardNet), fmt.Sprintf("2001:db8:%d::", side.cardNet)
		if side.cardNet == 0 {
			card6 = "2001:db8::"
		}
		must(t, side.host.Addr("eth0", side.host4+"/24"))
		must(t, side.host.Addr("eth0", side.host6+"/64"))
		must(t, r.Addr("far", net4+"254/24"))
		must(t, r.Addr("far", net6+"fe/64"))
		must(t, r.Addr("near", card4+"254/24"))
		must(t, r.Addr("near", card6+"fe/64"))
		must(t, r.Sysctl("net.ipv4.ip_forward", "1"))
		must(t, r.Sysctl("net.ipv6.conf.all.forwarding", "1"))
		must(t, side.host.Route("default", net4+"254"))
		must(t, side.host.Route("default", net6+"fe"))
		if side.host == p.servers { // clients are beyond the card
			must(t, r.Route("default", card4+"1"))
			must(t, r.Route("default", card6+"1"))
		}
		for _, route := range [][]string{{"-4", side.host4 + "/32", fmt.Sprint(side.mtu4)}, {"-6", side.host6 + "/128", fmt.Sprint(side.mtu6)}} {
			if out, err := r.Command(context.Background(), "ip", route[0], "route", "add", route[1], "dev", "far", "mtu", "lock", route[2]).CombinedOutput(); err != nil {
				t.Fatalf("narrow %s: %v\n%s", side.name, err, out)
			}
		}
	}
	p.begin(routed)
	return p
}

// TestPathMTUDiscovery: behind routers whose ways on take less than the card's links, both ends of a splice find out what
// passes, by the routers' errors that the card hands through: what goes down and up arrives whole, and soon.
func TestPathMTUDiscovery(t *testing.T) {
	const bytes = 2 << 20
	down, up := streamSum(t, 1, bytes), streamSum(t, 2, bytes)
	for _, tt := range []struct {
		name    string
		offload netlab.Offload
	}{
		{"wire segments", netlab.Offload{}},
		{"coalesced", netlab.Offload{Segmentation: true, Receive: true, Checksum: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := behindRouters(t)
			must(t, p.client.Offload("eth0", tt.offload))
			must(t, p.servers.Offload("eth0", tt.offload))
			server := &http.Server{Handler: &fileServer{bytes}, ReadHeaderTimeout: time.Minute}
			defer server.Close()
			for _, a := range []string{"198.18.3.11:80", "[2001:db8:3::11]:80"} {
				ln, err := p.servers.Listen("tcp", a)
				must(t, err)
				go func() { _ = server.Serve(ln) }()
			}
			action := func(name string) float64 { return p.number("runtime.actions." + name) }
			for _, vip := range []string{"198.18.0.80:80", "[2001:db8::80]:80"} {
				toServer, toClient, learned := action("icmp_to_server"), action("icmp_to_client"), action("path_mtu")
				begin := time.Now()
				if got := p.get(vip); got != down {
					t.Errorf("%s: the client got sha256 %s, want %s", vip, got, down)
				}
				downTime := time.Since(begin)
				// A kernel that knows a narrow path to the client announces a smaller MSS than its profile says.
				p.forgetPaths()
				begin = time.Now()
				if got := p.put(vip, bytes); got != up {
					t.Errorf("%s: the server got sha256 %s, want %s", vip, got, up)
				}
				toServer, toClient, learned = action("icmp_to_server")-toServer, action("icmp_to_client")-toClient, action("path_mtu")-learned
				t.Logf("%s: %d MiB down in %v, up in %v; icmp_to_server %v, icmp_to_client %v", vip, bytes>>20, downTime.Round(time.Millisecond), time.Since(begin).Round(time.Millisecond), toServer, toClient)
				if toServer == 0 || toClient == 0 || learned == 0 {
					t.Errorf("%s: icmp_to_server %v, icmp_to_client %v, path_mtu %v: nobody was told", vip, toServer, toClient, learned)
				}
			}
			p.atRest()
		})
	}
}

// get fetches the file and returns its hash.
func (p *product) get(vip string) string {
	p.t.Helper()
	c := &http.Client{Transport: &http.Transport{DialContext: p.client.Dial, DisableKeepAlives: true}, Timeout: 30 * time.Second}
	r, err := c.Get("http://" + vip + "/file")
	must(p.t, err)
	defer r.Body.Close()
	h := sha256.New()
	_, err = io.Copy(h, r.Body)
	must(p.t, err)
	return sum(h)
}

// put sends the request, waits until the server has all of it, then sends the body, all of which the client itself has to
// send again where it is lost. It returns the hash of what the server got.
func (p *product) put(vip string, bytes int64) string {
	p.t.Helper()
	spliced := p.number("connections.spliced")
	c, err := p.client.Dial(context.Background(), "tcp", vip)
	must(p.t, err)
	defer c.Close()
	must(p.t, c.SetDeadline(time.Now().Add(30*time.Second)))
	_, err = fmt.Fprintf(c, "PUT /file HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n", bytes)
	must(p.t, err)
	p.await("the server has the request", 10*time.Second, func() bool {
		return p.number("connections.spliced") > spliced && p.number("heads.free") == p.number("heads.total")
	})
	_, err = io.Copy(c, stream(2, bytes))
	must(p.t, err)
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	must(p.t, err)
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	must(p.t, err)
	return string(body)
}

// forgetPaths has both ends' kernels forget the MTUs that they have found out.
func (p *product) forgetPaths() {
	p.t.Helper()
	for _, n := range []*netlab.Namespace{p.client, p.servers} {
		for _, family := range []string{"-4", "-6"} {
			must(p.t, n.Command(context.Background(), "ip", family, "route", "flush", "cache").Run())
		}
	}
}
