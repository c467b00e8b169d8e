package driver

import (
	"encoding/binary"
	"testing"

	"splicenic/driver/device"
	"splicenic/regs"
)

// words takes n words from the front of data, zero where it ends.
func words(data []byte, n int) []uint32 {
	b := make([]byte, 4*n)
	copy(b, data)
	w := make([]uint32, n)
	for i := range w {
		w[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	return w
}

// FuzzCAMWord decodes what a CAM may hold. An entry must say what the words say.
func FuzzCAMWord(f *testing.F) {
	f.Add([]byte{0x03, 6, 0, 0}, true)
	f.Add([]byte{0x05}, false)
	f.Fuzz(func(t *testing.T, data []byte, two bool) {
		n := regs.CamWordWords
		if two {
			n *= 2
		}
		w := words(data, n)
		e, ok := decodeCAM(6, w)
		valid := regs.CamWordControlValid(w[0]) == 1 && regs.CamWordControlSecond(w[0]) == 0
		if ok != (valid && (two || regs.CamWordControlKind(w[0]) != regs.KindIpv6)) {
			t.Fatalf("decoded %v of %x", ok, w)
		}
		if !ok {
			return
		}
		if uint32(e.Handle) != w[regs.CamWordHandle] || uint32(e.Key.Port) != regs.CamWordPortsPort(w[regs.CamWordPorts]) {
			t.Fatalf("entry %+v of %x", e, w)
		}
		if kind, _ := AddressWords(e.Key.Addr); kind == regs.KindIpv6 && regs.CamWordControlKind(w[0]) != regs.KindIpv6 {
			t.Fatalf("entry %+v of kind %d", e, regs.CamWordControlKind(w[0]))
		}
	})
}

// FuzzException gives the driver descriptors as a broken card may write them. A frame never reaches outside the buffers.
func FuzzException(f *testing.F) {
	f.Add(make([]byte, 64))
	f.Add([]byte{2, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0})
	fake := newFakeCard()
	d := device.Local(fake, device.LocalConfig{})
	f.Cleanup(func() { d.Close() })
	c, err := Open(f.Context(), d, Config{Pump: fake.step, Rings: Rings{Exception: 4, FrameBytes: 128}})
	if err != nil {
		f.Fatal(err)
	}
	buffers := c.exceptions.buffers
	f.Fuzz(func(t *testing.T, data []byte) {
		w := words(data, 16)
		iova, n := uint64(w[regs.ExceptionIovaLo])|uint64(w[regs.ExceptionIovaHi])<<32, uint64(w[regs.ExceptionLength])
		fake.mu.Lock()
		fake.produce(regs.RingException, w, VectorException)
		fake.mu.Unlock()
		var es [2]Exception
		if got := c.Exceptions(es[:]); got != 1 {
			t.Fatalf("%d exceptions, want 1", got)
		}
		inside := n <= 128 && iova >= buffers.IOVA && iova-buffers.IOVA <= uint64(len(buffers.Bytes))-n
		if inside && len(es[0].Frame) != int(n) || !inside && len(es[0].Frame) != 0 {
			t.Fatalf("frame of %d bytes for %d at %#x", len(es[0].Frame), n, iova)
		}
		for _, b := range es[0].Frame { // every byte is there
			_ = b
		}
		c.CommitExceptions()
	})
}
