package decap

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"
)

// pieces cuts a packet into fragments of so many bytes of payload.
func pieces(p []byte, size int) (list [][]byte) {
	head := 20
	if p[0]>>4 == 6 {
		head = 40
	}
	for at := head; at < len(p); at += size {
		part := p[at:min(at+size, len(p))]
		more := uint16(0)
		if at+size < len(p) {
			more = 1
		}
		f := append([]byte(nil), p[:head]...)
		if head == 20 {
			binary.BigEndian.PutUint16(f[2:], uint16(20+len(part)))
			binary.BigEndian.PutUint16(f[6:], more<<13|uint16((at-head)/8))
			clear(f[10:12])
			binary.BigEndian.PutUint16(f[10:], ^fold(sum(f, 0)))
		} else {
			f = append(f, f[6], 0, 0, 0, 0, 0, 0, 7)
			f[6] = 44
			binary.BigEndian.PutUint16(f[4:], uint16(8+len(part)))
			binary.BigEndian.PutUint16(f[42:], uint16(at-head)|more)
		}
		list = append(list, append(f, part...))
	}
	return list
}

func TestGather(t *testing.T) {
	inner := udp(t, netip.AddrPortFrom(client4, 5000), netip.AddrPortFrom(vip4, 7000), 0, bytes.Repeat([]byte("0123456789"), 300))
	for _, x := range []struct {
		name     string
		src, dst netip.Addr
	}{{"IPv4", card4, server4}, {"IPv6", card6, server6}} {
		for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 2, 0}} {
			p := ip(t, x.src, x.dst, number(inner), 0, inner)
			var g gather
			parts := pieces(p, 1200)
			for i, k := range order {
				whole, fragment := g.add(parts[k])
				if !fragment || (whole != nil) != (i == 2) || i == 2 && !bytes.Equal(whole, p) {
					t.Errorf("%s, order %v, fragment %d: fragment %v, %d bytes, want %d", x.name, order, i, fragment, len(whole), len(p))
				}
			}
			if _, fragment := g.add(p); fragment || len(g.packets) != 0 {
				t.Errorf("%s: a whole packet is a fragment; %d left", x.name, len(g.packets))
			}
		}
	}
}
