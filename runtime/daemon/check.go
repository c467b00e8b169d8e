package daemon

import (
	"cmp"
	"net/netip"

	"splicenic/runtime/config"
	"splicenic/runtime/exception"
	"splicenic/runtime/health"
	"splicenic/runtime/view"
)

// A member is a server of a group. The same server may be asked in another way as a member of another group.
type member struct {
	group  string
	server netip.AddrPort
}

// checks are the health checks of the configuration in force.
type checks struct {
	checker *health.Checker
	shown   uint64                   // version of the checker that the tables show
	hops    uint64                   // version of the neighbours that the checker knows
	quorums map[string]health.Quorum // by group, as the tables show them
	packets []health.Packet
}

// keyOfCheck is how the checker knows a server of a group; false where nobody asks it.
func keyOfCheck(g *config.Group, server netip.AddrPort) (k health.CheckKey, ok bool) {
	c := &g.Check
	k.Server = server
	k.Check = health.Check{
		Kind: kinds[c.Type], Port: c.Port, Interval: c.Interval, Timeout: c.Timeout, Rise: c.Rise, Fall: c.Fall, Down: c.StartDown,
		Path: c.Path, Host: c.Host, Send: c.Send, Expect: c.Expect,
	}
	for i, r := range c.Status[:min(len(c.Status), health.MaxRanges)] {
		k.Check.Status[i] = health.Range(r)
	}
	return k, c.Type != config.NoCheck
}

var kinds = map[config.CheckType]health.Kind{
	config.TCPCheck: health.TCP, config.HTTPCheck: health.HTTP, config.PingCheck: health.Ping, config.UDPCheck: health.UDP,
}

// wantChecks tells the checker whom to ask. Two groups that ask a server the same share its check.
func (d *Daemon) wantChecks() {
	d.checks.hops = d.h.Neighbours().Version()
	var targets []health.CheckTarget
	seen := map[health.CheckKey]bool{}
	for i := range d.cfg.Groups {
		g := &d.cfg.Groups[i]
		for _, s := range g.Servers {
			if k, ok := keyOfCheck(g, s.Addr); ok && !seen[k] {
				seen[k] = true
				t := health.CheckTarget{CheckKey: k}
				t.From, t.Ready = d.h.Source(s.Addr.Addr())
				targets = append(targets, t)
			}
		}
	}
	d.checks.checker.Want(targets, d.now)
}

// check sends the health checks that are due, and says what they found out. It returns true where the tables are to show
// something else.
func (d *Daemon) check() bool {
	if d.h.Neighbours().Version() != d.checks.hops {
		d.wantChecks()
	}
	d.checks.packets = d.checks.checker.Step(d.now, d.checks.packets[:0])
	for _, p := range d.checks.packets {
		d.h.Send(p.Data, p.To, exception.Check)
	}
	clear(d.checks.packets)
	for _, e := range d.checks.checker.Events() {
		if e.Up {
			d.log.Info("server is up", "server", e.Server, "check", e.Check.Kind, "result", e.Result)
		} else {
			d.log.Warn("server is down", "server", e.Server, "check", e.Check.Kind, "result", e.Result)
		}
	}
	return d.checks.checker.Version() != d.checks.shown
}

// deliver gives the checks an IP packet for an address of the card's; false where it answers none.
func (d *Daemon) deliver(packet []byte) bool { return d.checks.checker.Deliver(packet, d.now) }

// health adds what the tables depend on of the checks.
func (d *Daemon) health(in *Inputs) {
	in.Dead, in.Quorums = map[member]bool{}, map[string]health.Quorum{}
	for i := range in.Config.Groups {
		g := &in.Config.Groups[i]
		sum := uint64(0)
		for _, s := range g.Servers {
			if k, ok := keyOfCheck(g, s.Addr); ok && !d.checks.checker.Healthy(k) {
				in.Dead[member{g.Name, s.Addr}] = true
			}
			sum += uint64(in.weight(g, &s))
		}
		q := health.Quorum{Need: g.Quorum, Hysteresis: g.Hysteresis, Lost: d.checks.quorums[g.Name].Lost}
		in.Quorums[g.Name] = q.Next(sum)
	}
}

// serves notes that the tables show what in says, and logs which groups lost their quorum or have it again.
func (d *Daemon) serves(in *Inputs) {
	for i := range in.Config.Groups {
		g := &in.Config.Groups[i]
		was, is := d.checks.quorums[g.Name].Lost, in.Quorums[g.Name].Lost
		to := "none"
		if !g.Sorry.Nowhere() {
			to = g.Sorry.String()
		}
		switch {
		case is && !was:
			d.log.Warn("group lost its quorum", "group", g.Name, "sorry", to)
		case was && !is:
			d.log.Info("group has its quorum again", "group", g.Name, "sorry", to)
		}
	}
	d.checks.quorums = in.Quorums
}

// Close ends what the daemon's health checks run, and an examination that somebody waits for. It is the last call.
func (d *Daemon) Close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.checks.checker.Close()
	d.ended = true
	if d.exam != nil {
		d.exam.err = errEnded
		close(d.exam.done)
		d.exam = nil
	}
}

// weight is what a server of a group counts for new connections: the operator's weight or the configuration's, and none
// where it is dead.
func (in *Inputs) weight(g *config.Group, s *config.Server) uint16 {
	if in.Down[s.Addr] || in.Dead[member{g.Name, s.Addr}] {
		return 0
	}
	if w, ok := in.Weights[s.Addr]; ok {
		return w
	}
	return s.Weight
}

// serving finds the group whose servers take the new connections of g: g itself, or while it has no quorum the group that
// is sorry for it, and so on; nil where those are answered instead. Without anything sorry what is alive of a group goes on.
func (in *Inputs) serving(g *config.Group) *config.Group {
	for range in.Config.Groups { // a configuration has no rings, and this has an end all the same
		if !in.Quorums[g.Name].Lost || g.Sorry.Nowhere() {
			return g
		}
		next := in.Config.Group(g.Sorry.Group)
		if next == nil {
			return nil
		}
		g = next
	}
	return g
}

// dead says of servers whether every group that has them found them dead: they are closed to new connections, by whatever
// way those come.
func (in *Inputs) dead() map[netip.AddrPort]bool {
	dead := map[netip.AddrPort]bool{}
	for i := range in.Config.Groups {
		g := &in.Config.Groups[i]
		for _, s := range g.Servers {
			is := in.Down[s.Addr] || in.Dead[member{g.Name, s.Addr}]
			was, seen := dead[s.Addr]
			dead[s.Addr] = is && (was || !seen)
		}
	}
	return dead
}

// Health is how the groups of the configuration in force do, by name.
func (d *Daemon) Health() map[string]view.Health {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.groupHealth()
}

func (d *Daemon) groupHealth() map[string]view.Health {
	all := map[string]view.Health{}
	if d.cfg == nil {
		return all
	}
	of := map[health.CheckKey]health.Checked{}
	for _, c := range d.checks.checker.List() {
		of[c.CheckKey] = c
	}
	in := &Inputs{Config: d.cfg}
	d.health(in)
	for i := range d.cfg.Groups {
		g := &d.cfg.Groups[i]
		q := in.Quorums[g.Name]
		h := view.Health{
			Check: cmp.Or(string(g.Check.Type), "none"), Quorum: max(q.Need, 1), Hysteresis: q.Hysteresis, Lost: q.Lost,
			Serving: g.Sorry.String(), Servers: []view.ServerHealth{},
		}
		if to := in.serving(g); to != nil {
			h.Serving = to.Name
		}
		for _, s := range g.Servers {
			h.Weight += uint64(in.weight(g, &s))
			if k, ok := keyOfCheck(g, s.Addr); ok {
				h.Servers = append(h.Servers, d.serverHealth(of[k]))
			}
		}
		all[g.Name] = h
	}
	return all
}

func (d *Daemon) serverHealth(c health.Checked) view.ServerHealth {
	s := view.ServerHealth{
		Address: c.Server.String(), State: "down", SinceMS: (d.now - c.Since).Milliseconds(), Result: c.Result,
		Streak: c.Streak, Rises: c.Rises, Falls: c.Falls, Passed: c.Passed, Failed: c.Failed,
	}
	if c.Up {
		s.State = "up"
	}
	if c.Result != "" {
		s.AgeMS = (d.now - c.At).Milliseconds()
	}
	return s
}

// healthCounters are the checks in numbers, of all servers and of each.
func (d *Daemon) healthCounters(s view.Stats) {
	var up, down, rises, falls, passed, failed, lost uint64
	for _, c := range d.checks.checker.List() {
		if c.Up {
			up++
		} else {
			down++
		}
		rises, falls, passed, failed = rises+c.Rises, falls+c.Falls, passed+c.Passed, failed+c.Failed
	}
	groups := view.Stats{}
	for name, h := range d.groupHealth() {
		if h.Lost {
			lost++
		}
		groups[name] = h.Stats()
	}
	s["health"] = view.Stats{
		"up": up, "down": down, "rises": rises, "falls": falls, "passed": passed, "failed": failed, "quorum_lost": lost, "groups": groups,
	}
}
