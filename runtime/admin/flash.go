package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"splicenic/bitstream/program"
	"splicenic/runtime/flash"
	"splicenic/runtime/view"
)

// maxFlash is how much of the flash one request reads or programs. Nothing of the runtime waits meanwhile: the flash has
// registers of its own, and the driver does one operation of it after the other.
const maxFlash = 64 << 10

// Flash is a card's flash, and what its boot logic is about to do.
type Flash struct {
	program.Geometry
	Protected bool             `json:"protected"`
	Boot      program.Boot     `json:"boot"`
	Identity  program.Identity `json:"identity"`
	Alarms    program.Alarms   `json:"alarms"` // of the card's sensors, that hold
}

// octets is an answer that is no JSON.
type octets []byte

// flashing calls f with the card's flash.
func flashing[T any](s *server, f func(c flash.Card) (T, error)) (result T, err error) {
	var c flash.Card
	err = s.src.View(func(v *view.View) error {
		c = flash.Of(v.Card)
		return v.Card.Err()
	})
	if err != nil {
		return result, err
	}
	return f(c)
}

func (s *server) flash(r *http.Request) (any, error) {
	ctx := r.Context()
	return flashing(s, func(c flash.Card) (f Flash, err error) {
		for _, get := range []func() error{
			func() (err error) { f.Geometry, err = c.Geometry(ctx); return err },
			func() (err error) { f.Protected, err = c.Protected(ctx); return err },
			func() (err error) { f.Boot, err = c.Boot(ctx); return err },
			func() (err error) { f.Identity, err = c.Identity(ctx); return err },
			func() (err error) { f.Alarms, err = c.Alarms(ctx); return err },
		} {
			if err := get(); err != nil {
				return f, err
			}
		}
		return f, nil
	})
}

// inside checks a range of the flash.
func inside(ctx context.Context, c flash.Card, offset, length uint64) error {
	g, err := c.Geometry(ctx)
	if err == nil && offset+length > uint64(g.Bytes) {
		err = fmt.Errorf("%w: %d bytes at %#x are not inside a flash of %d", errUsage, length, offset, g.Bytes)
	}
	return err
}

func (s *server) readFlash(r *http.Request) (any, error) {
	offset, err := number(r, "offset", 1<<32-1)
	if err != nil {
		return nil, err
	}
	length, err := number(r, "length", maxFlash)
	if err != nil {
		return nil, err
	}
	return flashing(s, func(c flash.Card) (octets, error) {
		if err := inside(r.Context(), c, offset, length); err != nil {
			return nil, err
		}
		p := make([]byte, length)
		return p, c.Read(r.Context(), uint32(offset), p)
	})
}

// programFlash programs the body, page by page.
func (s *server) programFlash(r *http.Request) (any, error) {
	if r.URL.Query().Get("offset") == "" {
		return nil, fmt.Errorf("%w: offset is missing", errUsage)
	}
	offset, err := number(r, "offset", 1<<32-1)
	if err != nil {
		return nil, err
	}
	p, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxFlash))
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
		return nil, fmt.Errorf("%w: it may have %d bytes", errTooLarge, large.Limit)
	} else if err != nil {
		return nil, fmt.Errorf("%w: %v", errUsage, err)
	}
	if len(p) == 0 {
		return nil, fmt.Errorf("%w: there are no bytes to program", errUsage)
	}
	return flashing(s, func(c flash.Card) (struct{}, error) {
		if err := inside(r.Context(), c, offset, uint64(len(p))); err != nil {
			return struct{}{}, err
		}
		g, err := c.Geometry(r.Context())
		if err != nil {
			return struct{}{}, err
		}
		for at, left := uint32(offset), p; len(left) > 0; {
			n := min(len(left), int(g.PageBytes-at%g.PageBytes))
			if err := c.Program(r.Context(), at, left[:n]); err != nil {
				return struct{}{}, err
			}
			at, left = at+uint32(n), left[n:]
		}
		return struct{}{}, nil
	})
}

// FlashSector names a sector by where it starts.
type FlashSector struct {
	Offset uint32 `json:"offset"`
}

func (s *server) eraseFlash(r *http.Request) (any, error) {
	var q FlashSector
	if err := whole(r, &q, "offset"); err != nil {
		return nil, err
	}
	return flashing(s, func(c flash.Card) (struct{}, error) {
		g, err := c.Geometry(r.Context())
		if err != nil {
			return struct{}{}, err
		}
		if q.Offset >= g.Bytes || q.Offset%g.SectorBytes != 0 {
			return struct{}{}, fmt.Errorf("%w: no sector starts at %#x: the flash has %d bytes, in sectors of %d", errUsage, q.Offset, g.Bytes, g.SectorBytes)
		}
		return struct{}{}, c.Erase(r.Context(), q.Offset)
	})
}

// FlashProtection says whether the flash's write protection is on.
type FlashProtection struct {
	On bool `json:"on"`
}

func (s *server) protectFlash(r *http.Request) (any, error) {
	var q FlashProtection
	if err := whole(r, &q, "on"); err != nil {
		return nil, err
	}
	return flashing(s, func(c flash.Card) (struct{}, error) { return struct{}{}, c.Protect(r.Context(), q.On) })
}

// BootSlot names a slot.
type BootSlot struct {
	Slot int `json:"slot"`
}

func (s *server) setNext(r *http.Request) (any, error) {
	var q BootSlot
	if err := whole(r, &q, "slot"); err != nil {
		return nil, err
	}
	return flashing(s, func(c flash.Card) (struct{}, error) {
		if err := isSlot(r.Context(), c, q.Slot); err != nil {
			return struct{}{}, err
		}
		return struct{}{}, c.SetNext(r.Context(), q.Slot)
	})
}

func isSlot(ctx context.Context, c flash.Card, slot int) error {
	g, err := c.Geometry(ctx)
	if err == nil && (slot < 0 || slot >= len(g.Slots)) {
		err = fmt.Errorf("%w: there is no slot %d: the card has slots 0 to %d", errUsage, slot, len(g.Slots)-1)
	}
	return err
}
