package config

import (
	"net/netip"
	"strconv"
	"time"

	"splicenic/runtime/rule"
)

// Position is a place in the file, both counted from one.
type Position struct{ Line, Column int }

// Config is a whole configuration.
type Config struct {
	File string // as given to Load
	Text string // what was read

	Card     Card
	Emu      Emu
	Client   Port
	Server   Port // OneArmed: zero
	OneArmed bool // one port carries both sides
	Services []Service
	Groups   []Group
	Defence  Pressure
	Log      Log
	DNS      *DNS   // nil: nothing is published
	Seed     uint64 // zero: random
	Socket   string // empty: the default path

	Warnings Problems // what is odd but allowed

	groups map[string]*Group
	pools  *pools
}

// Log says where the log of connections goes.
type Log struct {
	At    Position
	File  string // empty: there is none
	Bytes int64  // of a file before it is rotated; zero: the runtime's default
	Keep  int    // rotated files that are kept; zero: the runtime's default
}

// Body is where the card is.
type Body string

// The bodies of a card.
const (
	Auto     Body = "auto"
	Emulator Body = "emu"
	VFIO     Body = "vfio"
	VFIOUser Body = "vfio-user"
)

// Card says which card is driven.
type Card struct {
	At   Position
	Body Body
	Name string // PCI address with VFIO, socket path with VFIOUser
}

// String returns the card as the file names it.
func (c Card) String() string {
	if c.Name == "" {
		return string(c.Body)
	}
	return string(c.Body) + ":" + c.Name
}

// Emu says what the emulated card is wired to. Client is empty where the file does not say.
type Emu struct {
	At             Position
	Client, Server Wire
	Flash          string // file that keeps its flash; empty: none does
}

// WireKind is a way frames reach the emulated card.
type WireKind string

// The kinds of wires.
const (
	Interface WireKind = "interface" // a kernel interface, by AF_PACKET
	TAP       WireKind = "tap"
	Pcap      WireKind = "pcap"
	Memory    WireKind = "mem"
)

// Wire is what a port of the emulated card is wired to.
type Wire struct {
	At   Position
	Kind WireKind // empty: not wired
	Name string   // the interface; with Pcap the file read
	Out  string   // with Pcap the file written
}

// String returns the wire as the file names it.
func (w Wire) String() string {
	switch w.Kind {
	case TAP:
		return "tap:" + w.Name
	case Pcap:
		return "pcap:" + w.Name + "," + w.Out
	case Memory:
		return "mem"
	}
	return w.Name
}

// Port is one port's place in the network.
type Port struct {
	At        Position
	Addresses []Address
	Gateways  []Gateway // at most one of each family
	Forward   bool      // packets of no listener and no connection are routed
	SNAT      Translation
}

// Address is an address of the card with its subnet.
type Address struct {
	At     Position
	Prefix netip.Prefix // the address itself, not masked
	VLAN   uint16       // zero: untagged
}

// Gateway is a router that leads beyond the port's subnets.
type Gateway struct {
	At      Position
	Address netip.Addr
}

// Service is what clients connect to.
type Service struct {
	At       Position
	Name     string
	Listen   []Listen
	Protocol Protocol
	Routes   []Route
	Default  Target
	H2C      string // group that takes HTTP/2 without TLS, known by its preface; empty: refused
	ISN      ISN
	MSS      uint16 // promised where the profiles do not say less; zero: as Options says
	Options  Options
	Defence  Defence
	Idle     time.Duration
	WaitHead time.Duration // zero, like Idle: the card's own default

	IdleSilent bool // the idle time-out sends no RST

	ServerFirst bool          // the default group's server is connected when the client's handshake ends
	Fallback    time.Duration // a client that sends nothing for so long goes to the default group; zero: never
	Requests    Requests
	Proxy       bool // a PROXY header (version 2) goes before the client's bytes
	Forwarded   Forwarded
	Existing    Existing

	Mode            Mode
	Source          []netip.Prefix // the clients that it takes; empty: all
	OnePacket       bool           // every datagram chooses a server anew
	Sloppy          bool           // a segment without SYN opens a connection too
	Persistence     Persistence
	ExpireQuiescent bool   // no new connection to a server of weight zero, persistence or not
	ExpireNodest    bool   // connections whose server is gone are reset
	KeepServer      bool   // a client port that is used again goes to the same server
	Module          string // "ftp" or "tftp": what the host reads along; empty: nothing

	MaxTarget int // bytes of a request target; zero: the runtime's default
	MaxHead   int // bytes of a head; zero: the runtime's default
}

// Protocol says what a service's clients speak.
type Protocol uint8

// The protocols.
const (
	HTTP Protocol = iota
	TLS           // passed on as it is; the ClientHello decides
	TCP           // nothing is read: the default group takes everything
	UDP           // the same of datagrams; not spliced
)

// String returns the protocol as the file writes it.
func (p Protocol) String() string { return protocols[p] }

var protocols = [...]string{HTTP: "http", TLS: "tls", TCP: "tcp", UDP: "udp"}

// Requests says what becomes of the second request on a connection.
type Requests uint8

// The choices of Requests.
const (
	First Requests = iota // it goes where the first one went
	Close                 // there is none: the server is asked to close after the first
)

// String returns the choice as the file writes it.
func (r Requests) String() string { return [...]string{"first", "close"}[r&1] }

// Forwarded is the field that tells servers of the client.
type Forwarded uint8

// The choices of Forwarded.
const (
	NoForwarded   Forwarded = iota
	XForwardedFor           // X-Forwarded-For, with X-Forwarded-Proto and X-Forwarded-Host
	ForwardedRFC            // Forwarded (RFC 7239)
)

// String returns the choice as the file writes it.
func (f Forwarded) String() string { return forwardeds[f] }

var forwardeds = [...]string{NoForwarded: "none", XForwardedFor: "x-forwarded-for", ForwardedRFC: "forwarded"}

// Existing says what becomes of such fields that a client sent itself.
type Existing uint8

// The choices of Existing.
const (
	Append Existing = iota
	Replace
	Refuse
)

// String returns the choice as the file writes it.
func (e Existing) String() string { return existings[e] }

var existings = [...]string{Append: "append", Replace: "replace", Refuse: "refuse"}

// Target is where requests go: to a group, or they are answered. The zero value is nowhere.
type Target struct {
	At    Position
	Group string
	Reply *Reply
}

// Nowhere says whether the target is none.
func (t Target) Nowhere() bool { return t.Group == "" && t.Reply == nil }

// String returns the target for people.
func (t Target) String() string {
	if t.Reply != nil {
		return "reply " + strconv.Itoa(t.Reply.Status)
	}
	return t.Group
}

// Reply is an answer in a server's place.
type Reply struct {
	At          Position
	Status      int    // 200 to 599
	Body        string // empty: the status in words
	ContentType string // empty: text/plain
	Redirect    *Redirect
}

// Redirect makes the Location of an answer. What is empty stays as the request has it.
type Redirect struct {
	Scheme string
	Host   string
	Port   uint16
	Path   string // the whole path; with ReplacePrefix what takes the place of the rule's prefix

	ReplacePrefix bool
}

// Matcher finds the route of a request, by its place in Routes.
func (s *Service) Matcher() *rule.Matcher { return rule.NewMatcher(s.rules()) }

// rules are the routes without where they lead.
func (s *Service) rules() []rule.Route {
	routes := make([]rule.Route, len(s.Routes))
	for i := range s.Routes {
		routes[i].Match = s.Routes[i].Match
	}
	return routes
}

// Listen is a VIP and a port; port zero: every port that has no listener of its own.
type Listen struct {
	At   Position
	Addr netip.AddrPort
}

// ISN says how initial sequence numbers toward clients are chosen.
type ISN uint8

// The choices of ISN.
const (
	Keyed     ISN = iota // by a keyed function of the connection (RFC 6528)
	ByAddress            // the page's address
)

// String returns the choice as the file writes it.
func (i ISN) String() string {
	if i == ByAddress {
		return "address"
	}
	return "keyed"
}

// Options says how the TCP options of a service are treated.
type Options struct{ MSS, WScale, SACK, Timestamps, ECN Policy }

// Policy says when clients are promised an option.
type Policy uint8

// The policies.
const (
	Preserve Policy = iota // where every server keeps it
	Rewrite                // always: what a server lacks is made up for
	Strip                  // never
)

// String returns the policy as the file writes it.
func (p Policy) String() string { return [...]string{"preserve", "rewrite", "strip"}[p%(Strip+1)] }

// Defence says when SYNs are answered with cookies.
type Defence uint8

// The choices of Defence.
const (
	DefenceAuto   Defence = iota // under pressure
	DefenceOff                   // never
	DefenceAlways                // always
)

// String returns the choice as the file writes it.
func (d Defence) String() string { return defences[d] }

var defences = [...]string{DefenceAuto: "auto", DefenceOff: "off", DefenceAlways: "always"}

// Pressure is what the card's SYN defence takes for pressure, and what a source may send. Zeros: the card's defaults.
type Pressure struct {
	At                      Position
	RateOn, RateOff         uint32 // SYNs a second with which it becomes active, and stays so
	SourceRate, SourceBurst uint32 // SYNs of one address or IPv6 /64: a second, and at once
}

// Route sends some requests of a service to a group.
type Route struct {
	At Position
	rule.Match
	To Target

	item int  // place in the list of the file
	h2c  bool // for HTTP/2 without TLS: no route of the table
}

// Scheduler spreads connections over the servers of a group: one of the words of package schedule.
type Scheduler string

// Some of the schedulers.
const (
	RoundRobin         Scheduler = "rr"
	WeightedRoundRobin Scheduler = "wrr"
	SourceHash         Scheduler = "sh"
	Maglev             Scheduler = "mh"
)

// Group is a set of servers that serve the same.
type Group struct {
	At        Position
	Name      string
	Scheduler Scheduler
	Hash      Hash
	Servers   []Server
	Sorry     Target        // where requests go that no server of the group takes; zero: 503
	Local     []netip.Addr  // fullnat: what servers see in the client's place; empty: the address of the port
	SlowStart time.Duration // in which the weight of a server that came up grows; zero: at once
	Prefer    int           // place in Servers, plus one, of the one that takes all while it is up; zero: none does
	Drain     time.Duration // after which the connections of a server that is gone are reset; zero: never

	Check              Check
	Quorum, Hysteresis uint64 // weights of healthy servers without which Sorry serves, and more of them with which it no longer does; Quorum zero: 1
}

// Server is one real server. What its group says for all of its servers stands in each.
type Server struct {
	At      Position
	Addr    netip.AddrPort // port zero: that of the client's packet
	Weight  uint16         // zero: no new connections
	Method  Mode           // Splice: as the service says
	Tunnel  Tunnel         // with Tun
	Return  bool           // with Tun: replies come back through the card
	Upper   uint32         // connections that are enough; zero: no limit
	Lower   uint32         // with fewer it takes new ones again; zero: three quarters of Upper
	Cookie  string         // the value that leads here, where a service persists by a cookie; empty: none
	Profile Profile
}

// Profile is what a server's SYN-ACKs keep. The zero value says nothing is known.
type Profile struct {
	Known      bool
	MSS        uint16 // zero: not said
	WScale     uint8
	WScaleOn   bool
	SACK       bool
	Timestamps bool
	ECN        bool
}

// Ports returns the ports in use with their numbers.
func (c *Config) Ports() []*Port {
	if c.OneArmed {
		return []*Port{&c.Client}
	}
	return []*Port{&c.Client, &c.Server}
}

// Group finds a group by its name.
func (c *Config) Group(name string) *Group { return c.groups[name] }

// Reachable returns the groups that a request of a service can go to, each once.
func (c *Config) Reachable(s *Service) []*Group {
	var groups []*Group
	seen := map[string]bool{"": true}
	add := func(name string) {
		if g := c.Group(name); g != nil && !seen[name] {
			groups = append(groups, g)
		}
		seen[name] = true
	}
	add(s.Default.Group)
	add(s.H2C)
	for _, r := range s.Routes {
		add(r.To.Group)
	}
	for i := 0; i < len(groups); i++ { // a group may be sorry for one that is sorry for another
		add(groups[i].Sorry.Group)
	}
	return groups
}

// A Hop is where packets for an address go: the port, the VLAN and the neighbour.
type Hop struct {
	Port     int
	VLAN     uint16
	Neighbor netip.Addr
}

// Route finds the hop to an address: a neighbour in a subnet of a port, else the gateway of the server's side, else that
// of the client's.
func (c *Config) Route(to netip.Addr) (Hop, bool) {
	ports := c.Ports()
	for i, p := range ports {
		if a, ok := p.subnet(to); ok {
			return Hop{Port: i, VLAN: a.VLAN, Neighbor: to}, true
		}
	}
	for i := len(ports) - 1; i >= 0; i-- {
		for _, g := range ports[i].Gateways {
			if a, ok := ports[i].subnet(g.Address); ok && g.Address.Is4() == to.Is4() {
				return Hop{Port: i, VLAN: a.VLAN, Neighbor: g.Address}, true
			}
		}
	}
	return Hop{}, false
}

// subnet returns the port's address whose subnet holds a.
func (p *Port) subnet(a netip.Addr) (Address, bool) {
	for _, own := range p.Addresses {
		if own.Prefix.Contains(a) {
			return own, true
		}
	}
	return Address{}, false
}
