package view

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"splicenic/driver"
	"splicenic/driver/device"
	"splicenic/regs"
)

// Explanation is why a connection goes where it goes, and what becomes of each field of its segments.
type Explanation struct {
	Connection Connection `json:"connection"`
	Decisions  []Decision `json:"decisions"`
	Fields     []Rewrite  `json:"fields"` // none before a server's handshake is complete
	Rules      []RuleWhy  `json:"rules"`  // of the service, in order of precedence; null: the head is not known any more
}

// Decision is something that was decided about a connection.
type Decision struct {
	What string `json:"what"`
	Text string `json:"text"`
	From []Word `json:"from"` // what says so
}

// Rewrite is a field that the card rewrites.
type Rewrite struct {
	Direction string `json:"direction"` // "client to server" or "server to client"
	Field     string `json:"field"`
	Does      string `json:"does"`
	From      []Word `json:"from"`
}

// Word is a register, or a word or field of a page or table.
type Word struct {
	Name  string `json:"name"`
	At    string `json:"at"`    // L+0x4c: in the page; server[3]+0x10: in an entry; BAR0+0x12008: a register
	Value string `json:"value"` // empty: not at hand
}

// RuleWhy is a rule, and why it took a request or did not.
type RuleWhy struct {
	Index uint32 `json:"index"`
	Rule  string `json:"rule"`
	To    string `json:"to"`
	Took  bool   `json:"took"`
	Why   string `json:"why"` // what did not fit
}

// The directions.
const (
	upward   = "client to server"
	downward = "server to client"
)

// Explain explains a connection by its id, n or n.generation.
func (v *View) Explain(ctx context.Context, id string) (Explanation, error) {
	n, is, err := parseID(id)
	if err != nil {
		return Explanation{}, err
	}
	e := evidence{n: n, entries: map[string][]uint32{}, register: v.Card.Load}
	err = e.read(ctx, v.Card, "page", n)
	if errors.Is(err, device.ErrRange) {
		return Explanation{}, fmt.Errorf("connection %s: %w", id, ErrNotFound)
	}
	if err != nil {
		return Explanation{}, err
	}
	e.p.Decode(e.entries[e.name("page")])
	p := &e.p
	if !is(p) {
		return Explanation{}, fmt.Errorf("connection %s: %w", id, ErrNotFound)
	}
	r, err := v.resolver(ctx)
	if err != nil {
		return Explanation{}, err
	}
	c := r.connection(n, p)
	r.details(&c, p)
	if err := e.gather(ctx, v.Card); err != nil {
		return Explanation{}, err
	}
	if p.ControlHead != 0 {
		b, err := v.Card.Head(ctx, p.HeadBuffer)
		if err != nil {
			return Explanation{}, err
		}
		e.head = b[:min(int(p.HeadBytes), len(b))]
	}
	x := e.explain(&c)
	if v.Names.Why != nil && e.matched() && p.ControlReply == 0 {
		x.Rules = v.Names.Why(&Request{
			Service: p.IndexService, N: n, Generation: p.ControlGeneration, Rule: p.Rule, Client: driver.Address(p.ControlKind, p.ClientAddress), First: e.head,
		})
	}
	return x, nil
}

// ExplainPage explains a connection by its page alone, as Page showed it: what lies in tables and registers is not at hand.
func ExplainPage(p Page) (Explanation, error) {
	w, err := pageWords(p.Fields)
	if err != nil {
		return Explanation{}, err
	}
	e := evidence{n: p.N, entries: map[string][]uint32{}}
	e.entries[e.name("page")] = w
	if e.p.Decode(w); e.p.ControlValid == 0 {
		return Explanation{}, fmt.Errorf("page %d is not in use: %w", p.N, ErrNotFound)
	}
	if p.Head != nil {
		e.head = []byte(p.Head.Text)
	}
	q := &e.p
	c := Connection{
		ID: fmt.Sprintf("%d.%d", p.N, q.ControlGeneration), N: p.N, L: p.L, Generation: q.ControlGeneration, State: stateName(q.ControlState),
		Client: netip.AddrPortFrom(driver.Address(q.ControlKind, q.ClientAddress), uint16(q.PortsClient)).String(),
		VIP:    fmt.Sprintf("vip %d port %d", q.IndexVip, q.PortsVip), Service: strconv.Itoa(int(q.IndexService)),
		Delta: q.ADeltaServer, ISN: q.Isn, ServerISN: q.AServerIsn, Passed: q.ClientLinkPassed != 0, Template: isTemplate(q), IPVS: ipvs(q, false),
	}
	if chosen(q) {
		c.Server, c.Group = fmt.Sprintf("server %d", q.AIndexServer), strconv.Itoa(int(q.ChoiceGroup))
	}
	return e.explain(&c), nil
}

// Decode turns a page that was shown back into what it is.
func (p *Page) Decode() (regs.PageEntry, error) {
	var e regs.PageEntry
	w, err := pageWords(p.Fields)
	if err == nil {
		e.Decode(w)
	}
	return e, err
}

// pageWords turns the fields of a page back into its words.
func pageWords(fields map[string]any) ([]uint32, error) {
	words := make([]uint32, regs.PageWords)
	ft, _ := regs.LookupFormat("page")
	for i := range ft.Words {
		w := &ft.Words[i]
		switch {
		case w.Reserved():
		case w.Name == "client_address":
			a, err := netip.ParseAddr(fmt.Sprint(fields[w.Name]))
			if err != nil {
				return nil, fmt.Errorf("client_address of a page: %v: %w", err, ErrUsage)
			}
			_, parts := driver.AddressWords(a)
			copy(words[w.Index:], parts[:])
		case len(w.Fields) == 0:
			v, err := pageValue(fields, w.Name, 1<<32-1, nil)
			if err != nil {
				return nil, err
			}
			words[w.Index] = v
		}
		for k := range w.Fields {
			f := &w.Fields[k]
			v, err := pageValue(fields, w.Name+"."+f.Name, f.Mask()>>f.Lsb, f)
			if err != nil {
				return nil, err
			}
			words[w.Index] = f.Set(words[w.Index], v)
		}
	}
	return words, nil
}

// pageValue reads a value: a number up to most, or a name of f's. One that is missing is zero: pages that were saved by an
// older build have fewer.
func pageValue(fields map[string]any, name string, most uint32, f *regs.FieldInfo) (uint32, error) {
	switch v := fields[name].(type) {
	case nil:
		return 0, nil
	case float64:
		if v >= 0 && v <= float64(most) && v == float64(uint32(v)) {
			return uint32(v), nil
		}
	case string:
		for i := 0; f != nil && i < len(f.Values); i++ {
			if f.Values[i].Name == v {
				return f.Values[i].Value, nil
			}
		}
	}
	return 0, fmt.Errorf("%s of a page is %v: %w", name, fields[name], ErrUsage)
}

// evidence is what a connection is explained from.
type evidence struct {
	n        uint32
	p        regs.PageEntry
	entries  map[string][]uint32 // words of the page and of table entries, by name
	register func(regs.Reg) uint32
	head     []byte
	bank     uint32 // generation in force
}

// name is how an entry is called: page[9], server[3]. Which next hop is a server's only its entry tells.
func (e *evidence) name(format string) string {
	switch {
	case format == "page":
		return fmt.Sprintf("page[%d]", e.n)
	case format == "next_hop" && e.entries[e.name("server")] == nil:
		return format
	}
	return fmt.Sprintf("%s[%d]", format, e.index(format))
}

// index is which entry of a table is the connection's.
func (e *evidence) index(format string) uint32 {
	switch format {
	case "vip":
		return e.p.IndexVip
	case "service":
		return e.p.IndexService
	case "rule":
		return e.p.Rule - 1
	case "group":
		return e.p.ChoiceGroup
	case "server":
		return e.p.AIndexServer
	case "next_hop":
		return e.word("server.route.next_hop").number
	}
	return 0
}

// memories are the tables a connection names entries of, and their formats where these have other names.
var memories = []struct {
	name, format string
	memory       int
	banked       bool
}{
	{"page", "page", regs.MemPage, false}, {"vip", "address", regs.MemVip, false}, {"service", "service", regs.MemService, true},
	{"rule", "rule", regs.MemRule, true}, {"group", "group", regs.MemGroup, true}, {"server", "server", regs.MemServer, false},
	{"next_hop", "next_hop", regs.MemNextHop, false},
}

// read reads an entry of a table.
func (e *evidence) read(ctx context.Context, card *driver.Card, name string, index uint32) error {
	for i := range memories {
		m := &memories[i]
		if m.name != name {
			continue
		}
		bank := uint32(0)
		if m.banked {
			bank, e.bank = card.Bank()
		}
		memory := card.Memory(m.memory)
		off, err := memory.At(bank, index)
		if err != nil {
			return err
		}
		words := make([]uint32, memory.EntryBytes/4)
		if err := card.ReadTable(ctx, off, words); err != nil {
			return err
		}
		e.entries[e.name(name)] = words
	}
	return nil
}

// gather reads the entries that the page names.
func (e *evidence) gather(ctx context.Context, card *driver.Card) error {
	want := []string{"vip", "service"}
	if e.matched() {
		want = append(want, "group")
		if e.p.Rule != 0 {
			want = append(want, "rule")
		}
	}
	if chosen(&e.p) {
		want = append(want, "server", "next_hop")
	}
	for _, name := range want {
		if err := e.read(ctx, card, name, e.index(name)); err != nil && !errors.Is(err, device.ErrRange) {
			return err
		}
	}
	return nil
}

// matched says whether it was decided where the request goes.
func (e *evidence) matched() bool { return chosen(&e.p) || e.p.Rule != 0 }

// known is a word with its number.
type known struct {
	Word
	number uint32
	there  bool
}

// word finds a word or field by a dotted name: page.offer.mss, server.address, or a register.
func (e *evidence) word(name string) known {
	table, rest, _ := strings.Cut(name, ".")
	for i := range memories {
		if memories[i].name == table {
			return e.entryWord(memories[i].format, table, rest)
		}
	}
	k := known{Word: Word{Name: name}}
	l, ok := regs.LookupRegister(name)
	if !ok {
		return k
	}
	k.At = fmt.Sprintf("BAR0+0x%x", uint32(l.Reg()))
	if e.register != nil {
		k.number, k.there = e.register(l.Reg()), true
		if l.Field != nil {
			k.number = l.Field.Get(k.number)
		}
		k.Value = strconv.FormatUint(uint64(k.number), 10)
	}
	return k
}

func (e *evidence) entryWord(format, table, name string) known {
	at := "L"
	k := known{Word: Word{Name: "page." + name}}
	if table != "page" {
		at = e.name(table)
		k.Name = at + "." + name
	}
	words := e.entries[e.name(table)]
	word, sub, _ := strings.Cut(name, ".")
	ft, _ := regs.LookupFormat(format)
	for i := range ft.Words {
		w := &ft.Words[i]
		if w.Name != word {
			continue
		}
		k.At = fmt.Sprintf("%s+0x%02x", at, 4*w.Index)
		if k.there = int(w.Index+w.Count) <= len(words); !k.there {
			return k
		}
		k.number = words[w.Index]
		k.Value = fmt.Sprintf("0x%08x", k.number)
		if w.Count > 1 {
			k.Value = e.address(table, [4]uint32(words[w.Index:]))
		}
		if f, ok := w.Field(sub); ok {
			k.number = f.Get(k.number)
			if k.Value = f.ValueName(k.number); k.Value == "" {
				k.Value = strconv.FormatUint(uint64(k.number), 10)
			}
		}
	}
	return k
}

// address is the text of address words of an entry, whose kind is its own.
func (e *evidence) address(table string, w [4]uint32) string {
	if table == "page" {
		return driver.Address(e.p.ControlKind, w).String()
	}
	return driver.Address(e.word(table+".control.kind").number, w).String()
}

// words finds several. A name that begins with a question mark is left out where its number is zero.
func (e *evidence) words(names ...string) []Word {
	list := []Word{}
	for _, n := range names {
		n, optional := strings.CutPrefix(n, "?")
		if k := e.word(n); !optional || k.number != 0 {
			list = append(list, k.Word)
		}
	}
	return list
}

func (e *evidence) explain(c *Connection) Explanation {
	x := Explanation{Connection: *c, Decisions: []Decision{}, Fields: []Rewrite{}}
	say := func(what, text string, from ...string) {
		x.Decisions = append(x.Decisions, Decision{what, text, e.words(from...)})
	}
	if e.p.ClientLinkPassed != 0 {
		if e.passed(c, say); !isTemplate(&e.p) {
			x.Fields = e.passedFields()
		}
		return x
	}
	e.opening(c, say)
	e.request(c, say)
	e.serverEnd(c, say)
	e.life(say)
	if e.p.AScaleArmed != 0 && e.p.ControlReply == 0 {
		x.Fields = e.fields()
	}
	return x
}

type sayer func(what, text string, from ...string)

// opening is what was decided up to the SYN-ACK.
func (e *evidence) opening(c *Connection, say sayer) {
	p := &e.p
	text := fmt.Sprintf("%s opened to %s, which is service %s; it offered MSS %d, a window of %d", c.Client, c.VIP, c.Service, p.OfferMss, p.OfferWindow)
	for _, o := range []struct {
		on   uint32
		text string
	}{
		{p.OptionsWscaleOffered, fmt.Sprintf("window scale %d", p.OptionsClientWscale)}, {p.OptionsSackOffered, "SACK"},
		{p.OptionsTimestampsOffered, "timestamps"}, {p.OptionsEcnOffered, "ECN"},
	} {
		if o.on != 0 {
			text += ", " + o.text
		}
	}
	say("syn", text, "page.client_address", "page.ports.client", "page.ports.vip", "page.index.vip", "vip.address", "page.index.service", "page.control.port",
		"?page.client_link.vlan", "page.client_isn", "page.offer.mss", "page.offer.window", "page.options.wscale_offered", "?page.options.client_wscale",
		"page.options.sack_offered", "page.options.timestamps_offered", "page.options.ecn_offered")
	if p.ClientLinkCookie != 0 {
		say("cookie", "a SYN cookie answered it: what the client offered is known as far as the cookie kept it", "page.client_link.cookie", "service.control.defence")
	}
	text = fmt.Sprintf("MSS %d", p.ClientMacHiMss)
	for _, o := range []struct {
		on   uint32
		text string
	}{
		{p.ClientLinkWscale, fmt.Sprintf("window scale %d", p.OptionsPromisedWscale)}, {p.ClientLinkSack, "SACK"},
		{p.ClientLinkTimestamps, "timestamps"}, {p.ClientLinkEcn, "ECN"},
	} {
		if o.on != 0 {
			text += ", " + o.text
		} else {
			text += ", no " + strings.Fields(o.text)[0]
		}
	}
	text = strings.ReplaceAll(text, "no window", "no window scale")
	mss := "service.promise_mss.ipv4"
	if p.ControlKind == regs.KindIpv6 {
		mss = "service.promise_mss.ipv6"
	}
	say("promise", "the client was promised "+text, "page.client_mac_hi.mss", mss, "page.client_link.wscale", "?page.options.promised_wscale", "service.promise.wscale_on",
		"page.client_link.sack", "service.promise.sack", "page.client_link.timestamps", "service.promise.timestamps", "page.client_link.ecn", "service.promise.ecn")
	say("isn", fmt.Sprintf("our sequence numbers toward the client begin at a0 = 0x%08x", p.Isn), "page.isn", "service.control.isn")
}

// request is what was decided about the request.
func (e *evidence) request(c *Connection, say sayer) {
	p := &e.p
	switch {
	case p.ControlHead == 0 && p.ControlState < regs.StateServerSyn:
		say("head", "nothing has come from the client yet", "page.control.head")
	case p.ControlHead == 0:
		say("head", "the server has all of it; its buffer was given back", "page.control.head")
	case p.ControlReply != 0:
		say("head", fmt.Sprintf("the card answers the client itself: %d bytes of an answer are in the head buffer", p.HeadBytes), "page.control.reply", "page.head.buffer", "page.head.bytes")
	default:
		say("head", fmt.Sprintf("%d bytes are in head buffer %d: %s", p.HeadBytes, p.HeadBuffer, firstLine(e.head)), "page.control.head", "page.head.buffer", "page.head.bytes", "page.options.head_scan", "page.held_boundary")
	}
	if p.ControlWaitingHost != 0 {
		say("host", "the host decides: "+ExceptionReason(p.ControlHostReason), "page.control.waiting_host", "page.control.host_reason")
	}
	if !e.matched() {
		return
	}
	if p.Rule == 0 {
		say("rule", "no rule took the request: it goes to the default group", "page.rule", "page.choice.generation", "service.control.has_default", "service.default.group")
	} else {
		say("rule", fmt.Sprintf("rule %d took the request", p.Rule-1), "page.rule", "page.choice.generation", "rule.control.valid", "rule.control.group", "rule.order", "rule.service.service")
	}
	say("group", fmt.Sprintf("group %s", c.Group), "page.choice.group", "group.control.valid", "group.control.means")
}

// firstLine is the first line of a head, for people.
func firstLine(head []byte) string {
	line, _, _ := strings.Cut(strings.TrimLeft(string(head[:min(len(head), 200)]), "\r\n"), "\n")
	return strconv.QuoteToGraphic(strings.TrimRight(line, "\r"))
}

// serverEnd is what was decided about the server.
func (e *evidence) serverEnd(c *Connection, say sayer) {
	p := &e.p
	if !chosen(p) {
		return
	}
	text := fmt.Sprintf("%s, which sees the client's address and port %d", c.Server, p.ALocalPort)
	if p.OptionsTries != 0 {
		text += fmt.Sprintf("; %d were tried in vain before", p.OptionsTries)
	}
	say("server", text, "page.a_index.server", "server.address", "server.control.port", "server.control.method", "page.a_local.port", "page.options.tries",
		"server.route.next_hop", "next_hop.control.port", "next_hop.control.resolved", "?next_hop.control.vlan", "next_hop.mac_lo", "next_hop.mac_hi.address")
	if p.AScaleArmed == 0 {
		say("handshake", "the server's handshake is not complete", "page.a_scale.armed", "page.a_isn")
		return
	}
	text = fmt.Sprintf("the server's sequence numbers begin at a1 = 0x%08x, so a = a0 − a1 = 0x%08x; it announced MSS %d", p.AServerIsn, p.ADeltaServer, p.ALocalMss)
	say("handshake", text, "page.a_server_isn", "page.a_delta_server", "page.a_local.mss", "page.a_scale.server_wscale", "page.a_scale.sack", "page.a_scale.timestamps", "page.a_scale.ecn")
	if k := int32(p.ClientIsn - p.AIsn); k != 0 {
		say("inserted", fmt.Sprintf("the host altered what the server is sent first by %+d bytes, so our sequence numbers toward it begin as many earlier", k), "page.client_isn", "page.a_isn", "page.a_delta_client")
	}
	if p.ControlHeld != 0 {
		say("held", fmt.Sprintf("the server has not acknowledged all that the client was: the card sends it again as long as it must, up to H = 0x%08x", p.HeldBoundary),
			"page.control.held", "page.held_boundary", "page.a_ack_server", "page.head.bytes", "page.a_rto.interval", "page.options.retries")
	}
	if p.ClientLinkLastRequest != 0 {
		say("last_request", fmt.Sprintf("no byte of the client's from 0x%08x on goes to the server: the only request ends there", p.BoundaryClient), "page.client_link.last_request", "page.boundary_client")
	}
	if p.ControlLegB != 0 {
		say("leg_b", fmt.Sprintf("server %d has what follows: from 0x%08x of the client, from 0x%08x toward it", p.BIndexServer, p.BoundaryClient, p.BoundaryServer),
			"page.control.leg_b", "page.boundary_client", "page.boundary_server", "page.b_index.server", "page.b_delta_client", "page.b_delta_server")
	}
}

// stateTimers are the time-outs of the states, and the word of a service that may say another.
var stateTimers = map[uint32][2]string{
	regs.StateSynRcvd: {"timer.syn_rcvd"}, regs.StateWaitHead: {"timer.wait_head", "service.wait_head"}, regs.StateServerSyn: {"timer.server_syn"},
	regs.StateSpliced: {"timer.idle", "service.idle"}, regs.StateClosing: {"timer.closing"}, regs.StateQuarantine: {"timer.quarantine"},
}

// life is what state it is in, and what ends it.
func (e *evidence) life(say sayer) {
	p := &e.p
	t := stateTimers[p.ControlState]
	from := []string{"page.control.state", "page.opened", "page.last_seen"}
	text := stateName(p.ControlState)
	timeout := t[0]
	if t[1] != "" && e.word(t[1]).number != 0 {
		timeout = t[1]
	}
	if k := e.word(timeout); k.there {
		text += fmt.Sprintf("; it ends %d ms after its last segment", k.number)
		if p.ControlState < regs.StateSpliced || p.ControlState == regs.StateQuarantine {
			text = strings.Replace(text, "its last segment", "its begin", 1)
		}
	}
	if timeout != "" {
		from = append(from, timeout)
	}
	for _, fin := range []struct {
		on   uint32
		text string
	}{{p.ClientLinkFinClient, "the client has sent its FIN"}, {p.ClientLinkFinServer, "the server has sent its FIN"}} {
		if fin.on != 0 {
			text += "; " + fin.text
		}
	}
	if p.ClientLinkFinClient|p.ClientLinkFinServer != 0 {
		from = append(from, "page.client_link.fin_client", "page.client_link.fin_client_acked", "page.client_link.fin_server", "page.client_link.fin_server_acked")
	}
	say("state", text, append(from, "page.control.deadline", "?page.deadline")...)
}

// fields is what becomes of each field, in both directions, by leg set A.
func (e *evidence) fields() []Rewrite {
	p := &e.p
	list := []Rewrite{}
	direction := upward
	add := func(field, does string, from ...string) {
		list = append(list, Rewrite{direction, field, does, e.words(from...)})
	}
	port := func(i uint32) string { return "port." + []string{"client", "server"}[i&1] }
	plus := func(v uint32) string { return fmt.Sprintf("+ 0x%08x", v) }
	minus := func(v uint32) string { return fmt.Sprintf("− 0x%08x", v) }
	shift := func(v uint32) string { return fmt.Sprintf("shifted by %+d, not above 65,535", int32(v<<27)>>27) }

	out := port(p.ControlServerPort)
	hop := "the next hop's"
	if lo := e.word("next_hop.mac_lo"); lo.there {
		hop += ", " + mac(lo.number, e.word("next_hop.mac_hi.address").number)
	}
	add("ethernet.destination", hop, "next_hop.mac_lo", "next_hop.mac_hi.address")
	add("ethernet.source", "the port's", out+".mac_lo", out+".mac_hi.address")
	add("ethernet.vlan", "the next hop's", "next_hop.control.tagged", "next_hop.control.vlan")
	add("ip.destination", "the server's address for the VIP's", "server.address")
	add("ip.ttl", "− 1")
	add("tcp.source_port", "the port that the server sees", "page.a_local.port")
	add("tcp.destination_port", "the server's", "server.control.port")
	add("tcp.seq", plus(p.ADeltaClient), "page.a_delta_client")
	add("tcp.ack", minus(p.ADeltaServer), "page.a_delta_server")
	add("tcp.window", shift(p.AScaleClient), "page.a_scale.client")
	if p.AScaleSack != 0 {
		add("tcp.sack", "edges "+minus(p.ADeltaServer), "page.a_scale.sack", "page.a_delta_server")
	}
	if p.AScaleTimestamps != 0 {
		add("tcp.tsval", plus(p.ATimestampClient), "page.a_scale.timestamps", "page.a_timestamp_client")
		add("tcp.tsecr", minus(p.ATimestampServer), "page.a_timestamp_server")
	}
	add("tcp.checksum", "by the stored difference and those of window and options; a carry of seq or ack takes one off", "page.a_checksum.client", "page.a_scale.checksum_ready")

	direction = downward
	out = port(p.ControlPort)
	add("ethernet.destination", "where the client's SYN came from, "+mac(p.ClientMacLo, p.ClientMacHiAddress), "page.client_mac_lo", "page.client_mac_hi.address")
	add("ethernet.source", "the port's", out+".mac_lo", out+".mac_hi.address")
	add("ethernet.vlan", "that of the client's SYN", "page.client_link.tagged", "page.client_link.vlan")
	add("ip.source", "the VIP's address for the server's", "page.index.vip", "vip.address")
	add("ip.ttl", "− 1")
	add("tcp.source_port", "the VIP's", "page.ports.vip")
	add("tcp.destination_port", "the client's", "page.ports.client")
	add("tcp.seq", plus(p.ADeltaServer), "page.a_delta_server")
	if p.ControlHeld != 0 {
		add("tcp.ack", fmt.Sprintf("H = 0x%08x until the server has acknowledged that, then %s", p.HeldBoundary, minus(p.ADeltaClient)), "page.held_boundary", "page.a_delta_client")
	} else {
		add("tcp.ack", minus(p.ADeltaClient), "page.a_delta_client")
	}
	add("tcp.window", shift(p.AScaleServer), "page.a_scale.server")
	if p.AScaleSack != 0 {
		add("tcp.sack", "edges "+minus(p.ADeltaClient), "page.a_scale.sack", "page.a_delta_client")
	}
	if p.AScaleTimestamps != 0 {
		add("tcp.tsval", plus(p.ATimestampServer), "page.a_scale.timestamps", "page.a_timestamp_server")
		add("tcp.tsecr", minus(p.ATimestampClient), "page.a_timestamp_client")
	}
	add("tcp.checksum", "by the stored difference and those of window and options; a carry of seq or ack takes one off", "page.a_checksum.server", "page.a_scale.checksum_ready")
	return list
}

func mac(lo, hi uint32) string {
	m := driver.MAC(lo, hi)
	return net.HardwareAddr(m[:]).String()
}
