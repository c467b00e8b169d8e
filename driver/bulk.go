package driver

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"splicenic/driver/device"
	"splicenic/regs"
)

// stagingBytes is the size of the buffer that bulk data passes through, and so the largest bulk command: all 294,912
// pages are 72 of them.
const stagingBytes = 1 << 20

// smallWords is how many words are stored one by one rather than by command: a command is a descriptor written, two
// doorbells, two descriptors and the data by DMA, and an interrupt.
const smallWords = 16

// checkTable checks a range of BAR2.
func checkTable(off, n uint64) error {
	if off%4 != 0 || n%4 != 0 || off > regs.Bar2Bytes || n > regs.Bar2Bytes-off {
		return fmt.Errorf("%d bytes at %#x: %w", n, off, device.ErrRange)
	}
	return nil
}

// WriteTable writes words to BAR2 from offset off on. A few words are stored one after another, in order; more go by bulk
// command. On return a bulk write is done; stores are posted, and precede any later command.
func (c *Card) WriteTable(ctx context.Context, off uint64, words []uint32) error {
	if err := c.writeTable(ctx, off, words); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	return nil
}

func (c *Card) writeTable(ctx context.Context, off uint64, words []uint32) error {
	if err := checkTable(off, 4*uint64(len(words))); err != nil {
		return err
	}
	if err := c.acquire(ctx); err != nil {
		return err
	}
	defer c.release()
	if len(words) <= smallWords {
		if err := c.dataPath(); err != nil {
			return err
		}
		c.bars.storeWords(device.Bar2, off, words)
		return c.dev.Err()
	}
	buf := make([]byte, 0, min(4*len(words), stagingBytes))
	for len(words) > 0 {
		buf = buf[:0]
		n := min(len(words), stagingBytes/4)
		for _, w := range words[:n] {
			buf = binary.LittleEndian.AppendUint32(buf, w)
		}
		cmd := regs.CommandEntry{ControlType: regs.CommandControlTypeWrite, Bar2Offset: uint32(off)}
		if _, err := c.command(ctx, &cmd, buf); err != nil {
			return err
		}
		words = words[n:]
		off += uint64(len(buf))
	}
	return nil
}

// ReadTable reads words from BAR2 by bulk command. Each command sees the card between two batches; more than 262,144
// words take several.
func (c *Card) ReadTable(ctx context.Context, off uint64, words []uint32) error {
	if err := c.readTable(ctx, off, words); err != nil {
		return fmt.Errorf("read table: %w", err)
	}
	return nil
}

func (c *Card) readTable(ctx context.Context, off uint64, words []uint32) error {
	if err := checkTable(off, 4*uint64(len(words))); err != nil {
		return err
	}
	if err := c.acquire(ctx); err != nil {
		return err
	}
	defer c.release()
	for len(words) > 0 {
		n := min(len(words), stagingBytes/4)
		cmd := regs.CommandEntry{ControlType: regs.CommandControlTypeRead, Bar2Offset: uint32(off), Length: uint32(4 * n)}
		if _, err := c.fetch(ctx, &cmd, words[:n]); err != nil {
			return err
		}
		words = words[n:]
		off += 4 * uint64(n)
	}
	return nil
}

// fetch gives a command that writes to the staging buffer and copies what came.
func (c *Card) fetch(ctx context.Context, cmd *regs.CommandEntry, words []uint32) (regs.CompletionEntry, error) {
	if err := c.dataPath(); err != nil {
		return regs.CompletionEntry{}, err
	}
	cmd.IovaLo, cmd.IovaHi = uint32(c.staging.IOVA), uint32(c.staging.IOVA>>32)
	done, err := c.command(ctx, cmd, nil)
	if err != nil {
		return done, err
	}
	b := c.staging.Bytes
	for i := range words {
		words[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	return done, nil
}

// Clear zeroes n bytes of BAR2 from off on.
func (c *Card) Clear(ctx context.Context, off, n uint64) error {
	return c.erase(ctx, regs.CommandEntry{ControlType: regs.CommandControlTypeClear}, off, n)
}

// Fill sets all words of n bytes of BAR2 from off on to v.
func (c *Card) Fill(ctx context.Context, off, n uint64, v uint32) error {
	return c.erase(ctx, regs.CommandEntry{ControlType: regs.CommandControlTypeFill, Value: v}, off, n)
}

func (c *Card) erase(ctx context.Context, cmd regs.CommandEntry, off, n uint64) error {
	if err := checkTable(off, n); err != nil {
		return fmt.Errorf("%s table: %w", commandName("type", cmd.ControlType), err)
	}
	cmd.Bar2Offset, cmd.Length = uint32(off), uint32(n)
	return c.do(ctx, &cmd, nil)
}

// Snapshot copies registers from off on into words, all at one time, which it returns: that since the card's reset.
func (c *Card) Snapshot(ctx context.Context, off regs.Reg, words []uint32) (time.Duration, error) {
	n := uint64(len(words)) * 4
	if off%4 != 0 || n > stagingBytes || uint64(off)+n > regs.Bar0Bytes {
		return 0, fmt.Errorf("snapshot of %d bytes at %#x: %w", n, uint32(off), device.ErrRange)
	}
	if err := c.acquire(ctx); err != nil {
		return 0, fmt.Errorf("snapshot: %w", err)
	}
	defer c.release()
	cmd := regs.CommandEntry{ControlType: regs.CommandControlTypeSnapshot, Bar2Offset: uint32(off), Length: uint32(n)}
	done, err := c.fetch(ctx, &cmd, words)
	if err != nil {
		return 0, err
	}
	return time.Duration(uint64(done.Result[0])|uint64(done.Result[1])<<32) * time.Microsecond, nil
}

// Bank returns the bank in force and the generation of its tables.
func (c *Card) Bank() (bank, generation uint32) {
	w := c.Load(regs.TableBank)
	return regs.TableBankBank(w), regs.TableBankGeneration(w)
}

// SwitchBank puts a bank in force with one store.
func (c *Card) SwitchBank(bank, generation uint32) error {
	if err := c.dataPath(); err != nil {
		return fmt.Errorf("switch bank: %w", err)
	}
	if bank > 1 || generation > 1<<16-1 {
		return fmt.Errorf("switch to bank %d, generation %d: %w", bank, generation, device.ErrRange)
	}
	c.Store(regs.TableBank, regs.SetTableBankGeneration(regs.SetTableBankBank(0, bank), generation))
	return c.dev.Err()
}

// BankInUse returns how many lookups are in progress in a bank.
func (c *Card) BankInUse(bank uint32) uint32 {
	return c.Load(regs.TableInUse.At(int(bank&1), regs.TableInUseStride))
}

// WaitBankIdle waits until no lookup is in progress in a bank, so that it may be written.
func (c *Card) WaitBankIdle(ctx context.Context, bank uint32) error {
	if err := c.dataPath(); err != nil {
		return fmt.Errorf("wait for bank: %w", err)
	}
	if err := c.poll(ctx, func() bool { return c.BankInUse(bank) == 0 }); err != nil {
		return fmt.Errorf("wait for bank %d to fall idle: %w", bank, err)
	}
	return nil
}
