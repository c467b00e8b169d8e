package program

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"testing"

	"splicenic/bitstream/xilinx"
	"splicenic/driver"
	"splicenic/driver/device"
	"splicenic/emu"
	"splicenic/emu/flash"
	"splicenic/emu/image"
	"splicenic/emu/port"
	"splicenic/regs"
)

// A booter is an emulated card that boots what lies in a board's flash.
type booter struct {
	card  *emu.Card
	flash slotStore
}

var bootGeometry = emu.Geometry{Pages: 64, Heads: 16, CamClientWords: 1024, CamServerWords: 1024, Listeners: 16, Services: 16, Groups: 16, Servers: 16,
	NextHops: 16, Vips: 16, LocalAddresses: 16, Rules: 64, UrlNodes: 64, Slots: 16, LocalPorts: 1024}

func newBooter(t *testing.T) *booter {
	t.Helper()
	b := &booter{}
	f, err := flash.New(flash.Config{Store: &b.flash})
	if err != nil {
		t.Fatal(err)
	}
	wire, _ := port.Pair(port.MemConfig{})
	b.flash.of = newBoard(t, small)
	if b.card, err = emu.New(emu.Config{Client: wire, Geometry: bootGeometry, Flash: f}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.card.Close() })
	return b
}

// boot gives the card power with a slot to try first, and asks it what runs. Whatever that is, it has to be ready.
func (b *booter) boot(t *testing.T, of *board, slot int) (Boot, driver.Identity) {
	t.Helper()
	b.flash.of, b.flash.next = of, uint32(slot)
	if err := b.card.PowerCycle(); err != nil {
		t.Fatal(err)
	}
	dev := device.Local(b.card, device.LocalConfig{})
	defer dev.Close()
	c, err := driver.Open(t.Context(), dev, driver.Config{Shell: true})
	if err != nil {
		t.Fatalf("the card does not come up: %v", err)
	}
	if w := c.Load(regs.ControlStatus); w != regs.ControlStatusReadyMask {
		t.Fatalf("control.status is %#x after power-on, want only ready", w)
	}
	s, err := c.BootState()
	if err != nil {
		t.Fatal(err)
	}
	return Boot{Running: int(s.Slot), Golden: s.Golden, Fallback: s.Fallback, Next: int(s.Next), Error: s.Error}, c.Identity()
}

// A slotStore shows the slots of a board's flash where the emulated card has its own. A boot writes nothing.
type slotStore struct {
	of   *board
	next uint32
}

const cardSlotBytes = 16 << 20

func (s *slotStore) ReadAt(p []byte, off uint32) error {
	for i := range p {
		p[i] = 0xff
	}
	slot, in := int(off/cardSlotBytes), off%cardSlotBytes
	if slot >= len(s.of.slots) || in >= s.of.slots[slot].Bytes {
		return nil
	}
	o := s.of.slots[slot]
	_, err := s.of.flash.Read(o.Offset+in, p[:min(len(p), int(o.Bytes-in))])
	return err
}

var errBootWrites = errors.New("a boot writes the flash")

func (s *slotStore) WriteAt([]byte, uint32) error { return errBootWrites }
func (s *slotStore) Blank(uint32) error           { return errBootWrites }
func (s *slotStore) Board() (flash.Board, error)  { return flash.Board{Next: s.next}, nil }
func (s *slotStore) SetBoard(flash.Board) error   { return errBootWrites }
func (s *slotStore) Close() error                 { return nil }

// stream is an image of n bytes that the emulated card boots: its parameters, then frames that differ from image to image,
// with a blank page.
func stream(t *testing.T, name string, n int) []byte {
	t.Helper()
	text, err := json.Marshal(image.Params{Name: name, Version: image.Version{1, 0, 0}, DataPathDigest: regs.DataPathDigest, Geometry: image.Geometry(bootGeometry)})
	if err != nil {
		t.Fatal(err)
	}
	head := append(binary.BigEndian.AppendUint32([]byte("SPLICE01"), uint32(len(text))), text...)
	head = append(head, make([]byte, -len(head)&3)...)
	words := make([]uint32, (n-1000)/4/xilinx.FrameWords*xilinx.FrameWords)
	seed := [32]byte{}
	copy(seed[:], name)
	r := rand.NewChaCha8(seed)
	for i := range words {
		if words[i] = uint32(r.Uint64()); i >= 256 && i < 512 {
			words[i] = 1<<32 - 1
		}
	}
	for i := 0; i < len(head); i += 4 {
		words[i/4] = binary.BigEndian.Uint32(head[i:])
	}
	e := xilinx.Encoder{IDCode: image.IDCode, Runs: []xilinx.Run{{Words: words}}}
	b := e.Append(nil)
	for len(b) < n {
		b = binary.BigEndian.AppendUint32(b, 0x20000000) // no operation
	}
	if len(b) != n {
		t.Fatalf("a stream of %d bytes, want %d", len(b), n)
	}
	return b
}
