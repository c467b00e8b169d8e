package doctor

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"

	"splicenic/runtime/config"
)

// What a Finding may be.
const (
	OK   = "ok"
	Fail = "fail"
	NA   = "n/a"
)

// A Finding is one line of what was found.
type Finding struct {
	What   string `json:"name"`
	Where  string `json:"where"`
	Status string `json:"status"` // ok, fail or n/a
	Number string `json:"number"` // what was found, with its unit
	Why    string `json:"why"`    // of fail and n/a: what follows from it
	Do     string `json:"fix"`    // the command; empty: nothing to do
}

// Result is what was found, in the order of the configuration. It is whole when the examination is over.
func (d *Doctor) Result() []Finding {
	list := []Finding{}
	alive := map[netip.Addr]bool{}
	for _, t := range d.tasks {
		if t.kind == path {
			alive[t.server.Address] = t.alive
		}
	}
	for _, t := range d.tasks {
		switch t.kind {
		case ask:
			list = append(list, d.claim(t))
		case path:
			list = append(list, t.fits())
		case syn:
			list = append(list, t.owns(alive[t.server.Address]))
		}
	}
	if d.left > 0 {
		list = append(list, Finding{"everything else", "all ports", NA, fmt.Sprintf("%d questions not asked", d.left), fmt.Sprintf("an examination asks %d at most", maxTasks), ""})
	}
	return list
}

// claim is who else answers for a VIP.
func (d *Doctor) claim(t *task) Finding {
	f := Finding{What: "VIP " + t.vip.String() + " is nobody else's", Where: t.link.Name, Status: OK, Number: "nobody else answers " + protocolOf(t.vip)}
	if len(t.macs) == 0 {
		return f
	}
	f.Status = Fail
	var names, direct []string
	known := false
	for _, m := range t.macs {
		name := m.String()
		var of []string
		for i := range d.cfg.Servers {
			s := &d.cfg.Servers[i]
			if !s.Ready || s.MAC != m || s.Hop != s.Address {
				continue
			}
			of = append(of, s.Address.String())
			known = true
			for k := range s.Targets {
				if s.Targets[k].VIP.Addr() == t.vip {
					direct = append(direct, s.Address.String())
					break
				}
			}
		}
		if len(of) > 0 {
			name += " (server " + strings.Join(of, ", ") + ")"
		}
		names = append(names, name)
	}
	f.Number = strings.Join(names, " and ") + " answers " + protocolOf(t.vip)
	f.Why = "who asks there for the VIP reaches that station and passes the card by"
	switch {
	case len(direct) > 0 && t.vip.Is4():
		f.Do = fmt.Sprintf("on server %s: sysctl -w net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2; ip addr add %s/32 dev lo, and on no other interface", strings.Join(direct, ", "), t.vip)
	case len(direct) > 0:
		f.Do = fmt.Sprintf("on server %s: ip -6 addr add %s/128 dev lo, and on no other interface: Linux answers for an address at its own interface only", strings.Join(direct, ", "), t.vip)
	case known:
		f.Do = fmt.Sprintf("on that server: ip addr del %s dev INTERFACE; it gets no packets for the VIP from here", t.vip)
	default:
		f.Do = "find the station by its MAC address at the switch, and take " + t.vip.String() + " away from it"
	}
	return f
}

// fits is how much the path to a server takes.
func (t *task) fits() Finding {
	s := t.server
	f := Finding{What: "path to server " + s.Address.String(), Where: cmp.Or(s.Link, "no port"), Status: OK}
	switch {
	case t.outcome == skipped:
		f.Status, f.Why = Fail, t.why
		f.Do = "look whether the server is up and in the VLAN of the card's port: splicectl card info, ip addr on the server"
		if s.Link == "" || !s.From.IsValid() {
			f.Do = "give the port an address in the server's subnet, or a gateway, in the configuration"
		}
	case !t.alive:
		f.Status, f.Why = NA, "no answer to ICMP echo, so the path's MTU cannot be measured"
		f.Do = "let the server answer echo requests of the card's, if it is up"
	case t.low >= s.MTU:
		f.Number = fmt.Sprintf("%d bytes, as the port", t.low)
	case t.limit == t.low:
		f.Number = fmt.Sprintf("%d bytes, and a router says so", t.low)
	default:
		f.Status, f.Number = Fail, fmt.Sprintf("%d bytes of the port's %d", t.low, s.MTU)
		f.Why = "longer packets vanish and no router says so: connections to this server stall at the first full segment"
		f.Do = fmt.Sprintf("set the MTU of the server's interface, and of what is between, to %d, or let ICMP through", s.MTU)
	}
	return f
}

// owns is whether a server takes packets for a VIP. alive says that it answers echo at its own address.
func (t *task) owns(alive bool) Finding {
	s, x := t.server, t.target
	f := Finding{What: "server " + s.Address.String() + " has VIP " + x.VIP.Addr().String(), Where: "service " + x.Service + ", " + x.how()}
	f.Status = Fail
	switch {
	case t.outcome == skipped:
		f.Status, f.Why = NA, t.why
	case t.outcome == well:
		f.Status, f.Number = OK, "SYN-ACK from "+x.VIP.String()
	case t.outcome == refused && x.Any:
		f.Status, f.Number = OK, "RST from "+x.VIP.String()+", which no TCP server has to listen on"
	case t.outcome == refused:
		f.Number = "RST from " + x.VIP.String()
		f.Why = "the server has the VIP, and nobody listens on the port"
		f.Do = fmt.Sprintf("start the service on it at %s, or at every address: ss -ltn shows who listens where", x.VIP)
	case t.outcome == own && x.marked():
		f.Number = "an answer from " + s.Address.String()
		f.Why = fmt.Sprintf("the server did not put the VIP back for DSCP %d: clients get answers from an address that they do not know", x.Tunnel.DSCP)
		f.Do = fmt.Sprintf("on the server map DSCP %d to %s, and %s", x.Tunnel.DSCP, x.VIP.Addr(), x.add())
	case t.outcome == own:
		f.Number = "an answer from " + s.Address.String()
		f.Why = "the server answers from its own address: clients do not know that"
		f.Do = x.add()
	case t.outcome == told && t.says == expired:
		f.Number = t.says + " from " + t.by.String()
		f.Why = "the server lacks the VIP and forwards what is for it"
		f.Do = x.add()
	case t.outcome == told && x.Method == config.Tun && t.by == s.Address:
		f.Number = t.says + " from " + t.by.String()
		f.Why = "the server has no " + x.Tunnel.Type.String() + " tunnel, or lacks the VIP behind it"
		f.Do = x.tunnel(s) + "; " + x.add()
	case t.outcome == told:
		f.Number = t.says + " from " + t.by.String()
		f.Why = "what is sent to the server does not reach the VIP there"
		f.Do = x.add() + "; look for a firewall on " + t.by.String()
	case !alive && x.Method != config.DR:
		f.Number = "no answer to SYN"
		f.Why = "nor does the tunnel's end answer ICMP echo: the server may be down, or filters what comes from the card"
		f.Do = "look whether the server is up; then " + x.add()
	case x.Method == config.Tun && !x.marked():
		f.Number = "no answer to SYN"
		f.Why = "the tunnel's end answers echo: likely the server's reverse path filter throws away what comes out of the tunnel, or it lacks the VIP"
		f.Do = x.filter() + "; " + x.add()
	default:
		f.Number = "no answer to SYN"
		f.Why = "likely the server lacks the VIP and throws away what is for it"
		f.Do = x.add()
	}
	return f
}

// how is the method of a target in words.
func (x *Target) how() string {
	if x.Method == config.Tun {
		return "tun " + x.Tunnel.String()
	}
	return x.Method.String()
}

// add is how a server gets the VIP.
func (x *Target) add() string {
	if a := x.VIP.Addr(); a.Is6() {
		return "ip -6 addr add " + a.String() + "/128 dev lo"
	}
	return "ip addr add " + x.VIP.Addr().String() + "/32 dev lo"
}

// devices are what Linux names the far ends of tunnels that it makes by itself.
var devices = [...]string{config.IPIP: "tunl0", config.GRE: "gre0", config.GUE: "tunl0"}

// filter is how what comes out of a tunnel gets past the reverse path filter. The kernel takes the stricter of all and of
// the interface.
func (x *Target) filter() string {
	if x.VIP.Addr().Is6() {
		return "ip6tables -t raw -S PREROUTING shows an rpfilter rule, if there is one: let the tunnel's interface past it"
	}
	return "sysctl -w net.ipv4.conf.all.rp_filter=0 net.ipv4.conf." + devices[x.Tunnel.Type%config.DSCP] + ".rp_filter=0 (of the tunnel's interface)"
}

// tunnel is how a server gets the far end of a tunnel.
func (x *Target) tunnel(s *Server) string {
	inner, outer := x.VIP.Addr().Is4(), s.Address.Is4()
	switch {
	case x.Tunnel.Type == config.GRE:
		return "ip link add splice type " + map[bool]string{true: "gre", false: "ip6gre"}[outer] + " local " + s.Address.String() + "; ip link set splice up"
	case x.Tunnel.Type == config.GUE:
		return fmt.Sprintf("ip fou add port %d gue; ip link set tunl0 up", x.Tunnel.Port)
	case inner && outer:
		return "modprobe ipip; ip link set tunl0 up"
	case outer:
		return "modprobe sit; ip link set sit0 up"
	}
	return "modprobe ip6_tunnel; ip link set ip6tnl0 up"
}
