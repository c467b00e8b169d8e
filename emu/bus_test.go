package emu_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"splicenic/driver/device"
	"splicenic/emu"
	"splicenic/emu/port"
	"splicenic/regs"
)

// slowCard is a card whose host memory is slow. before is called before each access, for what a host may do meanwhile.
type slowCard struct {
	*emu.Card
	before func(write bool, iova uint64, n int) error
}

func (c *slowCard) SetHost(m device.Memory) {
	if m == nil {
		c.Card.SetHost(nil)
		return
	}
	c.Card.SetHost(&slowMemory{m, c})
}

type slowMemory struct {
	device.Memory
	card *slowCard
}

func (m *slowMemory) Slow() bool { return true }

func (m *slowMemory) meanwhile(write bool, iova uint64, n int) error {
	if m.card.before == nil {
		return nil
	}
	return m.card.before(write, iova, n)
}

func (m *slowMemory) Read(iova uint64, p []byte) error {
	if err := m.meanwhile(false, iova, len(p)); err != nil {
		return err
	}
	return m.Memory.Read(iova, p)
}

func (m *slowMemory) Write(iova uint64, p []byte) error {
	if err := m.meanwhile(true, iova, len(p)); err != nil {
		return err
	}
	return m.Memory.Write(iova, p)
}

func (m *slowMemory) Store32(iova uint64, v uint32) error {
	if err := m.meanwhile(true, iova, 4); err != nil {
		return err
	}
	return m.Memory.Store32(iova, v)
}

// newSlowHost is a host whose memory is slow.
func newSlowHost(t testing.TB, cfg emu.Config, mem port.MemConfig) (*host, *slowCard) {
	t.Helper()
	h := &host{bench: newBench(t, cfg, mem)}
	c := &slowCard{Card: h.card}
	h.dev = device.Local(c, device.LocalConfig{})
	t.Cleanup(func() { h.dev.Close() })
	h.start()
	return h, c
}

// answered makes an access from another goroutine, as a host does whose loads are messages, and fails if it has to wait.
func answered(t testing.TB, access func()) {
	done := make(chan struct{})
	go func() {
		access()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		buf := make([]byte, 1<<16)
		t.Fatalf("the card does not answer while it accesses memory\n%s", buf[:runtime.Stack(buf, true)])
	}
}

// TestSlowMemoryIsTheSame: frames, rings and registers are those of a card whose memory is quick.
func TestSlowMemoryIsTheSame(t *testing.T) {
	quick := &host{bench: newBench(t, emu.Config{Seed: 9}, port.MemConfig{Queue: 2048})}
	quick.dev = device.Local(quick.card, device.LocalConfig{})
	t.Cleanup(func() { quick.dev.Close() })
	quick.start()
	slow, c := newSlowHost(t, emu.Config{Seed: 9}, port.MemConfig{Queue: 2048})
	accesses := 0
	c.before = func(bool, uint64, int) error {
		accesses++
		return nil
	}
	var out [2][]sent
	for i, h := range []*host{quick, slow} {
		h.serve()
		x := &traffic{rand.New(rand.NewPCG(3, 7)), map[uint16]uint32{}}
		out[i] = h.run(x, 20_000)
		h.post(bulk(regs.CommandControlTypeWrite, regs.MemHeadOffset, bufferBytes, h.frames.IOVA))
		h.post(bulk(regs.CommandControlTypeRead, regs.MemHeadOffset, 300_000, h.frames.IOVA)) // runs past the buffers
		h.post(bulk(regs.CommandControlTypeSnapshot, uint64(regs.PortBase), 1024, h.frames.IOVA))
		h.settle()
		out[i] = append(out[i], h.run(x, 1000)...)
	}
	compareSent(t, out[0], out[1])
	for i := range quick.rings {
		if !bytes.Equal(quick.rings[i].Bytes, slow.rings[i].Bytes) {
			t.Errorf("ring %d differs", i)
		}
	}
	if !bytes.Equal(quick.frames.Bytes, slow.frames.Bytes) {
		t.Error("exceptions differ")
	}
	compareState(t, quick.card.Snapshot(), slow.card.Snapshot())
	if accesses < 1000 {
		t.Errorf("%d accesses", accesses)
	}
}

// TestAnsweredDuringDMA: whatever the card is accessing, it answers loads and takes stores, a load finds the store before
// it, and a producer index never runs ahead of its descriptors.
func TestAnsweredDuringDMA(t *testing.T) {
	h, c := newSlowHost(t, emu.Config{}, port.MemConfig{Queue: 1024})
	if err := h.dev.EnableVectors(3); err != nil {
		t.Fatal(err)
	}
	kinds, n := map[string]int{}, uint32(0)
	c.before = func(write bool, iova uint64, bytes int) error {
		kinds[fmt.Sprint(write, bytes > 64)]++
		answered(t, func() {
			n++
			h.store(regs.ControlScratch, n)
			h.want(regs.ControlScratch, n)
			h.want(regs.DirectoryMagic, regs.Magic)
			for _, ring := range []int{regs.RingException, regs.RingEvent, regs.RingCompletion} {
				produced := h.load(regs.RingProducer.At(ring, regs.RingStride))
				if produced == 0 {
					continue
				}
				var word [1]regs.EventEntry // phase and type stand in the same place in all
				h.get(ring, produced-1, &word[0])
				if want := ^((produced - 1) / entries) & 1; word[0].ControlPhase != want || word[0].ControlType == 0 {
					t.Errorf("ring %d: index %d, but the last descriptor is %+v", ring, produced, word[0])
				}
			}
		})
		return nil
	}
	h.serve()
	for i := range uint16(20) {
		h.send(0, syn(1000+i, clientISN).build(false), noOffload)                       // events
		h.send(0, append(peerFrame(clientMAC, 0x0806), make([]byte, 86)...), noOffload) // exceptions
	}
	h.post(bulk(regs.CommandControlTypeWrite, regs.MemHeadOffset, 4096, h.frames.IOVA))
	h.post(bulk(regs.CommandControlTypeRead, regs.MemHeadOffset, 4096, h.frames.IOVA))
	h.post(bulk(regs.CommandControlTypeSnapshot, 0, 4096, h.frames.IOVA))
	h.settle()
	if got := len(h.completions()); got != 3 {
		t.Errorf("%d completions", got)
	}
	h.want(regs.HostifDmaErrors, 0)
	for _, k := range []string{"true true", "true false", "false true", "false false"} {
		if kinds[k] == 0 {
			t.Errorf("no access of kind (write, large) %s: %v", k, kinds)
		}
	}
	if h.load(regs.RingProducer.At(regs.RingException, regs.RingStride)) < 20 || h.load(regs.RingProducer.At(regs.RingEvent, regs.RingStride)) < 20 {
		t.Error("exceptions or events are missing")
	}
}

// TestMeanwhile: what may happen to a card in the middle of an access ends what was on its way, and the card goes on.
func TestMeanwhile(t *testing.T) {
	control := regs.RingControl.At(regs.RingException, regs.RingStride)
	for _, x := range []struct {
		name string
		do   func(h *host)
		ends bool // the exception ring has to be set up anew
		lost uint32
	}{
		{"function-level reset", func(h *host) { h.setConfig(h.capability(expressName)+8, 1<<15) }, true, 0},
		{"data path reset", func(h *host) { h.store(regs.ControlReset, regs.ControlResetDataPathMask) }, true, 0},
		{"host interface reset", func(h *host) { h.store(regs.ControlReset, regs.ControlResetHostInterfaceMask) }, true, 0},
		{"ring off and on", func(h *host) { h.store(control, 0); h.store(control, 1) }, false, 10},
		{"bus master off and on", func(h *host) { h.setConfig(4, 2); h.setConfig(4, 6) }, false, 0},
		{"asleep", func(h *host) { h.setConfig(h.capability(powerName)+4, 3) }, false, 10},
		{"gone", func(h *host) { h.card.Lose() }, true, 0},
	} {
		t.Run(x.name, func(t *testing.T) {
			h, c := newSlowHost(t, emu.Config{}, port.MemConfig{Queue: 1024})
			for i := range 2 {
				h.store(portReg(regs.PortControl, i), regs.PortControlEnableMask)
			}
			for range 10 {
				h.send(0, append(peerFrame(clientMAC, 0x0806), make([]byte, 86)...), noOffload)
			}
			writes := 0
			c.before = func(write bool, iova uint64, _ int) error {
				if writes++; writes == 1 {
					answered(t, func() { x.do(h) })
				}
				return nil
			}
			h.step()
			if x.ends {
				if writes != 1 {
					t.Errorf("%d accesses after it", writes-1)
				}
				return
			}
			h.setConfig(h.capability(powerName)+4, 0)
			h.want(regs.RingLost.At(regs.RingException, regs.RingStride), x.lost)
			before := h.load(regs.RingProducer.At(regs.RingException, regs.RingStride))
			h.send(0, append(peerFrame(clientMAC, 0x0806), make([]byte, 86)...), noOffload)
			h.step()
			h.want(regs.RingProducer.At(regs.RingException, regs.RingStride), before+1)
		})
	}
}

// TestRefusedLate: an error of a posted write stops its ring, and nothing of the ring is written after it.
func TestRefusedLate(t *testing.T) {
	for _, unmap := range []bool{false, true} {
		t.Run(fmt.Sprint("unmapped ", unmap), func(t *testing.T) {
			h, c := newSlowHost(t, emu.Config{}, port.MemConfig{Queue: 1024})
			h.serve()
			writes := 0
			ring := h.rings[regs.RingException].IOVA
			c.before = func(write bool, iova uint64, _ int) error {
				if !write || iova < ring || iova >= ring+entries*64 {
					return nil
				}
				writes++
				if !unmap {
					return device.ErrDMA
				}
				if writes == 1 {
					answered(t, func() {
						if err := h.card.UnmapDMA(h.frames.IOVA, entries*bufferBytes); err != nil { // not what is being accessed
							t.Error(err)
						}
					})
				}
				return nil
			}
			for range 10 {
				h.send(0, append(peerFrame(clientMAC, 0x0806), make([]byte, 86)...), noOffload)
			}
			h.settle()
			if writes != 1 {
				t.Errorf("%d writes into the ring", writes)
			}
			h.want(regs.RingStatus.At(regs.RingException, regs.RingStride), regs.RingStatusErrorMask)
			h.want(regs.RingProducer.At(regs.RingException, regs.RingStride), 0)
			h.want(regs.RingLost.At(regs.RingException, regs.RingStride), 10)
			h.want(regs.HostifDmaErrors, 1)
			h.post(bulk(regs.CommandControlTypeClear, 0, 4, 0))
			h.settle()
			if len(h.completions()) != 1 {
				t.Error("the other rings have stopped")
			}
		})
	}
}

// TestUnmapWaits: memory that is being accessed is in use until the access has ended.
func TestUnmapWaits(t *testing.T) {
	h, c := newSlowHost(t, emu.Config{}, port.MemConfig{})
	unmapped := make(chan error)
	once := false
	over := false
	c.before = func(write bool, iova uint64, n int) error {
		if once {
			return nil
		}
		once = true
		started := make(chan struct{})
		go func() {
			close(started)
			err := h.card.UnmapDMA(iova, uint64(n))
			if !over {
				err = errors.New("it did not wait")
			}
			unmapped <- err
		}()
		<-started
		for range 100 {
			runtime.Gosched()
		}
		over = true
		return nil
	}
	h.post(bulk(regs.CommandControlTypeClear, 0, 4, 0))
	h.settle()
	if err := <-unmapped; err != nil {
		t.Error(err)
	}
}

// TestSlowAllocations: what is posted is kept in memory that stays.
func TestSlowAllocations(t *testing.T) {
	h, _ := newSlowHost(t, emu.Config{}, port.MemConfig{Queue: 1024})
	h.serve()
	raw := oneFrame(append(peerFrame(clientMAC, 0x0806), make([]byte, 86)...))
	ring := regs.RingException
	step := func() {
		h.far[0].Transmit(raw)
		h.step()
		h.store(regs.RingConsumer.At(ring, regs.RingStride), h.load(regs.RingProducer.At(ring, regs.RingStride)))
	}
	for range 1200 {
		step()
	}
	if n := testing.AllocsPerRun(200, step); n > 2 { // the register accesses of this test
		t.Errorf("a step: %v allocations", n)
	}
}
