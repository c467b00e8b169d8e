package canary

import (
	"context"
	"encoding/binary"

	"splicenic/driver"
	"splicenic/regs"
	"splicenic/runtime/rule"
)

const (
	vipPort    = 80
	serverPort = 8080
	path       = "/canary"

	restMilliseconds = 10 // of a page after its connection
)

var peerMAC = [6]byte{0x02, 0, 0, 0x53, 0x4e, 0x01} // of whoever is at the other end of either wire

// entry is an entry of a memory.
type entry interface{ Encode(words []uint32) }

// prepare writes the tables of one service a family and puts them in force as a runtime does: the idle bank, then one
// store. The service has no default, so that only the URL table can lead to its server.
func prepare(ctx context.Context, c *driver.Card) error {
	for i := range regs.PortInstances {
		if err := c.SetPort(i, driver.PortConfig{}); err != nil {
			return err
		}
	}
	now, generation := c.Bank()
	bank := 1 - now&1
	put := func(memory, index int, e entry) error {
		m := c.Memory(memory)
		b := uint32(0)
		if m.Banks > 1 {
			b = bank
		}
		at, err := m.At(b, uint32(index))
		if err != nil {
			return err
		}
		words := make([]uint32, m.EntryBytes/4)
		e.Encode(words)
		return c.WriteTable(ctx, at, words)
	}
	services := make([]rule.Service, len(families))
	for i := range families {
		services[i] = rule.Service{Index: uint32(i), Name: families[i].name, Routes: []rule.Route{
			{Match: rule.Match{Path: rule.Path{Kind: rule.ExactPath, Text: path}}, Group: uint32(i)},
		}}
	}
	im, err := rule.Compile(services, rule.Indexes{Size: c.Memory(regs.MemRule).Entries}, c.Memory(regs.MemUrl).Entries, func(uint32) bool { return true })
	if err != nil {
		return err
	}
	for _, x := range []struct {
		memory int
		words  []uint32
	}{{regs.MemUrl, im.Nodes}, {regs.MemRule, im.Rules}} {
		at, err := c.Memory(x.memory).At(bank, 0)
		if err != nil {
			return err
		}
		if err := c.WriteTable(ctx, at, x.words); err != nil {
			return err
		}
	}
	for i := range families {
		f := &families[i]
		_, vip := driver.AddressWords(f.vip)
		_, server := driver.AddressWords(f.server)
		n := uint32(i)
		slot := i * 2 * int(c.Geometry().Slots) // area 0 of the group
		for _, x := range []struct {
			memory, index int
			e             entry
		}{
			{regs.MemVip, i, &regs.AddressEntry{ControlValid: 1, ControlKind: f.kind, Address: vip}},
			{regs.MemListener, i, &regs.ListenerEntry{ControlValid: 1, ControlProtocol: 6, ControlPort: vipPort, IndexVip: n, IndexService: n}},
			{regs.MemService, i, &regs.ServiceEntry{ControlValid: 1, UrlRoot: im.Roots[i], PromiseMssIpv4: 1460, PromiseMssIpv6: 1440}},
			{regs.MemGroup, i, &regs.GroupEntry{ControlValid: 1}},
			{regs.MemGroupState, i, &regs.GroupStateEntry{SelectorCountA: 1}},
			{regs.MemSlot, slot, &regs.SlotEntry{SlotValid: 1, SlotServer: n}},
			{regs.MemServer, i, &regs.ServerEntry{ControlValid: 1, ControlKind: f.kind, ControlProtocol: 6, ControlPort: serverPort, RouteNextHop: n, Address: server}},
			{regs.MemNextHop, i, &regs.NextHopEntry{
				ControlValid: 1, ControlResolved: 1, ControlPort: regs.PortServer,
				MacLo: binary.BigEndian.Uint32(peerMAC[2:]), MacHiAddress: uint32(binary.BigEndian.Uint16(peerMAC[:])),
			}},
		} {
			if err := put(x.memory, x.index, x.e); err != nil {
				return err
			}
		}
	}
	if err := c.SwitchBank(bank, generation+1); err != nil {
		return err
	}
	c.Store(regs.TimerQuarantine, restMilliseconds)
	return c.Accept(true)
}
