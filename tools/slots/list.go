package slots

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"splicenic/bitstream"
	"splicenic/bitstream/program"
)

// A List is a card's slots.
type List struct {
	Card     string           `json:"card"`
	Identity program.Identity `json:"identity"`
	Boot     program.Boot     `json:"boot"`
	Floor    uint32           `json:"rollback_floor"`
	Note     string           `json:"note,omitempty"` // about the records
	Sensors  *program.Alarms  `json:"sensors,omitempty"`
	Slots    []Listed         `json:"slots"`
}

// A Listed is a slot.
type Listed struct {
	Slot   int    `json:"slot"`
	Offset uint32 `json:"offset"`
	Room   uint32 `json:"room"` // bytes
	program.SlotRecord
	Blank   bool `json:"blank"` // nothing is at its start
	Golden  bool `json:"golden"`
	Running bool `json:"running"`
	Next    bool `json:"next"`

	Name  string   `json:"name,omitempty"`  // of the image, where it runs
	Parts []string `json:"parts,omitempty"` // that the IDCODE at the start of the image stands for
}

// Look finds out what is in a card's slots. It goes by the records, and looks only at the start of a slot.
func Look(ctx context.Context, s *Session) (*List, error) {
	r, err := program.OpenRecords(ctx, s)
	if err != nil {
		return nil, explain("the slots are not listed", err)
	}
	l := &List{Card: s.Where, Floor: r.Floor(), Note: r.Note, Slots: []Listed{}}
	if l.Identity, err = s.Identity(ctx); err != nil {
		return nil, fmt.Errorf("identify the card: %w", err)
	}
	if l.Boot, err = s.Card.Boot(ctx); err != nil {
		return nil, fmt.Errorf("ask which slot runs: %w", err)
	}
	if sensor, ok := s.Card.(program.Sensor); ok {
		a, err := sensor.Alarms(ctx)
		if err != nil {
			return nil, fmt.Errorf("ask the card's sensors: %w", err)
		}
		l.Sensors = &a
	}
	g, err := s.Geometry(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the flash's geometry: %w", err)
	}
	for i, slot := range g.Slots {
		page := make([]byte, g.PageBytes)
		if err := s.Read(ctx, slot.Offset, page); err != nil {
			return nil, fmt.Errorf("read slot %d: %w", i, err)
		}
		blank := true
		for _, b := range page {
			blank = blank && b == 0xff
		}
		x := Listed{
			Slot: i, Offset: slot.Offset, Room: slot.Bytes, SlotRecord: r.Slot(i), Blank: blank,
			Golden: i == 0, Running: i == l.Boot.Running, Next: i == l.Boot.Next, Parts: parts(page),
		}
		if x.Running { // the card knows better than any record
			x.Name, x.Version, x.DataPathDigest = l.Identity.Name, l.Identity.Version, l.Identity.DataPathDigest
		}
		l.Slots = append(l.Slots, x)
	}
	return l, nil
}

// parts are what the start of an image is for: the packets of a stream name the IDCODE at once.
func parts(page []byte) []string {
	const sync, writeIDCode = 0xaa995566, 0x30018001
	i := bytes.Index(page, binary.BigEndian.AppendUint32(nil, sync))
	if i < 0 {
		return nil
	}
	for i += 4; i+8 <= len(page); i += 4 {
		if binary.BigEndian.Uint32(page[i:]) == writeIDCode {
			return bitstream.Names(binary.BigEndian.Uint32(page[i+4:]))
		}
	}
	return nil
}

// Text writes the list for a person.
func (l *List) Text(w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "SLOT\tSTATE\tNAME\tVERSION\tDATA PATH\tPART\tBYTES\tSHA-256\tROLLBACK\tFROM\t")
	for _, s := range l.Slots {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%.12s\t%s\t%s\t\n", s.marks(l.Boot.Fallback), s.says(), or(s.Name), or(s.Version), known(s.DataPathDigest, "%08x"), or(strings.Join(s.Parts, ", ")), known(s.Bytes, "%d"), or(s.SHA256), known(s.Rollback, "%d"), or(s.Source))
	}
	_ = t.Flush()
	runs := bitstream.Printable(l.Identity.Name) + " " + l.Identity.Version
	if l.Identity.Bare() {
		runs = "only the shell, no image is loaded,"
	}
	fmt.Fprintf(w, "runs: %s on board %d, IDCODE %s", runs, l.Identity.Board, part(l.Identity.IDCode))
	switch {
	case l.Boot.Fallback && l.Boot.Next != l.Boot.Running:
		fmt.Fprintf(w, ", because slot %d did not boot: %s", l.Boot.Next, l.Boot.Error)
	case l.Boot.Fallback: // what is next was changed since, so that nobody knows which slot it was
		fmt.Fprintf(w, ", because the image that was booted last did not load: %s", l.Boot.Error)
	}
	fmt.Fprintf(w, "\nrollback floor: %d\n", l.Floor)
	if a := l.Sensors; a != nil {
		alarm := "no alarm"
		if a.Temperature || a.Voltage {
			alarm = "alarm"
		}
		fmt.Fprintf(w, "sensors: %.1f °C, %s\n", a.Celsius, alarm)
	}
	if l.Note != "" {
		fmt.Fprintln(w, "note:", l.Note)
	}
}

func part(id uint32) string {
	return strings.TrimSpace(fmt.Sprintf("%08x %s", id, strings.Join(bitstream.Names(id), ", ")))
}

// or is text out of a card for a terminal.
func or(s string) string {
	if s == "" {
		return "-"
	}
	return bitstream.Printable(s)
}

func known(v uint32, format string) string {
	if v == 0 {
		return "-"
	}
	return fmt.Sprintf(format, v)
}

// marks are the slot's number and what it is to the boot logic.
func (s *Listed) marks(fallback bool) string {
	m := fmt.Sprint(s.Slot)
	for _, k := range []struct {
		is   bool
		name string
	}{{s.Golden, "golden"}, {s.Running, "running"}, {s.Running && fallback, "fallback"}, {s.Next, "next"}} {
		if k.is {
			m += " " + k.name
		}
	}
	return m
}

// says is the slot's state; of a slot without a record, what its start looks like.
func (s *Listed) says() string {
	switch {
	case s.State != program.Empty:
		return string(s.State)
	case s.Golden:
		return "factory"
	case s.Blank:
		return "empty"
	}
	return "not recorded"
}
