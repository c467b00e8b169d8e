package reassembly

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"time"
)

// datagram lays out an IP packet of n bytes of UDP, or of what else protocol says. extensions go before that.
func datagram(four bool, id uint32, protocol byte, n int, extensions ...byte) []byte {
	var ip []byte
	if four {
		ip = append(ip, 4<<4|byte(5+len(extensions)/4), 2, 0, 0, byte(id>>8), byte(id), 0x40, 0, 9, protocol, 0, 0, 192, 0, 2, 1, 198, 18, 0, 80)
	} else {
		ip = append(ip, 6<<4, 0, 0, 0, 0, 0, protocol, 9)
		ip = append(ip, bytes.Repeat([]byte{0x20}, 16)...)
		ip = append(ip, bytes.Repeat([]byte{0x21}, 16)...)
	}
	ip = append(ip, extensions...)
	h := len(ip)
	if n >= 8 {
		ip = append(ip, 0x9c, 0x41, 0, 53, byte(n>>8), byte(n), 0, 0)
	}
	for i := len(ip) - h; i < n; i++ {
		ip = append(ip, byte(i>>8^i))
	}
	if four {
		binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
		binary.BigEndian.PutUint16(ip[10:], ^uint16(Sum(ip[:h], 0)))
	} else {
		binary.BigEndian.PutUint16(ip[4:], uint16(len(ip)-40))
	}
	if protocol == protocolUDP && len(extensions) == 0 {
		addresses := ip[8:40]
		if four {
			addresses = ip[12:20]
		}
		binary.BigEndian.PutUint16(ip[h+6:], ^uint16(Sum(ip[h:], Sum(addresses, uint32(n)+protocolUDP))))
	}
	return ip
}

// TestCaseC19: a datagram comes together whatever the order of its fragments, those of two senders with one identification
// apart, and is cut again into the same bytes.
func TestCaseC19(t *testing.T) {
	for _, four := range []bool{true, false} {
		for _, order := range [][]int{{0, 1, 2}, {1, 0, 2}, {2, 1, 0}, {2, 0, 1}, {0, 2, 1}, {1, 2, 0}} {
			t.Run(fmt.Sprint(four, order), func(t *testing.T) {
				one := datagram(four, 0x1234, protocolUDP, 3000)
				other := bytes.Clone(one)
				if four {
					other[15] ^= 3 // the source, and the checksums with it
					binary.BigEndian.PutUint16(other[26:], 0)
				} else {
					other[23] ^= 3
					binary.BigEndian.PutUint16(other[46:], 0)
					binary.BigEndian.PutUint16(other[46:], ^uint16(Sum(other[40:], Sum(other[8:40], 3000+protocolUDP))))
				}
				tab := New()
				var got [2]Whole
				for _, n := range order {
					for i, ip := range [][]byte{one, other} {
						var parts [][]byte
						if !Cut(ip, 1300, 0x1234, func(ip []byte) { parts = append(parts, bytes.Clone(ip)) }) || len(parts) != 3 {
							t.Fatalf("%d parts", len(parts))
						}
						if w, v := give(t, tab, parts[n], 0); v == Complete {
							got[i] = w
						} else if v != Kept {
							t.Fatalf("verdict %d", v)
						}
					}
				}
				for i, ip := range [][]byte{one, other} {
					w := got[i]
					if w.TCP() || w.ID() != 0x1234 {
						t.Fatalf("packet %d: TCP %v, id %#x", i, w.TCP(), w.ID())
					}
					want := bytes.Clone(ip)
					if four {
						want[6], want[10], want[11] = 0, 0, 0 // it may be cut
						binary.BigEndian.PutUint16(want[10:], ^uint16(Sum(want[:20], 0)))
					}
					if frame := w.Frame(); !bytes.Equal(frame, append(bytes.Clone(ether), want...)) {
						t.Errorf("packet %d:\n% x, want\n% x", i, frame[14:64], want[:50])
					}
				}
				if tab.Len() != 0 || tab.Bytes() != 0 {
					t.Errorf("%d packets of %d bytes left", tab.Len(), tab.Bytes())
				}
			})
		}
	}
}

// TestDatagrams: what is wrong with a datagram is seen when it is whole; without its first fragment it never is.
func TestDatagrams(t *testing.T) {
	for _, tt := range []struct {
		name   string
		ip     []byte
		change func(ip []byte)
		want   Verdict
	}{
		{"right", datagram(true, 1, protocolUDP, 3000), func([]byte) {}, Complete},
		{"no checksum", datagram(true, 1, protocolUDP, 3000), func(ip []byte) { ip[26], ip[27] = 0, 0 }, Complete},
		{"no checksum over IPv6", datagram(false, 1, protocolUDP, 3000), func(ip []byte) { ip[46], ip[47] = 0, 0 }, Checksum},
		{"wrong checksum", datagram(true, 1, protocolUDP, 3000), func(ip []byte) { ip[100]++ }, Checksum},
		{"length of UDP", datagram(true, 1, protocolUDP, 3000), func(ip []byte) { ip[25]--; ip[26], ip[27] = 0, 0 }, Checksum},
		{"tunnel", datagram(true, 1, protocolIPIP, 3000), func([]byte) {}, Complete},
		{"GRE over IPv6", datagram(false, 1, protocolGRE, 3000), func([]byte) {}, Complete},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.change(tt.ip)
			tab := New()
			var last Verdict
			Cut(tt.ip, 1000, 1, func(ip []byte) { _, last = give(t, tab, bytes.Clone(ip), 0) })
			if last != tt.want {
				t.Errorf("verdict %d, want %d", last, tt.want)
			}
		})
	}
	tab := New()
	n := 0
	Cut(datagram(true, 1, protocolUDP, 3000), 1000, 1, func(ip []byte) {
		if n++; n > 1 {
			if _, v := give(t, tab, bytes.Clone(ip), 0); v != Kept {
				t.Errorf("verdict %d", v)
			}
		}
	})
	if tab.Expire(Timeout); tab.Expired != 1 || tab.Len() != 0 {
		t.Errorf("%d expired, %d left", tab.Expired, tab.Len())
	}
}

// TestCut: fragments fit, have the headers that belong to them, and together carry the packet.
func TestCut(t *testing.T) {
	hop := []byte{protocolUDP, 0, 1, 4, 0, 0, 0, 0}
	beforeRouting := []byte{routing, 0, 1, 4, 0, 0, 0, 0, protocolUDP, 0, 0, 0, 0, 0, 0, 0}
	const routeHeader = 43
	for _, tt := range []struct {
		name      string
		ip        []byte
		mtu       int
		want      int // fragments; zero: it cannot be cut
		header    int // of a later fragment, without the fragment header
		nextField int // of IPv6: where the fragment header is named
	}{
		{"fits", datagram(true, 7, 17, 1000), 1500, 1, 0, 0},
		{"IPv4", datagram(true, 7, 17, 3000), 1500, 3, 20, 0},
		{"IPv4 with options", datagram(true, 7, 17, 3000, 1, 0x83, 3, 4, 7, 3, 4, 0), 1500, 3, 24, 0},
		{"IPv4 with an option that is none", datagram(true, 7, 17, 3000, 7, 1, 0, 0), 1500, 3, 20, 0},
		{"IPv6", datagram(false, 7, 17, 3000), 1500, 3, 40, 6},
		{"IPv6 with options for every hop", func() []byte { b := datagram(false, 7, 0, 3000, hop...); return b }(), 1500, 3, 48, 40},
		{"IPv6 with options for the end", datagram(false, 7, destinationOpts, 3000, hop...), 1500, 3, 40, 6},
		{"IPv6 with a route", datagram(false, 7, destinationOpts, 3000, beforeRouting...), 1500, 3, 56, 48},
		{"no room", datagram(true, 7, 17, 3000), 27, 0, 0, 0},
		{"no room over IPv6", datagram(false, 7, 17, 3000), 55, 0, 0, 0},
		{"a fragment", part(datagram(true, 7, 17, 3000), 7, 8, 2000), 1500, 0, 0, 0},
		{"a fragment over IPv6", part(datagram(false, 7, 17, 3000), 7, 8, 2000), 1500, 0, 0, 0},
		{"cut off", datagram(true, 7, 17, 3000)[:2000], 1500, 0, 0, 0},
		{"nothing", nil, 1500, 0, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n, before := 0, bytes.Clone(tt.ip)
			ok := Cut(tt.ip, tt.mtu, 0xfedcba98, func(ip []byte) {
				if n++; len(ip) > tt.mtu {
					t.Errorf("%d bytes, the MTU is %d", len(ip), tt.mtu)
				}
				switch h := tt.header; {
				case tt.want < 2:
				case ip[0]>>4 == 4:
					if n > 1 && int(ip[0]&15)*4 != h || Sum(ip[:int(ip[0]&15)*4], 0) != 0xffff || ip[6]&0x40 != 0 || binary.BigEndian.Uint16(ip[4:]) != 7 {
						t.Errorf("header % x", ip[:h])
					}
				case ip[tt.nextField] != nextFragment || binary.BigEndian.Uint32(ip[h+4:]) != 0xfedcba98:
					t.Errorf("header % x", ip[:h+8])
				}
			})
			if n != tt.want || ok != (tt.want > 0) || !bytes.Equal(before, tt.ip) {
				t.Errorf("%d fragments, %v, want %d", n, ok, tt.want)
			}
		})
	}
	if routing != routeHeader {
		t.Error("the routing header has number 43")
	}
}

// FuzzCut cuts any packet: what comes out fits, and comes together again as what it was where the table takes its protocol.
func FuzzCut(f *testing.F) {
	f.Add(datagram(true, 7, 17, 200), uint16(100))
	f.Add(datagram(false, 7, 17, 200), uint16(100))
	f.Add(datagram(true, 7, 17, 200, 1, 0x83, 3, 4, 7, 3, 4, 0), uint16(68))
	f.Add(datagram(false, 7, 0, 200, 17, 0, 1, 4, 0, 0, 0, 0), uint16(120))
	f.Fuzz(func(t *testing.T, ip []byte, mtu uint16) {
		var fs [][]byte
		if !Cut(ip, int(mtu), 9, func(b []byte) { fs = append(fs, slices.Clone(b)) }) {
			if len(fs) != 0 {
				t.Fatal("fragments of what cannot be cut")
			}
			return
		}
		if len(fs) == 1 {
			if !bytes.Equal(fs[0], ip) {
				t.Fatal("a packet that fits changed")
			}
			return
		}
		tab, total := New(), 0
		for i, b := range fs {
			if len(b) > int(mtu) {
				t.Fatalf("%d bytes, the MTU is %d", len(b), mtu)
			}
			x, ok := Parse(b)
			if !ok { // of another protocol
				return
			}
			total += len(x.data)
			if w, v := tab.Add(Place{}, nil, &x, time.Second); v == Complete {
				if i != len(fs)-1 || len(w.Frame()) > len(ip) {
					t.Fatalf("complete with fragment %d of %d: %d bytes, cut from %d", i, len(fs), len(w.Frame()), len(ip))
				}
			}
		}
		if total > len(ip) {
			t.Fatalf("%d bytes of data from a packet of %d", total, len(ip))
		}
	})
}
