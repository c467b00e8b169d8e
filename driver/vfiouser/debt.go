package vfiouser

import "sync"

// debt counts the replies a client waits for. While there is one the client may not look at anything else, so a message of
// our own has to wait.
type debt struct {
	mu   sync.Mutex
	owed int
	none chan struct{} // closed when nothing is owed any more; nil: nobody waits
}

func (d *debt) add() {
	d.mu.Lock()
	d.owed++
	d.mu.Unlock()
}

func (d *debt) pay() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.owed--; d.owed == 0 && d.none != nil {
		close(d.none)
		d.none = nil
	}
}

// wait returns nil if nothing is owed, or what will be closed then.
func (d *debt) wait() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.owed == 0 {
		return nil
	}
	if d.none == nil {
		d.none = make(chan struct{})
	}
	return d.none
}
