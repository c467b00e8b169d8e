package exception

import (
	"encoding/binary"
	"net/netip"

	"github.com/google/gopacket/layers"

	"splicenic/runtime/exception/reassembly"
)

// A quote is the packet that an ICMP error is about, as far as the error quotes it: the IP header and eight bytes at
// least (RFC 792), which hold ports and sequence number of TCP.
type quote struct {
	ip       []byte // the quoted bytes and whatever follows them
	tcp      int    // where the TCP header begins
	total    int    // length of the packet as its header says
	protocol layers.IPProtocol
	src, dst netip.AddrPort // ports with TCP and UDP, and the identifier of an echo as the port of who asked
	seq      uint32         // with TCP
	echo     bool           // a request or reply
}

// maxExtensions bounds the extension headers looked at.
const maxExtensions = 8

// readQuote reads what an error about a packet of a family quotes. It returns false for what cannot be read as far as the
// eighth byte behind the IP headers.
func readQuote(b []byte, four bool) (q quote, ok bool) {
	q.ip = b
	var src, dst netip.Addr
	if four {
		if len(b) < 20 || b[0]>>4 != 4 || b[0]&15 < 5 {
			return q, false
		}
		q.tcp, q.protocol = int(b[0]&15)*4, layers.IPProtocol(b[9])
		q.total = int(binary.BigEndian.Uint16(b[2:]))
		if binary.BigEndian.Uint16(b[6:])&0x1fff != 0 { // a later fragment has no ports
			return q, false
		}
		src, dst = netip.AddrFrom4([4]byte(b[12:])), netip.AddrFrom4([4]byte(b[16:]))
	} else {
		if len(b) < 40 || b[0]>>4 != 6 {
			return q, false
		}
		q.tcp, q.protocol = 40, layers.IPProtocol(b[6])
		q.total = 40 + int(binary.BigEndian.Uint16(b[4:]))
		for range maxExtensions {
			if q.protocol != layers.IPProtocolIPv6HopByHop && q.protocol != layers.IPProtocolIPv6Routing && q.protocol != layers.IPProtocolIPv6Destination {
				break
			}
			if len(b) < q.tcp+8 {
				return q, false
			}
			q.protocol, q.tcp = layers.IPProtocol(b[q.tcp]), q.tcp+8+int(b[q.tcp+1])*8
		}
		src, dst = netip.AddrFrom16([16]byte(b[8:])), netip.AddrFrom16([16]byte(b[24:]))
	}
	if len(b) < q.tcp+8 {
		return q, false
	}
	q.src, q.dst = netip.AddrPortFrom(src, 0), netip.AddrPortFrom(dst, 0)
	t := b[q.tcp:]
	switch q.protocol {
	case layers.IPProtocolTCP:
		q.seq = binary.BigEndian.Uint32(t[4:])
		fallthrough
	case layers.IPProtocolUDP:
		q.src, q.dst = netip.AddrPortFrom(src, binary.BigEndian.Uint16(t)), netip.AddrPortFrom(dst, binary.BigEndian.Uint16(t[2:]))
	case layers.IPProtocolICMPv4, layers.IPProtocolICMPv6:
		id := binary.BigEndian.Uint16(t[4:])
		switch {
		case four && t[0] == layers.ICMPv4TypeEchoRequest, !four && t[0] == layers.ICMPv6TypeEchoRequest:
			q.echo, q.src = true, netip.AddrPortFrom(src, id)
		case four && t[0] == layers.ICMPv4TypeEchoReply, !four && t[0] == layers.ICMPv6TypeEchoReply:
			q.echo, q.dst = true, netip.AddrPortFrom(dst, id)
		}
	}
	return q, true
}

// translated returns a copy of the quoted bytes as the packet was before it was changed on its way: other ends, and with TCP
// other numbers. What checksums are quoted change by the difference, so that one that was right, or wrong, stays so.
func (q *quote) translated(src, dst netip.AddrPort, addSeq, addAck uint32) []byte {
	b := append([]byte(nil), q.ip...)
	t := b[q.tcp:]
	var addresses []byte
	if q.src.Addr().Is4() {
		addresses = b[12:20]
	} else {
		addresses = b[8:40]
	}
	numbers, checksum := t[:8], 16 // ports and sequence number
	switch tcp := q.protocol == layers.IPProtocolTCP; {
	case q.echo:
		numbers, checksum = t[4:6], 2
	case !tcp:
		numbers, checksum = t[:4], 6
	case len(t) >= 14 && t[13]&0x10 != 0 || len(t) >= 12 && len(t) < 14:
		numbers = t[:12]
	}
	before := reassembly.Sum(addresses, 0)
	pseudo := before
	if q.echo && q.src.Addr().Is4() { // ICMP sums no addresses
		pseudo = 0
	}
	transport := reassembly.Sum(numbers, pseudo)
	n := copy(addresses, src.Addr().AsSlice())
	copy(addresses[n:], dst.Addr().AsSlice())
	if q.echo {
		binary.BigEndian.PutUint16(numbers, src.Port()|dst.Port()) // one of them is zero
	} else {
		binary.BigEndian.PutUint16(t, src.Port())
		binary.BigEndian.PutUint16(t[2:], dst.Port())
	}
	if len(numbers) >= 8 {
		binary.BigEndian.PutUint32(t[4:], q.seq+addSeq)
	}
	if len(numbers) == 12 {
		binary.BigEndian.PutUint32(t[8:], binary.BigEndian.Uint32(t[8:])+addAck)
	}
	after := reassembly.Sum(addresses, 0)
	if pseudo != 0 {
		pseudo = after
	}
	if len(t) >= checksum+2 && (checksum != 6 || t[6]|t[7] != 0) { // a datagram may have none
		update(t[checksum:], transport, reassembly.Sum(numbers, pseudo))
	}
	if q.src.Addr().Is4() {
		update(b[10:], before, after)
	}
	return b
}

// update mends a checksum by the difference of two sums (RFC 1624).
func update(field []byte, before, after uint32) {
	s := uint32(^binary.BigEndian.Uint16(field)) + (^before & 0xffff) + after
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	binary.BigEndian.PutUint16(field, ^uint16(s))
}
