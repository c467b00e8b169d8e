package vfiouser

import (
	"context"
	"sync"
	"testing"
	"time"

	"splicenic/driver/device"
	"splicenic/emu"
	"splicenic/emu/port"
	"splicenic/regs"
)

// poll loads a register as a guest does whose machine has one thread: the server's own messages, which may have come in
// between, it answers when it has its reply.
func (r *rawClient) poll(off uint64, mem []byte, base uint64) uint32 {
	r.t.Helper()
	id := r.send(cmdRegionRead, 0, loadReq(device.Bar0, off))
	var others []message
	for {
		m := r.recv()
		if !m.reply() {
			others = append(others, m)
			continue
		}
		if m.id != id || m.failed() {
			r.t.Fatalf("reply %+v to a load", m.header)
		}
		for _, o := range others {
			r.answerDMA(o, mem, base)
		}
		return le.Uint32(m.body[accessBytes:])
	}
}

// TestPollDuringMessages: a machine with its memory behind the one socket polls the emulated card while the card copies
// that memory. No access is late, none is refused.
func TestPollDuringMessages(t *testing.T) {
	near, _ := port.Pair(port.MemConfig{})
	card, err := emu.New(emu.Config{Client: near, Geometry: emu.Geometry{Pages: 64, Heads: 64, CamClientWords: 256, CamServerWords: 512}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := card.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		wg.Wait()
		if err := card.Close(); err != nil {
			t.Error(err)
		}
	})
	path, stop := rawServer(t, card, Config{DMATimeout: late})
	t.Cleanup(stop)
	const base, commands, completions, data, entries = 0x100000, 0x100000, 0x101000, 0x110000, 32
	mem := make([]byte, 0x100000)
	for i := range mem[data-base:] {
		mem[data-base+i] = byte(i * 7)
	}
	r := rawDial(t, path).hello()
	r.must(cmdDMAMap, mapReq(base, uint64(len(mem)), 0))
	r.must(cmdRegionWrite, configReq(cfgCommand, 6, 0))
	r.post(device.Bar0, uint64(regs.HostifControl), regs.HostifControlEnableMask)
	for _, x := range []struct {
		ring int
		iova uint32
	}{{regs.RingCommand, commands}, {regs.RingCompletion, completions}} {
		at := func(r regs.Reg) uint64 { return uint64(r.At(x.ring, regs.RingStride)) }
		r.post(device.Bar0, at(regs.RingIova), x.iova)
		r.post(device.Bar0, at(regs.RingEntries), entries)
		r.post(device.Bar0, at(regs.RingControl), regs.RingControlEnableMask)
	}
	start := time.Now()
	const size = 0x40000
	for n := range uint32(20) {
		e := regs.CommandEntry{ControlType: regs.CommandControlTypeWrite, Sequence: n, Bar2Offset: uint32(regs.MemHeadOffset), Length: size, IovaLo: data}
		if n%2 == 1 {
			e.ControlType, e.IovaLo = regs.CommandControlTypeRead, data+size
		}
		var w [regs.CommandWords]uint32
		e.Encode(w[:])
		for i, v := range w {
			le.PutUint32(mem[commands-base+n%entries*64+uint32(4*i):], v)
		}
		r.post(device.Bar0, uint64(regs.RingProducer.At(regs.RingCommand, regs.RingStride)), n+1)
		for r.poll(uint64(regs.RingProducer.At(regs.RingCompletion, regs.RingStride)), mem, base) == n {
		}
		for i := range w { // the index was read, so the descriptor is here
			w[i] = le.Uint32(mem[completions-base+n%entries*64+uint32(4*i):])
		}
		var done regs.CompletionEntry
		done.Decode(w[:])
		if done.Sequence != n || done.ControlStatus != regs.CompletionControlStatusOk || done.ControlPhase != 1 {
			t.Fatalf("completion %d: %+v", n, done)
		}
		r.post(device.Bar0, uint64(regs.RingConsumer.At(regs.RingCompletion, regs.RingStride)), n+1)
	}
	if string(mem[data-base:][:size]) != string(mem[data+size-base:][:size]) {
		t.Error("the copy differs")
	}
	if n := r.poll(uint64(regs.HostifDmaErrors), mem, base); n != 0 {
		t.Errorf("%d accesses refused", n)
	}
	if d := time.Since(start); d > late {
		t.Errorf("it took %v: something waited for a time-out", d)
	}
}
