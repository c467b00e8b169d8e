package emu_test

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"splicenic/emu"
	"splicenic/emu/frame"
	"splicenic/emu/port"
	"splicenic/regs"
)

var noOffload frame.Offload

// peerFrame is the Ethernet header of a frame from the far end.
func peerFrame(dst [6]byte, etherType uint16) []byte {
	b := append(append([]byte{}, dst[:]...), peerMAC[:]...)
	return binary.BigEndian.AppendUint16(b, etherType)
}

func TestReceiveCounters(t *testing.T) {
	b := newBench(t, emu.Config{}, port.MemConfig{})
	r := func(r regs.Reg) regs.Reg { return portReg(r, 1) }
	raw := func(n int) []byte { return append(peerFrame(serverMAC, 0x88b5), make([]byte, n-14)...) }
	b.send(1, raw(60), noOffload)
	b.settle()
	b.want(r(regs.PortRxDisabled), 1)
	b.want(r(regs.PortRxFrames), 0)
	b.store(r(regs.PortControl), regs.PortControlEnableMask)
	sum := 0
	for _, n := range []int{14, 64, 65, 127, 128, 511, 512, 1023, 1024, 1514, 1518, 1519} {
		b.send(1, raw(n), noOffload)
		sum += n
	}
	b.settle()
	b.want(r(regs.PortRxFrames), 12)
	b.want(r(regs.PortRxSegments), 12)
	b.want(r(regs.PortRxBytes), uint32(sum))
	for i, n := range []uint32{2, 2, 2, 2, 3, 1} {
		b.want(r(regs.PortRxSize).At(i, regs.PortRxSizeStride), n)
	}
	other := peerFrame([6]byte{2, 9, 9, 9, 9, 9}, 0x88b5)
	b.send(1, other, noOffload)
	b.settle()
	b.want(r(regs.PortRxFiltered), 1)
	for _, dst := range [][6]byte{{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, {0x33, 0x33, 0, 0, 0, 1}} {
		b.send(1, peerFrame(dst, 0x88b5), noOffload)
	}
	b.store(r(regs.PortControl), regs.PortControlEnableMask|regs.PortControlPromiscuousMask)
	b.send(1, other, noOffload)
	b.settle()
	b.want(r(regs.PortRxFiltered), 1)
	b.want(r(regs.PortRxFrames), 16)
	// All but the filtered one, and the one that arrived at a disabled port, went through the parser.
	b.want(regs.ParserExceptionNotIp.At(1, regs.ParserStride), 15)
	b.send(1, make([]byte, frame.MaxBytes+1), noOffload)
	b.settle()
	b.want(r(regs.PortRxOversize), 1)
	b.want(r(regs.PortRxFrames), 16)
}

// TestMixedBatch: a batch with frames for others keeps the order of the rest.
func TestMixedBatch(t *testing.T) {
	h := newHost(t, emu.Config{}, port.MemConfig{})
	h.serve()
	for i := range 20 {
		dst := clientMAC
		if i%3 == 1 {
			dst[5] ^= 0x40
		}
		h.send(0, append(peerFrame(dst, 0x88b5), byte(i)), noOffload)
	}
	h.settle()
	slot := 0
	for i := range 20 {
		if i%3 == 1 {
			continue
		}
		if got := h.frames.Bytes[slot*bufferBytes+14]; int(got) != i {
			t.Errorf("exception %d is frame %d, want %d", slot, got, i)
		}
		slot++
	}
	h.want(regs.PortRxFiltered, 7)
}

// TestOverrun: what the wire lost before the card could take it is counted.
func TestOverrun(t *testing.T) {
	b := newBench(t, emu.Config{}, port.MemConfig{Queue: 4})
	for i := range 7 {
		if got := b.near[0].Inject(make([]byte, 60), noOffload); got != (i < 4) {
			t.Errorf("frame %d taken: %v", i, got)
		}
	}
	b.now += 200 * time.Millisecond
	b.settle()
	b.want(regs.PortRxOverrun, 3)
	b.now += 200 * time.Millisecond
	b.settle()
	b.want(regs.PortRxOverrun, 3)
	b.want(regs.PortRxDisabled, 4)
}

// TestDropped: what the wire does not take is counted; a wire that is gone is a link that is down.
func TestDropped(t *testing.T) {
	h := newHost(t, emu.Config{}, port.MemConfig{Queue: 2})
	h.serve()
	for i := range 5 {
		h.inject(uint32(i), regs.InjectEntry{ControlType: regs.InjectControlTypeEmit, ControlPort: 1}, peerFrame(peerMAC, 0x88b5))
	}
	h.settle()
	h.want(portReg(regs.PortTxFrames, 1), 2)
	h.want(portReg(regs.PortTxDropped, 1), 3)
	if err := h.far[1].Close(); err != nil {
		t.Fatal(err)
	}
	h.step()
	h.want(portReg(regs.PortStatus, 1), 2)
	h.want(portReg(regs.PortLinkChanges, 1), 1)
}

// TestSynAck: a SYN in, a SYN-ACK out, counted on both sides of the port.
func TestSynAck(t *testing.T) {
	b := newBench(t, emu.Config{}, port.MemConfig{})
	b.serve()
	b.send(0, syn(1000, 77).build(false), noOffload)
	b.settle()
	out := b.drain()
	if len(out) != 1 || out[0].port != 0 {
		t.Fatalf("sent %d frames", len(out))
	}
	tcp := out[0].bytes[34:]
	if tcp[13] != flagSYN|flagACK || binary.BigEndian.Uint32(tcp[8:]) != 78 {
		t.Errorf("answer % x", tcp)
	}
	b.want(regs.PortTxFrames, 1)
	b.want(regs.PortTxBytes, uint32(len(out[0].bytes)))
	b.want(regs.PortTxSize, 1)
	b.store(regs.PortControl, 0)
	b.now += 5e9 // the SYN-ACK is sent again, into a port that is off
	b.settle()
	if b.load(regs.PortTxDisabled) == 0 {
		t.Error("nothing was counted at the port that is off")
	}
	if out := b.drain(); len(out) != 0 {
		t.Errorf("sent %d frames", len(out))
	}
}

// inject hands a frame to the inject ring.
func (h *host) inject(index uint32, e regs.InjectEntry, frame []byte) {
	h.Helper()
	m := h.alloc("frame", 1<<16)
	copy(m.Bytes, frame)
	e.Length, e.IovaLo, e.IovaHi = uint32(len(frame)), uint32(m.IOVA), uint32(m.IOVA>>32)
	h.put(regs.RingInject, index, &e)
	h.store(regs.RingProducer.At(regs.RingInject, regs.RingStride), index+1)
}

func TestInject(t *testing.T) {
	h := newHost(t, emu.Config{}, port.MemConfig{})
	h.serve()
	emit := append(peerFrame(peerMAC, 0x88b5), "from the host"...)
	h.inject(0, regs.InjectEntry{ControlType: regs.InjectControlTypeEmit, ControlPort: 1}, emit)
	h.settle()
	if out := h.drain(); len(out) != 1 || out[0].port != 1 || !bytes.Equal(out[0].bytes, emit) {
		t.Errorf("sent %v", out)
	}
	h.inject(1, regs.InjectEntry{ControlType: regs.InjectControlTypeReinject}, syn(1000, 77).build(false))
	h.inject(2, regs.InjectEntry{ControlType: regs.InjectControlTypeEmit, ControlPort: 0}, make([]byte, 4000)) // no wire frame
	h.settle()
	if out := h.drain(); len(out) != 1 || out[0].port != 0 || out[0].bytes[47] != flagSYN|flagACK {
		t.Errorf("sent %v", out)
	}
	h.want(regs.RingTruncated.At(regs.RingInject, regs.RingStride), 1)
	h.want(regs.PortRxFrames, 0) // it was no frame from the wire
}

// coalesced is a segment of n bytes of payload that a kernel left uncut.
func coalesced(n, size int) ([]byte, frame.Offload) {
	s := segment{dst: peerMAC, from: clientAddress, to: serverAddress, sport: 1, dport: 8080, seq: 1000, flags: flagACK, payload: pattern(n, 5)}
	return s.build(true), frame.Offload{Flags: frame.NeedsChecksum, GSOType: frame.GSOTCP4, HdrLen: 54, GSOSize: uint16(size), CsumStart: 34, CsumOffset: 16}
}

// TestTransmitOffload carries a coalesced frame through a splice to wires that take it whole and wires that do not.
func TestTransmitOffload(t *testing.T) {
	raw, offload := coalesced(40_000, 1448)
	for _, x := range []struct {
		name     string
		offloads port.Offloads
		mtu      int
		frames   int
		payload  int // of the first frame
		partial  bool
		cut      uint32
	}{
		{"whole", port.Offloads{Checksum: true, Segmentation: true}, 1500, 1, 40_000, true, 0},
		{"cut", port.Offloads{}, 1500, 28, 1448, false, 1},
		{"cut for a small MTU", port.Offloads{Checksum: true, Segmentation: true}, 1000, 42, 960, false, 1},
	} {
		t.Run(x.name, func(t *testing.T) {
			b := newBench(t, emu.Config{}, port.MemConfig{Offloads: x.offloads, MTU: x.mtu})
			b.splice(t)
			r := segment{dst: clientMAC, from: clientAddress, to: vipAddress, sport: 1000, dport: 80, flags: flagACK, payload: raw[54:]}
			r.seq, r.ack = b.clientNext(), b.isn+1
			b.send(0, r.build(true), offload)
			b.settle()
			out := b.drain()
			if len(out) != x.frames {
				t.Fatalf("sent %d frames, want %d", len(out), x.frames)
			}
			if got := len(out[0].bytes) - 54; got != x.payload {
				t.Errorf("payload of the first = %d, want %d", got, x.payload)
			}
			var payload []byte
			for _, f := range out {
				if f.port != 1 {
					t.Fatalf("sent to port %d", f.port)
				}
				tcp := f.bytes[34:]
				payload = append(payload, tcp[20:]...)
				sum := frame.Fold(frame.Sum(tcp, frame.Pseudo4(f.bytes[14:], 6, len(tcp))))
				if partial := f.offload.Flags&frame.NeedsChecksum != 0; partial != x.partial || !partial && sum != 0xffff {
					t.Fatalf("partial = %v, sum = %#x", partial, sum)
				}
			}
			if !bytes.Equal(payload, r.payload) {
				t.Error("payload differs")
			}
			b.want(portReg(regs.PortTxCut, 1), x.cut)
			b.want(regs.PortRxSegments, b.load(regs.PortRxFrames)+27)
			if x.cut == 0 {
				b.want(portReg(regs.PortTxSegments, 1), b.load(portReg(regs.PortTxFrames, 1))+27)
			}
		})
	}
}

// TestPunt: what the host gets of a coalesced frame, or of one with a partial sum, are wire frames with whole sums.
func TestPunt(t *testing.T) {
	h := newHost(t, emu.Config{}, port.MemConfig{})
	h.serve()
	raw, offload := coalesced(10_000, 1448)
	copy(raw, clientMAC[:])
	h.send(0, raw, offload)
	h.settle()
	var payload []byte
	for i := range uint32(7) {
		var e regs.ExceptionEntry
		h.get(regs.RingException, i, &e)
		b := h.frames.Bytes[i*bufferBytes:][:e.Length]
		payload = append(payload, b[54:]...)
		if sum := frame.Fold(frame.Sum(b[34:], frame.Pseudo4(b[14:], 6, len(b)-34))); sum != 0xffff {
			t.Errorf("frame %d: sum %#x", i, sum)
		}
	}
	if !bytes.Equal(payload, raw[54:]) {
		t.Errorf("%d bytes of payload arrived, or other ones", len(payload))
	}
}

// TestPuntOnce: a coalesced frame that makes the card ask about a request makes it ask once.
func TestPuntOnce(t *testing.T) {
	h := newHost(t, emu.Config{}, port.MemConfig{})
	h.serve()
	client := syn(1000, clientISN)
	h.send(0, client.build(false), noOffload)
	h.settle()
	client.seq, client.ack, client.flags = clientISN+1, binary.BigEndian.Uint32(h.drain()[0].bytes[38:])+1, flagACK
	client.payload = append([]byte("GET /"), bytes.Repeat([]byte("x"), 10_000)...)
	_, offload := coalesced(10_000, 1448)
	h.send(0, client.build(true), offload)
	h.settle()
	var e regs.ExceptionEntry
	h.get(regs.RingException, 0, &e)
	if e.ReasonReason != regs.ExceptionReasonReasonHeadTooLarge || e.HandleGeneration == 0 {
		t.Errorf("exception %+v", e)
	}
	h.want(regs.RingDescriptors.At(regs.RingException, regs.RingStride), 1)
}

func TestLoopback(t *testing.T) {
	h := newHost(t, emu.Config{}, port.MemConfig{})
	h.serve()
	h.store(portReg(regs.PortControl, 1), regs.PortControlEnableMask|regs.PortControlLoopbackMask)
	f := append(peerFrame(serverMAC, 0x88b5), "there and back"...)
	h.inject(0, regs.InjectEntry{ControlType: regs.InjectControlTypeEmit, ControlPort: 1}, f)
	h.settle()
	if out := h.drain(); len(out) != 0 {
		t.Errorf("sent %v", out)
	}
	h.want(portReg(regs.PortTxFrames, 1), 1)
	h.want(portReg(regs.PortRxFrames, 1), 1)
	if got := h.frames.Bytes[:len(f)]; !bytes.Equal(got, f) {
		t.Errorf("exception = %q", got)
	}
}

func TestOneArmed(t *testing.T) {
	near, far := port.Pair(port.MemConfig{MACs: [2][6]byte{clientMAC, peerMAC}})
	c, err := emu.New(emu.Config{Geometry: small(), Client: near})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	b := &bench{TB: t, card: c, far: [2]*port.Mem{far, far}}
	b.want(portReg(regs.PortStatus, 1), 0)
	b.serve()
	b.send(0, syn(1000, 77).build(false), noOffload)
	b.settle()
	if out := b.drain(); len(out) != 1 {
		t.Errorf("sent %v", out)
	}
}
