package emu

import (
	"encoding/binary"
	"errors"
	"time"

	"splicenic/emu/flash"
	"splicenic/emu/regfile"
	"splicenic/regs"
)

// defaults of the control plane: the flash is a hundred times as quick as its part, so that writing a whole slot takes
// about a second.
const (
	flashScale = 0.01
	bootTime   = 20 * time.Millisecond
)

// configuration gives the registers of the configuration port their first values.
func (c *Card) configurationStart() {
	p := c.flash.Part()
	for _, x := range []struct {
		reg   regs.Reg
		value uint32
	}{
		{regs.ConfigurationFlashId, p.JEDEC}, {regs.ConfigurationFlashSize, p.Bytes},
		{regs.ConfigurationFlashSector, p.SectorBytes}, {regs.ConfigurationFlashPage, p.PageBytes},
		{regs.ConfigurationBootSlots, uint32(len(slots))},
		{regs.ConfigurationBootStatus, regs.SetConfigurationBootStatusError(0, c.run.failed)},
	} {
		c.reg.Set(x.reg, x.value)
	}
	for i, s := range slots {
		c.reg.Set(regs.ConfigurationBootOffset.At(i, regs.ConfigurationBootOffsetStride), s.offset)
		c.reg.Set(regs.ConfigurationBootBytes.At(i, regs.ConfigurationBootBytesStride), s.bytes)
	}
	b, _ := c.flash.Board()
	c.reg.Set(regs.ConfigurationBootNext, b.Next)
	c.flashDone(regs.ConfigurationFlashStatusErrorNone, 0)
	c.icap.Reset()
}

// flashErrors are what the flash's errors are to the host. What a file refuses is a part that fails.
var flashErrors = []struct {
	err  error
	code uint32
}{
	{flash.ErrProtected, regs.ConfigurationFlashStatusErrorProtected},
	{flash.ErrAddress, regs.ConfigurationFlashStatusErrorAddress},
	{flash.ErrProgram, regs.ConfigurationFlashStatusErrorProgramFailed},
	{flash.ErrErase, regs.ConfigurationFlashStatusErrorEraseFailed},
}

func flashError(operation uint32, err error) uint32 {
	if err == nil {
		return regs.ConfigurationFlashStatusErrorNone
	}
	for _, x := range flashErrors {
		if errors.Is(err, x.err) {
			return x.code
		}
	}
	if operation == regs.ConfigurationFlashCommandOperationErase {
		return regs.ConfigurationFlashStatusErrorEraseFailed
	}
	return regs.ConfigurationFlashStatusErrorProgramFailed
}

// flashCommand is a store to flash_command. What an operation does is done at once; for as long as the part takes, the
// controller is busy and takes no other command.
func (c *Card) flashCommand() {
	command := c.reg.Get(regs.ConfigurationFlashCommand)
	c.reg.Set(regs.ConfigurationFlashCommand, 0)
	if c.flashBusy() {
		return
	}
	operation, at := regs.ConfigurationFlashCommandOperation(command), c.reg.Get(regs.ConfigurationFlashAddress)
	busy, err := c.operate(operation, at, regs.ConfigurationFlashCommandLength(command))
	if errors.Is(err, flash.ErrPower) {
		c.leave()
		return
	}
	c.flashDone(flashError(operation, err), busy)
}

func (c *Card) operate(operation, at, n uint32) (time.Duration, error) {
	const window = 4 * regs.ConfigurationFlashWindowCount
	moves := operation == regs.ConfigurationFlashCommandOperationRead || operation == regs.ConfigurationFlashCommandOperationProgram
	if moves && n > window {
		return 0, flash.ErrAddress
	}
	var p [window]byte
	switch operation {
	case regs.ConfigurationFlashCommandOperationNone:
		return 0, nil
	case regs.ConfigurationFlashCommandOperationRead:
		c.windowBytes(p[:])
		busy, err := c.flash.Read(at, p[:n])
		if err == nil {
			c.setWindow(p[:])
		}
		return busy, err
	case regs.ConfigurationFlashCommandOperationProgram:
		c.windowBytes(p[:])
		return c.flash.Program(at, p[:n])
	case regs.ConfigurationFlashCommandOperationErase:
		return c.flash.Erase(at)
	case regs.ConfigurationFlashCommandOperationProtect:
		return c.flash.Protect(true)
	case regs.ConfigurationFlashCommandOperationUnprotect:
		return c.flash.Protect(false)
	}
	return 0, flash.ErrAddress // there is no such operation
}

func (c *Card) windowBytes(p []byte) {
	for i := 0; i < len(p); i += 4 {
		binary.LittleEndian.PutUint32(p[i:], c.reg.Get(regs.ConfigurationFlashWindow+regs.Reg(i)))
	}
}

func (c *Card) setWindow(p []byte) {
	for i := 0; i < len(p); i += 4 {
		c.reg.Set(regs.ConfigurationFlashWindow+regs.Reg(i), binary.LittleEndian.Uint32(p[i:]))
	}
}

// flashDone says what came of an operation that takes some time yet.
func (c *Card) flashDone(failed uint32, busy time.Duration) {
	w := regs.SetConfigurationFlashStatusError(0, failed)
	if on, _ := c.flash.Protected(); on {
		w = regs.SetConfigurationFlashStatusProtected(w, 1)
	}
	if busy > 0 {
		w = regs.SetConfigurationFlashStatusBusy(w, 1)
		c.flashUntil = c.clock() + busy
	}
	c.reg.Set(regs.ConfigurationFlashStatus, w)
}

// flashBusy says whether an operation is going on, and ends the one whose time has come. Only a host that looks at the
// controller makes it look at the clock.
func (c *Card) flashBusy() bool {
	w := c.reg.Get(regs.ConfigurationFlashStatus)
	if w&regs.ConfigurationFlashStatusBusyMask == 0 {
		return false
	}
	if c.clock() < c.flashUntil {
		return true
	}
	c.reg.Set(regs.ConfigurationFlashStatus, w&^regs.ConfigurationFlashStatusBusyMask)
	return false
}

// bootNext is a store to boot_next: the board keeps it.
func (c *Card) bootNext() {
	b, err := c.flash.Board()
	if err == nil {
		b.Next = c.reg.Get(regs.ConfigurationBootNext)
		err = c.flash.SetBoard(b)
	}
	if err != nil { // the old one stands, and the host sees it
		b, _ = c.flash.Board()
		c.reg.Set(regs.ConfigurationBootNext, b.Next)
	}
}

// bootCommand is a store to boot_command.
func (c *Card) bootCommand() {
	start := c.reg.Get(regs.ConfigurationBootCommand)&regs.ConfigurationBootCommandBootMask != 0
	c.reg.Set(regs.ConfigurationBootCommand, 0)
	if !start {
		return
	}
	slot := c.reg.Get(regs.ConfigurationBootNext)
	if slot >= uint32(len(slots)) {
		c.reg.Set(regs.ConfigurationBootStatus, regs.SetConfigurationBootStatusError(0, regs.ConfigurationBootStatusErrorSlot))
		return
	}
	c.beginBoot(slot)
}

// configurationAct makes the configuration port and the sensors act on a store.
func (c *Card) configurationAct(effect regfile.Effect) {
	switch effect {
	case regfile.Flash:
		c.flashCommand()
	case regfile.BootNext:
		c.bootNext()
	case regfile.Boot:
		c.bootCommand()
	case regfile.Icap:
		c.icapCommand()
	case regfile.Sensor:
		c.watchSensors()
	}
}
