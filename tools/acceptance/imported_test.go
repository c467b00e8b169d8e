package acceptance

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"splicenic/runtime/view"
	"splicenic/tools/netlab/decap"
)

// importedPorts stands before what was imported: the network of TestImported.
const importedPorts = `card: emu
emu: {client: eth1, server: eth2}
ports:
  client: {addresses: [198.18.0.1/24, "2001:db8::1/64"]}
  server: {addresses: [198.18.1.1/24, 198.18.2.1/24, "2001:db8:1::1/64"]}
`

// TestImported runs what splicectl ipvs import makes of a table of ipvsadm and of a keepalived.conf, and asks every service
// for something with curl, by FTP too, or by datagrams. Servers of both sites live in one namespace, with the VIPs on lo: what they
// send from a VIP goes to the client past the card, what they send from their own addresses through it.
func TestImported(t *testing.T) {
	need(t, "curl", "curl")
	need(t, "ip", "iproute2")
	for _, tt := range []struct {
		name, file string
		options    []string
		servers    []string // last parts of the servers' addresses, by subnet
		vips       []string
		http       []string // asked by curl
		bare       []string // TCP services that say their address first
		udp        []string
		ftp        string                       // asked for a file
		ftpServers []string                     // which of them has it
		shares     map[string]map[string]uint64 // service, server: how many of the nine connections
	}{
		{"ipvsadm", "site.ipvsadm", []string{"--fwmark", "1=198.18.0.70:80,198.18.0.70:443,198.18.0.70:80/udp", "--fwmark", "2=[2001:db8::70]:0"},
			[]string{
				"198.18.1. 11 12 13 14 15 21 22 23 24 25 26 27 28 31 32 33 34 41 42 43 44 45 46 51 52 53 54 61 62 63 71 72",
				"198.18.2. 11 12 13 14 15", "2001:db8:1:: 11 12 13 14 15 16 41 42 43 51 52",
			},
			[]string{"198.18.0.80", "198.18.0.82", "198.18.0.83", "198.18.0.84", "198.18.0.70", "2001:db8::80", "2001:db8::83", "2001:db8::70"},
			[]string{
				"198.18.0.80:80", "198.18.0.80:443", "198.18.0.81:80", "198.18.0.81:443", "198.18.0.82:80", "198.18.0.82:8080",
				"198.18.0.84:80", "198.18.0.84:8080", "198.18.0.84:8081", "198.18.0.84:8082", "[2001:db8::80]:80", "[2001:db8::80]:443",
				"198.18.0.70:80", "198.18.0.70:443", "[2001:db8::70]:8080", "198.18.0.85:5060",
			},
			nil,
			[]string{"198.18.0.83:53", "198.18.0.83:123", "[2001:db8::83]:53", "198.18.0.70:80"},
			"198.18.0.86", []string{"198.18.1.71", "198.18.1.72"},
			map[string]map[string]uint64{"198.18.0.80:80": {"198.18.1.11:80": 4, "198.18.1.12:80": 3, "198.18.1.13:80": 2, "198.18.1.14:80": 0}},
		},
		{"keepalived", "site.conf", []string{"--fwmark", "7=198.18.0.71:80,198.18.0.71:443"},
			[]string{"198.18.1. 11 12 13 21 22 41 42 71 72 99", "198.18.2. 31 32 51", "2001:db8:1:: 11 12"},
			[]string{"198.18.0.81", "198.18.0.82", "198.18.0.83", "198.18.0.71", "198.18.0.84"},
			[]string{
				"198.18.0.80:80", "198.18.0.90:80", "198.18.0.91:80", "198.18.0.92:80", "198.18.0.93:80", "198.18.0.80:8080",
				"198.18.0.81:443", "[2001:db8::a0]:443", "[2001:db8::a3]:443", "198.18.0.71:80", "198.18.0.71:443",
			},
			[]string{"198.18.0.82:25"},
			[]string{"198.18.0.83:53", "198.18.0.84:514"},
			"", nil,
			map[string]map[string]uint64{},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var notes bytes.Buffer
			cmd := exec.Command(binary, append([]string{"ipvs", "import", "--partial", "../../runtime/ipvs/testdata/" + tt.file}, tt.options...)...)
			cmd.Stderr = &notes
			text, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v\n%s", err, notes.String())
			}
			p := between(t)
			p.behind(tt.servers, tt.vips)
			p.serveImported()
			p.begin(importedPorts + string(text))
			p.await("no group is without a server", 20*time.Second, func() bool { return p.number("runtime.health.down") == 0 })

			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			const each = 9
			for _, at := range tt.http {
				for i := range each {
					out, err := p.client.Command(ctx, "curl", "-gsS", "--max-time", "5", "http://"+at+"/healthz").CombinedOutput()
					if err != nil || len(out) != importedBytes {
						t.Errorf("request %d to %s: %v, %d bytes: %.100s", i, at, err, len(out), out)
						break
					}
				}
			}
			for _, at := range tt.bare {
				for i := range each {
					c, err := p.client.Dial(ctx, "tcp", at)
					if err != nil {
						t.Errorf("connection %d to %s: %v", i, at, err)
						break
					}
					must(t, c.SetDeadline(time.Now().Add(5*time.Second)))
					if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || !strings.HasPrefix(line, "220 ") {
						t.Errorf("connection %d to %s: %q, %v", i, at, line, err)
					}
					c.Close()
				}
			}
			for _, at := range tt.udp {
				for i := range each {
					if err := p.datagram(ctx, at, fmt.Sprintf("%s %d", at, i)); err != nil {
						t.Errorf("datagram %d to %s: %v", i, at, err)
						break
					}
				}
			}
			if tt.ftp != "" {
				t.Run("FTP", func(t *testing.T) { p.importedFTP(t, tt.ftp, tt.ftpServers) })
			}
			p.shares(tt.shares)
		})
	}
}

const importedBytes = 20_000

// behind gives the servers' namespace its addresses, VIPs and ways. The first word of a line is what addresses begin with.
func (p *product) behind(servers, vips []string) {
	p.t.Helper()
	t := p.t
	for _, line := range servers {
		subnet, last, _ := strings.Cut(line, " ")
		for _, n := range strings.Fields(last) {
			a, bits := subnet+n, "/24"
			if strings.Contains(a, ":") {
				bits = "/64"
			}
			if !slices.Contains([]string{"198.18.1.11", "198.18.1.12", "198.18.1.13", "2001:db8:1::11"}, a) {
				must(t, p.servers.Addr("eth0", a+bits))
			}
		}
	}
	// The way past the card. It has addresses of its own, so that nobody asks for the client's in the card's network.
	must(t, p.lab.Link(p.client, "eth1", p.servers, "eth1"))
	for _, a := range []string{"198.19.0.%d/24", "2001:db8:2::%d/64"} {
		must(t, p.client.Addr("eth1", fmt.Sprintf(a, 1)))
		must(t, p.servers.Addr("eth1", fmt.Sprintf(a, 2)))
	}
	must(t, p.servers.Route("198.18.0.10/32", "198.19.0.1"))
	must(t, p.servers.Route("2001:db8::10/128", "2001:db8:2::1"))
	for _, n := range []string{"all", "eth0", "eth1"} {
		must(t, p.client.Sysctl("net.ipv4.conf."+n+".rp_filter", "0"))
		must(t, p.servers.Sysctl("net.ipv4.conf."+n+".rp_filter", "0"))
	}
	for _, args := range []string{
		"-4 rule add from 198.18.1.0/24 lookup 100", "-4 route add 198.18.0.0/24 via 198.18.1.1 table 100",
		"-6 rule add from 2001:db8:1::/64 lookup 100", "-6 route add 2001:db8::/64 via 2001:db8:1::1 table 100",
	} {
		if out, err := p.servers.Command(t.Context(), "ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v %s", args, err, out)
		}
	}
	var on []string
	for _, vip := range vips {
		if strings.Contains(vip, ":") {
			on = append(on, vip+"/128")
		} else {
			on = append(on, vip+"/32")
		}
	}
	d, err := decap.Start(decap.Config{Namespace: p.servers, Interface: "eth0", VIPs: on})
	must(t, err)
	t.Cleanup(func() {
		if n := d.Counters(); len(n.Refused) != 0 || n.Undelivered != 0 {
			t.Errorf("of tunnels: %+v", n)
		}
		must(t, d.Close())
	})
}

// serveImported answers at the ports of both sites, at whatever address.
func (p *product) serveImported() {
	p.t.Helper()
	t := p.t
	h := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(bytes.Repeat([]byte("x"), importedBytes))
	})}
	for _, port := range []int{80, 82, 443, 8080, 8081, 8082, 8443, 5060} {
		ln, err := p.servers.Listen("tcp", fmt.Sprintf("[::]:%d", port))
		must(t, err)
		go func() { _ = h.Serve(ln) }()
	}
	t.Cleanup(func() { h.Close() })
	ln, err := p.servers.Listen("tcp", "[::]:25")
	must(t, err)
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			fmt.Fprintf(c, "220 %s\r\n", c.LocalAddr())
			c.Close()
		}
	}()
	// An answer to a datagram leaves with the address that was asked: one socket for each.
	var addresses []net.Addr
	must(t, p.servers.Do(func() (err error) { addresses, err = net.InterfaceAddrs(); return err }))
	for _, a := range addresses {
		ip, _, err := net.ParseCIDR(a.String())
		must(t, err)
		if ip.IsLinkLocalUnicast() {
			continue
		}
		for _, port := range []int{53, 80, 514, 1123} {
			var c net.PacketConn
			must(t, p.servers.Do(func() (err error) {
				c, err = net.ListenPacket("udp", net.JoinHostPort(ip.String(), fmt.Sprint(port)))
				return err
			}))
			t.Cleanup(func() { c.Close() })
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
	}
}

// importedFTP has curl fetch a file from vsftpd behind a VIP and bring it back, over data connections that either end opens.
// Persistence keeps all of that at one server: what was brought is there.
func (p *product) importedFTP(t *testing.T, vip string, servers []string) {
	need(t, "vsftpd", "vsftpd")
	if os.Getuid() != 0 || os.Getenv("NETLAB_ENTERED") != "" {
		t.Skip("needs root: vsftpd becomes another user")
	}
	must(t, os.MkdirAll("/var/run/vsftpd/empty", 0o755))
	for _, a := range servers {
		root := t.TempDir()
		must(t, os.Chmod(root, 0o755))
		must(t, os.Mkdir(filepath.Join(root, "in"), 0o777))
		must(t, os.Chmod(filepath.Join(root, "in"), 0o777))
		must(t, os.WriteFile(filepath.Join(root, "file"), []byte(strings.Repeat(a+"\n", importedBytes)), 0o644))
		config := strings.NewReplacer("ROOT", root, "listen=NO\n", "listen=YES\nlisten_address="+a+"\n").Replace(vsftpdConfig)
		p.runServer(a+":21", "vsftpd", p.write(a+".conf", config))
	}
	first := ""
	for i, how := range [][]string{nil, {"--disable-epsv", "--no-ftp-skip-pasv-ip"}, {"--ftp-port", "-"}, {"--ftp-port", "-", "--disable-eprt"}} {
		curl := func(args ...string) string {
			return p.in(p.client, t, "curl", slices.Concat([]string{"-sS", "--max-time", "20"}, how, args)...)
		}
		got := curl("ftp://" + vip + "/file")
		server, _, _ := strings.Cut(got, "\n")
		if !slices.Contains(servers, server) || got != strings.Repeat(server+"\n", importedBytes) {
			t.Errorf("curl %v: %d bytes, of %.20q", how, len(got), server)
		}
		if first == "" {
			first = server
		}
		if server != first {
			t.Errorf("curl %v: from %s, not from %s as before", how, server, first)
		}
		// Anonymous users may not read what they brought: its size has to do.
		to := fmt.Sprintf("ftp://%s/in/%d", vip, i)
		curl("-T", p.write("upload", got), to)
		if list := curl("ftp://" + vip + "/in/"); !strings.Contains(list, fmt.Sprintf(" %d ", len(got))) {
			t.Errorf("curl %v: after an upload of %d bytes: %s", how, len(got), list)
		}
	}
	if p.number("runtime.actions.module_opened") == 0 {
		t.Error("the module opened no data connection")
	}
}

// datagram sends one from a port of its own and wants it back.
func (p *product) datagram(ctx context.Context, at, text string) error {
	c, err := p.client.Dial(ctx, "udp", at)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return err
	}
	if _, err := c.Write([]byte(text)); err != nil {
		return err
	}
	b := make([]byte, 2048)
	n, err := c.Read(b)
	if err == nil && string(b[:n]) != text {
		return fmt.Errorf("%q came back", b[:n])
	}
	return err
}

// shares compares how many connections of services each of their servers got, as ipvs list says, with how many it was to get.
func (p *product) shares(want map[string]map[string]uint64) {
	p.t.Helper()
	out, err := p.client.Command(p.t.Context(), binary, "ipvs", "list", "--stats", "--socket", p.socket, "-o", "json").Output()
	must(p.t, err)
	var table view.Table
	must(p.t, json.Unmarshal(out, &table))
	got := map[string]map[string]uint64{}
	for _, s := range table.Services {
		if at := s.Listen[0]; want[at] != nil && s.Protocol == "tcp" {
			got[at] = map[string]uint64{}
			for _, x := range s.Groups[0].Servers {
				got[at][x.Address] = x.Traffic.Connections
			}
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		p.t.Errorf("connections by server (-want +got):\n%s", d)
	}
}
