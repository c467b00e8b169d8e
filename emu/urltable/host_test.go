package urltable

import (
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
)

// literalOf is what the standard library makes of the text between brackets.
func literalOf(s string) (string, bool) {
	a, err := netip.ParseAddr(s)
	if err != nil || !a.Is6() || a.Zone() != "" {
		return "", false
	}
	return "[" + a.String() + "]", true
}

func checkLiteral(t *testing.T, s string) {
	t.Helper()
	var r Request
	want, wantOK := literalOf(s)
	host, ok := cutPort([]byte("[" + s + "]:80"))
	if ok != wantOK {
		t.Fatalf("%q: ok %v, want %v", s, ok, wantOK)
	}
	if !ok {
		return
	}
	if r.setHost(host); string(r.Host) != want {
		t.Fatalf("%q: %q, want %q", s, r.Host, want)
	}
}

// TestLiterals holds the reading and writing of IPv6 literals against the standard library's.
func TestLiterals(t *testing.T) {
	for _, s := range []string{"", ":", "::", ":::", "::1", "1::", "1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7::", "::2:3:4:5:6:7:8", "1::3:4:5:6:7:8:9",
		"1:2:3:4:5:6:7", "1:2:3:4:5:6:7:8:9", "1:2:3:4::5:6:7:8", "1::2::3", "0:0:1::0:0", "1:0:0:1:0:0:0:1", "1:0:1:1:1:1:1:1", "12345::", "g::", "1:",
		":1", "::ffff:1.2.3.4", "::ffff:101:203", "::1.2.3.4", "64:ff9b::255.255.255.255", "1.2.3.4", "::1.2.3", "::1.2.3.4.5", "::01.2.3.4", "::256.1.1.1",
		"1:2:3:4:5:6:1.2.3.4", "1:2:3:4:5:6:7:1.2.3.4", "::1.2.3.4:5", "fe80::1%eth0", "::ffff:0:0", "0000:00:0::A"} {
		checkLiteral(t, s)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	parts := []string{":", ":", "::", "0", "00", "1", "ab", "FFFF", "ffff", "0:0", "1.2.3.4", "10.0.255.7", "."}
	legal := 0
	for range 50000 {
		var b strings.Builder
		for range rng.IntN(18) {
			b.WriteString(parts[rng.IntN(len(parts))])
		}
		if _, ok := literalOf(b.String()); ok {
			legal++
		}
		checkLiteral(t, b.String())
	}
	if legal < 250 {
		t.Errorf("only %d of the literals were legal", legal)
	}
}
