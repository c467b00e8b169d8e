package flash

import (
	"errors"
	"fmt"
	"time"
)

// A Part says which flash it is.
type Part struct {
	JEDEC       uint32 // manufacturer, type, capacity
	Bytes       uint32
	SectorBytes uint32 // smallest erasable unit
	PageBytes   uint32 // largest unit of one program operation
	Times       Times
}

// Times are typical ones.
type Times struct {
	Erase   time.Duration // of a sector
	Program time.Duration // of a page, however little of it
	Read    time.Duration // of a page
}

// MT25QL512 is the flash of the emulated card: 64 MiB, 64 KiB sectors. A page comes over four lines at 66 MHz.
var MT25QL512 = Part{
	JEDEC: 0x20ba20, Bytes: 64 << 20, SectorBytes: 64 << 10, PageBytes: 256,
	Times: Times{Erase: 150 * time.Millisecond, Program: 120 * time.Microsecond, Read: 8 * time.Microsecond},
}

// Why an operation failed.
var (
	ErrProtected = errors.New("write protection is on")
	ErrAddress   = errors.New("address or length out of range")
	ErrProgram   = errors.New("program failed")
	ErrErase     = errors.New("erase failed")
	ErrPower     = errors.New("no power")
)

// An Operation is what a flash does.
type Operation uint8

// Operations.
const (
	Read Operation = iota
	Program
	Erase
	Protect // on or off
	operations
)

func (o Operation) String() string {
	return [...]string{"read", "program", "erase", "protect"}[o%operations]
}

// Config describes a flash.
type Config struct {
	Part  Part    // zero: MT25QL512
	Scale float64 // of the part's times; zero: 1
	Store Store   // nil: memory, all blank
}

// Counts are what a flash has done.
type Counts struct {
	Operations [operations]uint64 // by Operation, those that failed too
	Erases     []uint32           // by sector: what wears the part out
}

// Flash is a flash. New makes it.
type Flash struct {
	part   Part
	scale  float64
	store  Store
	counts Counts
	page   []byte
	faults
}

// New makes a flash. The store is the flash's until Close.
func New(cfg Config) (*Flash, error) {
	p := cfg.Part
	if p == (Part{}) {
		p = MT25QL512
	}
	if p.PageBytes == 0 || p.SectorBytes == 0 || p.SectorBytes%p.PageBytes != 0 || p.Bytes == 0 || p.Bytes%p.SectorBytes != 0 {
		return nil, fmt.Errorf("make flash: %d bytes in sectors of %d and pages of %d", p.Bytes, p.SectorBytes, p.PageBytes)
	}
	if cfg.Scale == 0 {
		cfg.Scale = 1
	}
	if cfg.Store == nil {
		cfg.Store = NewMemory(p, nil)
	}
	return &Flash{
		part: p, scale: cfg.Scale, store: cfg.Store, page: make([]byte, p.PageBytes),
		counts: Counts{Erases: make([]uint32, p.Bytes/p.SectorBytes)},
	}, nil
}

// Close lets the store go.
func (f *Flash) Close() error { return f.store.Close() }

// Part says which flash it is.
func (f *Flash) Part() Part { return f.part }

// Counts returns what the flash has done so far.
func (f *Flash) Counts() Counts {
	c := f.counts
	c.Erases = append([]uint32{}, c.Erases...)
	return c
}

// Board returns what the board keeps beside the flash.
func (f *Flash) Board() (Board, error) { return f.store.Board() }

// SetBoard keeps it over power cycles.
func (f *Flash) SetBoard(b Board) error {
	if f.dark {
		return ErrPower
	}
	return f.store.SetBoard(b)
}

// scaled is how long the part is busy.
func (f *Flash) scaled(d time.Duration) time.Duration { return time.Duration(float64(d) * f.scale) }

// inside refuses what the part has no cells for.
func (f *Flash) inside(off uint32, n int) error {
	if n <= 0 || off >= f.part.Bytes || uint64(n) > uint64(f.part.Bytes-off) {
		return ErrAddress
	}
	return nil
}

// Read reads what lies at an address, as far as p goes.
func (f *Flash) Read(off uint32, p []byte) (busy time.Duration, err error) {
	if err := f.begin(Read, off); err != nil {
		return 0, err
	}
	if err := f.inside(off, len(p)); err != nil {
		return 0, err
	}
	pages := (len(p) + int(f.part.PageBytes) - 1) / int(f.part.PageBytes)
	return f.scaled(time.Duration(pages) * f.part.Times.Read), f.load(off, p)
}

// load reads cells. Where address lines are missing it does so page by page, for the addresses are no run then.
func (f *Flash) load(off uint32, p []byte) error {
	if f.wrap == 0 {
		return f.store.ReadAt(p, off)
	}
	for len(p) > 0 {
		n := min(int(f.part.PageBytes-off%f.part.PageBytes), len(p))
		if err := f.store.ReadAt(p[:n], off&^f.wrap); err != nil {
			return err
		}
		p, off = p[n:], off+uint32(n)
	}
	return nil
}

// Program takes bits from 1 to 0, at most a page of them. What would run past the end of the page goes on at its start,
// as parts do it.
func (f *Flash) Program(off uint32, p []byte) (busy time.Duration, err error) {
	if err := f.begin(Program, off); err != nil {
		return 0, err
	}
	if len(p) > int(f.part.PageBytes) || f.inside(off, 1) != nil || len(p) == 0 {
		return 0, ErrAddress
	}
	if on, err := f.Protected(); on || err != nil {
		return 0, errors.Join(err, ErrProtected)
	}
	busy = f.scaled(f.part.Times.Program)
	at := off &^ f.wrap
	if f.bad[at/f.part.SectorBytes] {
		return busy, ErrProgram
	}
	cut := f.cutting(Program, off)
	if cut {
		p = p[:len(p)/2]
	}
	start := at - at%f.part.PageBytes
	if err := f.store.ReadAt(f.page, start); err != nil {
		return busy, err
	}
	for i, b := range p {
		f.page[(at+uint32(i))%f.part.PageBytes] &= b
	}
	if err := f.store.WriteAt(f.page, start); err != nil {
		return busy, err
	}
	if cut {
		return 0, ErrPower
	}
	return busy, nil
}

// Erase sets all bits of the sector that an address lies in.
func (f *Flash) Erase(off uint32) (busy time.Duration, err error) {
	if err := f.begin(Erase, off); err != nil {
		return 0, err
	}
	if err := f.inside(off, 1); err != nil {
		return 0, err
	}
	if on, err := f.Protected(); on || err != nil {
		return 0, errors.Join(err, ErrProtected)
	}
	busy = f.scaled(f.part.Times.Erase)
	at := off &^ f.wrap
	sector := at / f.part.SectorBytes
	f.counts.Erases[sector]++
	if f.bad[sector] {
		return busy, ErrErase
	}
	if f.cutting(Erase, off) {
		return 0, errors.Join(f.halfErased(sector*f.part.SectorBytes), ErrPower)
	}
	return busy, f.store.Blank(sector * f.part.SectorBytes)
}

// halfErased leaves a sector as an erase that lost its power does: blank up to some page, then one whose bits are on
// their way, the rest as it was.
func (f *Flash) halfErased(start uint32) error {
	sector := make([]byte, f.part.SectorBytes)
	if err := f.store.ReadAt(sector, start); err != nil {
		return err
	}
	half := int(f.part.SectorBytes/f.part.PageBytes/2) * int(f.part.PageBytes)
	for i := range sector[:half] {
		sector[i] = 0xff
	}
	for i := half; i < half+int(f.part.PageBytes); i++ {
		sector[i] |= 0xa5
	}
	return f.store.WriteAt(sector, start)
}

// Protected says whether write protection is on.
func (f *Flash) Protected() (bool, error) {
	b, err := f.store.Board()
	return b.Protected, err
}

// Protect turns write protection on or off. The part keeps it over power cycles.
func (f *Flash) Protect(on bool) (busy time.Duration, err error) {
	if err := f.begin(Protect, 0); err != nil {
		return 0, err
	}
	b, err := f.store.Board()
	if err != nil || b.Protected == on {
		return 0, err
	}
	if f.cutting(Protect, 0) { // the old value stands
		return 0, ErrPower
	}
	b.Protected = on
	return f.scaled(f.part.Times.Program), f.store.SetBoard(b)
}

// begin counts an operation and refuses it without power.
func (f *Flash) begin(op Operation, off uint32) error {
	if f.dark {
		return ErrPower
	}
	f.counts.Operations[op]++
	return nil
}
