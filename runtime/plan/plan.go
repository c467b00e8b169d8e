package plan

import (
	"math"
	"slices"

	"splicenic/regs"
)

// Given is what a plan is made from. What is zero is taken from the documents.
type Given struct {
	CostNs         float64   `json:"cost_ns"`      // of rewriting one packet
	CostFrom       string    `json:"cost_from"`    // "documents", "option" or "measured"
	PacketBytes    uint64    `json:"packet_bytes"` // payload, the unit of the documents' throughput
	ServerRate     float64   `json:"server_bytes_per_second"`
	PortRate       float64   `json:"port_bits_per_second"`
	RequestPackets float64   `json:"request_packets_per_response_packet"` // acknowledgements, mostly: all that passes with tun and dr
	Goal           float64   `json:"goal_bytes_per_second"`               // zero: none
	Pages          uint64    `json:"pages"`
	Rate           float64   `json:"connections_per_second"`
	SYNRate        float64   `json:"syns_per_second"`
	CookieRate     float64   `json:"cookies_per_second"` // answered; zero: not known
	LocalPorts     uint64    `json:"local_ports"`        // of one local address
	Locals         uint64    `json:"local_addresses"`    // of a server behind FULLNAT
	PortRoom       uint64    `json:"local_port_entries"` // of the card, for all servers
	Rest           float64   `json:"local_port_rest_seconds"`
	CAMClientWords uint64    `json:"cam_client_words"`
	CAMServerWords uint64    `json:"cam_server_words"`
	CAMWordBits    uint64    `json:"cam_word_bits"`
	Servers        []Servers `json:"servers"` // by method; none: of each method one
	From           string    `json:"from"`    // the configuration; empty: none
}

// Servers are those of one method.
type Servers struct {
	Method string `json:"method"`
	Count  uint64 `json:"count"`
	Locals uint64 `json:"local_addresses"` // of fullnat: what the group with the fewest has; zero: not said
}

// The documents' figures, and what is theirs no more: ports have 1 Gbit/s, and a client acknowledges every second packet.
const (
	documentCost    = 60_000 // ns
	documentPacket  = 536
	documentServer  = 0.8e6
	documentRate    = 21_000
	documentPort    = 1e9
	documentSYNs    = documentPort / 8 / shortest
	shortest        = 84 // bytes that a frame of 64 takes on the wire, with preamble and gap
	acknowledgement = 0.5
	firstLocalPort  = 1024
	portRest        = 60
)

// Fill sets what is zero to the documents' figures and the default card's geometry.
func (g *Given) Fill() {
	for _, f := range []struct {
		to *float64
		of float64
	}{
		{&g.ServerRate, documentServer}, {&g.PortRate, documentPort}, {&g.RequestPackets, acknowledgement}, {&g.Rate, documentRate},
		{&g.SYNRate, documentSYNs}, {&g.Rest, portRest},
	} {
		if *f.to == 0 {
			*f.to = f.of
		}
	}
	for _, f := range []struct {
		to *uint64
		of uint64
	}{
		{&g.PacketBytes, documentPacket}, {&g.Pages, regs.MemPageCount}, {&g.LocalPorts, 65536 - firstLocalPort}, {&g.Locals, 1},
		{&g.PortRoom, regs.MemLocalPortCount}, {&g.CAMClientWords, regs.MemCamClientCount}, {&g.CAMServerWords, regs.MemCamServerCount},
		{&g.CAMWordBits, camWordBits},
	} {
		if *f.to == 0 {
			*f.to = f.of
		}
	}
	if g.CostNs == 0 {
		g.CostNs, g.CostFrom = documentCost, "documents"
	}
	if len(g.Servers) == 0 {
		for _, m := range methods {
			g.Servers = append(g.Servers, Servers{Method: m, Count: 1})
		}
	}
}

// methods in the order in which they are printed.
var methods = []string{"splice", "nat", "fullnat", "tun", "dr"}

// Methods returns the names of the methods.
func Methods() []string { return slices.Clone(methods) }

// direct says whether replies pass by the director.
func direct(method string) bool { return method == "tun" || method == "dr" }

// A Plan is what follows.
type Plan struct {
	Given       Given    `json:"given"`
	Throughput  float64  `json:"bytes_per_second"`      // what one core rewrites
	Packets     float64  `json:"packets_per_second"`    // likewise
	Wire        float64  `json:"wire_bytes_per_second"` // what the port carries in such packets
	Servers     float64  `json:"servers_of_a_director"` // that it keeps busy, whichever of both is the bound
	Methods     []Method `json:"methods"`               // by method
	LongestLife float64  `json:"longest_life_seconds"`  // that connections may have on average before pages run out
	Flood       Flood    `json:"syn_flood"`
	Ports       Ports    `json:"local_ports"`
	CAM         []CAM    `json:"cam"`
	Directors   *float64 `json:"directors_for_the_goal"` // of round-robin DNS, of the worst method of those in use; nil: no goal
}

// A Method is what a director does by one method.
type Method struct {
	Method     string  `json:"method"`
	Servers    uint64  `json:"servers"`
	Packets    float64 `json:"packets_per_response_packet"` // through the director
	Bound      string  `json:"bound"`                       // "processor" or "port"
	Throughput float64 `json:"bytes_per_second"`            // of responses
	OfDirector float64 `json:"servers_of_a_director"`
	Directors  float64 `json:"directors"` // for the servers that there are, or for the goal, whichever is more
}

// Flood is what a flood of SYNs does.
type Flood struct {
	Seconds    float64  `json:"seconds_to_exhaust"`
	Cookies    *float64 `json:"seconds_with_cookies"`         // nil: never, since a page is taken when the client has proved itself
	Sufficient *bool    `json:"cookies_faster_than_the_syns"` // nil: not known
}

// Ports are the connections that FULLNAT has source ports for.
type Ports struct {
	PerServer uint64  `json:"connections_of_a_server"`
	Servers   uint64  `json:"servers"`
	All       uint64  `json:"connections"` // of all servers, as far as card and pages have room
	Bound     string  `json:"bound"`       // "ports", "local-port memory" or "pages"
	Rate      float64 `json:"connections_per_second_of_a_server"`
}

// A CAM is what silicon the connections of all pages need.
type CAM struct {
	Keys    string  `json:"keys"`
	Client  uint64  `json:"client_words"`
	Server  uint64  `json:"server_words"`
	Bits    uint64  `json:"word_bits"`
	Mbit    float64 `json:"mbit"`
	Devices uint64  `json:"devices"` // of 18 Mbit
	Load    float64 `json:"load"`    // of this card's words, the fuller side; zero: it has no such words
}

// Throughput is what a director rewrites of packets that each cost some nanoseconds, in bytes a second.
func Throughput(costNs float64, packetBytes uint64) float64 {
	return float64(packetBytes) * 1e9 / costNs
}

// Wire is what a port carries of payload in such packets, in bytes a second: each has 40 bytes of IP and TCP, 18 of
// Ethernet, and 20 of preamble and gap.
func Wire(bitsPerSecond float64, packetBytes uint64) float64 {
	return bitsPerSecond / 8 * float64(packetBytes) / float64(packetBytes+40+18+20)
}

// Exhaustion is how many seconds pages last at a rate: with connections that is the longest life they may have on average,
// with SYNs how long a flood takes to empty the address list.
func Exhaustion(pages uint64, perSecond float64) float64 { return float64(pages) / perSecond }

// camDevice is the CAM part that the documents reckon with, 18 Mbit. It holds 288K words of 64 bits, 128K of 144 or 64K of
// 288.
const (
	camDevice   = 18 << 20
	camWordBits = 144
)

// Silicon is how many devices of 18 Mbit hold some words.
func Silicon(words, bits uint64) (mbit float64, devices uint64) {
	total := words * bits
	return float64(total) / (1 << 20), (total + camDevice - 1) / camDevice
}

// Make computes a plan. What is zero in g is filled.
func Make(g Given) Plan {
	g.Fill()
	p := Plan{
		Given: g, Throughput: Throughput(g.CostNs, g.PacketBytes), Packets: 1e9 / g.CostNs, Wire: Wire(g.PortRate, g.PacketBytes),
		LongestLife: Exhaustion(g.Pages, g.Rate), Flood: Flood{Seconds: Exhaustion(g.Pages, g.SYNRate)},
	}
	p.Servers = min(p.Throughput, p.Wire) / g.ServerRate
	if g.CookieRate > 0 {
		enough := g.CookieRate >= g.SYNRate
		p.Flood.Sufficient = &enough
	}
	for _, s := range g.Servers {
		m := g.method(s)
		p.Methods = append(p.Methods, m)
		if g.Goal > 0 {
			need := math.Ceil(g.Goal / m.Throughput)
			if p.Directors == nil || need > *p.Directors {
				p.Directors = &need
			}
		}
	}
	p.Ports = g.ports()
	p.CAM = g.cam()
	return p
}

// method computes what a director does by a method. Of tun and dr only the requests pass, so that a packet of a response
// costs as much as its share of an acknowledgement.
func (g *Given) method(s Servers) Method {
	m := Method{Method: s.Method, Servers: s.Count, Packets: 1, Bound: "processor", Throughput: Throughput(g.CostNs, g.PacketBytes)}
	wire := Wire(g.PortRate, g.PacketBytes)
	if direct(s.Method) {
		m.Packets = g.RequestPackets
		m.Throughput /= g.RequestPackets
		wire = g.PortRate / 8 / shortest / g.RequestPackets * float64(g.PacketBytes)
	}
	if wire < m.Throughput {
		m.Throughput, m.Bound = wire, "port"
	}
	m.OfDirector = m.Throughput / g.ServerRate
	m.Directors = math.Ceil(max(float64(s.Count)*g.ServerRate, g.Goal) / m.Throughput)
	return m
}

func (g *Given) ports() Ports {
	locals, servers := g.Locals, uint64(0)
	for _, s := range g.Servers {
		if s.Method == "fullnat" {
			if servers += s.Count; s.Locals > 0 {
				locals = s.Locals
			}
		}
	}
	p := Ports{PerServer: locals * g.LocalPorts, Servers: servers, Bound: "ports"}
	p.All = p.PerServer * servers
	if p.All > g.PortRoom {
		p.All, p.Bound = g.PortRoom, "local-port memory"
	}
	if p.All > g.Pages {
		p.All, p.Bound = g.Pages, "pages"
	}
	p.Rate = float64(min(p.PerServer, g.PortRoom)) / g.Rest
	return p
}

// cam computes the words of every page's keys: on the client side one key, on the server side one for each leg set of a
// splice.
func (g *Given) cam() []CAM {
	var list []CAM
	for _, k := range []struct {
		keys           string
		client, server uint64 // words of a page
		bits           uint64
	}{
		{"addresses without ports, as in the documents", 1, 0, 64},
		{"IPv4, tun or dr", 1, 0, g.CAMWordBits},
		{"IPv4, nat or fullnat", 1, 1, g.CAMWordBits},
		{"IPv4, spliced", 1, 2, g.CAMWordBits},
		{"IPv6, tun or dr", 2, 0, g.CAMWordBits},
		{"IPv6, nat or fullnat", 2, 2, g.CAMWordBits},
		{"IPv6, spliced", 2, 4, g.CAMWordBits},
	} {
		c := CAM{Keys: k.keys, Client: g.Pages * k.client, Server: g.Pages * k.server, Bits: k.bits}
		c.Mbit, c.Devices = Silicon(c.Client+c.Server, k.bits)
		if k.bits == g.CAMWordBits {
			c.Load = max(float64(c.Client)/float64(g.CAMClientWords), float64(c.Server)/float64(g.CAMServerWords))
		}
		list = append(list, c)
	}
	return list
}
