package acceptance

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"splicenic/tools/netlab"
)

var update = flag.Bool("update", false, "write the measured tables anew")

// fileBytes is the length of what is downloaded.
const fileBytes = 20 << 10

// methods are the rows of the table: how packets reach a server, what that asks of it, and where it may be.
var methods = []struct {
	name, config   string
	port           uint16 // of the service
	direct         bool
	needs, network string
}{
	{"nat", "mode: nat, protocol: tcp", 8001, false, "the card as its gateway", "one that leads answers back to the card"},
	{"fullnat", "mode: fullnat, protocol: tcp", 8002, false, "nothing", "any that the card reaches"},
	{"tun", "mode: tun, protocol: tcp", 8003, true, "the VIP on lo, a tunnel's end, no rp_filter there", "any that the card reaches"},
	{"dr", "mode: dr, protocol: tcp", 8006, true, "the VIP on lo, silence about it by ARP", "the card's own segment"},
	{"splice", "mode: splice, protocol: http", 8000, false, "the card as its gateway", "one that leads answers back to the card"},
}

// traffic is what arrived at the card from one side.
type traffic struct{ packets, bytes float64 }

// A method's measure is the traffic of a download on average.
type measure struct{ requests, answers traffic }

// TestMethods compares the methods by what passes the card when files are downloaded, and the table with the one that is
// kept. Packets are IP packets of at most 1,500 bytes as they arrive at the card, none of them coalesced.
func TestMethods(t *testing.T) {
	n := 50
	if long {
		n = 1000
	}
	f := newFarm(t, 1)
	f.uncoalesced()
	file := bytes.Repeat([]byte("a file to be measured by\n"), fileBytes/25+1)[:fileBytes]
	var config strings.Builder
	config.WriteString(farmPorts + "services:\n")
	for _, m := range methods {
		fmt.Fprintf(&config, "  - {name: %s, listen: [\"%s:%d\"], %s, default: %s}\n", m.name, farm4, m.port, m.config, m.name)
	}
	config.WriteString("groups:\n")
	for _, m := range methods {
		b, at := f.routed[0], netip.AddrPortFrom(f.routed[0].a4, m.port+1000)
		server := at
		if m.direct {
			b, at = f.direct[0], netip.AddrPortFrom(netip.MustParseAddr(farm4), m.port)
			server = netip.AddrPortFrom(b.a4, m.port)
		}
		fmt.Fprintf(&config, "  - {name: %s, check: {type: none}, servers: [{address: \"%s\"}]}\n", m.name, server)
		f.serveFile(b, at, file)
	}
	f.begin(config.String())
	f.set("timer.closing", 2000)

	table := heading
	for _, m := range methods {
		got := f.measure(t, m.port, n, file)
		table += row(m.name, m.needs, m.network, &got)
		switch {
		case m.direct && got.answers.packets != 0:
			t.Errorf("%s: %v packets of an answer came through the card", m.name, got.answers.packets)
		case !m.direct && (got.answers.bytes < fileBytes || got.answers.bytes > 1.2*fileBytes):
			t.Errorf("%s: %.0f bytes of an answer came through the card, want those of a file of %d with its headers", m.name, got.answers.bytes, fileBytes)
		}
		if got.requests.packets < 5 || got.requests.bytes > fileBytes/4 {
			t.Errorf("%s: a request had %.1f packets of %.0f bytes", m.name, got.requests.packets, got.requests.bytes)
		}
	}
	f.atRest()
	t.Logf("%d downloads of %d bytes each:\n%s", n, fileBytes, table)
	kept := filepath.Join("testdata", "methods.txt")
	if *update {
		must(t, os.WriteFile(kept, []byte(table), 0o644))
		return
	}
	want, err := os.ReadFile(kept)
	must(t, err)
	if d := differs(string(want), table); d != "" {
		t.Errorf("the table is not as %s has it; -update writes it anew: %s", kept, d)
	}
}

// uncoalesced has every interface send and receive packets as a wire carries them.
func (f *farm) uncoalesced() {
	f.t.Helper()
	off := func(n *netlab.Namespace, names ...string) {
		for _, name := range names {
			must(f.t, n.Offload(name, netlab.Offload{}))
		}
	}
	off(f.client, "eth0")
	off(f.card, "eth1", "eth2")
	off(f.servers, "card")
	for _, b := range f.routed {
		off(b.Namespace, "eth0")
		off(f.servers, b.Name())
	}
	for _, b := range f.direct {
		off(b.Namespace, "eth0", "eth1")
		off(f.servers, b.Name())
		off(f.client, b.Name())
	}
}

// serveFile has a server offer a file until the test ends.
func (f *farm) serveFile(b *backend, at netip.AddrPort, file []byte) {
	f.t.Helper()
	ln, err := b.Listen("tcp", at.String())
	must(f.t, err)
	s := &http.Server{ReadHeaderTimeout: patience, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(len(file)))
		_, _ = w.Write(file) // the client says what it got
	})}
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(ln) })
	f.t.Cleanup(func() { s.Close(); serving.Wait() })
}

// measure downloads a file n times, a connection each, and returns what came to the card for one.
func (f *farm) measure(t *testing.T, port uint16, n int, file []byte) (m measure) {
	t.Helper()
	requests := f.watch(t, f.card, "eth1", unix.ETH_P_IP)
	answers := f.watch(t, f.card, "eth2", unix.ETH_P_IP)
	c := &http.Client{Transport: &http.Transport{DialContext: f.client.Dial, DisableKeepAlives: true}, Timeout: patience}
	for i := range n {
		if err := download(c, netip.AddrPortFrom(netip.MustParseAddr(farm4), port), file); err != nil {
			t.Fatalf("download %d at port %d: %v", i, port, err)
		}
	}
	settled := func() float64 {
		return count(requests.seen(), port, n).packets + count(answers.seen(), port, n).packets
	}
	for last := -1.0; last != settled(); { // the last ACK may be under way
		last = settled()
		time.Sleep(50 * time.Millisecond)
	}
	return measure{count(requests.stop(), port, n), count(answers.stop(), port, n)}
}

func download(c *http.Client, at netip.AddrPort, want []byte) error {
	r, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://"+at.String()+"/file", nil)
	if err != nil {
		return err
	}
	a, err := c.Do(r)
	if err != nil {
		return err
	}
	defer a.Body.Close()
	got, err := io.ReadAll(a.Body)
	if err == nil && !bytes.Equal(got, want) {
		err = fmt.Errorf("%d bytes came that are not the file", len(got))
	}
	return err
}

// count is what n downloads from a service's port, or from the server's that belongs to it, have on average.
func count(frames [][]byte, port uint16, n int) (sum traffic) {
	const etherBytes = 14
	for _, b := range frames {
		from, to, ok := ends(b)
		if ok && (to.Port() == port || from.Port() == port || from.Port() == port+1000) {
			sum.packets++
			sum.bytes += float64(len(b) - etherBytes)
		}
	}
	return traffic{sum.packets / float64(n), sum.bytes / float64(n)}
}

const heading = `# What passes the card when a file of 20,480 bytes is downloaded, a connection each: IP packets as they arrive from clients
# and from servers, per download. Written by go test ./tools/acceptance -run TestMethods -update; a run may differ by a fifth.
` + "method   | a server needs                                    | network of the server                   | packets to servers | bytes | packets to clients | bytes\n"

func row(name, needs, network string, m *measure) string {
	return fmt.Sprintf("%-8s | %-49s | %-39s | %18.0f | %5.0f | %18.0f | %5.0f\n", name, needs, network,
		m.requests.packets, round(m.requests.bytes), m.answers.packets, round(m.answers.bytes))
}

// round rounds to tens.
func round(x float64) float64 { return math.Round(x/10) * 10 }

var numbers = regexp.MustCompile(`\b[0-9]+\b`)

// differs compares two tables: their words have to be the same, and their numbers nearly.
func differs(want, got string) string {
	a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
	if len(a) != len(b) {
		return fmt.Sprintf("%d lines, want %d", len(b), len(a))
	}
	for i := range a {
		words := func(s string) string { return strings.Join(strings.Fields(numbers.ReplaceAllString(s, "N")), " ") }
		if words(a[i]) != words(b[i]) {
			return fmt.Sprintf("got %q, want %q", b[i], a[i])
		}
		x, y := numbers.FindAllString(a[i], -1), numbers.FindAllString(b[i], -1)
		for k := range x {
			u, _ := strconv.ParseFloat(x[k], 64) // the pattern is one of numbers
			v, _ := strconv.ParseFloat(y[k], 64)
			if math.Abs(u-v) > max(2, u/5) {
				return fmt.Sprintf("got %s where %s was: %q", y[k], x[k], b[i])
			}
		}
	}
	return ""
}

func TestMethodsDiffer(t *testing.T) {
	const line = "nat | a word | 10 | 1000"
	for _, tt := range []struct {
		name, got string
		same      bool
	}{
		{"the same", line, true},
		{"nearly", "nat |   a word | 12 | 1190", true},
		{"packets", "nat | a word | 13 | 1000", false},
		{"bytes", "nat | a word | 10 | 1300", false},
		{"words", "nat | a verb | 10 | 1000", false},
		{"a line more", line + "\n" + line, false},
	} {
		if d := differs(line, tt.got); (d == "") != tt.same {
			t.Errorf("%s: %q", tt.name, d)
		}
	}
}
