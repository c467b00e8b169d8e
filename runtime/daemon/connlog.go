package daemon

import (
	"context"
	"net/netip"
	"strconv"
	"time"

	"splicenic/driver"
	"splicenic/regs"
	"splicenic/runtime/config"
	"splicenic/runtime/connlog"
	"splicenic/runtime/view"
)

// The log of connections is put together in Step, from the events that come anyway, and written by a goroutine of Run.
// Whether there is one is the configuration's to say; without, the card is not asked for what only the log wants.

// logging is the log of connections and what it takes.
type logging struct {
	*connlog.Log
	writer *connlog.Writer
	on     bool
	im     *Image // that its names are of
}

func newLogging(d *Daemon) logging {
	w := connlog.NewWriter(d.log)
	return logging{Log: connlog.New(func(l *connlog.Line) { w.Put(l) }), writer: w}
}

// tell has the card tell what a configuration wants to know.
func (d *Daemon) tell(c *config.Config) error {
	on := c.Log.File != ""
	return d.card.SetEvents(driver.EventKinds{Established: on, FirstByte: on, Heads: on})
}

// keepLog brings the log to what the configuration in force says. One that begins knows the connections there are.
func (d *Daemon) keepLog(ctx context.Context) {
	s, x := d.cfg.Log, &d.logging
	was := x.on
	if x.on = s.File != ""; x.on || was {
		x.writer.Set(connlog.Settings{File: s.File, Bytes: s.Bytes, Keep: s.Keep})
	}
	switch {
	case !x.on:
		x.Forget()
	case !was && !d.idle():
		d.rename()
		tick, at := d.card.Load(regs.TimerTick), d.wall()
		err := d.card.Connections(ctx, func(n uint32, p *regs.PageEntry) bool {
			x.Found(n, p, driver.Address(p.ControlKind, p.ClientAddress), tick, at)
			return true
		})
		if err != nil {
			d.log.Warn("the log of connections does not know all that there are", "error", err)
		}
	}
}

// logEvents has the log take events.
func (d *Daemon) logEvents(es []regs.EventEntry) {
	if !d.logging.on || len(es) == 0 {
		return
	}
	d.rename()
	tick, now := d.card.Load(regs.TimerTick), d.wall()
	for i := range es {
		ago := int32(tick - es[i].Tick) // a tick is a millisecond
		d.logging.Event(&es[i], d.card.Begin(&es[i]), now.Add(-time.Duration(ago)*time.Millisecond))
	}
}

// rename gives the log the names of the tables as they are.
func (d *Daemon) rename() {
	if x := &d.logging; x.im != d.im {
		x.im = d.im
		x.SetNames(d.im.names(d.cfg))
	}
}

// indexNames are the names that the log uses, by index.
type indexNames struct {
	im       *Image
	services map[uint32]string
	kinds    map[uint32]connlog.Kind
	rules    []int32 // place in im.list plus one
}

// firstBytes is what clients of a protocol send first.
var firstBytes = [...]connlog.Kind{config.HTTP: connlog.Request, config.TLS: connlog.Hello, config.TCP: connlog.Opaque}

func (im *Image) names(c *config.Config) *indexNames {
	n := &indexNames{im: im, services: map[uint32]string{}, kinds: map[uint32]connlog.Kind{}, rules: make([]int32, im.ix.rules.Bound())}
	for _, s := range im.ix.services.Retired() {
		n.services[s.Index] = s.Name
	}
	for i := range c.Services {
		if at, ok := im.ix.services.Of(c.Services[i].Name); ok {
			n.services[at], n.kinds[at] = c.Services[i].Name, firstBytes[c.Services[i].Protocol]
		}
	}
	for i := range im.list {
		n.rules[im.list[i].Index] = int32(i) + 1
	}
	return n
}

func (n *indexNames) Service(i uint32) (string, connlog.Kind) {
	if name, ok := n.services[i]; ok {
		return name, n.kinds[i]
	}
	return number(i), connlog.Opaque
}

func (n *indexNames) VIP(i uint32) (netip.Addr, bool) {
	a, ok := n.im.ix.vipAt[i]
	return a, ok
}

func (n *indexNames) Server(i uint32) string {
	if p, ok := n.im.ix.serverAt[i]; ok && p.addr.IsValid() {
		return p.addr.String()
	}
	return number(i)
}

func (n *indexNames) Rule(i uint32) string {
	if i < uint32(len(n.rules)) && n.rules[i] != 0 {
		m := &n.im.list[n.rules[i]-1].Match
		return m.Host + m.Path.String() // what else it asks for may be nobody's business
	}
	return ""
}

func (n *indexNames) Reason(r uint32) string { return view.EventReason(r) }

func number(i uint32) string { return strconv.FormatUint(uint64(i), 10) }

// counters are the log's: lines put together, and what became of them.
func (x *logging) counters() view.Stats {
	s, c, w := view.Stats{}, x.Counters(), x.writer.Written()
	s.Set("lines", c.Lines)
	s.Set("partial", c.Partial)
	s.Set("unseen", c.Unseen)
	s.Set("written", w.Lines)
	s.Set("dropped", w.Dropped)
	s.Set("failed", w.Failed)
	s.Set("rotated", w.Rotated)
	s.Set("reopened", w.Reopened)
	s.Set("errors", w.Errors)
	return s
}
