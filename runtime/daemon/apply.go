package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"

	"splicenic/driver"
	"splicenic/regs"
	"splicenic/runtime/config"
	"splicenic/runtime/exception"
	"splicenic/runtime/neighbour"
	"splicenic/runtime/rule"
)

// Apply makes a configuration count. On an error the one before stays in force, and Status tells.
func (d *Daemon) Apply(ctx context.Context, c *config.Config) (*Applied, error) {
	a, was, err := d.change(ctx, c)
	if err != nil {
		return nil, err
	}
	a.Changes = config.Diff(was, c) // with many routes that takes a while, in which connections must not wait
	d.log.Info("configuration applied", "file", c.File, "generation", a.Generation, "changes", len(a.Changes))
	return a, nil
}

// change is Apply but for telling what changed from the configuration before, which it returns.
func (d *Daemon) change(ctx context.Context, c *config.Config) (a *Applied, was *config.Config, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	was = d.cfg
	a, err = d.apply(ctx, c)
	d.reloaded(err)
	return a, was, err
}

// Load reads a configuration and applies it. What is wrong with the text counts as a failed reload too.
func (d *Daemon) Load(ctx context.Context, file string, text []byte) (*Applied, error) {
	c, err := config.Load(file, text)
	if err != nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.reloaded(err)
		return nil, err
	}
	return d.Apply(ctx, c)
}

// reloaded notes how a reload went.
func (d *Daemon) reloaded(err error) {
	d.status.LastReload = &Reload{OK: err == nil, At: d.wall()}
	if err != nil {
		d.status.LastReload.Error = err.Error()
		d.log.Error("configuration not applied; the one before stays in force", "error", err)
	}
}

// Applied is what an Apply did.
type Applied struct {
	Generation uint32          `json:"generation"`
	Changes    []config.Change `json:"changes"`
	Warnings   []string        `json:"warnings"`
	Capacity   Capacity        `json:"capacity"`
}

// Capacity is what the routes of a configuration take of the card.
type Capacity struct {
	Rules    uint32 `json:"rules"` // with those that are out of use but keep their places
	RuleRoom uint32 `json:"rule_room"`
	Nodes    uint32 `json:"url_nodes"` // of a bank
	NodeRoom uint32 `json:"url_node_room"`
	Bytes    uint64 `json:"table_bytes"` // of a bank
	Slow     int    `json:"slow_rules"`  // that the host tests
}

// capacity tells what an Image takes of the room there is.
func (im *Image) capacity(in *Inputs) Capacity {
	c := Capacity{
		Rules: uint32(len(im.rules) / regs.RuleWords), RuleRoom: in.Room.Rules,
		Nodes: uint32(len(im.url) / regs.UrlNodeWords), NodeRoom: in.Room.URLNodes, Bytes: 4 * uint64(len(im.rules)+len(im.url)),
	}
	for i := range im.list {
		if im.list[i].Slow {
			c.Slow++
		}
	}
	return c
}

// Capacity tells what a configuration would take of the card, and changes nothing. What the card has no room for is an
// error, as with Apply.
func (d *Daemon) Capacity(c *config.Config) (Capacity, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.changeable(c); err != nil {
		return Capacity{}, err
	}
	in := d.inputs(c)
	im, err := images(in, d.inForce(c), &held{})
	if err != nil {
		return Capacity{}, err
	}
	return im.capacity(in), nil
}

func (d *Daemon) apply(ctx context.Context, c *config.Config) (*Applied, error) {
	if err := d.changeable(c); err != nil {
		return nil, err
	}
	first := d.cfg == nil
	old := d.inForce(c)
	in := d.inputs(c)
	im, err := images(in, old, &held{})
	if errors.Is(err, rule.ErrFull) { // find out what connections really name
		var keep *held
		if keep, err = d.audit(ctx, old); err == nil {
			im, err = images(in, old, keep)
		}
	}
	if err != nil {
		return nil, err
	}
	d.opening = d.opening || first && d.left == nil
	if err := d.defend(c); err != nil {
		return nil, err
	}
	if err := d.tell(c); err != nil {
		return nil, err
	}
	room := im.capacity(in)
	d.log.Info("tables computed", "rules", room.Rules, "of", room.RuleRoom, "url_nodes", room.Nodes, "room", room.NodeRoom, "slow_rules", room.Slow)
	if err := d.commit(ctx, im); err != nil {
		if d.left != nil { // the next attempt knows what this one may have begun
			d.left.state.Version = stateVersion
			d.left.state.lists(&im.ix)
		}
		return nil, err
	}
	d.forget(ctx, old, im)
	a := &Applied{Generation: d.generation(), Warnings: []string{}, Capacity: room}
	for _, w := range c.Warnings {
		a.Warnings = append(a.Warnings, w.String())
	}
	d.cfg, d.im, d.left = c, im, nil
	d.remember()
	d.keepLog(ctx)
	d.h.Configure(d.station(c, im), d.now)
	d.wantChecks()
	d.serves(in)
	d.drains(ctx)
	d.status.Applied = d.wall()
	if first {
		if err := d.begin(); err != nil {
			return nil, err
		}
	}
	d.again()
	return a, nil
}

// defend tells the card what its SYN defence goes by.
func (d *Daemon) defend(c *config.Config) error {
	p := c.Defence
	return d.card.SetDefence(driver.Defence{RateOn: p.RateOn, RateOff: p.RateOff, SourceRate: p.SourceRate, SourceBurst: p.SourceBurst})
}

// inForce are the indexes in force before a configuration. Next hops that a predecessor has resolved are known from now on.
func (d *Daemon) inForce(c *config.Config) *indexes {
	switch {
	case d.im != nil:
		return &d.im.ix
	case d.left != nil:
		x := d.left.indexes(c, room(d.card.Geometry()))
		d.seed(x)
		d.seedProfiles(x)
		return x
	}
	return &indexes{}
}

// commit brings the card to an Image; while it opens, up to what makes the Image count.
func (d *Daemon) commit(ctx context.Context, im *Image) error {
	d.save(im)
	if d.opening {
		_, err := d.w.prepare(ctx, im)
		return err
	}
	return d.w.write(ctx, im)
}

// generation is that of the tables last applied.
func (d *Daemon) generation() uint32 {
	if d.opening {
		return d.w.next()
	}
	return d.w.generation
}

// save writes the state file, where its text changes. A runtime without one goes on: its successor reads the tables.
func (d *Daemon) save(im *Image) {
	if d.stateFile == "" {
		return
	}
	id := d.card.Identity()
	s := &state{Version: stateVersion, Serial: id.Serial, DataPath: id.DataPathDigest, Banks: d.w.banks(im)}
	s.lists(&im.ix)
	text, err := json.Marshal(s)
	if err == nil && bytes.Equal(text, d.saved) {
		return
	}
	if err == nil {
		err = writeState(d.stateFile, text)
	}
	if d.saved = text; err != nil {
		d.saved = nil
		d.status.StateErrors++
		d.log.Error("state file not written; a successor will have to do without", "error", err)
	}
}

// forget clears the card's counters of rules and servers whose index was another's before.
func (d *Daemon) forget(ctx context.Context, old *indexes, im *Image) {
	for _, t := range []struct {
		memory      int
		from, words uint32 // of an entry
		old, now    rule.Indexes
	}{
		{regs.MemRuleCounter, 0, regs.RuleCounterWords, old.rules, im.ix.rules},
		{regs.MemServerState, regs.ServerStateConnectionsLo, regs.ServerStateFailed + 1 - regs.ServerStateConnectionsLo, old.servers, im.ix.servers},
	} {
		was := map[uint32]string{}
		for _, n := range append(t.old.Used(), t.old.Retired()...) {
			was[n.Index] = n.Name
		}
		m := d.card.Memory(t.memory)
		for _, n := range t.now.Used() {
			name, taken := was[n.Index]
			if !taken || name == n.Name {
				continue
			}
			off, err := m.At(0, n.Index)
			if err == nil {
				err = d.card.WriteTable(ctx, off+4*uint64(t.from), make([]uint32, t.words))
			}
			if err != nil {
				d.log.Warn("old counters not cleared", "table", m.Name, "index", n.Index, "error", err)
			}
		}
	}
}

// ErrRestart is the error of a change that a running daemon cannot make.
var ErrRestart = errors.New("needs a restart")

// changeable refuses what only a new start can change.
func (d *Daemon) changeable(c *config.Config) error {
	ports := d.card.Geometry().Ports
	if uint32(len(c.Ports())) > ports {
		return fmt.Errorf("the configuration has %d ports, the card has %d", len(c.Ports()), ports)
	}
	old := d.cfg
	if old == nil {
		return nil
	}
	for _, k := range []struct {
		key  string
		same bool
	}{
		{"card", old.Card.String() == c.Card.String()},
		{"emu", old.Emu.Client.String() == c.Emu.Client.String() && old.Emu.Server.String() == c.Emu.Server.String() && old.Emu.Flash == c.Emu.Flash},
		{"ports.server", old.OneArmed == c.OneArmed},
		{"seed", old.Seed == c.Seed},
		{"socket", old.Socket == c.Socket},
	} {
		if !k.same {
			return fmt.Errorf("%s: %s changed: %w", c.File, k.key, ErrRestart)
		}
	}
	return nil
}

// Configuration returns the configuration in force, nil before the first.
func (d *Daemon) Configuration() *config.Config {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.cfg
}

// room reads how much the card's tables hold.
func room(g driver.Geometry) Room {
	return Room{
		Listeners: g.Listeners, Services: g.Services, Groups: g.Groups, Servers: g.Servers, NextHops: g.NextHops, VIPs: g.VIPs, LocalAddresses: g.LocalAddresses,
		Rules: g.Rules, URLNodes: g.URLNodes, Slots: g.Slots,
	}
}

// ports reads what the card's ports are.
func (d *Daemon) ports() (ports [2]exception.Port, mtu [2]uint16) {
	for i := range ports {
		at := func(r regs.Reg) uint32 { return d.card.Load(r.At(i, regs.PortStride)) }
		ports[i] = exception.Port{
			MAC: driver.MAC(at(regs.PortMacLo), regs.PortMacHiAddress(at(regs.PortMacHi))),
			MTU: uint16(regs.PortMtuBytes(at(regs.PortMtu))),
		}
		mtu[i] = ports[i].MTU
	}
	return ports, mtu
}

// inputs collects what the tables depend on.
func (d *Daemon) inputs(c *config.Config) *Inputs {
	in := &Inputs{Config: c, Room: room(d.card.Geometry()), Neighbours: map[config.Hop]neighbour.MAC{}, Profiles: map[netip.AddrPort]config.Profile{}}
	_, in.MTU = d.ports()
	in.Now, in.Loads, in.Plans = d.wall(), d.loads, d.plans
	in.PathMTU, _ = d.h.Paths()
	for _, n := range d.h.Neighbours().List(d.now) {
		if n.Usable() {
			in.Neighbours[config.Hop{Port: n.Port, VLAN: n.VLAN, Neighbor: n.Addr}] = n.MAC
		}
	}
	for _, s := range d.h.Prober().List(d.now) {
		in.Profiles[s.Address] = config.Profile(s.Profile)
	}
	d.known = d.h.Prober().Version()
	d.health(in)
	d.rise(in)
	return in
}

// station is what the exception handler is told about the card.
func (d *Daemon) station(c *config.Config, im *Image) exception.Station {
	ports, _ := d.ports()
	st := exception.Station{
		Ports: ports[:len(c.Ports())], Config: c, Opening: d.opening,
		Services: serviceStations(c, im), Groups: map[uint32]*config.Group{},
	}
	for i, pool := range im.pools {
		if pool.Group != nil {
			st.Groups[uint32(i)] = pool.Group
		}
	}
	for _, n := range sorted(im.ix.vipAt) {
		st.VIPs = append(st.VIPs, im.ix.vipAt[n])
	}
	for _, n := range sorted(im.ix.localAt) {
		st.Locals = append(st.Locals, im.ix.localAt[n])
	}
	for _, n := range sorted(im.ix.hopAt) {
		if h := im.ix.hopAt[n]; !h.nameless {
			st.Hops = append(st.Hops, h.Hop)
		}
	}
	for _, n := range sorted(im.ix.serverAt) {
		if a := im.ix.serverAt[n].addr; a.IsValid() {
			st.Servers = append(st.Servers, a)
		}
	}
	for _, n := range sorted(im.ix.localAt) {
		st.Locals = append(st.Locals, im.ix.localAt[n])
	}
	return st
}

// serviceStations are the services with what the card knows their rules by.
func serviceStations(c *config.Config, im *Image) map[uint32]*exception.Service {
	services := map[uint32]*exception.Service{}
	for i := range c.Services {
		s := &c.Services[i]
		index, _ := im.ix.services.Of(s.Name)
		services[index] = &exception.Service{Service: s, Rules: make([]uint32, len(s.Routes)), Answers: map[uint32]int{}}
	}
	for i := range im.list {
		r := &im.list[i]
		s := services[r.Service]
		s.Rules[r.Place] = r.Index + 1
		if r.Answer {
			s.Answers[r.Index] = r.Place
		}
	}
	return services
}

// refresh brings the tables to what they should be now: a neighbour changed, or an earlier attempt failed.
func (d *Daemon) refresh() {
	d.seen, d.paths, d.checks.shown = d.h.Neighbours().Version(), d.h.PathVersion(), d.checks.checker.Version()
	in := d.inputs(d.cfg)
	im, err := images(in, &d.im.ix, &held{})
	if err == nil {
		err = d.commit(context.Background(), im)
	}
	d.stale = err != nil
	if err != nil {
		d.log.Error("tables not written", "error", err)
		d.status.TableErrors++
		return
	}
	d.im = im
	d.remember()
	d.serves(in)
	d.opened()
}

// Reset resets the card's data path and writes its tables again. All connections are lost.
func (d *Daemon) Reset(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.card.Reset(ctx); err != nil {
		return err
	}
	w := newWriter(d.card)
	w.generation = d.w.generation
	d.w, d.left = w, nil
	d.status.Attached, d.status.Accepting = Reset, false
	if d.cfg == nil {
		return nil
	}
	d.logging.Abandon()
	d.im = &Image{} // nothing has an index in an empty card
	d.opening, d.openBy = true, 0
	if err := d.defend(d.cfg); err != nil {
		return err
	}
	if err := d.tell(d.cfg); err != nil {
		return err
	}
	d.refresh()
	d.h.Configure(d.station(d.cfg, d.im), d.now)
	if err := d.begin(); err != nil {
		return fmt.Errorf("open card after reset: %w", err)
	}
	if d.open() { // the next hops are known from before
		d.refresh()
	}
	if d.stale {
		return errors.New("tables not written after reset; tried again every second")
	}
	return nil
}
