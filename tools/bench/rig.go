package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"splicenic/driver"
	"splicenic/driver/device"
	"splicenic/emu"
	"splicenic/emu/port"
	"splicenic/regs"
	"splicenic/tools/tcppeer"
)

// The test network: clients in one /16, one VIP, one server.
var (
	clients = netip.MustParsePrefix("198.18.0.0/16")
	vip     = netip.MustParseAddrPort("198.19.0.80:80")
	backend = netip.MustParseAddrPort("198.19.1.1:80")

	cardMAC   = [2][6]byte{{2, 0, 0, 0, 1, 0}, {2, 0, 0, 0, 1, 1}}
	clientMAC = [6]byte{2, 0, 0, 0, 2, 0}
	serverMAC = [6]byte{2, 0, 0, 0, 2, 1}
)

// A rig is a card with one service, brought up and ready. Its wires may be exchanged while nothing is on them.
type rig struct {
	card     *emu.Card
	drv      *driver.Card
	dev      device.Device
	wires    [2]*wire
	begin    time.Duration // on processTime
	time     time.Duration // the card's
	looks    uint
	deadline time.Duration // on the card's clock; what has not ended then has failed
	event    []regs.EventEntry
}

// A wire is a port of the card whose other end can be exchanged.
type wire struct{ port.Port }

func newRig(g emu.Geometry) (*rig, error) {
	r := &rig{wires: [2]*wire{{}, {}}, begin: processTime(), deadline: 10 * time.Minute, event: make([]regs.EventEntry, 256)}
	r.peers(tcppeer.Config{}, tcppeer.Config{})
	var err error
	if r.card, err = emu.New(emu.Config{Geometry: g, Client: r.wires[0], Server: r.wires[1], Seed: 1, Name: "bench"}); err != nil {
		return nil, fmt.Errorf("make card: %w", err)
	}
	r.dev = device.Local(r.card, device.LocalConfig{})
	ports := [2]driver.PortConfig{{Enable: true}, {Enable: true}}
	r.drv, err = driver.Open(context.Background(), r.dev, driver.Config{Pump: func() { r.card.Step(r.now()) }, Random: rand.NewChaCha8([32]byte{1}), Ports: ports})
	if err != nil {
		r.close()
		return nil, fmt.Errorf("bring card up: %w", err)
	}
	if err := r.program(); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

func (r *rig) close() {
	_ = r.dev.Close()
	_ = r.card.Close()
}

// now is the card's time: what this process has run, so that the scan does not do more work for fewer packets where others
// use the machine. Few steps in a row take one look at that clock, which is dear.
func (r *rig) now() time.Duration {
	if r.looks++; r.looks%8 == 1 {
		r.time = processTime() - r.begin
	}
	return r.time
}

// step lets the card work once and takes the events it wrote, as a host does.
func (r *rig) step() bool {
	worked := r.card.Step(r.now())
	for r.drv.Events(r.event) > 0 {
		r.drv.CommitEvents()
	}
	return worked
}

// encoder is an entry of any memory.
type encoder interface{ Encode(w []uint32) }

// program writes one service: a VIP whose requests all go to one server.
func (r *rig) program() error {
	const entry = 0 // of every memory
	lo, hi := driver.MACWords(serverMAC)
	tables := []struct {
		memory int
		bank   uint32
		value  encoder
	}{
		{regs.MemVip, 0, &regs.AddressEntry{ControlValid: 1, ControlKind: regs.KindIpv4, Address: number(vip.Addr())}},
		{regs.MemNextHop, 0, &regs.NextHopEntry{ControlValid: 1, ControlResolved: 1, ControlPort: regs.PortServer,
			MacLo: lo, MacHiAddress: hi}},
		{regs.MemServer, 0, &regs.ServerEntry{ControlValid: 1, ControlKind: regs.KindIpv4, ControlProtocol: 6, ControlPort: uint32(backend.Port()), Address: number(backend.Addr())}},
		{regs.MemSlot, 0, &regs.SlotEntry{SlotValid: 1}},
		{regs.MemGroupState, 0, &regs.GroupStateEntry{SelectorCountA: 1}},
		{regs.MemGroup, 1, &regs.GroupEntry{ControlValid: 1}},
		{regs.MemUrl, 1, &regs.UrlNodeEntry{}},
		{regs.MemService, 1, &regs.ServiceEntry{ControlValid: 1, ControlHasDefault: 1, PromiseMssIpv4: 1460, PromiseMssIpv6: 1440}},
		{regs.MemListener, 1, &regs.ListenerEntry{ControlValid: 1, ControlProtocol: 6, ControlPort: uint32(vip.Port())}},
	}
	ctx := context.Background()
	for _, t := range tables {
		m := &regs.Memories[t.memory]
		words := make([]uint32, m.EntryBytes/4)
		t.value.Encode(words)
		if err := r.drv.WriteTable(ctx, m.At(t.bank, entry), words); err != nil {
			return fmt.Errorf("write %s: %w", m.Name, err)
		}
	}
	r.drv.SwitchBank(1, 1)
	return r.drv.Accept(true)
}

// number is an IPv4 address as the card stores it.
func number(a netip.Addr) [4]uint32 { _, w := driver.AddressWords(a); return w }

// peers puts a new client and a new server at the ends of the wires.
func (r *rig) peers(client, server tcppeer.Config) (c, s *tcppeer.Port) {
	const queue = 1024
	client.MAC, client.NextHop, client.Addresses = clientMAC, cardMAC[0], []netip.Prefix{clients}
	server.MAC, server.NextHop, server.Addresses = serverMAC, cardMAC[1], []netip.Prefix{netip.PrefixFrom(backend.Addr(), 32)}
	c, s = tcppeer.NewPort(cardMAC[0], queue, client), tcppeer.NewPort(cardMAC[1], queue, server)
	s.Host.Listen(80)
	r.wires[0].Port, r.wires[1].Port = c, s
	return c, s
}
