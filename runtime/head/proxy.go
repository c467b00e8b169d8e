package head

import (
	"encoding/binary"
	"net/netip"
)

// The types of TLV that the PROXY protocol names and this package's callers use.
const (
	TLVALPN      = 0x01 // a protocol of ALPN
	TLVAuthority = 0x02 // the host, of SNI or of the request
	TLVUniqueID  = 0x05 // of the connection, 128 bytes at most
)

// A TLV is a type, length and value behind the addresses of a PROXY header.
type TLV struct {
	Type  byte
	Value []byte
}

// MaxProxy is how long a PROXY header may be.
const MaxProxy = 1024

// What every PROXY header of version 2 begins with, and where its length is.
const (
	proxySignature = "\r\n\r\n\x00\r\nQUIT\n"
	lengthAt       = 14
)

// CutProxy returns what of a stream's begin is behind a PROXY header of version 2: all of it where there is none.
func CutProxy(b []byte) []byte {
	const fixed = lengthAt + 2
	if len(b) >= fixed && string(b[:len(proxySignature)]) == proxySignature {
		b = b[min(fixed+int(binary.BigEndian.Uint16(b[lengthAt:])), len(b)):]
	}
	return b
}

// ProxyV2 appends a PROXY header of version 2 for a proxied TCP connection: from client, to vip. Where only one of them is
// IPv4, it goes as IPv6. A TLV for which MaxProxy leaves no room, or that is too long for its type, is left out.
func ProxyV2(dst []byte, client, vip netip.AddrPort, tlvs ...TLV) []byte {
	const (
		versionProxy   = 0x21
		tcp4, tcp6     = 0x11, 0x21
		maxUnique      = 128
		tlvHeaderBytes = 3
	)
	begin := len(dst)
	dst = append(dst, proxySignature...)
	from, to := client.Addr().Unmap(), vip.Addr().Unmap()
	if from.Is4() && to.Is4() {
		dst = append(dst, versionProxy, tcp4, 0, 0)
		dst = append(append(dst, from.AsSlice()...), to.AsSlice()...)
	} else {
		f, t := from.As16(), to.As16()
		dst = append(dst, versionProxy, tcp6, 0, 0)
		dst = append(append(dst, f[:]...), t[:]...)
	}
	dst = binary.BigEndian.AppendUint16(dst, client.Port())
	dst = binary.BigEndian.AppendUint16(dst, vip.Port())
	for _, t := range tlvs {
		if len(dst)-begin+tlvHeaderBytes+len(t.Value) > MaxProxy || t.Type == TLVUniqueID && len(t.Value) > maxUnique {
			continue
		}
		dst = append(dst, t.Type)
		dst = binary.BigEndian.AppendUint16(dst, uint16(len(t.Value)))
		dst = append(dst, t.Value...)
	}
	binary.BigEndian.PutUint16(dst[begin+lengthAt:], uint16(len(dst)-begin-lengthAt-2))
	return dst
}
