// Package driver is the card as host software sees it: Open identifies it and brings it up, a Card's methods use it.
//
// A Card reaches its hardware through device.Device alone and cannot tell an emulated card from a real one. It never
// moves a packet on its own: it writes tables, gives commands, reads pages and counters back, takes exceptions and events
// from their rings and injects frames.
//
//	tables      WriteTable ReadTable Clear Fill SwitchBank          staging buffer, bulk commands, BAR2 stores
//	commands    Command Allocate ArmAndSend ResetConnection Free CAM…   command ring → completion ring
//	observation Page Head Connections CAMEntries Counters             bulk read, snapshot
//	frames      Exceptions CommitExceptions Events CommitEvents Emit Reinject Flush
//
// Waiting is by interrupt unless Config.Pump is set: then it is called instead, to move a card that only moves when
// stepped. A command whose interrupt was lost is found by looking at its ring, never by polling a register.
//
// A card whose data-path digest this build does not know gets a Card that only identifies and resets; everything else
// returns a *MismatchError. A card that is lost answers all ones; the first such load is checked against the identity
// register, and from then on everything fails with device.ErrDeviceLost.
//
// The Device belongs to the caller of Open, who closes it after Shutdown. A Card starts no goroutine. Methods may be
// called from any goroutine, but exceptions and events belong to one each.
package driver
