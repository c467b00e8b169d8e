package daemon

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"splicenic/runtime/config"
	"splicenic/runtime/doctor"
	"splicenic/runtime/exception"
	"splicenic/runtime/neighbour"
)

// ErrUnconfigured says that nobody knows yet what the card is to do.
var ErrUnconfigured = errors.New("no configuration is in force")

var errEnded = errors.New("examine: the runtime ended before it was over")

// exam is an examination that is going on.
type exam struct {
	*doctor.Doctor
	done    chan struct{} // closed when found or err is there
	found   []doctor.Finding
	err     error
	packets []doctor.Packet
}

// Examine looks at what is around the card: who else answers for its VIPs, which servers do not take what is sent to them,
// and how much fits on the way. It takes some seconds, in which the daemon has to be stepped; who calls it meanwhile waits
// for the same result.
func (d *Daemon) Examine(ctx context.Context) ([]doctor.Finding, error) {
	d.mu.Lock()
	x, err := d.beginExam()
	d.mu.Unlock()
	if err != nil {
		return nil, err
	}
	d.again()
	select {
	case <-x.done:
		return x.found, x.err
	case <-ctx.Done():
		return nil, fmt.Errorf("examine: %w", context.Cause(ctx))
	}
}

// beginExam begins an examination, unless one is going on.
func (d *Daemon) beginExam() (*exam, error) {
	switch {
	case d.ended:
		return nil, errEnded
	case d.cfg == nil:
		return nil, ErrUnconfigured
	case d.exam == nil:
		cfg := d.surroundings()
		cfg.Key = d.examKey
		d.examKey = sha256.Sum256(append([]byte("next"), cfg.Key[:]...))
		d.exam = &exam{Doctor: doctor.Start(cfg), done: make(chan struct{})}
	}
	return d.exam, nil
}

// examine sends what the examination has to send, and ends it.
func (d *Daemon) examine() {
	x := d.exam
	if x == nil {
		return
	}
	x.packets = x.Step(d.now, x.packets[:0])
	for _, p := range x.packets {
		if p.To.IsValid() {
			d.h.Send(p.Data, p.To, exception.Examine)
		} else {
			d.h.SendFrame(p.Data, p.Port)
		}
	}
	clear(x.packets)
	if x.Done() {
		x.found = x.Result()
		close(x.done)
		d.exam = nil
	}
}

// examined gives the examination a frame; false where it is nobody's answer, or others want it, too.
func (d *Daemon) examined(port int, frame []byte) bool {
	return d.exam != nil && d.exam.Deliver(port, frame, d.now)
}

// surroundings is what is known of the networks around the card.
func (d *Daemon) surroundings() doctor.Config {
	ports, mtu := d.ports()
	var cfg doctor.Config
	for i, p := range d.cfg.Ports() {
		for _, a := range p.Addresses {
			k := slices.IndexFunc(cfg.Links, func(l doctor.Link) bool { return l.Port == i && l.VLAN == a.VLAN })
			if k < 0 {
				k = len(cfg.Links)
				cfg.Links = append(cfg.Links, doctor.Link{Port: i, VLAN: a.VLAN, Name: linkName(d.cfg, i, a.VLAN), MAC: doctor.MAC(ports[i].MAC)})
			}
			cfg.Links[k].Own = append(cfg.Links[k].Own, a.Prefix)
		}
	}
	at := map[netip.Addr]int{}
	for i := range d.cfg.Services {
		s := &d.cfg.Services[i]
		for _, l := range s.Listen {
			if !slices.Contains(cfg.VIPs, l.Addr.Addr()) {
				cfg.VIPs = append(cfg.VIPs, l.Addr.Addr())
			}
		}
		for _, g := range d.cfg.Reachable(s) {
			pool := d.cfg.Pool(s, g)
			for k := range g.Servers {
				to := &g.Servers[k]
				n, ok := at[to.Addr.Addr()]
				if !ok {
					n = len(cfg.Servers)
					at[to.Addr.Addr()] = n
					cfg.Servers = append(cfg.Servers, d.toExamine(to.Addr.Addr(), mtu))
				}
				if m := pool.Method(to); m == config.DR || m == config.Tun {
					targets(&cfg, &cfg.Servers[n], s, to, m)
				}
			}
		}
	}
	return cfg
}

func linkName(c *config.Config, port int, vlan uint16) string {
	name := [...]string{"client port", "server port"}[port]
	if c.OneArmed {
		name = "port"
	}
	if vlan != 0 {
		name += fmt.Sprintf(" VLAN %d", vlan)
	}
	return name
}

// toExamine is what is known of a server.
func (d *Daemon) toExamine(a netip.Addr, mtu [2]uint16) doctor.Server {
	s := doctor.Server{Address: a}
	hop, ok := d.cfg.Route(a)
	if !ok {
		return s
	}
	s.Link, s.Hop, s.MTU = linkName(d.cfg, hop.Port, hop.VLAN), hop.Neighbor, int(mtu[hop.Port])
	s.From, s.Ready = d.h.Source(a)
	mac, _ := d.h.Neighbours().Get(neighbour.Key{Port: hop.Port, VLAN: hop.VLAN, Addr: hop.Neighbor})
	s.MAC = doctor.MAC(mac)
	return s
}

// targets adds the VIPs of a service that a server has to own, each once.
func targets(cfg *doctor.Config, to *doctor.Server, s *config.Service, server *config.Server, m config.Mode) {
	for _, l := range s.Listen {
		vip := l.Addr
		t := doctor.Target{Service: s.Name, VIP: vip, Method: m, Any: s.Protocol == config.UDP || vip.Port() == 0}
		if m == config.Tun {
			t.Tunnel = server.Tunnel
		}
		if vip.Port() == 0 {
			t.VIP = netip.AddrPortFrom(vip.Addr(), anyPort)
		}
		if slices.ContainsFunc(to.Targets, func(o doctor.Target) bool {
			return o.Service == t.Service && o.VIP.Addr() == vip.Addr() && o.Method == m && o.Tunnel == t.Tunnel
		}) {
			continue
		}
		if t.From = to.From; t.From.IsValid() && t.From.Is4() != vip.Addr().Is4() {
			t.From = netip.Addr{}
			for i := range cfg.Links {
				if cfg.Links[i].Name == to.Link {
					t.From = own(cfg.Links[i].Own, vip.Addr())
				}
			}
		}
		to.Targets = append(to.Targets, t)
	}
}

// own is an address of ours of a family.
func own(list []netip.Prefix, family netip.Addr) netip.Addr {
	for _, p := range list {
		if p.Addr().Is4() == family.Is4() {
			return p.Addr()
		}
	}
	return netip.Addr{}
}

// anyPort is asked where a service has every port of an address.
const anyPort = 80
