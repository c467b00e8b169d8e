package vfiouser

import (
	"sync/atomic"
	"testing"
	"time"
)

// reluctantCard takes its time to let go of vectors.
type reluctantCard struct {
	*pciCard
	slow   atomic.Bool
	letGo  chan struct{} // it may
	taking chan struct{} // it was told to
}

func (c *reluctantCard) SetVectors(raise []func()) error {
	if c.slow.Swap(false) {
		close(c.taking)
		<-c.letGo
	}
	return c.pciCard.SetVectors(raise)
}

// TestLeaving: a client that comes while the card is still letting go of the one before waits, however long that takes.
func TestLeaving(t *testing.T) {
	card := &reluctantCard{pciCard: newPCICard(), letGo: make(chan struct{}), taking: make(chan struct{})}
	path, _ := rawServer(t, card, Config{})
	first := rawDial(t, path).hello()
	card.slow.Store(true)
	first.c.close()
	<-card.taking
	time.AfterFunc(2*grace, func() { close(card.letGo) })
	rawDial(t, path).hello()
}
