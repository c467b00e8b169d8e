package emu

import (
	"encoding/binary"

	"splicenic/emu/cam"
	"splicenic/regs"
)

// Bytes a bulk command moves per step. Clearing is mostly giving memory back to the system.
const (
	bulkPerStep  = 256 << 10
	clearPerStep = 16 << 20
	bulkChunk    = 64 << 10
)

// commands carries out commands of the host. A bulk command goes on from step to step, its place in registers; those
// behind it wait.
func (c *Card) commands() bool {
	worked := false
	for range commandsPerStep {
		if c.bulkBusy() {
			c.bulkStep()
			c.core.Sync()
			return true
		}
		var e regs.CommandEntry
		if !c.host.NextCommand(&e) {
			break
		}
		worked = true
		c.command(&e)
	}
	if worked {
		c.transmit()
	}
	return worked
}

func (c *Card) command(e *regs.CommandEntry) {
	resets := c.resets.Load()
	done := regs.CompletionEntry{ControlType: regs.CompletionControlTypeCompletion, Sequence: e.Sequence, VerbVerb: e.ControlType, Cookie: e.Cookie}
	switch e.ControlType {
	case regs.CommandControlTypeClear, regs.CommandControlTypeFill, regs.CommandControlTypeRead, regs.CommandControlTypeWrite:
		c.reg.Add64(regs.AmuCommands, 1)
		if c.bulkBegin(e) {
			return
		}
		c.reg.Add64(regs.AmuCommandError, 1)
		done.ControlStatus = regs.CompletionControlStatusArgument
	case regs.CommandControlTypeSnapshot:
		c.reg.Add64(regs.AmuCommands, 1)
		c.snapshot(e, &done)
	default:
		c.core.Command(e, &done, c.out)
	}
	if c.resets.Load() == resets { // the one who asked is there still
		c.host.Completion(&done)
	}
}

// snapshot copies registers to host memory, all of one moment, and answers with that moment.
func (c *Card) snapshot(e *regs.CommandEntry, done *regs.CompletionEntry) {
	off, left := e.Bar2Offset, e.Length
	if off%4 != 0 || left%4 != 0 || off > regs.Bar0Bytes || left > regs.Bar0Bytes-off {
		c.reg.Add64(regs.AmuCommandError, 1)
		done.ControlStatus = regs.CompletionControlStatusArgument
		return
	}
	now := c.reg.Get64(regs.TimerNow)
	done.Result[0], done.Result[1] = uint32(now), uint32(now>>32)
	if uint32(len(c.bulk)) < left {
		c.bulk = make([]byte, left)
	}
	p := c.bulk[:left]
	for i := 0; i < len(p); i += 4 {
		binary.LittleEndian.PutUint32(p[i:], c.loadRegister(off+uint32(i)))
	}
	if left > 0 && !c.host.Write(uint64(e.IovaLo)|uint64(e.IovaHi)<<32, p) {
		c.reg.Add64(regs.AmuCommandError, 1)
		done.ControlStatus = regs.CompletionControlStatusDma
	}
}

func (c *Card) bulkBusy() bool {
	return c.reg.Get(regs.AmuStatus)&regs.AmuStatusBulkBusyMask != 0
}

// bulkBegin puts a bulk command into its registers, if it makes sense.
func (c *Card) bulkBegin(e *regs.CommandEntry) bool {
	if e.Bar2Offset%4 != 0 || e.Length%4 != 0 || e.Bar2Offset > regs.Bar2Bytes || e.Length > regs.Bar2Bytes-e.Bar2Offset {
		return false
	}
	for _, x := range []struct {
		reg   regs.Reg
		value uint32
	}{
		{regs.AmuBulkSequence, e.Sequence}, {regs.AmuBulkVerb, e.ControlType}, {regs.AmuBulkCookie, e.Cookie},
		{regs.AmuBulkOffset, e.Bar2Offset}, {regs.AmuBulkLeft, e.Length}, {regs.AmuBulkValue, e.Value},
		{regs.AmuBulkIova, e.IovaLo}, {regs.AmuBulkIova + 4, e.IovaHi},
		{regs.AmuStatus, c.reg.Get(regs.AmuStatus) | regs.AmuStatusBulkBusyMask},
	} {
		c.reg.Set(x.reg, x.value)
	}
	return true
}

// bulkStep moves one step's bytes of the bulk command going on and completes it after the last.
func (c *Card) bulkStep() {
	verb := c.reg.Get(regs.AmuBulkVerb)
	budget := uint32(bulkPerStep)
	if verb == regs.CommandControlTypeClear {
		budget = clearPerStep
	}
	for {
		off, left := c.reg.Get(regs.AmuBulkOffset), c.reg.Get(regs.AmuBulkLeft)
		if left == 0 {
			c.bulkEnd(verb, regs.CompletionControlStatusOk)
			return
		}
		n := min(left, budget)
		if verb != regs.CommandControlTypeClear {
			n = min(n, bulkChunk)
		}
		if n == 0 {
			return
		}
		iova, resets := c.reg.Get64(regs.AmuBulkIova), c.resets.Load()
		ok := c.bulkMove(verb, uint64(off), uint64(n), iova)
		if c.resets.Load() != resets { // the command is gone
			return
		}
		if !ok {
			c.bulkEnd(verb, regs.CompletionControlStatusDma)
			return
		}
		budget -= n
		c.reg.Set(regs.AmuBulkOffset, off+n)
		c.reg.Set(regs.AmuBulkLeft, left-n)
		c.reg.Set64(regs.AmuBulkIova, iova+uint64(n))
	}
}

// bulkMove moves n bytes and says whether the host's memory let it.
func (c *Card) bulkMove(verb uint32, off, n, iova uint64) bool {
	p := c.bulk[:min(n, bulkChunk)]
	switch verb {
	case regs.CommandControlTypeRead:
		c.mem.ReadAt(off, p)
		return c.host.Write(iova, p)
	case regs.CommandControlTypeWrite:
		resets := c.resets.Load()
		if !c.host.Read(iova, p) || c.resets.Load() != resets {
			return false
		}
		c.storeMemory(off, p)
		return true
	}
	before := c.camCounts(off, n)
	if verb == regs.CommandControlTypeFill {
		c.mem.Fill(off, n, c.reg.Get(regs.AmuBulkValue))
	} else {
		c.mem.Clear(off, n)
	}
	c.adjustCAMs(off, n, before)
	return true
}

func (c *Card) bulkEnd(verb, status uint32) {
	done := regs.CompletionEntry{
		ControlType: regs.CompletionControlTypeCompletion, ControlStatus: status,
		Sequence: c.reg.Get(regs.AmuBulkSequence), VerbVerb: verb, Cookie: c.reg.Get(regs.AmuBulkCookie),
	}
	if status != regs.CompletionControlStatusOk {
		c.reg.Add64(regs.AmuCommandError, 1)
	}
	for r := regs.AmuBulkSequence; r <= regs.AmuBulkCookie; r += 4 {
		c.reg.Set(r, 0)
	}
	c.reg.Set(regs.AmuStatus, c.reg.Get(regs.AmuStatus)&^regs.AmuStatusBulkBusyMask)
	c.host.Completion(&done)
}

// storeMemory is every store of the host into BAR2. A CAM's counts follow what is stored into its window.
func (c *Card) storeMemory(off uint64, p []byte) {
	n := uint64(len(p))
	before := c.camCounts(off, n)
	c.mem.WriteAt(off, p)
	c.adjustCAMs(off, n, before)
}

// camWords returns the whole CAM words of a side that a range of BAR2 touches.
func (c *Card) camWords(side int, off, n uint64) []uint32 {
	words, base := c.mem.CamClient, regs.MemCamClientOffset
	if side == regs.CamServer {
		words, base = c.mem.CamServer, regs.MemCamServerOffset
	}
	const entry = regs.CamWordWords * 4
	end := base + uint64(len(words))*4
	if off+n <= base || off >= end {
		return nil
	}
	from := (max(off, base) - base) / entry * entry
	to := (min(off+n, end) - base + entry - 1) / entry * entry
	return words[from/4 : to/4]
}

type camCount struct{ free, entries uint32 }

func (c *Card) camCounts(off, n uint64) (counts [2]camCount) {
	for i := range counts {
		counts[i].free, counts[i].entries = cam.Count(c.camWords(i, off, n))
	}
	return counts
}

// adjustCAMs brings the counts in line with what a store changed, and the data path's lookups of this step to nothing.
func (c *Card) adjustCAMs(off, n uint64, before [2]camCount) {
	after := c.camCounts(off, n)
	for i := range after {
		if c.camWords(i, off, n) != nil {
			c.cams[i].Adjust(after[i].free-before[i].free, after[i].entries-before[i].entries)
		}
	}
	c.mem.Dirty &^= dirtyCAM
}
