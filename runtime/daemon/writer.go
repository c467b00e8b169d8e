package daemon

import (
	"context"
	"fmt"
	"slices"

	"splicenic/driver"
	"splicenic/regs"
)

// tables is what the writer needs of a card.
type tables interface {
	Memory(index int) *driver.Memory
	WriteTable(ctx context.Context, off uint64, words []uint32) error
	ReadTable(ctx context.Context, off uint64, words []uint32) error
	WaitBankIdle(ctx context.Context, bank uint32) error
	SwitchBank(bank, generation uint32) error
}

// A writer brings the card's tables to an Image. It keeps a shadow of them, word by word: what it has read back. A card that
// was reset holds zeros, and so does every table where its shadow ends.
type writer struct {
	card       tables
	bank       uint32 // in force
	generation uint32
	digest     string // of the bank in force; empty: not computed yet
	shadow     map[memory]table
	selector   []selector           // by group index
	lists      map[uint32]region    // of local ports, by server index
	limits     map[uint32][2]uint32 // upper and lower, by server index
}

// memory is one bank of a memory; memories without banks have bank 0.
type memory struct {
	index int
	bank  uint32
}

// selector is which slot area of a group is in force.
type selector struct {
	area  uint32
	count [2]uint32
}

func newWriter(card tables) *writer {
	return &writer{card: card, shadow: map[memory]table{}, lists: map[uint32]region{}, limits: map[uint32][2]uint32{}}
}

// write makes an Image count. After an error before the bank switch the card does what it did; entries that were added
// already are named by nothing.
//
// What nothing names yet comes first: next hops, servers, the idle bank, the idle slot areas. All of it is read back. Then
// single stores make it count: slot selectors, the bank. At last what is out of use is closed or removed.
func (w *writer) write(ctx context.Context, im *Image) error {
	changed, err := w.prepare(ctx, im)
	if err != nil {
		return err
	}
	if err := w.choose(ctx, im, true); err != nil {
		return err
	}
	if changed {
		if err := w.switchBank(); err != nil {
			return err
		}
	}
	return w.removals(ctx, im)
}

// prepare is write but for what makes the Image count. changed says that a bank is to be switched.
func (w *writer) prepare(ctx context.Context, im *Image) (changed bool, err error) {
	if err := w.additions(ctx, im); err != nil {
		return false, err
	}
	if changed, err = w.idleBank(ctx, im); err != nil {
		return false, err
	}
	if err := w.idleSlots(ctx, im); err != nil {
		return false, err
	}
	return changed, w.put(ctx, memory{regs.MemVip, 0}, w.kept(regs.MemVip, im.vips, regs.AddressWords))
}

// additions writes entries of next hops and servers that are new or changed; those that go stay until the end.
func (w *writer) additions(ctx context.Context, im *Image) error {
	if err := w.put(ctx, memory{regs.MemNextHop, 0}, w.kept(regs.MemNextHop, im.hops, regs.NextHopWords)); err != nil {
		return err
	}
	if err := w.put(ctx, memory{regs.MemLocalAddress, 0}, w.kept(regs.MemLocalAddress, im.locals, regs.AddressWords)); err != nil {
		return err
	}
	if err := w.putLists(ctx, im); err != nil {
		return err
	}
	if err := w.putLimits(ctx, im); err != nil {
		return err
	}
	return w.put(ctx, memory{regs.MemServer, 0}, w.kept(regs.MemServer, im.servers, regs.ServerWords))
}

// removals closes and removes what the image no longer has.
func (w *writer) removals(ctx context.Context, im *Image) error {
	if err := w.choose(ctx, im, false); err != nil {
		return err
	}
	for _, m := range []struct {
		index int
		want  table
	}{{regs.MemServer, im.servers}, {regs.MemVip, im.vips}, {regs.MemNextHop, im.hops}, {regs.MemLocalAddress, im.locals}} {
		if err := w.put(ctx, memory{m.index, 0}, m.want); err != nil {
			return err
		}
	}
	return w.dropLists(ctx, im)
}

// kept is want, but for entries that it removes or closes: they are as the card has them.
func (w *writer) kept(index int, want table, words uint32) table {
	merged := slices.Clone(want)
	have := w.shadow[memory{index, 0}]
	for at := uint32(0); int(at) < len(have); at += words {
		old := have[at : at+words]
		gone := int(at) >= len(merged) || merged[at]&1 == 0 // valid is bit 0 of every entry
		if index == regs.MemServer && !gone {
			gone = regs.ServerControlClosed(merged[at+regs.ServerControl]) != 0
		}
		if old[0]&1 != 0 && gone {
			copy(merged.entry(at/words, words), old)
		}
	}
	return merged
}

// keys are the words of an entry that an exact match compares or that only make sense together: while they change, the
// entry is not valid.
var keys = map[int]struct{ words, from, to uint32 }{
	regs.MemServer:       {regs.ServerWords, regs.ServerAddress, regs.ServerAddress + regs.ServerAddressCount},
	regs.MemLocalAddress: {regs.AddressWords, regs.AddressAddress, regs.AddressAddress + regs.AddressAddressCount},
	regs.MemVip:          {regs.AddressWords, regs.AddressAddress, regs.AddressAddress + regs.AddressAddressCount},
	regs.MemNextHop:      {regs.NextHopWords, regs.NextHopMacLo, regs.NextHopMacHi + 1},
}

// put writes the words of a memory that differ, and reads them back. An entry with a key is invalid while its key changes,
// and becomes valid last.
func (w *writer) put(ctx context.Context, m memory, want table) error {
	if k, ok := keys[m.index]; ok {
		if err := w.invalidate(ctx, m, want, k.words, k.from, k.to); err != nil {
			return err
		}
		if err := w.bring(ctx, m, w.dormant(m, want, k.words)); err != nil {
			return err
		}
	}
	return w.bring(ctx, m, want)
}

// bring writes the words that differ, in the order of their addresses.
func (w *writer) bring(ctx context.Context, m memory, want table) error {
	for _, r := range differences(w.shadow[m], want) {
		if err := w.store(ctx, m, r.at, r.words); err != nil {
			return err
		}
	}
	return nil
}

// invalidate makes the entries in force whose keys change invalid.
func (w *writer) invalidate(ctx context.Context, m memory, want table, words, from, to uint32) error {
	for at := uint32(0); int(at+words) <= min(len(want), len(w.shadow[m])); at += words {
		have := w.shadow[m][at : at+words]
		if have[0]&1 == 0 || want[at]&1 == 0 || slices.Equal(have[from:to], want[at+from:at+to]) {
			continue
		}
		if err := w.store(ctx, m, at, table{0}); err != nil {
			return err
		}
	}
	return nil
}

// dormant is want, but for the first words of entries that are not valid yet.
func (w *writer) dormant(m memory, want table, words uint32) table {
	d := slices.Clone(want)
	have := w.shadow[m]
	for at := 0; at < len(d); at += int(words) {
		switch {
		case at >= len(have):
			d[at] = 0
		case have[at]&1 == 0:
			d[at] = have[at]
		}
	}
	return d
}

// store writes words and reads them back. Words beyond what a card may hold are refused by the driver.
func (w *writer) store(ctx context.Context, m memory, at uint32, words table) error {
	mem := w.card.Memory(m.index)
	size := mem.EntryBytes / 4
	if _, err := mem.At(m.bank, (at+uint32(len(words))-1)/size); err != nil {
		return fmt.Errorf("write table %s: %w", mem.Name, err)
	}
	start, err := mem.At(m.bank, 0)
	if err != nil {
		return fmt.Errorf("write table %s: %w", mem.Name, err)
	}
	off := start + 4*uint64(at)
	if err := w.card.WriteTable(ctx, off, words); err != nil {
		return fmt.Errorf("write table %s: %w", mem.Name, err)
	}
	back := make([]uint32, len(words))
	if err := w.card.ReadTable(ctx, off, back); err != nil {
		return fmt.Errorf("read back table %s: %w", mem.Name, err)
	}
	shadow := w.shadow[m]
	shadow.entry((at+uint32(len(words))-1)/size, size) // whole entries
	copy(shadow[at:], back)
	w.shadow[m] = shadow
	for i := range back {
		if back[i] != words[i] {
			return fmt.Errorf("read back table %s: word %d is %#08x, wrote %#08x", mem.Name, int(at)+i, back[i], words[i])
		}
	}
	return nil
}

// A run is words to write and where.
type run struct {
	at    uint32
	words table
}

// gap is how many equal words between two differences are written again, because one longer run costs less than two.
const gap = 16

// differences returns the runs of want that differ from have. Either counts as zero where it ends.
func differences(have, want table) (runs []run) {
	word := func(t table, i int) uint32 {
		if i < len(t) {
			return t[i]
		}
		return 0
	}
	end := 0 // of the last run
	for i := range max(len(have), len(want)) {
		if word(have, i) == word(want, i) {
			continue
		}
		if len(runs) == 0 || i-end > gap {
			runs = append(runs, run{at: uint32(i)})
			end = i
		}
		last := &runs[len(runs)-1]
		for ; end <= i; end++ {
			last.words = append(last.words, word(want, end))
		}
	}
	return runs
}

// A banked table switches together with the others.
type banked struct {
	index int
	want  table
}

// banked are the Image's tables with two banks.
func (im *Image) banked() []banked {
	return []banked{
		{regs.MemUrl, im.url}, {regs.MemRule, im.rules}, {regs.MemListener, im.listeners},
		{regs.MemService, im.services}, {regs.MemGroup, im.groups},
	}
}

// changes says whether an Image needs another bank than the one in force.
func (w *writer) changes(im *Image) bool {
	return w.generation == 0 || slices.ContainsFunc(im.banked(), func(t banked) bool {
		return len(differences(w.shadow[memory{t.index, w.bank}], t.want)) > 0
	})
}

// idleBank writes the bank that is not in force, where the image differs from the one that is.
func (w *writer) idleBank(ctx context.Context, im *Image) (changed bool, err error) {
	idle := 1 - w.bank
	if !w.changes(im) {
		return false, nil
	}
	if err := w.card.WaitBankIdle(ctx, idle); err != nil {
		return false, fmt.Errorf("wait until nobody reads bank %d: %w", idle, err)
	}
	for _, t := range im.banked() {
		if err := w.put(ctx, memory{t.index, idle}, t.want); err != nil {
			return false, err
		}
	}
	return true, nil
}

// maxGeneration is the largest number a generation may have; it starts over at one.
const maxGeneration = regs.TableBankGenerationMask >> regs.TableBankGenerationShift

// next is the generation after the one in force.
func (w *writer) next() uint32 { return w.generation%maxGeneration + 1 }

// switchBank makes the idle bank the one in force.
func (w *writer) switchBank() error {
	next := w.next()
	if err := w.card.SwitchBank(1-w.bank, next); err != nil {
		return fmt.Errorf("switch bank: %w", err)
	}
	w.bank, w.generation, w.digest = 1-w.bank, next, ""
	return nil
}

// area is where the slots of a group begin, in words of the slot memory.
func (w *writer) area(group int, area, slots uint32) uint32 {
	return (2*uint32(group) + area) * slots
}

// slotsOf is how many slots an area has.
func (w *writer) slotsOf() uint32 {
	return w.card.Memory(regs.MemSlot).Entries / (2 * w.card.Memory(regs.MemGroup).Entries)
}

// current says whether the area in force of a group holds slots.
func (w *writer) current(group int, slots table) bool {
	s := &w.selector[group]
	if int(s.count[s.area]) != len(slots) {
		return false
	}
	have := w.shadow[memory{regs.MemSlot, 0}]
	return slices.Equal(have.window(w.area(group, s.area, w.slotsOf()), len(slots)), slots)
}

// idleSlots writes the slots of every group whose slots change to the area that is not in force.
func (w *writer) idleSlots(ctx context.Context, im *Image) error {
	for len(w.selector) < len(im.slots) {
		w.selector = append(w.selector, selector{})
	}
	m := memory{regs.MemSlot, 0}
	for g, slots := range im.slots {
		if len(slots) == 0 || w.current(g, table(slots)) {
			continue
		}
		at := w.area(g, 1-w.selector[g].area, w.slotsOf())
		have := w.shadow[m].window(at, len(slots))
		for _, r := range differences(have, table(slots)) {
			if err := w.store(ctx, m, at+r.at, r.words); err != nil {
				return err
			}
		}
	}
	return nil
}

// slots brings the slots of an Image into force, and nothing else of it.
func (w *writer) slots(ctx context.Context, im *Image) error {
	if err := w.idleSlots(ctx, im); err != nil {
		return err
	}
	if err := w.choose(ctx, im, true); err != nil {
		return err
	}
	return w.choose(ctx, im, false)
}

// rewind has a group begin with its first slot. The cursor is the card's: it is not read back.
func (w *writer) rewind(ctx context.Context, group uint32) error {
	off, err := w.card.Memory(regs.MemGroupState).At(0, group)
	if err != nil {
		return err
	}
	return w.card.WriteTable(ctx, off+4*regs.GroupStateCursor, []uint32{0})
}

// window is up to n words from at.
func (t table) window(at uint32, n int) table {
	from := min(int(at), len(t))
	return t[from:min(from+n, len(t))]
}

// choose switches the groups whose slots changed to the area just written; filled says which ones: those that have
// slots, or those that have none any more.
func (w *writer) choose(ctx context.Context, im *Image, filled bool) error {
	for g := range w.selector {
		var slots table
		if g < len(im.slots) {
			slots = table(im.slots[g])
		}
		if (len(slots) > 0) != filled || w.current(g, slots) {
			continue
		}
		s := w.selector[g]
		s.area = 1 - s.area
		s.count[s.area] = uint32(len(slots))
		word := regs.SetGroupStateSelectorArea(0, s.area)
		word = regs.SetGroupStateSelectorCountA(word, s.count[0])
		word = regs.SetGroupStateSelectorCountB(word, s.count[1])
		at := uint32(g)*regs.GroupStateWords + regs.GroupStateSelector
		if err := w.store(ctx, memory{regs.MemGroupState, 0}, at, table{word}); err != nil {
			return err
		}
		if g < len(im.plans) && im.plans[g].Refresh && im.plans[g].Means == regs.GroupControlMeansWalk { // they begin with the next connection
			if err := w.rewind(ctx, uint32(g)); err != nil {
				return err
			}
		}
		w.selector[g] = s
	}
	return nil
}
