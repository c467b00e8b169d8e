// Package driver is the card as host software sees it: Open identifies it and brings it up, a Card's methods use it.
//
// A Card reaches its hardware through device.Device alone and cannot tell an emulated card from a real one. It never
// moves a packet on its own: it writes tables, gives commands, reads pages and counters back, takes exceptions and events
// from their rings and injects frames.
//
//	tables      WriteTable ReadTable Clear Fill SwitchBank          staging buffer, bulk commands, BAR2 stores
//	commands    Command Allocate ArmAndSend Connect TakeHead Feed Reply ResetConnection Free CAM…   command ring → completion ring
//	observation Page Head Connections CAMEntries Counters             bulk read, snapshot
//	shell       FlashGeometry ReadFlash EraseFlash ProgramFlash ProtectFlash BootState SetBootNext StartBoot TryBoot SendICAP Sensors
//	frames      Exceptions CommitExceptions Events CommitEvents Emit Reinject Flush
//
// Waiting is by interrupt unless Config.Pump is set: then it is called instead, to move a card that only moves when
// stepped. A command whose interrupt was lost is found by looking at its ring, never by polling a register.
//
// A card that a predecessor has set up can be adopted instead of reset, whether that one left it in order (Leave) or died
// at whatever step; connections, tables and keys stay:
//
//	what is found                                    Adopted  Continued  what is done
//	not set up: no bank, closed, fault                  no       no      both resets, keys, rings
//	set up; rings stand still, fail, are another's      yes      no      reset of the host interface, rings
//	set up; rings run in memory that was kept           yes      yes     commands and frames in flight end, nothing is stored
//
// Rings that continue start at the index that was published: what was not committed comes again, nothing is left out.
//
// A card whose data-path digest this build does not know gets a Card that does what the shell offers: identity, reset,
// flash, boot, sensors. Everything else returns a *MismatchError. A card that is lost answers all ones; the first such load is checked against the identity
// register, and from then on everything fails with device.ErrDeviceLost.
//
// The Device belongs to the caller of Open, who closes it after Shutdown. A Card starts no goroutine. Methods may be
// called from any goroutine, but exceptions and events belong to one each.
package driver
