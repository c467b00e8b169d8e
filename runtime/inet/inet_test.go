package inet

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
)

var ends = []struct{ name, from, to string }{{"IPv4", "198.18.1.1", "198.18.1.11"}, {"IPv6", "2001:db8:1::1", "2001:db8:1::11"}}

func TestLayout(t *testing.T) {
	for _, e := range ends {
		t.Run(e.name, func(t *testing.T) {
			from, to := netip.MustParseAddr(e.from), netip.MustParseAddr(e.to)
			b := Layout(from, to, 17, 0xb8, 5, []byte("payload"))
			p, ok := Read(b)
			want := Packet{From: from, To: to, Protocol: 17, TTL: 5, Header: b[:len(b)-7], Payload: []byte("payload")}
			if diff := cmp.Diff(want, p, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); !ok || diff != "" {
				t.Errorf("read %v: %s", ok, diff)
			}
			switch first := gopacket.NewPacket(b, map[bool]gopacket.Decoder{true: layers.LayerTypeIPv4, false: layers.LayerTypeIPv6}[to.Is4()], gopacket.Default).NetworkLayer().(type) {
			case *layers.IPv4:
				if first.TOS != 0xb8 || Sum(0, b[:20]) != 0xffff || first.Flags != layers.IPv4DontFragment {
					t.Errorf("header % x", b[:20])
				}
			case *layers.IPv6:
				if first.TrafficClass != 0xb8 || int(first.Length) != 7 {
					t.Errorf("header % x", b[:40])
				}
			default:
				t.Errorf("not IP: % x", b)
			}
			if q, ok := Read(b[:len(b)-3]); !ok || !q.Cut || string(q.Payload) != "payl" {
				t.Errorf("the beginning: %+v, %v", q, ok)
			}
		})
	}
}

// TestSum: the last byte of an odd number of them is the upper half of a word.
func TestSum(t *testing.T) {
	for _, tt := range []struct {
		b    []byte
		want uint32
	}{{nil, 0}, {[]byte{1}, 0x100}, {[]byte{0xff, 0xff, 0, 1}, 1}, {bytes.Repeat([]byte{0xff}, 4000), 0xffff}} {
		if got := Sum(0, tt.b); got != tt.want {
			t.Errorf("% x: %#x, want %#x", tt.b[:min(len(tt.b), 8)], got, tt.want)
		}
	}
}

func FuzzRead(f *testing.F) {
	for _, e := range ends {
		f.Add(Layout(netip.MustParseAddr(e.from), netip.MustParseAddr(e.to), 6, 0, Hops, make([]byte, 20)))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		p, ok := Read(b)
		if !ok {
			return
		}
		if len(p.Header) < 20 || len(p.Header)+len(p.Payload) > len(b) || !bytes.Equal(append(bytes.Clone(p.Header), p.Payload...), b[:len(p.Header)+len(p.Payload)]) {
			t.Fatalf("% x: %+v", b, p)
		}
	})
}
