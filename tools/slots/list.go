package slots

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"text/tabwriter"

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
}

// Look finds out what is in a card's slots. It goes by the records, and looks only at the start of a slot.
func Look(ctx context.Context, s *Session) (*List, error) {
	r, err := program.OpenRecords(ctx, s)
	if err != nil {
		return nil, explain("this", err)
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
		l.Slots = append(l.Slots, Listed{
			Slot: i, Offset: slot.Offset, Room: slot.Bytes, SlotRecord: r.Slot(i), Blank: blank,
			Golden: i == 0, Running: i == l.Boot.Running, Next: i == l.Boot.Next,
		})
	}
	return l, nil
}

// Text writes the list for a person.
func (l *List) Text(w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "SLOT\tSTATE\tVERSION\tDATA PATH\tBYTES\tSHA-256\tROLLBACK\tFROM\t")
	for _, s := range l.Slots {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%.12s\t%s\t%s\t\n", s.marks(l.Boot.Fallback), s.says(), or(s.Version), known(s.DataPathDigest, "%08x"), known(s.Bytes, "%d"), or(s.SHA256), known(s.Rollback, "%d"), or(s.Source))
	}
	_ = t.Flush()
	fmt.Fprintf(w, "runs: %s %s", l.Identity.Name, l.Identity.Version)
	if l.Boot.Fallback {
		fmt.Fprintf(w, ", because slot %d did not boot: %s", l.Boot.Next, l.Boot.Error)
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

func or(s string) string {
	if s == "" {
		return "-"
	}
	return s
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

// A Copy is a slot's image as it was read back.
type Copy struct {
	Slot     int    `json:"slot"`
	Bytes    int    `json:"bytes"`
	SHA256   string `json:"sha256"`
	Recorded string `json:"recorded_sha256,omitempty"`
	Ends     string `json:"ends"` // how its end was found
}

// Readback reads a slot's image: as many bytes as its record says, or as its packets take; else all up to the ones at the
// end. It is an error, after all was written, if the hash is not the recorded one.
func Readback(ctx context.Context, s *Session, slot int, progress func(program.Event)) (*Copy, []byte, error) {
	img, err := program.Readback(ctx, s, slot, progress)
	if err != nil {
		return nil, nil, explain("this", err)
	}
	sum := sha256.Sum256(img.Bytes)
	c := &Copy{Slot: slot, Bytes: len(img.Bytes), SHA256: hex.EncodeToString(sum[:]), Recorded: img.Record.SHA256, Ends: img.Ends}
	if img.Record.State == program.Empty || img.Record.State == program.Writing {
		c.Recorded = ""
	}
	return c, img.Bytes, nil
}
