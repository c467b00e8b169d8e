package driver

import (
	"context"
	"fmt"
	"time"

	"splicenic/driver/device"
	"splicenic/regs"
)

// A Counter is a counter register as of a snapshot.
type Counter struct {
	Name  string // dotted: "port.client.rx_frames"
	Value uint64
	Time  time.Duration // since the card's reset
}

// Counters takes a snapshot of every block's counters, one block instance after another. They come in the order of the
// map.
func (c *Card) Counters(ctx context.Context) ([]Counter, error) {
	var cs []Counter
	for i := range regs.Blocks {
		b := &regs.Blocks[i]
		for instance := range b.Instances {
			if lo, hi := counterSpan(b); lo == hi {
				break
			}
			more, err := c.BlockCounters(ctx, b, instance)
			if err != nil {
				return nil, err
			}
			cs = append(cs, more...)
		}
	}
	return cs, nil
}

// BlockCounters takes a snapshot of the counters of one instance of a block; all have the same time.
func (c *Card) BlockCounters(ctx context.Context, b *regs.BlockInfo, instance int) ([]Counter, error) {
	lo, hi := counterSpan(b)
	if instance < 0 || instance >= len(b.Instances) || lo == hi {
		return nil, fmt.Errorf("read counters of %s %d: %w", b.Name, instance, device.ErrRange)
	}
	words := make([]uint32, (hi-lo)/4)
	now, err := c.Snapshot(ctx, regs.Reg(b.Offset+uint32(instance)*b.Stride+lo), words)
	if err != nil {
		return nil, fmt.Errorf("read counters of %s: %w", b.Instances[instance], err)
	}
	var cs []Counter
	for i := range b.Registers {
		r := &b.Registers[i]
		if r.Class != regs.ClassCounter {
			continue
		}
		for e := range int(r.Count) {
			at := (r.Offset + uint32(e)*r.Stride - lo) / 4
			l := regs.Location{Block: b, Instance: instance, Register: r, Element: e}
			k := Counter{Name: l.Name(), Value: uint64(words[at]), Time: now}
			if r.Wide {
				k.Value |= uint64(words[at+1]) << 32
			}
			cs = append(cs, k)
		}
	}
	return cs, nil
}

// counterSpan returns the bytes of an instance that its counters lie in.
func counterSpan(b *regs.BlockInfo) (lo, hi uint32) {
	lo = b.Stride
	for i := range b.Registers {
		if r := &b.Registers[i]; r.Class == regs.ClassCounter {
			lo = min(lo, r.Offset)
			hi = max(hi, r.Offset+(r.Count-1)*r.Stride+r.Bytes())
		}
	}
	return min(lo, hi), hi
}
