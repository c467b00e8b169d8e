package program

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"splicenic/driver/device"
)

// sectorTime is how long one sector may take. The slowest erase of the parts in use is 4 s.
const sectorTime = 2 * time.Minute

// A MismatchError says that the flash does not hold what was written.
type MismatchError struct {
	Address   uint32 // in the flash
	Offset    int64  // in the image
	Want, Got []byte // from there on, at most 16 bytes
	Suspect   string // may be empty
}

func (e *MismatchError) Error() string {
	s := fmt.Sprintf("verify failed at offset %d (%#x, flash address %#x): expected % x, read % x", e.Offset, e.Offset, e.Address, e.Want, e.Got)
	if e.Suspect != "" {
		s += "; suspicion: " + e.Suspect
	}
	return s
}

// Run does what was planned. ctx ends it between two sectors, never inside one, and never in a way that leaves something
// to boot that is not whole; the same load, planned anew, goes on where this one ended. progress may be nil.
func (p *Plan) Run(ctx context.Context, progress func(Event)) error {
	if p.Nothing() {
		if err := p.alreadyThere(ctx); err != nil {
			return err
		}
		p.Outcome = Unchanged
		if p.Record {
			p.Outcome = Recorded
		}
		return nil
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("load, before the first erase; nothing was changed: %w", err)
	}
	err := unprotected(context.WithoutCancel(ctx), p.card, func() error { return p.run(ctx, progress) })
	if err == nil {
		p.Outcome = Written
	}
	return err
}

// alreadyThere has the records say what is in the slot, if they do not.
func (p *Plan) alreadyThere(ctx context.Context) error {
	if !p.Record {
		return nil
	}
	return unprotected(ctx, p.card, func() error { return p.records.Set(ctx, p.Slot, p.record(p.State)) })
}

// again decides what becomes of the record of a slot that holds these bytes already. Where the manifest is another one, its
// version and counter count only after the slot was tried again; another file name changes no more than the name. A bare
// image says nothing of the bytes that a signed one has not said better.
func (p *Plan) again() {
	was, now := p.records.Slot(p.Slot), p.record(Try)
	if was.SHA256 == now.SHA256 && (was.State == Try || was.State == Good) {
		if was.Signed && !now.Signed {
			p.State, p.Record = was.State, false
			return
		}
		now.State = was.State
		same := now
		if same.Source = was.Source; same != was {
			now.State = Try
		}
	}
	p.State, p.Record = now.State, now != was
}

func (p *Plan) record(s State) SlotRecord {
	return SlotRecord{State: s, Bytes: uint32(p.Bytes), SHA256: p.SHA256, Version: p.about.Version, DataPathDigest: p.about.DataPathDigest,
		Rollback: p.about.Rollback, Signed: p.about.Signed, Source: recordedName(p.about.Source)}
}

func (p *Plan) run(ctx context.Context, progress func(Event)) error {
	patient, done := context.WithTimeout(context.WithoutCancel(ctx), sectorTime)
	err := p.announce(patient)
	done()
	if err != nil {
		return err
	}
	total, written, began := p.work(p.Steps), work{}, p.now()
	for i := range p.Steps {
		s := &p.Steps[i]
		if err := ctx.Err(); err != nil {
			return p.stopped(i, err)
		}
		if s.Erase || s.Write {
			patient, done := context.WithTimeout(context.WithoutCancel(ctx), sectorTime)
			err := p.step(patient, i)
			done()
			if err != nil {
				return err
			}
		}
		p.settled = i + 1
		w := p.work(p.Steps[i : i+1])
		written.erases, written.pages, written.bytes = written.erases+w.erases, written.pages+w.pages, written.bytes+w.bytes
		if progress != nil && (s.Erase || s.Write) {
			e := Event{Phase: "write", Done: int64(written.bytes), Total: int64(total.bytes)}
			e.ETA = p.meter.predict(work{total.erases - written.erases, total.pages - written.pages, total.bytes - written.bytes}).Seconds()
			if took := p.now().Sub(began).Seconds(); took > 0 {
				e.Rate = float64(written.bytes) / took
			}
			progress(e)
		}
	}
	if p.Slot < 0 {
		return nil
	}
	patient, done = context.WithTimeout(context.WithoutCancel(ctx), sectorTime)
	defer done()
	return p.records.Set(patient, p.Slot, p.record(Try))
}

// announce writes down what is about to happen, and looks whether the flash can tell the records' address from others: if it
// cannot, it cannot tell the slots apart either, and nothing is erased.
func (p *Plan) announce(ctx context.Context) error {
	if p.Slot >= 0 {
		if err := p.records.Set(ctx, p.Slot, p.record(Writing)); err != nil {
			return err
		}
		if err := p.journal(ctx, 0); err != nil {
			return err
		}
	}
	for _, slot := range p.touched {
		if s := p.records.Slot(slot); s.State != Empty || s.Source != rawSource {
			if err := p.records.Set(ctx, slot, SlotRecord{State: Empty, Source: rawSource}); err != nil {
				return err
			}
		}
	}
	if p.records.active < 0 {
		return nil // raw bytes outside all slots, on a card without records
	}
	head := make([]byte, recordBytes)
	at := p.records.base[p.records.active]
	if err := p.read(ctx, at, head); err != nil {
		return err
	}
	return checkAlias(ctx, p.card, p.g, at, head)
}

// journal records that the steps before i are done, and which sector is written next.
func (p *Plan) journal(ctx context.Context, i int) error {
	if p.Slot < 0 {
		return nil
	}
	j := journal{next: -1}
	for k := range p.Steps {
		s := &p.Steps[k]
		if k < i && s.Write {
			j.done++
		}
		if k >= i && j.next < 0 && s.Write { // the erase of the first sector is repeated whenever something is written
			j.next = int((s.Address - p.Offset) / p.g.SectorBytes)
		}
	}
	return p.records.setJournal(ctx, p.Slot, j)
}

func (p *Plan) stopped(i int, why error) error {
	written := 0
	for _, s := range p.Steps[:i] {
		if s.Write {
			written++
		}
	}
	after := "run the same command again to finish"
	if p.Slot > 0 {
		after = fmt.Sprintf("there is no image in slot %d now, so a boot of it falls back to golden; run the same command again to go on", p.Slot)
	}
	return fmt.Errorf("stopped after %d of %d sectors; %s: %w", written, p.Write, after, why)
}

// step erases and writes a sector, reads it back, and records it.
func (p *Plan) step(ctx context.Context, i int) error {
	s := &p.Steps[i]
	want := make([]byte, p.g.SectorBytes)
	for i := range want {
		want[i] = 0xff
	}
	if s.keep {
		if err := p.read(ctx, s.Address, want); err != nil {
			return err
		}
	}
	for _, part := range s.parts {
		copy(want[part.off:], part.data)
	}
	shadows, err := p.shadows(ctx, s)
	if err != nil {
		return err
	}
	if s.Erase {
		began := p.now()
		if err := p.card.Erase(ctx, s.Address); err != nil {
			return fmt.Errorf("erase the sector at %#x: %w", s.Address, err)
		}
		p.meter.erase.add(1, p.now().Sub(began))
		if err := p.unchanged(ctx, shadows); err != nil { // before more than a sector is lost
			return err
		}
	}
	if !s.Write {
		return p.verifyBlank(ctx, s)
	}
	if err := p.program(ctx, s, want); err != nil {
		return err
	}
	if err := p.unchanged(ctx, shadows); err != nil {
		return err
	}
	checked := s.parts
	if s.keep && s.Erase {
		checked = []part{{0, want}}
	}
	for _, c := range checked {
		if err := p.verify(ctx, s.Address+c.off, c.data); err != nil {
			return err
		}
	}
	if err := p.verifyBelow(ctx, s); err != nil {
		return err
	}
	return p.journal(ctx, i+1)
}

// program writes a sector's pages; those of ones are what an erase leaves. The first sector of a slot is written from its end
// to its start, and the first page of it word by word: the sync word, without which there is no image, comes to be only when
// all behind it is there.
func (p *Plan) program(ctx context.Context, s *Step, want []byte) error {
	began, pages := p.now(), 0
	size := int(p.g.PageBytes)
	for k := range len(want) / size {
		off := k * size
		if s.ends {
			off = len(want) - size - off
		}
		if blank(want[off : off+size]) {
			continue
		}
		pages++
		if !s.ends || off != 0 {
			if err := programBytes(ctx, p.card, p.g, s.Address+uint32(off), want[off:off+size]); err != nil {
				return err
			}
			continue
		}
		for w := size - 4; w >= 0; w -= 4 {
			if err := programBytes(ctx, p.card, p.g, s.Address+uint32(w), want[w:w+4]); err != nil {
				return err
			}
		}
	}
	p.meter.program.add(pages, p.now().Sub(began))
	return nil
}

// verify reads back what was written.
func (p *Plan) verify(ctx context.Context, at uint32, want []byte) error {
	got := make([]byte, len(want))
	if err := p.read(ctx, at, got); err != nil {
		return err
	}
	if bytes.Equal(got, want) {
		return nil
	}
	if err := p.gone(ctx, got); err != nil {
		return err
	}
	e := p.mismatch(at, want, got)
	for d := uint32(1); d != 0 && d <= e.Address; d <<= 1 {
		if len(e.Got) < 8 || blank(e.Got) {
			break
		}
		if before, ok := p.expected(e.Address-d, len(e.Got)); ok && bytes.Equal(before, e.Got) {
			e.Suspect = fmt.Sprintf("address wrap or flash size: this was written %#x bytes before, at %#x", d, e.Address-d)
		}
	}
	return e
}

// mismatch is the error of bytes that differ, from the first that does.
func (p *Plan) mismatch(at uint32, want, got []byte) *MismatchError {
	for want[0] == got[0] {
		at, want, got = at+1, want[1:], got[1:]
	}
	n := min(16, len(want), len(got))
	return &MismatchError{Address: at, Offset: int64(at) - int64(p.Offset), Want: want[:n], Got: bytes.Clone(got[:n])}
}

// gone says whether ones mean that there is no card any more.
func (p *Plan) gone(ctx context.Context, got []byte) error {
	if !blank(got) {
		return nil
	}
	if _, err := geometry(ctx, p.card); errors.Is(err, device.ErrDeviceLost) {
		return err
	}
	return nil
}

func (p *Plan) verifyBlank(ctx context.Context, s *Step) error {
	got := make([]byte, p.g.SectorBytes)
	if err := p.read(ctx, s.Address, got); err != nil {
		return err
	}
	if !blank(got) {
		e := p.mismatch(s.Address, bytes.Repeat([]byte{0xff}, len(got)), got)
		e.Suspect = "the erase did not take: write protection, or a worn-out sector"
		return e
	}
	return p.gone(ctx, got)
}

// expected is what the flash has to hold at an address by now, where that is known.
func (p *Plan) expected(at uint32, n int) ([]byte, bool) {
	size := p.g.SectorBytes
	for k := min(p.settled, len(p.Steps)-1); k >= 0; k-- { // the newest word about a sector counts
		s := &p.Steps[k]
		if at < s.Address || uint64(at)+uint64(n) > uint64(s.Address)+uint64(size) {
			continue
		}
		if s.Erase && !s.Write {
			return bytes.Repeat([]byte{0xff}, n), true
		}
		off := at - s.Address
		for _, part := range s.parts {
			if off >= part.off && int(off)+n <= int(part.off)+len(part.data) {
				return part.data[off-part.off:][:n], true
			}
		}
		return nil, false
	}
	return nil, false
}

// verifyBelow looks whether writing a sector has changed one that is done, at the addresses that an address line which is
// not driven would make of this one. Reading back the sector alone does not show that.
func (p *Plan) verifyBelow(ctx context.Context, s *Step) error {
	at, page := s.firstPage(p.g.PageBytes)
	if page == nil {
		return nil
	}
	got := make([]byte, len(page))
	for b := p.g.SectorBytes; b != 0 && b <= at; b <<= 1 {
		other := at - b
		if at&b == 0 {
			continue
		}
		want, known := p.expected(other, len(page))
		if !known || bytes.Equal(want, page) {
			continue
		}
		if err := p.read(ctx, other, got); err != nil {
			return err
		}
		if !bytes.Equal(got, want) {
			e := p.mismatch(at, want, got)
			e.Suspect = fmt.Sprintf("address wrap or flash size: writing here changed %#x, which lies %#x before; the bytes are those there", other, b)
			return e
		}
	}
	return nil
}

// A shadow is a page where an address line that is not driven, or all from one on, would have a raw write go. The slots of a
// load are told apart by the records, its sectors by verifyBelow; of what lies around a raw write nothing is known but what
// it holds before.
type shadow struct {
	at, other uint32
	page      []byte
}

func (p *Plan) shadows(ctx context.Context, s *Step) (list []shadow, err error) {
	at, page := s.firstPage(p.g.PageBytes)
	if p.Slot >= 0 || page == nil {
		return nil, nil
	}
	for b := p.g.SectorBytes; b != 0 && b <= at; b <<= 1 {
		if at&b == 0 {
			continue
		}
		for _, other := range []uint32{at &^ b, at & (b - 1)} {
			x := shadow{at, other, make([]byte, len(page))}
			if err := p.read(ctx, other, x.page); err != nil {
				return nil, err
			}
			list = append(list, x)
		}
	}
	return list, nil
}

// unchanged looks whether shadows are what they were.
func (p *Plan) unchanged(ctx context.Context, list []shadow) error {
	for _, x := range list {
		got := make([]byte, len(x.page))
		if err := p.read(ctx, x.other, got); err != nil {
			return err
		}
		if bytes.Equal(got, x.page) {
			continue
		}
		if err := p.gone(ctx, got); err != nil {
			return err
		}
		e := p.mismatch(x.at, x.page, got)
		e.Suspect = fmt.Sprintf("address wrap or flash size: writing here changed %#x, which lies %#x before; the bytes are those there", x.other, x.at-x.other)
		return e
	}
	return nil
}

// firstPage is the first page of a step that is not blank, as far as it lies in one part.
func (s *Step) firstPage(size uint32) (uint32, []byte) {
	for _, part := range s.parts {
		for i := 0; i < len(part.data); {
			n := min(int(size-(part.off+uint32(i))%size), len(part.data)-i)
			if page := part.data[i : i+n]; !blank(page) {
				return s.Address + part.off + uint32(i), page
			}
			i += n
		}
	}
	return 0, nil
}
