package acceptance

import (
	"bytes"
	"encoding/json"
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	"splicenic/tools/control"
)

// doctorConfig has two direct servers by DR and through a tunnel, and a routed one.
const doctorConfig = farmPorts + `services:
  - {name: dr, listen: [198.18.0.80:8006], mode: dr, protocol: tcp, default: dr}
  - {name: dr6, listen: ["[2001:db8::80]:8006"], mode: dr, protocol: tcp, default: dr6}
  - {name: tun, listen: [198.18.0.80:8003], mode: tun, protocol: tcp, default: tun}
  - {name: gue, listen: ["[2001:db8::80]:8003"], mode: tun, protocol: tcp, default: gue}
  - {name: datagrams, listen: [198.18.0.80:8007], mode: dr, protocol: udp, default: udp}
  - {name: nat, listen: [198.18.0.80:8001], mode: nat, protocol: tcp, default: nat}
groups:
  - {name: dr, check: {type: none}, servers: [{address: 198.18.1.21:8006}, {address: 198.18.1.22:8006}]}
  - {name: dr6, check: {type: none}, servers: [{address: "[2001:db8:1::21]:8006"}]}
  - {name: tun, check: {type: none}, servers: [{address: 198.18.1.21:8003}, {address: 198.18.1.23:8003}]}
  - {name: gue, check: {type: none}, tunnel: {type: gue, checksum: full}, servers: [{address: 198.18.1.21:8003}]}
  - {name: udp, check: {type: none}, servers: [{address: 198.18.1.21:8007}]}
  - {name: nat, check: {type: none}, servers: [{address: 198.18.1.11:9001}]}
`

// examined runs the doctor and returns what it found around the card, by name and place, with its exit code.
func (p *product) examined() (found map[string]control.Finding, exit int) {
	p.t.Helper()
	cmd := exec.Command(binary, "card", "doctor", "--socket", p.socket, "-o", "json")
	cmd.Env = append(os.Environ(), "SPLICE_CARD=")
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && (!ok || exit.ExitCode() != 1) {
		p.t.Fatalf("card doctor: %v\n%s", err, complaints.String())
	}
	var list []control.Finding
	must(p.t, json.Unmarshal(out.Bytes(), &list))
	found = map[string]control.Finding{}
	for _, f := range list {
		if f.Where != "" {
			found[f.Name+", "+f.Where] = f
		}
		if f.Where == "" && f.Status == "fail" {
			p.t.Errorf("the machine: %+v", f)
		}
	}
	return found, cmd.ProcessState.ExitCode()
}

// halfOpen counts the connections of a host that wait for the ACK of their SYN-ACK.
func (b *backend) halfOpen(t *testing.T) (n int) {
	t.Helper()
	must(t, b.Do(func() error {
		for _, name := range []string{"tcp", "tcp6"} {
			table, err := os.ReadFile("/proc/thread-self/net/" + name)
			if err != nil {
				return err
			}
			for line := range strings.Lines(string(table)) {
				if f := strings.Fields(line); len(f) > 3 && f[3] == "03" {
					n++
				}
			}
		}
		return nil
	}))
	return n
}

// TestCaseC01Doctor has a network that is well, of which the doctor finds nothing to say; then a server that answers ARP for
// the VIP, one without the VIP, one whose reverse path filter is on and one behind less than the port's MTU. Each is named,
// with what to do.
func TestCaseC01Doctor(t *testing.T) {
	f := newFarm(t, 3)
	for _, b := range f.direct {
		for _, at := range []string{"198.18.0.80:8006", "[2001:db8::80]:8006", "198.18.0.80:8003", "[2001:db8::80]:8003"} {
			f.answer(b, "tcp", netip.MustParseAddrPort(at))
		}
	}
	f.begin(doctorConfig)

	found, exit := f.examined()
	if exit != 0 {
		t.Errorf("exit code %d of a network that is well", exit)
	}
	for _, name := range []string{
		"VIP 198.18.0.80 is nobody else's, client port", "VIP 198.18.0.80 is nobody else's, server port", "VIP 2001:db8::80 is nobody else's, client port", "VIP 2001:db8::80 is nobody else's, server port",
		"path to server 198.18.1.11, server port", "path to server 2001:db8:1::21, server port",
		"server 198.18.1.21 has VIP 198.18.0.80, service dr, dr", "server 198.18.1.22 has VIP 198.18.0.80, service dr, dr", "server 2001:db8:1::21 has VIP 2001:db8::80, service dr6, dr",
		"server 198.18.1.21 has VIP 198.18.0.80, service tun, tun ipip", "server 198.18.1.23 has VIP 198.18.0.80, service tun, tun ipip",
		"server 198.18.1.21 has VIP 2001:db8::80, service gue, tun gue port 6080 checksum full", "server 198.18.1.21 has VIP 198.18.0.80, service datagrams, dr",
	} {
		if _, ok := found[name]; !ok {
			t.Errorf("nothing is said about %s", name)
		}
	}
	for name, x := range found {
		if x.Status != "ok" {
			t.Errorf("%s: %+v", name, x)
		}
	}

	arp, filtered, short := f.direct[1], f.direct[2], f.routed[0]
	must(t, arp.Sysctl("net.ipv4.conf.all.arp_ignore", "0"))
	must(t, arp.Sysctl("net.ipv4.conf.all.arp_announce", "0"))
	must(t, filtered.Sysctl("net.ipv4.conf.all.rp_filter", "1"))
	must(t, short.MTU("eth0", 1400))
	broken := strings.NewReplacer("{address: 198.18.1.22:8006}", "{address: 198.18.1.22:8006}, {address: 198.18.1.12:8006}",
		"{address: 198.18.1.23:8003}", "{address: 198.18.1.23:8003}, {address: 198.18.1.13:8003}").Replace(doctorConfig)
	if out, err := exec.Command(binary, "config", "apply", f.write("broken.yaml", broken), "--socket", f.socket).CombinedOutput(); err != nil {
		t.Fatalf("config apply: %v\n%s", err, out)
	}
	f.await("every server's next hop is resolved", patience, f.resolved)
	found, exit = f.examined()
	if exit != 1 {
		t.Errorf("exit code %d of a network that is broken", exit)
	}
	var mac string
	must(t, arp.Do(func() error {
		i, err := net.InterfaceByName("eth0")
		if err == nil {
			mac = i.HardwareAddr.String()
		}
		return err
	}))
	wrong := map[string]struct{ number, why, do string }{
		"VIP 198.18.0.80 is nobody else's, server port": {
			mac + " (server 198.18.1.22) answers ARP", "passes the card by", "arp_ignore=1 net.ipv4.conf.all.arp_announce=2"},
		"server 198.18.1.12 has VIP 198.18.0.80, service dr, dr": {
			"no answer to SYN", "lacks the VIP", "ip addr add 198.18.0.80/32 dev lo"},
		"server 198.18.1.23 has VIP 198.18.0.80, service tun, tun ipip": {
			"no answer to SYN", "reverse path filter", "rp_filter=0"},
		"server 198.18.1.13 has VIP 198.18.0.80, service tun, tun ipip": {"", "VIP", "ip addr add 198.18.0.80/32 dev lo"},
		"path to server 198.18.1.11, server port":                       {"1400 bytes of the port's 1500", "no router says so", "to 1500"},
	}
	for name, want := range wrong {
		x := found[name]
		if x.Status != "fail" || !strings.Contains(x.Number, want.number) || !strings.Contains(x.Why, want.why) || !strings.Contains(x.Fix, want.do) {
			t.Errorf("%s: %+v", name, x)
		}
	}
	for name, x := range found {
		if _, ok := wrong[name]; !ok && x.Status != "ok" {
			t.Errorf("%s: %+v", name, x)
		}
	}
	for _, b := range f.direct {
		f.await("no connection is half open at "+b.Name(), patience, func() bool { return b.halfOpen(t) == 0 })
	}
	f.atRest()

	out, err := exec.Command(binary, "card", "doctor", "--socket", f.socket).Output()
	if err == nil {
		t.Error("exit code 0 of a network that is broken")
	}
	t.Logf("\n%s", out)
	for _, line := range []string{
		"\nfail  VIP 198.18.0.80 is nobody else's (server port): ", "\n      why: ", "\n      do: on server 198.18.1.22: sysctl -w net.ipv4.conf.all.arp_ignore=1",
	} {
		if !strings.Contains(string(out), line) {
			t.Errorf("the lines for people lack %q", line)
		}
	}
}
