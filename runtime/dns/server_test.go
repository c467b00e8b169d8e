package dns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"
)

// patience bounds what a test waits for.
const patience = 20 * time.Second

// await waits until f says yes.
func await(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !f(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("still not: %s", what)
		}
	}
}

// free is a loopback address whose port is free for UDP and TCP now.
func free(t *testing.T, host string) netip.AddrPort {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", host+":0")
		if err != nil {
			t.Skipf("%s is no address here: %v", host, err)
		}
		at := netip.MustParseAddrPort(l.Addr().String())
		u, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
		l.Close()
		if err == nil {
			u.Close()
			return at
		}
	}
	t.Fatal("no free port")
	return netip.AddrPort{}
}

// run runs a server until the test ends, or the function it returns is called. Then nothing of it is left.
func run(t *testing.T, s *Server) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Run(ctx)
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		<-done
	})
	t.Cleanup(stop)
	return stop
}

// listening publishes for a text whose %s is the address that it then listens on.
func listening(t *testing.T, text string) (s *Server, at netip.AddrPort) {
	t.Helper()
	at = free(t, "127.0.0.1")
	s = New(Config{})
	s.Publish(load(t, fmt.Sprintf(text, at)), allBut())
	run(t, s)
	await(t, "a zone", func() bool { return s.zone.Load() != nil })
	return s, at
}

const plain = `{zone: lb.example, listen: "%s", address: 198.51.100.1, nameserver: ns1.lb.example, records: [{name: www, service: web4}]`

// query asks until the server listens.
func query(t *testing.T, network string, at netip.AddrPort, q *dns.Msg) *dns.Msg {
	t.Helper()
	c := &dns.Client{Net: network, Timeout: time.Second}
	var r *dns.Msg
	var err error
	await(t, "an answer by "+network, func() bool {
		r, _, err = c.Exchange(q, at.String())
		return err == nil
	})
	return r
}

func addressesOf(r *dns.Msg) (list []string) {
	for _, rr := range r.Answer {
		if a, ok := address(rr); ok {
			list = append(list, a.String())
		}
	}
	slices.Sort(list)
	return list
}

func TestServe(t *testing.T) {
	s, at := listening(t, plain+`, transfer: [198.51.100.0/24]}`)
	for _, network := range []string{"udp", "tcp"} {
		r := query(t, network, at, asks("wWw.lb.example.", dns.TypeA))
		if diff := cmp.Diff([]string{"198.18.0.80", "198.18.0.81"}, addressesOf(r)); diff != "" || r.Answer[0].Header().Name != "wWw.lb.example." || r.Answer[0].Header().Ttl != 5 {
			t.Errorf("%s: %v (-want +got):\n%s", network, r, diff)
		}
		if r := query(t, network, at, asks("lb.example.", dns.TypeAXFR)); r.Rcode != dns.RcodeRefused {
			t.Errorf("%s: transfer to a stranger: %v", network, r)
		}
	}
	// Bytes that are no question get an answer that says so, and answers get none.
	c, err := net.Dial("udp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.Write([]byte{1, 2, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0}) // an answer
	c.Write([]byte{1, 2, 3})
	c.Write([]byte{1, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 63})
	c.SetReadDeadline(time.Now().Add(patience))
	b := make([]byte, 512)
	if n, err := c.Read(b); err != nil || n != 12 || b[3]&15 != dns.RcodeFormatError {
		t.Errorf("%x, %v", b[:n], err)
	}
	await(t, "counted", func() bool { n := s.Counters(); return n["ignored"] == 2 && n["other"] == 1 && n["refused"] == 2 })

	v := s.Show()
	if !v.Known || v.Serial == 0 || len(v.Records) != 2 || v.Records[1].Name != "www.lb.example." || len(v.Troubles) != 0 {
		t.Errorf("shown: %+v", v)
	}
}

func TestTransfer(t *testing.T) {
	_, at := listening(t, plain+`, transfer: [127.0.0.0/8]}`)
	query(t, "tcp", at, asks("lb.example.", dns.TypeSOA))
	for _, kind := range []uint16{dns.TypeAXFR, dns.TypeIXFR} {
		q := asks("LB.example.", kind)
		if kind == dns.TypeIXFR {
			q.SetIxfr("LB.example.", 1, "a.", "b.")
		}
		envelopes, err := new(dns.Transfer).In(q, at.String())
		if err != nil {
			t.Fatal(err)
		}
		var kinds []string
		for e := range envelopes {
			if e.Error != nil {
				t.Fatal(e.Error)
			}
			for _, rr := range e.RR {
				kinds = append(kinds, dns.TypeToString[rr.Header().Rrtype])
			}
		}
		if diff := cmp.Diff([]string{"SOA", "NS", "A", "A", "A", "SOA"}, kinds); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	if r := query(t, "udp", at, asks("lb.example.", dns.TypeAXFR)); r.Rcode != dns.RcodeRefused {
		t.Errorf("by UDP: %v", r)
	}
}

// TestQuorum follows a service down and up again, with a runtime that knows nothing yet before.
func TestQuorum(t *testing.T) {
	at := free(t, "127.0.0.1")
	file := filepath.Join(t.TempDir(), "lb.zone")
	c := load(t, fmt.Sprintf(plain, at)+", file: "+file+"}")
	s := New(Config{})
	s.Publish(c, nil)
	run(t, s)
	ask := func() *dns.Msg { return query(t, "udp", at, asks("www.lb.example.", dns.TypeA, edns(1232))) }
	if r := ask(); r.Rcode != dns.RcodeServerFailure {
		t.Errorf("before: %v", r)
	}
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file of a zone that is not known: %v", err)
	}
	var last uint32
	for i, quorum := range []func(string) bool{allBut(), allBut("web4"), allBut()} {
		s.Publish(c, quorum)
		want := dns.RcodeSuccess
		if i == 1 {
			want = dns.RcodeServerFailure
		}
		await(t, "the answer follows", func() bool { return ask().Rcode == want })
		await(t, "the file follows", func() bool {
			text, err := os.ReadFile(file)
			return err == nil && strings.Contains(string(text), "A\t198.18.0.80") == (i != 1)
		})
		serial, ok, err := readSerial(file)
		if !ok || err != nil || int32(serial-last) <= 0 {
			t.Errorf("serial %d after %d: %v", serial, last, err)
		}
		last = serial
	}
	s.Publish(c, allBut()) // nothing new
	s.Publish(nil, nil)
	await(t, "nothing is published", func() bool { return s.Show() == nil && s.zone.Load() == nil })
	if serial, _, _ := readSerial(file); serial != last {
		t.Errorf("serial %d after %d, and nothing changed", serial, last)
	}
}

// TestSerialGrows restarts a server whose clock has gone back.
func TestSerialGrows(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lb.zone")
	c := load(t, `{zone: lb.example, address: 198.51.100.1, nameserver: ns1.lb.example, records: [{name: www, service: web4}], file: `+file+"}")
	var last uint32
	for i, clock := range []int64{1_800_000_000, 1_700_000_000, 1_700_000_000, 1_900_000_000} {
		s := New(Config{Now: func() time.Time { return time.Unix(clock, 0) }})
		s.Publish(c, allBut())
		stop := run(t, s)
		await(t, "a new serial number", func() bool { n, ok, _ := readSerial(file); return ok && n != last })
		stop()
		serial, _, _ := readSerial(file)
		if serial <= last {
			t.Errorf("run %d: serial %d after %d", i, serial, last)
		}
		last = serial
	}
	if last != 1_900_000_000 {
		t.Errorf("serial %d", last)
	}
}

// TestTrouble has a file that cannot be written and an address that is taken, until both are well.
func TestTrouble(t *testing.T) {
	dir := t.TempDir()
	at := free(t, "127.0.0.1")
	taken, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "later", "lb.zone")
	s := New(Config{})
	s.Publish(load(t, fmt.Sprintf(plain, at)+", file: "+file+"}"), allBut())
	run(t, s)
	await(t, "two troubles", func() bool { return len(s.Show().Troubles) == 2 })
	taken.Close()
	if err := os.Mkdir(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	await(t, "none", func() bool { return len(s.Show().Troubles) == 0 })
	query(t, "tcp", at, asks("www.lb.example.", dns.TypeA))
	if n := s.Counters(); n["file_errors"] == 0 {
		t.Errorf("counters: %v", n)
	}
}

// TestCrowd takes every place for connections. Datagrams are answered all the same, and places come back.
func TestCrowd(t *testing.T) {
	s, at := listening(t, plain+"}")
	query(t, "tcp", at, asks("www.lb.example.", dns.TypeA))
	var crowd []net.Conn
	for range maxConnections + 5 {
		c, err := net.Dial("tcp", at.String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		crowd = append(crowd, c)
	}
	await(t, "some turned away", func() bool { return s.Counters()["connections_crowded"] >= 4 })
	query(t, "udp", at, asks("www.lb.example.", dns.TypeA))
	for _, c := range crowd {
		c.Close()
	}
	query(t, "tcp", at, asks("www.lb.example.", dns.TypeA))
}

// A director is one of several that know each other.
type director struct {
	*Server
	at   netip.AddrPort
	stop func()
	lose func(lost bool)
}

// directors runs three of them, each at a loopback address of its own and with a VIP of its own.
func directors(t *testing.T) (all [3]director) {
	for i := range all {
		all[i].at = free(t, fmt.Sprintf("127.0.0.%d", i+1))
	}
	for i := range all {
		var peers []string
		for n := range all {
			if n != i {
				peers = append(peers, fmt.Sprintf(`{address: "%s", nameserver: ns%d.lb.example, vips: [198.18.0.%d]}`, all[n].at, n+1, 101+n))
			}
		}
		text := strings.Replace(file, "198.18.0.80:80, 198.18.0.81:80, 198.18.0.80:8080", fmt.Sprintf("198.18.0.%d:80", 101+i), 1)
		text += fmt.Sprintf(`{zone: lb.example, listen: "%s", nameserver: ns%d.lb.example, ttl: 1s, records: [{name: www, service: web4}, {name: "@", service: web4}], peers: [%s]}`,
			all[i].at, i+1, strings.Join(peers, ", "))
		c := loadWhole(t, text)
		s := New(Config{})
		s.Publish(c, allBut())
		all[i].Server = s
		all[i].lose = func(lost bool) {
			if lost {
				s.Publish(c, allBut("web4"))
				return
			}
			s.Publish(c, allBut())
		}
		all[i].stop = run(t, s)
	}
	return all
}

// TestPeers has three directors publish each other's VIPs, lose the quorum of one, end one and lose all.
func TestPeers(t *testing.T) {
	all := directors(t)
	sees := func(i int, want ...string) func() bool {
		return func() bool {
			r := query(t, "udp", all[i].at, asks("www.lb.example.", dns.TypeA))
			return slices.Equal(addressesOf(r), want) && (r.Rcode == dns.RcodeSuccess) == (len(want) > 0)
		}
	}
	for i := range all {
		await(t, "everybody's VIPs", sees(i, "198.18.0.101", "198.18.0.102", "198.18.0.103"))
	}
	begin := time.Now()
	all[1].lose(true)
	for i := range all {
		await(t, "the one without quorum leaves everybody's answer", sees(i, "198.18.0.101", "198.18.0.103"))
	}
	t.Logf("a lost quorum was in all answers after %v", time.Since(begin))
	begin = time.Now()
	all[2].stop()
	await(t, "the one that ended leaves", sees(0, "198.18.0.101"))
	await(t, "the one that ended leaves", sees(1, "198.18.0.101"))
	t.Logf("a dead director was out of all answers after %v", time.Since(begin))
	if p := all[0].Show().Peers; !p[0].Alive || p[1].Alive {
		t.Errorf("peers: %+v", p)
	}
	all[0].lose(true)
	await(t, "nobody serves", sees(0))
	await(t, "nobody serves", sees(1))
	all[1].lose(false)
	await(t, "one is back", sees(0, "198.18.0.102"))
}
