package device

import (
	"context"
	"sync/atomic"
)

// A vector is a counting semaphore that a card raises without blocking and one goroutine waits on. token holds one
// token while there may be something to count; a stale token costs one turn of the loop.
type vector struct {
	raised atomic.Uint64
	token  chan struct{}
}

func (v *vector) raise() {
	v.raised.Add(1)
	select {
	case v.token <- struct{}{}:
	default:
	}
}

func (v *vector) clear() { v.raised.Store(0) }

// wait returns how often the vector was raised, or zero when down was closed first.
func (v *vector) wait(ctx context.Context, down <-chan struct{}) (uint64, error) {
	for {
		if n := v.raised.Swap(0); n > 0 {
			return n, nil
		}
		select {
		case <-v.token:
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-down:
			return 0, nil
		}
	}
}
