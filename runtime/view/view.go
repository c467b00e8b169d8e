// Package view shows what a card holds, read from its registers and tables, as values with a fixed JSON form.
//
// A View needs a card that was opened and nothing else: with a runtime it also has the names that the configuration gives
// to indexes, without one it shows the indexes. It changes nothing, but for SetRegister. It owns neither card nor
// goroutine; calls take their turns with whoever else uses the card by the caller's care.
package view

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"

	"splicenic/driver"
	"splicenic/regs"
)

// ErrNotFound is the error of what the card does not hold.
var ErrNotFound = errors.New("not found")

// ErrRefused is the error of a store that would do nothing, or harm.
var ErrRefused = errors.New("refused")

// ErrUsage is the error of a question or a value that means nothing.
var ErrUsage = errors.New("wrong usage")

// Names are what a configuration calls things, by their indexes in the card's tables.
type Names struct {
	Services, Groups map[uint32]string
	Schedulers       map[uint32]string // of groups
	Health           map[uint32]Health // of groups
	Rules            map[uint32]RuleText
	Defaults         map[uint32]string // by service: what it answers where no rule takes a request
	Ports            []PortText        // by port

	// Why says of each rule of a service why it took a request or did not; nil: nobody knows.
	Why func(*Request) []RuleWhy
}

// Request is a request that went by rules.
type Request struct {
	Service       uint32
	N, Generation uint32 // its connection
	Rule          uint32 // index of the rule that took it, plus one; zero: none
	Client        netip.Addr
	First         []byte // the client's first bytes, or what was made of them; empty: not known any more
}

// RuleText is what a rule asks of a request.
type RuleText struct {
	Host, Path, Match string
	When              []string // what it asks beside host and path
	Answer            string   // what it answers; empty: it leads to a group
	Slow              string   // why the card cannot decide on it alone; empty: it can
}

// PortText is what a configuration says about a port.
type PortText struct {
	Addresses, Gateways []string
	Forward             string
}

// View is a card with the names of what it holds. The zero Names are allowed.
type View struct {
	Card   *driver.Card
	Names  Names
	Driven bool // a runtime drives the card: SetRegister refuses what it has in hand
}

// service returns the name of a service, or its index.
func (v *View) service(i uint32) string { return name(v.Names.Services, i) }

// Services returns the names of services.
func (v *View) Services() []string {
	return slices.Compact(slices.Sorted(maps.Values(v.Names.Services)))
}

func (v *View) group(i uint32) string { return name(v.Names.Groups, i) }

func name(names map[uint32]string, i uint32) string {
	if n, ok := names[i]; ok {
		return n
	}
	return strconv.FormatUint(uint64(i), 10)
}

// table reads the first n entries of a memory, all where n is zero.
func (v *View) table(ctx context.Context, index int, bank, n uint32) ([]uint32, error) {
	m := v.Card.Memory(index)
	if n == 0 || n > m.Entries {
		n = m.Entries
	}
	words := make([]uint32, uint64(n)*uint64(m.EntryBytes/4))
	off, err := m.At(bank, 0)
	if err == nil {
		err = v.Card.ReadTable(ctx, off, words)
	}
	if err != nil {
		return nil, fmt.Errorf("read table %s: %w", m.Name, err)
	}
	return words, nil
}

// A server as its table has it.
type server struct {
	regs.ServerEntry
	addr netip.AddrPort
}

// servers reads the servers in use, by index.
func (v *View) servers(ctx context.Context) (map[uint32]server, error) {
	words, err := v.table(ctx, regs.MemServer, 0, 0)
	if err != nil {
		return nil, err
	}
	list := map[uint32]server{}
	for i := uint32(0); int(i)*regs.ServerWords < len(words); i++ {
		var s server
		s.Decode(words[i*regs.ServerWords:])
		if s.ControlValid != 0 {
			s.addr = netip.AddrPortFrom(driver.Address(s.ControlKind, s.Address), uint16(s.ControlPort))
			list[i] = s
		}
	}
	return list, nil
}

// vips reads the VIPs in use, by index.
func (v *View) vips(ctx context.Context) (map[uint32]netip.Addr, error) {
	words, err := v.table(ctx, regs.MemVip, 0, 0)
	if err != nil {
		return nil, err
	}
	list := map[uint32]netip.Addr{}
	for i := uint32(0); int(i)*regs.AddressWords < len(words); i++ {
		var e regs.AddressEntry
		e.Decode(words[i*regs.AddressWords:])
		if e.ControlValid != 0 {
			list[i] = driver.Address(e.ControlKind, e.Address)
		}
	}
	return list, nil
}

// valueName names the value of a field of a format.
func valueName(format string, word uint32, field string, value uint32) string {
	ft, _ := regs.LookupFormat(format)
	for i := range ft.Words {
		if w := &ft.Words[i]; w.Index == word {
			if f, ok := w.Field(field); ok {
				if n := f.ValueName(value); n != "" {
					return n
				}
			}
		}
	}
	return strconv.FormatUint(uint64(value), 10)
}

// States returns the names of the states of a page.
func States() []string {
	ft, _ := regs.LookupFormat("page")
	var names []string
	for i := range ft.Words {
		if f, ok := ft.Words[i].Field("state"); ok {
			for _, v := range f.Values {
				names = append(names, v.Name)
			}
		}
	}
	return names
}

func stateName(state uint32) string {
	return valueName("page", regs.PageControl, "state", state)
}

// ExceptionReason names the reason of an exception.
func ExceptionReason(r uint32) string {
	return valueName("exception", regs.ExceptionReason, "reason", r)
}

// EventType names the type of an event.
func EventType(t uint32) string { return valueName("event", regs.EventControl, "type", t) }

// EventReason names the reason of an event.
func EventReason(r uint32) string { return valueName("event", regs.EventReason, "reason", r) }
