package daemon

import (
	"time"

	"splicenic/driver"
	"splicenic/regs"
	"splicenic/runtime/neighbour"
)

// A card that was reset opens in steps: its tables are written but for what makes them count, its ports are enabled, and
// the next hops of all servers are asked for. As soon as nobody is waited for any more the unit accepts connections and
// the tables come into force, with the bank switch as the last store. Until then SYNs come to the exception handler,
// which leaves them to be sent again: a connection that arrives early waits, but is not refused.

// openTimeout bounds how long next hops are waited for, counted from the first Step.
const openTimeout = 2 * time.Second

// Accepting is closed when the card takes connections for the first time.
func (d *Daemon) Accepting() <-chan struct{} { return d.accepting }

// begin enables the ports that are not. A card that was adopted has all it needs in force.
func (d *Daemon) begin() error {
	for i := range d.cfg.Ports() {
		if regs.PortControlEnable(d.card.Load(regs.PortControl.At(i, regs.PortStride))) != 0 {
			continue
		}
		if err := d.card.SetPort(i, driver.PortConfig{Enable: true}); err != nil {
			return err
		}
	}
	if d.opening {
		return nil
	}
	if regs.AmuControlEnable(d.card.Load(regs.AmuControl)) == 0 {
		if err := d.card.Accept(true); err != nil {
			return err
		}
	}
	d.opened()
	return nil
}

// open says whether the tables are to come into force now.
func (d *Daemon) open() bool {
	if !d.opening {
		return false
	}
	if d.openBy == 0 {
		d.openBy = d.now + openTimeout
	}
	var asked, missing []string
	for _, i := range sorted(d.im.ix.hopAt) {
		h := d.im.ix.hopAt[i]
		switch _, state := d.h.Neighbours().Get(neighbour.Key{Port: h.Port, VLAN: h.VLAN, Addr: h.Neighbor}); {
		case state.Usable():
			continue
		case state != neighbour.Failed:
			asked = append(asked, h.Neighbor.String())
		}
		missing = append(missing, h.Neighbor.String())
	}
	if len(asked) > 0 && d.now < d.openBy {
		return false
	}
	if err := d.card.Accept(true); err != nil {
		d.log.Error("card does not open; tried again at once", "error", err)
		return false
	}
	d.opening = false
	d.log.Info("card opens", "next_hops", len(d.im.ix.hopAt))
	d.status.Unresolved = len(missing)
	if len(missing) > 0 {
		d.log.Warn("the card opens without all next hops: connections to the servers behind them are refused until they answer", "missing", len(missing), "first", missing[0])
	}
	return true
}

// opened notes that the tables are in force.
func (d *Daemon) opened() {
	if d.opening || d.status.Accepting || d.cfg == nil {
		return
	}
	d.status.Accepting = true
	d.h.Configure(d.station(d.cfg, d.im), d.now)
	select {
	case <-d.accepting:
	default:
		close(d.accepting)
	}
}
