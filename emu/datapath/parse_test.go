package datapath

import (
	"encoding/binary"
	"testing"
	"time"

	"splicenic/emu/frame"
	"splicenic/regs"
)

// plainFrame is a frame of no connection for the rows below to spoil.
func plainFrame(t *testing.T, w world) []byte {
	t.Helper()
	raw := buildFrame(t, &tcp{from: w.client, to: w.vip, sport: 40001, dport: 80, seq: 1, ack: 2, flags: flagACK, window: 9, payload: []byte("some payload"), vlan: w.vlanClient, srcMAC: clientMAC, dstMAC: portMAC[0]})
	return append([]byte(nil), raw...)
}

func put16(b []byte, at int, v uint16) { binary.BigEndian.PutUint16(b[at:], v) }

// headerSum puts the right sum into an untagged IPv4 header.
func headerSum(b []byte) {
	put16(b, 24, 0)
	put16(b, 24, reference(b[14:34]))
}

// udp makes a UDP frame to the VIP.
func udp(t *testing.T, w world, payload string, sum uint16, fix bool) []byte {
	t.Helper()
	b := plainFrame(t, w)[:14]
	n := 8 + len(payload)
	if w.kind == kindIPv4 {
		b = append(b, 0x45, 0, 0, byte(20+n), 0, 0, 0x40, 0, 64, protocolUDP, 0, 0)
		b = append(append(b, w.client.AsSlice()...), w.vip.AsSlice()...)
		headerSum(b)
	} else {
		b = append(b, 0x60, 0, 0, 0, 0, byte(n), protocolUDP, 64)
		b = append(append(b, w.client.AsSlice()...), w.vip.AsSlice()...)
	}
	at := len(b)
	b = append(b, 0x9c, 0x41, 0, 53, 0, byte(n), byte(sum>>8), byte(sum))
	b = append(b, payload...)
	if fix {
		pseudo := append(append([]byte(nil), w.client.AsSlice()...), w.vip.AsSlice()...)
		put16(b, at+6, reference(append(append(pseudo, 0, protocolUDP, 0, byte(n)), b[at:]...)))
	}
	return b
}

// extended puts extension headers in front of the segment of an IPv6 frame.
func extended(b []byte, next byte, headers ...byte) []byte {
	out := append([]byte(nil), b[:54]...)
	out = append(append(out, headers...), b[54:]...)
	out[20] = next
	put16(out, 18, uint16(len(out)-54))
	return out
}

// TestParser has a frame for every counter of the receive parser: each is counted there, once, and goes nowhere else.
func TestParser(t *testing.T) {
	v4 := func(f func(b []byte) []byte) []byte { return f(plainFrame(t, world4)) }
	v6 := func(f func(b []byte) []byte) []byte { return f(plainFrame(t, world6)) }
	type row struct {
		name    string
		raw     []byte
		counter regs.Reg
	}
	rows := []row{
		{"empty", nil, regs.ParserDropTruncated},
		{"half an Ethernet header", make([]byte, 13), regs.ParserDropTruncated},
		{"half a tag", append(plainFrame(t, world4)[:12], 0x81, 0, 0, 7), regs.ParserDropTruncated},
		{"half an IPv4 header", plainFrame(t, world4)[:33], regs.ParserDropTruncated},
		{"half an IPv6 header", plainFrame(t, world6)[:53], regs.ParserDropTruncated},
		{"IPv4 cut short", plainFrame(t, world4)[:60], regs.ParserDropTruncated},
		{"IPv6 cut short", plainFrame(t, world6)[:80], regs.ParserDropTruncated},
		{"IPv4 version 6", v4(func(b []byte) []byte { b[14] = 0x65; return b }), regs.ParserDropIpHeader},
		{"IPv4 header length 4", v4(func(b []byte) []byte { b[14] = 0x44; return b }), regs.ParserDropIpHeader},
		{"IPv4 total length 19", v4(func(b []byte) []byte { put16(b, 16, 19); headerSum(b); return b }), regs.ParserDropIpHeader},
		{"IPv6 version 4", v6(func(b []byte) []byte { b[14] = 0x40; return b }), regs.ParserDropIpHeader},
		{"IPv4 sum", v4(func(b []byte) []byte { b[24]++; return b }), regs.ParserDropIpChecksum},
		{"no room for TCP", v4(func(b []byte) []byte { put16(b, 16, 39); headerSum(b); return b }), regs.ParserDropTruncated},
		{"data offset 4", v4(func(b []byte) []byte { b[46] = 0x40; return sumUp(b) }), regs.ParserDropTcpHeader},
		{"data offset beyond the end", v4(func(b []byte) []byte { b[46] = 0xf0; return sumUp(b) }), regs.ParserDropTcpHeader},
		{"option of a SYN", v4(func(b []byte) []byte { b[46], b[47], b[54], b[55] = 0x60, flagSYN, 5, 0; return sumUp(b) }), regs.ParserDropTcpOption},
		{"no flag", v4(func(b []byte) []byte { b[47] = 0; return sumUp(b) }), regs.ParserDropTcpFlags},
		{"ECN flags alone", v4(func(b []byte) []byte { b[47] = flagECE | flagCWR; return sumUp(b) }), regs.ParserDropTcpFlags},
		{"SYN and FIN", v4(func(b []byte) []byte { b[47] = flagSYN | flagFIN; return sumUp(b) }), regs.ParserDropTcpFlags},
		{"SYN and RST", v6(func(b []byte) []byte { b[67] = flagSYN | flagRST | flagACK; return sumUp(b) }), regs.ParserDropTcpFlags},
		{"TCP sum, IPv4", v4(func(b []byte) []byte { b[50]++; return b }), regs.ParserDropTcpChecksum},
		{"TCP sum, IPv6", v6(func(b []byte) []byte { b[len(b)-1]++; return b }), regs.ParserDropTcpChecksum},
		{"UDP length", v4(func([]byte) []byte { b := udp(t, world4, "x", 0, false); b[39] = 200; return b }), regs.ParserDropUdpHeader},
		{"UDP too short", v4(func([]byte) []byte { b := udp(t, world4, "", 0, false); put16(b, 16, 27); headerSum(b); return b }), regs.ParserDropTruncated},
		{"UDP port zero", v4(func([]byte) []byte { b := udp(t, world4, "x", 0, false); put16(b, 36, 0); return b }), regs.ParserDropUdpHeader},
		{"UDP without a sum over IPv6", udp(t, world6, "x", 0, false), regs.ParserDropUdpHeader},
		{"UDP sum", udp(t, world4, "x", 0x1234, false), regs.ParserDropUdpChecksum},
		{"extension header cut off", v6(func(b []byte) []byte { return extended(b, 60, protocolTCP, 99, 1, 4, 0, 0, 0, 0) }), regs.ParserDropExtensionHeader},
		{"nine extension headers", v6(func(b []byte) []byte {
			for range 9 {
				b = extended(b, 60, b[20], 0, 1, 4, 0, 0, 0, 0)
			}
			return b
		}), regs.ParserDropExtensionHeader},

		{"ARP", v4(func(b []byte) []byte { b[13] = 6; return b }), regs.ParserExceptionNotIp},
		{"two tags", v4(func(b []byte) []byte {
			return append(append(b[:12:12], 0x81, 0, 0, 7, 0x81, 0, 0, 8), b[12:]...)
		}), regs.ParserExceptionVlan},
		{"service tag", v4(func(b []byte) []byte { b[12], b[13] = 0x88, 0xa8; return b }), regs.ParserExceptionVlan},
		{"ICMP", v4(func(b []byte) []byte { b[23] = 1; headerSum(b); return b }), regs.ParserExceptionIcmp},
		{"ICMPv6", v6(func(b []byte) []byte { b[20] = 58; return b }), regs.ParserExceptionIcmp},
		{"first fragment", v4(func(b []byte) []byte { b[20] = 0x20; headerSum(b); return b }), regs.ParserExceptionFragment},
		{"last fragment", v4(func(b []byte) []byte { b[20], b[21] = 0, 9; headerSum(b); return b }), regs.ParserExceptionFragment},
		{"IPv6 fragment", v6(func(b []byte) []byte { return extended(b, 44, protocolTCP, 0, 0, 1, 0, 0, 0, 0) }), regs.ParserExceptionFragment},
		{"IPv4 options", v4(func(b []byte) []byte {
			b = append(append(b[:34:34], 1, 1, 1, 0), b[34:]...)
			b[14] = 0x46
			put16(b, 16, uint16(len(b)-14))
			put16(b, 24, 0)
			put16(b, 24, reference(b[14:38]))
			return b
		}), regs.ParserExceptionOption},
		{"routing header with segments left", v6(func(b []byte) []byte { return extended(b, 43, protocolTCP, 0, 4, 1, 0, 0, 0, 0) }), regs.ParserExceptionOption},
		{"GRE", v4(func(b []byte) []byte { b[23] = 47; headerSum(b); return b }), regs.ParserExceptionProtocol},
		{"UDP over IPv4", udp(t, world4, "payload", 0, true), regs.ParserExceptionProtocol},
		{"UDP over IPv4 without a sum", udp(t, world4, "payload", 0, false), regs.ParserExceptionProtocol},
		{"UDP over IPv6", udp(t, world6, "payload", 0, true), regs.ParserExceptionProtocol},
		{"no connection", v4(func(b []byte) []byte { return b }), regs.ParserExceptionNoMatch},
	}
	for _, src := range [][4]byte{{224, 0, 0, 1}, {239, 1, 2, 3}, {255, 255, 255, 255}, {127, 0, 0, 1}, {0, 0, 0, 0}, {240, 0, 0, 1}} {
		rows = append(rows, row{"IPv4 source", v4(func(b []byte) []byte { copy(b[26:], src[:]); headerSum(b); return sumUp(b) }), regs.ParserDropIpSource})
	}
	for _, src := range [][16]byte{{0xff, 2}, {15: 1}, {}} {
		rows = append(rows, row{"IPv6 source", v6(func(b []byte) []byte { copy(b[22:], src[:]); return sumUp(b) }), regs.ParserDropIpSource})
	}
	seen := map[regs.Reg]bool{regs.ParserDropOffload: true, regs.ParserExceptionTtl: true} // these have tests of their own
	for port := range regs.Reg(2) {
		b := newBench(t, tiny(16))
		b.serve(world4, 0, regs.ServiceEntry{})
		b.serve(world6, 1, regs.ServiceEntry{})
		b.attach()
		b.now = time.Second
		for _, x := range rows {
			seen[x.counter] = true
			before, books := b.r.Get64(x.counter+port*regs.ParserStride), b.accounts()
			if out := b.pushRaw(int(port), x.raw); len(out[0])+len(out[1]) != 0 {
				t.Errorf("%s: draws %d frames", x.name, len(out[0])+len(out[1]))
			}
			if got := b.r.Get64(x.counter+port*regs.ParserStride) - before; got != 1 {
				t.Errorf("port %d, %s: %s grew by %d, want 1", port, x.name, (x.counter + port*regs.ParserStride).Name(), got)
			}
			after := b.accounts()
			if n := after.drops + after.exceptions + after.classes - books.drops - books.exceptions - books.classes; n != 1 {
				t.Errorf("port %d, %s: counted %d times", port, x.name, n)
			}
			given := b.exceptions()
			if want := int(after.exceptions - books.exceptions); len(given) != want || want == 1 && string(given[0].frame) != string(x.raw) {
				t.Errorf("port %d, %s: %d frames given to the host, want %d, as they came", port, x.name, len(given), want)
			}
		}
		b.allFree(t)
	}
	for r := regs.ParserDropTruncated; r <= regs.ParserExceptionNoMatch; r += 8 {
		if !seen[r] {
			t.Errorf("no frame is counted by %s", r.Name())
		}
	}
}

// TestEveryTruncation cuts and spoils frames of a live connection at every byte.
func TestEveryTruncation(t *testing.T) {
	b, s, seeds := populated(t)
	for _, x := range seeds {
		for side, raw := range x {
			b.restore(s)
			for n := range raw {
				b.fuzzed(t, byte(side), raw[:n])
				spoiled := append([]byte(nil), raw...)
				spoiled[n] ^= 0x55
				b.fuzzed(t, byte(side), spoiled)
				b.fuzzed(t, byte(side)|modeSums, spoiled)
			}
			b.check(t)
		}
	}
}

// TestPartialUDP: the sum of a UDP datagram that came partial is completed before the host sees it, with the other zero.
func TestPartialUDP(t *testing.T) {
	for _, w := range []world{world4, world6} {
		b := newBench(t, tiny(16))
		b.serve(w, 0, regs.ServiceEntry{})
		b.attach()
		for i := range 70000 {
			payload := string([]byte{byte(i >> 8), byte(i)})
			raw := udp(t, w, payload, 0, true)
			at := len(raw) - 10
			zero := binary.BigEndian.Uint16(raw[at+6:]) == 0
			if !zero && i > 3 {
				continue
			}
			full := append([]byte(nil), raw...)
			if zero {
				put16(full, at+6, 0xffff)
			}
			pseudo := append(append([]byte(nil), w.client.AsSlice()...), w.vip.AsSlice()...)
			put16(raw, at+6, ^reference(append(pseudo, 0, protocolUDP, 0, 10)))
			f := &b.buf[0]
			f.Start, f.End = frame.Headroom, frame.Headroom+uint32(copy(f.Buf[frame.Headroom:], raw))
			f.Offload = frame.Offload{Flags: frame.NeedsChecksum, CsumStart: uint16(at), CsumOffset: 6}
			b.c.Process(0, b.buf[:1], b.out)
			if g := b.exceptions(); len(g) != 1 || string(g[0].frame) != string(full) {
				t.Fatalf("payload % x: the host gets %+v, want % x", payload, g, full)
			}
			if zero {
				break
			}
		}
	}
}

// TestCaseA21: a UDP datagram without a checksum reaches the host as it came over IPv4, and is dropped and counted over IPv6
// (RFC 8200, 8.1). What goes on from the host is its own test.
func TestCaseA21(t *testing.T) {
	for _, w := range []world{world4, world6} {
		b := newBench(t, tiny(16))
		b.serve(w, 0, regs.ServiceEntry{})
		b.attach()
		raw := udp(t, w, "eM", 0, false)
		b.pushRaw(0, raw)
		g, dropped := b.exceptions(), b.r.Get64(regs.ParserDropUdpHeader)
		if w.kind == kindIPv6 {
			if len(g) != 0 || dropped != 1 {
				t.Errorf("ipv6: the host gets %+v, drop_udp_header counts %d, want none and 1", g, dropped)
			}
		} else if len(g) != 1 || string(g[0].frame) != string(raw) || dropped != 0 {
			t.Errorf("ipv4: the host gets %+v, drop_udp_header counts %d, want % x and 0", g, dropped, raw)
		}
	}
}

// TestFullRing: an exception ring that is full, or has no memory, stops nothing; what is lost is counted and numbered.
func TestFullRing(t *testing.T) {
	b, c := waiting(t, regs.ServiceEntry{}, plainOptions)
	stray := (&conn{b: b, w: world4, port: 1}).client(flagACK, "stray")
	for range 5 {
		raws := make([][]byte, BatchMax)
		for i := range raws {
			raws[i] = stray
		}
		b.pushRaw(0, raws...)
	}
	const sent, strays = 5 * BatchMax, ringEntries - ringEntries/4 // the rest is for connections that wait
	if got, want := b.r.Get64(regs.RingLost), uint64(sent-strays); got != want {
		t.Errorf("lost: got %d, want %d", got, want)
	}
	if got := b.r.Get64(regs.ParserExceptionNoMatch); got != sent {
		t.Errorf("exception_no_match: got %d, want %d", got, sent)
	}
	one(t, b.push(0, c.client(flagACK, request))[1])
	g := b.exceptions()
	b.pushRaw(0, stray)
	if last := b.exceptions(); len(g) != strays || len(last) != 1 || last[0].Sequence != sent {
		t.Errorf("%d exceptions, then sequence number %d, want %d and %d", len(g), last[0].Sequence, strays, sent)
	}
	b.c.host.SetHost(hostRAM{})
	b.pushRaw(0, stray)
	if got := b.r.Get(regs.RingStatus); got&regs.RingStatusErrorMask == 0 {
		t.Errorf("status of a ring without memory: %#x", got)
	}
	if got := c.serverBytes(t, c.cseq-uint32(len(request))); got != request {
		t.Errorf("the server gets %q", got)
	}
	b.check(t)
}
