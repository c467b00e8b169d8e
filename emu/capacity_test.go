package emu_test

import (
	"encoding/binary"
	"os"
	"testing"
	"time"

	"splicenic/emu"
	"splicenic/emu/frame"
	"splicenic/emu/port"
	"splicenic/regs"
)

// client i has an address and a port of its own.
func client(i int) (address uint32, sport uint16) {
	return 0xc613_0000 + uint32(i>>8), uint16(20_000 + i&255)
}

// handshakes lets clients from..to-1 send a SYN each and answers every SYN-ACK with the ACK that completes the
// handshake. It returns how many got a SYN-ACK and how many a RST; anything else, or a second answer, fails.
func (b *bench) handshakes(from, to int, answered []bool) (opened, refused int) {
	b.Helper()
	for at := from; at < to; at += 64 {
		for i := at; i < min(at+64, to); i++ {
			s := syn(0, uint32(i))
			s.from, s.sport = client(i)
			b.send(0, s.build(false), noOffload)
		}
		b.settleFast()
		for _, f := range b.drain() {
			t := f.bytes[34:]
			if f.port != 0 {
				b.Fatalf("a frame for the server: % x", f.bytes)
			}
			i := int(binary.BigEndian.Uint32(f.bytes[30:])-0xc613_0000)<<8 | int(binary.BigEndian.Uint16(t[2:])-20_000)
			if i < 0 || i >= len(answered) || answered[i] {
				b.Fatalf("client %d is answered twice or unknown: % x", i, f.bytes)
			}
			answered[i] = true
			if frame.Fold(frame.Sum(t, frame.Pseudo4(f.bytes[14:], 6, len(t)))) != 0xffff {
				b.Fatalf("checksum wrong: % x", f.bytes)
			}
			switch flags := t[13]; {
			case flags == flagSYN|flagACK:
				opened++
				s := syn(0, uint32(i)+1)
				s.from, s.sport = client(i)
				s.ack, s.flags = binary.BigEndian.Uint32(t[4:])+1, flagACK
				b.send(0, s.build(false), noOffload)
			case flags&flagRST != 0 && binary.BigEndian.Uint32(t[8:]) == uint32(i)+1:
				refused++
			default:
				b.Fatalf("neither SYN-ACK nor RST: % x", f.bytes)
			}
		}
		b.settleFast()
		if n := len(b.drain()); n != 0 {
			b.Fatalf("%d frames after the handshakes' last ACKs", n)
		}
	}
	return opened, refused
}

// settleFast is settle on a clock that hardly moves.
func (b *bench) settleFast() {
	for range 10_000 {
		b.now += time.Microsecond
		if !b.card.Step(b.now) {
			return
		}
	}
	b.Fatal("the card does not come to rest")
}

// everyAddressOnce checks the address list when every page is free: no address is missing, none is there twice.
func (b *bench) everyAddressOnce(pages int) {
	b.Helper()
	p := b.memory(regs.MemAddressListOffset, 4*pages)
	seen := make([]bool, pages)
	for i := range pages {
		n := binary.LittleEndian.Uint32(p[4*i:])
		if int(n) >= pages || seen[n] {
			b.Fatalf("slot %d of the address list holds %d: lost or given twice", i, n)
		}
		seen[n] = true
	}
}

// livePages counts how often each page is valid, by reading the pages themselves.
func (b *bench) livePages(pages int) (n int) {
	b.Helper()
	p := b.memory(0, pages*regs.PageBytes)
	for i := range pages {
		n += int(regs.PageControlValid(binary.LittleEndian.Uint32(p[i*regs.PageBytes:])))
	}
	return n
}

// TestMoreHandshakesThanPages: clients that complete their handshake and never ask for anything take every page; each
// one beyond gets one RST, counted by its reason; after the time-outs every page is back, once.
func TestMoreHandshakesThanPages(t *testing.T) {
	pages, clients := 2949, 3000
	full := emu.Geometry{Heads: 64}
	if os.Getenv("SPLICE_LONG") != "" {
		pages, clients = regs.MemPageCount, 300_000
	} else {
		full = small()
		full.Pages, full.CamClientWords = uint32(pages), 16<<10
	}
	starved := full
	starved.CamClientWords = uint32(pages) &^ 3 // fewer words than pages: the CAM ends first
	for _, tt := range []struct {
		name     string
		geometry emu.Geometry
		reason   regs.Reg
	}{
		{"no page", full, regs.AmuNoPage},
		{"no CAM place", starved, regs.AmuNoCamPlace},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, emu.Config{Geometry: tt.geometry, Seed: 3}, port.MemConfig{Queue: 256})
			b.serve()
			b.entry(regs.MemService, 0, 0, &regs.ServiceEntry{ControlValid: 1, ControlHasDefault: 1, PromiseMssIpv4: 1460, PromiseMssIpv6: 1440})
			answered := make([]bool, clients)
			opened, refused := b.handshakes(0, clients, answered)
			for i, a := range answered {
				if !a {
					t.Fatalf("client %d got no answer", i)
				}
			}
			if tt.reason == regs.AmuNoPage && opened != pages {
				t.Errorf("opened: got %d, want %d", opened, pages)
			}
			if opened+refused != clients || refused == 0 {
				t.Errorf("got %d opened and %d refused, want %d together and some refused", opened, refused, clients)
			}
			for _, r := range []regs.Reg{regs.AmuNoPage, regs.AmuNoCamPlace} {
				want := 0
				if r == tt.reason {
					want = refused
				}
				if got := int(b.load64(r)); got != want {
					t.Errorf("%s: got %d, want %d", r.Name(), got, want)
				}
			}
			if got := b.livePages(pages); got != opened {
				t.Errorf("valid pages: got %d, want %d", got, opened)
			}
			if got := int(b.load(regs.AmuLive)); got != opened {
				t.Errorf("amu.live: got %d, want %d", got, opened)
			}
			reset := 0
			for end := b.now + 31*time.Second; b.now < end; b.now += 50 * time.Millisecond {
				b.card.Step(b.now)
				for _, f := range b.drain() {
					if f.bytes[47]&flagRST != 0 {
						reset++
					}
				}
			}
			if got := int(b.load64(regs.ConnectionExpiredWaitHead)); got != opened || reset > opened {
				t.Errorf("expired in WAIT_HEAD: got %d with %d RSTs on the wire, want %d", got, reset, opened)
			}
			b.want(regs.AmuFree, uint32(pages))
			b.want(regs.AmuLive, 0)
			b.want(regs.CamEntries, 0)
			b.everyAddressOnce(pages)
			if got := b.livePages(pages); got != 0 {
				t.Errorf("valid pages after the time-outs: got %d, want 0", got)
			}
		})
	}
}
