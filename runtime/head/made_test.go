package head

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"
)

func TestProxyV2(t *testing.T) {
	const signature = "0d0a0d0a000d0a515549540a"
	ports := "9c410050"
	v4 := signature + "2111000c" + "c000020a" + "c6336450" + ports
	for _, tt := range []struct {
		name, client, vip string
		tlvs              []TLV
		want              string
	}{
		{"ipv4", "192.0.2.10:40001", "198.51.100.80:80", nil, v4},
		{"mapped", "[::ffff:192.0.2.10]:40001", "198.51.100.80:80", nil, v4},
		{"ipv6", "[2001:db8:c::10]:40001", "[2001:db8:51::80]:80", nil,
			signature + "21210024" + "20010db8000c00000000000000000010" + "20010db8005100000000000000000080" + ports},
		{"mixed", "192.0.2.10:40001", "[2001:db8:51::80]:80", nil,
			signature + "21210024" + "00000000000000000000ffffc000020a" + "20010db8005100000000000000000080" + ports},
		{"tlvs", "192.0.2.10:40001", "198.51.100.80:80", []TLV{{TLVALPN, []byte("h2")}, {TLVAuthority, []byte("b.example")}, {TLVUniqueID, []byte{7}}},
			signature + "21110021" + "c000020a" + "c6336450" + ports + "0100026832" + "020009622e6578616d706c65" + "05000107"},
		{"tlvs too long", "192.0.2.10:40001", "198.51.100.80:80", []TLV{{TLVAuthority, make([]byte, MaxProxy-28-2)}, {TLVUniqueID, make([]byte, 129)}, {TLVALPN, nil}},
			signature + "2111000f" + "c000020a" + "c6336450" + ports + "010000"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := ProxyV2([]byte("before"), netip.MustParseAddrPort(tt.client), netip.MustParseAddrPort(tt.vip), tt.tlvs...)
			if want := hex.EncodeToString([]byte("before")) + tt.want; hex.EncodeToString(got) != want {
				t.Errorf("got  %x\nwant %s", got, want)
			}
		})
	}
	full := ProxyV2(nil, netip.AddrPort{}, netip.AddrPort{}, TLV{TLVAuthority, make([]byte, MaxProxy-52-3)})
	if len(full) != MaxProxy {
		t.Errorf("a TLV that just fits makes %d bytes, want %d", len(full), MaxProxy)
	}
}

// TestAnswer reads answers with the standard library.
func TestAnswer(t *testing.T) {
	for _, tt := range []struct {
		name              string
		status            int
		contentType, body string
		head              bool
		location          string
		wantType          string
		wantBody          string
		wantLocation      string
	}{
		{"status only", 404, "", "", false, "", "text/plain; charset=utf-8", "Not Found\n", ""},
		{"body", 503, "text/html", "<p>sorry", false, "", "text/html", "<p>sorry", ""},
		{"head request", 503, "text/html", "<p>sorry", true, "", "text/html", "", ""},
		{"redirect", 301, "", "", false, "https://b.example/x?y=%20", "text/plain; charset=utf-8", "Moved Permanently\n", "https://b.example/x?y=%20"},
		{"hostile", 302, "a\r\nX: y", "", false, "/a\r\nX: y\x00\xff\"", "aX: y", "Found\n", "/a%0D%0AX:%20y%00%FF%22"},
		{"no content", 204, "", "x", false, "", "", "", ""},
		{"reset content", 205, "", "x", false, "", "text/plain; charset=utf-8", "", ""},
		{"not modified", 304, "", "x", false, "", "", "", ""},
		{"unknown status", 599, "", "", false, "", "text/plain; charset=utf-8", "Server Error\n", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := Answer(tt.status, tt.contentType, tt.body, tt.head, tt.location)
			method := "GET"
			if tt.head {
				method = "HEAD"
			}
			r := bufio.NewReader(bytes.NewReader(b))
			got, err := http.ReadResponse(r, &http.Request{Method: method})
			if err != nil {
				t.Fatalf("%v in %q", err, b)
			}
			body, err := io.ReadAll(got.Body)
			if err != nil || string(body) != tt.wantBody {
				t.Errorf("body %q, %v, want %q", body, err, tt.wantBody)
			}
			if rest, _ := io.ReadAll(r); len(rest) != 0 {
				t.Errorf("%q follows", rest)
			}
			if got.StatusCode != tt.status || !got.Close || got.Header.Get("X") != "" {
				t.Errorf("status %d close %v header %v", got.StatusCode, got.Close, got.Header)
			}
			if g := got.Header.Get("Content-Type"); g != tt.wantType {
				t.Errorf("type %q, want %q", g, tt.wantType)
			}
			if g := got.Header.Get("Location"); g != tt.wantLocation {
				t.Errorf("location %q, want %q", g, tt.wantLocation)
			}
			if strings.Contains(string(b), "HTTP/1.1 ") && got.Status == "" {
				t.Error("no reason phrase")
			}
		})
	}
}

func TestStatusText(t *testing.T) {
	for status := 200; status < 600; status++ {
		want := http.StatusText(status)
		switch status {
		case 413:
			want = "Content Too Large" // RFC 9110's words
		case 414:
			want = "URI Too Long"
		case 416:
			want = "Range Not Satisfiable"
		case 422:
			want = "Unprocessable Content"
		}
		if got, known := reasons[status]; known && got != want {
			t.Errorf("%d: %q, want %q", status, got, want)
		}
		if StatusText(status) == "" {
			t.Errorf("%d has no text", status)
		}
	}
}

func TestAlert(t *testing.T) {
	if got, want := hex.EncodeToString(Alert(DecodeError)), "15030300020232"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
