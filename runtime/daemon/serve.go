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
	if why == exception.ModuleEncrypted {
		d.log.Info("control connection is encrypted now; the connections that follow it are not known: clients need EPSV, and a listener for the ports that servers name", "client", client, "service", service)
		return
	}
	d.log.Info("request refused", "client", client, "service", service, "reason", why.String())
}

// reply answers a client in a server's place.
func (d *Daemon) reply(handle uint32, answer []byte) exception.Outcome {
	return outcome(d.card.Reply(context.Background(), driver.Handle(handle), answer))
}

// pass makes ready for a connection that follows another, to any port of the same server.
func (d *Daemon) pass(x *exception.Pass) (handle uint32, o exception.Outcome) {
	p, ok := d.im.ix.serverAt[x.Server]
	if !ok {
		return 0, exception.Unusable
	}
	p = p.everyPort(x.UDP)
	server, ok := d.im.ix.servers.Of(p.name())
	vip, known := d.im.ix.vips.Of(x.VIP.Addr().String())
	if !ok || !known {
		return 0, exception.Unusable
	}
	h, err := d.card.Pass(context.Background(), &driver.Pass{
		UDP: x.UDP, Client: x.Client, VIP: vip, VIPPort: x.VIP.Port(), VLAN: x.VLAN, Service: x.Service, Server: server, Port: x.Port,
		Template: !x.FromServer, FromServer: x.FromServer, Beside: driver.Handle(x.Beside),
	})
	return uint32(h), outcome(err)
}

// adjust makes a stream longer.
func (d *Daemon) adjust(handle uint32, server bool, boundary uint32, bytes int32) exception.Outcome {
	return outcome(d.card.Adjust(context.Background(), driver.Handle(handle), server, boundary, bytes))
}

// free forgets a connection. One that is gone already needs nothing.
func (d *Daemon) free(handle uint32) {
	if err := d.card.Free(context.Background(), driver.Handle(handle)); err != nil {
		d.log.Debug("connection is gone already", "handle", handle, "error", err)
	}
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
