package config

import (
	"net/netip"
	"slices"
	"strconv"
	"time"
)

// Mode says how what clients send reaches a server: of a service, or as the method of a server.
type Mode uint8

// The modes.
const (
	Splice  Mode = iota // the card answers the client first and reads what it says. As a method: none is said
	NAT                 // the server gets the client's packets with its own address in them
	FullNAT             // and with an address of the card's in the client's place
	Tun                 // in a tunnel, as the client sent them
	DR                  // as the client sent them, by the server's MAC address
)

// String returns the mode as the file writes it.
func (m Mode) String() string { return modes[m%(DR+1)] }

var modes = [...]string{Splice: "splice", NAT: "nat", FullNAT: "fullnat", Tun: "tun", DR: "dr"}

// TunnelType is how packets for a server are wrapped.
type TunnelType uint8

// The types of tunnels.
const (
	IPIP TunnelType = iota // IP in IP (RFC 2003, 2473, 4213)
	GRE                    // RFC 2784
	GUE                    // generic UDP encapsulation
	DSCP                   // L3DSR: no header is added, the DSCP tells the server which VIP is meant
)

// String returns the type as the file writes it.
func (t TunnelType) String() string { return tunnelTypes[t%(DSCP+1)] }

var tunnelTypes = [...]string{IPIP: "ipip", GRE: "gre", GUE: "gue", DSCP: "dscp"}

// Checksum is what a tunnel's outer header says about its content.
type Checksum uint8

// The choices of Checksum.
const (
	NoChecksum Checksum = iota
	FullChecksum
	RemoteChecksum // gue: remote checksum offload
)

// String returns the choice as the file writes it.
func (c Checksum) String() string { return checksums[c%(RemoteChecksum+1)] }

var checksums = [...]string{NoChecksum: "none", FullChecksum: "full", RemoteChecksum: "remote"}

// Tunnel is how a server with the method tun is reached. The zero value is IP in IP.
type Tunnel struct {
	At       Position
	Type     TunnelType
	Port     uint16 // gue: the destination port; zero otherwise
	Checksum Checksum
	DSCP     uint8 // dscp: 1 to 63
}

// String returns the tunnel in words.
func (t Tunnel) String() string {
	text := t.Type.String()
	if t.Type == GUE {
		text += " port " + strconv.Itoa(int(t.Port))
	}
	if t.Checksum != NoChecksum {
		text += " checksum " + t.Checksum.String()
	}
	if t.Type == DSCP {
		text += " " + strconv.Itoa(int(t.DSCP))
	}
	return text
}

// DefaultGUEPort is the port of GUE that IANA names.
const DefaultGUEPort = 6080

// Overhead is how many bytes a tunnel over IPv4 (or else IPv6) adds to a packet.
func (t *Tunnel) Overhead(four bool) int {
	outer := 40
	if four {
		outer = 20
	}
	switch t.Type {
	case GRE:
		outer += 4
		if t.Checksum != NoChecksum {
			outer += 4
		}
	case GUE:
		outer += 8 + 4
		if t.Checksum == RemoteChecksum {
			outer += 8 // private flags, and where the checksum is
		}
	case DSCP:
		return 0
	}
	return outer
}

// Persistence sends a client again where it went before.
type Persistence struct {
	At       Position
	Time     time.Duration // after the last connection; zero: none
	Netmask  uint8         // bits of an IPv4 address that make a client
	Netmask6 uint8         // of an IPv6 address
	AllPorts bool          // one choice for all listeners of the service
	Cookie   string        // a spliced HTTP service: the cookie whose value names the server; empty: none
}

// On says whether the service persists by address.
func (p *Persistence) On() bool { return p.Time != 0 }

// Hash says what schedulers that hash do beside it.
type Hash struct {
	Port     bool // the client's port is hashed too
	Fallback bool // where the server takes no connection, others are tried
}

// Name writes a server's address and port; an asterisk stands for the port of the client's packet.
func (s *Server) Name() string {
	if s.Addr.Port() == 0 {
		return anyPort(s.Addr.Addr())
	}
	return s.Addr.String()
}

// Listener is the key of a listener.
type Listener struct {
	Addr netip.AddrPort // port zero: every port that has no listener of its own
	UDP  bool
}

// Listeners returns the keys that a service listens on.
func (s *Service) Listeners() []Listener {
	keys := make([]Listener, len(s.Listen))
	for i := range s.Listen {
		keys[i] = Listener{s.Listen[i].Addr, s.Protocol == UDP}
	}
	return keys
}

// Layer4 says whether connections go to a server at their SYN, or first datagram, with nothing read.
func (s *Service) Layer4() bool { return s.Mode != Splice }

// A Pool is a group as services of one protocol use it whose servers get the same method. The card has a group for each.
type Pool struct {
	Group *Group
	UDP   bool
	Mode  Mode // of the servers that say none themselves: never Splice
}

// name is unique among pools.
func (p Pool) name() string {
	name := p.Group.Name
	if p.UDP {
		name += "/udp"
	}
	if p.Mode != NAT {
		name += "/" + p.Mode.String()
	}
	return name
}

// Method is how packets reach a server of the pool.
func (p Pool) Method(s *Server) Mode {
	if s.Method != Splice {
		return s.Method
	}
	return p.Mode
}

// Pool is a group as a service uses it.
func (c *Config) Pool(s *Service, g *Group) Pool {
	p := Pool{Group: g, UDP: s.Protocol == UDP, Mode: s.Mode}
	said := !slices.ContainsFunc(g.Servers, func(s Server) bool { return s.Method == Splice })
	if p.Mode == Splice || said {
		p.Mode = NAT
	}
	return p
}

// pools are the pools of a configuration, found once.
type pools struct {
	list  []Pool
	users map[Pool][]*Service
	names map[Pool]string
}

// findPools finds the pools of all services: those of a group together, in the order of the groups. A group that no service
// uses is a pool too. The first of a group has its name, the others what is not the ordinary behind it.
func (c *Config) findPools() *pools {
	p := &pools{users: map[Pool][]*Service{}, names: map[Pool]string{}}
	byGroup := map[*Group][]Pool{}
	for i := range c.Services {
		s := &c.Services[i]
		for _, g := range c.Reachable(s) {
			pool := c.Pool(s, g)
			if p.users[pool] == nil {
				byGroup[g] = append(byGroup[g], pool)
			}
			p.users[pool] = append(p.users[pool], s)
		}
	}
	for i := range c.Groups {
		g := &c.Groups[i]
		if len(byGroup[g]) == 0 {
			byGroup[g] = []Pool{{Group: g, Mode: NAT}}
		}
		for n, pool := range byGroup[g] {
			p.names[pool] = pool.name()
			if n == 0 {
				p.names[pool] = g.Name
			} else if pool.name() == g.Name { // which the first has
				p.names[pool] += "/" + NAT.String()
			}
		}
		p.list = append(p.list, byGroup[g]...)
	}
	return p
}

// Pools returns all pools, each once.
func (c *Config) Pools() []Pool { return c.pools.list }

// PoolName names a pool: as its group where that is one pool only.
func (c *Config) PoolName(p Pool) string { return c.pools.names[p] }

// Users returns the services that use a pool.
func (c *Config) Users(p Pool) []*Service { return c.pools.users[p] }

// Spliced returns the groups whose servers' options clients are promised before they are asked: those of services that are
// spliced or may answer with cookies, and those that no service uses yet.
func (c *Config) Spliced() map[*Group]bool {
	groups, used := map[*Group]bool{}, map[*Group]bool{}
	for i := range c.Services {
		s := &c.Services[i]
		for _, g := range c.Reachable(s) {
			used[g] = true
			groups[g] = groups[g] || !s.Layer4() || s.Defence != DefenceOff
		}
	}
	for i := range c.Groups {
		groups[&c.Groups[i]] = groups[&c.Groups[i]] || !used[&c.Groups[i]]
	}
	return groups
}

// Asked returns the services of a listener in the order in which they are asked; all but the last have sources.
func (c *Config) Asked(l Listener) (services []*Service) {
	for i := range c.Services {
		if s := &c.Services[i]; slices.Contains(s.Listeners(), l) {
			services = append(services, s)
		}
	}
	return services
}

// Ports of a local address that servers see with fullnat. The lowest are for services; those from EndLocalPorts on are left
// to the host's own connections.
const (
	FirstLocalPort = 1024
	EndLocalPorts  = 61440
	LocalPorts     = EndLocalPorts - FirstLocalPort
)

// LocalFor returns the addresses that a group's servers of a family see in the client's place with fullnat: the group's
// own, else that of the port behind which the server is.
func (c *Config) LocalFor(g *Group, server netip.Addr) (list []netip.Addr) {
	for _, a := range g.Local {
		if a.Is4() == server.Is4() {
			list = append(list, a)
		}
	}
	if len(list) > 0 {
		return list
	}
	if hop, ok := c.Route(server); ok {
		if own := c.Own(hop); own.IsValid() {
			return []netip.Addr{own}
		}
	}
	return nil
}

// Own is the card's own address in the subnet of a hop.
func (c *Config) Own(h Hop) netip.Addr {
	a, _ := c.Ports()[h.Port].subnet(h.Neighbor)
	return a.Prefix.Addr()
}

// schedulers are the words of the file.
var schedulers = []string{"rr", "wrr", "lc", "wlc", "lblc", "lblcr", "dh", "sh", "mh", "sed", "nq", "fo", "ovf", "twos", "p2c", "maglev"}
