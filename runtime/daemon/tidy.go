package daemon

import (
	"context"
	"time"

	"splicenic/regs"
	"splicenic/runtime/view"
)

// releaseInterval is how often retired entries are looked at.
const releaseInterval = time.Second

// auditEvery is how many release intervals pass between two readings of all pages for retired VIPs.
const auditEvery = 10

// tidy releases retired entries that no connection names any more, and tries again what could not be written.
func (d *Daemon) tidy() {
	d.causes()
	if d.cfg == nil {
		return
	}
	if d.stale {
		d.refresh()
	}
	d.watchPorts(context.Background())
	ix := &d.im.ix
	servers := len(ix.serverAt) > len(ix.servers.Used())
	vips := len(ix.vipAt) > len(ix.vips.Used())
	d.status.tidied++
	if d.stale || !servers && !vips {
		return
	}
	keep, err := &held{servers: d.usedServers(context.Background(), ix)}, error(nil)
	if vips && (d.idle() || d.status.tidied%auditEvery == 0) {
		keep, err = d.audit(context.Background(), ix)
	}
	if err == nil && ix.releasable(keep) {
		var im *Image
		if im, err = images(d.inputs(d.cfg), ix, keep); err == nil {
			err = d.commit(context.Background(), im)
		}
		if err == nil {
			d.im = im
			d.h.Configure(d.station(d.cfg, im), d.now)
		}
	}
	if err != nil {
		d.log.Error("retired entries not released", "error", err)
		d.status.TableErrors++
	}
}

// causes looks at what the card reports beside its rings. After a link came back the neighbours are told our addresses
// again: they may be others than before.
func (d *Daemon) causes() {
	c := d.card.Causes()
	if c == 0 {
		return
	}
	for i, name := range causeNames {
		if c&(1<<i) != 0 {
			d.status.causes[i]++
			d.log.Warn("card reports", "cause", name)
		}
	}
	if regs.HostifCauseLink(c) != 0 {
		d.h.Neighbours().Reannounce(d.now)
	}
}

// causeNames are the bits of hostif.cause.
var causeNames = [...]string{"link", "head_low", "pages_low", "dma", "sensor"}

// watchPorts warns of servers that are running out of local ports.
func (d *Daemon) watchPorts(ctx context.Context) {
	for _, i := range sorted(d.w.lists) {
		off, err := d.card.Memory(regs.MemServerState).At(0, i)
		var words [regs.ServerStateWords]uint32
		if err == nil {
			err = d.card.ReadTable(ctx, off, words[:])
		}
		if err != nil {
			return
		}
		size, free := words[regs.ServerStatePortsSize], words[regs.ServerStatePortsFree]
		low := view.PortsLow(size, free)
		if low && !d.portsLow[i] {
			d.log.Warn("server is running out of local ports: add addresses to local of its group", "server", d.im.ix.serverAt[i].addr, "ports", size, "free", free)
		}
		d.portsLow[i] = low
		if !low {
			delete(d.portsLow, i)
		}
	}
	for i := range d.portsLow {
		if _, there := d.w.lists[i]; !there {
			delete(d.portsLow, i)
		}
	}
}

// releasable says whether a retired server or VIP that still has its entry may lose it.
func (x *indexes) releasable(keep *held) bool {
	for _, n := range x.servers.Retired() {
		if _, there := x.serverAt[n.Index]; there && keep.servers.free(n.Index) {
			return true
		}
	}
	for _, n := range x.vips.Retired() {
		if _, there := x.vipAt[n.Index]; there && keep.vips.free(n.Index) {
			return true
		}
	}
	return false
}

// idle says whether no page is in use.
func (d *Daemon) idle() bool {
	return d.card.Load(regs.AmuLive) == 0 && d.card.Load(regs.AmuQuarantined) == 0
}

// usedServers tells from the card's use counts which servers connections name.
func (d *Daemon) usedServers(ctx context.Context, ix *indexes) hold {
	counts, err := d.useCounts(ctx, ix.servers.Bound())
	return func(i uint32) bool { return err != nil || i >= uint32(len(counts)) || counts[i] != 0 }
}

// useCounts reads how many connections name each of the first n servers.
func (d *Daemon) useCounts(ctx context.Context, n uint32) ([]uint32, error) {
	if n == 0 {
		return nil, nil
	}
	words := make([]uint32, n*regs.ServerStateWords)
	off, err := d.card.Memory(regs.MemServerState).At(0, 0)
	if err == nil {
		err = d.card.ReadTable(ctx, off, words)
	}
	counts := make([]uint32, n)
	for i := range counts {
		counts[i] = words[i*regs.ServerStateWords+regs.ServerStateUseCount]
	}
	return counts, err
}

// audit reads all pages and tells which entries they name. Connections that open meanwhile name none of the retired ones.
func (d *Daemon) audit(ctx context.Context, ix *indexes) (*held, error) {
	vips, services, groups, rules := map[uint32]bool{}, map[uint32]bool{}, map[uint32]bool{}, map[uint32]bool{}
	if !d.idle() {
		err := d.card.Connections(ctx, func(_ uint32, p *regs.PageEntry) bool {
			vips[p.IndexVip], services[p.IndexService], groups[p.ChoiceGroup] = true, true, true
			if p.Rule != 0 {
				rules[p.Rule-1] = true
			}
			return true
		})
		if err != nil {
			return nil, err
		}
	}
	in := func(m map[uint32]bool) hold { return func(i uint32) bool { return m[i] } }
	return &held{vips: in(vips), services: in(services), groups: in(groups), servers: d.usedServers(ctx, ix), rules: in(rules)}, nil
}
