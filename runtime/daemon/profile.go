package daemon

import (
	"net/netip"
	"slices"
	"time"

	"splicenic/regs"
	"splicenic/runtime/config"
	"splicenic/runtime/health"
)

// learn takes in what the card found out about a server by the SYN-ACK of a connection. The tables follow in the same step.
func (d *Daemon) learn(e *regs.EventEntry) {
	if d.im == nil {
		return
	}
	at, ok := d.im.ix.serverAt[e.IndexServer]
	if !ok || !at.addr.IsValid() {
		return
	}
	d.h.Prober().Learned(at.addr, profileOf(e.Delta), d.now)
	if !d.configured(at.addr).Known || d.odd[at.addr] == e.Delta {
		return
	}
	if d.odd == nil {
		d.odd = map[netip.AddrPort]uint32{}
	}
	d.odd[at.addr] = e.Delta
	d.log.Warn("server does not keep the profile that the configuration gives it", "server", at.addr, "says", config.Profile(profileOf(e.Delta)).String())
}

// configured is the profile that the configuration gives a server; not known where it gives none.
func (d *Daemon) configured(a netip.AddrPort) config.Profile {
	for i := range d.cfg.Groups {
		for _, s := range d.cfg.Groups[i].Servers {
			if s.Addr == a {
				return s.Profile
			}
		}
	}
	return config.Profile{}
}

// profileOf reads a word laid out as server.profile.
func profileOf(word uint32) health.Profile {
	return health.Profile{
		Known: regs.ServerProfileKnown(word) != 0, MSS: uint16(regs.ServerProfileMss(word)),
		WScale: uint8(regs.ServerProfileWscale(word)), WScaleOn: regs.ServerProfileWscaleOn(word) != 0,
		SACK: regs.ServerProfileSack(word) != 0, Timestamps: regs.ServerProfileTimestamps(word) != 0, ECN: regs.ServerProfileEcn(word) != 0,
	}
}

// seedProfiles tells the prober what a predecessor knew of servers.
func (d *Daemon) seedProfiles(x *indexes) {
	for _, i := range sorted(x.serverAt) {
		if p := x.serverAt[i]; p.left != nil && p.addr.IsValid() {
			d.h.Prober().Seed(p.addr, profileOf(p.left[regs.ServerProfile]), d.now)
		}
	}
}

// A Server is what is known of a server of the configuration.
type Server struct {
	Address netip.AddrPort
	Profile config.Profile
	From    string        // Configured, or the state of its probes
	Age     time.Duration // since it was learned or confirmed; zero where nothing is known, and of what is configured
}

// Configured says that the configuration gives a profile, so that nobody asks for one.
const Configured = "configured"

// Servers lists the servers of the configuration in force, in order.
func (d *Daemon) Servers() []Server {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.servers()
}

func (d *Daemon) servers() []Server {
	var list []Server
	for _, s := range d.h.Prober().List(d.now) {
		list = append(list, Server{Address: s.Address, Profile: config.Profile(s.Profile), From: s.State.String(), Age: s.Age})
	}
	if d.cfg == nil {
		return list
	}
	seen := map[netip.AddrPort]bool{}
	for i := range d.cfg.Groups {
		for _, s := range d.cfg.Groups[i].Servers {
			if s.Profile.Known && !seen[s.Addr] {
				seen[s.Addr] = true
				list = append(list, Server{Address: s.Addr, Profile: s.Profile, From: Configured})
			}
		}
	}
	slices.SortFunc(list, func(a, b Server) int { return a.Address.Compare(b.Address) })
	return list
}
