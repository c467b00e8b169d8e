package driver

import (
	"encoding/binary"
	"net/netip"

	"splicenic/regs"
)

// AddressWords returns the kind of an address and its number as tables hold it, lowest 32 bits first. The zero Addr has
// kind none. An IPv4 address mapped into IPv6 is an IPv4 address.
func AddressWords(a netip.Addr) (kind uint32, w [4]uint32) {
	a = a.Unmap()
	switch {
	case a.Is4():
		b := a.As4()
		w[0] = binary.BigEndian.Uint32(b[:])
		return regs.KindIpv4, w
	case a.Is6():
		b := a.As16()
		for i := range w {
			w[i] = binary.BigEndian.Uint32(b[12-4*i:])
		}
		return regs.KindIpv6, w
	}
	return regs.KindNone, w
}

// Address returns the address that words of a kind stand for; the zero Addr for kinds that are none.
func Address(kind uint32, w [4]uint32) netip.Addr {
	switch kind {
	case regs.KindIpv4:
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], w[0])
		return netip.AddrFrom4(b)
	case regs.KindIpv6:
		var b [16]byte
		for i := range w {
			binary.BigEndian.PutUint32(b[12-4*i:], w[i])
		}
		return netip.AddrFrom16(b)
	}
	return netip.Addr{}
}

// MACWords returns a MAC address as registers and tables hold it.
func MACWords(m [6]byte) (lo, hi uint32) {
	return binary.BigEndian.Uint32(m[2:]), uint32(binary.BigEndian.Uint16(m[:]))
}

// MAC returns the MAC address of two words.
func MAC(lo, hi uint32) (m [6]byte) {
	binary.BigEndian.PutUint16(m[:], uint16(hi))
	binary.BigEndian.PutUint32(m[2:], lo)
	return m
}
