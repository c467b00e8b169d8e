package urltable

import "bytes"

// What a record and a handshake message begin with (RFC 8446 5.1 and 4).
const (
	recordHeader    = 5
	recordHandshake = 0x16
	maxRecord       = 1 << 14
	messageHeader   = 4
	clientHello     = 1
)

// maxHello is the longest hello that is waited for. Those of today are below 3 KiB, with post-quantum key shares.
const maxHello = 1 << 16

// The extensions that are read.
const (
	extensionSNI  = 0
	extensionALPN = 16
)

// maxName is the longest name there can be (RFC 1035 2.3.4), with a length byte and the root taken off.
const maxName = 253

// The alerts a malformed hello is answered with (RFC 8446 6.2).
const (
	alertUnexpectedMessage = 10
	alertRecordOverflow    = 22
	alertIllegalParameter  = 47
	alertDecodeError       = 50
	alertProtocolVersion   = 70
)

// A Hello is what a ClientHello says, as far as rules ask. SNI and ALPN are views of the records, or of the Hello where the
// message lay in several of them. It is large: keep one and use it again.
type Hello struct {
	SNI   []byte // the server's name as sent; nil where the client names none. Of an encrypted hello the outer one
	ALPN  []byte // the protocols the client offers, each behind a byte with its length, which is never zero; nil: none
	Alert uint8  // with BadHello: the code of the alert the client is to get

	message [maxPath]byte
}

// CanStartTLS says whether a byte may be the first of a TLS connection. It lets the caller refuse what is not TLS with its
// first segment.
func CanStartTLS(b byte) bool { return b == recordHandshake }

// FindHello looks for the end of a ClientHello that may lie in many records. buf is all that arrived; scanned is where the
// next record header to look at begins and have is how many bytes of the message the records before it hold: both as the
// previous call returned them, zero at first. Where end is not zero, buf[:end] is what ParseHello reads. Records that no
// hello can come of end it as well: there is no use in waiting. Over all calls every record header is looked at once, but
// for the last one so far and the few that the message's own header lies in.
func FindHello(buf []byte, scanned, have uint32) (end, scannedTo, haveTo uint32) {
	for {
		size, alert := record(buf[min(int(scanned), len(buf)):])
		if alert != 0 {
			return uint32(len(buf)), scanned, have
		}
		if size == 0 {
			return 0, scanned, have // part of a record header
		}
		arrived := min(size, len(buf)-int(scanned)-recordHeader)
		var header [messageHeader]byte
		switch n := gather(header[:], buf[:int(scanned)+recordHeader+arrived]); {
		case n > 0 && header[0] != clientHello:
			return uint32(len(buf)), scanned, have
		case n == messageHeader:
			need := messageHeader + messageBytes(header[:])
			if need > maxHello || int(have)+size > need { // too long, or another message in the same record
				return uint32(len(buf)), scanned, have
			}
			if arrived == size && int(have)+size == need {
				end = scanned + recordHeader + uint32(size)
				return end, end, uint32(need)
			}
		}
		if arrived < size {
			return 0, scanned, have
		}
		scanned += recordHeader + uint32(size)
		have += uint32(size)
	}
}

// record checks the header of the record that b begins with and returns the length of its fragment, zero while the header
// is not whole. alert is not zero where no ClientHello can go on with it.
func record(b []byte) (size int, alert uint8) {
	if len(b) > 0 && b[0] != recordHandshake {
		return 0, alertUnexpectedMessage
	}
	if len(b) > 1 && b[1] != 3 {
		return 0, alertProtocolVersion
	}
	if len(b) < recordHeader {
		return 0, 0
	}
	switch size = int(b[3])<<8 | int(b[4]); {
	case size == 0: // RFC 8446 5.1
		return 0, alertUnexpectedMessage
	case size > maxRecord:
		return 0, alertRecordOverflow
	}
	return size, 0
}

// gather copies bytes of the message from the begin of the records in buf into to and returns how many. The records are
// checked already, but for one that reaches beyond buf.
func gather(to, buf []byte) (n int) {
	for at := 0; n < len(to) && len(buf)-at > recordHeader; {
		size := int(buf[at+3])<<8 | int(buf[at+4])
		at += recordHeader
		n += copy(to[n:], buf[at:min(at+size, len(buf))])
		at += size
	}
	return n
}

func messageBytes(header []byte) int { return int(header[1])<<16 | int(header[2])<<8 | int(header[3]) }

// ParseHello reads a ClientHello with its records, as FindHello delimits it, into h. Of the message it checks everything
// that tells where names and protocols lie, so that the server finds the same ones; versions, suites and keys are the
// server's business.
func ParseHello(records []byte, h *Hello) Verdict {
	h.SNI, h.ALPN, h.Alert = nil, nil, 0
	if len(records) == 0 || records[0] != recordHandshake || len(records) > 1 && records[1] != 3 {
		return NotTLS
	}
	message, alert := h.join(records)
	if alert == 0 {
		alert = h.read(message)
	}
	if alert != 0 {
		h.SNI, h.ALPN, h.Alert = nil, nil, alert
		return BadHello
	}
	return OK
}

// join returns the handshake message without the headers of its records.
func (h *Hello) join(records []byte) (message []byte, alert uint8) {
	for at, n := 0, 0; ; {
		size, alert := record(records[at:])
		if alert != 0 {
			return nil, alert
		}
		if size == 0 || size > len(records)-at-recordHeader {
			// Not whole. FindHello ends such a record for what its fragment begins with.
			if size != 0 {
				return nil, h.cut(records, n+size)
			}
			return nil, alertDecodeError
		}
		fragment := records[at+recordHeader : at+recordHeader+size]
		at += recordHeader + size
		if n == 0 && at == len(records) {
			return fragment, 0
		}
		if n+size > len(h.message) {
			return nil, alertIllegalParameter
		}
		n += copy(h.message[n:], fragment)
		if at == len(records) {
			return h.message[:n], 0
		}
	}
}

// cut says why a message whose records end early is malformed: records is what there is of it, promised how many bytes of
// the message it was to hold.
func (h *Hello) cut(records []byte, promised int) uint8 {
	var header [messageHeader]byte
	n := gather(header[:], records)
	switch {
	case n > 0 && header[0] != clientHello:
		return alertUnexpectedMessage
	case n < messageHeader:
		return alertDecodeError
	case messageHeader+messageBytes(header[:]) > maxHello:
		return alertIllegalParameter
	case promised > messageHeader+messageBytes(header[:]):
		return alertUnexpectedMessage
	}
	return alertDecodeError
}

// read takes the message apart (RFC 8446 4.1.2). It returns an alert where it is malformed.
func (h *Hello) read(message []byte) (alert uint8) {
	switch {
	case message[0] != clientHello:
		return alertUnexpectedMessage
	case len(message) < messageHeader:
		return alertDecodeError
	}
	switch size := messageBytes(message); {
	case messageHeader+size > maxHello:
		return alertIllegalParameter
	case len(message)-messageHeader > size: // another message before the answer
		return alertUnexpectedMessage
	case len(message)-messageHeader < size:
		return alertDecodeError
	}
	const versionAndRandom = 2 + 32
	rest := message[messageHeader:]
	if len(rest) < versionAndRandom {
		return alertDecodeError
	}
	if rest[0] != 3 {
		return alertProtocolVersion
	}
	session, rest, ok := cutVector(rest[versionAndRandom:], 1)
	suites, rest, ok2 := cutVector(rest, 2)
	methods, rest, ok3 := cutVector(rest, 1)
	if !ok || !ok2 || !ok3 || len(session) > 32 || len(suites) == 0 || len(suites)%2 != 0 || len(methods) == 0 {
		return alertDecodeError
	}
	if len(rest) == 0 {
		return 0 // no extensions, as before RFC 3546
	}
	extensions, rest, ok := cutVector(rest, 2)
	if !ok || len(rest) != 0 {
		return alertDecodeError
	}
	return h.extensions(extensions)
}

func (h *Hello) extensions(list []byte) (alert uint8) {
	for len(list) > 0 {
		if len(list) < 4 {
			return alertDecodeError
		}
		kind := int(list[0])<<8 | int(list[1])
		data, rest, ok := cutVector(list[2:], 2)
		if !ok {
			return alertDecodeError
		}
		list = rest
		switch {
		case kind == extensionSNI && h.SNI != nil || kind == extensionALPN && h.ALPN != nil: // RFC 8446 4.2
			return alertIllegalParameter
		case kind == extensionSNI:
			alert = h.names(data)
		case kind == extensionALPN:
			alert = h.protocols(data)
		}
		if alert != 0 {
			return alert
		}
	}
	return 0
}

// names reads server_name (RFC 6066 3): one name of a host. There is no other type of name, and none may come twice.
func (h *Hello) names(data []byte) (alert uint8) {
	list, rest, ok := cutVector(data, 2)
	if !ok || len(rest) != 0 || len(list) == 0 {
		return alertDecodeError
	}
	if list[0] != 0 {
		return alertIllegalParameter
	}
	host, rest, ok := cutVector(list[1:], 2)
	if !ok || len(host) == 0 {
		return alertDecodeError
	}
	if len(rest) != 0 || len(host) > maxName || host[len(host)-1] == '.' {
		return alertIllegalParameter
	}
	for _, b := range host {
		if class[b]&dns == 0 {
			return alertIllegalParameter
		}
	}
	h.SNI = host
	return 0
}

// protocols reads the list of application_layer_protocol_negotiation (RFC 7301 3.1).
func (h *Hello) protocols(data []byte) (alert uint8) {
	list, rest, ok := cutVector(data, 2)
	if !ok || len(rest) != 0 || len(list) == 0 {
		return alertDecodeError
	}
	for rest := list; len(rest) > 0; {
		name, after, ok := cutVector(rest, 1)
		if !ok || len(name) == 0 {
			return alertDecodeError
		}
		rest = after
	}
	h.ALPN = list
	return 0
}

// cutVector takes a vector off b whose length stands before it in one or two bytes.
func cutVector(b []byte, lengthBytes int) (vector, rest []byte, ok bool) {
	if len(b) < lengthBytes {
		return nil, nil, false
	}
	n := int(b[0])
	if lengthBytes == 2 {
		n = n<<8 | int(b[1])
	}
	b = b[lengthBytes:]
	if len(b) < n {
		return nil, nil, false
	}
	return b[:n], b[n:], true
}

// Offers says whether a list of protocols as in Hello.ALPN holds one.
func Offers(list, protocol []byte) bool {
	for len(list) > 0 {
		name, rest, ok := cutVector(list, 1)
		if !ok {
			return false
		}
		if bytes.Equal(name, protocol) {
			return true
		}
		list = rest
	}
	return false
}
