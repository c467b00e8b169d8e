package program

import (
	"bytes"
	"context"
	"fmt"
	"math/bits"

	"splicenic/driver/device"
)

// A Refused says what is not done, by which rule, and what would have it done.
type Refused struct {
	Rule string // "golden slot", "slot size", …
	What string
	Do   string
}

func (r *Refused) Error() string { return r.Rule + ": " + r.What }

func refuse(rule, what, do string) error { return &Refused{rule, what, do} }

// geometry asks a card for its flash and believes nothing that later arithmetic could stumble over.
func geometry(ctx context.Context, f Flash) (Geometry, error) {
	g, err := f.Geometry(ctx)
	if err != nil {
		return g, fmt.Errorf("read the flash's geometry: %w", err)
	}
	if g.JEDEC&0xffffff == 0xffffff && g.Bytes == 1<<32-1 {
		return g, fmt.Errorf("read the flash's geometry: all ones: %w", device.ErrDeviceLost)
	}
	odd := func(format string, args ...any) (Geometry, error) {
		return g, fmt.Errorf("the card's flash geometry makes no sense: "+format, args...)
	}
	power := func(n uint32) bool { return bits.OnesCount32(n) == 1 }
	switch {
	case !power(g.SectorBytes) || g.SectorBytes < 4096 || g.SectorBytes > 1<<24:
		return odd("sectors of %d bytes", g.SectorBytes)
	case !power(g.PageBytes) || g.PageBytes < 16 || g.PageBytes > 4096:
		return odd("pages of %d bytes", g.PageBytes)
	case g.Bytes > 1<<31 || g.Bytes < 4*g.SectorBytes:
		return odd("%d bytes", g.Bytes)
	case len(g.Slots) == 0 || len(g.Slots) > 16:
		return odd("%d slots", len(g.Slots))
	}
	for i, s := range g.Slots {
		if s.Offset%g.SectorBytes != 0 || s.Bytes%g.SectorBytes != 0 || s.Bytes == 0 || uint64(s.Offset)+uint64(s.Bytes) > uint64(g.Bytes) {
			return odd("slot %d at %#x with %d bytes, in a flash of %d bytes with sectors of %d", i, s.Offset, s.Bytes, g.Bytes, g.SectorBytes)
		}
		for j, o := range g.Slots[:i] {
			if s.Offset < o.Offset+o.Bytes && o.Offset < s.Offset+s.Bytes {
				return odd("slots %d and %d overlap", j, i)
			}
		}
	}
	return g, nil
}

// filled says whether p holds nothing but b.
func filled(p []byte, b byte) bool {
	return len(p) == 0 || p[0] == b && bytes.Equal(p[1:], p[:len(p)-1])
}

func blank(p []byte) bool { return filled(p, 0xff) }

// programBytes programs p at an address, page by page. Pages of ones need nothing.
func programBytes(ctx context.Context, f Flash, g Geometry, at uint32, p []byte) error {
	for len(p) > 0 {
		n := min(int(g.PageBytes-at%g.PageBytes), len(p))
		if !blank(p[:n]) {
			if err := f.Program(ctx, at, p[:n]); err != nil {
				return fmt.Errorf("program %d bytes at %#x: %w", n, at, err)
			}
		}
		at, p = at+uint32(n), p[n:]
	}
	return nil
}

// unprotected takes the flash's write protection off for as long as do runs.
func unprotected(ctx context.Context, f Flash, do func() error) (err error) {
	on, err := f.Protected(ctx)
	if err != nil {
		return fmt.Errorf("read the flash's write protection: %w", err)
	}
	if !on {
		return do()
	}
	if err := f.Protect(ctx, false); err != nil {
		return fmt.Errorf("take the flash's write protection off: %w", err)
	}
	defer func() {
		if e := f.Protect(context.WithoutCancel(ctx), true); e != nil && err == nil {
			err = fmt.Errorf("put the flash's write protection on: %w", e)
		}
	}()
	return do()
}

// An AliasError says that two addresses of the flash are the same bytes: address lines are not driven, the flash is in a
// mode of shorter addresses, or it is smaller than the card says.
type AliasError struct {
	Address, Same uint32
	Read          []byte
}

func (e *AliasError) Error() string {
	return fmt.Sprintf("address wrap or flash size: what lies at %#x shows at %#x too (% x)", e.Address, e.Same, e.Read[:min(16, len(e.Read))])
}

// checkAlias looks whether the bytes at an address show where an address line that is not driven, or all from one on, would
// have them. It only says something where they are not blank and are found nowhere else in a flash that works, as records are.
func checkAlias(ctx context.Context, f Flash, g Geometry, at uint32, p []byte) error {
	if blank(p) {
		return nil
	}
	got := make([]byte, len(p))
	for b := g.SectorBytes; b != 0 && b <= at; b <<= 1 {
		if at&b == 0 {
			continue
		}
		for _, other := range []uint32{at &^ b, at & (b - 1)} {
			if err := f.Read(ctx, other, got); err != nil {
				return fmt.Errorf("read the flash at %#x: %w", other, err)
			}
			if bytes.Equal(got, p) {
				return &AliasError{at, other, got}
			}
		}
	}
	return nil
}

// Alarms are what a card's sensors have to say against writing a flash or booting.
type Alarms struct {
	Temperature bool    `json:"temperature"` // over its limit
	Voltage     bool    `json:"voltage"`     // under one of its limits
	Celsius     float64 `json:"celsius"`
}

// A Sensor is a card that knows its temperature. A Card that is none is not asked.
type Sensor interface {
	Alarms(ctx context.Context) (Alarms, error)
}
