package reassembly

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
)

var ether = []byte{2, 0xca, 0, 0, 0, 1, 2, 0xee, 0, 0, 0, 9, 8, 0}

// whole lays out a packet of n payload bytes.
func whole(t testing.TB, four bool, id uint32, n int, change func(*layers.TCP)) []byte {
	t.Helper()
	tcp := &layers.TCP{SrcPort: 40001, DstPort: 80, Seq: 0xfffffff0, Ack: 7, ACK: true, PSH: true, FIN: true, Window: 512,
		Options: []layers.TCPOption{{OptionType: 1}, {OptionType: 1}, {OptionType: 8, OptionLength: 10, OptionData: make([]byte, 8)}}}
	if change != nil {
		change(tcp)
	}
	var ip gopacket.SerializableLayer
	if four {
		x := &layers.IPv4{Version: 4, TTL: 9, Id: uint16(id), Protocol: 6, SrcIP: net.IP{192, 0, 2, 1}, DstIP: net.IP{198, 18, 0, 80}}
		tcp.SetNetworkLayerForChecksum(x)
		ip = x
	} else {
		x := &layers.IPv6{Version: 6, HopLimit: 9, NextHeader: 6, SrcIP: net.ParseIP("2001:db8::1"), DstIP: net.ParseIP("2001:db8::80")}
		tcp.SetNetworkLayerForChecksum(x)
		ip = x
	}
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(i>>8 ^ i)
	}
	b := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, ip, tcp, gopacket.Payload(data)); err != nil {
		t.Fatal(err)
	}
	return bytes.Clone(b.Bytes())
}

// part is the fragment of a packet that holds some of its data.
func part(ip []byte, id uint32, from, to int) []byte {
	if ip[0]>>4 == 4 {
		data := ip[20:]
		f := append(bytes.Clone(ip[:20]), data[from:to]...)
		binary.BigEndian.PutUint16(f[2:], uint16(len(f)))
		field := uint16(from / 8)
		if to < len(data) {
			field |= moreFragments
		}
		binary.BigEndian.PutUint16(f[6:], field)
		f[10], f[11] = 0, 0
		binary.BigEndian.PutUint16(f[10:], ^uint16(Sum(f[:20], 0)))
		return f
	}
	data := ip[40:]
	f := append(bytes.Clone(ip[:40]), 6, 0, 0, 0, 0, 0, 0, 0)
	f[6] = nextFragment
	binary.BigEndian.PutUint16(f[42:], uint16(from))
	if to < len(data) {
		f[43] |= 1
	}
	binary.BigEndian.PutUint32(f[44:], id)
	f = append(f, data[from:to]...)
	binary.BigEndian.PutUint16(f[4:], uint16(len(f)-40))
	return f
}

// cut cuts a packet into fragments of size data bytes.
func cut(ip []byte, id uint32, size int) (fs [][]byte) {
	data := len(ip) - 40
	if ip[0]>>4 == 4 {
		data = len(ip) - 20
	}
	for at := 0; at < data; at += size {
		fs = append(fs, part(ip, id, at, min(at+size, data)))
	}
	return fs
}

func give(t testing.TB, tab *Table, ip []byte, now time.Duration) (Whole, Verdict) {
	t.Helper()
	f, ok := Parse(ip)
	if !ok {
		t.Fatalf("no fragment: % x", ip)
	}
	return tab.Add(Place{}, ether, &f, now)
}

// check puts the segments of a packet together and compares with the packet.
func check(t testing.TB, w *Whole, want []byte, mtu int) {
	t.Helper()
	full := gopacket.NewPacket(want, first(want), gopacket.Default).Layer(layers.LayerTypeTCP).(*layers.TCP)
	var got []byte
	n := 0
	ok := w.Segments(mtu, func(frame []byte) {
		if !bytes.Equal(frame[:14], ether) {
			t.Fatalf("link header % x", frame[:14])
		}
		ip := frame[14:]
		if len(ip) > mtu {
			t.Fatalf("%d bytes, the MTU is %d", len(ip), mtu)
		}
		p := gopacket.NewPacket(ip, first(ip), gopacket.Default)
		s, ok := p.Layer(layers.LayerTypeTCP).(*layers.TCP)
		if !ok {
			t.Fatalf("no TCP: %v", p)
		}
		s.SetNetworkLayerForChecksum(p.NetworkLayer())
		if sum, err := s.ComputeChecksum(); err != nil || sum != 0 && sum != 0xffff {
			t.Fatalf("TCP checksum: %#x, %v", sum, err)
		}
		if x, ok := p.NetworkLayer().(*layers.IPv4); ok && (Sum(x.Contents, 0) != 0xffff || x.FragOffset != 0 || x.Flags != 0 || x.Id != binary.BigEndian.Uint16(want[4:])+uint16(n)) {
			t.Fatalf("IPv4 header %+v", x)
		}
		if at := uint32(len(got)); s.Seq != full.Seq+at || s.Ack != full.Ack || !slices.EqualFunc(s.Options, full.Options, func(a, b layers.TCPOption) bool { return a.OptionType == b.OptionType }) {
			t.Fatalf("segment %+v at %d", s, at)
		}
		got = append(got, s.Payload...)
		last := len(got) == len(full.Payload)
		if s.FIN != (full.FIN && last) || s.PSH != (full.PSH && last) || s.CWR != (full.CWR && n == 0) || s.SYN != full.SYN {
			t.Fatalf("segment %d: %+v", n, s)
		}
		if full.URG {
			left := int(full.Urgent) - (len(got) - len(s.Payload))
			if s.URG != (left > 0) || s.URG && int(s.Urgent) != left {
				t.Fatalf("segment %d: urgent %v %d, want %d", n, s.URG, s.Urgent, left)
			}
		}
		n++
	})
	if !ok || !bytes.Equal(got, full.Payload) {
		t.Fatalf("%v: %d bytes, want %d", ok, len(got), len(full.Payload))
	}
}

func first(ip []byte) gopacket.LayerType {
	if ip[0]>>4 == 4 {
		return layers.LayerTypeIPv4
	}
	return layers.LayerTypeIPv6
}

func families(t *testing.T, f func(t *testing.T, four bool)) {
	for _, four := range []bool{true, false} {
		t.Run(map[bool]string{true: "IPv4", false: "IPv6"}[four], func(t *testing.T) { f(t, four) })
	}
}

// TestTogether: fragments in any order make the packet, and repetitions change nothing.
func TestTogether(t *testing.T) {
	families(t, func(t *testing.T, four bool) {
		want := whole(t, four, 7, 3000, nil)
		fs := cut(want, 7, 1000)
		if len(fs) != 4 {
			t.Fatalf("%d fragments", len(fs))
		}
		for _, order := range [][]int{{0, 1, 2, 3}, {3, 2, 1, 0}, {1, 3, 0, 2}, {2, 0, 3, 1}} {
			tab := New()
			for i, n := range order {
				w, v := give(t, tab, fs[n], 0)
				if i < 3 {
					if v != Kept {
						t.Fatalf("%v: fragment %d: %v", order, n, v)
					}
					if _, v := give(t, tab, fs[n], 0); v != Duplicate {
						t.Errorf("%v: fragment %d again: %v", order, n, v)
					}
					continue
				}
				if v != Complete {
					t.Fatalf("%v: the last: %v", order, v)
				}
				for _, mtu := range []int{1500, 9000, 552, 100} {
					check(t, &w, want, mtu)
				}
			}
			if tab.Len() != 0 || tab.Bytes() != 0 || len(tab.sources) != 0 {
				t.Errorf("left: %d packets, %d bytes, %v", tab.Len(), tab.Bytes(), tab.sources)
			}
		}
	})
}

// TestTwoPackets: packets that differ in one part of their key do not mix.
func TestTwoPackets(t *testing.T) {
	families(t, func(t *testing.T, four bool) {
		a, b := whole(t, four, 7, 1000, nil), whole(t, four, 8, 1000, func(x *layers.TCP) { x.Seq = 99 })
		tab := New()
		fa, fb := cut(a, 7, 512), cut(b, 8, 512)
		for _, f := range [][]byte{fa[0], fb[1], fb[2]} {
			if _, v := give(t, tab, f, 0); v != Kept {
				t.Fatal(v)
			}
		}
		other, _ := Parse(fa[1])
		if _, v := tab.Add(Place{VLAN: 9}, ether, &other, 0); v != Kept {
			t.Fatalf("in another VLAN: %v", v)
		}
		if w, v := give(t, tab, fb[0], 0); v != Complete {
			t.Errorf("the second: %v", v)
		} else {
			check(t, &w, b, 1500)
		}
		if tab.Len() != 2 {
			t.Errorf("%d packets left, want the first and that of the other VLAN", tab.Len())
		}
	})
}

// TestOneSegment: what cannot be cut goes as it is or not at all.
func TestOneSegment(t *testing.T) {
	families(t, func(t *testing.T, four bool) {
		for _, tt := range []struct {
			name   string
			change func(*layers.TCP)
			mtu    int
			want   bool
		}{
			{"SYN with data that fits", func(x *layers.TCP) { x.SYN, x.FIN = true, false }, 1500, true},
			{"SYN with data that does not", func(x *layers.TCP) { x.SYN, x.FIN = true, false }, 600, false},
			{"RST", func(x *layers.TCP) { x.RST = true }, 600, false},
			{"urgent", func(x *layers.TCP) { x.URG, x.Urgent = true, 700 }, 600, true},
			{"CWR", func(x *layers.TCP) { x.CWR = true }, 600, true},
			{"no room", nil, 50, false},
		} {
			want := whole(t, four, 1, 1000, tt.change)
			tab := New()
			for _, f := range cut(want, 1, 504) {
				w, v := give(t, tab, f, 0)
				if v != Complete {
					continue
				}
				if tt.want {
					check(t, &w, want, tt.mtu)
				} else if w.Segments(tt.mtu, func([]byte) {}) {
					t.Errorf("%s: was cut", tt.name)
				}
			}
			if tab.Len() != 0 {
				t.Errorf("%s: not complete", tt.name)
			}
		}
	})
}

// TestHostile: what no honest sender sends is dropped with the rest of its packet.
func TestHostile(t *testing.T) {
	families(t, func(t *testing.T, four bool) {
		want := whole(t, four, 7, 1000, nil) // 1,032 bytes of data
		p := func(from, to int) []byte { return part(want, 7, from, to) }
		other := bytes.Clone(want)
		other[len(other)-500]++
		differs := part(other, 7, 512, 1032)
		short := p(0, 512)
		data := len(short) - 512
		for _, tt := range []struct {
			name string
			fs   [][]byte
			want Verdict
		}{
			{"overlap from behind", [][]byte{p(512, 1032), p(0, 520)}, Overlap},
			{"overlap from before", [][]byte{p(0, 520), p(512, 1032)}, Overlap},
			{"inside another", [][]byte{p(0, 520), p(8, 16)}, Overlap},
			{"around another", [][]byte{p(512, 520), p(504, 528)}, Overlap},
			{"same place, other bytes", [][]byte{p(512, 1032), differs}, Overlap},
			{"same place, less", [][]byte{p(512, 1024), p(512, 520)}, Overlap},
			{"same place, the end", [][]byte{p(512, 1032), func() []byte { f := p(512, 1032); setMore(f); return f }()}, Overlap},
			{"second end", [][]byte{p(1024, 1032), func() []byte { f := p(512, 520); clearMore(f); return f }()}, Overlap},
			{"end before what is there", [][]byte{p(512, 520), func() []byte { f := p(40, 48); clearMore(f); return f }()}, Overlap},
			{"behind the end", [][]byte{func() []byte { f := p(512, 520); clearMore(f); return f }(), p(520, 528)}, Overlap},
			{"tiny first", [][]byte{p(0, 16)}, Tiny},
			{"first without the options", [][]byte{p(0, 24)}, Tiny},
			{"header length of less than a header", [][]byte{func() []byte { f := bytes.Clone(short); f[data+12] = 0x40; return f }()}, Tiny},
			{"not a multiple of eight", [][]byte{p(0, 511)}, Malformed},
			{"empty", [][]byte{p(512, 512)}, Malformed},
			{"beyond 64 KiB", [][]byte{func() []byte { f := p(512, 1024); setOffset(f, 65528); return f }()}, Malformed},
			{"wrong checksum", [][]byte{part(other, 7, 0, 512), part(other, 7, 512, 1032)}, Checksum},
		} {
			tab := New()
			var got Verdict
			for _, f := range tt.fs {
				_, got = give(t, tab, f, 0)
			}
			if got != tt.want {
				t.Errorf("%s: verdict %d, want %d", tt.name, got, tt.want)
			}
			if tt.want != Overlap && tt.want != Tiny {
				continue
			}
			// The rest of the packet is lost with it; a new one of the same id comes through after the time-out.
			if _, v := give(t, tab, p(0, 512), Timeout-1); v != Dropped {
				t.Errorf("%s: the next fragment: %d", tt.name, v)
			}
			if tab.Bytes() != 0 {
				t.Errorf("%s: %d bytes kept", tt.name, tab.Bytes())
			}
			give(t, tab, p(0, 512), Timeout)
			if _, v := give(t, tab, p(512, 1032), Timeout); v != Complete {
				t.Errorf("%s: after the time-out: %d", tt.name, v)
			}
		}
	})
}

// moreBit is where a fragment says that there are more.
func moreBit(ip []byte) (b *byte, bit byte) {
	if ip[0]>>4 == 4 {
		return &ip[6], 0x20
	}
	return &ip[43], 1
}

func setMore(ip []byte) {
	b, bit := moreBit(ip)
	*b |= bit
}

func clearMore(ip []byte) {
	b, bit := moreBit(ip)
	*b &^= bit
}

// setOffset moves a fragment to byte n, a multiple of eight.
func setOffset(ip []byte, n uint16) {
	if ip[0]>>4 == 4 {
		binary.BigEndian.PutUint16(ip[6:], binary.BigEndian.Uint16(ip[6:])&0xe000|n/8)
		return
	}
	binary.BigEndian.PutUint16(ip[42:], binary.BigEndian.Uint16(ip[42:])&7|n)
}

// TestBounds: nothing a sender does makes the table larger than it may be, and its own share is all a source can fill.
func TestBounds(t *testing.T) {
	big := whole(t, true, 0, 60000, nil)
	from := func(ip []byte, source, id int) []byte {
		ip = bytes.Clone(ip)
		binary.BigEndian.PutUint32(ip[12:], uint32(0x0a000000+source))
		binary.BigEndian.PutUint16(ip[4:], uint16(id))
		return ip
	}
	t.Run("source", func(t *testing.T) {
		tab := New()
		for i := range MaxPerSource {
			if _, v := give(t, tab, from(part(big, 0, 0, 1024), 1, i), 0); v != Kept {
				t.Fatalf("packet %d: %d", i, v)
			}
		}
		if _, v := give(t, tab, from(part(big, 0, 0, 1024), 1, 9999), 0); v != Full {
			t.Errorf("one more: %d", v)
		}
		if _, v := give(t, tab, from(part(big, 0, 0, 1024), 2, 9999), 0); v != Kept {
			t.Errorf("another source: %d", v)
		}
	})
	t.Run("packets", func(t *testing.T) {
		tab := New()
		for i := range 3 * MaxPackets {
			give(t, tab, from(part(big, 0, 0, 64), i, 1), 0)
		}
		if tab.Len() != MaxPackets || tab.Evicted != 2*MaxPackets {
			t.Errorf("%d packets, %d gave way", tab.Len(), tab.Evicted)
		}
		// The newest are still there: what honest senders send is together at once.
		if _, v := give(t, tab, from(part(big, 0, 0, 64), 3*MaxPackets-1, 1), 0); v != Duplicate {
			t.Errorf("the newest: %d", v)
		}
	})
	t.Run("bytes", func(t *testing.T) {
		tab := New()
		for i := range 100 {
			for at := 0; at < 32768; at += 8192 {
				give(t, tab, from(part(big, 0, at, at+8192), i, 1), 0)
				if tab.Bytes() > MaxBytes {
					t.Fatalf("%d bytes", tab.Bytes())
				}
			}
		}
		if tab.Evicted == 0 || tab.Bytes() < MaxBytes-65536 {
			t.Errorf("%d bytes, %d gave way", tab.Bytes(), tab.Evicted)
		}
		// The oldest does not give way to its own bytes.
		oldest := int(binary.BigEndian.Uint32(tab.order[0].key.src.AsSlice())) - 0x0a000000
		for at := 32768; at < 57344; at += 8192 {
			if _, v := give(t, tab, from(part(big, 0, at, at+8192), oldest, 1), 0); v != Kept {
				t.Errorf("the oldest's next bytes: %d", v)
			}
		}
		if k := tab.order[0]; k.bytes != 57344 || tab.Bytes() > MaxBytes {
			t.Errorf("the oldest has %d bytes of %d", k.bytes, tab.Bytes())
		}
	})
	t.Run("fragments", func(t *testing.T) {
		tab := New()
		var last Verdict
		for i := range MaxFragments + 1 {
			_, last = give(t, tab, from(part(big, 0, 64*i, 64*i+64), 1, 1), 0)
		}
		if last != TooMany {
			t.Errorf("one too many: %d", last)
		}
	})
	t.Run("time", func(t *testing.T) {
		tab := New()
		give(t, tab, from(part(big, 0, 0, 1024), 1, 1), 5)
		if got := tab.Next(time.Hour); got != 5+Timeout {
			t.Errorf("next is %v", got)
		}
		tab.Expire(4 + Timeout)
		if tab.Len() != 1 {
			t.Error("expired too early")
		}
		tab.Expire(5 + Timeout)
		if tab.Len() != 0 || tab.Expired != 1 || tab.Next(time.Hour) != time.Hour {
			t.Errorf("%d packets, %d expired", tab.Len(), tab.Expired)
		}
	})
}

// TestECN: congestion that one fragment met counts for the packet (RFC 3168 5.3).
func TestECN(t *testing.T) {
	families(t, func(t *testing.T, four bool) {
		for _, tt := range []struct {
			marks [2]byte
			want  Verdict
			ecn   byte
		}{{[2]byte{0, 0}, Complete, 0}, {[2]byte{2, 2}, Complete, 2}, {[2]byte{2, 3}, Complete, 3}, {[2]byte{3, 1}, Complete, 3}, {[2]byte{0, 3}, Overlap, 0}} {
			want := whole(t, four, 7, 1000, nil)
			fs := cut(want, 7, 520)
			for i, m := range tt.marks {
				if four {
					fs[i][1] |= m
				} else {
					fs[i][1] |= m << 4
				}
			}
			tab := New()
			give(t, tab, fs[1], 0)
			w, v := give(t, tab, fs[0], 0)
			if v != tt.want {
				t.Errorf("%v: verdict %d", tt.marks, v)
				continue
			}
			if v != Complete {
				continue
			}
			w.Segments(1500, func(f []byte) {
				got := f[15] & 3
				if !four {
					got = f[15] >> 4 & 3
				}
				if got != tt.ecn {
					t.Errorf("%v: the packet says %d", tt.marks, got)
				}
			})
		}
	})
}

// TestParse: what is no fragment of TCP, UDP, ICMP or a tunnel is none.
func TestParse(t *testing.T) {
	four, six := whole(t, true, 1, 1000, nil), whole(t, false, 1, 1000, nil)
	udp4, udp6 := part(four, 1, 0, 512), part(six, 1, 0, 512)
	udp4[9], udp6[40] = 17, 17
	icmp4, icmp6 := bytes.Clone(udp4), bytes.Clone(udp6)
	icmp4[9], icmp6[40] = 1, 58
	ipip, sctp := bytes.Clone(udp4), bytes.Clone(udp4)
	ipip[9], sctp[9] = 4, 132
	behind := append(bytes.Clone(six[:40]), 60, 0, 1, 4, 0, 0, 0, 0) // options for every hop, then a fragment header
	behind[6] = 0
	behind = append(append(behind[:40:40], 44, 0, 1, 4, 0, 0, 0, 0), part(six, 1, 0, 512)[40:]...)
	for _, tt := range []struct {
		name string
		ip   []byte
		want bool
	}{
		{"whole IPv4", four, false}, {"whole IPv6", six, false}, {"UDP", udp4, true}, {"UDP over IPv6", udp6, true},
		{"ICMP", icmp4, true}, {"ICMPv6", icmp6, true}, {"SCTP", sctp, false}, {"tunnel", ipip, true},
		{"fragment", part(four, 1, 512, 1032), true}, {"IPv6 fragment", part(six, 1, 512, 1032), true}, {"behind options", behind, true},
		{"cut off", behind[:50], false}, {"nothing", nil, false}, {"other version", []byte(fmt.Sprintf("%040d", 5)), false},
	} {
		if _, ok := Parse(tt.ip); ok != tt.want {
			t.Errorf("%s: %v", tt.name, ok)
		}
	}
	f, _ := Parse(behind)
	if f.header[40] != protocolTCP || f.header[6] != 0 || len(f.header) != 48 {
		t.Errorf("header of the whole packet: % x", f.header)
	}
}

// TestAtomic: an IPv6 packet that is its own only fragment needs no others (RFC 6946).
func TestAtomic(t *testing.T) {
	want := whole(t, false, 7, 1000, nil)
	tab := New()
	give(t, tab, part(want, 7, 512, 1032), 0)
	w, v := give(t, tab, part(want, 7, 0, 1032), 0)
	if v != Complete || tab.Len() != 1 {
		t.Fatalf("verdict %d, %d packets", v, tab.Len())
	}
	check(t, &w, want, 600)
}

// FuzzTable throws fragments at a table: each chunk of the input is one, its first byte says which of a packet's it is like
// or that the bytes are taken as they are. The bounds hold, and whatever comes together is right.
func FuzzTable(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3})
	f.Add([]byte{0x83, 0x82, 0x81, 0x80, 0x80})
	f.Add([]byte{0, 0x40, 10, 1, 2, 3})
	f.Add(append([]byte{0x20, 60}, part(whole(f, true, 1, 100, nil), 1, 0, 40)...))
	f.Fuzz(func(t *testing.T, in []byte) {
		tab := New()
		var now time.Duration
		full := [2][]byte{whole(t, true, 7, 1000, nil), whole(t, false, 7, 1000, nil)}
		for len(in) > 0 {
			c := in[0]
			in = in[1:]
			full := full[c>>7]
			fs := cut(full, 7, 264)
			ip := fs[int(c&15)%len(fs)]
			if c&0x60 != 0 && len(in) > 0 {
				n := min(int(in[0]), len(in)-1)
				if c&0x20 != 0 {
					ip = in[1 : 1+n]
				} else if n > 1 { // the fragment with one byte changed
					ip[int(in[1])%len(ip)] ^= in[n]
				}
				in = in[1+n:]
			}
			if c&0x10 != 0 {
				now += Timeout / 3
			}
			x, ok := Parse(ip)
			if !ok {
				continue
			}
			w, v := tab.Add(Place{}, ether, &x, now)
			if v == Complete && !w.TCP() {
				if got := w.Frame(); len(got) <= len(ether)+len(w.header) {
					t.Fatalf("a frame of %d bytes", len(got))
				}
			}
			if v == Complete && w.TCP() {
				total := 0
				w.Segments(576, func(frame []byte) {
					total += len(frame)
					if len(frame) > 14+576 {
						t.Fatalf("frame of %d bytes", len(frame))
					}
				})
				if total == 0 && w.Bytes() == 0 {
					t.Fatal("nothing came out")
				}
			}
			bytes := 0
			for _, p := range tab.order {
				at := 0
				for _, x := range p.pieces {
					if x.offset < at {
						t.Fatal("pieces overlap")
					}
					at = x.offset + len(x.data)
					bytes += len(x.data)
				}
			}
			if bytes != tab.Bytes() || bytes > MaxBytes || tab.Len() > MaxPackets || tab.Len() != len(tab.packets) {
				t.Fatalf("%d bytes counted, %d there; %d packets", tab.Bytes(), bytes, tab.Len())
			}
		}
	})
}
