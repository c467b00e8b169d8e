package reassembly

import "encoding/binary"

// Cut calls f with the fragments that carry an IP packet over a network of an MTU, in order, each an IP packet that is valid
// during the call. A packet that fits is given as it is. Fragments of IPv4 have the packet's identification, those of IPv6
// id (RFC 8200 4.5). Don't-fragment is cleared: who calls has decided. It returns false, without a call, for what is no
// whole packet, or has no room for data beside its headers.
func Cut(ip []byte, mtu int, id uint32, f func(ip []byte)) bool {
	switch {
	case len(ip) >= ip4Least && ip[0]>>4 == 4:
		return cut4(ip, mtu, f)
	case len(ip) >= ip6Len && ip[0]>>4 == 6:
		return cut6(ip, mtu, id, f)
	}
	return false
}

func cut4(ip []byte, mtu int, f func(ip []byte)) bool {
	h := int(ip[0]&15) * 4
	if h < ip4Least || len(ip) < h || int(binary.BigEndian.Uint16(ip[2:])) != len(ip) || binary.BigEndian.Uint16(ip[6:])&(moreFragments|offsetMask) != 0 {
		return false
	}
	if len(ip) <= mtu {
		f(ip)
		return true
	}
	size := (mtu - h) &^ 7
	if size <= 0 {
		return false
	}
	b := make([]byte, 0, h+size)
	header, data := append([]byte(nil), ip[:h]...), ip[h:]
	for at := 0; at < len(data); at += size {
		part := data[at:min(at+size, len(data))]
		b = append(append(b[:0], header...), part...)
		field := uint16(at / 8)
		if at+len(part) < len(data) {
			field |= moreFragments
		}
		binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
		binary.BigEndian.PutUint16(b[6:], field)
		b[10], b[11] = 0, 0
		binary.BigEndian.PutUint16(b[10:], ^uint16(Sum(b[:h], 0)))
		f(b)
		if at == 0 {
			h = copyable(header[:h])
			header = header[:h]
		}
	}
	return true
}

// copyable takes the options that only the first fragment has out of an IPv4 header (RFC 791 3.1) and returns how long it
// is then.
func copyable(header []byte) int {
	const end, nop, copied = 0, 1, 0x80
	to := ip4Least
	for at := ip4Least; at < len(header) && header[at] != end; {
		n := 1
		if header[at] != nop {
			if at+1 >= len(header) || header[at+1] < 2 || at+int(header[at+1]) > len(header) {
				break
			}
			n = int(header[at+1])
			if header[at]&copied != 0 {
				to += copy(header[to:], header[at:at+n])
			}
		}
		at += n
	}
	for ; to%4 != 0; to++ {
		header[to] = end
	}
	header[0] = 4<<4 | byte(to/4)
	return to
}

func cut6(ip []byte, mtu int, id uint32, f func(ip []byte)) bool {
	if ip6Len+int(binary.BigEndian.Uint16(ip[4:])) != len(ip) {
		return false
	}
	if len(ip) <= mtu {
		f(ip)
		return true
	}
	next, h, ok := unfragmentable(ip)
	size := (mtu - h - fragmentHeader) &^ 7
	if !ok || size <= 0 {
		return false
	}
	b := make([]byte, 0, h+fragmentHeader+size)
	for at, data := 0, ip[h:]; at < len(data); at += size {
		part := data[at:min(at+size, len(data))]
		field := uint16(at)
		if at+len(part) < len(data) {
			field |= 1
		}
		b = append(b[:0], ip[:h]...)
		b = append(b, ip[next], 0)
		b = binary.BigEndian.AppendUint16(b, field)
		b = binary.BigEndian.AppendUint32(b, id)
		b = append(b, part...)
		b[next] = nextFragment
		binary.BigEndian.PutUint16(b[4:], uint16(len(b)-ip6Len))
		f(b)
	}
	return true
}

// unfragmentable is the part of an IPv6 packet that goes before every fragment: as far as the last header that routers look
// at. next is where the number of the header behind it stands.
func unfragmentable(ip []byte) (next, length int, ok bool) {
	next, length = 6, ip6Len
	n, at := 6, ip6Len
	for range maxExtensions {
		kind := ip[n]
		if kind == nextFragment {
			return 0, 0, false
		}
		if kind != hopByHop && kind != routing && kind != destinationOpts {
			return next, length, true
		}
		if len(ip) < at+8 || len(ip) < at+8+int(ip[at+1])*8 {
			return 0, 0, false
		}
		n, at = at, at+8+int(ip[at+1])*8
		if kind != destinationOpts { // destination options count with a routing header behind them
			next, length = n, at
		}
	}
	return 0, 0, false
}
