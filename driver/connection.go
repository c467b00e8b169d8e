package driver

import (
	"context"
	"encoding/binary"
	"fmt"

	"splicenic/driver/device"
	"splicenic/regs"
)

// Page reads the page of address n, as it is between two batches.
func (c *Card) Page(ctx context.Context, n uint32) (p regs.PageEntry, err error) {
	var w [regs.PageWords]uint32
	if err := c.entry(ctx, c.Memory(regs.MemPage), n, w[:]); err != nil {
		return p, err
	}
	p.Decode(w[:])
	return p, nil
}

// Head reads a head buffer.
func (c *Card) Head(ctx context.Context, buffer uint32) ([]byte, error) {
	var w [regs.HeadBytes / 4]uint32
	if err := c.entry(ctx, c.Memory(regs.MemHead), buffer, w[:]); err != nil {
		return nil, err
	}
	b := make([]byte, 0, regs.HeadBytes)
	for _, x := range w {
		b = binary.LittleEndian.AppendUint32(b, x)
	}
	return b, nil
}

// entry reads one entry of a memory.
func (c *Card) entry(ctx context.Context, m *Memory, index uint32, w []uint32) error {
	if err := c.dataPath(); err != nil {
		return fmt.Errorf("read %s %d: %w", m.Name, index, err)
	}
	if index >= m.Entries {
		return fmt.Errorf("read %s %d of %d: %w", m.Name, index, m.Entries, device.ErrRange)
	}
	if err := c.readTable(ctx, m.Memory.At(0, index), w); err != nil {
		return fmt.Errorf("read %s %d: %w", m.Name, index, err)
	}
	return nil
}

// Connections lists the pages in use in order of n, until f returns false. f may use the card; p is valid during the
// call. The card goes on meanwhile.
func (c *Card) Connections(ctx context.Context, f func(n uint32, p *regs.PageEntry) bool) error {
	var p regs.PageEntry
	err := c.scan(ctx, c.Memory(regs.MemPage), func(n uint32, w []uint32) bool {
		if regs.PageControlValid(w[regs.PageControl]) == 0 {
			return true
		}
		p.Decode(w)
		return f(n, &p)
	})
	if err != nil {
		return fmt.Errorf("list connections: %w", err)
	}
	return nil
}
