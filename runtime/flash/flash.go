// Package flash shows the configuration port of an opened card as package program wants a card: its flash, its boot logic
// and who it is. Nothing beyond the shell is used, so that it works on any card of this project.
package flash

import (
	"context"
	"fmt"

	"splicenic/bitstream/program"
	"splicenic/driver"
	"splicenic/driver/device"
	"splicenic/regs"
)

// A Card is a driver.Card as package program wants it.
type Card struct{ c *driver.Card }

var (
	_ program.Card   = Card{}
	_ program.Trier  = Card{}
	_ program.Sensor = Card{}
)

// Of returns the card as package program wants it.
func Of(c *driver.Card) Card { return Card{c} }

// Geometry returns the flash and its slots as the card says them.
func (f Card) Geometry(context.Context) (program.Geometry, error) {
	d, err := f.c.FlashGeometry()
	if err != nil {
		return program.Geometry{}, err
	}
	g := program.Geometry{JEDEC: d.JEDEC, Bytes: d.Bytes, SectorBytes: d.SectorBytes, PageBytes: d.PageBytes}
	for _, s := range d.Slots {
		g.Slots = append(g.Slots, program.Slot{Offset: s.Offset, Bytes: s.Bytes})
	}
	return g, nil
}

// Read reads bytes, in as many operations as that takes.
func (f Card) Read(ctx context.Context, offset uint32, p []byte) error {
	return f.c.ReadFlash(ctx, offset, p)
}

// Erase erases the sector that starts at an offset.
func (f Card) Erase(ctx context.Context, offset uint32) error { return f.c.EraseFlash(ctx, offset) }

// Program programs bytes inside one page.
func (f Card) Program(ctx context.Context, offset uint32, p []byte) error {
	return f.c.ProgramFlash(ctx, offset, p)
}

// Protected says whether the write protection is on.
func (f Card) Protected(context.Context) (bool, error) { return f.c.FlashProtected() }

// Protect sets the write protection.
func (f Card) Protect(ctx context.Context, on bool) error { return f.c.ProtectFlash(ctx, on) }

// Identity returns who the card said that it is when it was opened, if it is still there and has not begun anew.
func (f Card) Identity(context.Context) (program.Identity, error) {
	id := f.c.Identity()
	shell, from := f.c.Load(regs.DirectoryShellDigest), f.c.Load(regs.DirectoryDataPathDigest)
	if err := f.c.Err(); err != nil {
		return program.Identity{}, err
	}
	if shell != id.ShellDigest || from != id.DataPathDigest {
		return program.Identity{}, fmt.Errorf("identify card: it has begun anew: %w", device.ErrDeviceLost)
	}
	return program.Identity{
		Board: id.Board, IDCode: id.IDCode, UserCode: id.UserCode, Name: id.Name, Version: id.Image.String(), Serial: id.Serial,
		ShellDigest: id.ShellDigest, DataPathDigest: id.DataPathDigest,
	}, nil
}

// Boot returns what the boot logic says.
func (f Card) Boot(context.Context) (program.Boot, error) {
	b, err := f.c.BootState()
	return program.Boot{Running: int(b.Slot), Golden: b.Golden, Fallback: b.Fallback, Next: int(b.Next), Error: b.Error}, err
}

// SetNext says which slot the next boot tries first.
func (f Card) SetNext(_ context.Context, slot int) error {
	if slot < 0 || slot > int(regs.ConfigurationBootNextSlotMask) {
		return fmt.Errorf("set the next boot slot to %d: %w", slot, device.ErrRange)
	}
	return f.c.SetBootNext(uint32(slot))
}

// Try loads the image of a slot once; what is next stays. The card leaves its bus.
func (f Card) Try(ctx context.Context, slot int) error {
	if slot < 0 || slot > int(regs.ConfigurationBootNextSlotMask) {
		return fmt.Errorf("boot slot %d: %w", slot, device.ErrRange)
	}
	return f.c.TryBoot(ctx, uint32(slot))
}

// Alarms clears alarms that are over, and returns the others.
func (f Card) Alarms(context.Context) (program.Alarms, error) {
	f.c.ClearAlarms()
	s, err := f.c.Sensors()
	return program.Alarms{Temperature: s.Hot, Voltage: s.VccintFell || s.VccauxFell, Celsius: float64(s.Temperature) / 1000}, err
}

// Start loads the image of the next slot. The card leaves its bus.
func (f Card) Start(ctx context.Context) error { return f.c.StartBoot(ctx) }
