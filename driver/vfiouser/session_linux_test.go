package vfiouser

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"splicenic/driver/device"
)

// mapped maps a memfd into the test.
func mapped(t testing.TB, fd, n int) []byte {
	t.Helper()
	mem, err := unix.Mmap(fd, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(mem) })
	return mem
}

func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(late); !holds(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

// TestClientGone: the client's vectors go with it, its memory stays until the next client's first map. Then all of it is
// replaced in one step, and what leads where it did is not touched.
func TestClientGone(t *testing.T) {
	card := newPCICard()
	path, _ := rawServer(t, card, Config{})
	ram, other := testMemfd(t, 0x4000), testMemfd(t, 0x4000)
	mem := mapped(t, ram, 0x4000)
	a := rawDial(t, path).hello()
	a.must(cmdRegionWrite, configReq(cfgCommand, 6, 0))
	a.must(cmdDMAMap, mapReq(0x10000, 0x1000, 0), ram)
	a.must(cmdDMAMap, mapReq(0x20000, 0x1000, 0x1000), ram)
	a.must(cmdDMAMap, mapReq(0x30000, 0x1000, 0x2000), ram)
	a.must(cmdSetIRQs, irqReq(setEventfd|setTrigger, irqMSIX, 0, 1), testEventfd(t))
	a.post(0, regScratch, 0x77)
	a.load(0, 0)
	host := card.memory()
	card.took()
	a.c.close()
	eventually(t, "the card loses its vectors", func() bool { return strings.Contains(card.took(), "vectors 0/0") })
	if err := host.Write(0x20000, []byte("while nobody is there")); err != nil {
		t.Errorf("Write after the client went: %v", err)
	}
	if !bytes.HasPrefix(mem[0x1000:], []byte("while nobody is there")) {
		t.Error("the write is not in the client's memory")
	}

	b := rawDial(t, path).hello()
	if v := b.load(0, regScratch); v != 0x77 {
		t.Errorf("the card forgot its state: %#x", v)
	}
	if err := host.Write(0x30000, []byte("still")); err != nil {
		t.Errorf("Write before the next client maps: %v", err)
	}
	card.took()
	// Two without reply, and one with.
	b.send(cmdDMAMap, flagNoReply, mapReq(0x20000, 0x1000, 0x1000), ram)
	b.send(cmdDMAMap, flagNoReply, mapReq(0x30000, 0x1000, 0), other)
	b.must(cmdDMAMap, mapReq(0x40000, 0x1000, 0x3000), ram)
	const want = "unmap 0x10000+0x1000 unmap 0x30000+0x1000 map 0x30000+0x1000 map 0x40000+0x1000"
	if got := card.took(); got != want {
		t.Errorf("the card was told\n%q, want\n%q", got, want)
	}
	for iova, ok := range map[uint64]bool{0x10000: false, 0x20000: true, 0x30000: true, 0x40000: true} {
		if err := host.Write(iova, []byte("x")); (err == nil) != ok {
			t.Errorf("Write at %#x: %v", iova, err)
		}
	}
	b.must(cmdDMAMap, mapReq(0x10000, 0x1000, 0), ram)
	if got := card.took(); got != "map 0x10000+0x1000" {
		t.Errorf("a later map: the card was told %q", got)
	}
}

// TestRemapRefused: a first step that cannot be leaves everything as it was.
func TestRemapRefused(t *testing.T) {
	card := newPCICard()
	path, _ := rawServer(t, card, Config{})
	ram := testMemfd(t, 0x4000)
	a := rawDial(t, path).hello()
	a.must(cmdRegionWrite, configReq(cfgCommand, 6, 0))
	a.must(cmdDMAMap, mapReq(0x10000, 0x1000, 0), ram)
	host := card.memory()
	a.c.close()
	b := rawDial(t, path).hello()
	card.took()
	for name, want := range map[string]errno{"overlap": eEXIST, "bad file": eINVAL} {
		b.send(cmdDMAMap, flagNoReply, mapReq(0x20000, 0x2000, 0), ram)
		second := mapReq(0x21000, 0x1000, 0)
		if name == "bad file" {
			second = mapReq(0x22000, 0x1000, 0x4000)
		}
		b.send(cmdDMAMap, flagNoReply, second, ram)
		if _, e := b.call(cmdDMAMap, mapReq(0x30000, 0x1000, 0), ram); e != want {
			t.Errorf("%s: %v, want %v", name, e, want)
		}
	}
	if got := card.took(); got != "" {
		t.Errorf("the card was told %q", got)
	}
	if err := host.Write(0x10000, []byte("x")); err != nil {
		t.Errorf("Write: %v", err)
	}
	// Another command ends the step as well; unmapping a predecessor's memory is allowed.
	b.send(cmdDMAMap, flagNoReply, mapReq(0x20000, 0x2000, 0), ram)
	b.must(cmdDMAUnmap, unmapReq(0x10000, 0x1000))
	if got := card.took(); got != "unmap 0x10000+0x1000 map 0x20000+0x2000" {
		t.Errorf("the card was told %q", got)
	}
	b.must(cmdDMAUnmap, appendDMAUnmap(nil, dmaUnmap{argsz: dmaUnmapBytes, flags: unmapAll}))
	if n := card.Maps(); n != 0 {
		t.Errorf("%d maps after unmapping everything", n)
	}
	if _, e := b.call(cmdDMAUnmap, appendDMAUnmap(nil, dmaUnmap{dmaUnmapBytes, unmapDirty, 0, 0x1000})); e != eNOTSUP {
		t.Errorf("unmap with a dirty bitmap: %v", e)
	}
	b.must(cmdDMAMap, mapReq(0x50000, 0x2000, 0), ram)
	if _, e := b.call(cmdDMAUnmap, unmapReq(0x50000, 0x1000)); e != eINVAL {
		t.Errorf("unmap of half a map: %v", e)
	}
}

// TestMessageMemoryGone: memory that only messages reach goes with its client, and the card has no host then.
func TestMessageMemoryGone(t *testing.T) {
	card := newPCICard()
	path, stop := rawServer(t, card, Config{})
	a := rawDial(t, path).hello()
	a.must(cmdDMAMap, mapReq(0x10000, 0x1000, 0), testMemfd(t, 0x1000))
	a.must(cmdDMAMap, mapReq(0x20000, 0x1000, 0))
	a.load(0, 0)
	card.took()
	a.c.close()
	eventually(t, "the card loses its host", func() bool { return card.memory() == nil })
	eventually(t, "the map goes", func() bool { return card.Maps() == 1 })
	rawDial(t, path).hello().load(0, 0)
	if card.memory() == nil {
		t.Error("the next client is no host")
	}
	stop()
	if card.Maps() != 0 || card.memory() != nil {
		t.Errorf("after the server's end: %d maps, host %v", card.Maps(), card.memory())
	}
}

// dmaServer serves memory by messages until it has answered n of them, and returns their commands.
func (r *rawClient) dmaServer(mem []byte, base uint64, n int) (seen []string) {
	r.t.Helper()
	for range n {
		m := r.recv()
		seen = append(seen, m.cmd.String())
		r.answerDMA(m, mem, base)
	}
	return seen
}

func (r *rawClient) answerDMA(m message, mem []byte, base uint64) {
	r.t.Helper()
	switch m.cmd {
	case cmdDMARead:
		a, err := decodeDMAAccess(m.body, false)
		if err != nil {
			r.t.Fatal(err)
		}
		a.data = mem[a.iova-base:][:a.count]
		r.sendAs(m.id, m.cmd, typeReply, appendDMAAccess(nil, a))
	case cmdDMAWrite:
		a, err := decodeDMAAccess(m.body, true)
		if err != nil {
			r.t.Fatal(err)
		}
		copy(mem[a.iova-base:], a.data)
		a.data = nil
		r.sendAs(m.id, m.cmd, typeReply, appendDMAAccess(nil, a))
	default:
		r.t.Fatalf("%v from the server", m.cmd)
	}
}

// messageSession is a client whose memory at 0x10000 only messages reach.
func messageSession(t *testing.T, cfg Config) (*pciCard, *rawClient, []byte) {
	t.Helper()
	card := newPCICard()
	path, _ := rawServer(t, card, cfg)
	r := rawDial(t, path).hello()
	r.must(cmdDMAMap, mapReq(0x10000, 0x400000, 0))
	r.must(cmdRegionWrite, configReq(cfgCommand, 6, 0))
	mem := make([]byte, 0x400000)
	for i := range mem {
		mem[i] = byte(i * 7)
	}
	return card, r, mem
}

// TestMessages: a card copies memory that only messages reach, from the server's goroutine (a posted store starts it) and
// from another one. Answers may come between commands.
func TestMessages(t *testing.T) {
	card, r, mem := messageSession(t, Config{})
	r.copy(0x12000, 0x10000, 0x1000)
	if got := r.dmaServer(mem, 0x10000, 2); fmt.Sprint(got) != "[dma read dma write]" {
		t.Errorf("messages: %v", got)
	}
	if r.load(0, regStatus) != 0 || !bytes.Equal(mem[0x2000:0x3000], mem[:0x1000]) {
		t.Error("the copy failed")
	}
	r.copy(0x12000, 0x10004, 4) // the word path
	r.dmaServer(mem, 0x10000, 2)
	if r.load(0, regStatus) != 0 || !bytes.Equal(mem[0x2000:0x2004], mem[4:8]) {
		t.Error("the copy of a word failed")
	}

	host := card.memory()
	for range 20 {
		done := make(chan error, 1)
		p := make([]byte, 0x1000)
		go func() { done <- host.Read(0x11000, p) }()
		m := r.recv()
		for i := range uint32(10) { // the client goes on while its answer is waited for
			r.post(2, 0, i)
		}
		r.answerDMA(m, mem, 0x10000)
		if err := <-done; err != nil || !bytes.Equal(p, mem[0x1000:0x2000]) {
			t.Fatalf("Read: %v", err)
		}
		if v := r.load(2, 0); v != 9 {
			t.Fatalf("the posted stores came to %d", v)
		}
	}
	// More than one message takes.
	done := make(chan error, 1)
	p := bytes.Repeat([]byte{5}, 2<<20+64)
	go func() { done <- host.Write(0x10000, p) }()
	r.dmaServer(mem, 0x10000, 3)
	if err := <-done; err != nil || !bytes.Equal(mem[:len(p)], p) {
		t.Errorf("Write of 2 MiB: %v", err)
	}
	for _, bad := range []uint64{0xfff0, 0x410000, 0x40fff8} {
		if err := host.Read(bad, make([]byte, 64)); !errors.Is(err, device.ErrDMA) {
			t.Errorf("Read at %#x: %v", bad, err)
		}
	}
}

// slowCard answers a load of region 2 when it is told to.
type slowCard struct {
	*pciCard
	entered, leave chan struct{}
}

func (c *slowCard) ReadRegion(region int, off uint64, p []byte) error {
	if region == device.Bar2 {
		c.entered <- struct{}{}
		<-c.leave
	}
	return c.pciCard.ReadRegion(region, off, p)
}

// TestOwed: while a reply is owed no message of the server's own goes out.
func TestOwed(t *testing.T) {
	card := &slowCard{newPCICard(), make(chan struct{}), make(chan struct{})}
	path, _ := rawServer(t, card, Config{})
	r := rawDial(t, path).hello()
	r.must(cmdDMAMap, mapReq(0x10000, 0x1000, 0))
	r.must(cmdRegionWrite, configReq(cfgCommand, 6, 0))
	mem := make([]byte, 0x1000)
	host := card.memory()
	for range 50 {
		id := r.send(cmdRegionRead, 0, loadReq(2, 0))
		<-card.entered
		done := make(chan error, 1)
		go func() { done <- host.Write(0x10000, []byte("owed")) }()
		for range 20 {
			runtime.Gosched() // the write has every chance to go out too early
		}
		card.leave <- struct{}{}
		if m := r.recv(); m.cmd != cmdRegionRead || m.id != id {
			t.Fatalf("%v came before the reply", m.cmd)
		}
		r.answerDMA(r.recv(), mem, 0x10000)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
}

// TestOwedForever: a function that waits for memory inside a load cannot get it over one socket; it learns so in time.
func TestOwedForever(t *testing.T) {
	card := &insideCard{newPCICard(), make(chan error, 1)}
	path, _ := rawServer(t, card, Config{DMATimeout: 20 * time.Millisecond})
	r := rawDial(t, path).hello()
	r.must(cmdDMAMap, mapReq(0x10000, 0x1000, 0))
	r.must(cmdRegionWrite, configReq(cfgCommand, 6, 0))
	r.load(2, 0)
	if err := <-card.err; !errors.Is(err, device.ErrDMA) {
		t.Errorf("Read inside a load: %v", err)
	}
	if v := r.load(0, 0); v == 0 {
		t.Error("the session did not go on")
	}
}

// insideCard reads host memory inside a load of region 2.
type insideCard struct {
	*pciCard
	err chan error
}

func (c *insideCard) ReadRegion(region int, off uint64, p []byte) error {
	if region == device.Bar2 {
		c.err <- c.memory().Read(0x10000, make([]byte, 4))
	}
	return c.pciCard.ReadRegion(region, off, p)
}

// TestMessagesFail: what a client can do wrong with a message of the server's.
func TestMessagesFail(t *testing.T) {
	for _, row := range []struct {
		name   string
		answer func(r *rawClient, m message)
		ends   bool
	}{
		{"refused", func(r *rawClient, m message) { r.c.reply(m.header, eFAULT) }, false},
		{"silence", func(r *rawClient, m message) {}, false},
		{"silence, but commands", func(r *rawClient, m message) { r.post(0, regScratch, 0) }, false},
		{"short", func(r *rawClient, m message) { r.sendAs(m.id, m.cmd, typeReply, m.body[:8]) }, false},
		{"no data", func(r *rawClient, m message) { r.sendAs(m.id, m.cmd, typeReply, m.body) }, false},
		{"other address", func(r *rawClient, m message) {
			r.sendAs(m.id, m.cmd, typeReply, appendDMAAccess(nil, dmaAccess{0x20000, 4, []byte{1, 2, 3, 4}}))
		}, false},
		{"other command", func(r *rawClient, m message) { r.sendAs(m.id, cmdDMAWrite, typeReply, m.body) }, false},
		{"other id", func(r *rawClient, m message) { r.sendAs(m.id+1, m.cmd, typeReply, m.body) }, true},
		{"with a file", func(r *rawClient, m message) {
			r.sendAs(m.id, m.cmd, typeReply|flagError, nil, testMemfd(r.t, 0x1000))
		}, false},
		{"gone", func(r *rawClient, m message) { r.c.close() }, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			card, r, _ := messageSession(t, Config{DMATimeout: 50 * time.Millisecond})
			done := make(chan error, 1)
			go func() { done <- card.memory().Read(0x10000, make([]byte, 4)) }()
			m := r.recv()
			row.answer(r, m)
			if err := <-done; !errors.Is(err, device.ErrDMA) {
				t.Errorf("Read: %v", err)
			}
			if strings.HasPrefix(row.name, "silence") { // the answer comes after all
				r.sendAs(m.id, m.cmd, typeReply, appendDMAAccess(nil, dmaAccess{0x10000, 4, []byte{1, 2, 3, 4}}))
			}
			if row.ends {
				if row.name != "gone" {
					r.gone()
				}
				return
			}
			if v := r.load(0, 0); v == 0 {
				t.Error("the session did not go on")
			}
		})
	}
}

// TestUnaskedReply: a reply to nothing ends the session.
func TestUnaskedReply(t *testing.T) {
	path, _ := rawServer(t, newPCICard(), Config{})
	r := rawDial(t, path).hello()
	r.sendAs(9, cmdDMARead, typeReply, nil)
	r.gone()
	rawDial(t, path).hello().load(0, 0)
}

// TestFlood: a client that sends without end while its answer is waited for is held, not stored.
func TestFlood(t *testing.T) {
	card, r, mem := messageSession(t, Config{DMATimeout: 100 * time.Millisecond})
	block := make(chan struct{})
	done := make(chan error, 1)
	go func() {
		close(block)
		done <- card.memory().Read(0x10000, make([]byte, 4))
	}()
	<-block
	m := r.recv()
	big := appendRegionAccess(nil, regionAccess{0, regionConfig, 4096, make([]byte, 4096)})
	for range 2000 {
		r.send(cmdRegionWrite, flagNoReply, big)
	}
	r.answerDMA(m, mem, 0x10000)
	<-done // it may have been given up, or not
	if v := r.load(0, 0); v == 0 {
		t.Error("the session did not go on")
	}
}
