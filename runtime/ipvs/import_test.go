package ipvs

import (
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"splicenic/runtime/config"
)

var update = flag.Bool("update", false, "write the golden text anew")

// marks are those of the example files.
func marks(t testing.TB) map[uint32][]Listen {
	t.Helper()
	all := map[uint32][]Listen{}
	for _, s := range []string{"1=198.18.0.70:80,198.18.0.70:443,198.18.0.70:80/udp", "2=[2001:db8::70]:*", "7=198.18.0.71:80,198.18.0.71:443"} {
		n, list, err := ParseMark(s)
		if err != nil {
			t.Fatal(err)
		}
		all[n] = list
	}
	return all
}

func read(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestSites imports a dump and a configuration of whole sites.
func TestSites(t *testing.T) {
	for _, name := range []string{"site.ipvsadm", "site.conf"} {
		t.Run(name, func(t *testing.T) {
			text := read(t, name)
			if n := strings.Count(string(text), "\n"); n < 100 {
				t.Fatalf("%d lines are no site", n)
			}
			m := NewImporter(marks(t))
			if err := m.Add(name, text); err != nil {
				t.Fatal(err)
			}
			got := m.Finish().YAML()
			golden := filepath.Join("testdata", name+".yaml")
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if d := cmp.Diff(string(read(t, name+".yaml")), got); d != "" {
				t.Error(d)
			}
			loads(t, got)
		})
	}
}

// around is what an import lacks of a configuration.
const around = "card: emu\nemu: {client: mem, server: mem}\nports:\n  client: {addresses: [198.18.0.1/24, \"2001:db8::1/64\"]}\n" +
	"  server: {addresses: [198.18.1.1/24, 198.18.2.1/24, \"2001:db8:1::1/64\"]}\n"

// loads says whether what was imported is a configuration.
func loads(t *testing.T, yaml string) {
	t.Helper()
	if _, err := config.Load("imported.yaml", []byte(around+yaml)); err != nil {
		t.Errorf("what was imported is no configuration: %v\n%s", err, yaml)
	}
}

// TestImport imports small files.
func TestImport(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		want       []string // lines of the result, without what is around them
		left       []string // what is not carried, each a part of it; nil: nothing
	}{
		{"defaults of ipvsadm", "-A -t 198.18.0.80:80\n-a -t 198.18.0.80:80 -r 198.18.1.11\n",
			[]string{"scheduler: wlc", "method: dr", "mode: dr", "- {address: 198.18.1.11:80, weight: 1}"}, nil},
		{"long options, equal signs and calls", "ipvsadm --add-service --tcp-service=198.18.0.80:80 --scheduler rr --persistent\n/sbin/ipvsadm -a -t198.18.0.80:80 --real-server 198.18.1.11:8080 --masquerading -w3\n",
			[]string{"persistence: {time: 300s}", "method: nat", "- {address: 198.18.1.11:8080, weight: 3}"}, nil},
		{"names of ports", "-A -t 198.18.0.80:http -s rr\n-a -t 198.18.0.80:http -r 198.18.1.11:webcache -m -w 1\n",
			[]string{"listen: [198.18.0.80:80]", "- {address: 198.18.1.11:8080, weight: 1}"}, nil},
		{"names of hosts", "-A -t web.example:http -s rr\n-a -t web.example:http -r 198.18.1.11:80 -m\n-A -t 198.18.0.81:80 -s rr\n-a -t 198.18.0.81:80 -r 198.18.1.11:80 -m\n-a -t 198.18.0.81:80 -r b.example:80 -m\n",
			[]string{"name: tcp-198.18.0.81-80"}, []string{":1:1: -t web.example:http: \"web.example\" is a name", "with its 1 servers", ":5:25: -t 198.18.0.81:80 -r b.example:80: \"b.example\" is a name"}},
		{"port of direct routing", "-A -t 198.18.0.80:80 -s rr\n-a -t 198.18.0.80:80 -r 198.18.1.11:8080 -g -w 1\n",
			[]string{"- {address: 198.18.1.11:80, weight: 1}"}, []string{"port 8080 is not used by method dr"}},
		{"every port", "-A -t 198.18.0.80:0 -s rr -p 60\n-a -t 198.18.0.80:0 -r 198.18.1.11:0 -m -w 1\n",
			[]string{`listen: ["198.18.0.80:*"]`, "persistence: {time: 60s, ports: all}", `- {address: "198.18.1.11:*", weight: 1}`}, nil},
		{"mark unknown", "-A -f 9 -s rr\n-a -f 9 -r 198.18.1.11:0 -g\n-A -t 198.18.0.81:80\n-a -t 198.18.0.81:80 -r 198.18.1.11:80\n",
			nil, []string{"-f 9: which packets have firewall mark 9 stands in the packet filter's rules, not here: say it with --fwmark 9=198.18.0.80:80; it is left out with its 1 servers"}},
		{"mark of the other family", "-A -f 7 -6 -s rr\n-a -f 7 -6 -r [2001:db8:1::1]:0 -g\n",
			[]string{"services: []"}, []string{"none of the addresses given for firewall mark 7 is IPv6"}},
		{"mark of both protocols", "-A -f 1 -s rr\n-a -f 1 -r 198.18.1.11:0 -g\n",
			[]string{"name: fwmark-1  # -f 1, line 1", "name: fwmark-1-udp", `- {address: "198.18.1.11:*", weight: 1}`}, nil},
		{"one packet and nat", "-A -u 198.18.0.80:53 -s rr -o\n-a -u 198.18.0.80:53 -r 198.18.1.11:53 -m\n",
			nil, []string{"one-packet scheduling needs tun or dr"}},
		{"one packet of tcp", "-A -t 198.18.0.80:53 -s rr --ops\n-a -t 198.18.0.80:53 -r 198.18.1.11:53 -g\n",
			nil, []string{"one-packet scheduling is of UDP"}},
		{"unknown scheduler and flags", "-A -t 198.18.0.80:80 -s wrrr -b flag-3\n-a -t 198.18.0.80:80 -r 198.18.1.11:80\n",
			[]string{"scheduler: wlc"}, []string{`did you mean "wrr"`, `flag "flag-3" says nothing to scheduler wlc`}},
		{"numbered flags", "-A -t 198.18.0.80:80 -s sh -b flag-1,flag-2\n-a -t 198.18.0.80:80 -r 198.18.1.11:80\n",
			[]string{"hash: {port: true, fallback: true}"}, nil},
		{"twice", "-A -t 198.18.0.80:80\n-A -t 198.18.0.80:80\n-a -t 198.18.0.80:80 -r 198.18.1.11:80\n-a -t 198.18.0.80:80 -r 198.18.1.11:80\n",
			nil, []string{":2:1: -t 198.18.0.80:80: stands twice", ":4:1: -t 198.18.0.80:80 -r 198.18.1.11:80: stands twice"}},
		{"server of nothing, edits and time-outs", "-a -t 198.18.0.80:80 -r 198.18.1.11:80\n-A -t 198.18.0.80:80\n-a -t 198.18.0.80:80 -r 198.18.1.11:80\n-e -t 198.18.0.80:80 -r 198.18.1.11:80 -w 7\n--set 900 120 300\n-D -t 198.18.0.99:1\n",
			[]string{"- {address: 198.18.1.11:80, weight: 7}"}, []string{"does not stand before its server", "--set: time-outs", "-D: says nothing"}},
		{"no servers", "-A -t 198.18.0.80:80\n", []string{"services: []", "groups: []"}, []string{"it has no server; it is left out"}},
		{"sctp", "-A --sctp-service 198.18.0.80:80\n-a --sctp-service 198.18.0.80:80 -r 198.18.1.11:80\n", nil, []string{"SCTP cannot be said"}},
		{"weights", "-A -t 198.18.0.80:80\n-a -t 198.18.0.80:80 -r 198.18.1.11:80 -w 70000\n", []string{"weight: 65535"}, []string{"weight 70000 is cut to 65535"}},

		{"check and path", withCheck("HTTP_GET {\n url {\n path \"/a:{b}#c\"\n }\n }"), []string{`path: "/a:{b}#c"`}, nil},
		{"families", "-A -t 198.18.0.80:80 -s rr\n-a -t 198.18.0.80:80 -r [2001:db8:1::11]:80 -g\n-a -t 198.18.0.80:80 -r [2001:db8:1::12]:80 -i\n",
			[]string{`- {address: "[2001:db8:1::12]:80", weight: 1, method: tun}`}, []string{":2:1: -t 198.18.0.80:80 -r [2001:db8:1::11]:80: server and clients are of different families"}},
		{"thresholds", "-A -t 198.18.0.80:80 -s rr\n-a -t 198.18.0.80:80 -r 198.18.1.11:80 -x 5 -y 5\n", []string{"weight: 1, upper: 5}"}, []string{"lower threshold 5 is not below the upper one (5)"}},
		{"one packet and persistence", "-A -u 198.18.0.80:53 -s rr -o -p 60\n-a -u 198.18.0.80:53 -r 198.18.1.11:53 -g\n", []string{"one_packet: true"}, []string{"every datagram chooses anew"}},
		{"quorum beyond all", "virtual_server 198.18.0.80 80 {\nquorum 2\nreal_server 198.18.1.11 80 {\n}\n}\n", nil, []string{"quorum 2 with hysteresis 0 is more than all weights together (1)"}},
		{"check without a port", "virtual_server 198.18.0.80 0 {\npersistence_timeout 5\nreal_server 198.18.1.11 0 {\nTCP_CHECK {\n}\n}\n}\n", []string{"check: {type: ping, rise: 1}"}, []string{"that the server answers pings is checked in its place"}},
		{"check of a mark", "virtual_server fwmark 7 {\nlvs_method DR\nreal_server 198.18.1.11 {\nTCP_CHECK {\n}\n}\n}\n", []string{"check: {type: tcp, port: 80, rise: 1}"}, []string{"it is port 80"}},
		{"ftp", "-A -t 198.18.0.80:21 -s rr\n-a -t 198.18.0.80:21 -r 198.18.1.11:21 -m\n", []string{"    module: ftp\n"}, nil},
		{"names that are YAML", "virtual_server_group \"a: [b]\\n# c\" {\n198.18.0.80 80\n}\nvirtual_server group \"a: [b]\\n# c\" {\nlb_kind NAT\nreal_server 198.18.1.11 80 {\n}\n}\n",
			[]string{"- name: a___b____c  # virtual_server group a: [b] # c, line 4"}, nil},
		{"names that are numbers", "virtual_server_group 17 {\n198.18.0.80 80\n}\nvirtual_server group 17 {\nreal_server 198.18.1.11 80 {\n}\n}\n",
			[]string{`- name: "17"  # virtual_server group 17, line 4`, `default: "17"`}, nil},
		{"group of marks", "virtual_server_group g {\nfwmark 7\nfwmark 9\n}\nvirtual_server group g {\nlvs_method DR\nreal_server 198.18.1.11 {\n}\n}\n",
			[]string{"listen: [198.18.0.71:80, 198.18.0.71:443]"}, []string{"firewall mark 9"}},
		{"parameters", "$VIP=198.18.0.80\nvirtual_server ${VIP} 80 {\nreal_server 198.18.1.11 80 {\n}\n}\nvirtual_server 198.18.0.81 80 {\nlb_algo $ALGO\nreal_server 198.18.1.11 80 {\nweight ${W}\n}\n@low quorum 3\n}\n",
			[]string{"weight: 1}"}, []string{":1:1: $VIP=198.18.0.80: parameters", "virtual_server ${VIP} 80: parameters are not replaced", "lb_algo: parameters", "weight: parameters", "@low: cannot be said"}},
		{"brace behind words and on a line of its own", "virtual_server 198.18.0.80 80{\nlb_kind NAT\nreal_server 198.18.1.11 80\n{ weight 2 }\n}",
			[]string{"weight: 2}"}, nil},
		{"line that goes on", "virtual_server \\\n 198.18.0.80 80 {\nreal_server 198.18.1.11 80 { }\n}\n", []string{"listen: [198.18.0.80:80]"}, nil},
		{"sorry server only", "virtual_server 198.18.0.80 80 {\nsorry_server 198.18.1.99 80\n}\n", []string{"- {address: 198.18.1.99:80, weight: 1}"}, []string{"there is no other server"}},
		{"checks that differ", "virtual_server 198.18.0.80 80 {\nreal_server 198.18.1.11 80 {\nTCP_CHECK {\n}\n}\nreal_server 198.18.1.12 80 {\nTCP_CHECK {\nconnect_port 81\n}\n}\n}\n",
			[]string{"check: {type: tcp, rise: 1}"}, []string{":6:1: virtual_server 198.18.0.80 80.real_server 198.18.1.12 80: servers of a group are checked alike: this one as that of line 2"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := NewImporter(marks(t))
			if err := m.Add("f", []byte(tt.text)); err != nil {
				t.Fatal(err)
			}
			out := m.Finish()
			got := out.YAML()
			for _, want := range tt.want {
				if !strings.Contains(got, want) {
					t.Errorf("%q is not in\n%s", want, got)
				}
			}
			left := out.Left.Error()
			for _, want := range tt.left {
				if !strings.Contains(left, want) {
					t.Errorf("%q is not in what is not carried:\n%s", want, left)
				}
			}
			if len(tt.left) == 0 && len(out.Left) > 0 {
				t.Errorf("not carried: %s", left)
			}
			if len(out.Services) > 0 {
				loads(t, got)
			}
		})
	}
}

// withCheck is a virtual server of one server with a check.
func withCheck(check string) string {
	return "virtual_server 198.18.0.80 80 {\n lb_kind NAT\n real_server 198.18.1.11 8080 {\n " + check + "\n }\n}\n"
}

// TestCheckers: each check of keepalived, and what stands for it.
func TestCheckers(t *testing.T) {
	for _, tt := range []struct {
		name, text, want string
		left             string // empty: nothing
	}{
		{"tcp", "TCP_CHECK {\n connect_port 9000\n connect_timeout 0.25\n retry 0\n }", "{type: tcp, port: 9000, timeout: 250ms, rise: 1, fall: 1}", ""},
		{"tcp of the server's own port", "TCP_CHECK {\n connect_port 8080\n }", "{type: tcp, rise: 1}", ""},
		{"tcp of another host", "TCP_CHECK {\n connect_ip 198.18.1.99\n }", "{type: tcp, rise: 1}", "TCP_CHECK.connect_ip: cannot be said"},
		{"http", "HTTP_GET {\n url {\n path /x\n virtualhost a.example\n status_code 200 301-302\n }\n nb_get_retry 3\n }", `{type: http, path: "/x", host: "a.example", status: [200, 301-302], rise: 1, fall: 4}`, ""},
		{"http of several", "HTTP_GET {\n virtualhost b.example\n url {\n path /x\n }\n url {\n path /y\n }\n }", `{type: http, path: "/x", host: "b.example", status: [200-299], rise: 1}`, "one url is checked, the first"},
		{"http without url", "HTTP_GET {\n }", `{type: http, path: "/", status: [200-299], rise: 1}`, "names no url"},
		{"http by digest", "HTTP_GET {\n url {\n path /\n digest 00\n }\n }", `{type: http, path: "/", status: [200-299], rise: 1}`, "HTTP_GET.url.digest: cannot be said"},
		{"https", "SSL_GET {\n url {\n path /\n }\n }", "{type: tcp, rise: 1}", "checks do not speak TLS"},
		{"smtp", "SMTP_CHECK {\n helo_name a\n }", "{type: tcp, rise: 1}", "checks do not speak SMTP"},
		{"dns", "DNS_CHECK {\n name a\n }", "{type: udp, rise: 1}", "checks do not speak DNS"},
		{"ping", "PING_CHECK {\n }", "{type: ping, rise: 1}", ""},
		{"udp", "UDP_CHECK {\n payload 50 49 0a\n }", `{type: udp, send: "PI\n", rise: 1}`, ""},
		{"udp of bytes", "UDP_CHECK {\n payload ff00\n }", "{type: udp, rise: 1}", "is no text"},
		{"program", "MISC_CHECK {\n misc_path \"/bin/x y\"\n misc_timeout 3\n alpha\n }", "{type: tcp, timeout: 3s, rise: 1, start: down}", "no program is run"},
		{"file", "FILE_CHECK {\n track_file x\n }", "{type: tcp, rise: 1}", "no file is watched"},
		{"bfd", "BFD_CHECK {\n name x\n }", "{type: ping, rise: 1}", "BFD is not spoken"},
		{"two", "PING_CHECK {\n }\n TCP_CHECK {\n }", "{type: ping, rise: 1}", "a server has one check"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := NewImporter(nil)
			if err := m.Add("f", []byte(withCheck(tt.text))); err != nil {
				t.Fatal(err)
			}
			out := m.Finish()
			if got := out.YAML(); !strings.Contains(got, "\n    check: "+tt.want+"\n") {
				t.Errorf("no %q in\n%s", tt.want, got)
			}
			if left := out.Left.Error(); !strings.Contains(left, tt.left) || (tt.left == "") != (left == "") {
				t.Errorf("not carried: %q, want %q", left, tt.left)
			}
			loads(t, out.YAML())
		})
	}
}

// TestRefused: files that are none.
func TestRefused(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"nothing", "", "f:1:1: holds no virtual server"},
		{"neither", "hello world\n", "f:1:1: holds no virtual server"},
		{"unknown option", "-A -t 198.18.0.80:80 --color\n", `f:1:22: "--color" is no option of ipvsadm`},
		{"option without its argument", "-A -t 198.18.0.80:80 -s\n", "f:1:22: -s wants an argument, and the line ends"},
		{"argument to nothing", "-A -t 198.18.0.80:80 --ops=1\n", "takes no argument"},
		{"no service", "-A -s rr\n", "names no service"},
		{"no server", "-A -t 198.18.0.80:80\n-a -t 198.18.0.80:80\n", "f:2:1: names no service (-t, -u or -f) or no server (-r)"},
		{"no address", "-A -t 198.18.0:80\n", `f:1:7: "198.18.0:80" is no ADDRESS:PORT`},
		{"port too large", "-A -t 198.18.0.80:65536\n", `port "65536"`},
		{"port misspelt", "-A -t 198.18.0.80:htpp\n", `did you mean "http"`},
		{"zone", "-A -t [fe80::1%eth0]:80\n", "has a zone"},
		{"mask that is none", "-A -t 198.18.0.80:80 -p 60 -M 255.0.255.0\n", "netmask 255.0.255.0 is no prefix"},
		{"mask of nothing", "-A -t 198.18.0.80:80 -p 60 -M 0.0.0.0\n", "is no prefix"},
		{"weight", "-A -t 198.18.0.80:80\n-a -t 198.18.0.80:80 -r 198.18.1.11 -w -1\n", `--weight "-1": a number`},
		{"tunnel", "-A -t 198.18.0.80:80\n-a -t 198.18.0.80:80 -r 198.18.1.11 -i --tun-type vxlan\n", "is none of ipip, gue, gre"},
		{"server's option at a service", "-A -t 198.18.0.80:80 -w 1\n", "--weight says nothing about a service"},
		{"service's option at a server", "-A -t 198.18.0.80:80\n-a -t 198.18.0.80:80 -r 198.18.1.11 -s rr\n", "--scheduler says nothing about a server"},

		{"long line", "virtual_server 198.18.0.80 80 {\n#" + strings.Repeat("x", 10<<20) + "\n}\n", "f:2:1: the line has 10485762 bytes; at most 65536 are read"},
		{"large file", strings.Repeat("#\n", config.MaxBytes/2+1), "f:1:1: the file is larger than 16777216 bytes"},
		{"control character", "virtual_server 198.18.0.80\x00 80 {\n}\n", "f:1:27: holds the control character U+0000"},
		{"no text", "virtual_server \xff 80 {\n}\n", "f:1:16: byte 0xff is no UTF-8"},
		{"brace not closed", "virtual_server 198.18.0.80 80 {\n real_server 198.18.1.11 80 {\n }\n", "f:1:31: the brace is not closed"},
		{"brace of nothing", "}\n", "f:1:1: the brace closes nothing"},
		{"brace too many", "virtual_server 198.18.0.80 80 {\n}\n}\n", "f:3:1: the brace closes nothing"},
		{"block of nothing", "{\n}\n", "f:1:1: the brace opens a block of nothing"},
		{"two blocks", "virtual_server 198.18.0.80 80 {\n}\n{\n}\n", "f:3:1: the brace opens a block of nothing"},
		{"deep", strings.Repeat("a {", 100), "f:1:51: nests deeper than 16 blocks"},
		{"quote", "virtual_server \"198.18.0.80 80 {\n}\n", "f:1:16: the quote is not closed on its line"},
		{"parameter not closed", "virtual_server ${VIP 80 {\n}\n", ":1:16: the brace is not closed"},
		{"no address of a virtual server", "virtual_server {\n}\n", "names no address"},
		{"address of a server", "virtual_server 198.18.0.80 80 {\nreal_server 198.18.1 80 {\n}\n}\n", `"198.18.1" is no address`},
		{"method", withCheck("") + "virtual_server 198.18.0.81 80 {\nlb_kind NATT\n}\n", `"NATT" is none of NAT, DR, TUN`},
		{"tunnel's options", "virtual_server 198.18.0.81 80 {\nlb_kind TUN type vxlan\n}\n", `"type" is none of`},
		{"protocol", "virtual_server 198.18.0.81 80 {\nprotocol ICMP\n}\n", `"ICMP" is none of`},
		{"range", "virtual_server_group g {\n198.18.0.80-70 80\n}\nvirtual_server group g {\n}\n", "is no range of addresses"},
		{"range too large", "virtual_server_group g {\n2001:db8::0-ffff 80\n}\nvirtual_server group g {\n}\n", "has more than 1024 addresses"},
		{"ranges without end", "virtual_server_group g {\n2001:db8::0-3ff 80\n}\n" + strings.Repeat("virtual_server group g {\n}\n", 100), "is beyond the 65536 listeners and servers"},
		{"delay", withCheck("TCP_CHECK {\n connect_timeout 1e9\n }"), "seconds from 0.001"},
		{"not a delay", withCheck("TCP_CHECK {\n connect_timeout NaN\n }"), "seconds from 0.001"},
		{"path", withCheck("HTTP_GET {\n url {\n path \"/x\\r\\nHost: y\"\n }\n }"), "is no path"},
		{"host", withCheck("HTTP_GET {\n url {\n path /x\n virtualhost \"y\\r\\nX: 1\"\n }\n }"), "is no name of a host"},
		{"status", withCheck("HTTP_GET {\n url {\n path /x\n status_code 299-200\n }\n }"), "is no status"},
		{"payload", withCheck("UDP_CHECK {\n payload xyz\n }"), "is no list of bytes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := NewImporter(nil).Add("f", []byte(tt.text))
			var p config.Problems
			if !errors.As(err, &p) {
				t.Fatalf("got %v, want problems", err)
			}
			if !strings.Contains(err.Error(), tt.want) || len(err.Error()) > 4000 {
				t.Errorf("got %.400s\nwant %s", err, tt.want)
			}
		})
	}
}

// TestManyLeft: what is not carried is listed within bounds, and the rest counted.
func TestManyLeft(t *testing.T) {
	m := NewImporter(nil)
	text := "virtual_server 198.18.0.80 80 {\n" + strings.Repeat("smtp_alert\n", 5000) + "real_server 198.18.1.11 80 {\n}\n}\n"
	if err := m.Add("f", []byte(text)); err != nil {
		t.Fatal(err)
	}
	left := m.Finish().Left
	if len(left) != maxLeft+1 || left[maxLeft].Message != "4000 more things like these are not carried" {
		t.Errorf("%d are listed, the last one %q", len(left), left[len(left)-1])
	}
}

// TestFiles: what several files say stands side by side; a file that is none leaves the others as they are.
func TestFiles(t *testing.T) {
	m := NewImporter(nil)
	for i, text := range []string{
		"-A -t 198.18.0.80:80\n-a -t 198.18.0.80:80 -r 198.18.1.11:80\n",
		"virtual_server 198.18.0.80 80 {\nreal_server 198.18.1.12 80 {\n}\n}\nvirtual_server 198.18.0.81 80 {\nreal_server 198.18.1.12 80 {\n}\n}\n",
		"-A -t 198.18.0.82:80\n-a -t 198.18.0.82:80 -r 198.18.1.11:80\n-x\n",
	} {
		if err := m.Add(fmt.Sprint("f", i), []byte(text)); (err != nil) != (i == 2) {
			t.Fatal(i, err)
		}
	}
	out := m.Finish()
	var names []string
	for _, s := range out.Services {
		names = append(names, s.Name)
	}
	if d := cmp.Diff([]string{"tcp-198.18.0.80-80", "tcp-198.18.0.81-80"}, names); d != "" {
		t.Error(d)
	}
	if want := "f1:1:1: virtual_server 198.18.0.80 80: what it listens on stands before it already; it is left out with its 1 servers"; out.Left.Error() != want {
		t.Errorf("not carried: %s", out.Left)
	}
}

func TestParseMark(t *testing.T) {
	for _, tt := range []struct {
		text string
		want []Listen // nil: refused
	}{
		{"3=198.18.0.80:80,[2001:db8::80]:*,198.18.0.80:53/udp", []Listen{
			{netip.MustParseAddr("198.18.0.80"), 80, "tcp"}, {netip.MustParseAddr("2001:db8::80"), 0, "tcp"}, {netip.MustParseAddr("198.18.0.80"), 53, "udp"},
		}},
		{"0=198.18.0.80:80", nil},
		{"3", nil},
		{"x=198.18.0.80:80", nil},
		{"3=", nil},
		{"3=198.18.0.80", nil},
		{"3=198.18.0.80:80/sctp", nil},
		{"3=" + strings.Repeat("198.18.0.80:80,", 1024) + "198.18.0.80:80", nil},
	} {
		t.Run(clip(tt.text), func(t *testing.T) {
			_, got, err := ParseMark(tt.text)
			if d := cmp.Diff(tt.want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); d != "" || (err != nil) != (tt.want == nil) {
				t.Error(d, err)
			}
		})
	}
}

// FuzzDump: any text gives an error with a place, or YAML that is one.
func FuzzDump(f *testing.F) {
	f.Add(string(read(f, "site.ipvsadm")))
	f.Add("-A -t 198.18.0.80:80 -s rr -p 5 -M 255.255.255.0\n-a -t 198.18.0.80:80 -r 198.18.1.11:80 -i --tun-type gue --tun-port 5 -w 3\n")
	fuzz(f, "-A -t 198.18.3.3:3\n-a -t 198.18.3.3:3 -r 198.18.1.3:3\n")
}

// FuzzKeepalived is the same for the other kind.
func FuzzKeepalived(f *testing.F) {
	f.Add(string(read(f, "site.conf")))
	f.Add(withCheck("HTTP_GET {\n url {\n path \"/x\"\n status_code 200\n }\n retry 3\n }"))
	fuzz(f, "! keepalived\n")
}

func fuzz(f *testing.F, before string) {
	all := marks(f)
	f.Fuzz(func(t *testing.T, text string) {
		m := NewImporter(all)
		if err := m.Add("f", []byte(before+text)); err != nil {
			for _, p := range err.(config.Problems) {
				if p.Line < 1 || p.Column < 1 || p.Message == "" {
					t.Errorf("%+v says too little", p)
				}
			}
			return
		}
		out := m.Finish()
		yaml := out.YAML()
		if again := func() string {
			m := NewImporter(all)
			_ = m.Add("f", []byte(before+text))
			return m.Finish().YAML()
		}(); again != yaml {
			t.Error("the same text came to something else")
		}
		// Each line that is no comment begins as one that was written.
		for l := range strings.Lines(yaml) {
			if !strings.HasPrefix(l, "# not carried: ") && !strings.HasPrefix(l, "services:") && !strings.HasPrefix(l, "groups:") &&
				!strings.HasPrefix(l, "  - name: ") && !strings.HasPrefix(l, "    ") {
				t.Errorf("line %q", l)
			}
		}
		if len(out.Services) == 0 {
			return
		}
		// An address may be one that no configuration takes; everything else is said as it has to be.
		_, err := config.Load("f", []byte(around+yaml))
		problems, _ := errors.AsType[config.Problems](err)
		for _, p := range problems {
			address := strings.Contains(p.Key, "listen") || strings.Contains(p.Key, "address") || strings.Contains(p.Key, "servers[")
			if (p.Key == "" || !address) && !strings.Contains(p.Message, "address") {
				t.Errorf("%v\n%s", p, yaml)
			}
		}
	})
}
