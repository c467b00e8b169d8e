package daemon

import (
	"context"
	"errors"
	"slices"

	"splicenic/driver"
	"splicenic/regs"
	"splicenic/runtime/exception"
)

// maxOthers is how many servers are tried for a request at most, those included that turn out to be closed.
const maxOthers = 16

// connect offers a connection's request to a server.
func (d *Daemon) connect(handle, server uint32, port uint16) exception.Outcome {
	return outcome(d.card.Connect(context.Background(), driver.Handle(handle), server, port))
}

// reply answers a client in a server's place.
func (d *Daemon) reply(handle uint32, answer []byte) exception.Outcome {
	return outcome(d.card.Reply(context.Background(), driver.Handle(handle), answer))
}

func outcome(err error) exception.Outcome {
	switch {
	case err == nil:
		return exception.Taken
	case errors.Is(err, driver.ErrKeyExists):
		return exception.KeyTaken
	case errors.Is(err, driver.ErrState), errors.Is(err, driver.ErrStaleHandle):
		return exception.TooLate
	}
	return exception.Unusable
}

// others lists the servers of the group that a connection's request was matched to, each once. They come in the order of
// the group's slots, from a place on that differs by connection, so that what one server leaves is shared by weight.
func (d *Daemon) others(handle uint32) []uint32 {
	h := driver.Handle(handle)
	p, err := d.card.Page(context.Background(), h.N())
	if err != nil || p.ControlGeneration != h.Generation() || p.ChoiceGroup >= uint32(len(d.im.slots)) {
		return nil
	}
	slots := d.im.slots[p.ChoiceGroup]
	var list []uint32
	for i := range slots {
		w := slots[(int(h.N())+i)%len(slots)]
		if server := regs.SlotSlotServer(w); regs.SlotSlotValid(w) != 0 && !slices.Contains(list, server) {
			if list = append(list, server); len(list) == maxOthers {
				break
			}
		}
	}
	return list
}
