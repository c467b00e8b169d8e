package datapath

import (
	"splicenic/emu/cam"
	"splicenic/regs"
)

// Status of a command.
const (
	statusOK        = regs.CompletionControlStatusOk
	statusStale     = regs.CompletionControlStatusStaleHandle
	statusState     = regs.CompletionControlStatusState
	statusNoPage    = regs.CompletionControlStatusNoPage
	statusArgument  = regs.CompletionControlStatusArgument
	statusKeyExists = regs.CompletionControlStatusKeyExists
	statusNoPlace   = regs.CompletionControlStatusNoPlace
	statusNotFound  = regs.CompletionControlStatusNotFound
	statusDMA       = regs.CompletionControlStatusDma
)

// Command carries out a command of the host and fills in the completion's status and results; the bulk verbs and
// snapshot are the card's. A command names its page by handle: with another generation it is stale and does nothing.
func (c *Core) Command(e *regs.CommandEntry, done *regs.CompletionEntry, out *Output) {
	c.Sync()
	c.count(regs.AmuCommands)
	done.HandleN, done.HandleGeneration = e.HandleN, e.HandleGeneration
	status := c.command(e, done, out)
	done.ControlStatus = status
	switch status {
	case statusOK:
	case statusStale:
		c.count(regs.AmuStaleHandle)
	default:
		c.count(regs.AmuCommandError)
	}
}

func (c *Core) command(e *regs.CommandEntry, done *regs.CompletionEntry, out *Output) uint32 {
	switch e.ControlType {
	case regs.CommandControlTypeAllocate:
		n, ok := c.allocate()
		if !ok {
			c.count(regs.AmuNoPage)
			return statusNoPage
		}
		done.HandleN, done.HandleGeneration = n, regs.PageControlGeneration(c.page(n)[regs.PageControl])
		return statusOK
	case regs.CommandControlTypeCamInsert, regs.CommandControlTypeCamErase, regs.CommandControlTypeCamLookup:
		return c.commandCAM(e, done)
	case regs.CommandControlTypePass:
		return c.commandPass(e, done)
	}
	if e.HandleN >= c.m.Geometry.Pages {
		return statusStale
	}
	n, w := e.HandleN, c.page(e.HandleN)
	if regs.PageControlValid(w[regs.PageControl]) == 0 || regs.PageControlGeneration(w[regs.PageControl]) != e.HandleGeneration {
		return statusStale
	}
	state := State(regs.PageControlState(w[regs.PageControl]))
	switch e.ControlType {
	case regs.CommandControlTypeArmAndSend:
		if state != ServerSyn {
			return statusState
		}
		c.splice(n, w, c.ticks(regs.TimerRetransmit), out)
		return statusOK
	case regs.CommandControlTypeConnect:
		return c.commandConnect(e, done, n, w, state, out)
	case regs.CommandControlTypeTake:
		return c.commandTake(e, done, w, state, out)
	case regs.CommandControlTypeFeed:
		return c.commandFeed(e, w, state, out)
	case regs.CommandControlTypeReply:
		return c.commandReply(e, n, w, state, out)
	case regs.CommandControlTypeAdjust:
		return c.commandAdjust(e, w, state)
	case regs.CommandControlTypeReset:
		return c.commandReset(e, n, w, state, out)
	case regs.CommandControlTypeFree:
		if state == Quarantine {
			c.recycle(n, w)
			return statusOK
		}
		c.abort(n, w, unserved(w, reasonHost))
		return statusOK
	}
	return statusArgument
}

// commandReset ends a connection for the host, with RST to the ends it names.
func (c *Core) commandReset(e *regs.CommandEntry, n uint32, w *page, state State, out *Output) uint32 {
	if state == Quarantine || state == Free {
		return statusState
	}
	if e.FlagsToClient != 0 {
		c.resetClient(w, out)
	}
	if e.FlagsToServer != 0 {
		switch state {
		case ServerSyn:
			c.resetServer(w, 0, w[regs.PageAIsn]+1, out)
		case Spliced, Closing:
			c.resetArmedServer(w, out)
		}
	}
	c.abort(n, w, unserved(w, reasonHost))
	return statusOK
}

// commandKey reads the key of a command.
func (c *Core) commandKey(e *regs.CommandEntry) (cam.Key, uint32) {
	k := cam.Key{
		Control: regs.CamWordControlValidMask | e.KeyControlKind<<regs.CamWordControlKindShift |
			e.KeyControlProtocol<<regs.CamWordControlProtocolShift | e.KeyControlVlan<<regs.CamWordControlVlanShift,
		Ports: e.KeyPortsPort | e.KeyPortsDestination<<regs.CamWordPortsDestinationShift,
		Index: e.KeyIndexIndex,
		Addr:  address{e.Value},
	}
	if e.KeyControlKind == kindIPv6 {
		var b [16]byte
		if !c.host.Read(uint64(e.IovaLo)|uint64(e.IovaHi)<<32, b[:]) {
			return k, statusDMA
		}
		for i := range k.Addr {
			k.Addr[i] = uint32(b[4*i]) | uint32(b[4*i+1])<<8 | uint32(b[4*i+2])<<16 | uint32(b[4*i+3])<<24
		}
	}
	return k, statusOK
}

func (c *Core) commandCAM(e *regs.CommandEntry, done *regs.CompletionEntry) uint32 {
	k, status := c.commandKey(e)
	if status != statusOK {
		return status
	}
	m := c.cams[e.FlagsServerSide&1]
	h := m.Hash(&k)
	switch e.ControlType {
	case regs.CommandControlTypeCamLookup:
		handle, legB, ok := m.Lookup(&k, h)
		if !ok {
			return statusNotFound
		}
		done.HandleN, done.HandleGeneration = handle&handleMask, handle>>20
		done.Result[0] = k.Control
		if legB {
			done.Result[0] |= regs.CamWordControlLegBMask
		}
		done.Result[1] = handle
		return statusOK
	case regs.CommandControlTypeCamErase:
		if !m.Erase(&k, h) {
			return statusNotFound
		}
		return statusOK
	}
	if e.HandleN >= c.m.Geometry.Pages || handleOf(e.HandleN, c.page(e.HandleN)) != e.HandleN|e.HandleGeneration<<20 {
		return statusStale
	}
	switch m.Insert(&k, h, e.HandleN|e.HandleGeneration<<20, e.KeyControlLegB != 0) {
	case cam.Exists:
		return statusKeyExists
	case cam.Refused:
		return statusNoPlace
	}
	return statusOK
}
