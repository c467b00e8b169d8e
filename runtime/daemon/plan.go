package daemon

import (
	"context"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
	"time"

	"splicenic/regs"
	"splicenic/runtime/config"
	"splicenic/runtime/schedule"
)

// groupTables lays out groups and their slots.
func (im *Image) groupTables(in *Inputs) error {
	im.groups.entry(max(im.ix.groups.Bound(), 1)-1, regs.GroupWords)
	im.slots = make([]schedule.Slots, im.ix.groups.Bound())
	im.plans = make([]schedule.Plan, im.ix.groups.Bound())
	im.pools = make([]config.Pool, im.ix.groups.Bound())
	im.limits = map[uint32][2]uint32{}
	for _, pool := range in.Config.Pools() {
		index, _ := im.ix.groups.Of(in.Config.PoolName(pool))
		im.pools[index] = pool
		if err := im.plan(in, index); err != nil {
			return err
		}
		p := &im.plans[index]
		e := regs.GroupEntry{
			ControlValid: 1, ControlMeans: p.Means, ControlMethod: methods[pool.Mode], ControlCompare: p.Compare, ControlHashKey: p.HashKey,
			ControlFallback: bit(p.Fallback), SeedLo: uint32(p.Seed), SeedHi: uint32(p.Seed >> 32),
		}
		e.Encode(im.groups.entry(index, regs.GroupWords))
		for i := range pool.Group.Servers {
			s := &pool.Group.Servers[i]
			if at, ok := im.server(in, pool, s); ok && s.Upper != 0 {
				im.limits[at] = [2]uint32{s.Upper, s.Lower}
			}
		}
	}
	return nil
}

// server is the index of a server of a pool.
func (im *Image) server(in *Inputs, pool config.Pool, s *config.Server) (uint32, bool) {
	p, ok := in.serverPlace(pool, s)
	if !ok {
		return 0, false
	}
	return im.ix.servers.Of(p.name())
}

// plan computes the slots of a group.
func (im *Image) plan(in *Inputs, index uint32) error {
	pool := im.pools[index]
	g := pool.Group
	from := in.servingPool(pool)
	var servers []schedule.Server
	grow := uint16(1)
	if from.Group != nil { // else the host answers
		grow = in.growth(from.Group)
		for i := range from.Group.Servers {
			s := &from.Group.Servers[i]
			at, _ := im.server(in, from, s)
			x := schedule.Server{Index: at, Weight: in.share(from.Group, s, grow), ID: s.Addr.String()}
			if at < uint32(len(in.Loads)) {
				l := in.Loads[at]
				x.Active, x.Inactive, x.Overloaded = l.Active, l.Inactive, l.Overloaded
			}
			servers = append(servers, x)
		}
	}
	if schedule.Kind(g.Scheduler).Hashes() && from.Group != nil {
		in.leaveOut(from, servers)
	}
	if i := g.Prefer - 1; i >= 0 && from.Group == g && !in.Down[g.Servers[i].Addr] && !in.Dead[member{g.Name, g.Servers[i].Addr}] {
		servers = servers[i : i+1]
		servers[0].Weight = max(servers[0].Weight, 1) // who comes back comes even to a server that takes no new clients
	}
	o := schedule.Options{Port: g.Hash.Port, Fallback: g.Hash.Fallback, Seed: in.seed(g), Now: in.Now}
	if g.Scheduler == "lblc" || g.Scheduler == "lblcr" {
		o.Destinations = in.destinations(pool)
	}
	p, err := schedule.Make(schedule.Kind(g.Scheduler), servers, o, in.Room.Slots, in.Plans[in.Config.PoolName(pool)])
	if err != nil {
		return fmt.Errorf("group %s: %w", g.Name, err)
	}
	p.Refresh = p.Refresh || grow > 1 || o.Destinations != nil
	im.plans[index], im.slots[index] = p, p.Slots
	return nil
}

// leaveOut takes the servers whose next hop is not resolved out of a table that the card hashes into: there a client whose
// place is theirs has no other, while a walk passes them over. Where that would leave none they stay.
func (in *Inputs) leaveOut(pool config.Pool, servers []schedule.Server) {
	resolved := make([]bool, len(servers))
	any := false
	for i := range servers {
		p, ok := in.serverPlace(pool, &pool.Group.Servers[i])
		_, known := in.Neighbours[p.hop.Hop]
		resolved[i] = ok && known
		any = any || resolved[i] && servers[i].Weight != 0
	}
	for i := range servers {
		if any && !resolved[i] {
			servers[i].Weight = 0
		}
	}
}

// seed is the key of a group's hash: cards with the same configuration hash alike.
func (in *Inputs) seed(g *config.Group) uint64 {
	h := fnv.New64a()
	h.Write([]byte(g.Name))
	return h.Sum64() ^ in.Config.Seed
}

// servingPool is the pool whose servers take the new connections of another: itself, unless it lost its quorum. Without a
// group the host answers.
func (in *Inputs) servingPool(p config.Pool) config.Pool {
	to := in.serving(p.Group)
	if to == p.Group {
		return p
	}
	if users := in.Config.Users(p); to != nil && len(users) > 0 {
		return in.Config.Pool(users[0], to)
	}
	return config.Pool{Group: to, UDP: p.UDP, Mode: p.Mode}
}

// share is a server's weight now, in a group whose weights are multiplied with grow.
func (in *Inputs) share(g *config.Group, s *config.Server, grow uint16) uint16 {
	weight := in.weight(g, s)
	if weight == 0 || grow <= 1 {
		return weight
	}
	return schedule.Ramp(weight*grow, in.Up[member{g.Name, s.Addr}], in.Now, g.SlowStart)
}

// rise notes which servers were found dead and are not any more: where a group starts slowly their weights grow from now on.
func (d *Daemon) rise(in *Inputs) {
	for m := range d.up {
		if g := in.Config.Group(m.group); g == nil || in.Dead[m] || in.Now.Sub(d.up[m]) >= g.SlowStart {
			delete(d.up, m)
		}
	}
	for m := range d.dead {
		if g := in.Config.Group(m.group); g != nil && g.SlowStart != 0 && !in.Dead[m] {
			d.up[m] = in.Now
		}
	}
	d.dead, in.Up = in.Dead, d.up
}

// growth is what the weights of a group are multiplied with while one of its servers starts slowly, so that a weight of one
// can grow too; one where none does.
func (in *Inputs) growth(g *config.Group) uint16 {
	most, growing := uint16(1), false
	for i := range g.Servers {
		s := &g.Servers[i]
		up, ok := in.Up[member{g.Name, s.Addr}]
		growing = growing || ok && in.Now.Sub(up) < g.SlowStart
		most = max(most, s.Weight, in.Weights[s.Addr])
	}
	if !growing || g.Scheduler == "fo" || g.Scheduler == "ovf" { // whose weights are not shares
		return 1
	}
	return min(100, 65535/most)
}

// destinations are the VIPs of the services that use a pool.
func (in *Inputs) destinations(pool config.Pool) []schedule.Destination {
	list := []schedule.Destination{}
	seen := map[netip.Addr]bool{}
	for _, s := range in.Config.Users(pool) {
		for _, l := range s.Listen {
			if a := l.Addr.Addr(); !seen[a] {
				seen[a] = true
				list = append(list, schedule.Destination{Addr: a})
			}
		}
	}
	return list
}

// refreshEvery is how often slots that follow from counters are computed again.
const refreshEvery = 10 * time.Millisecond

// refreshes says whether slots of an Image follow from counters.
func (im *Image) refreshes() bool {
	return slices.ContainsFunc(im.plans, func(p schedule.Plan) bool { return p.Refresh })
}

// follow computes the slots of groups that follow from counters again, and those of servers that start slowly. It writes idle
// areas and selectors only, not the banks.
func (d *Daemon) follow(ctx context.Context) error {
	if d.now < d.followed+refreshEvery || !d.im.refreshes() {
		return nil
	}
	d.followed = d.now
	if err := d.load(ctx); err != nil {
		return err
	}
	in := d.inputs(d.cfg)
	im := *d.im
	im.plans, im.slots = slices.Clone(im.plans), slices.Clone(im.slots)
	for i := range im.plans {
		if !d.im.plans[i].Refresh {
			continue
		}
		if err := im.plan(in, uint32(i)); err != nil {
			return err
		}
		if p, q := &im.plans[i], &d.im.plans[i]; p.Means != q.Means || p.Compare != q.Compare || p.HashKey != q.HashKey || p.Fallback != q.Fallback || p.Seed != q.Seed {
			d.stale = true // another means of choosing: the group entry changes, which takes a bank
			return nil
		}
	}
	if err := d.w.slots(ctx, &im); err != nil {
		return err
	}
	d.im = &im
	d.remember()
	return nil
}

// remember keeps what schedulers want to be told the next time.
func (d *Daemon) remember() {
	d.plans = map[string]*schedule.Memory{}
	for i := range d.im.plans {
		if m := d.im.plans[i].Memory; m != nil {
			d.plans[d.cfg.PoolName(d.im.pools[i])] = m
		}
	}
}

// load reads what the card counts of servers.
func (d *Daemon) load(ctx context.Context) error {
	n := d.im.ix.servers.Bound()
	words := make([]uint32, n*regs.ServerStateWords)
	if n == 0 {
		return nil
	}
	off, err := d.card.Memory(regs.MemServerState).At(0, 0)
	if err == nil {
		err = d.card.ReadTable(ctx, off, words)
	}
	if err != nil {
		return err
	}
	d.loads = make([]Load, n)
	for i := range d.loads {
		w := words[i*regs.ServerStateWords:]
		active, used := w[regs.ServerStateActive], w[regs.ServerStateUseCount]
		d.loads[i] = Load{Active: active, Inactive: used - min(active, used), Overloaded: regs.ServerStateFlagsOverloaded(w[regs.ServerStateFlags]) != 0}
	}
	return nil
}
