package head

import (
	"net/netip"
	"strings"
	"testing"

	"splicenic/runtime/config"
)

func TestAlter(t *testing.T) {
	xff, rfc := config.XForwardedFor, config.ForwardedRFC
	// in and want are the lines between the request line with Host and the end.
	type fields = []string
	of := func(lines ...string) fields { return lines }
	const ours = `for="192.0.2.10:40001";by="198.51.100.80:80";host=b;proto=http`
	for _, tt := range []struct {
		name     string
		alter    Alter
		in, want fields // nil want: refused
	}{
		{"nothing", Alter{}, of("Connection: keep-alive, X", "X : ", "Forwarded: \"")[:1], of("Connection: keep-alive, X")},

		{"close without options", Alter{Close: true}, of("A:b"), of("A:b", "Connection: close")},
		{"close for keep-alive", Alter{Close: true}, of("Connection: keep-alive", "A:  b "), of("Connection: close", "A:  b ")},
		{"close is there", Alter{Close: true}, of("connection:Close", "A: b"), of("connection:Close", "A: b")},
		{"close among others", Alter{Close: true}, of("Connection: close, keep-alive"), of("Connection: close")},
		{"several fields", Alter{Close: true}, of("Connection: keep-alive", "A: b", "connection: x"), of("Connection: close", "A: b")},
		{"empty option list", Alter{Close: true}, of("Connection: ,", "A: b"), of("Connection: close", "A: b")},
		{"upgrade", Alter{Close: true}, of("Upgrade: websocket", "Connection: keep-alive, upgrade"), of("Upgrade: websocket", "Connection: Upgrade, close")},
		{"upgrade and close are there", Alter{Close: true}, of("Connection: close", "Connection: upgrade", "Upgrade: x"), of("Connection: close", "Connection: upgrade", "Upgrade: x")},
		{"upgrade not named", Alter{Close: true}, of("Upgrade: x", "Connection: keep-alive"), of("Upgrade: x", "Connection: close")},
		{"named field", Alter{Close: true}, of("X-Foo: 1", "Connection: x-foo, close", "x-FOO: 2", "X-Foo2: 3"), of("Connection: close", "X-Foo2: 3")},
		{"te", Alter{Close: true}, of("Connection: TE, close", "TE: trailers"), of("Connection: close")},
		{"te not named", Alter{Close: true}, of("TE: trailers"), of("TE: trailers", "Connection: close")},
		{"http2-settings", Alter{Close: true}, of("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk"), of("Connection: Upgrade, close", "Upgrade: h2c")},
		{"named length", Alter{Close: true}, of("Connection: content-length", "Content-Length: 5"), of("Connection: close", "Content-Length: 5")},
		{"named host", Alter{Close: true}, of("Connection: host, Cookie, Connection", "Cookie: a"), of("Connection: close", "Cookie: a")},
		{"named trace", Alter{Close: true}, of("Connection: X-Forwarded-For", "X-Forwarded-For: 192.0.2.1"), of("Connection: close", "X-Forwarded-For: 192.0.2.1")},
		{"keep-alive fields", Alter{Close: true}, of("Keep-Alive: timeout=5", "Proxy-Connection: keep-alive", "Connection: close"), of("Connection: close")},
		{"keep-alive fields without close", Alter{}, of("Keep-Alive: timeout=5", "Proxy-Connection: keep-alive"), of("Keep-Alive: timeout=5", "Proxy-Connection: keep-alive")},

		{"xff", Alter{Forwarded: xff}, of("A: b"), of("A: b", "X-Forwarded-For: 192.0.2.10", "X-Forwarded-Proto: http", "X-Forwarded-Host: b")},
		{"xff append", Alter{Forwarded: xff}, of("x-forwarded-for: 192.0.2.1 ", "X-Forwarded-For: 192.0.2.2\t", "X-Forwarded-Proto: https", "X-Forwarded-Host: c", "A: b"),
			of("x-forwarded-for: 192.0.2.1 ", "X-Forwarded-For: 192.0.2.2, 192.0.2.10", "X-Forwarded-Proto: https", "X-Forwarded-Host: c", "A: b")},
		{"xff append to nothing", Alter{Forwarded: xff}, of("X-Forwarded-For:  ", "X-Forwarded-Proto:", "X-Forwarded-Host:"), of("X-Forwarded-For: 192.0.2.10", "X-Forwarded-Proto:", "X-Forwarded-Host:")},
		{"xff replace", Alter{Forwarded: xff, Existing: config.Replace}, of("X-Forwarded-For: 192.0.2.1", "A: b", "x-forwarded-proto: https", "Forwarded: for=x", "X-Forwarded-Port: 1"),
			of("A: b", "X-Forwarded-For: 192.0.2.10", "X-Forwarded-Proto: http", "X-Forwarded-Host: b")},
		{"xff refuse", Alter{Forwarded: xff, Existing: config.Refuse}, of("x-forwarded-proto: https"), nil},
		{"xff refuse, other kind", Alter{Forwarded: xff, Existing: config.Refuse}, of("Forwarded: for=x"), nil},
		{"xff refuse nothing", Alter{Forwarded: xff, Existing: config.Refuse}, of(), of("X-Forwarded-For: 192.0.2.10", "X-Forwarded-Proto: http", "X-Forwarded-Host: b")},
		{"none refuse", Alter{Existing: config.Refuse}, of("Forwarded: for=x"), of("Forwarded: for=x")},
		{"tls", Alter{Forwarded: xff, TLS: true}, of(), of("X-Forwarded-For: 192.0.2.10", "X-Forwarded-Proto: https", "X-Forwarded-Host: b")},

		{"forwarded", Alter{Forwarded: rfc}, of("A: b"), of("A: b", "Forwarded: "+ours)},
		{"forwarded append", Alter{Forwarded: rfc}, of("Forwarded: for=192.0.2.1", `forwarded:for="[2001:db8::1]:_a.b-c";proto=https, for=unknown, for=_gazonk`, "X-Forwarded-For: x"),
			of("Forwarded: for=192.0.2.1", `forwarded:for="[2001:db8::1]:_a.b-c";proto=https, for=unknown, for=_gazonk, `+ours, "X-Forwarded-For: x")},
		{"forwarded append to nothing", Alter{Forwarded: rfc}, of("Forwarded:"), of("Forwarded: " + ours)},
		{"forwarded append, no quotes", Alter{Forwarded: rfc}, of("Forwarded: for=192.0.2.1:80 ; proto=http ,"), of("Forwarded: for=192.0.2.1:80 ; proto=http ,, " + ours)},
		{"forwarded append, open quote", Alter{Forwarded: rfc}, of(`Forwarded: for="x`), nil},
		{"forwarded append, quoted quote", Alter{Forwarded: rfc}, of(`Forwarded: for="x\"`), nil},
		{"forwarded append, quote inside", Alter{Forwarded: rfc}, of(`Forwarded: for=x"`), nil},
		{"forwarded append, text behind a quote", Alter{Forwarded: rfc}, of(`Forwarded: for="x"y`), nil},
		{"forwarded append, no pair", Alter{Forwarded: rfc}, of(`Forwarded: 192.0.2.1`), nil},
		{"forwarded replace, open quote", Alter{Forwarded: rfc, Existing: config.Replace}, of(`Forwarded: for="x`, "X-Forwarded-For: y"), of("Forwarded: " + ours)},
		{"forwarded refuse", Alter{Forwarded: rfc, Existing: config.Refuse}, of("Forwarded:"), nil},

		{"both", Alter{Forwarded: xff, Close: true}, of("Connection: keep-alive", "X-Forwarded-For: 192.0.2.1"),
			of("Connection: close", "X-Forwarded-For: 192.0.2.1, 192.0.2.10", "X-Forwarded-Proto: http", "X-Forwarded-Host: b")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.alter.Client, tt.alter.VIP = netip.MustParseAddrPort("192.0.2.10:40001"), netip.MustParseAddrPort("198.51.100.80:80")
			first := []string{"POST / HTTP/1.1", "Host:  b "}
			got, err := apply(t, &tt.alter, lines(append(first, tt.in...)...))
			if tt.want == nil {
				if statusOf(err) != 400 || got != "" {
					t.Errorf("got %q, %v, want status 400", got, err)
				}
				return
			}
			if want := lines(append(first, tt.want...)...); err != nil || got != want {
				t.Errorf("got  %q\nwant %q\n%v", got, want, err)
			}
		})
	}
}

// apply alters a head behind bytes that have to stay.
func apply(t *testing.T, a *Alter, in string) (string, error) {
	t.Helper()
	h, err := Parse([]byte(in))
	if err != nil {
		t.Fatal(err)
	}
	out, err := a.Apply([]byte("before"), []byte(in), h)
	got, ok := strings.CutPrefix(string(out), "before")
	if !ok {
		t.Fatalf("%q does not begin with what was there", out)
	}
	return got, err
}

func TestAlterAddresses(t *testing.T) {
	for _, tt := range []struct {
		name, client, vip string
		in                string
		rfc, xff          string
	}{
		{"ipv4", "192.0.2.10:40001", "198.51.100.80:80", lines("GET / HTTP/1.1", "Host: b.example"),
			`for="192.0.2.10:40001";by="198.51.100.80:80";host=b.example;proto=http`, "192.0.2.10"},
		{"ipv6", "[2001:db8:c::10]:40001", "[2001:db8:51::80]:80", lines("GET / HTTP/1.1", "Host: [2001:db8:51::80]:80"),
			`for="[2001:db8:c::10]:40001";by="[2001:db8:51::80]:80";host="[2001:db8:51::80]:80";proto=http`, "2001:db8:c::10"},
		{"mapped, zone", "[::ffff:192.0.2.10]:40001", "[fe80::1%eth0]:80", lines("GET / HTTP/1.0"),
			`for="192.0.2.10:40001";by="[fe80::1]:80";proto=http`, "192.0.2.10"},
		{"authority of the target", "192.0.2.10:40001", "198.51.100.80:80", lines("GET http://B.example:8080/ HTTP/1.1", "Host: a"),
			`for="192.0.2.10:40001";by="198.51.100.80:80";host="B.example:8080";proto=http`, "192.0.2.10"},
		{"semicolon in the host", "192.0.2.10:40001", "198.51.100.80:80", lines("GET / HTTP/1.1", "Host: a;c=d"),
			`for="192.0.2.10:40001";by="198.51.100.80:80";host="a;c=d";proto=http`, "192.0.2.10"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := Alter{Forwarded: config.ForwardedRFC, Client: netip.MustParseAddrPort(tt.client), VIP: netip.MustParseAddrPort(tt.vip)}
			end := strings.TrimSuffix(tt.in, "\r\n")
			got, err := apply(t, &a, tt.in)
			if want := end + "Forwarded: " + tt.rfc + "\r\n\r\n"; err != nil || got != want {
				t.Errorf("got  %q\nwant %q\n%v", got, want, err)
			}
			a.Forwarded = config.XForwardedFor
			got, err = apply(t, &a, tt.in)
			if want := end + "X-Forwarded-For: " + tt.xff + "\r\n"; err != nil || !strings.HasPrefix(got, want) {
				t.Errorf("got  %q\nwant %q\n%v", got, want, err)
			}
		})
	}
}

func TestAlterTooLong(t *testing.T) {
	in := lines("GET / HTTP/1.1", "Host: "+strings.Repeat("a", maxGrowth))
	a := Alter{Forwarded: config.XForwardedFor}
	if got, err := apply(t, &a, in); statusOf(err) != 431 || got != "" {
		t.Errorf("got %d bytes, %v, want status 431", len(got), err)
	}
	h, err := Parse([]byte(in))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Apply(nil, []byte(in)[1:], h); err == nil {
		t.Error("a head that was not parsed is altered")
	}
}
