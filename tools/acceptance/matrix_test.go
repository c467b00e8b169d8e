package acceptance

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"splicenic/emu/port"
	"splicenic/tools/netlab"
)

// whole is for `make matrix`: every cell.
var whole = os.Getenv("SPLICE_MATRIX") != ""

// onlyCells chooses cells by their names, to look at one.
var onlyCells = flag.String("cells", "", "the cells of TestMatrix whose names match this `regexp`")

// A setting is what a kernel has of SACK, timestamps and window scaling.
type setting uint8

const (
	sack setting = 1 << iota
	timestamps
	scaling
	settings // their number
)

func (s setting) String() string {
	var on []string
	for bit, name := range map[setting]string{sack: "sack", timestamps: "timestamps", scaling: "scaling"} {
		if s&bit != 0 {
			on = append(on, name)
		}
	}
	if len(on) == 0 {
		return "none"
	}
	slices.Sort(on)
	return strings.Join(on, "+")
}

func (s setting) apply(t *testing.T, n *netlab.Namespace) {
	t.Helper()
	for bit, name := range map[setting]string{sack: "tcp_sack", timestamps: "tcp_timestamps", scaling: "tcp_window_scaling"} {
		value := "0"
		if s&bit != 0 {
			value = "1"
		}
		must(t, n.Sysctl("net.ipv4."+name, value))
	}
}

// A trouble is what both wires do to the frames of both directions.
type trouble struct {
	name string
	how  port.Impairment
}

var troubles = []trouble{
	{"clean", port.Impairment{}},
	{"2 % loss", port.Impairment{Loss: 0.02}},
	{"reordering and duplication", port.Impairment{Reorder: 0.05, ReorderBy: 3 * time.Millisecond, Duplicate: 0.02}},
	{"delay", port.Impairment{Delay: 5 * time.Millisecond, Jitter: time.Millisecond}},
}

// A cell is one transfer between two kernels over one kind of wire.
type cell struct {
	name           string
	client, server int // of the field
	port           int // the listener, which may have a flavour
	how            flavour
	script         script
	trouble        int
	family         int
	ecn            bool // both ends do
}

// The hosts of the matrix: first those with every setting, then those with every value of tcp_ecn and all options on.
const firstECN = int(settings)

func settingOf(host int) setting {
	if host < firstECN {
		return setting(host)
	}
	return settings - 1
}

// ecnValues are the values of tcp_ecn that this kernel has: 0 to 2, and the ones for accurate ECN where it knows that.
func ecnValues(t *testing.T) (values []int) {
	t.Helper()
	p := newProduct(t)
	n, err := p.lab.Namespace("values")
	must(t, err)
	for v := range 6 {
		if err := n.Sysctl("net.ipv4.tcp_ecn", fmt.Sprint(v)); err == nil {
			values = append(values, v)
		} else if v <= 2 {
			t.Fatal(err)
		}
	}
	return values
}

// settingCell is a cell of the 64 combinations.
func settingCell(client, server setting, s script, trouble, family int) cell {
	return cell{name: fmt.Sprintf("client %v, server %v, %s, %s, IPv%d", client, server, s.name, troubles[trouble].name, family),
		client: int(client), server: int(server), port: plainPort, script: s, trouble: trouble, family: family}
}

// extraCells are those of ECN, Fast Open and MPTCP, one at a time: each with every script over every wire when all.
func extraCells(ecn []int, all bool) (cells []cell) {
	var kinds []cell
	for i, client := range ecn {
		for j, server := range ecn {
			kinds = append(kinds, cell{name: fmt.Sprintf("client ecn %d, server ecn %d", client, server), client: firstECN + i, server: firstECN + j, port: plainPort,
				ecn: slices.Contains([]int{1, 3, 4}, client) && server != 0})
		}
	}
	last := int(settings - 1)
	for _, k := range []cell{{name: "client fastopen", how: fastOpen, port: plainPort}, {name: "server fastopen", port: fastPort}, {name: "client mptcp", how: multipath, port: plainPort}, {name: "server mptcp", port: mptcpPort}} {
		k.client, k.server = last, last
		kinds = append(kinds, k)
	}
	for n, k := range kinds {
		for i, s := range scripts {
			for trouble := range troubles {
				if !all && (n%len(scripts) != i || (n/len(scripts)+n)%len(troubles) != trouble) {
					continue
				}
				c := k
				c.script, c.trouble, c.family = s, trouble, 4+2*((n+i+trouble)%2)
				c.name = fmt.Sprintf("%s, %s, %s, IPv%d", k.name, s.name, troubles[trouble].name, c.family)
				cells = append(cells, c)
			}
		}
	}
	return cells
}

// allCells is the whole matrix. The family changes from cell to cell.
func allCells(ecn []int) (cells []cell) {
	for client := range settings {
		for server := range settings {
			for i, s := range scripts {
				for trouble := range troubles {
					cells = append(cells, settingCell(client, server, s, trouble, 4+2*((int(client+server)+i+trouble)%2)))
				}
			}
		}
	}
	return append(cells, extraCells(ecn, true)...)
}

// pairCells is a part of the matrix in which any two values of any two things meet: a switch of an end, a script, a wire,
// a family.
func pairCells(ecn []int) (cells []cell) {
	for _, row := range pairwise([]int{2, 2, 2, 2, 2, 2, len(scripts), len(troubles), 2}) {
		var ends [2]setting
		for i, on := range row[:6] {
			ends[i/3] |= setting(on) << (i % 3)
		}
		cells = append(cells, settingCell(ends[0], ends[1], scripts[row[6]], row[7], 4+2*row[8]))
	}
	return append(cells, extraCells(ecn, false)...)
}

// mostCells bounds the part that runs in CI.
const mostCells = 60

func TestPairCells(t *testing.T) {
	if got := len(pairCells([]int{0, 1, 2})); got > mostCells {
		t.Errorf("got %d cells, want at most %d", got, mostCells)
	}
	if got, want := len(allCells([]int{0, 1, 2})), (64+9+4)*len(scripts)*len(troubles); got != want {
		t.Errorf("the whole matrix: got %d cells, want %d", got, want)
	}
	names := map[string]bool{}
	for _, c := range allCells([]int{0, 1, 2}) {
		if names[c.name] {
			t.Errorf("two cells are called %q", c.name)
		}
		names[c.name] = true
	}
}

// TestMatrix transfers between kernels with every combination of TCP's options, over good and bad wires, and compares
// the streams. Nobody may reset. `make matrix` runs every cell, SPLICE_LONG=1 a part in which all pairs of choices meet.
func TestMatrix(t *testing.T) {
	ecn := ecnValues(t)
	cells := pairCells(ecn)
	switch {
	case whole:
		cells = allCells(ecn)
	case !long:
		cells = slices.DeleteFunc(cells, func(c cell) bool { return c.server%4 != 3 || c.trouble > 1 })
	}
	if *onlyCells != "" {
		only, err := regexp.Compile(*onlyCells)
		must(t, err)
		cells = slices.DeleteFunc(cells, func(c cell) bool { return !only.MatchString(c.name) })
	}
	var xs exchanges
	f := newMatrix(t, &xs, ecn)
	for k, tr := range troubles {
		of := slices.DeleteFunc(slices.Clone(cells), func(c cell) bool { return c.trouble != k })
		if len(of) == 0 {
			continue
		}
		t.Run(tr.name, func(t *testing.T) {
			f.impair(tr.how, tr.how)
			begin := time.Now()
			f.transfer(t, &xs, of)
			t.Logf("%d cells in %v; %s", len(of), time.Since(begin).Round(10*time.Millisecond), f.wireCounts())
			f.impair(port.Impairment{}, port.Impairment{})
		})
	}
	f.exercised(cells)
	f.atRest()
	f.noResets()
}

// newMatrix is a field with a client and a server for each setting and each value of tcp_ecn. Half of the servers' profiles
// are given, the runtime learns the others.
func newMatrix(t *testing.T, xs *exchanges, ecn []int) *field {
	hosts := firstECN + len(ecn)
	f := newField(t, hosts, hosts)
	for i := range hosts {
		s, value := settingOf(i), 2
		if i >= firstECN {
			value = ecn[i-firstECN]
		}
		for _, n := range []*netlab.Namespace{f.clients[i], f.servers[i]} {
			s.apply(t, n)
			must(t, n.Sysctl("net.ipv4.tcp_ecn", fmt.Sprint(value)))
			must(t, n.Sysctl("net.ipv4.tcp_ecn_fallback", "0")) // a SYN that is lost comes again as it was
			must(t, n.Sysctl("net.ipv4.tcp_fastopen", "0x207")) // both sides of it, and with data in the first SYN, without a cookie
		}
	}
	f.listenAll(xs)
	f.begin(fieldConfig(hosts, []int{plainPort, mptcpPort, fastPort}, "", func(j, family int) string {
		if family == 6 || j >= firstECN {
			return ""
		}
		return ", profile: " + profileOf(settingOf(j), family)
	}))
	f.await("every profile is known", 30*time.Second, func() bool { return f.number("runtime.profiles.unknown") == 0 })
	return f
}

// profileOf is what a kernel with a setting keeps.
func profileOf(s setting, family int) string {
	mss := 1460
	if family == 6 {
		mss = 1440
	}
	scale := ""
	if s&scaling != 0 {
		scale = ", wscale: 7"
	}
	return fmt.Sprintf("{mss: %d%s, sack: %t, timestamps: %t}", mss, scale, s&sack != 0, s&timestamps != 0)
}

// listenAll has every server listen with every flavour.
func (f *field) listenAll(xs *exchanges) {
	f.t.Helper()
	for _, n := range f.servers {
		for how, p := range map[flavour]int{plain: plainPort, multipath: mptcpPort, fastOpen: fastPort} {
			ln, err := listen(n, how, fmt.Sprintf("[::]:%d", p))
			must(f.t, err)
			f.t.Cleanup(func() { ln.Close() })
			go xs.serve(f.t, ln)
		}
	}
}

// transfer runs cells, several at a time.
func (f *field) transfer(t *testing.T, xs *exchanges, cells []cell) {
	const atOnce = 12
	room := make(chan struct{}, atOnce)
	var running sync.WaitGroup
	for i, c := range cells {
		room <- struct{}{}
		running.Go(func() {
			defer func() { <-room }()
			x, err := xs.run(f.clients[c.client], c.how, vip(c.server, c.family, c.port), c.script, byte(i))
			if err == nil {
				err = c.agreed(x.info)
			}
			if err != nil {
				t.Errorf("%s:\n%v", c.name, err)
			}
		})
	}
	running.Wait()
}

// agreed checks that both ends use the options that both have, and no other.
func (c *cell) agreed(info [2]*unix.TCPInfo) error {
	if c.how == multipath || c.port == mptcpPort {
		return nil
	}
	const (
		timestampsBit = 1 << iota // TCPI_OPT_ of linux/tcp.h
		sackBit
		scalingBit
		ecnBit
	)
	want := settingOf(c.client) & settingOf(c.server)
	for i, who := range []string{"client", "server"} {
		if info[i] == nil {
			return fmt.Errorf("the %s's kernel says nothing about its connection", who)
		}
		var got setting
		for bit, option := range map[uint8]setting{timestampsBit: timestamps, sackBit: sack, scalingBit: scaling} {
			if info[i].Options&bit != 0 {
				got |= option
			}
		}
		if got != want {
			return fmt.Errorf("the %s's connection has the options %v, want %v", who, got, want)
		}
	}
	for i, who := range []string{"client", "server"} {
		if got := info[i].Options&ecnBit != 0; got != c.ecn {
			return fmt.Errorf("the %s's connection has ECN: %t, want %t", who, got, c.ecn)
		}
	}
	return nil
}

// exercised checks that the cells of Fast Open and of MPTCP did try these.
func (f *field) exercised(cells []cell) {
	f.t.Helper()
	for _, tt := range []struct {
		how     flavour
		counter string
	}{
		{fastOpen, "TcpExt.TCPFastOpenActiveFail"}, // data in the SYN, which was not taken
		{multipath, "MPTcpExt.MPCapableFallbackSYNACK"},
	} {
		i := slices.IndexFunc(cells, func(c cell) bool { return c.how == tt.how })
		if i >= 0 && f.counter(f.clients[cells[i].client], tt.counter) == 0 {
			f.t.Errorf("%s: %s is 0", cells[i].name, tt.counter)
		}
	}
}

// wireCounts is what the wires did.
func (f *field) wireCounts() string {
	var b strings.Builder
	for i, l := range f.links {
		for j, s := range l.Stats() {
			fmt.Fprintf(&b, " %s %d frames, %d lost, %d twice, %d late, %d overrun;", [2][2]string{{"west in", "west out"}, {"east out", "east in"}}[i][j], s.Frames, s.Lost, s.Duplicated, s.Reordered, s.Overrun)
		}
	}
	return strings.TrimSpace(b.String())
}

// noResets checks that the card has sent no RST and no connection was ended by one. A kernel answers with a RST of its own
// what comes to an end that has closed already, as a segment that was overtaken by the last one; that hurts nobody, and is
// only told.
func (f *field) noResets() {
	f.t.Helper()
	for _, name := range []string{"transmit.client_end.rst", "transmit.server_end.rst", "connections.closed_rst"} {
		if got := f.number(name); got != 0 {
			f.t.Errorf("%s: got %v, want 0", name, got)
		}
	}
	late := int64(0)
	for _, n := range append(slices.Clone(f.clients), f.servers...) {
		if got := f.counter(n, "Tcp.EstabResets"); got != 0 {
			f.t.Errorf("Tcp.EstabResets at %s: got %d, want 0", n.Name(), got)
		}
		late += f.counter(n, "Tcp.OutRsts")
	}
	f.t.Logf("%d segments came to ends that had closed", late)
}
