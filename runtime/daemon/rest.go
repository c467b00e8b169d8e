package daemon

import (
	"context"
	"time"

	"splicenic/driver"
	"splicenic/regs"
)

// restLook is how often Rest looks whether connections are left.
const restLook = 20 * time.Millisecond

// Rest has the card take no new connections, and waits until those there are have ended, or ctx has. Run goes on meanwhile:
// connections need it to end. It returns how many are left. The card's next start takes connections again.
func (d *Daemon) Rest(ctx context.Context) (left uint32, err error) {
	if err := d.Do(func(c *driver.Card) error { return c.Accept(false) }); err != nil {
		return 0, err
	}
	d.log.Info("the card takes no new connections; those there are may end")
	for {
		err := d.Do(func(c *driver.Card) error {
			left = c.Load(regs.AmuLive)
			return c.Err()
		})
		if err != nil || left == 0 {
			return left, err
		}
		t := time.NewTimer(restLook)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return left, nil
		}
	}
}
