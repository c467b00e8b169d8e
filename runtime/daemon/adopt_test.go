package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"splicenic/driver"
	"splicenic/regs"
	"splicenic/runtime/config"
	"splicenic/runtime/neighbour"
	"splicenic/runtime/rule"
)

// little is a card that holds the configurations of these tests and not much more, so that places are used again.
var little = Room{Listeners: 8, Services: 4, Groups: 4, Servers: 6, NextHops: 6, VIPs: 4, LocalAddresses: 4, Rules: 6, URLNodes: 128, Slots: 16}

// errCut is how a test's store ends that did not happen.
var errCut = errors.New("killed")

// A cutCard stops at a store. Stores are words, but for those to a bank that nobody reads.
type cutCard struct {
	*fake
	left  int    // stores until it stops; negative: it does not
	each  func() // after each store
	count int
}

func (c *cutCard) one() error {
	if c.left == 0 {
		return errCut
	}
	c.left--
	c.count++
	return nil
}

func (c *cutCard) WriteTable(ctx context.Context, off uint64, words []uint32) error {
	if slices.Contains([]string{"url", "rule", "listener", "service", "group"}, c.name(off)) {
		if err := c.one(); err != nil {
			return err
		}
		return c.fake.WriteTable(ctx, off, words)
	}
	for i, w := range words {
		if err := c.one(); err != nil {
			return err
		}
		if err := c.fake.WriteTable(ctx, off+4*uint64(i), []uint32{w}); err != nil {
			return err
		}
		if c.each != nil {
			c.each()
		}
	}
	return nil
}

func (c *cutCard) SwitchBank(bank, generation uint32) error {
	if err := c.one(); err != nil {
		return err
	}
	err := c.fake.SwitchBank(bank, generation)
	if c.each != nil {
		c.each()
	}
	return err
}

// table reads a memory of the card.
func (f *fake) table(index int, bank uint32) table {
	m := f.memories[index]
	t := make(table, m.Entries*m.EntryBytes/4)
	start, _ := m.At(bank, 0)
	for i := range t {
		t[i] = f.words[start+4*uint64(i)]
	}
	return t
}

// macs are the neighbours of these tests: every server and gateway has answered.
func macs(c *config.Config) map[config.Hop]neighbour.MAC {
	known := map[config.Hop]neighbour.MAC{}
	for _, g := range c.Groups {
		for _, s := range g.Servers {
			if h, ok := c.Route(s.Addr.Addr()); ok {
				b := h.Neighbor.As16()
				known[h] = neighbour.MAC{2, byte(h.Port), b[12], b[13], b[14], b[15]}
			}
		}
	}
	return known
}

// A life is a runtime's, from its start to where it was killed.
type life struct {
	card  tables
	w     *writer
	ix    *indexes
	state *[]byte // its state file
	live  *live
	room  Room
}

// live is what connections name.
type live struct {
	vips, services, groups, servers, rules map[uint32]string // by index
}

func (l *live) keep() *held {
	in := func(m map[uint32]string) hold { return func(i uint32) bool { _, ok := m[i]; return ok } }
	return &held{vips: in(l.vips), services: in(l.services), groups: in(l.groups), servers: in(l.servers), rules: in(l.rules)}
}

// born starts a runtime with a card that was reset.
func born(card tables, room Room, state *[]byte) *life {
	return &life{card: card, w: newWriter(card), ix: &indexes{}, state: state, live: &live{}, room: room}
}

// adopts starts a runtime with the card of another, as Daemon.adopt does.
func adopts(t testing.TB, card tables, f *fake, room Room, state *[]byte, l *live, text string) *life {
	t.Helper()
	w, err := readBack(context.Background(), card, f.bank, f.generation)
	if err != nil {
		t.Fatal(err)
	}
	p := &predecessor{w: w}
	p.named.servers = bound(l.servers)
	s, err := parseState(*state, room)
	if err == nil && s.tells(7, 9, w.inForce()) {
		p.state = *s
	} else {
		p.named = bounds{vips: bound(l.vips), services: bound(l.services), groups: bound(l.groups), servers: bound(l.servers), rules: bound(l.rules)}
	}
	return &life{card: card, w: w, ix: p.indexes(parseOnce(t, text), room), state: state, live: l, room: room}
}

func bound(m map[uint32]string) (b uint32) {
	for i := range m {
		b = max(b, i+1)
	}
	return b
}

// apply does what Daemon.apply does.
func (l *life) apply(t testing.TB, text string) error {
	t.Helper()
	in := inputsOf(t, text, l.room)
	im, err := images(in, l.ix, &held{})
	if errors.Is(err, rule.ErrFull) {
		im, err = images(in, l.ix, l.live.keep())
	}
	if err != nil {
		t.Fatal(err)
	}
	s := &state{Version: stateVersion, Serial: 7, DataPath: 9, Banks: l.w.banks(im)}
	s.lists(&im.ix)
	if *l.state, err = json.Marshal(s); err != nil {
		t.Fatal(err)
	}
	if err := l.w.write(context.Background(), im); err != nil {
		return err
	}
	l.ix = &im.ix
	return nil
}

// release does what Daemon.tidy does.
func (l *life) release(t testing.TB, text string) {
	t.Helper()
	im, err := images(inputsOf(t, text, l.room), l.ix, l.live.keep())
	if err == nil {
		err = l.w.write(context.Background(), im)
	}
	if err != nil {
		t.Fatal(err)
	}
	l.ix = &im.ix
}

// all says that connections name everything there is.
func (l *life) all() *live {
	named := func(x rule.Indexes) map[uint32]string {
		m := map[uint32]string{}
		for _, n := range x.Used() {
			m[n.Index] = n.Name
		}
		return m
	}
	return &live{named(l.ix.vips), named(l.ix.services), named(l.ix.groups), named(l.ix.servers), named(l.ix.rules)}
}

// check finds out whether an index that connections name has another meaning now. listeners are those that a service of
// a name ever had; without the names, a service with one of them is the service.
func (l *live) check(t testing.TB, f *fake, listeners map[string]map[string]bool, nameless bool) {
	t.Helper()
	vips, servers := f.table(regs.MemVip, 0), f.table(regs.MemServer, 0)
	for i, name := range l.vips {
		var e regs.AddressEntry
		if e.Decode(vips[i*regs.AddressWords:]); e.ControlValid == 0 || driver.Address(e.ControlKind, e.Address).String() != name {
			t.Fatalf("VIP %d was %s and is %+v", i, name, e)
		}
	}
	for i, name := range l.servers {
		var e regs.ServerEntry
		e.Decode(servers[i*regs.ServerWords:])
		if a, _ := serverAddress(&e); e.ControlValid == 0 || (&place{addr: a}).name() != name {
			t.Fatalf("server %d was %s and is %+v", i, name, e)
		}
	}
	now := map[uint32][]string{}
	for at, service := range f.listeners() {
		now[service] = append(now[service], at)
	}
	for i, name := range l.services {
		same := slices.ContainsFunc(now[i], func(at string) bool { return listeners[name][at] })
		other := slices.ContainsFunc(now[i], func(at string) bool { return !listeners[name][at] })
		if other && !(nameless && same) {
			t.Fatalf("service %d was %s and has listeners %s now", i, name, now[i])
		}
	}
}

// listeners lists the listeners in force with their services.
func (f *fake) listeners() map[string]uint32 {
	list := map[string]uint32{}
	vips := f.table(regs.MemVip, 0)
	t := f.table(regs.MemListener, f.bank)
	for at := 0; at < len(t); at += regs.ListenerWords {
		var e regs.ListenerEntry
		if e.Decode(t[at:]); e.ControlValid != 0 {
			var v regs.AddressEntry
			v.Decode(vips[e.IndexVip*regs.AddressWords:])
			list[netip.AddrPortFrom(driver.Address(v.ControlKind, v.Address), uint16(e.ControlPort)).String()] = e.IndexService
		}
	}
	return list
}

// meaning says what the card does with connections, without any index.
func (f *fake) meaning() []string {
	var lines []string
	services := f.table(regs.MemService, f.bank)
	for at, i := range f.listeners() {
		var e regs.ServiceEntry
		e.Decode(services[i*regs.ServiceWords:])
		fallback := "none"
		if e.ControlHasDefault != 0 {
			fallback = f.group(e.DefaultGroup)
		}
		lines = append(lines, fmt.Sprintf("%s: %d default %s", at, e.PromiseMssIpv4, fallback))
		rules := func(host string, root uint32) {
			f.walk(root, "", func(path string, rule uint32) {
				var e regs.RuleEntry
				e.Decode(f.table(regs.MemRule, f.bank)[rule*regs.RuleWords:])
				if e.ControlValid == 0 || e.ServiceService != i {
					fallback = "of service " + fmt.Sprint(e.ServiceService)
				}
				lines = append(lines, fmt.Sprintf("%s: %s%s %s", at, host, path, f.group(e.ControlGroup)))
			})
		}
		root := f.node(e.UrlRoot)
		for host, at := range f.ways(root) {
			rules(host, at)
		}
		if root.NextValid != 0 {
			rules("", root.NextNode)
		}
	}
	slices.Sort(lines)
	return lines
}

func (f *fake) node(at uint32) (n regs.UrlNodeEntry) {
	n.Decode(f.table(regs.MemUrl, f.bank)[at*regs.UrlNodeWords:])
	return n
}

// ways are the ways out of a state by their labels.
func (f *fake) ways(n regs.UrlNodeEntry) map[string]uint32 {
	ways := map[string]uint32{}
	if n.ControlChildren == 0 {
		return ways
	}
	for i := range uint32(1) << n.ChildrenLog2 {
		at := n.ChildrenFirst + i<<n.ChildrenWide
		c := f.node(at)
		if c.ControlUsed == 0 {
			continue
		}
		label := ""
		text := f.table(regs.MemUrl, f.bank)[at*regs.UrlNodeWords+regs.UrlNodeLabel:]
		for k := range c.ControlLabelBytes {
			label += string(rune(byte(text[k/4] >> (k % 4 * 8))))
		}
		if c.ControlAlias != 0 {
			at = c.OtherwiseNode
		}
		ways[label] = at
	}
	return ways
}

// walk tells of the rule that every state takes, and of the one it takes whatever follows.
func (f *fake) walk(at uint32, path string, each func(path string, rule uint32)) {
	n := f.node(at)
	if n.ControlFinal != 0 {
		path += "/*"
	}
	if n.TakeCount != 0 {
		each(path, n.TakeIndex)
	}
	if n.ControlFinal != 0 {
		return
	}
	for label, to := range f.ways(n) {
		f.walk(to, path+"/"+label, each)
	}
	if n.ControlOtherwise == regs.UrlNodeControlOtherwiseState {
		f.walk(n.OtherwiseNode, path+"/", each)
	}
}

// group is the servers of a group in the order of its slots, with where their packets go.
func (f *fake) group(g uint32) string {
	var e regs.GroupEntry
	if e.Decode(f.table(regs.MemGroup, f.bank)[g*regs.GroupWords:]); e.ControlValid == 0 {
		return "not valid"
	}
	var s regs.GroupStateEntry
	s.Decode(f.table(regs.MemGroupState, 0)[g*regs.GroupStateWords:])
	count := [2]uint32{s.SelectorCountA, s.SelectorCountB}[s.SelectorArea]
	slots := f.memories[regs.MemSlot].Entries / (2 * f.memories[regs.MemGroup].Entries)
	var list []string
	for _, w := range f.table(regs.MemSlot, 0)[(2*g+s.SelectorArea)*slots:][:count] {
		var e regs.ServerEntry
		var h regs.NextHopEntry
		e.Decode(f.table(regs.MemServer, 0)[regs.SlotSlotServer(w)*regs.ServerWords:])
		h.Decode(f.table(regs.MemNextHop, 0)[e.RouteNextHop*regs.NextHopWords:])
		list = append(list, fmt.Sprintf("%v:%d(%d%d)>%d%d:%x", driver.Address(e.ControlKind, e.Address), e.ControlPort, e.ControlValid, e.ControlClosed, h.ControlResolved, h.ControlPort, driver.MAC(h.MacLo, h.MacHiAddress)))
	}
	return strings.Join(list, ",")
}

// open is what the card would show of everything in force, entries that are closed or not valid left out.
func (f *fake) tables() map[string]table {
	all := map[string]table{}
	for _, b := range (&Image{}).banked() {
		all[f.memories[b.index].Name] = f.table(b.index, f.bank)
	}
	for _, i := range []int{regs.MemVip, regs.MemServer, regs.MemNextHop} {
		all[f.memories[i].Name] = f.table(i, 0)
	}
	return all
}

const (
	gateway = "# another gateway"
	before  = `
services:
  - {name: a, listen: [198.18.0.80:80, 198.18.0.81:8080], default: g}
  - {name: b, listen: [198.18.0.81:80], routes: [{host: x, path: /y/*, to: h}, {path: /z, to: g}]}
groups:
  - {name: g, servers: [{address: 198.18.1.11:80, weight: 2}, {address: 203.0.113.5:80}]}
  - {name: h, scheduler: rr, servers: [{address: 198.18.1.11:80}, {address: 198.18.1.12:80}]}
`
)

// changes are configurations that may come after another.
var changes = []struct{ name, old, new string }{
	{"nothing", before, before},
	{"weights", before, strings.Replace(before, "weight: 2", "weight: 3", 1)},
	{"a server goes", before, strings.Replace(before, "{address: 198.18.1.11:80}, ", "", 1)},
	{"a server comes", before, strings.Replace(before, "{address: 203.0.113.5:80}", "{address: 203.0.113.5:80}, {address: 198.18.1.13:80}", 1)},
	{"a server is another", before, strings.Replace(before, "203.0.113.5", "198.18.1.77", 1)},
	{"a service is called another name", before, strings.Replace(before, "name: b", "name: c", 1)},
	{"a group is called another name", before, strings.NewReplacer("name: h", "name: i", "to: h", "to: i").Replace(before)},
	{"groups in another order", before, before[:strings.Index(before, "  - {name: g")] + "  - {name: h, scheduler: rr, servers: [{address: 198.18.1.12:80}, {address: 198.18.1.11:80}]}\n  - {name: g, servers: [{address: 203.0.113.5:80}, {address: 198.18.1.11:80, weight: 2}]}\n"},
	{"services in another order", before, "\nservices:\n  - {name: b, listen: [198.18.0.81:80], routes: [{path: /z, to: g}, {host: x, path: /y/*, to: h}]}\n  - {name: a, listen: [198.18.0.81:8080, 198.18.0.80:80], default: g}\n" + before[strings.Index(before, "groups:"):]},
	{"a service goes, a VIP with it", before, strings.Replace(strings.Replace(before, ", 198.18.0.81:8080", "", 1), "  - {name: b, listen: [198.18.0.81:80], routes: [{host: x, path: /y/*, to: h}, {path: /z, to: g}]}\n", "", 1)},
	{"a service comes, a VIP with it", before, strings.Replace(before, "groups:", "  - {name: n, listen: [\"[2001:db8:1::80]:80\"], default: six}\ngroups:\n  - {name: six, servers: [{address: \"[2001:db8:2::11]:80\"}]}", 1)},
	{"a listener goes over", before, strings.Replace(strings.Replace(before, ", 198.18.0.81:8080", "", 1), "[198.18.0.81:80]", "[198.18.0.81:80, 198.18.0.81:8080]", 1)},
	{"rules", before, strings.Replace(before, "/y/*", "/y", 1)},
	{"another gateway", before, before + gateway},
	{"everything", before, `
services:
  - {name: n, listen: [198.18.0.90:80, 198.18.0.80:80], default: k, routes: [{path: /k/*, to: l}]}
groups:
  - {name: k, servers: [{address: 198.18.1.31:80}]}
  - {name: l, servers: [{address: 198.18.1.32:80}, {address: 198.18.1.11:80}]}
`},
}

// parsed are the configurations of these tests.
var parsed = map[string]*config.Config{}

// parseOnce is parse; the configuration can ask for another gateway.
func parseOnce(t testing.TB, text string) *config.Config {
	if c := parsed[text]; c != nil {
		return c
	}
	ports := wiring
	if strings.Contains(text, gateway) {
		ports = strings.Replace(wiring, "198.18.0.254", "198.18.0.253", 1)
	}
	c, err := config.Load("t.yaml", []byte(ports+text))
	if err != nil {
		t.Fatal(err)
	}
	parsed[text] = c
	return c
}

// listenersOf adds the listeners of a configuration's services.
func listenersOf(t testing.TB, to map[string]map[string]bool, text string) {
	for _, s := range parseOnce(t, text).Services {
		if to[s.Name] == nil {
			to[s.Name] = map[string]bool{}
		}
		for _, l := range s.Listen {
			to[s.Name][l.Addr.String()] = true
		}
	}
}

// TestKilledAtEveryStore kills a runtime at every store of an Apply. A successor applies the new configuration, or the old
// one again, with the state file and without, and the card does what it would have done without all this. Meanwhile every
// index means what it meant when its connections were opened.
func TestKilledAtEveryStore(t *testing.T) {
	step := 1
	if raceEnabled { // nothing runs at the same time here
		step = 11
	}
	for _, tt := range changes {
		t.Run(tt.name, func(t *testing.T) {
			for n := range 8 {
				x := scene{old: tt.old, new: tt.new, again: tt.new, lost: n&1 != 0, busy: n&4 == 0, room: little}
				if n&2 != 0 {
					x.again = tt.old
				}
				if !x.busy { // every place is needed again
					x.room = x.tight(t)
				}
				stores := 0
				for k := 0; k <= stores; k += step {
					stores = x.run(t, k)
					if t.Failed() {
						t.Fatalf("killed after store %d of %d; the new configuration comes again: %v; the state file is lost: %v; connections: %v", k, stores, n&2 == 0, x.lost, x.busy)
					}
				}
				if tt.name == "nothing" && !x.lost && stores != 0 {
					t.Errorf("%d stores for nothing", stores)
				}
				if stores == 0 && x.busy && tt.name != "nothing" {
					t.Error("nothing was stored")
				}
			}
		})
	}
}

// A scene is how a runtime is killed.
type scene struct {
	old, new string // what it changes
	again    string // what its successor applies
	lost     bool   // the state file
	busy     bool   // connections name everything in old
	room     Room
}

// tight is a card with no more places than one of two configurations needs.
func (x *scene) tight(t testing.TB) Room {
	r := little
	r.Services, r.Groups, r.Servers, r.VIPs, r.Rules = 0, 0, 0, 0, 0
	for _, text := range []string{x.old, x.new} {
		im, err := images(inputsOf(t, text, little), &indexes{}, &held{})
		if err != nil {
			t.Fatal(err)
		}
		ix := &im.ix
		r.Services, r.Groups, r.Servers = max(r.Services, ix.services.Bound()), max(r.Groups, ix.groups.Bound()), max(r.Servers, ix.servers.Bound())
		r.VIPs, r.Rules = max(r.VIPs, ix.vips.Bound()), max(r.Rules, ix.rules.Bound())
	}
	return r
}

func inputsOf(t testing.TB, text string, room Room) *Inputs {
	c := parseOnce(t, text)
	return &Inputs{Config: c, Room: room, MTU: [2]uint16{1500, 1500}, Neighbours: macs(c)}
}

// run kills a runtime after k stores and returns how many stores there are.
func (x *scene) run(t *testing.T, k int) (stores int) {
	t.Helper()
	first, second, again, lost, little := x.old, x.new, x.again, x.lost, x.room
	var text []byte
	f := newFakeOf(little)
	card := &cutCard{fake: f, left: -1}
	one := born(card, little, &text)
	if err := one.apply(t, first); err != nil {
		t.Fatal(err)
	}
	conns := &live{}
	if x.busy {
		conns = one.all()
	}
	one.live = conns
	listeners := map[string]map[string]bool{}
	listenersOf(t, listeners, first)
	listenersOf(t, listeners, second)
	card.each = func() { conns.check(t, f, listeners, lost) }

	// How many stores there are, on a copy.
	f2 := newFakeOf(little)
	f2.words, f2.bank, f2.generation = maps.Clone(f.words), f.bank, f.generation
	sum := &cutCard{fake: f2, left: -1}
	text2 := slices.Clone(text)
	whole := adopts(t, sum, f2, little, &text2, conns, second)
	if err := whole.apply(t, second); err != nil {
		t.Fatal(err)
	}
	if card.left = k; k > sum.count {
		t.Fatalf("store %d of %d", k, sum.count)
	}
	if err := one.apply(t, second); k < sum.count && !errors.Is(err, errCut) {
		t.Fatalf("apply: %v", err)
	}
	card.left = -1
	if lost {
		text = nil
	}
	two := adopts(t, card, f, little, &text, conns, again)
	if err := two.apply(t, again); err != nil {
		t.Fatalf("successor: %v", err)
	}
	clean := newFakeOf(little)
	var other []byte
	if err := born(clean, little, &other).apply(t, again); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(clean.meaning(), f.meaning()); diff != "" {
		t.Errorf("the card (-clean +successor):\n%s", diff)
	}
	if again == second && !lost {
		if diff := cmp.Diff(f2.tables(), f.tables()); diff != "" {
			t.Errorf("the tables (-not killed +successor):\n%s", diff)
		}
	}
	count := card.count
	if err := two.apply(t, again); err != nil || card.count != count {
		t.Errorf("the same again: %v, %d stores", err, card.count-count)
	}
	// The connections end: what nobody names any more goes, and what is in force stays.
	card.each = nil
	two.live = &live{}
	two.release(t, again)
	if diff := cmp.Diff(clean.meaning(), f.meaning()); diff != "" {
		t.Errorf("the card at rest (-clean +successor):\n%s", diff)
	}
	valid := func(f *fake, index int, words uint32) (n int) {
		for at, t := uint32(0), f.table(index, 0); at < uint32(len(t)); at += words {
			n += int(t[at] & 1)
		}
		return n
	}
	for _, m := range []struct {
		index int
		words uint32
	}{{regs.MemVip, regs.AddressWords}, {regs.MemServer, regs.ServerWords}, {regs.MemNextHop, regs.NextHopWords}} {
		if got, want := valid(f, m.index, m.words), valid(clean, m.index, m.words); got != want {
			t.Errorf("%d entries of %s at rest, want %d", got, f.memories[m.index].Name, want)
		}
	}
	return sum.count
}

// TestPagesKeepPlaces: what no table holds any more, but connections still name, keeps its place even where only the
// pages tell.
func TestPagesKeepPlaces(t *testing.T) {
	const a = `
services:
  - {name: a, listen: [198.18.0.80:80, 198.18.0.81:8080], default: g}
groups:
  - {name: g, servers: [{address: 198.18.1.11:80, weight: 2}, {address: 203.0.113.5:80}]}
`
	var text []byte
	f := newFakeOf(little)
	one := born(f, little, &text)
	if err := one.apply(t, before); err != nil {
		t.Fatal(err)
	}
	conns := one.all()
	one.live = conns
	for _, next := range []string{a, strings.Replace(a, "default: g", "default: g, timeouts: {idle: 5s}", 1)} { // both banks
		if err := one.apply(t, next); err != nil {
			t.Fatal(err)
		}
	}
	listeners := map[string]map[string]bool{}
	listenersOf(t, listeners, before)
	text = nil
	other := a + "  - {name: k, servers: [{address: 198.18.1.12:80}]}\n"
	other = strings.Replace(other, "groups:", "  - {name: n, listen: [198.18.0.90:80], routes: [{path: /n, to: k}]}\ngroups:", 1)
	two := adopts(t, f, f, little, &text, conns, other)
	if err := two.apply(t, other); err != nil {
		t.Fatal(err)
	}
	conns.check(t, f, listeners, false)
	for _, x := range []struct {
		kind, name string
		in         rule.Indexes
		live       map[uint32]string
	}{
		{"service", "n", two.ix.services, conns.services}, {"group", "k", two.ix.groups, conns.groups}, {"VIP", "198.18.0.90", two.ix.vips, conns.vips},
		{"rule", two.ix.rules.Used()[0].Name, two.ix.rules, conns.rules},
	} {
		i, ok := x.in.Of(x.name)
		if was, named := x.live[i]; !ok || named {
			t.Errorf("%s %q has place %d (%v), which is %q for connections", x.kind, x.name, i, ok, was)
		}
	}
	if i, _ := two.ix.services.Of("a"); i != 0 {
		t.Errorf("service a moved to %d", i)
	}
	if i, _ := two.ix.groups.Of("g"); i != 0 {
		t.Errorf("group g moved to %d", i)
	}
	if i, _ := two.ix.servers.Of("198.18.1.12:80/tcp"); conns.servers[i] != "198.18.1.12:80/tcp" {
		t.Errorf("the server that came back is at %d", i)
	}
}
