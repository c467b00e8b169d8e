package view

import (
	"context"
	"strings"

	"splicenic/regs"
)

// Table is what clients connect to and where that leads, with counters.
type Table struct {
	Pages    uint32    `json:"pages"` // connections that there is room for
	Tick     uint32    `json:"tick"`  // milliseconds, when it was read
	Services []Service `json:"services"`
}

// Service is a service of the configuration. Its counters, and those of its servers, begin with the runtime.
type Service struct {
	Name        string         `json:"name"`
	Listen      []string       `json:"listen"`
	Mode        string         `json:"mode"`     // splice, nat, fullnat, tun or dr
	Protocol    string         `json:"protocol"` // tcp or udp
	OnePacket   bool           `json:"one_packet"`
	Persistence *Persistence   `json:"persistence"` // nil: none
	Groups      []ServiceGroup `json:"groups"`      // the default first
	Traffic     Traffic        `json:"traffic"`
	Rate        *Rate          `json:"rate,omitempty"`
}

// Persistence keeps a client at a server.
type Persistence struct {
	Seconds  float64 `json:"seconds"`
	Netmask  uint8   `json:"netmask"`  // bits of an IPv4 address
	Netmask6 uint8   `json:"netmask6"` // and of an IPv6 address
}

// ServiceGroup is a group that a service leads to.
type ServiceGroup struct {
	Name      string          `json:"name"`
	Scheduler string          `json:"scheduler"`
	Servers   []ServiceServer `json:"servers"`
}

// ServiceServer is a server of a group. Active, Inactive, Connections and Failed are the card's, of all services that lead to
// the server by this method; Traffic is this service's.
type ServiceServer struct {
	Address     string  `json:"address"`
	Method      string  `json:"method"`
	Weight      uint16  `json:"weight"`
	Active      uint32  `json:"active"`
	Inactive    uint32  `json:"inactive"`
	Templates   uint32  `json:"templates"` // of persistence, none of them a connection
	Connections uint64  `json:"connections"`
	Failed      uint32  `json:"failed"`
	Overloaded  bool    `json:"overloaded"`
	Closed      bool    `json:"closed"` // it takes no new connection
	Traffic     Traffic `json:"traffic"`
	Rate        *Rate   `json:"rate,omitempty"`
}

// Traffic counts connections with their packets, as wire segments, and bytes of payload.
type Traffic struct {
	Connections   uint64 `json:"connections"`
	PacketsClient uint64 `json:"packets_client"`
	PacketsServer uint64 `json:"packets_server"`
	BytesClient   uint64 `json:"bytes_client"`
	BytesServer   uint64 `json:"bytes_server"`
}

// Add adds what o counted.
func (t *Traffic) Add(o Traffic) {
	t.Connections += o.Connections
	t.PacketsClient += o.PacketsClient
	t.PacketsServer += o.PacketsServer
	t.BytesClient += o.BytesClient
	t.BytesServer += o.BytesServer
}

// Rate is Traffic in a second.
type Rate struct {
	Connections   float64 `json:"connections"`
	PacketsClient float64 `json:"packets_client"`
	PacketsServer float64 `json:"packets_server"`
	BytesClient   float64 `json:"bytes_client"`
	BytesServer   float64 `json:"bytes_server"`
}

// Rate returns what came in a second since before, seconds ago. What began anew in between counts from zero.
func (t Traffic) Rate(before Traffic, seconds float64) *Rate {
	per := func(now, then uint64) float64 {
		if now < then {
			then = 0
		}
		return float64(now-then) / seconds
	}
	return &Rate{
		per(t.Connections, before.Connections), per(t.PacketsClient, before.PacketsClient), per(t.PacketsServer, before.PacketsServer),
		per(t.BytesClient, before.BytesClient), per(t.BytesServer, before.BytesServer),
	}
}

// Flow is a way that connections take: a service, and the server where one was chosen.
type Flow struct {
	Service, Server uint32 // indexes
	Chosen          bool
}

// ServiceTable completes services of a configuration with what the card counts. ended is the traffic of connections that
// are no more; that of those that live is read from their pages. Without traffic nobody reads it.
func (v *View) ServiceTable(ctx context.Context, services []Service, ended map[Flow]Traffic, traffic bool) (Table, error) {
	t := Table{Pages: v.Card.Geometry().Pages, Tick: v.Card.Load(regs.TimerTick), Services: services}
	servers, err := v.servers(ctx)
	if err != nil {
		return t, err
	}
	states, err := v.table(ctx, regs.MemServerState, 0, 0)
	if err != nil {
		return t, err
	}
	flows := map[named]Traffic{}
	if traffic {
		if flows, err = v.flows(ctx, ended); err != nil {
			return t, err
		}
	}
	type key struct {
		addr     string
		protocol uint32
		method   string
	}
	at := map[key][]uint32{} // with another tunnel or other local addresses a server has another entry
	for i, s := range servers {
		k := key{s.addr.String(), s.ControlProtocol, valueName("server", regs.ServerControl, "method", s.ControlMethod)}
		at[k] = append(at[k], i)
	}
	for i := range t.Services {
		s := &t.Services[i]
		s.Traffic = flows[named{service: s.Name}]
		for g := range s.Groups {
			for k := range s.Groups[g].Servers {
				x := &s.Groups[g].Servers[k]
				for n, index := range at[key{strings.Replace(x.Address, ":*", ":0", 1), protocolNumber(s.Protocol), x.Method}] { // none: it is on its way into the card
					var st regs.ServerStateEntry
					st.Decode(states[index*regs.ServerStateWords:])
					x.Closed = servers[index].ControlClosed != 0 && (n == 0 || x.Closed)
					x.count(&st)
					x.Traffic.Add(flows[named{s.Name, index, true}])
				}
			}
		}
	}
	return t, v.Card.Err()
}

// named is a Flow by the name of its service, whose index may change; of all servers, with none.
type named struct {
	service string
	server  uint32
	chosen  bool
}

// flows sums traffic by service, and by service and server.
func (v *View) flows(ctx context.Context, ended map[Flow]Traffic) (map[named]Traffic, error) {
	bank, _ := v.Card.Bank()
	services, err := v.table(ctx, regs.MemService, bank, 0)
	if err != nil {
		return nil, err
	}
	sums := map[named]Traffic{}
	add := func(f Flow, t Traffic) {
		name := v.service(f.Service)
		of := func(n named) {
			sum := sums[n]
			sum.Add(t)
			sums[n] = sum
		}
		of(named{service: name})
		if f.Chosen {
			of(named{name, f.Server, true})
		}
	}
	for f, t := range ended { // sums: the order does not matter
		if at := f.Service * regs.ServiceWords; int(at) < len(services) && regs.ServiceControlMode(services[at]) != regs.ServiceControlModeSplice {
			f.Chosen = true // at the first packet
		}
		add(f, t)
	}
	return sums, v.living(ctx, add)
}

// protocolNumber is the number of a protocol in packets.
func protocolNumber(name string) uint32 {
	if name == "udp" {
		return 17
	}
	return 6
}

// count adds the counters of an entry of a server. Its templates are pages that name it, and no connections.
func (x *ServiceServer) count(st *regs.ServerStateEntry) {
	x.Active += st.Active
	x.Templates += st.Templates
	x.Failed += st.Failed
	x.Overloaded = x.Overloaded || st.FlagsOverloaded != 0
	if rest := st.Active + st.Templates; st.UseCount > rest {
		x.Inactive += st.UseCount - rest
	}
	x.Connections += uint64(st.ConnectionsHi)<<32 | uint64(st.ConnectionsLo)
}

// living calls add with the traffic of each connection that has a page.
func (v *View) living(ctx context.Context, add func(Flow, Traffic)) error {
	return v.Card.Connections(ctx, func(_ uint32, p *regs.PageEntry) bool {
		passed := p.ClientLinkPassed != 0
		if passed && p.ControlState == regs.StateWaitHead { // a template
			return true
		}
		f := Flow{Service: p.IndexService}
		if passed || chosen(p) {
			f.Server, f.Chosen = p.AIndexServer, true
		}
		add(f, Traffic{
			1, uint64(p.PacketsClient), uint64(p.PacketsServer),
			uint64(p.BytesHighClient)<<32 | uint64(p.BytesClient), uint64(p.BytesHighServer)<<32 | uint64(p.BytesServer),
		})
		return true
	})
}
