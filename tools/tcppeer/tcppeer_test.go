package tcppeer

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
)

func pattern(n int, seed uint64) []byte {
	b := make([]byte, n)
	rng := rand.New(rand.NewPCG(seed, 0))
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

// TestTransfer sends data both ways over wires of every kind: what arrives is what was sent, and both ends close.
func TestTransfer(t *testing.T) {
	wrap := func(netip.AddrPort, netip.AddrPort) uint32 { return 0xffff_ff00 }
	sign := func(netip.AddrPort, netip.AddrPort) uint32 { return 0x7fff_ff00 }
	all := func(c *Config) { c.WindowScale, c.SACK, c.Timestamps = 7, true, true }
	for _, tt := range []struct {
		name                  string
		six                   bool
		loss, duplicate, late float64
		change                func(c, s *Config)
	}{
		{name: "plain", change: func(c, s *Config) {}},
		{name: "ipv6", six: true, change: func(c, s *Config) {}},
		{name: "all options", change: func(c, s *Config) { all(c); all(s) }},
		{name: "server without options", change: func(c, s *Config) { all(c) }},
		{name: "client without options", change: func(c, s *Config) { all(s) }},
		{name: "vlan", change: func(c, s *Config) { c.VLAN, s.VLAN = 7, 7 }},
		{name: "small mtu", six: true, change: func(c, s *Config) { s.MTU = 1280 }},
		{name: "wrap at 2^32", change: func(c, s *Config) { c.ISN, s.ISN = wrap, wrap }},
		{name: "wrap at 2^31", change: func(c, s *Config) { c.ISN, s.ISN = sign, sign }},
		{name: "small window", change: func(c, s *Config) { c.WindowBytes, s.WindowBytes = 1000, 3000 }},
		{name: "large window", change: func(c, s *Config) { all(c); all(s); c.WindowBytes, s.WindowBytes = 1<<20, 1<<20 }},
		{name: "loss", loss: 0.1, change: func(c, s *Config) { all(c); all(s) }},
		{name: "loss ipv6", six: true, loss: 0.1, change: func(c, s *Config) {}},
		{name: "duplicates", duplicate: 0.3, change: func(c, s *Config) {}},
		{name: "reordering", late: 0.3, change: func(c, s *Config) { all(c); all(s) }},
		{name: "everything wrong", loss: 0.05, duplicate: 0.05, late: 0.1, change: func(c, s *Config) { c.ISN, s.ISN = wrap, sign }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			want := [2][]byte{pattern(100_000, 1), pattern(70_000, 2)} // from client, from server
			var got [2][]byte
			var ends [2]Event
			w := pair(t, func(c, s *Config) {
				c.Retries, s.Retries, c.TimeWait, s.TimeWait = 12, 12, 5*time.Minute, 5*time.Minute
				c.RTO, s.RTO = 200*time.Millisecond, 200*time.Millisecond
				tt.change(c, s)
				side := func(i int) func(*Conn, Event) {
					return func(c *Conn, e Event) {
						switch e {
						case Established:
							c.Write(want[i])
							c.CloseWrite()
						case Data:
							got[1-i] = append(got[1-i], c.Bytes()...)
							c.Discard(len(c.Bytes()))
						case Closed, Reset, TimedOut:
							ends[i] = e
						}
					}
				}
				c.Handle, s.Handle = side(0), side(1)
			})
			w.loss, w.duplicate, w.late = tt.loss, tt.duplicate, tt.late
			from, to := client4, server4
			if tt.six {
				from, to = client6, server6
			}
			if _, err := w.hosts[0].Dial(0, netip.AddrPortFrom(from, 0), netip.AddrPortFrom(to, 80)); err != nil {
				t.Fatal(err)
			}
			w.run(time.Hour)
			for i := range want {
				if !bytes.Equal(got[i], want[i]) {
					t.Errorf("side %d sent %d bytes, the other has %d, or others", i, len(want[i]), len(got[i]))
				}
				if ends[i] != Closed {
					t.Errorf("side %d ended with event %d, want %d", i, ends[i], Closed)
				}
				if n := w.hosts[i].Len(); n != 0 {
					t.Errorf("host %d has %d connections left", i, n)
				}
				if s := w.hosts[i].Stats(); s.BadChecksum+s.Malformed+s.NotOurs != 0 {
					t.Errorf("host %d: %+v", i, s)
				}
			}
		})
	}
}

// TestOptions compares what both ends agreed on.
func TestOptions(t *testing.T) {
	type agreed struct {
		MSS      uint16
		Out, In  uint8
		SACK, TS bool
	}
	for _, tt := range []struct {
		name           string
		change         func(c, s *Config)
		client, server agreed
	}{
		{"none", func(c, s *Config) {}, agreed{MSS: 1460}, agreed{MSS: 1460}},
		{"all", func(c, s *Config) {
			*c, *s = with(*c, 3, true, true), with(*s, 5, true, true)
		}, agreed{1448, 5, 3, true, true}, agreed{1448, 3, 5, true, true}},
		{"scale by one", func(c, s *Config) { c.WindowScale = 3 }, agreed{MSS: 1460}, agreed{MSS: 1460}},
		{"sack only", func(c, s *Config) { c.SACK, s.SACK = true, true }, agreed{1460, 0, 0, true, false}, agreed{1460, 0, 0, true, false}},
		{"timestamps only", func(c, s *Config) { c.Timestamps, s.Timestamps = true, true }, agreed{1448, 0, 0, false, true}, agreed{1448, 0, 0, false, true}},
		{"mtu", func(c, s *Config) { s.MTU = 1000 }, agreed{MSS: 960}, agreed{MSS: 960}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got [2]agreed
			w := pair(t, func(c, s *Config) {
				tt.change(c, s)
				c.Handle = func(c *Conn, _ Event) { got[0] = options(c.Options()) }
				s.Handle = func(c *Conn, _ Event) { got[1] = options(c.Options()) }
			})
			w.hosts[0].Dial(0, netip.AddrPortFrom(client4, 4000), netip.AddrPortFrom(server4, 80))
			w.run(time.Second)
			if d := cmp.Diff([2]agreed{tt.client, tt.server}, [2]agreed(got)); d != "" {
				t.Error(d)
			}
		})
	}
}

func with(c Config, scale uint8, sack, timestamps bool) Config {
	c.WindowScale, c.SACK, c.Timestamps = scale, sack, timestamps
	return c
}

func options(mss uint16, out, in uint8, sack, ts bool) struct {
	MSS      uint16
	Out, In  uint8
	SACK, TS bool
} {
	return struct {
		MSS      uint16
		Out, In  uint8
		SACK, TS bool
	}{mss, out, in, sack, ts}
}

// TestEnds covers the ways a connection ends other than by two FINs in a row.
func TestEnds(t *testing.T) {
	for _, tt := range []struct {
		name           string
		client, server func(c *Conn, e Event)
		port           uint16
		loss           float64
		want           Event // what the client hears last
	}{
		{name: "refused", port: 81, want: Reset},
		{name: "server aborts", port: 80, server: func(c *Conn, e Event) { c.Abort() }, want: Reset},
		{name: "nobody answers", port: 80, loss: 1, want: TimedOut},
		{name: "client closes first", port: 80,
			client: func(c *Conn, e Event) {
				if e == Established {
					c.CloseWrite()
				}
			},
			server: func(c *Conn, e Event) {
				if e == PeerClosed {
					c.Write([]byte("late"))
					c.CloseWrite()
				}
			}, want: Closed},
		{name: "server closes first", port: 80,
			client: func(c *Conn, e Event) {
				if e == PeerClosed {
					c.CloseWrite()
				}
			},
			server: func(c *Conn, e Event) {
				if e == Established {
					c.CloseWrite()
				}
			}, want: Closed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var last Event
			w := pair(t, func(c, s *Config) {
				c.Handle = func(c *Conn, e Event) {
					last = e
					if tt.client != nil {
						tt.client(c, e)
					}
				}
				s.Handle = tt.server
			})
			w.loss = tt.loss
			w.hosts[0].Dial(0, netip.AddrPortFrom(client4, 4000), netip.AddrPortFrom(server4, tt.port))
			w.run(10 * time.Minute)
			if last != tt.want || w.hosts[0].Len()+w.hosts[1].Len() != 0 {
				t.Errorf("last event %d, want %d; %d and %d connections left", last, tt.want, w.hosts[0].Len(), w.hosts[1].Len())
			}
		})
	}
}

// TestClosedWindow stops reading for a while: the sender probes and then goes on.
func TestClosedWindow(t *testing.T) {
	want := pattern(20_000, 3)
	var reader *Conn
	w := pair(t, func(c, s *Config) {
		s.WindowBytes = 4000
		c.Handle = func(c *Conn, e Event) {
			if e == Established {
				c.Write(want)
			}
		}
		s.Handle = func(c *Conn, e Event) { reader = c }
	})
	w.hosts[0].Dial(0, netip.AddrPortFrom(client4, 4000), netip.AddrPortFrom(server4, 80))
	w.run(10 * time.Minute)
	if n := len(reader.Bytes()); n != 4000 {
		t.Fatalf("%d bytes in a buffer of 4000", n)
	}
	var got []byte
	for range 10 {
		got = append(got, reader.Bytes()...)
		reader.Discard(len(reader.Bytes()))
		w.run(w.now + 10*time.Minute)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("got %d bytes, want %d, or others", len(got), len(want))
	}
}

func TestDialInUse(t *testing.T) {
	w := pair(t, func(c, s *Config) {})
	from, to := netip.AddrPortFrom(client4, 4000), netip.AddrPortFrom(server4, 80)
	if _, err := w.hosts[0].Dial(0, from, to); err != nil {
		t.Fatal(err)
	}
	if _, err := w.hosts[0].Dial(0, from, to); !errors.Is(err, ErrInUse) {
		t.Errorf("got %v, want %v", err, ErrInUse)
	}
}

// TestNeighbours asks for addresses, its own and others.
func TestNeighbours(t *testing.T) {
	arp := func(target string) []byte {
		b := gopacket.NewSerializeBuffer()
		ask := netip.MustParseAddr(target).As4()
		gopacket.SerializeLayers(b, gopacket.SerializeOptions{},
			&layers.Ethernet{SrcMAC: clientMAC[:], DstMAC: []byte{255, 255, 255, 255, 255, 255}, EthernetType: layers.EthernetTypeARP},
			&layers.ARP{AddrType: 1, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6, ProtAddressSize: 4, Operation: 1,
				SourceHwAddress: clientMAC[:], SourceProtAddress: client4.AsSlice(), DstHwAddress: make([]byte, 6), DstProtAddress: ask[:]})
		return b.Bytes()
	}
	solicit := func(target string) []byte {
		b := gopacket.NewSerializeBuffer()
		ip := &layers.IPv6{Version: 6, HopLimit: 255, NextHeader: layers.IPProtocolICMPv6, SrcIP: client6.AsSlice(), DstIP: netip.MustParseAddr("ff02::1:ff00:10").AsSlice()}
		icmp := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(135, 0)}
		icmp.SetNetworkLayerForChecksum(ip)
		gopacket.SerializeLayers(b, gopacket.SerializeOptions{ComputeChecksums: true, FixLengths: true},
			&layers.Ethernet{SrcMAC: clientMAC[:], DstMAC: []byte{0x33, 0x33, 255, 0, 0, 0x10}, EthernetType: layers.EthernetTypeIPv6},
			ip, icmp, &layers.ICMPv6NeighborSolicitation{TargetAddress: netip.MustParseAddr(target).AsSlice()})
		return b.Bytes()
	}
	for _, tt := range []struct {
		name  string
		frame []byte
		want  string // of the answer, as gopacket names it
	}{
		{"arp", arp("198.18.1.10"), "ARP"},
		{"arp for another", arp("198.18.1.11"), ""},
		{"solicitation", solicit("2001:db8:1::10"), "ICMPv6NeighborAdvertisement"},
		{"solicitation for another", solicit("2001:db8:1::11"), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var answer []byte
			w := pair(t, func(c, s *Config) {})
			w.hosts[1].cfg.Send = func(b []byte) { answer = bytes.Clone(b) }
			w.hosts[1].Receive(0, tt.frame)
			if answer == nil && tt.want == "" {
				return
			}
			p := gopacket.NewPacket(answer, layers.LayerTypeEthernet, gopacket.Default)
			ls := p.Layers()
			if got := ls[len(ls)-1].LayerType().String(); got != tt.want {
				t.Fatalf("got %s, want %s", got, tt.want)
			}
			if eth := p.LinkLayer().(*layers.Ethernet); !bytes.Equal(eth.DstMAC, clientMAC[:]) || !bytes.Equal(eth.SrcMAC, serverMAC[:]) {
				t.Errorf("answer goes from %v to %v", eth.SrcMAC, eth.DstMAC)
			}
		})
	}
}

// TestDamagedFrames flips each bit of a segment: none is taken.
func TestDamagedFrames(t *testing.T) {
	var frame []byte
	w := pair(t, func(c, s *Config) {})
	w.hosts[0].cfg.Send = func(b []byte) { frame = bytes.Clone(b) }
	w.hosts[0].Dial(0, netip.AddrPortFrom(client4, 4000), netip.AddrPortFrom(server4, 80))
	for bit := 14 * 8; bit < len(frame)*8; bit++ {
		b := bytes.Clone(frame)
		b[bit/8] ^= 1 << (bit % 8)
		w.hosts[1].Receive(0, b)
	}
	if s := w.hosts[1].Stats(); s.Accepted != 0 || s.Segments != 0 {
		t.Errorf("damaged frames were taken: %+v", s)
	}
}

// exchange is a client and server joined without a wire, for what one life costs.
type exchange struct {
	client, server *Host
	queue          [64][]byte
	used           int
	done           int
}

func newExchange() *exchange {
	x := &exchange{}
	for i := range x.queue {
		x.queue[i] = make([]byte, 0, 2048)
	}
	push := func(to byte) func([]byte) {
		return func(b []byte) {
			q := append(x.queue[x.used][:0], to)
			x.queue[x.used] = append(q, b...)
			x.used++
		}
	}
	request, response := pattern(512, 1), pattern(512, 2)
	x.client = New(Config{MAC: clientMAC, NextHop: serverMAC, Addresses: []netip.Prefix{netip.MustParsePrefix("198.18.0.0/16")}, Send: push(1), TimeWait: -1,
		Handle: func(c *Conn, e Event) {
			switch e {
			case Established:
				c.Write(request)
			case PeerClosed:
				c.CloseWrite()
			case Closed:
				x.done++
			}
		}})
	x.server = New(Config{MAC: serverMAC, NextHop: clientMAC, Addresses: []netip.Prefix{netip.MustParsePrefix("198.18.1.0/24")}, Send: push(0), TimeWait: -1,
		Handle: func(c *Conn, e Event) {
			if e == Data && len(c.Bytes()) == len(request) {
				c.Discard(len(request))
				c.Write(response)
				c.CloseWrite()
			}
		}})
	x.server.Listen(80)
	return x
}

// life runs one connection from SYN to the last ACK.
func (x *exchange) life(now time.Duration) {
	x.client.Dial(now, netip.AddrPortFrom(client4, 0), netip.AddrPortFrom(server4, 80))
	for i := 0; i < x.used; i++ {
		if b := x.queue[i]; b[0] == 1 {
			x.server.Receive(now, b[1:])
		} else {
			x.client.Receive(now, b[1:])
		}
	}
	x.used = 0
}

func TestNoAllocation(t *testing.T) {
	x := newExchange()
	x.life(0)
	if got := testing.AllocsPerRun(1000, func() { x.life(0) }); got != 0 {
		t.Errorf("%v allocations a connection, want 0", got)
	}
	if x.done != 1002 {
		t.Errorf("%d connections ended well, want 1002", x.done)
	}
}

// TestMany opens connections and ends them in another order.
func TestMany(t *testing.T) {
	const n = 500
	ended := 0
	var conns []*Conn
	w := pair(t, func(c, s *Config) {
		c.Handle = func(c *Conn, e Event) {
			if e == Closed {
				ended++
			}
		}
		s.Handle = func(c *Conn, e Event) {
			switch e {
			case Established:
				conns = append(conns, c)
			case PeerClosed:
				c.CloseWrite()
			}
		}
	})
	for range n {
		c, err := w.hosts[0].Dial(w.now, netip.AddrPortFrom(client4, 0), netip.AddrPortFrom(server4, 80))
		if err != nil {
			t.Fatal(err)
		}
		c.CloseWrite()
	}
	w.rng.Shuffle(len(w.flying), func(i, j int) { w.flying[i].order, w.flying[j].order = w.flying[j].order, w.flying[i].order })
	w.run(time.Minute)
	if ended != n || len(conns) != n || w.hosts[0].Len()+w.hosts[1].Len() != 0 {
		t.Errorf("%d accepted, %d ended, want %d; %d and %d left", len(conns), ended, n, w.hosts[0].Len(), w.hosts[1].Len())
	}
}

func BenchmarkLife(b *testing.B) {
	b.ReportAllocs()
	x := newExchange()
	for i := 0; b.Loop(); i++ {
		x.life(time.Duration(i) * time.Microsecond)
	}
}

func FuzzReceive(f *testing.F) {
	w := pair(&testing.T{}, func(c, s *Config) {})
	w.hosts[0].cfg.Send = func(b []byte) { f.Add(bytes.Clone(b)) }
	w.hosts[0].Dial(0, netip.AddrPortFrom(client4, 4000), netip.AddrPortFrom(server4, 80))
	w.hosts[0].Dial(0, netip.AddrPortFrom(client6, 4000), netip.AddrPortFrom(server6, 80))
	f.Fuzz(func(t *testing.T, b []byte) {
		w := pair(t, func(c, s *Config) {})
		before := bytes.Clone(b)
		w.hosts[1].Receive(0, b)
		mend(b)
		w.hosts[1].Receive(0, b)
		w.hosts[1].Tick(time.Minute)
		if s := w.hosts[1].Stats(); s.Frames != 2 {
			t.Errorf("counted %d frames of %x", s.Frames, before)
		}
	})
}

// mend makes the checksums of an IPv4 frame right, so that random bytes get further.
func mend(b []byte) {
	if len(b) < 54 || binary.BigEndian.Uint16(b[12:]) != etherIPv4 {
		return
	}
	copy(b[14:], []byte{0x45, 0})
	binary.BigEndian.PutUint16(b[16:], uint16(len(b)-14))
	copy(b[20:], []byte{0, 0, ttl, protocolTCP, 0, 0})
	k := key{local: addr{10: 255, 11: 255}, remote: addr{10: 255, 11: 255}}
	copy(k.local[12:], b[26:30])
	copy(k.remote[12:], b[30:34])
	buildIPv4(b[14:], &k)
	p := packet{ip: b[14:], body: b[34:], protocol: protocolTCP}
	binary.BigEndian.PutUint16(b[50:], 0)
	binary.BigEndian.PutUint16(b[50:], ^p.sum())
}

func ExampleHost() {
	var client, server *Host
	var queue [][]byte
	push := func(b []byte) { queue = append(queue, bytes.Clone(b)) }
	server = New(Config{MAC: serverMAC, Addresses: []netip.Prefix{netip.MustParsePrefix("198.18.1.10/32")}, Send: push, Handle: func(c *Conn, e Event) {
		if e == Data {
			c.Write([]byte("hello " + string(c.Bytes())))
			c.CloseWrite()
		}
	}})
	server.Listen(80)
	client = New(Config{MAC: clientMAC, NextHop: serverMAC, Addresses: []netip.Prefix{netip.MustParsePrefix("198.18.0.10/32")}, Send: push, Handle: func(c *Conn, e Event) {
		switch e {
		case Established:
			c.Write([]byte("world"))
		case PeerClosed:
			fmt.Printf("%s\n", c.Bytes())
			c.CloseWrite()
		}
	}})
	client.Dial(0, netip.MustParseAddrPort("198.18.0.10:0"), netip.MustParseAddrPort("198.18.1.10:80"))
	for len(queue) > 0 {
		b := queue[0]
		queue = queue[1:]
		client.Receive(0, b)
		server.Receive(0, b)
	}
	// Output: hello world
}

// TestSACK: what comes before its turn is kept and told of, what comes twice too.
func TestSACK(t *testing.T) {
	for _, tt := range []struct {
		name   string
		agreed bool
		order  []int // pieces of 100 bytes, as they arrive
		want   [][][2]int
	}{
		{"in order", true, []int{0, 1}, [][][2]int{nil, nil}},
		{"a gap", true, []int{1, 2, 0}, [][][2]int{{{1, 2}}, {{1, 3}}, nil}},
		{"the newest first", true, []int{1, 3, 5}, [][][2]int{{{1, 2}}, {{3, 4}, {1, 2}}, {{5, 6}, {1, 2}, {3, 4}}}},
		{"three beside timestamps", true, []int{1, 3, 5, 7}, [][][2]int{{{1, 2}}, {{3, 4}, {1, 2}}, {{5, 6}, {1, 2}, {3, 4}}, {{7, 8}, {1, 2}, {3, 4}}}},
		{"twice below", true, []int{0, 0}, [][][2]int{nil, {{0, 1}}}},
		{"twice above", true, []int{2, 2}, [][][2]int{{{2, 3}}, {{2, 3}, {2, 3}}}},
		{"not agreed on", false, []int{1, 0}, [][][2]int{nil, nil}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := pair(t, func(c, s *Config) {
				c.Timestamps, s.Timestamps, c.SACK, s.SACK = true, true, true, tt.agreed
			})
			c, err := w.hosts[0].Dial(0, netip.AddrPortFrom(client4, 0), netip.AddrPortFrom(server4, 80))
			if err != nil {
				t.Fatal(err)
			}
			w.run(time.Second)
			var answer []byte
			w.hosts[1].cfg.Send = func(b []byte) { answer = append(answer[:0], b...) }
			first := c.nxt
			for i, p := range tt.order {
				w.hosts[0].cfg.Send = func(b []byte) { w.hosts[1].Receive(w.now, b) }
				c.emit(first+uint32(100*p), ack, pattern(100, uint64(p)))
				var got [][2]int
				for o := tcpOptions(t, answer); len(o) > 0 && o[0] != optionEnd; {
					if o[0] == optionNop {
						o = o[1:]
						continue
					}
					if o[0] == optionSACK {
						for v := o[2:o[1]]; len(v) > 0; v = v[8:] {
							at := func(b []byte) int { return int(binary.BigEndian.Uint32(b)-first) / 100 }
							got = append(got, [2]int{at(v), at(v[4:])})
						}
					}
					o = o[o[1]:]
				}
				if diff := cmp.Diff(tt.want[i], got); diff != "" {
					t.Errorf("after piece %d (-want +got):\n%s", p, diff)
				}
			}
		})
	}
}

// tcpOptions are those of an IPv4 frame.
func tcpOptions(t *testing.T, b []byte) []byte {
	t.Helper()
	if len(b) < 54 {
		t.Fatal("no answer")
	}
	return b[54 : 34+int(b[46]>>4)*4]
}
