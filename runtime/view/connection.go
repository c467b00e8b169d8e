package view

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"splicenic/driver"
	"splicenic/driver/device"
	"splicenic/regs"
)

// Page is a page as its words are, by the names of the register map.
type Page struct {
	N      uint32         `json:"n"`
	L      string         `json:"l"` // n × page size
	State  string         `json:"state"`
	Fields map[string]any `json:"fields"`
	Head   *Head          `json:"head"`
}

// Head is a head buffer.
type Head struct {
	Buffer uint32 `json:"buffer"`
	Bytes  uint32 `json:"bytes"`
	Text   string `json:"text"`
}

// Page reads the page of address n and, where it has one and head asks for it, its head buffer.
func (v *View) Page(ctx context.Context, n uint32, head bool) (Page, error) {
	var words [regs.PageWords]uint32
	m := v.Card.Memory(regs.MemPage)
	off, err := m.At(0, n)
	if err != nil {
		return Page{}, fmt.Errorf("page %d of %d: %w", n, m.Entries, ErrNotFound)
	}
	if err := v.Card.ReadTable(ctx, off, words[:]); err != nil {
		return Page{}, err
	}
	var e regs.PageEntry
	e.Decode(words[:])
	p := Page{N: n, L: v.l(n), State: stateName(e.ControlState), Fields: fields("page", words[:])}
	p.Fields["client_address"] = driver.Address(e.ControlKind, e.ClientAddress).String()
	if e.ControlHead == 0 || !head {
		return p, nil
	}
	b, err := v.Card.Head(ctx, e.HeadBuffer)
	if err != nil {
		return Page{}, err
	}
	p.Head = &Head{Buffer: e.HeadBuffer, Bytes: e.HeadBytes, Text: string(b[:min(int(e.HeadBytes), len(b))])}
	return p, nil
}

func (v *View) l(n uint32) string {
	return fmt.Sprintf("0x%x", uint64(n)*uint64(v.Card.Geometry().PageBytes))
}

// fields spells an entry out: word names, or word.field; named values by their names.
func fields(format string, words []uint32) map[string]any {
	all := map[string]any{}
	ft, _ := regs.LookupFormat(format)
	for i := range ft.Words {
		w := &ft.Words[i]
		if w.Reserved() {
			continue
		}
		if w.Count > 1 {
			all[w.Name] = words[w.Index : w.Index+w.Count]
			continue
		}
		if len(w.Fields) == 0 {
			all[w.Name] = words[w.Index]
		}
		for k := range w.Fields {
			f := &w.Fields[k]
			value := f.Get(words[w.Index])
			if n := f.ValueName(value); n != "" {
				all[w.Name+"."+f.Name] = n
				continue
			}
			all[w.Name+"."+f.Name] = value
		}
	}
	return all
}

// Connection is a connection in words.
type Connection struct {
	ID            string `json:"id"` // n.generation
	N             uint32 `json:"n"`
	L             string `json:"l"`
	Generation    uint32 `json:"generation"`
	State         string `json:"state"`
	IPVS          string `json:"ipvs_state"` // as ipvsadm names it
	Passed        bool   `json:"passed"`     // it went to its server at once: no splice
	Template      bool   `json:"template"`   // no connection: it says where those of a client go
	Method        string `json:"method"`     // of the server; empty before one is chosen
	Service       string `json:"service"`
	Client        string `json:"client"`
	VIP           string `json:"vip"`
	Server        string `json:"server"` // empty before one is chosen
	Group         string `json:"group"`
	Rule          *int64 `json:"rule"` // nil: the default, or not matched yet
	Delta         uint32 `json:"delta"`
	ISN           uint32 `json:"isn"`
	ServerISN     uint32 `json:"server_isn"`
	PacketsClient uint64 `json:"packets_client"`
	PacketsServer uint64 `json:"packets_server"`
	BytesClient   uint64 `json:"bytes_client"`
	BytesServer   uint64 `json:"bytes_server"`
	IdleMS        uint32 `json:"idle_ms"`
	AgeMS         uint32 `json:"age_ms"`

	// Only of one connection.
	MSS        uint32 `json:"mss,omitempty"`
	WScale     *int64 `json:"wscale,omitempty"`
	SACK       bool   `json:"sack,omitempty"`
	Timestamps bool   `json:"timestamps,omitempty"`
	Held       bool   `json:"held,omitempty"`
	Legs       []Leg  `json:"legs,omitempty"`
}

// Leg is a leg set of a page.
type Leg struct {
	Set             string `json:"set"`
	Server          string `json:"server"`
	Armed           bool   `json:"armed"`
	Port            uint32 `json:"port"`
	MSS             uint32 `json:"mss"`
	DeltaClient     uint32 `json:"delta_client"`
	DeltaServer     uint32 `json:"delta_server"`
	TimestampClient uint32 `json:"timestamp_client"`
	TimestampServer uint32 `json:"timestamp_server"`
	SACK            bool   `json:"sack"`
	Timestamps      bool   `json:"timestamps"`
	ServerWScale    uint32 `json:"server_wscale"`
	SeqClient       uint32 `json:"seq_client"`
	AckClient       uint32 `json:"ack_client"`
	SeqServer       uint32 `json:"seq_server"`
	AckServer       uint32 `json:"ack_server"`
}

// Filter chooses connections; empty fields do not.
type Filter struct {
	Service, State string
	Limit          int
}

// names of indexes, read once for a list.
type resolver struct {
	v       *View
	vips    map[uint32]netip.Addr
	servers map[uint32]server
	tick    uint32
}

func (v *View) resolver(ctx context.Context) (*resolver, error) {
	r := &resolver{v: v, tick: v.Card.Load(regs.TimerTick)}
	var err error
	if r.vips, err = v.vips(ctx); err != nil {
		return nil, err
	}
	if r.servers, err = v.servers(ctx); err != nil {
		return nil, err
	}
	return r, nil
}

// Connections lists the pages in use.
func (v *View) Connections(ctx context.Context, f Filter) ([]Connection, error) {
	r, err := v.resolver(ctx)
	if err != nil {
		return nil, err
	}
	list := []Connection{}
	err = v.Card.Connections(ctx, func(n uint32, p *regs.PageEntry) bool {
		c := r.connection(n, p)
		if (f.Service == "" || f.Service == c.Service) && (f.State == "" || f.State == c.State) {
			list = append(list, c)
		}
		return f.Limit == 0 || len(list) < f.Limit
	})
	return list, err
}

// Connection shows one connection by its id, n or n.generation.
func (v *View) Connection(ctx context.Context, id string) (Connection, error) {
	n, is, err := parseID(id)
	if err != nil {
		return Connection{}, err
	}
	p, err := v.Card.Page(ctx, n)
	if errors.Is(err, device.ErrRange) {
		return Connection{}, fmt.Errorf("connection %s: %w", id, ErrNotFound)
	}
	if err != nil {
		return Connection{}, err
	}
	if !is(&p) {
		return Connection{}, fmt.Errorf("connection %s: %w", id, ErrNotFound)
	}
	r, err := v.resolver(ctx)
	if err != nil {
		return Connection{}, err
	}
	c := r.connection(n, &p)
	r.details(&c, &p)
	return c, nil
}

// parseID reads the id of a connection, n or n.generation; is says whether a page is what it names.
func parseID(id string) (n uint32, is func(*regs.PageEntry) bool, err error) {
	first, second, exact := strings.Cut(id, ".")
	v, err := strconv.ParseUint(first, 10, 32)
	if err != nil {
		return 0, nil, fmt.Errorf("connection %q: an id is n or n.generation: %w", id, ErrNotFound)
	}
	return uint32(v), func(p *regs.PageEntry) bool {
		return p.ControlValid != 0 && (!exact || second == strconv.FormatUint(uint64(p.ControlGeneration), 10))
	}, nil
}

func (r *resolver) connection(n uint32, p *regs.PageEntry) Connection {
	h := driver.NewHandle(n, p.ControlGeneration)
	c := Connection{
		ID: fmt.Sprintf("%d.%d", h.N(), h.Generation()), N: n, L: r.v.l(n), Generation: p.ControlGeneration, State: stateName(p.ControlState),
		Service: r.v.service(p.IndexService),
		Client:  netip.AddrPortFrom(driver.Address(p.ControlKind, p.ClientAddress), uint16(p.PortsClient)).String(),
		VIP:     netip.AddrPortFrom(r.vips[p.IndexVip], uint16(p.PortsVip)).String(),
		Delta:   p.ADeltaServer, ISN: p.Isn, ServerISN: p.AServerIsn,
		PacketsClient: uint64(p.PacketsClient), PacketsServer: uint64(p.PacketsServer),
		BytesClient: uint64(p.BytesHighClient)<<32 | uint64(p.BytesClient), BytesServer: uint64(p.BytesHighServer)<<32 | uint64(p.BytesServer),
		IdleMS: r.tick - p.LastSeen, AgeMS: r.tick - p.Opened,
	}
	to, known := r.servers[p.AIndexServer]
	c.Passed, c.Template = p.ClientLinkPassed != 0, isTemplate(p)
	c.IPVS = ipvs(p, c.Passed && known && to.ControlProtocol == 17)
	if chosen(p) {
		if known {
			c.Method = to.method()
		}
		c.Server, c.Group = r.server(p.AIndexServer), r.v.group(p.ChoiceGroup)
		if p.Rule != 0 {
			rule := int64(p.Rule) - 1
			c.Rule = &rule
		}
	}
	return c
}

// chosen says whether a server was chosen; not where the card itself answers.
func chosen(p *regs.PageEntry) bool {
	if p.ClientLinkPassed != 0 {
		return true
	}
	return p.ControlState >= regs.StateServerSyn && p.ControlState <= regs.StateQuarantine && p.ControlReply == 0
}

func (r *resolver) server(i uint32) string {
	if s, ok := r.servers[i]; ok {
		return s.addr.String()
	}
	return strconv.FormatUint(uint64(i), 10)
}

func (r *resolver) details(c *Connection, p *regs.PageEntry) {
	c.MSS, c.SACK, c.Timestamps, c.Held = p.ClientMacHiMss, p.ClientLinkSack != 0, p.ClientLinkTimestamps != 0, p.ControlHeld != 0
	if p.ClientLinkWscale != 0 {
		shift := int64(p.OptionsPromisedWscale)
		c.WScale = &shift
	}
	c.Legs = []Leg{{
		Set: "a", Server: r.server(p.AIndexServer), Armed: p.AScaleArmed != 0, Port: p.ALocalPort, MSS: p.ALocalMss,
		DeltaClient: p.ADeltaClient, DeltaServer: p.ADeltaServer, TimestampClient: p.ATimestampClient, TimestampServer: p.ATimestampServer,
		SACK: p.AScaleSack != 0, Timestamps: p.AScaleTimestamps != 0, ServerWScale: p.AScaleServerWscale,
		SeqClient: p.ASeqClient, AckClient: p.AAckClient, SeqServer: p.ASeqServer, AckServer: p.AAckServer,
	}}
	if p.ControlLegB == 0 {
		return
	}
	c.Legs = append(c.Legs, Leg{
		Set: "b", Server: r.server(p.BIndexServer), Armed: p.BScaleArmed != 0, Port: p.BLocalPort, MSS: p.BLocalMss,
		DeltaClient: p.BDeltaClient, DeltaServer: p.BDeltaServer, TimestampClient: p.BTimestampClient, TimestampServer: p.BTimestampServer,
		SACK: p.BScaleSack != 0, Timestamps: p.BScaleTimestamps != 0, ServerWScale: p.BScaleServerWscale,
		SeqClient: p.BSeqClient, AckClient: p.BAckClient, SeqServer: p.BSeqServer, AckServer: p.BAckServer,
	})
}

// Event is an event of the card in words.
type Event struct {
	Sequence      uint32 `json:"sequence"`
	Tick          uint32 `json:"tick"`
	Type          string `json:"type"`
	Reason        string `json:"reason"`
	N             uint32 `json:"n"`
	Generation    uint32 `json:"generation"`
	L             string `json:"l"`
	Service       string `json:"service"`
	Server        string `json:"server"`
	Rule          *int64 `json:"rule"`
	Delta         uint32 `json:"delta"`
	PacketsClient uint32 `json:"packets_client"`
	PacketsServer uint32 `json:"packets_server"`
	BytesClient   uint64 `json:"bytes_client"`
	BytesServer   uint64 `json:"bytes_server"`
}

// Events puts events into words.
func (v *View) Events(ctx context.Context, entries []regs.EventEntry) ([]Event, error) {
	r, err := v.resolver(ctx)
	if err != nil {
		return nil, err
	}
	list := make([]Event, 0, len(entries))
	for i := range entries {
		e := &entries[i]
		x := Event{
			Sequence: e.Sequence, Tick: e.Tick, Type: EventType(e.ControlType),
			Reason: EventReason(e.ReasonReason), N: e.HandleN, Generation: e.HandleGeneration, L: v.l(e.HandleN),
			Service: v.service(e.IndexService), Delta: e.Delta, PacketsClient: e.PacketsClient, PacketsServer: e.PacketsServer,
			BytesClient: uint64(e.BytesHighClient)<<32 | uint64(e.BytesClient), BytesServer: uint64(e.BytesHighServer)<<32 | uint64(e.BytesServer),
		}
		if e.ControlType != regs.EventControlTypeOpened {
			x.Server = r.server(e.IndexServer)
			if e.Rule != 0 {
				rule := int64(e.Rule) - 1
				x.Rule = &rule
			}
		}
		list = append(list, x)
	}
	return list, nil
}
