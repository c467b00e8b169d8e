package program

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"splicenic/bitstream"
)

// A Content is what a slot holds.
type Content struct {
	Bytes  []byte
	Record SlotRecord
	Ends   string // how the end was found, in words
}

// Readback reads a slot's image. It ends where its record says; without a record of a whole image, where its packets end; and
// where they say nothing, before the ones at the end of the slot.
func Readback(ctx context.Context, card Card, slot int, tell func(Event)) (*Content, error) {
	r, err := OpenRecords(ctx, card)
	if err != nil {
		return nil, err
	}
	if slot < 0 || slot >= len(r.g.Slots) {
		return nil, refuse("slot", fmt.Sprintf("the card has slots 0 to %d, not %d", len(r.g.Slots)-1, slot), "splicectl bitstream list shows them")
	}
	c := &Content{Record: r.Slot(slot), Ends: "at the recorded length"}
	at, n := r.g.Slots[slot].Offset, r.g.Slots[slot].Bytes
	known := c.Record.State != Empty && c.Record.State != Writing && c.Record.Bytes > 0 && c.Record.Bytes <= n
	if known {
		n = c.Record.Bytes
	}
	c.Bytes = make([]byte, n) // of a slot inside the flash
	began := time.Now()
	for off := uint32(0); off < n; {
		k := min(r.g.SectorBytes, n-off)
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("read slot %d, stopped after %d of %d bytes: %w", slot, off, n, err)
		}
		if err := card.Read(ctx, at+off, c.Bytes[off:off+k]); err != nil {
			return nil, fmt.Errorf("read the flash at %#x: %w", at+off, err)
		}
		if off += k; tell != nil {
			tell(progress("read", int64(off), int64(n), time.Since(began)))
		}
	}
	if known {
		return c, nil
	}
	trimmed := bytes.TrimRight(c.Bytes, "\xff")
	if len(trimmed) == 0 {
		return nil, refuse("blank slot", fmt.Sprintf("slot %d holds nothing", slot), "splicectl bitstream list shows what is where")
	}
	c.Bytes, c.Ends = trimmed, "before the ones at the slot's end"
	if img, err := bitstream.Read(bytes.NewReader(trimmed), bitstream.Options{}); err == nil && img.Payload.Bytes > 0 && img.Payload.Offset+img.Payload.Bytes <= int64(len(trimmed)) {
		c.Bytes, c.Ends = trimmed[:img.Payload.Offset+img.Payload.Bytes], "where its packets end"
	}
	return c, nil
}
