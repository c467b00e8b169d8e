package daemon

import (
	"context"
	"fmt"

	"splicenic/regs"
)

// readBack makes a writer whose shadow is what the card holds.
func readBack(ctx context.Context, card tables, bank, generation uint32) (*writer, error) {
	w := newWriter(card)
	w.bank, w.generation = bank, generation
	for _, m := range []memory{
		{regs.MemListener, 0}, {regs.MemListener, 1}, {regs.MemService, 0}, {regs.MemService, 1}, {regs.MemGroup, 0}, {regs.MemGroup, 1},
		{regs.MemRule, 0}, {regs.MemRule, 1}, {regs.MemServer, 0}, {regs.MemNextHop, 0}, {regs.MemVip, 0}, {regs.MemLocalAddress, 0}, {regs.MemGroupState, 0},
	} {
		if err := w.read(ctx, m, w.card.Memory(m.index).Entries); err != nil {
			return nil, err
		}
	}
	for b := range uint32(2) {
		if err := w.readAutomata(ctx, memory{regs.MemUrl, b}); err != nil {
			return nil, err
		}
	}
	state := w.shadow[memory{regs.MemGroupState, 0}]
	for at := 0; at < len(state); at += regs.GroupStateWords {
		s := state[at+regs.GroupStateSelector]
		w.selector = append(w.selector, selector{regs.GroupStateSelectorArea(s), [2]uint32{regs.GroupStateSelectorCountA(s), regs.GroupStateSelectorCountB(s)}})
	}
	if err := w.readStates(ctx); err != nil {
		return nil, err
	}
	return w, w.read(ctx, memory{regs.MemSlot, 0}, w.area(len(w.selector), 0, w.slotsOf()))
}

// read reads the first entries of a memory into the shadow.
func (w *writer) read(ctx context.Context, m memory, entries uint32) error {
	mem := w.card.Memory(m.index)
	t := make(table, entries*mem.EntryBytes/4)
	if err := w.readAt(ctx, m, 0, t); err != nil {
		return err
	}
	w.shadow[m] = append(table(nil), t.trimmed(mem.EntryBytes/4)...)
	return nil
}

func (w *writer) readAt(ctx context.Context, m memory, at uint32, words table) error {
	if len(words) == 0 {
		return nil
	}
	mem := w.card.Memory(m.index)
	off, err := mem.At(m.bank, 0)
	if err == nil {
		err = w.card.ReadTable(ctx, off+4*uint64(at), words)
	}
	if err != nil {
		return fmt.Errorf("read back table %s: %w", mem.Name, err)
	}
	return nil
}

// The URL table is large and filled from its beginning: it is read in pieces that grow, until one is empty.
const (
	firstPiece = 1 << 12 // words
	mostPiece  = 1 << 18
)

// readAutomata reads a bank of the URL table as far as there is something in it.
func (w *writer) readAutomata(ctx context.Context, m memory) error {
	roots := uint32(0)
	services := w.shadow[memory{regs.MemService, m.bank}]
	for at := 0; at < len(services); at += regs.ServiceWords {
		roots = max(roots, services[at+regs.ServiceUrlRoot])
	}
	var t table
	size := w.card.Memory(m.index).Entries * regs.UrlNodeWords
	for piece, at := uint32(firstPiece), uint32(0); at < size; piece = min(2*piece, mostPiece) {
		words := make(table, min(piece, size-at))
		if err := w.readAt(ctx, m, at, words); err != nil {
			return err
		}
		t = append(t, words...)
		at += uint32(len(words))
		if len(words.trimmed(1)) == 0 && uint64(roots)*regs.UrlNodeWords < uint64(at) {
			break
		}
	}
	w.shadow[m] = append(table(nil), t.trimmed(regs.UrlNodeWords)...)
	return nil
}
