package daemon_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"splicenic/driver"
	"splicenic/regs"
	"splicenic/runtime/daemon"
	"splicenic/runtime/view"
	"splicenic/tools/tcppeer"
)

func TestRequestsGoWhereTheRulesSay(t *testing.T) {
	r := newRig(t, small)
	r.httpServers("198.18.1.11:8080", "198.18.1.12:8080", "198.18.1.21:80", "198.18.1.31:80")
	c := r.client("198.18.0.10")
	r.apply(web)
	r.run(5 * time.Millisecond)
	for _, tt := range []struct{ host, path, want string }{
		{"img.example", "/photos/a.jpg", "198.18.1.21:80"},
		{"IMG.example:80", "/photos", "198.18.1.21:80"},
		{"img.example", "/api/x", "198.18.1.31:80"},
		{"www.example", "/api", "198.18.1.31:80"},
		// The default group: A A A B for 3:1.
		{"www.example", "/", "198.18.1.11:8080"},
		{"www.example", "/photos/", "198.18.1.11:8080"},
		{"www.example", "/apis", "198.18.1.11:8080"},
		{"www.example", "/", "198.18.1.12:8080"},
		{"www.example", "/", "198.18.1.11:8080"},
	} {
		if got := c.fetch("198.18.0.80:80", tt.host, tt.path); got != tt.want {
			t.Errorf("%s%s was answered by %q, want %q", tt.host, tt.path, got, tt.want)
		}
	}
	r.rest()
	if err := r.d.View(func(v *view.View) error {
		rules, err := v.Rules(context.Background())
		var got []string
		for _, x := range rules {
			hits := "-"
			if x.Hits != nil {
				hits = fmt.Sprint(*x.Hits)
			}
			got = append(got, fmt.Sprintf("%s %s%s %s %s %s", x.Service, x.Host, x.Path, x.Match, x.Group, hits))
		}
		want := []string{"web img.example/photos/* prefix static 2", "web /api/* prefix api 2", "web  default app -"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("rules (-want +got):\n%s", diff)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
}

// TestServiceTable: what services and their servers carried, of connections that live and of those that ended.
func TestServiceTable(t *testing.T) {
	r := newRig(t, small)
	r.httpServers("198.18.1.11:8080", "198.18.1.12:8080", "198.18.1.21:80", "198.18.1.31:80")
	c := r.client("198.18.0.10")
	r.apply(web)
	r.run(5 * time.Millisecond)
	for range 4 {
		c.fetch("198.18.0.80:80", "www.example", "/")
	}
	r.rest()
	conn := c.get("198.18.0.80:80", "img.example", "/photos")
	r.until("splice", time.Second, func() bool { return len(conn.Bytes()) > 0 })
	services := []view.Service{{Name: "web", Protocol: "tcp", Groups: []view.ServiceGroup{{Servers: []view.ServiceServer{
		{Address: "198.18.1.11:8080", Method: "nat"}, {Address: "198.18.1.12:8080", Method: "nat"}, {Address: "198.18.1.21:80", Method: "nat"}, {Address: "198.18.1.99:80", Method: "nat"},
	}}}}}
	ended := r.d.Ended()
	if err := r.d.View(func(v *view.View) error {
		table, err := v.ServiceTable(context.Background(), services, ended, true)
		if err != nil {
			return err
		}
		var got []uint64
		all := table.Services[0].Traffic
		for _, x := range table.Services[0].Groups[0].Servers {
			got = append(got, x.Traffic.Connections)
			all.PacketsServer -= x.Traffic.PacketsServer
			all.BytesServer -= x.Traffic.BytesServer
			if x.Traffic.Connections != x.Connections {
				t.Errorf("%s: %d connections, by the card %d", x.Address, x.Traffic.Connections, x.Connections)
			}
		}
		if d := cmp.Diff([]uint64{3, 1, 1, 0}, got); d != "" || table.Services[0].Traffic.Connections != 5 {
			t.Errorf("connections of %d: %s", table.Services[0].Traffic.Connections, d)
		}
		if all.PacketsServer != 0 || all.BytesServer != 0 || table.Services[0].Traffic.BytesServer == 0 {
			t.Errorf("the servers' answers are not the service's: %+v remain", all)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

const six = `
emu: {client: mem, server: mem}
ports:
  client: {addresses: [2001:db8:1::1/64]}
  server: {addresses: [2001:db8:2::1/64]}
services:
  - {name: web, listen: ["[2001:db8:9::80]:80"], default: app}
groups:
  - {name: app, servers: [{address: "[2001:db8:2::11]:8080"}]}
`

func TestIPv6(t *testing.T) {
	r := newRig(t, small)
	r.httpServers("[2001:db8:2::11]:8080")
	c := r.client("2001:db8:1::10")
	r.apply(six)
	r.run(5 * time.Millisecond)
	if got := c.fetch("[2001:db8:9::80]:80", "x", "/"); got != "[2001:db8:2::11]:8080" {
		t.Errorf("answered by %q", got)
	}
	r.rest()
}

// rest waits until every connection is over, then checks that nothing is left of them.
func (r *rig) rest() {
	r.Helper()
	g := r.card.Geometry()
	r.until("all pages free", 5*time.Second, func() bool { return r.card.Load(regs.AmuFree) == g.Pages })
	for reg, want := range map[regs.Reg]uint32{regs.AmuLive: 0, regs.HeadFree: g.Heads, regs.CamEntries: 0, regs.CamEntries.At(1, regs.CamStride): 0} {
		if got := r.card.Load(reg); got != want {
			r.Errorf("%s is %d, want %d", reg.Name(), got, want)
		}
	}
}

// A slowServer answers when the test wants it to.
type slowServer struct{ conn *tcppeer.Conn }

// slowServer is behind 198.18.1.11:8080.
func (r *rig) slowServer() *slowServer {
	s := &slowServer{}
	h := r.host(1, tcppeer.Config{Addresses: []netip.Prefix{netip.MustParsePrefix("198.18.1.11/32")}, TimeWait: -1, Handle: func(c *tcppeer.Conn, e tcppeer.Event) {
		if e == tcppeer.Established {
			s.conn = c
		}
	}})
	h.Listen(8080)
	return s
}

// edit changes a configuration in one place.
func edit(t *testing.T, text string, pairs ...string) string {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if !strings.Contains(text, pairs[i]) {
			t.Fatalf("%q is not in the configuration", pairs[i])
		}
		text = strings.Replace(text, pairs[i], pairs[i+1], 1)
	}
	return text
}

// TestIndexesStay: what is removed keeps its place, closed to new connections, until no connection names it; nothing else
// moves.
func TestIndexesStay(t *testing.T) {
	r := newRig(t, small)
	r.httpServers("198.18.1.12:8080", "198.18.1.21:80", "198.18.1.31:80", "198.18.1.13:8080")
	slow := r.slowServer()
	c := r.client("198.18.0.10")
	r.apply(web)
	r.run(5 * time.Millisecond)

	conn := c.get("198.18.0.80:80", "www.example", "/") // to the slow server
	r.until("splice", time.Second, func() bool { return slow.conn != nil })
	r.run(20 * time.Millisecond)
	before := map[string]uint32{}
	for _, a := range []string{"198.18.1.11:8080", "198.18.1.12:8080", "198.18.1.21:80", "198.18.1.31:80"} {
		i, _, ok := r.server(a)
		if !ok {
			t.Fatalf("no entry for %s", a)
		}
		before[a] = i
	}

	// Server 11 goes, server 13 comes.
	r.apply(edit(t, web, "{address: 198.18.1.11:8080, weight: 3}", "{address: 198.18.1.13:8080}"))
	for a, want := range before {
		i, e, ok := r.server(a)
		if !ok || i != want {
			t.Errorf("%s moved from %d to %d (%v)", a, want, i, ok)
		}
		if closed := a == "198.18.1.11:8080"; (e.ControlClosed != 0) != closed {
			t.Errorf("%s: closed is %d", a, e.ControlClosed)
		}
	}
	if i, _, ok := r.server("198.18.1.13:8080"); !ok || i != 4 {
		t.Errorf("the new server is at %d (%v), want 4", i, ok)
	}
	for range 4 {
		if got := c.fetchBeside("198.18.0.80:80", "www.example", "/", 1); got != "198.18.1.13:8080" && got != "198.18.1.12:8080" {
			t.Errorf("answered by %q", got)
		}
	}
	r.run(3 * time.Second)
	if _, _, ok := r.server("198.18.1.11:8080"); !ok {
		t.Error("the entry is gone, but a connection names it")
	}
	// The open connection still works, both ways.
	if !bytes.Contains(slow.conn.Bytes(), []byte("GET / ")) {
		t.Errorf("the slow server has %q", slow.conn.Bytes())
	}
	slow.conn.Write([]byte("late"))
	slow.conn.CloseWrite()
	r.until("late answer", time.Second, func() bool { return c.answers[conn] == "late" })
	r.until("entry removed", 5*time.Second, func() bool { _, _, ok := r.server("198.18.1.11:8080"); return !ok })

	// It comes back to its old place.
	r.apply(web)
	if i, e, ok := r.server("198.18.1.11:8080"); !ok || i != before["198.18.1.11:8080"] || e.ControlClosed != 0 {
		t.Errorf("the server came back at %d (%v), closed %d", i, ok, e.ControlClosed)
	}
	// 13 has no connection and goes at once.
	r.until("entry removed", 3*time.Second, func() bool { _, _, ok := r.server("198.18.1.13:8080"); return !ok })
}

// fetchBeside fetches while other connections stay open.
func (c *client) fetchBeside(vip, host, path string, others int) string {
	c.r.Helper()
	conn := c.get(vip, host, path)
	c.r.until("answer to "+host+path, 5*time.Second, func() bool { return c.open == others })
	_, body, _ := strings.Cut(c.answers[conn], "\r\n\r\n")
	return body
}

// TestRemovedVIPStays: the address of a service that is gone keeps translating and answering ARP while a connection needs
// it, takes no new connection, and goes then.
func TestRemovedVIPStays(t *testing.T) {
	r := newRig(t, small)
	slow := r.slowServer()
	c := r.client("198.18.0.10")
	two := edit(t, web, "groups:", "  - {name: old, listen: [198.18.0.81:80], default: app}\ngroups:")
	r.apply(two)
	r.run(5 * time.Millisecond)
	conn := c.get("198.18.0.81:80", "x", "/")
	r.until("splice", time.Second, func() bool { return slow.conn != nil })
	r.run(20 * time.Millisecond)
	r.apply(web)
	r.run(1500 * time.Millisecond)
	c.get("198.18.0.81:80", "x", "/")
	r.until("refusal", time.Second, func() bool { return c.reset == 1 })
	vips := func() (list []string) {
		for i := range uint32(8) {
			var e regs.AddressEntry
			if e.Decode(r.entry(regs.MemVip, 0, i)); e.ControlValid != 0 {
				list = append(list, driver.Address(e.ControlKind, e.Address).String())
			}
		}
		return list
	}
	if diff := cmp.Diff([]string{"198.18.0.80", "198.18.0.81"}, vips()); diff != "" {
		t.Errorf("VIPs (-want +got):\n%s", diff)
	}
	slow.conn.Write([]byte("late"))
	slow.conn.CloseWrite()
	r.until("late answer", time.Second, func() bool { return c.answers[conn] == "late" })
	r.until("VIP removed", 15*time.Second, func() bool { return len(vips()) == 1 })
}

// TestCaseF01: a configuration with a mistake changes nothing, says where the mistake is, and is remembered.
func TestCaseF01(t *testing.T) {
	r := newRig(t, small)
	r.httpServers("198.18.1.11:8080", "198.18.1.12:8080")
	c := r.client("198.18.0.10")
	r.apply(web)
	r.run(5 * time.Millisecond)
	stores := r.card.Load(regs.TableBank)
	for _, tt := range []struct{ name, text, want string }{
		{"key without value", edit(t, web, "    default: app", "    default: app\n    connect_port:"), "test.yaml:14:5: services[0].connect_port: unknown key of a service"},
		{"known key without value", edit(t, web, "    default: app", "    default:"), "test.yaml:13:5: services[0].default: has no value"},
		{"contradiction", edit(t, web, "198.18.1.31:80", "203.0.113.1:80"), ""},
		{"needs a restart", web + "seed: 5\n", "seed changed: needs a restart"},
	} {
		_, err := r.d.Load(context.Background(), "test.yaml", []byte(tt.text))
		if tt.want == "" { // a gateway leads there
			if err != nil {
				t.Errorf("%s: %v", tt.name, err)
			}
			r.apply(web)
			stores = r.card.Load(regs.TableBank)
			continue
		}
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %q", tt.name, err, tt.want)
		}
		if got := r.d.Status().LastReload; got == nil || got.OK || got.Error != err.Error() || got.At.Year() != 2026 {
			t.Errorf("%s: last reload %+v", tt.name, got)
		}
		if got := r.card.Load(regs.TableBank); got != stores {
			t.Errorf("%s: bank register went from %#x to %#x", tt.name, stores, got)
		}
		if got := c.fetch("198.18.0.80:80", "www.example", "/"); got == "" {
			t.Errorf("%s: traffic stopped", tt.name)
		}
	}
	r.apply(web)
	if got := r.d.Status().LastReload; got == nil || !got.OK {
		t.Errorf("last reload %+v", got)
	}
}

// TestOnlyWhatChangesIsWritten: weights change slots and no bank; a neighbour changes its next hop and nothing else.
func TestOnlyWhatChangesIsWritten(t *testing.T) {
	r := newRig(t, small)
	r.httpServers("198.18.1.11:8080", "198.18.1.12:8080")
	c := r.client("198.18.0.10")
	r.apply(web)
	r.run(5 * time.Millisecond)
	bank := r.card.Load(regs.TableBank)
	selector := func() uint32 { return r.entry(regs.MemGroupState, 0, 0)[regs.GroupStateSelector] }
	was := selector()
	r.apply(edit(t, web, "weight: 3", "weight: 1"))
	if got := r.card.Load(regs.TableBank); got != bank {
		t.Errorf("a weight switched the bank: %#x to %#x", bank, got)
	}
	if got := selector(); got == was || regs.GroupStateSelectorArea(got) == regs.GroupStateSelectorArea(was) {
		t.Errorf("selector went from %#x to %#x", was, got)
	}
	seen := map[string]int{}
	for range 8 {
		seen[c.fetch("198.18.0.80:80", "x", "/")]++
	}
	if diff := cmp.Diff(map[string]int{"198.18.1.11:8080": 4, "198.18.1.12:8080": 4}, seen); diff != "" {
		t.Errorf("after the change (-want +got):\n%s", diff)
	}
	r.apply(edit(t, web, "weight: 3", "weight: 0"))
	for range 4 {
		if got := c.fetch("198.18.0.80:80", "x", "/"); got != "198.18.1.12:8080" {
			t.Errorf("weight 0: answered by %s", got)
		}
	}
	was = selector()
	r.apply(edit(t, web, "weight: 3", "weight: 0"))
	if got := selector(); got != was {
		t.Error("the same configuration switched slots")
	}
	// Another bank comes with another route.
	r.apply(edit(t, web, "/photos/*", "/pictures/*"))
	if got := r.card.Load(regs.TableBank); regs.TableBankBank(got) == regs.TableBankBank(bank) || regs.TableBankGeneration(got) != regs.TableBankGeneration(bank)+1 {
		t.Errorf("bank register went from %#x to %#x", bank, got)
	}
}

// TestNextHops: a next hop is resolved when the server answers, follows it to another MAC address, and is given up when
// it no longer answers.
func TestNextHops(t *testing.T) {
	r := newRig(t, small)
	r.load(web)
	r.run(5 * time.Millisecond)
	hop := func(addr string) (e regs.NextHopEntry) {
		_, s, ok := r.server(addr)
		if !ok {
			t.Fatalf("no entry for %s", addr)
		}
		e.Decode(r.entry(regs.MemNextHop, 0, s.RouteNextHop))
		return e
	}
	if e := hop("198.18.1.11:8080"); e.ControlValid != 1 || e.ControlResolved != 0 || e.ControlPort != 1 {
		t.Errorf("at first %+v", e)
	}
	r.httpServers("198.18.1.11:8080")
	r.run(2 * time.Second)
	e := hop("198.18.1.11:8080")
	if got := driver.MAC(e.MacLo, e.MacHiAddress); e.ControlResolved != 1 || got != [6]byte{2, 0xaa, 1, 0, 0, 1} {
		t.Errorf("resolved %+v, %v", e, got)
	}
	// It moves, and says so.
	r.nets[1].hosts = nil
	moved := [6]byte{2, 0xaa, 9, 9, 9, 9}
	r.nets[1].send(gratuitous(t, moved, "198.18.1.11"))
	r.run(3 * time.Millisecond)
	e = hop("198.18.1.11:8080")
	if got := driver.MAC(e.MacLo, e.MacHiAddress); e.ControlResolved != 1 || got != moved {
		t.Errorf("moved %+v, %v", e, got)
	}
	r.run(40 * time.Second)
	if e := hop("198.18.1.11:8080"); e.ControlResolved != 0 || e.ControlValid != 1 {
		t.Errorf("gone %+v", e)
	}
}

func gratuitous(t *testing.T, mac [6]byte, addr string) []byte {
	t.Helper()
	buf := gopacket.NewSerializeBuffer()
	a := netip.MustParseAddr(addr).AsSlice()
	err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true},
		&layers.Ethernet{SrcMAC: mac[:], DstMAC: bytes.Repeat([]byte{0xff}, 6), EthernetType: layers.EthernetTypeARP},
		&layers.ARP{AddrType: layers.LinkTypeEthernet, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6, ProtAddressSize: 4, Operation: layers.ARPRequest,
			SourceHwAddress: mac[:], SourceProtAddress: a, DstHwAddress: make([]byte, 6), DstProtAddress: a})
	if err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// TestRefusals: what cannot be served is refused at once, and counted.
func TestRefusals(t *testing.T) {
	r := newRig(t, small)
	r.httpServers("198.18.1.21:80")
	c := r.client("198.18.0.10")
	r.apply(edit(t, web, "    default: app\n", "", "{host: img.example, path: /photos/*, to: static}", "{host: img.example, path: /photos/*, to: app}\n      - {path: /ok, to: static}",
		"weight: 3}, {address: 198.18.1.12:8080}", "weight: 0}"))
	r.run(5 * time.Millisecond)
	c.get("198.18.0.80:81", "x", "/") // no listener
	r.until("reset", time.Second, func() bool { return c.reset == 1 })
	for _, tt := range []struct{ host, path, want string }{
		{"x", "/nothing", "404 Not Found"},                    // no rule
		{"a b", "/", "400 Bad Request"},                       // no request
		{"img.example", "/photos", "503 Service Unavailable"}, // no server with a weight
	} {
		if got := c.answer("198.18.0.80:80", tt.host, tt.path, time.Second); !strings.HasPrefix(got, "HTTP/1.1 "+tt.want+"\r\n") || !strings.HasSuffix(got, "\r\n\r\n"+tt.want+"\n") {
			t.Errorf("%s %.20s: %q, want %s", tt.host, tt.path, got, tt.want)
		}
	}
	if got := c.fetch("198.18.0.80:80", "x", "/ok"); got != "198.18.1.21:80" {
		t.Errorf("answered by %q", got)
	}
	r.rest()
	counters := r.d.Counters()
	actions := counters["actions"].(view.Stats)
	if actions["reset"] != uint64(1) || actions["refused"] != uint64(0) || actions["replied"] != uint64(3) {
		t.Errorf("counters %v", actions)
	}
	closed := counters["closed"].(view.Stats)
	if host, none := closed["host"], closed["abort_no_server"]; host != uint64(0) || none != uint64(0) {
		t.Errorf("%v connections ended by the host, %v for want of a server; want none", host, none)
	}
}

// TestSameInputSameOutput: the frames of two runs are the same, byte by byte.
func TestSameInputSameOutput(t *testing.T) {
	one := func() (frames [][]byte) {
		r := newRig(t, small)
		r.httpServers("198.18.1.11:8080", "198.18.1.12:8080", "198.18.1.21:80", "198.18.1.31:80")
		c := r.client("198.18.0.10")
		for _, n := range r.nets {
			n.record = true
		}
		r.apply(web)
		r.run(5 * time.Millisecond)
		for i := range 20 {
			c.fetch("198.18.0.80:80", "img.example", fmt.Sprintf("/photos/%d", i))
			c.fetch("198.18.0.80:80", "x", "/")
			if i == 10 {
				r.apply(edit(t, web, "{address: 198.18.1.12:8080}", "{address: 198.18.1.12:8080, weight: 2}"))
			}
		}
		r.rest()
		return append(r.nets[0].frames, r.nets[1].frames...)
	}
	a, b := one(), one()
	if len(a) != len(b) {
		t.Fatalf("%d frames, then %d", len(a), len(b))
	}
	for i := range a {
		if !bytes.Equal(a[i], b[i]) {
			t.Fatalf("frame %d of %d differs:\n%x\n%x", i, len(a), a[i], b[i])
		}
	}
}

func TestResetWritesTheTablesAgain(t *testing.T) {
	r := newRig(t, small)
	r.httpServers("198.18.1.11:8080", "198.18.1.12:8080")
	c := r.client("198.18.0.10")
	r.apply(web)
	r.run(5 * time.Millisecond)
	if err := r.d.Reset(context.Background()); err != nil {
		t.Fatal(err)
	}
	r.run(5 * time.Millisecond)
	if got := c.fetch("198.18.0.80:80", "x", "/"); got != "198.18.1.11:8080" {
		t.Errorf("answered by %q", got)
	}
	if st := r.d.Status(); st.TableErrors != 0 {
		t.Errorf("%d table errors", st.TableErrors)
	}
}

func TestTooLargeForTheCard(t *testing.T) {
	r := newRig(t, small)
	r.apply(web)
	bank := r.card.Load(regs.TableBank)
	var b strings.Builder
	for i := range r.card.Geometry().Slots + 1 {
		fmt.Fprintf(&b, "      - {address: \"198.18.1.%d:%d\"}\n", 100+i%100, 1000+i)
	}
	_, err := r.d.Load(context.Background(), "test.yaml", []byte(edit(t, web, "    servers: [{address: 198.18.1.11:8080, weight: 3}, {address: 198.18.1.12:8080}]\n", "    servers:\n"+b.String())))
	if err == nil || !strings.Contains(err.Error(), "group app: more servers than slots: 1025 of 1024") {
		t.Errorf("error %v", err)
	}
	if got := r.card.Load(regs.TableBank); got != bank {
		t.Errorf("bank register went from %#x to %#x", bank, got)
	}
}

func TestLostCard(t *testing.T) {
	r := newRig(t, small)
	r.apply(web)
	r.run(5 * time.Millisecond)
	r.emu.Lose()
	r.card.Load(regs.AmuFree)
	if err := r.d.Step(r.now); !errors.Is(err, r.card.Err()) || err == nil {
		t.Errorf("step: %v", err)
	}
	if _, err := r.d.Load(context.Background(), "x", []byte(edit(t, web, "/photos/*", "/p/*"))); err == nil {
		t.Error("a configuration was applied to a lost card")
	}
	if got := r.d.Configuration().File; got != "test.yaml" {
		t.Errorf("configuration %s", got)
	}
}

// TestLinkComesBack: the card's addresses are announced again.
func TestLinkComesBack(t *testing.T) {
	r := newRig(t, small)
	r.apply(web)
	r.run(5 * time.Second)
	announced := func() uint64 { return r.d.Counters()["actions"].(view.Stats)["announced"].(uint64) }
	was := announced()
	r.emu.SetLinkDown(0, true)
	r.run(2 * time.Second)
	r.emu.SetLinkDown(0, false)
	r.run(5 * time.Second)
	if got := announced(); got < was+9 { // three addresses, three times
		t.Errorf("announced %d times more", got-was)
	}
}

// TestViewOfAConnection: a connection is shown with what its page says, while it lives.
func TestViewOfAConnection(t *testing.T) {
	r := newRig(t, small)
	slow := r.slowServer()
	c := r.client("198.18.0.10")
	r.apply(edit(t, web, "{address: 198.18.1.11:8080, weight: 3}", "{address: 198.18.1.11:8080, weight: 3, profile: {mss: 1460, sack: true}}", ", {address: 198.18.1.12:8080}", ""))
	r.run(5 * time.Millisecond)
	conn := c.get("198.18.0.80:80", "www.example", "/")
	r.until("splice", time.Second, func() bool { return slow.conn != nil && len(slow.conn.Bytes()) > 0 })
	r.run(50 * time.Millisecond)
	_, isn := conn.Sequence()
	serverISN, clientISN := slow.conn.Sequence()
	err := r.d.View(func(v *view.View) error {
		ctx := context.Background()
		list, err := v.Connections(ctx, view.Filter{Service: "web", State: "spliced"})
		if err != nil || len(list) != 1 {
			return fmt.Errorf("%d connections, %v", len(list), err)
		}
		one, err := v.Connection(ctx, list[0].ID)
		if err != nil {
			return err
		}
		want := view.Connection{
			ID: one.ID, N: one.N, L: fmt.Sprintf("0x%x", one.N*256), Generation: one.Generation, State: "spliced", IPVS: "ESTABLISHED", Method: "nat", Service: "web", Client: conn.Local().String(),
			VIP: "198.18.0.80:80", Server: "198.18.1.11:8080", Group: "app", Delta: isn - serverISN, ISN: isn, ServerISN: serverISN,
			PacketsClient: one.PacketsClient, PacketsServer: one.PacketsServer, BytesClient: one.BytesClient, BytesServer: 0, IdleMS: one.IdleMS, AgeMS: one.AgeMS,
			MSS: 536, Legs: one.Legs, // other groups of the service keep no more
		}
		if diff := cmp.Diff(want, one); diff != "" {
			t.Errorf("connection (-want +got):\n%s", diff)
		}
		if len(one.Legs) != 1 || !one.Legs[0].Armed || one.Legs[0].Server != "198.18.1.11:8080" || one.IdleMS < 40 {
			t.Errorf("legs %+v, idle %d", one.Legs, one.IdleMS)
		}
		page, err := v.Page(ctx, one.N, true)
		if err != nil {
			return err
		}
		for name, want := range map[string]any{"control.state": "spliced", "control.kind": "ipv4", "client_isn": clientISN, "isn": isn, "client_address": "198.18.0.10", "ports.vip": uint32(80)} {
			if got := page.Fields[name]; got != want {
				t.Errorf("page %d: %s is %v (%T), want %v", one.N, name, got, got, want)
			}
		}
		cams, err := v.CAM(ctx, 0, 0)
		if err != nil || len(cams) != 1 || cams[0].N != one.N || cams[0].Address != "198.18.0.10" || cams[0].Destination != 80 {
			t.Errorf("client CAM %+v, %v", cams, err)
		}
		found, err := v.CAMLookup(ctx, 1, view.CAMQuery{Key: driver.Key{Protocol: 6, Addr: netip.MustParseAddr("198.18.0.10"), Port: conn.Local().Port()}, Server: netip.MustParseAddrPort("198.18.1.11:8080")})
		if err != nil || found.N != one.N || found.Leg != "a" {
			t.Errorf("server CAM %+v, %v", found, err)
		}
		events, err := v.Events(ctx, nil)
		if err != nil || len(events) != 0 {
			t.Errorf("events %v, %v", events, err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	slow.conn.CloseWrite()
	r.rest()
	events := r.d.Events(10)
	if err := r.d.View(func(v *view.View) error {
		list, err := v.Events(context.Background(), events)
		var got []string
		for _, e := range list {
			got = append(got, e.Type+" "+e.Reason+" "+e.Service+" "+e.Server)
		}
		want := []string{"opened none web ", "spliced none web 198.18.1.11:8080", "closed fin web 198.18.1.11:8080"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
}

func TestRun(t *testing.T) {
	r := newRig(t, small)
	d, err := daemon.New(daemon.Config{Card: r.card})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Apply(context.Background(), mustParse(t, web)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- d.Run(ctx) }()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("run: %v", err)
	}
}
