package program

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/bits"
	"slices"
	"time"

	"splicenic/bitstream"
)

// Auto is the slot that is neither golden nor running.
const Auto = -1

// Options say where an image goes and what is known of it. The zero value names the golden slot, which is refused.
type Options struct {
	Slot     int         // Auto: the one that is neither golden nor running
	Golden   bool        // the golden slot may be written
	Running  bool        // the slot whose image runs may be written
	About    About       // of the image
	Boots    bool        // the card is booted from the slot afterwards
	Now      Clock       // nil: time.Now
	Progress func(Event) // of comparing; nil: nobody is told
}

// About is what a signed container says about an image. Of others there is only Source.
type About struct {
	Version        string // major.minor.patch
	DataPathDigest uint32 // first 32 bits
	Rollback       uint32
	Signed         bool
	Source         string // name of the file
}

// An Event says what a load is at.
type Event struct {
	Phase string  `json:"phase"` // "compare", "write" or "read"
	Done  int64   `json:"done"`  // bytes
	Total int64   `json:"total"`
	Rate  float64 `json:"rate"` // bytes per second, so far
	ETA   float64 `json:"eta"`  // seconds left
}

// A Step is one sector's part of a load. With neither Erase nor Write the sector holds already what it should.
type Step struct {
	Address uint32 `json:"address"`
	Erase   bool   `json:"erase"`
	Write   bool   `json:"write"`

	parts []part
	keep  bool // what lies beside the parts is written back
	ends  bool // first sector of a slot: written from its last word to its first
}

// A part is bytes for one sector.
type part struct {
	off  uint32 // in the sector
	data []byte
}

// A Plan is what a load does, in the order in which it does it. It holds only as long as nobody else writes the flash.
type Plan struct {
	Slot    int      `json:"slot"` // -1: raw
	Offset  uint32   `json:"offset"`
	Bytes   int      `json:"bytes"`
	SHA256  string   `json:"sha256"`
	Erase   int      `json:"erase"` // sectors
	Write   int      `json:"write"`
	Skip    int      `json:"skip"`
	Seconds float64  `json:"seconds"`         // as predicted
	Resumes bool     `json:"resumes"`         // a load of the same image was cut short here
	Written int      `json:"written"`         // sectors which that one had written
	Boots   bool     `json:"boots"`           // the card leaves the bus afterwards and comes back
	Record  bool     `json:"record"`          // the slot's record changes
	State   State    `json:"state,omitempty"` // of the slot afterwards
	Outcome Ending   `json:"outcome"`
	Notes   []string `json:"notes,omitempty"`
	Steps   []Step   `json:"steps"`

	card    Card
	g       Geometry
	records *Records
	image   []byte
	about   About
	now     Clock
	meter   meter
	touched []int // slots that a raw write overlaps
	settled int   // steps that are done
}

// An Ending is what became of a plan.
type Ending string

// Endings of plans.
const (
	Planned   Ending = "planned"   // not run, or not to its end
	Written   Ending = "written"   // and each sector read back
	Recorded  Ending = "recorded"  // the flash held the bytes; the slot's record was changed
	Unchanged Ending = "unchanged" // the flash and the records said it all already
)

// Nothing says whether the flash holds already what it should.
func (p *Plan) Nothing() bool { return p.Write == 0 }

// SectorBytes is the size of the sectors that the steps are about.
func (p *Plan) SectorBytes() uint32 { return p.g.SectorBytes }

// NewPlan looks at the card, refuses what must not be done, and compares what lies in the flash with the image. It changes
// nothing.
func NewPlan(ctx context.Context, card Card, image []byte, o Options) (*Plan, error) {
	p, boot, err := begin(ctx, card, o)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(image)
	p.image, p.Bytes, p.SHA256 = image, len(image), hex.EncodeToString(sum[:])
	if p.Slot = o.Slot; o.Slot == Auto {
		if p.Slot, err = p.choose(boot); err != nil {
			return nil, err
		}
	}
	if p.Slot < 0 || p.Slot >= len(p.g.Slots) {
		return nil, refuse("slot", fmt.Sprintf("the card has slots 0 to %d, not %d", len(p.g.Slots)-1, p.Slot), "name one of them, or auto")
	}
	slot := p.g.Slots[p.Slot]
	p.Offset = slot.Offset
	if err := p.allowed(boot, o, p.Slot); err != nil {
		return nil, err
	}
	switch {
	case filled(image, 0xff), filled(image, 0):
		return nil, refuse("blank image", fmt.Sprintf("all %d bytes are %02x", len(image), append(image, 0)[0]), "name the file with the design in it")
	case len(image) > int(slot.Bytes):
		return nil, refuse("slot size", fmt.Sprintf("the image has %d bytes, slot %d has room for %d", len(image), p.Slot, slot.Bytes), "build the image with compression, or for this card")
	}
	if floor := p.records.Floor(); o.About.Signed && o.About.Rollback < floor {
		return nil, refuse("rollback", fmt.Sprintf("the image's rollback counter is %d, this card has accepted %d", o.About.Rollback, floor), "load an image with a counter of at least that")
	}
	if boot.Next == p.Slot && boot.Running != p.Slot {
		p.Notes = append(p.Notes, fmt.Sprintf("the next boot tries slot %d: until the load has ended it would fall back to golden", p.Slot))
	}
	if p.Slot == 0 {
		p.Notes = append(p.Notes, "this is the golden slot: a power cut before the end leaves the card with nothing to fall back to")
	}
	if err := p.compare(ctx, o, p.slotSteps(slot)); err != nil {
		return p, err
	}
	if p.State, p.Record = Try, true; p.Nothing() {
		p.again()
	}
	if p.Nothing() && p.Record && p.Slot == boot.Running {
		p.Notes = append(p.Notes, fmt.Sprintf("slot %d runs these bytes already; what is recorded anew counts after the next boot of it", p.Slot))
	}
	return p, nil
}

// NewRawPlan is NewPlan for bytes at addresses of the flash, as they are: nothing is known of what they are for. Sectors that
// they fill in part keep the rest of their bytes.
func NewRawPlan(ctx context.Context, card Card, segments []bitstream.Segment, o Options) (*Plan, error) {
	p, boot, err := begin(ctx, card, o)
	if err != nil {
		return nil, err
	}
	p.Slot = -1
	segments = slices.Clone(segments)
	slices.SortStableFunc(segments, func(a, b bitstream.Segment) int { return int(int64(a.Address) - int64(b.Address)) })
	start := recordsStart(p.g)
	h := sha256.New()
	for i, s := range segments {
		from, to := uint64(s.Address), uint64(s.Address)+uint64(len(s.Data))
		if to > uint64(p.g.Bytes) {
			return nil, refuse("flash size", fmt.Sprintf("%d bytes at %#x end behind the flash, which has %d", len(s.Data), from, p.g.Bytes), "name another --offset")
		}
		if from < uint64(start)+2*uint64(p.g.SectorBytes) && uint64(start) < to {
			return nil, refuse("records", fmt.Sprintf("%d bytes at %#x reach into the records of the card's slots at %#x", len(s.Data), from, start), "name another --offset")
		}
		if i > 0 {
			before := segments[i-1]
			if n := int64(before.Address) + int64(len(before.Data)) - int64(s.Address); n > 0 {
				n = min(n, int64(len(s.Data)))
				at := int64(s.Address) - int64(before.Address)
				if !bytes.Equal(before.Data[at:min(at+n, int64(len(before.Data)))], s.Data[:n]) {
					return nil, refuse("overlap", fmt.Sprintf("the file says two different things about %d bytes at %#x", n, s.Address), "build the file again")
				}
			}
		}
		for slot, g := range p.g.Slots {
			if from < uint64(g.Offset)+uint64(g.Bytes) && uint64(g.Offset) < to && !slices.Contains(p.touched, slot) {
				if err := p.allowed(boot, o, slot); err != nil {
					return nil, err
				}
				p.touched = append(p.touched, slot)
			}
		}
		p.Bytes += len(s.Data)
		h.Write(s.Data)
	}
	if p.Bytes == 0 {
		return nil, refuse("blank image", "there is nothing to write", "name a file with bytes in it")
	}
	p.Offset, p.SHA256 = segments[0].Address, hex.EncodeToString(h.Sum(nil))
	return p, p.compare(ctx, o, rawSteps(segments, p.g.SectorBytes))
}

// begin asks the card everything that the rules are about.
func begin(ctx context.Context, card Card, o Options) (*Plan, Boot, error) {
	p := &Plan{card: card, about: o.About, Boots: o.Boots, now: o.Now, Outcome: Planned}
	if p.now == nil {
		p.now = time.Now
	}
	var err error
	if p.records, err = OpenRecords(ctx, card); err != nil {
		return nil, Boot{}, err
	}
	p.g = p.records.g
	if p.records.Note != "" {
		p.Notes = append(p.Notes, p.records.Note)
	}
	boot, err := card.Boot(ctx)
	if err != nil {
		return nil, boot, fmt.Errorf("ask which slot runs: %w", err)
	}
	return p, boot, CheckAlarms(ctx, card, "a write")
}

// CheckAlarms refuses what may not last on a card that is too hot, or has too little voltage: a write or a boot.
func CheckAlarms(ctx context.Context, card Card, what string) error {
	s, ok := card.(Sensor)
	if !ok {
		return nil
	}
	a, err := s.Alarms(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("ask the card's sensors: %w", err)
	case a.Temperature:
		return refuse("temperature", fmt.Sprintf("the card's temperature alarm is set, at %.1f °C", a.Celsius), "let it cool down; splicectl bitstream list shows the alarm")
	case a.Voltage:
		return refuse("voltage", fmt.Sprintf("an alarm for the card's supply voltage is set: %s may not last", what), "look after the power supply; splicectl bitstream list shows the alarm")
	}
	return nil
}

// allowed holds the rules about slots.
func (p *Plan) allowed(boot Boot, o Options, slot int) error {
	if slot == 0 && !o.Golden {
		return refuse("golden slot", "slot 0 holds the image that the card falls back to", "name another slot, or say --force-golden")
	}
	if slot == boot.Running && !o.Running {
		return refuse("running slot", fmt.Sprintf("the card runs the image of slot %d", slot), "name another slot, or say --force-running")
	}
	return nil
}

// choose takes the slot that this image was begun in or lies in already, else the one whose image is missed least: an image
// that ran well goes last. Of equal ones it takes one that the next boot does not try.
func (p *Plan) choose(boot Boot) (int, error) {
	best, rank := -1, -1
	for slot := range p.g.Slots {
		if slot == 0 || slot == boot.Running {
			continue
		}
		was := p.records.Slot(slot)
		r := 2 * slices.Index([]State{Good, Try, Bad, Writing, Empty}, was.State)
		if was.SHA256 == p.SHA256 {
			r = 100
		} else if slot != boot.Next {
			r++
		}
		if r > rank {
			best, rank = slot, r
		}
	}
	if best < 0 {
		return 0, refuse("slot", "the card has no slot that is neither golden nor running", "name a slot, and --force-golden or --force-running with it")
	}
	return best, nil
}

// slotSteps cuts the image into sectors.
func (p *Plan) slotSteps(slot Slot) []Step {
	var steps []Step
	size := int(p.g.SectorBytes)
	for off := 0; off < len(p.image); off += size {
		end := min(off+size, len(p.image))
		steps = append(steps, Step{Address: slot.Offset + uint32(off), ends: off == 0, parts: []part{{0, p.image[off:end:end]}}})
	}
	return steps
}

// rawSteps cuts segments, which are in order of their addresses, into sectors.
func rawSteps(segments []bitstream.Segment, size uint32) []Step {
	var steps []Step
	for _, s := range segments {
		for at, data := s.Address, s.Data; len(data) > 0; {
			base := at &^ (size - 1)
			n := min(int(base+size-at), len(data))
			if len(steps) == 0 || steps[len(steps)-1].Address != base {
				steps = append(steps, Step{Address: base, keep: true})
			}
			last := &steps[len(steps)-1]
			last.parts = append(last.parts, part{at - base, data[:n:n]})
			at, data = at+uint32(n), data[n:]
		}
	}
	return steps
}

// compare reads the sectors and decides what becomes of each. Where one of a slot's differs, the first is erased before all
// others and written after them, so that there is no image in the slot in between. What an earlier load was cut short in is
// never believed: neither that a sector is written because it reads so, nor that it is erased because it reads blank.
func (p *Plan) compare(ctx context.Context, o Options, steps []Step) error {
	dirty, interrupted := uint32(none32), false // the sector in which an earlier load was cut short
	for _, slot := range p.touched {
		interrupted = interrupted || unfinished(p.records.Slot(slot))
	}
	if p.Slot >= 0 {
		was, j := p.records.Slot(p.Slot), p.records.journals[p.Slot]
		if interrupted = unfinished(was); interrupted {
			p.Resumes, p.Written = was.SHA256 == p.SHA256, j.done
			if !p.Resumes {
				p.Written = 0
			}
		}
		if j.next >= 0 {
			dirty = p.Offset + uint32(j.next)*p.g.SectorBytes
		}
	}
	sector := make([]byte, p.g.SectorBytes)
	total := int64(len(steps)) * int64(p.g.SectorBytes)
	began := p.now()
	for i := range steps {
		s := &steps[i]
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("compare the flash, stopped at %#x; nothing was changed: %w", s.Address, err)
		}
		if err := p.read(ctx, s.Address, sector); err != nil {
			return err
		}
		differs := interrupted && s.Address == dirty
		for _, part := range s.parts {
			differs = differs || !bytes.Equal(sector[part.off:int(part.off)+len(part.data)], part.data)
		}
		s.Write, s.Erase = differs, differs && (interrupted || !blank(sector))
		if o.Progress != nil {
			o.Progress(progress("compare", int64(i+1)*int64(p.g.SectorBytes), total, p.now().Sub(began)))
		}
	}
	if p.Slot >= 0 && slices.ContainsFunc(steps, func(s Step) bool { return s.Write }) {
		first := steps[0]
		erase := first
		first.Write, first.Erase = true, false
		erase.Write, erase.Erase = false, true
		ordered := []Step{erase}
		again := slices.IndexFunc(steps, func(s Step) bool { return interrupted && s.Address == dirty })
		if again > 0 { // before the others: else another cut would have it forgotten
			ordered = append(ordered, steps[again])
			steps = slices.Delete(steps, again, again+1)
		}
		steps = append(append(ordered, steps[1:]...), first)
	}
	p.Steps = steps
	for _, s := range steps {
		if s.Erase {
			p.Erase++
		}
		if s.Write {
			p.Write++
		} else if !s.Erase {
			p.Skip++
		}
	}
	p.Seconds = p.meter.predict(p.work(steps)).Seconds()
	return nil
}

// unfinished says whether the writes to a slot may have been cut short: of a load that has no end, or raw ones, whose end
// nobody records.
func unfinished(s SlotRecord) bool {
	return s.State == Writing || s.State == Empty && s.Source == rawSource
}

// rawSource is recorded of a slot that raw bytes went to.
const rawSource = "raw"

func progress(phase string, done, total int64, took time.Duration) Event {
	e := Event{Phase: phase, Done: done, Total: total}
	if s := took.Seconds(); s > 0 && done > 0 {
		e.Rate = float64(done) / s
		e.ETA = float64(total-done) / e.Rate
	}
	return e
}

// read reads and measures.
func (p *Plan) read(ctx context.Context, at uint32, b []byte) error {
	began := p.now()
	if err := p.card.Read(ctx, at, b); err != nil {
		return fmt.Errorf("read the flash at %#x: %w", at, err)
	}
	p.meter.read.add(len(b), p.now().Sub(began))
	return nil
}

// work is what steps cost, in units of the meter.
type work struct{ erases, pages, bytes int }

func (p *Plan) work(steps []Step) (w work) {
	for _, s := range steps {
		if s.Erase {
			w.erases++
		}
		if s.Write {
			for _, part := range s.parts {
				w.pages += (len(part.data) + int(p.g.PageBytes) - 1) / int(p.g.PageBytes)
				w.bytes += len(part.data)
			}
		}
	}
	return w
}

// A meter predicts from what it has measured, and from what such parts usually take where that is nothing yet.
type meter struct{ erase, program, read rate }

type rate struct {
	n    int
	took time.Duration
}

func (r *rate) add(n int, took time.Duration) { r.n, r.took = r.n+n, r.took+took }

func (r *rate) each(usual time.Duration, n int) time.Duration {
	if r.n == 0 || r.took <= 0 {
		return usual * time.Duration(n)
	}
	hi, lo := bits.Mul64(uint64(r.took), uint64(n))
	if hi >= uint64(r.n) {
		return 1<<63 - 1
	}
	q, _ := bits.Div64(hi, lo, uint64(r.n))
	return time.Duration(min(q, 1<<62))
}

// Of serial flashes with sectors of 64 KiB, as their data sheets say, and a register access of 1 µs for four bytes.
const (
	usualErase   = 150 * time.Millisecond
	usualProgram = 200 * time.Microsecond
	usualRead    = 250 * time.Nanosecond
)

func (m *meter) predict(w work) time.Duration {
	return m.erase.each(usualErase, w.erases) + m.program.each(usualProgram, w.pages) + m.read.each(usualRead, w.bytes)
}
