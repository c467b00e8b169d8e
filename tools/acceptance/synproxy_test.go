package acceptance

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/gopacket/layers"

	"splicenic/tools/netlab"
)

// synproxyRules make a router do what the card does: answer the client's SYN, then open the server's side and translate.
const synproxyRules = `table ip splice {
	chain raw {
		type filter hook prerouting priority raw; policy accept;
		iifname "eth1" tcp dport 80 tcp flags syn notrack
	}
	chain forward {
		type filter hook forward priority filter; policy accept;
		iifname "eth1" tcp dport 80 ct state { invalid, untracked } synproxy mss 1460 wscale 7 timestamp sack-perm
		ct state invalid drop
	}
}
`

// difference is a way in which the card and the kernel's SYNPROXY answer differently, on purpose.
type difference struct {
	what     string // key of what observed returns
	stateful bool   // only where the card keeps the SYN in a page and needs no cookie
	holds    func(o offer, kernel, card string) bool
	why      string
}

// offer is what a client's kernel offers in a SYN.
type offer struct {
	setting
	ecn  bool
	mss  int // zero: what fits the link
	mode string
}

func (o offer) String() string {
	return fmt.Sprintf("client %v, ecn %t, mss %d, defence %s", o.setting, o.ecn, o.mss, o.mode)
}

var synproxyDifferences = []difference{
	{"SYN-ACK window", false, func(_ offer, kernel, card string) bool { return kernel == "zero" && card != "zero" },
		"the card takes the request before it knows the server, up to a head buffer; SYNPROXY takes nothing and opens the window later"},
	{"SYN-ACK sack", true, func(o offer, kernel, card string) bool {
		return o.setting&timestamps == 0 && kernel == "no" && card == "yes"
	}, "without timestamps a cookie cannot keep the option; a page can"},
	{"SYN-ACK wscale", true, func(o offer, kernel, card string) bool {
		return o.setting&timestamps == 0 && kernel == "no" && card == "7"
	}, "without timestamps a cookie cannot keep the option; a page can"},
	{"SYN sack", true, func(o offer, kernel, card string) bool {
		return o.setting&timestamps == 0 && kernel == "no" && card == "yes"
	}, "as in the SYN-ACK"},
	{"SYN wscale", true, func(o offer, kernel, card string) bool {
		return o.setting&timestamps == 0 && kernel == "no" && card == "yes"
	}, "as in the SYN-ACK"},
	{"timestamps toward the server", false, func(_ offer, kernel, card string) bool {
		return strings.HasPrefix(kernel, "TSecr") && card == "in order"
	}, "SYNPROXY translates also the first ACK it makes itself, whose TSecr is the server's already; a server that looks drops it"},
}

// observed is what one connection looked like to the two ends, without what is anybody's choice: the order of options and
// the numbers themselves.
func observed(near, far *tap, client uint16) map[string]string {
	o := map[string]string{}
	syn, synAck := near.handshake(client)
	if syn == nil || synAck == nil {
		return map[string]string{"handshake": "none"}
	}
	describe(o, "SYN-ACK", synAck)
	o["SYN-ACK window"] = "zero"
	if synAck.Window != 0 {
		o["SYN-ACK window"] = "some"
	}
	if _, ecr, ok := synAck.timestamps(); ok {
		val, _, _ := syn.timestamps()
		o["SYN-ACK echoes the SYN's timestamp"] = fmt.Sprint(ecr == val)
	}
	if syn, _ := far.handshake(client); syn != nil {
		describe(o, "SYN", syn)
		if o["SYN wscale"] != "no" {
			o["SYN wscale"] = "yes" // the client's own is 14 bits of anything
		}
	}
	o["timestamps toward the client"] = clockOf(near.of(client))
	o["timestamps toward the server"] = clockOf(far.of(client))
	return o
}

// describe notes what is in a SYN or SYN-ACK.
func describe(o map[string]string, name string, s *segment) {
	for _, option := range []string{"mss", "wscale", "sack", "timestamps", "other options"} {
		o[name+" "+option] = "no"
	}
	o[name+" ecn"] = fmt.Sprintf("ECE %t, CWR %t", s.ECE, s.CWR)
	for _, option := range s.Options {
		switch option.OptionType {
		case layers.TCPOptionKindMSS:
			o[name+" mss"] = fmt.Sprint(int(option.OptionData[0])<<8 | int(option.OptionData[1]))
		case layers.TCPOptionKindWindowScale:
			o[name+" wscale"] = fmt.Sprint(option.OptionData[0])
		case layers.TCPOptionKindSACKPermitted:
			o[name+" sack"] = "yes"
		case layers.TCPOptionKindTimestamps:
			o[name+" timestamps"] = "yes"
		case layers.TCPOptionKindNop, layers.TCPOptionKindEndList:
		default:
			o[name+" other options"] = "yes"
		}
	}
}

// clockOf follows the timestamps that come to an end: TSval never goes back, TSecr is one that this end has sent.
func clockOf(ss []segment) string {
	var last uint32
	var seen, without bool
	sent := map[uint32]bool{}
	for _, s := range ss {
		val, ecr, ok := s.timestamps()
		switch {
		case !ok:
			without = without || !s.RST
		case s.out:
			sent[val] = true
		default:
			if seen && int32(val-last) < 0 {
				return fmt.Sprintf("TSval goes back from %d to %d", last, val)
			}
			if s.ACK && !sent[ecr] {
				return fmt.Sprintf("TSecr %d was never sent", ecr)
			}
			seen, last = true, val
		}
	}
	switch {
	case seen && without:
		return "on some segments"
	case seen:
		return "in order"
	}
	return "none"
}

// TestSYNPROXY runs the same script through the kernel's SYNPROXY and through the card, and compares what the ends see.
func TestSYNPROXY(t *testing.T) {
	need(t, "nft", "nftables")
	t.Run("stateful", func(t *testing.T) { compareSYNPROXY(t, "off", "") })
	t.Run("cookies", func(t *testing.T) { compareSYNPROXY(t, "always", ", defence: always") })
}

func compareSYNPROXY(t *testing.T, mode, service string) {
	kernel, card := newField(t, 1, 1), newField(t, 1, 1)
	card.supports(t, "defence: always", service)
	card.begin(fieldConfig(1, []int{plainPort}, service, func(_, family int) string { return ", profile: " + profileOf(settings-1, family) }))
	kernel.forward()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if out, err := kernel.card.Command(ctx, "nft", "-f", kernel.write("rules.nft", synproxyRules)).CombinedOutput(); err != nil {
		t.Skipf("needs nft and the kernel's NFT_SYNPROXY: nft: %v\n%s", err, out)
	}
	must(t, kernel.card.Sysctl("net.netfilter.nf_conntrack_tcp_loose", "0"))
	must(t, kernel.card.Sysctl("net.ipv4.tcp_syncookies", "2"))

	var xs exchanges
	used := map[string]bool{}
	var taps [2][2]*tap
	fields := [2]*field{kernel, card}
	for i, f := range fields {
		ln, err := listen(f.servers[0], plain, fmt.Sprintf(":%d", plainPort))
		must(t, err)
		defer ln.Close()
		go xs.serve(t, ln)
		taps[i] = [2]*tap{newTap(t, f.clients[0], "eth0"), newTap(t, f.servers[0], "eth0")}
	}
	port := uint16(20_000)
	for s := range settings {
		for _, o := range []offer{{s, false, 0, mode}, {s, true, 0, mode}, {s, false, 1300, mode}} {
			var got [2]map[string]string
			for i, address := range [2]string{fmt.Sprintf("%s:%d", site(0).v4, plainPort), vip(0, 4, plainPort)} {
				port++
				o.apply(t, fields[i].clients[0], port)
				if _, err := xs.run(fields[i].clients[0], plain, address, script{name: "both", up: 100_000, down: 100_000}, 1); err != nil {
					t.Errorf("%v, %s: %v", o, [2]string{"SYNPROXY", "card"}[i], err)
				}
				got[i] = observed(taps[i][0], taps[i][1], port)
			}
			for _, what := range slices.Sorted(maps.Keys(got[0])) {
				if a, b := got[0][what], got[1][what]; a != b && !justified(o, what, a, b, used) {
					t.Errorf("%v: %s: SYNPROXY %s, the card %s, and that is no difference on the list", o, what, a, b)
				}
			}
			if t.Failed() {
				return // the rest would say the same
			}
			t.Logf("%v: %s", o, summary(got[1]))
		}
	}
	for _, d := range synproxyDifferences {
		if !used[d.what] && (mode != "always" || !d.stateful) {
			t.Errorf("%s is on the list of differences, but there is none", d.what)
		}
	}
}

func justified(o offer, what, kernel, card string, used map[string]bool) bool {
	for _, d := range synproxyDifferences {
		if d.what == what && (!d.stateful || o.mode != "always") && d.holds(o, kernel, card) {
			used[what] = true
			return true
		}
	}
	return false
}

func summary(o map[string]string) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(o)) {
		parts = append(parts, k+": "+o[k])
	}
	return strings.Join(parts, "; ")
}

// apply has a client offer this in its next SYN, which comes from a port of its own.
func (o offer) apply(t *testing.T, n *netlab.Namespace, port uint16) {
	t.Helper()
	o.setting.apply(t, n)
	ecn := "0"
	if o.ecn {
		ecn = "1"
	}
	must(t, n.Sysctl("net.ipv4.tcp_ecn", ecn))
	must(t, n.Sysctl("net.ipv4.ip_local_port_range", fmt.Sprintf("%d %d", port, port)))
	mtu := 1500
	if o.mss != 0 {
		mtu = o.mss + 40
	}
	must(t, n.MTU("eth0", mtu))
}
