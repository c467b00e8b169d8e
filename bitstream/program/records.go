package program

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strconv"
	"strings"
)

// A State is what is known of a slot.
type State string

// States of a slot.
const (
	Empty   State = "empty"   // no load was recorded
	Writing State = "writing" // a load began and has not ended
	Try     State = "try"     // a whole image that has not run yet
	Good    State = "good"    // it ran and passed
	Bad     State = "bad"     // it ran and did not
)

var states = [...]State{Empty, Writing, Try, Good, Bad}

// A SlotRecord is what the card's flash remembers of a slot.
type SlotRecord struct {
	State          State  `json:"state"`
	Bytes          uint32 `json:"bytes"`            // of the image
	SHA256         string `json:"sha256"`           // of the image's bytes, hexadecimal
	Version        string `json:"version"`          // major.minor.patch; empty: unknown
	DataPathDigest uint32 `json:"data_path_digest"` // its first 32 bits; 0: unknown
	Rollback       uint32 `json:"rollback"`
	Signed         bool   `json:"signed"`
	Source         string `json:"source"` // of the file, cut to 56 bytes
}

// A journal is how far the load of a slot has come.
type journal struct {
	done int // sectors written
	next int // the sector that is being written, -1 for none: what a power cut leaves there may read well and not last
}

// Records are a log in the two sectors behind the last slot. One sector is in force: the one with the higher sequence number
// in its first record. When it is full, what still counts is written into the other one, and that one's first record last,
// so that a power cut leaves either the old log or the new one.
//
//	byte  0      kind: H header, S slot, N name, J journal, F floor
//	      1      slot
//	      2      state of a slot
//	      3      layout of the record, 1
//	      4..59  H: sequence 4
//	             S: bytes 4, version 8 (as the card's image_version), digest 12, rollback 16, flags 20, SHA-256 28..59
//	             N: text, ended by zeros
//	             J: sectors done 4, sector that follows 8 (all ones: none)
//	             F: rollback counter 4
//	      60     CRC-32C of bytes 0..59
//
// The floor is the highest that any whole record of either log says, whatever their first records are: a damaged sector must
// not let an older image in. Sequence numbers wrap around.
//
// Numbers are little endian. A record that a power cut has torn has a wrong CRC and is skipped.
type Records struct {
	// Note is not empty when the sectors held something else than records, which is treated as no records, or a damaged log,
	// in whose stead the older one is in force.
	Note string

	flash    Flash
	g        Geometry
	base     [2]uint32
	active   int // sector in force, -1: none yet
	sequence uint32
	used     int // place of the next record in it
	slots    []SlotRecord
	journals []journal
	floor    uint32
	floorAt  int // log that says so, where none is in force
}

const (
	recordBytes  = 64
	recordLayout = 1
	none32       = 1<<32 - 1
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// OpenRecords reads the card's records. It changes nothing.
func OpenRecords(ctx context.Context, f Flash) (*Records, error) {
	g, err := geometry(ctx, f)
	if err != nil {
		return nil, err
	}
	r := &Records{flash: f, g: g, active: -1, slots: make([]SlotRecord, len(g.Slots)), journals: make([]journal, len(g.Slots))}
	at := recordsStart(g)
	if int64(at)+2*int64(g.SectorBytes) > int64(g.Bytes) {
		return nil, refuse("flash size", fmt.Sprintf("the flash of %d bytes has no room for two sectors of records at %#x, behind the last slot", g.Bytes, at), "use a card whose flash is larger than its slots")
	}
	r.base = [2]uint32{at, at + g.SectorBytes}
	for i := range r.slots {
		r.slots[i].State, r.journals[i].next = Empty, -1
	}
	headless := [2]bool{} // something is behind a first record that is none
	for i, base := range r.base {
		head := make([]byte, 4*recordBytes)
		if err := f.Read(ctx, base, head); err != nil {
			return nil, fmt.Errorf("read records at %#x: %w", base, err)
		}
		kind, ok := checkRecord(head[:recordBytes])
		seq := binary.LittleEndian.Uint32(head[4:])
		switch {
		case ok && kind == 'H' && (r.active < 0 || int32(seq-r.sequence) > 0):
			r.active, r.sequence = i, seq
		case !ok && !blank(head[recordBytes:]): // a torn first record of the first log has nothing behind it
			headless[i] = true
		}
	}
	var other [2]map[int][]byte // records of a log that is not in force, by their places
	for i := range r.base {
		if i == r.active {
			if err := r.read(ctx); err != nil {
				return nil, err
			}
			continue
		}
		other[i] = map[int][]byte{}
		if _, err := r.scan(ctx, i, func(place int, rec []byte) {
			other[i][place] = bytes.Clone(rec)
			if was := r.floor; rec[0] == 'F' {
				if r.apply(rec); r.floor > was {
					r.floorAt = i
				}
			}
		}); err != nil {
			return nil, err
		}
	}
	switch {
	case r.active < 0 && (headless[0] || headless[1]):
		r.Note = fmt.Sprintf("the records at %#x are unreadable; going on as if there were none", at)
		if r.floor > 0 {
			r.Note += fmt.Sprintf(", but with their rollback counter %d", r.floor)
		}
	case r.active >= 0 && headless[1-r.active]:
		damaged, err := r.damaged(other[1-r.active])
		if err != nil {
			return nil, err
		}
		if damaged {
			r.Note = fmt.Sprintf("the records at %#x are damaged: older ones, at %#x, count in their stead, with rollback counter %d", r.base[1-r.active], r.base[r.active], r.floor)
		}
	}
	return r, nil
}

// damaged says whether a log without a first record was in force once. One that a power cut left half written was not: it
// holds what the log in force says, from its start on.
func (r *Records) damaged(log map[int][]byte) (bool, error) {
	live, err := r.live()
	if err != nil {
		return false, err
	}
	for place, rec := range log {
		if place > len(live) || place > 0 && !bytes.Equal(rec, live[place-1]) {
			return true, nil
		}
	}
	return false, nil
}

// recordsStart is where the flash behind the last slot starts.
func recordsStart(g Geometry) uint32 {
	end := uint32(0)
	for _, s := range g.Slots {
		end = max(end, s.Offset+s.Bytes)
	}
	return (end + g.SectorBytes - 1) / g.SectorBytes * g.SectorBytes
}

// Span is where in the flash the records lie.
func (r *Records) Span() (offset, bytes uint32) { return r.base[0], 2 * r.g.SectorBytes }

// read takes the log in force into account.
func (r *Records) read(ctx context.Context) error {
	last, err := r.scan(ctx, r.active, func(_ int, rec []byte) { r.apply(rec) })
	r.used = last + 1
	return err
}

// scan goes through a log, up to the first page that holds nothing, and returns the last place that is not blank.
func (r *Records) scan(ctx context.Context, log int, whole func(place int, rec []byte)) (last int, err error) {
	chunk := make([]byte, min(r.g.SectorBytes, 4096))
	for off := uint32(0); off < r.g.SectorBytes; off += uint32(len(chunk)) {
		if err := r.flash.Read(ctx, r.base[log]+off, chunk); err != nil {
			return last, fmt.Errorf("read records at %#x: %w", r.base[log]+off, err)
		}
		if blank(chunk) {
			break
		}
		for i := 0; i < len(chunk); i += recordBytes {
			rec := chunk[i : i+recordBytes]
			if blank(rec) {
				continue
			}
			last = int(off)/recordBytes + i/recordBytes
			if _, ok := checkRecord(rec); ok {
				whole(last, rec)
			}
		}
	}
	return last, nil
}

func checkRecord(rec []byte) (kind byte, ok bool) {
	return rec[0], rec[3] == recordLayout && binary.LittleEndian.Uint32(rec[60:]) == crc32.Checksum(rec[:60], castagnoli)
}

// apply takes a whole record into account. Kinds and slots that this release does not know are left alone.
func (r *Records) apply(rec []byte) {
	word := func(at int) uint32 { return binary.LittleEndian.Uint32(rec[at:]) }
	slot := int(rec[1])
	if rec[0] == 'F' {
		r.floor = max(r.floor, word(4))
	}
	if slot >= len(r.slots) {
		return
	}
	s := &r.slots[slot]
	switch rec[0] {
	case 'S':
		if int(rec[2]) >= len(states) {
			return
		}
		sha := hex.EncodeToString(rec[28:60])
		source := s.Source
		if sha != s.SHA256 {
			source = ""
		}
		j := journal{next: -1}
		if s.State == Writing && states[rec[2]] == Writing { // where the other load was cut short counts until that is mended
			j.next = r.journals[slot].next
		}
		*s = SlotRecord{State: states[rec[2]], Bytes: word(4), SHA256: sha, Version: unpackVersion(word(8)),
			DataPathDigest: word(12), Rollback: word(16), Signed: word(20)&1 != 0, Source: source}
		r.journals[slot] = j
	case 'N':
		s.Source = strings.ToValidUTF8(string(bytes.TrimRight(rec[4:60], "\x00")), "")
	case 'J':
		j := journal{done: int(word(4)), next: -1}
		if word(8) != none32 {
			j.next = int(word(8))
		}
		r.journals[slot] = j
	}
}

// Slot returns what is known of a slot.
func (r *Records) Slot(n int) SlotRecord {
	if n < 0 || n >= len(r.slots) {
		return SlotRecord{State: Empty}
	}
	return r.slots[n]
}

// Floor is the highest rollback counter that was ever accepted.
func (r *Records) Floor() uint32 { return r.floor }

// Set records a slot's image and state. A good image's rollback counter becomes the floor, if it is higher.
func (r *Records) Set(ctx context.Context, slot int, s SlotRecord) error {
	if slot < 0 || slot >= len(r.slots) {
		return fmt.Errorf("record slot %d: the card has %d", slot, len(r.slots))
	}
	rec, err := slotRecord(slot, s)
	if err != nil {
		return fmt.Errorf("record slot %d: %w", slot, err)
	}
	if err := r.append(ctx, rec); err != nil {
		return err
	}
	if name := nameRecord(slot, s.Source); s.Source != "" && r.slots[slot].Source != recordedName(s.Source) {
		if err := r.append(ctx, name); err != nil {
			return err
		}
	}
	if s.State == Good {
		return r.Raise(ctx, s.Rollback)
	}
	return nil
}

// SetState changes the state of a slot and keeps the rest.
func (r *Records) SetState(ctx context.Context, slot int, to State) error {
	s := r.Slot(slot)
	s.State = to
	return r.Set(ctx, slot, s)
}

// Raise makes the floor at least counter.
func (r *Records) Raise(ctx context.Context, counter uint32) error {
	if counter <= r.floor {
		return nil
	}
	return r.append(ctx, record('F', 0, 0, counter))
}

func (r *Records) setJournal(ctx context.Context, slot int, j journal) error {
	return r.append(ctx, journalRecord(slot, j))
}

func record(kind byte, slot int, state byte, words ...uint32) []byte {
	rec := make([]byte, recordBytes)
	rec[0], rec[1], rec[2], rec[3] = kind, byte(slot), state, recordLayout
	for i, w := range words {
		binary.LittleEndian.PutUint32(rec[4+4*i:], w)
	}
	return seal(rec)
}

func seal(rec []byte) []byte {
	binary.LittleEndian.PutUint32(rec[60:], crc32.Checksum(rec[:60], castagnoli))
	return rec
}

func slotRecord(slot int, s SlotRecord) ([]byte, error) {
	state := slices.Index(states[:], s.State)
	if state < 0 {
		return nil, fmt.Errorf("state %q: there is none such", s.State)
	}
	version, err := packVersion(s.Version)
	if err != nil {
		return nil, err
	}
	sha, err := hex.DecodeString(s.SHA256)
	if err != nil || len(sha) != 32 && len(sha) != 0 {
		return nil, fmt.Errorf("SHA-256 %q is not 64 hexadecimal digits", s.SHA256)
	}
	flags := uint32(0)
	if s.Signed {
		flags = 1
	}
	rec := record('S', slot, byte(state), s.Bytes, version, s.DataPathDigest, s.Rollback, flags)
	copy(rec[28:60], sha)
	return seal(rec), nil
}

func nameRecord(slot int, name string) []byte {
	rec := record('N', slot, 0)
	copy(rec[4:60], name)
	return seal(rec)
}

// recordedName is what a name reads as afterwards.
func recordedName(name string) string {
	return strings.ToValidUTF8(name[:min(len(name), 56)], "")
}

func journalRecord(slot int, j journal) []byte {
	next := uint32(none32)
	if j.next >= 0 {
		next = uint32(j.next)
	}
	return record('J', slot, 0, uint32(j.done), next)
}

// append writes a record and reads it back. Where it does not take, an earlier power cut has left cells that do not hold;
// the next place is tried, then the other sector.
func (r *Records) append(ctx context.Context, rec []byte) error {
	places := int(r.g.SectorBytes / recordBytes)
	for range 8 {
		if r.active < 0 || r.used >= places {
			if err := r.compact(ctx); err != nil {
				return err
			}
		}
		at := r.base[r.active] + uint32(r.used*recordBytes)
		r.used++
		ok, err := r.write(ctx, at, rec)
		if err != nil {
			return err
		}
		if ok {
			r.apply(rec)
			return nil
		}
	}
	return fmt.Errorf("write a record at %#x: what is read back differs, at eight places: these sectors of the flash are worn out or protected", r.base[max(r.active, 0)])
}

// write programs a record where nothing is and says whether it reads back.
func (r *Records) write(ctx context.Context, at uint32, rec []byte) (bool, error) {
	got := make([]byte, recordBytes)
	if err := r.flash.Read(ctx, at, got); err != nil {
		return false, fmt.Errorf("read records at %#x: %w", at, err)
	}
	if !blank(got) {
		return false, nil
	}
	if err := programBytes(ctx, r.flash, r.g, at, rec); err != nil {
		return false, fmt.Errorf("write a record: %w", err)
	}
	if err := r.flash.Read(ctx, at, got); err != nil {
		return false, fmt.Errorf("read records at %#x: %w", at, err)
	}
	return bytes.Equal(got, rec), nil
}

// compact writes what counts into the other sector, which is erased before even if it looks empty: an erase that was cut
// short may look so. It changes what is in force only when all is written.
func (r *Records) compact(ctx context.Context) error {
	to := 0
	if r.active == 0 || r.active < 0 && r.floorAt == 0 && r.floor > 0 { // the only record of the floor goes last
		to = 1
	}
	page := make([]byte, recordBytes*4)
	if err := r.flash.Read(ctx, r.base[to], page); err != nil {
		return fmt.Errorf("read records at %#x: %w", r.base[to], err)
	}
	if err := checkAlias(ctx, r.flash, r.g, r.base[to], page); err != nil {
		return err
	}
	if err := r.flash.Erase(ctx, r.base[to]); err != nil {
		return fmt.Errorf("erase records at %#x: %w", r.base[to], err)
	}
	live, err := r.live()
	if err != nil {
		return err
	}
	if (len(live)+8)*recordBytes > int(r.g.SectorBytes) {
		return fmt.Errorf("write records: %d do not fit into a sector of %d bytes", len(live), r.g.SectorBytes)
	}
	live = append(live, record('H', 0, 0, r.sequence+1))
	for i, rec := range live {
		at := r.base[to] + uint32((i+1)*recordBytes)
		if i == len(live)-1 {
			at = r.base[to]
		}
		ok, err := r.write(ctx, at, rec)
		if err != nil {
			return err
		}
		if !ok {
			return fmt.Errorf("write a record at %#x: what is read back differs right after an erase: this sector of the flash is worn out", at)
		}
	}
	r.active, r.sequence, r.used = to, r.sequence+1, len(live)
	return nil
}

// live are the records that say all that is known.
func (r *Records) live() ([][]byte, error) {
	var recs [][]byte
	if r.floor > 0 {
		recs = append(recs, record('F', 0, 0, r.floor))
	}
	for i, s := range r.slots {
		if s.State == Empty && s.SHA256 == "" {
			continue
		}
		rec, err := slotRecord(i, s)
		if err != nil {
			return nil, fmt.Errorf("record slot %d: %w", i, err)
		}
		recs = append(recs, rec)
		if s.Source != "" {
			recs = append(recs, nameRecord(i, s.Source))
		}
		if s.State == Writing {
			recs = append(recs, journalRecord(i, r.journals[i]))
		}
	}
	return recs, nil
}

var errVersion = errors.New("a version is major.minor.patch, up to 127.255.65535")

func packVersion(s string) (uint32, error) {
	if s == "" {
		return 0, nil
	}
	parts := strings.Split(s, ".")
	if len(parts) != 3 {
		return 0, fmt.Errorf("version %q: %w", s, errVersion)
	}
	var v uint32
	for i, bits := range []int{7, 8, 16} {
		n, err := strconv.ParseUint(parts[i], 10, bits)
		if err != nil {
			return 0, fmt.Errorf("version %q: %w", s, errVersion)
		}
		v = v<<bits | uint32(n)
	}
	return v, nil
}

func unpackVersion(v uint32) string {
	if v == 0 {
		return ""
	}
	return fmt.Sprintf("%d.%d.%d", v>>24, v>>16&0xff, v&0xffff)
}
