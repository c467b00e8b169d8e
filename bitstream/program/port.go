// Package program writes images into a card's flash and boots them, so that the card always has something healthy to
// boot. It sees the card through small interfaces, which the driver, the runtime's socket and the tests' models offer.
package program

import (
	"context"
	"time"
)

// Geometry is the flash behind a card and its boot slots, as the card's configuration block says it.
type Geometry struct {
	JEDEC       uint32 `json:"jedec"` // manufacturer, type, capacity
	Bytes       uint32 `json:"bytes"`
	SectorBytes uint32 `json:"sector_bytes"`
	PageBytes   uint32 `json:"page_bytes"`
	Slots       []Slot `json:"slots"` // 0 is golden
}

// A Slot is room for one image, whole sectors.
type Slot struct {
	Offset uint32 `json:"offset"`
	Bytes  uint32 `json:"bytes"`
}

// A Flash is a card's flash. Errors of it are final for the operation that asked; the card being gone is
// device.ErrDeviceLost. An operation has ended when the call returns, or ctx has.
type Flash interface {
	Geometry(ctx context.Context) (Geometry, error)
	Read(ctx context.Context, offset uint32, p []byte) error
	Erase(ctx context.Context, offset uint32) error             // the sector that starts there
	Program(ctx context.Context, offset uint32, p []byte) error // inside one page; bits go from 1 to 0 only
	Protected(ctx context.Context) (bool, error)
	Protect(ctx context.Context, on bool) error
}

// Boot is the state of a card's boot logic, and what runs.
type Boot struct {
	Running  int    `json:"running"` // slot
	Golden   bool   `json:"golden"`
	Fallback bool   `json:"fallback"` // an earlier boot failed and this image was the way back
	Next     int    `json:"next"`     // slot the next boot tries first; the card keeps it over power cycles
	Error    string `json:"error"`    // of the last boot: none, no_sync, idcode, crc, slot
}

// An Identity is what a card says about itself and its image.
type Identity struct {
	Board          uint32 `json:"board"`
	IDCode         uint32 `json:"idcode"`
	UserCode       uint32 `json:"user_code"`
	Name           string `json:"name"`
	Version        string `json:"version"` // major.minor.patch
	Serial         uint64 `json:"serial"`
	ShellDigest    uint32 `json:"shell_digest"`
	DataPathDigest uint32 `json:"data_path_digest"`
}

// A Card is a card whose image can be exchanged.
type Card interface {
	Flash
	Identity(ctx context.Context) (Identity, error)
	Boot(ctx context.Context) (Boot, error)
	SetNext(ctx context.Context, slot int) error
	// Start loads the image of the next slot. The card leaves the bus; this Card is of no use afterwards.
	Start(ctx context.Context) error
}

// An ICAP is a card's internal configuration access port. Send gives words to the configuration logic, any number, and
// fails with what the logic refused.
type ICAP interface {
	Send(ctx context.Context, words []uint32) error
}

// A Clock tells the time that progress and rates are made of.
type Clock func() time.Time
