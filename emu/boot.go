package emu

import (
	"fmt"
	"io"
	"time"

	"splicenic/emu/cam"
	"splicenic/emu/datapath"
	"splicenic/emu/flash"
	"splicenic/emu/image"
	"splicenic/emu/ssram"
	"splicenic/regs"
)

// idcode is what the part answers: an XC7A200T, whose streams carry it without the version in the upper four bits.
const idcode = 0x13636093

// What a new card's flash holds. Nobody set the number; it stands for the build.
const (
	factoryName = "emulator"
	factoryCode = 1
)

var factoryVersion = image.Version{1, 0, 0}

// slots are the boot slots; 0 is golden.
var slots = [...]struct{ offset, bytes uint32 }{{0, 16 << 20}, {16 << 20, 16 << 20}, {32 << 20, 16 << 20}}

// Codes of control.fault.
const faultNoImage = 1 // no slot holds an image that loads: the card is a bare shell

// A running image is a fact of the card that registers show and no host's store changes.
type running struct {
	image    image.Params
	loaded   bool   // false: no image; the shell answers alone
	slot     uint32 // it came from
	fallback bool   // it is golden, for another one failed
	failed   uint32 // boot_status.error of the last boot
}

// shellOnly says whether only the shell is there: no image runs, or one with a data path that is not this emulator's.
func (r *running) shellOnly() bool { return !r.loaded || r.image.Foreign() }

// boot is an image being loaded.
type boot struct {
	going bool
	slot  uint32
	until time.Duration
}

// factory returns what the golden slot of a new card holds.
func (c *Card) factory() ([]byte, error) {
	return image.Encode(image.Params{
		Name: factoryName, Version: factoryVersion, UserCode: factoryCode, DataPathDigest: regs.DataPathDigest,
		Geometry: image.Geometry(c.mem.Geometry),
	}, image.Options{})
}

// openFlash makes the card's flash: the one given, the one in a file, or a new one.
func (c *Card) openFlash() (err error) {
	if c.flash = c.cfg.Flash; c.flash != nil {
		return nil
	}
	golden, err := c.factory()
	if err != nil {
		return err
	}
	cfg := flash.Config{Part: flash.MT25QL512, Scale: c.cfg.FlashScale}
	if c.cfg.FlashFile == "" {
		cfg.Store = flash.NewMemory(cfg.Part, golden)
	} else if cfg.Store, err = openFlashFile(c.cfg.FlashFile, cfg.Part, golden); err != nil {
		return err
	}
	c.flash, err = flash.New(cfg)
	return err
}

func openFlashFile(path string, p flash.Part, golden []byte) (flash.Store, error) {
	s, fresh, err := flash.OpenFile(path, p)
	if err != nil || !fresh {
		return s, err
	}
	for off := 0; off < len(golden); off += int(p.SectorBytes) {
		if err := s.WriteAt(golden[off:min(len(golden), off+int(p.SectorBytes))], uint32(off)); err != nil {
			_ = s.Close()
			return nil, err
		}
	}
	return s, nil
}

// powerOn gives everything its first value, as power does: the board has its next slot loaded.
func (c *Card) powerOn() error {
	c.boot = boot{}
	b, err := c.flash.Board()
	if err != nil {
		return err
	}
	return c.load(b.Next)
}

// load loads a slot's image, or golden where that does not load, and starts the card anew with it.
func (c *Card) load(slot uint32) error {
	c.run = running{slot: slot}
	c.run.image, c.run.failed = c.readSlot(slot)
	c.run.loaded = c.run.failed == regs.ConfigurationBootStatusErrorNone
	if !c.run.loaded && slot != 0 {
		c.run.slot, c.run.fallback = 0, true
		var failed uint32
		c.run.image, failed = c.readSlot(0)
		c.run.loaded = failed == regs.ConfigurationBootStatusErrorNone
	}
	if err := c.build(); err != nil {
		return err
	}
	c.resetConfig(false)
	c.start()
	return nil
}

// readSlot reads an image from the flash, through the configuration logic.
func (c *Card) readSlot(slot uint32) (image.Params, uint32) {
	if slot >= uint32(len(slots)) {
		return image.Params{}, regs.ConfigurationBootStatusErrorSlot
	}
	p, failed, _ := image.Load(&slotReader{c.flash, slots[slot].offset, slots[slot].offset + slots[slot].bytes}, idcode)
	if failed != regs.ConfigurationBootStatusErrorNone || p.Foreign() {
		return p, failed
	}
	if _, err := ssram.Geometry(p.Geometry).Complete(); err != nil { // no card can be built so: the frames do not configure one
		return image.Params{}, regs.ConfigurationBootStatusErrorCrc
	}
	return p, failed
}

// slotReader reads a slot from its start.
type slotReader struct {
	f       *flash.Flash
	at, end uint32
}

func (r *slotReader) Read(p []byte) (int, error) {
	n := min(len(p), int(r.end-r.at))
	if n == 0 {
		return 0, io.EOF
	}
	if _, err := r.f.Read(r.at, p[:n]); err != nil {
		return 0, err
	}
	r.at += uint32(n)
	return n, nil
}

// build makes what the running image's geometry sizes, where it is not that already.
func (c *Card) build() error {
	if c.run.shellOnly() {
		return nil
	}
	g, err := ssram.Geometry(c.run.image.Geometry).Complete()
	if err != nil || g == c.mem.Geometry {
		return err
	}
	m, err := ssram.New(g)
	if err != nil {
		return fmt.Errorf("build what the image says: %w", err)
	}
	old := c.mem
	c.mem = m
	c.connect()
	return old.Close()
}

// connect joins the blocks to the memories.
func (c *Card) connect() {
	c.cams = [2]*cam.CAM{cam.New(c.mem.CamClient, c.reg, regs.CamClient), cam.New(c.mem.CamServer, c.reg, regs.CamServer)}
	c.core = datapath.New(c.reg, c.mem, c.cams[0], c.cams[1], c.host)
	c.core.SetOneArmed(c.cfg.Server == nil)
	c.core.SetPunt(c.punt)
	c.core.SetSpill(c.spill)
}

// beginBoot takes the card off the bus while a slot's image is loaded.
func (c *Card) beginBoot(slot uint32) {
	c.boot = boot{going: true, slot: slot, until: c.clock() + c.cfg.BootTime}
	c.leave()
}

// endBoot starts the image once its time has come. In the midst of a step the card stays away until that ends.
func (c *Card) endBoot() {
	if c.stepping || c.closed || c.faults.lost || c.flash.Dark() || c.clock() < c.boot.until {
		return
	}
	slot := c.boot.slot
	c.boot = boot{}
	if err := c.load(slot); err != nil { // the machine has no memory for it
		c.faults.lost = true
	}
}

// identify gives the registers that speak of the image their values.
func (c *Card) identify() {
	r := &c.run
	c.reg.Set64(regs.IdentitySerial, c.cfg.Serial)
	c.reg.Set(regs.IdentityIdcode, idcode)
	boot := regs.SetIdentityBootSlot(0, r.slot)
	if r.slot == 0 {
		boot = regs.SetIdentityBootGolden(boot, 1)
	}
	if r.fallback {
		boot = regs.SetIdentityBootFallback(boot, 1)
	}
	c.reg.Set(regs.IdentityBoot, boot)
	c.reg.Set(regs.IdentityImageVersion, r.image.Version.Register())
	c.reg.Set(regs.IdentityUserCode, r.image.UserCode)
	for i, b := range []byte(r.image.Name) {
		at := regs.IdentityName.At(i/4, regs.IdentityNameStride)
		c.reg.Set(at, c.reg.Get(at)|uint32(b)<<(i%4*8))
	}
	if r.shellOnly() {
		c.reg.ShellOnly()
		c.reg.Set(regs.DirectoryDataPathDigest, r.image.DataPathDigest)
		c.reg.Set(regs.ControlStatus, 0)
	}
	if !r.loaded {
		c.reg.Set(regs.ControlStatus, regs.ControlStatusFaultMask)
		c.reg.Set(regs.ControlFault, faultNoImage)
	}
}
