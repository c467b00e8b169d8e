package program

import "context"

// Mark records in a card's flash what is known of a slot's image after it was tried.
func Mark(ctx context.Context, f Flash, slot int, state State) error {
	r, err := OpenRecords(ctx, f)
	if err != nil {
		return err
	}
	if r.Slot(slot).State == state {
		return nil
	}
	return unprotected(ctx, f, func() error { return r.SetState(ctx, slot, state) })
}
