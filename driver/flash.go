package driver

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"splicenic/driver/device"
	"splicenic/regs"
)

// A FlashGeometry is the flash behind a card and its boot slots.
type FlashGeometry struct {
	JEDEC       uint32 // manufacturer, type, capacity
	Bytes       uint32
	SectorBytes uint32 // smallest erasable unit
	PageBytes   uint32 // largest unit of one ProgramFlash
	Slots       []FlashSlot
}

// A FlashSlot is room for one image.
type FlashSlot struct{ Offset, Bytes uint32 }

// A FlashError is an operation of the flash that failed.
type FlashError struct {
	Operation string // read, program, erase, protect, unprotect
	Address   uint32
	Reason    string // as configuration.flash_status.error names it; empty: Err says it
	Err       error  // nil: the flash gave the reason
}

func (e *FlashError) Error() string {
	reason := e.Reason
	if e.Err != nil {
		reason = e.Err.Error()
	}
	switch reason {
	case "protected":
		reason = "its write protection is on"
	case "program_failed", "erase_failed":
		reason += ": the sector does not take it"
	}
	return fmt.Sprintf("%s flash at %#x: %s", e.Operation, e.Address, reason)
}

// Unwrap returns what is behind it.
func (e *FlashError) Unwrap() error {
	if e.Err == nil && e.Reason == "address" {
		return device.ErrRange
	}
	return e.Err
}

// Protected says whether write protection was the reason.
func (e *FlashError) Protected() bool { return e.Reason == "protected" }

// flashOperations are names, and what an operation may take: forty times what parts of this size typically take, but no
// less than a busy host may need to look again.
var flashOperations = [...]struct {
	name  string
	limit time.Duration
}{
	regs.ConfigurationFlashCommandOperationNone:      {"use", 6 * time.Second},
	regs.ConfigurationFlashCommandOperationRead:      {"read", time.Second},
	regs.ConfigurationFlashCommandOperationProgram:   {"program", time.Second},
	regs.ConfigurationFlashCommandOperationErase:     {"erase", 40 * 150 * time.Millisecond},
	regs.ConfigurationFlashCommandOperationProtect:   {"protect", time.Second},
	regs.ConfigurationFlashCommandOperationUnprotect: {"unprotect", time.Second},
}

// errStillBusy: the flash controller does not end what it was told.
var errStillBusy = fmt.Errorf("the flash is busy still: %w", ErrTimeout)

// FlashGeometry loads what the card says about its flash. All methods about flash, boot, ICAP and sensors work on a card
// that was opened for its shell, or whose data path is another one. A card that is lost ends them with
// device.ErrDeviceLost; an operation that was begun goes on in the card when ctx ends.
func (c *Card) FlashGeometry() (FlashGeometry, error) {
	g := FlashGeometry{
		JEDEC: regs.ConfigurationFlashIdJedec(c.Load(regs.ConfigurationFlashId)), Bytes: c.Load(regs.ConfigurationFlashSize),
		SectorBytes: c.Load(regs.ConfigurationFlashSector), PageBytes: c.Load(regs.ConfigurationFlashPage),
	}
	n := c.Load(regs.ConfigurationBootSlots)
	if err := c.dev.Err(); err != nil {
		return FlashGeometry{}, err
	}
	switch {
	case g.Bytes == 0:
		return FlashGeometry{}, fmt.Errorf("find the card's flash: %s is 0: %w", regs.ConfigurationFlashSize.Name(), device.ErrNotSupported)
	case g.PageBytes == 0 || g.PageBytes > flashWindow || g.SectorBytes == 0 || g.SectorBytes%g.PageBytes != 0 || g.Bytes%g.SectorBytes != 0 || n > regs.ConfigurationBootOffsetCount:
		return FlashGeometry{}, fmt.Errorf("find the card's flash: %d bytes, sectors of %d, pages of %d, %d boot slots: no flash is like that", g.Bytes, g.SectorBytes, g.PageBytes, n)
	}
	for i := range int(n) {
		s := FlashSlot{c.Load(regs.ConfigurationBootOffset.At(i, regs.ConfigurationBootOffsetStride)), c.Load(regs.ConfigurationBootBytes.At(i, regs.ConfigurationBootBytesStride))}
		if s.Offset%g.SectorBytes != 0 || s.Bytes%g.SectorBytes != 0 || uint64(s.Offset)+uint64(s.Bytes) > uint64(g.Bytes) {
			if err := c.dev.Err(); err != nil {
				return FlashGeometry{}, err
			}
			return FlashGeometry{}, fmt.Errorf("find the card's boot slots: slot %d has %#x bytes from %#x on, which are no whole sectors of the flash", i, s.Bytes, s.Offset)
		}
		g.Slots = append(g.Slots, s)
	}
	return g, c.dev.Err()
}

// flashWindow is the size of the window that data goes through.
const flashWindow = 4 * regs.ConfigurationFlashWindowCount

// ReadFlash fills p with what lies in the flash from off on.
func (c *Card) ReadFlash(ctx context.Context, off uint32, p []byte) error {
	if err := c.holdFlash(ctx); err != nil {
		return &FlashError{Operation: "read", Address: off, Err: err}
	}
	defer c.releaseFlash()
	for len(p) > 0 {
		n := min(len(p), flashWindow)
		if err := c.flashOperation(ctx, regs.ConfigurationFlashCommandOperationRead, off, n); err != nil {
			return err
		}
		if c.bars.loadBytes(device.Bar0, uint64(regs.ConfigurationFlashWindow), p[:n]) {
			c.suspect(regs.ConfigurationFlashWindow.Name()) // it is blank, or the card is gone
		}
		if err := c.dev.Err(); err != nil {
			return &FlashError{Operation: "read", Address: off, Err: err}
		}
		p, off = p[n:], off+uint32(n)
	}
	return nil
}

// ProgramFlash takes bits from 1 to 0, inside one page.
func (c *Card) ProgramFlash(ctx context.Context, off uint32, p []byte) error {
	if err := c.holdFlash(ctx); err != nil {
		return &FlashError{Operation: "program", Address: off, Err: err}
	}
	defer c.releaseFlash()
	if len(p) == 0 || len(p) > flashWindow {
		return &FlashError{Operation: "program", Address: off, Err: fmt.Errorf("%d bytes at once: %w", len(p), device.ErrRange)}
	}
	if err := c.idleFlash(ctx, off); err != nil { // before the window is another's
		return err
	}
	if c.flashPage == 0 {
		c.flashPage = c.Load(regs.ConfigurationFlashPage)
	}
	if c.flashPage != 0 && uint64(off%c.flashPage)+uint64(len(p)) > uint64(c.flashPage) {
		return &FlashError{Operation: "program", Address: off, Err: fmt.Errorf("%d bytes run over the end of the page: %w", len(p), device.ErrRange)}
	}
	c.bars.storeBytes(device.Bar0, uint64(regs.ConfigurationFlashWindow), p)
	return c.flashCommand(ctx, regs.ConfigurationFlashCommandOperationProgram, off, len(p))
}

// EraseFlash sets all bits of the sector that off lies in.
func (c *Card) EraseFlash(ctx context.Context, off uint32) error {
	if err := c.holdFlash(ctx); err != nil {
		return &FlashError{Operation: "erase", Address: off, Err: err}
	}
	defer c.releaseFlash()
	return c.flashOperation(ctx, regs.ConfigurationFlashCommandOperationErase, off, 0)
}

// FlashProtected says whether the flash's write protection is on.
func (c *Card) FlashProtected() (bool, error) {
	w := c.Load(regs.ConfigurationFlashStatus)
	return regs.ConfigurationFlashStatusProtected(w) != 0, c.dev.Err()
}

// ProtectFlash turns write protection on or off.
func (c *Card) ProtectFlash(ctx context.Context, on bool) error {
	operation := uint32(regs.ConfigurationFlashCommandOperationUnprotect)
	if on {
		operation = regs.ConfigurationFlashCommandOperationProtect
	}
	if err := c.holdFlash(ctx); err != nil {
		return &FlashError{Operation: flashOperations[operation].name, Err: err}
	}
	defer c.releaseFlash()
	return c.flashOperation(ctx, operation, 0, 0)
}

// holdFlash takes the right to use the configuration port.
func (c *Card) holdFlash(ctx context.Context) error {
	if err := c.dev.Err(); err != nil {
		return err
	}
	select {
	case <-c.port:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (c *Card) releaseFlash() { c.port <- struct{}{} }

// flashOperation does one operation of the controller.
func (c *Card) flashOperation(ctx context.Context, operation, at uint32, n int) error {
	if err := c.idleFlash(ctx, at); err != nil {
		return err
	}
	return c.flashCommand(ctx, operation, at, n)
}

// idleFlash waits for what the controller does already: a predecessor's operation, or one whose ctx had ended.
func (c *Card) idleFlash(ctx context.Context, at uint32) error {
	return c.awaitFlash(ctx, regs.ConfigurationFlashCommandOperationNone, at)
}

func (c *Card) flashCommand(ctx context.Context, operation, at uint32, n int) error {
	if at > regs.ConfigurationFlashAddressAddressMask {
		return &FlashError{Operation: flashOperations[operation].name, Address: at, Reason: "address"}
	}
	c.Store(regs.ConfigurationFlashAddress, at)
	w := regs.SetConfigurationFlashCommandOperation(0, operation)
	c.Store(regs.ConfigurationFlashCommand, regs.SetConfigurationFlashCommandLength(w, uint32(n)))
	return c.awaitFlash(ctx, operation, at)
}

// awaitFlash waits until the controller is not busy, and returns what came of the operation.
func (c *Card) awaitFlash(ctx context.Context, operation, at uint32) error {
	what := flashOperations[operation]
	var status uint32
	err := c.awaitPort(ctx, what.limit, errStillBusy, func() bool {
		status = c.Load(regs.ConfigurationFlashStatus)
		return regs.ConfigurationFlashStatusBusy(status) == 0
	})
	if err != nil {
		return &FlashError{Operation: what.name, Address: at, Err: err}
	}
	failed := regs.ConfigurationFlashStatusError(status)
	if failed == regs.ConfigurationFlashStatusErrorNone || operation == regs.ConfigurationFlashCommandOperationNone {
		return nil
	}
	return &FlashError{Operation: what.name, Address: at, Reason: valueName("configuration.flash_status.error", failed)}
}

// How the port is looked at: at first all the time, for pages take microseconds, then less and less often.
const (
	portSpin  = 200 * time.Microsecond
	portFirst = 100 * time.Microsecond
	portLast  = 10 * time.Millisecond
)

// awaitPort waits until done, which loads a register, says so; for limit at most, which ends with late.
func (c *Card) awaitPort(ctx context.Context, limit time.Duration, late error, done func() bool) error {
	start := time.Now()
	for nap := portFirst; ; {
		finished := done()
		if err := c.dev.Err(); err != nil {
			return err
		}
		if finished {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		took := time.Since(start)
		if took > limit {
			return late
		}
		if c.cfg.Pump != nil {
			c.cfg.Pump()
		}
		if took < portSpin {
			runtime.Gosched()
			continue
		}
		t := time.NewTimer(nap)
		select {
		case <-t.C:
		case <-ctx.Done():
		}
		t.Stop()
		nap = min(2*nap, portLast)
	}
}

// valueName is a value of a field as the map names it.
func valueName(field string, v uint32) string {
	if l, ok := regs.LookupRegister(field); ok && l.Field != nil {
		if name := l.Field.ValueName(v); name != "" {
			return name
		}
	}
	return fmt.Sprintf("code %d", v)
}

// A BootState is the state of a card's boot logic, and where what runs came from.
type BootState struct {
	Slot     uint32 // that runs
	Golden   bool
	Fallback bool   // an earlier boot failed and what runs was the way back
	Next     uint32 // slot the next boot tries first
	Busy     bool
	Error    string // of the last boot: none, no_sync, idcode, crc, slot
}

// BootState loads it.
func (c *Card) BootState() (BootState, error) {
	boot, status := c.Load(regs.IdentityBoot), c.Load(regs.ConfigurationBootStatus)
	s := BootState{
		Slot: regs.IdentityBootSlot(boot), Golden: regs.IdentityBootGolden(boot) != 0, Fallback: regs.IdentityBootFallback(boot) != 0,
		Next: regs.ConfigurationBootNextSlot(c.Load(regs.ConfigurationBootNext)),
		Busy: regs.ConfigurationBootStatusBusy(status) != 0, Error: valueName("configuration.boot_status.error", regs.ConfigurationBootStatusError(status)),
	}
	return s, c.dev.Err()
}

// SetBootNext says which slot the next boot tries first. The board keeps it over power cycles.
func (c *Card) SetBootNext(slot uint32) error {
	if err := c.checkSlot(slot); err != nil {
		return fmt.Errorf("set next boot slot: %w", err)
	}
	c.Store(regs.ConfigurationBootNext, slot)
	got := regs.ConfigurationBootNextSlot(c.Load(regs.ConfigurationBootNext))
	if err := c.dev.Err(); err != nil {
		return err
	}
	if got != slot {
		return fmt.Errorf("set next boot slot: the card has %d after a store of %d", got, slot)
	}
	return nil
}

func (c *Card) checkSlot(slot uint32) error {
	n := c.Load(regs.ConfigurationBootSlots)
	if err := c.dev.Err(); err != nil {
		return err
	}
	if slot >= n {
		return fmt.Errorf("slot %d, the card has %d: %w", slot, n, device.ErrRange)
	}
	return nil
}

// StartBoot loads the image of the next slot. The card leaves the bus: loads read all ones, and this Card and its device are
// of no use any more. The next one is of a card as after power-on.
func (c *Card) StartBoot(ctx context.Context) error {
	if err := c.holdFlash(ctx); err != nil {
		return fmt.Errorf("boot card: %w", err)
	}
	defer c.releaseFlash()
	if err := c.checkSlot(regs.ConfigurationBootNextSlot(c.Load(regs.ConfigurationBootNext))); err != nil {
		return fmt.Errorf("boot card: %w", err)
	}
	c.Store(regs.ConfigurationBootCommand, regs.ConfigurationBootCommandBootMask)
	var id [4]byte
	_ = c.dev.ReadConfig(0, id[:]) // carries the store out; whether the card answers is all the same now
	return nil
}

// TryBoot loads a slot's image once: what the next power-on tries stays as it is. It is StartBoot in all else, and goes by
// the configuration logic: to the address in WBSTAR IPROG goes.
func (c *Card) TryBoot(ctx context.Context, slot uint32) error {
	g, err := c.FlashGeometry()
	if err != nil {
		return fmt.Errorf("boot card: %w", err)
	}
	if err := c.checkSlot(slot); err != nil {
		return fmt.Errorf("boot card: %w", err)
	}
	const (
		pad, sync, nop = 0xffffffff, 0xaa995566, 0x20000000
		wbstar, cmd    = 0x30020001, 0x30008001 // one word is written to the register
		iprog          = 15
	)
	err = c.SendICAP(ctx, []uint32{pad, sync, nop, wbstar, g.Slots[slot].Offset, cmd, iprog, nop})
	if err != nil && !errors.Is(err, device.ErrDeviceLost) {
		return fmt.Errorf("boot card: %w", err)
	}
	return nil
}

// An ICAPError is what the configuration logic refused.
type ICAPError struct{ Reason string } // idcode, crc, command

func (e *ICAPError) Error() string {
	return "send to configuration logic: it refuses the stream: " + e.Reason
}

// SendICAP gives words to the card's configuration logic. The stream may go on in the next call. IPROG takes the card off the
// bus: SendICAP then returns device.ErrDeviceLost.
func (c *Card) SendICAP(ctx context.Context, words []uint32) error {
	if err := c.holdFlash(ctx); err != nil {
		return fmt.Errorf("send to configuration logic: %w", err)
	}
	defer c.releaseFlash()
	for len(words) > 0 {
		n := min(len(words), regs.ConfigurationIcapWindowCount)
		c.bars.storeWords(device.Bar0, uint64(regs.ConfigurationIcapWindow), words[:n])
		c.Store(regs.ConfigurationIcapCommand, uint32(n))
		words = words[n:]
		var status uint32
		err := c.awaitPort(ctx, time.Second, ErrTimeout, func() bool {
			status = c.Load(regs.ConfigurationIcapStatus)
			return regs.ConfigurationIcapStatusBusy(status) == 0
		})
		if err != nil {
			return fmt.Errorf("send to configuration logic: %w", err)
		}
		if failed := regs.ConfigurationIcapStatusError(status); failed != regs.ConfigurationIcapStatusErrorNone {
			return &ICAPError{valueName("configuration.icap_status.error", failed)}
		}
	}
	return nil
}

// Sensors are what a card measures, the limits, and the alarms since they were cleared.
type Sensors struct {
	Temperature, TemperatureLimit int32  // millidegree Celsius
	Vccint, VccintLow             uint32 // millivolt
	Vccaux, VccauxLow             uint32 // millivolt
	Hot, VccintFell, VccauxFell   bool
}

// Sensors loads them.
func (c *Card) Sensors() (Sensors, error) {
	alarm := c.Load(regs.SensorAlarm)
	s := Sensors{
		Temperature: millidegrees(c.Load(regs.SensorTemperature)), TemperatureLimit: millidegrees(c.Load(regs.SensorTemperatureLimit)),
		Vccint: regs.SensorVccintValue(c.Load(regs.SensorVccint)), VccintLow: regs.SensorVccintLowValue(c.Load(regs.SensorVccintLow)),
		Vccaux: regs.SensorVccauxValue(c.Load(regs.SensorVccaux)), VccauxLow: regs.SensorVccauxLowValue(c.Load(regs.SensorVccauxLow)),
		Hot: regs.SensorAlarmTemperature(alarm) != 0, VccintFell: regs.SensorAlarmVccint(alarm) != 0, VccauxFell: regs.SensorAlarmVccaux(alarm) != 0,
	}
	return s, c.dev.Err()
}

// ClearAlarms clears all alarms; one whose condition holds comes back.
func (c *Card) ClearAlarms() {
	c.Store(regs.SensorAlarm, regs.SensorAlarmTemperatureMask|regs.SensorAlarmVccintMask|regs.SensorAlarmVccauxMask)
}

// millidegrees is a number of 24 bits with its sign.
func millidegrees(w uint32) int32 { return int32(w<<8) >> 8 }
