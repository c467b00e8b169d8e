package daemon

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"splicenic/driver"
	"splicenic/regs"
	"splicenic/runtime/exception"
)

// maxOthers is how many servers are tried for a request at most, those included that turn out to be closed.
const maxOthers = 16

// connect offers a connection's request to a server.
func (d *Daemon) connect(handle uint32, x *exception.Connect) exception.Outcome {
	c := driver.Connect(*x)
	_, err := d.card.Connect(context.Background(), driver.Handle(handle), &c)
	return outcome(err)
}

// take copies what the card holds of a client's bytes.
func (d *Daemon) take(handle uint32, keep bool, to []byte) (n int, boundary uint32, o exception.Outcome) {
	n, boundary, err := d.card.TakeHead(context.Background(), driver.Handle(handle), keep, to)
	return n, boundary, outcome(err)
}

// feed gives the card more of what a server is owed.
func (d *Daemon) feed(handle uint32, chunk []byte) exception.Outcome {
	return outcome(d.card.Feed(context.Background(), driver.Handle(handle), chunk))
}

// refused logs whom a service refused.
func (d *Daemon) refused(client netip.AddrPort, service string, why exception.Reason) {
	d.log.Info("request refused", "client", client, "service", service, "reason", why.String())
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

// others lists the servers of a group, each once. They come in the order of the group's slots, from a place on that
// differs by connection, so that what one server leaves is shared by weight.
func (d *Daemon) others(handle, group uint32) []uint32 {
	if group >= uint32(len(d.im.slots)) {
		return nil
	}
	n, slots := int(driver.Handle(handle).N()), d.im.slots[group]
	var list []uint32
	for i := range slots {
		w := slots[(n+i)%len(slots)]
		if server := regs.SlotSlotServer(w); regs.SlotSlotValid(w) != 0 && !slices.Contains(list, server) {
			if list = append(list, server); len(list) == maxOthers {
				break
			}
		}
	}
	return list
}
