package head

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
)

// vector puts a length of so many bytes before b.
func vector(lengthBytes int, b ...byte) []byte {
	n := binary.BigEndian.AppendUint32(nil, uint32(len(b)))
	return append(n[4-lengthBytes:], b...)
}

func extension(kind uint16, body ...byte) []byte {
	return append(binary.BigEndian.AppendUint16(nil, kind), vector(2, body...)...)
}

// hello makes a message with these extensions; without any there is no extension block.
func hello(extensions ...[]byte) []byte {
	b := append([]byte{3, 3}, make([]byte, 32)...)
	b = append(b, 0, 0, 2, 0x13, 1, 1, 0)
	if len(extensions) > 0 {
		b = append(b, vector(2, slices.Concat(extensions...)...)...)
	}
	return append([]byte{clientHello}, vector(3, b...)...)
}

// records spreads bytes over records of size bytes.
func records(message []byte, size int) (b []byte) {
	for chunk := range slices.Chunk(message, size) {
		b = append(append(b, recordHandshake, 3, 1), vector(2, chunk...)...)
	}
	return b
}

func sni(names ...string) []byte {
	var list []byte
	for _, n := range names {
		list = append(append(list, 0), vector(2, []byte(n)...)...)
	}
	return extension(extensionSNI, vector(2, list...)...)
}

func alpn(names ...string) []byte {
	var list []byte
	for _, n := range names {
		list = append(list, vector(1, []byte(n)...)...)
	}
	return extension(extensionALPN, vector(2, list...)...)
}

func TestParseHello(t *testing.T) {
	grease := extension(0x0a0a)
	b := hello(sni("b.example"))
	one := func(message []byte) []byte { return records(message, maxRecord) }
	change := func(b []byte, at int, to ...byte) []byte {
		b = bytes.Clone(b)
		copy(b[at:], to)
		return b
	}
	const none = -1 // the client does not speak TLS
	for _, tt := range []struct {
		name  string
		in    []byte
		alert int
		sni   string
		alpn  string
	}{
		{"sni", one(b), 0, "b.example", ""},
		{"capitals", one(hello(sni("B.eXample"))), 0, "b.example", ""},
		{"no sni", one(hello(grease)), 0, "", ""},
		{"no extensions", one(hello()), 0, "", ""},
		{"alpn and grease", one(hello(grease, alpn("\x0a\x0a", "h2", "http/1.1"), extension(43, 2, 0x1a, 0x1a), sni("b"))), 0, "b", "\x0a\x0a h2 http/1.1"},
		{"outer name with ech", one(hello(sni("outer.example"), extension(0xfe0d, 0, 1, 2))), 0, "outer.example", ""},
		{"one byte a record", records(b, 1), 0, "b.example", ""},
		{"name of 253", one(hello(sni(strings.Repeat("a", 253)))), 0, strings.Repeat("a", 253), ""},
		{"grease twice", one(hello(grease, grease, sni("b"))), 0, "b", ""}, // the server's business
		{"early data behind", append(one(b), 20, 3, 3, 0, 1, 1, 23, 3), 0, "b.example", ""},
		{"large", one(hello(extension(51, make([]byte, 15000)...), sni("b"))), 0, "b", ""},
		{"large over records", records(hello(extension(51, make([]byte, 40000)...), sni("b")), maxRecord), 0, "b", ""},

		{"http", []byte("GET / HTTP/1.1\r\n"), none, "", ""},
		{"nothing", nil, DecodeError, "", ""},
		{"cut record", one(b)[:40], DecodeError, "", ""},
		{"cut message", records(b[:40], 100), DecodeError, "", ""},
		{"version 2 record", change(one(b), 1, 2), none, "", ""},
		{"version 2 record later", change(records(b, 60), 66, 2), ProtocolVersion, "", ""},
		{"version 2 hello", change(one(b), 9, 2), ProtocolVersion, "", ""},
		{"empty record first", append([]byte{recordHandshake, 3, 1, 0, 0}, one(b)...), UnexpectedMessage, "", ""},
		{"empty record inside", slices.Concat(one(b[:9]), []byte{recordHandshake, 3, 1, 0, 0}, one(b[9:])), UnexpectedMessage, "", ""},
		{"alert inside", slices.Concat(one(b[:9]), Alert(0), one(b[9:])), UnexpectedMessage, "", ""},
		{"other message", change(one(b), 5, 2), UnexpectedMessage, "", ""},
		{"message behind", one(append(bytes.Clone(b), 1)), UnexpectedMessage, "", ""},
		{"hello announced too long", []byte{recordHandshake, 3, 1, 0, 4, clientHello, 0xff, 0, 0}, IllegalParameter, "", ""},
		{"message announced behind", []byte{recordHandshake, 3, 1, 1, 0, clientHello, 0, 0, 70}, UnexpectedMessage, "", ""},
		{"record too long", append([]byte{recordHandshake, 3, 1, 0x40, 1}, make([]byte, maxRecord+1)...), RecordOverflow, "", ""},
		{"hello too long", records(hello(extension(51, make([]byte, 32000)...), extension(52, make([]byte, 33500)...)), maxRecord), IllegalParameter, "", ""},

		{"two names", one(hello(sni("a", "b"))), IllegalParameter, "", ""},
		{"sni twice", one(hello(sni("a"), sni("a"))), IllegalParameter, "", ""},
		{"alpn twice", one(hello(alpn("a"), alpn("a"))), IllegalParameter, "", ""},
		{"other name type", one(hello(extension(extensionSNI, 0, 4, 9, 0, 1, 'b'))), IllegalParameter, "", ""},
		{"final dot", one(hello(sni("b.example."))), IllegalParameter, "", ""},
		{"name of 254", one(hello(sni(strings.Repeat("a", 254)))), IllegalParameter, "", ""},
		{"empty name", one(hello(sni(""))), DecodeError, "", ""},
		{"empty name list", one(hello(sni())), DecodeError, "", ""},
		{"empty sni", one(hello(extension(extensionSNI))), DecodeError, "", ""},
		{"bytes behind the name list", one(hello(extension(extensionSNI, 0, 4, 0, 0, 1, 'b', 0))), DecodeError, "", ""},
		{"name cut", one(hello(extension(extensionSNI, 0, 4, 0, 0, 2, 'b'))), DecodeError, "", ""},
		{"nul in the name", one(hello(sni("a\x00b"))), IllegalParameter, "", ""},
		{"space in the name", one(hello(sni("a b"))), IllegalParameter, "", ""},
		{"other alphabet", one(hello(sni("b\xc3\xbc"))), IllegalParameter, "", ""},
		{"empty protocol", one(hello(alpn(""))), DecodeError, "", ""},
		{"empty alpn list", one(hello(alpn())), DecodeError, "", ""},
		{"extension cut", one(hello([]byte{0, 1, 0, 9})), DecodeError, "", ""},
		{"extension header cut", one(hello([]byte{0, 1, 0})), DecodeError, "", ""},
		{"session of 33", one(append([]byte{clientHello}, vector(3, slices.Concat([]byte{3, 3}, make([]byte, 32), vector(1, make([]byte, 33)...), []byte{0, 2, 0x13, 1, 1, 0})...)...)), DecodeError, "", ""},
		{"odd suites", one(append([]byte{clientHello}, vector(3, slices.Concat([]byte{3, 3}, make([]byte, 33), []byte{0, 1, 0x13, 1, 0})...)...)), DecodeError, "", ""},
		{"no compression", one(append([]byte{clientHello}, vector(3, slices.Concat([]byte{3, 3}, make([]byte, 33), []byte{0, 2, 0x13, 1, 0})...)...)), DecodeError, "", ""},
		{"bytes behind the extensions", one(append([]byte{clientHello}, vector(3, slices.Concat([]byte{3, 3}, make([]byte, 33), []byte{0, 2, 0x13, 1, 1, 0, 0, 0, 7})...)...)), DecodeError, "", ""},
		{"one byte message", one([]byte{clientHello, 0, 0, 1, 3}), DecodeError, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h, err := ParseHello(tt.in)
			if tt.alert == 0 {
				if err != nil {
					t.Fatal(err)
				}
				if got := strings.Join(h.ALPN, " "); h.SNI != tt.sni || got != tt.alpn {
					t.Errorf("SNI %q ALPN %q, want %q %q", h.SNI, got, tt.sni, tt.alpn)
				}
				return
			}
			var e *Error
			if !errors.As(err, &e) || e.Alert != byte(max(tt.alert, 0)) || e.Status != 0 {
				t.Errorf("error %#v, want alert %d", err, tt.alert)
			}
		})
	}
}

// TestCaseB15Hello is the hello of the smallest client, cut everywhere: a piece is never taken, the whole always.
func TestCaseB15Hello(t *testing.T) {
	whole := records(hello(sni("b.example")), maxRecord)
	if len(whole) != 70 {
		t.Fatalf("the hello has %d bytes, want 70", len(whole))
	}
	for n := range whole {
		h, err := ParseHello(whole[:n])
		var e *Error
		if !errors.As(err, &e) || !e.More {
			t.Errorf("of %d bytes: %+v, %v, want more", n, h, err)
		}
	}
	if h, err := ParseHello(whole); err != nil || h.SNI != "b.example" || h.Bytes != len(whole) {
		t.Errorf("%+v, %v", h, err)
	}
}

// TestRealHello reads what crypto/tls sends, the post-quantum key share included, in records of every size.
func TestRealHello(t *testing.T) {
	client, server := net.Pipe()
	defer server.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		// It fails once the pipe is closed.
		_ = tls.Client(client, &tls.Config{ServerName: "B.Example", NextProtos: []string{"h2", "http/1.1"}}).Handshake()
	}()
	b := make([]byte, MaxHello)
	n, err := server.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	client.Close()
	<-done
	b = b[:n]
	message := b[5:]
	if n < 1000 {
		t.Errorf("the hello has %d bytes; a post-quantum one has more", n)
	}
	for _, size := range []int{1, 2, 3, 7, 100, 1000, n} {
		h, err := ParseHello(records(message, size))
		if err != nil {
			t.Fatalf("records of %d: %v", size, err)
		}
		if h.SNI != "b.example" || strings.Join(h.ALPN, " ") != "h2 http/1.1" {
			t.Errorf("records of %d: SNI %q ALPN %q", size, h.SNI, h.ALPN)
		}
	}
}
