package slots

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"time"

	"splicenic/bitstream/program"
	"splicenic/tools/control"
)

// A Copy says what was read back.
type Copy struct {
	Slot     int    `json:"slot"` // -1: bytes of the flash, whatever they belong to
	Offset   uint32 `json:"offset"`
	Bytes    int    `json:"bytes"`
	SHA256   string `json:"sha256"`
	Recorded string `json:"recorded_sha256,omitempty"`
	Ends     string `json:"ends"` // how its end was found
}

// Text writes it for a person.
func (c *Copy) Text(w io.Writer) {
	what := fmt.Sprintf("slot %d", c.Slot)
	if c.Slot < 0 {
		what = "flash"
	}
	fmt.Fprintf(w, "%s: %d bytes from %#x, ended %s, SHA-256 %s\n", what, c.Bytes, c.Offset, c.Ends, c.SHA256)
}

// Readback reads a slot's image: as many bytes as its record says, or as its packets take; else all up to the ones at the
// end. Whether the hash is the recorded one is for the caller.
func Readback(ctx context.Context, s *Session, slot int, progress func(program.Event)) (*Copy, []byte, error) {
	what := fmt.Sprintf("slot %d is not read", slot)
	g, err := s.Geometry(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("read the flash's geometry: %w", err)
	}
	if slot >= 0 && slot < len(g.Slots) { // before minutes are spent on a slot with nothing in it
		head := make([]byte, g.SectorBytes)
		if err := s.Read(ctx, g.Slots[slot].Offset, head); err != nil {
			return nil, nil, fmt.Errorf("read slot %d: %w", slot, err)
		}
		if len(bytes.TrimRight(head, "\xff")) == 0 {
			return nil, nil, control.Refuse(what, "it holds no image: its first sector is blank", "splicectl bitstream list shows what is where; readback raw reads what lies behind it")
		}
	}
	img, err := program.Readback(ctx, s, slot, progress)
	if err != nil {
		return nil, nil, explain(what, err)
	}
	c := &Copy{Slot: slot, Offset: g.Slots[slot].Offset, Bytes: len(img.Bytes), SHA256: sum(img.Bytes), Recorded: img.Record.SHA256, Ends: img.Ends}
	if img.Record.State == program.Empty || img.Record.State == program.Writing {
		c.Recorded = ""
	}
	return c, img.Bytes, nil
}

// ReadRange reads bytes of the flash as they are.
func ReadRange(ctx context.Context, s *Session, offset, n uint32, progress func(program.Event)) (*Copy, []byte, error) {
	g, err := s.Geometry(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("read the flash's geometry: %w", err)
	}
	if n == 0 || uint64(offset)+uint64(n) > uint64(g.Bytes) {
		return nil, nil, control.Usage(fmt.Sprintf("%d bytes at %#x are not inside the flash, which has %d", n, offset, g.Bytes), "name another --offset or --bytes")
	}
	b := make([]byte, n) // of a flash that the card has
	began := time.Now()
	for at := uint32(0); at < n; {
		k := min(64<<10, n-at)
		if err := ctx.Err(); err != nil {
			return nil, nil, fmt.Errorf("read the flash, stopped after %d of %d bytes: %w", at, n, err)
		}
		if err := s.Read(ctx, offset+at, b[at:at+k]); err != nil {
			return nil, nil, fmt.Errorf("read the flash at %#x: %w", offset+at, err)
		}
		at += k
		e := program.Event{Phase: "read", Done: int64(at), Total: int64(n)}
		if took := time.Since(began).Seconds(); took > 0 {
			e.Rate = float64(at) / took
			e.ETA = float64(n-at) / e.Rate
		}
		progress(e)
	}
	return &Copy{Slot: -1, Offset: offset, Bytes: len(b), SHA256: sum(b), Ends: "where it was asked to"}, b, nil
}

// ReadRecords reads the two sectors in which the card's records stand.
func ReadRecords(ctx context.Context, s *Session, progress func(program.Event)) (*Copy, []byte, error) {
	r, err := program.OpenRecords(ctx, s)
	if err != nil {
		return nil, nil, explain("the records are not read", err)
	}
	at, n := r.Span()
	c, b, err := ReadRange(ctx, s, at, n, progress)
	if err != nil {
		return nil, nil, err
	}
	c.Ends = "where the records do"
	return c, b, nil
}

func sum(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}
