package head

import (
	"encoding/binary"
	"fmt"
	"strings"

	"splicenic/runtime/rule"
)

// MaxHello is how long a ClientHello may be, without the headers of its records.
const MaxHello = 64 << 10

// The alerts (RFC 8446 6) that tell a client why its hello is not taken.
const (
	UnexpectedMessage = 10
	RecordOverflow    = 22
	HandshakeFailure  = 40
	IllegalParameter  = 47
	DecodeError       = 50
	ProtocolVersion   = 70
	InternalError     = 80
	UnrecognizedName  = 112
)

// Alert returns the record with a fatal alert.
func Alert(code byte) []byte {
	return []byte{recordAlert, 3, 3, 0, 2, 2, code}
}

const (
	recordAlert     = 21
	recordHandshake = 22
	maxRecord       = 1 << 14
	clientHello     = 1

	maxName = 253 // RFC 1035 2.3.4, with a length byte and the root taken off

	extensionSNI  = 0
	extensionALPN = 16
)

// A Hello is what a ClientHello says.
type Hello struct {
	SNI   string   // as rules compare it: lower case; empty: none was sent. With ECH the outer name
	ALPN  []string // in the client's order
	Bytes int      // of the records that hold it
}

// Request is what rules look at of the hello; Source is the caller's to fill in.
func (h *Hello) Request() *rule.Request { return &rule.Request{TLS: true, Host: h.SNI, ALPN: h.ALPN} }

// ParseHello reads the ClientHello (RFC 8446 4.1.2) at the begin of a client's records. The hello may be spread over any
// number of them, but it has to end where a record does. What follows is not looked at, and neither is what is the
// server's business: versions, suites, keys and the extensions beside names and protocols.
func ParseHello(b []byte) (*Hello, error) {
	message, n, err := gather(b)
	if err != nil {
		return nil, err
	}
	h := &Hello{Bytes: n}
	if err := h.read(message); err != nil {
		return nil, err
	}
	return h, nil
}

func alert(code byte, format string, args ...any) *Error {
	return &Error{Alert: code, Msg: fmt.Sprintf(format, args...)}
}

// gather joins the handshake message that the first records hold, without its header. What is wrong is found as soon as
// it is there, not when the message is whole.
func gather(b []byte) (message []byte, n int, err *Error) {
	const header = 4 // type and length of the message
	for need := header; len(message) < need; {
		record := b[n:]
		wrongType, wrongVersion := len(record) > 0 && record[0] != recordHandshake, len(record) > 1 && record[1] != 3
		switch {
		case n == 0 && (wrongType || wrongVersion):
			return nil, 0, &Error{Msg: "the first bytes begin no TLS handshake"}
		case wrongType:
			return nil, 0, alert(UnexpectedMessage, "a record of type %d interrupts the ClientHello", record[0])
		case wrongVersion:
			return nil, 0, alert(ProtocolVersion, "a record has version %d", record[1])
		case len(record) < 5:
			return nil, 0, more()
		}
		size := int(binary.BigEndian.Uint16(record[3:]))
		promised := len(message) + size
		switch {
		case size == 0:
			return nil, 0, alert(UnexpectedMessage, "a handshake record is empty")
		case size > maxRecord:
			return nil, 0, alert(RecordOverflow, "a record has %d bytes", size)
		}
		message = append(message, record[5:min(5+size, len(record))]...)
		if len(message) >= header {
			need = header + int(message[1])<<16 + int(message[2])<<8 + int(message[3])
		}
		switch {
		case len(message) > 0 && message[0] != clientHello:
			return nil, 0, alert(UnexpectedMessage, "the first message has type %d and is no ClientHello", message[0])
		case need > MaxHello:
			return nil, 0, alert(IllegalParameter, "the ClientHello is longer than %d bytes", MaxHello)
		case len(message) >= header && promised > need:
			return nil, 0, alert(UnexpectedMessage, "%d bytes follow the ClientHello in its record", promised-need)
		case len(message) < promised:
			return nil, 0, more()
		}
		n += 5 + size
	}
	return message[header:], n, nil
}

// more says that a hello may be right, once the rest arrives.
func more() *Error {
	e := alert(DecodeError, "the ClientHello has no end")
	e.More = true
	return e
}

// read takes in the message.
func (h *Hello) read(message []byte) *Error {
	r := reader{rest: message}
	version := r.take(2)
	r.take(32) // random
	session := r.vector(1)
	suites := r.vector(2)
	compressions := r.vector(1)
	switch {
	case r.short:
		return alert(DecodeError, "the ClientHello is cut short")
	case version[0] != 3:
		return alert(ProtocolVersion, "the ClientHello has version %d", version[0])
	case len(session) > 32 || len(suites) == 0 || len(suites)%2 != 0 || len(compressions) == 0:
		return alert(DecodeError, "session, cipher suites or compression of the ClientHello have a wrong length")
	case len(r.rest) == 0:
		return nil // extensions may be missing altogether
	}
	all := reader{rest: r.vector(2)}
	if r.short || len(r.rest) > 0 {
		return alert(DecodeError, "the extensions do not fill the ClientHello")
	}
	seen := map[uint16]bool{} // of the two that are read
	for len(all.rest) > 0 {
		kind := all.take(2)
		body := reader{rest: all.vector(2)}
		if all.short {
			return alert(DecodeError, "an extension is cut short")
		}
		k := binary.BigEndian.Uint16(kind)
		if k != extensionSNI && k != extensionALPN {
			continue
		}
		if seen[k] {
			return alert(IllegalParameter, "extension %d is there twice", k)
		}
		seen[k] = true
		read := h.name
		if k == extensionALPN {
			read = h.protocols
		}
		if err := read(body); err != nil {
			return err
		}
	}
	return nil
}

// name reads a ServerNameList (RFC 6066 3). There is no type of name but that of hosts, and none may come twice. A name
// holds letters, digits, dashes, dots and, as they are in use, underscores; it does not end with a dot.
func (h *Hello) name(r reader) *Error {
	const hostName = 0
	names := reader{rest: r.vector(2)}
	if r.short || len(r.rest) > 0 || len(names.rest) == 0 {
		return alert(DecodeError, "the server name extension is malformed")
	}
	if kind := names.take(1)[0]; kind != hostName {
		return alert(IllegalParameter, "the server name has type %d", kind)
	}
	name := string(names.vector(2))
	switch {
	case name == "":
		return alert(DecodeError, "the server name is empty or cut short")
	case len(names.rest) > 0:
		return alert(IllegalParameter, "more than one server name is there")
	case len(name) > maxName || strings.HasSuffix(name, "."):
		return alert(IllegalParameter, "the server name is too long or ends with a dot")
	}
	for i := range len(name) {
		if c := name[i]; !alphanumeric(c) && !strings.ContainsRune("-._", rune(c)) {
			return alert(IllegalParameter, "the server name holds %q", c)
		}
	}
	h.SNI = strings.ToLower(name)
	return nil
}

// protocols reads a ProtocolNameList (RFC 7301 3.1).
func (h *Hello) protocols(r reader) *Error {
	names := reader{rest: r.vector(2)}
	if r.short || len(r.rest) > 0 || len(names.rest) == 0 {
		return alert(DecodeError, "the ALPN extension is malformed")
	}
	for len(names.rest) > 0 {
		name := names.vector(1)
		if names.short || len(name) == 0 {
			return alert(DecodeError, "the ALPN extension is malformed")
		}
		h.ALPN = append(h.ALPN, string(name))
	}
	return nil
}

// A reader takes fields off bytes. Once they were too few it is short and gives nothing any more.
type reader struct {
	rest  []byte
	short bool
}

func (r *reader) take(n int) []byte {
	if r.short || n > len(r.rest) {
		r.short = true
		return nil
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

// vector takes a vector whose length is a number of so many bytes.
func (r *reader) vector(lengthBytes int) []byte {
	n := 0
	for _, b := range r.take(lengthBytes) {
		n = n<<8 | int(b)
	}
	return r.take(n)
}
