package view

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"splicenic/driver"
)

// CAMEntry is a key and its result.
type CAMEntry struct {
	Slot        *uint32 `json:"slot"` // nil where a lookup does not tell
	Kind        string  `json:"kind"`
	Protocol    uint8   `json:"protocol"`
	VLAN        uint16  `json:"vlan"`
	Address     string  `json:"address"`
	Port        uint16  `json:"port"`
	Destination uint16  `json:"destination"`
	Index       uint16  `json:"index"`
	N           uint32  `json:"n"`
	Generation  uint32  `json:"generation"`
	Leg         string  `json:"leg"`
}

// Sides of the CAM by name.
var sides = map[string]int{"client": 0, "server": 1}

// Side returns the number of a side.
func Side(name string) (int, error) {
	if s, ok := sides[name]; ok {
		return s, nil
	}
	return 0, fmt.Errorf("CAM side %q, there is client and server: %w", name, ErrNotFound)
}

// CAM lists the entries of a side, at most limit where that is not zero.
func (v *View) CAM(ctx context.Context, side, limit int) ([]CAMEntry, error) {
	list := []CAMEntry{}
	err := v.Card.CAMEntries(ctx, side, func(e driver.CAMEntry) bool {
		x := camEntry(e.Key, e.Handle, e.LegB)
		x.Slot = &e.Slot
		list = append(list, x)
		return limit == 0 || len(list) < limit
	})
	return list, err
}

func camEntry(k driver.Key, h driver.Handle, legB bool) CAMEntry {
	e := CAMEntry{
		Kind: "local", Protocol: k.Protocol, VLAN: k.VLAN, Address: fmt.Sprint(k.Local), Port: k.Port, Destination: k.Destination, Index: k.Index,
		N: h.N(), Generation: h.Generation(), Leg: "a",
	}
	if k.Addr.IsValid() {
		e.Address, e.Kind = k.Addr.String(), "ipv6"
		if k.Addr.Is4() {
			e.Kind = "ipv4"
		}
	}
	if legB {
		e.Leg = "b"
	}
	return e
}

// CAMQuery is what a lookup asks for. VIP and Server stand for Index where they are valid.
type CAMQuery struct {
	Key    driver.Key
	VIP    netip.Addr
	Server netip.AddrPort
}

// CAMLookup looks a key up as the data path does.
func (v *View) CAMLookup(ctx context.Context, side int, q CAMQuery) (CAMEntry, error) {
	if q.VIP.IsValid() {
		vips, err := v.vips(ctx)
		if err != nil {
			return CAMEntry{}, err
		}
		i, ok := find(vips, func(a netip.Addr) bool { return a == q.VIP })
		if !ok {
			return CAMEntry{}, fmt.Errorf("VIP %s: %w", q.VIP, ErrNotFound)
		}
		q.Key.Index = uint16(i)
	}
	if q.Server.IsValid() {
		servers, err := v.servers(ctx)
		if err != nil {
			return CAMEntry{}, err
		}
		i, ok := find(servers, func(s server) bool { return s.addr == q.Server })
		if !ok {
			return CAMEntry{}, fmt.Errorf("server %s: %w", q.Server, ErrNotFound)
		}
		q.Key.Index = uint16(i)
	}
	h, legB, err := v.Card.CAMLookup(ctx, side, q.Key)
	if errors.Is(err, driver.ErrNotFound) {
		return CAMEntry{}, fmt.Errorf("CAM entry of %s port %d: %w", q.Key.Addr, q.Key.Port, ErrNotFound)
	}
	if err != nil {
		return CAMEntry{}, err
	}
	return camEntry(q.Key, h, legB), nil
}

// find returns the lowest index whose value is wanted.
func find[V any](m map[uint32]V, wanted func(V) bool) (uint32, bool) {
	best, ok := uint32(0), false
	for i, x := range m {
		if wanted(x) && (!ok || i < best) {
			best, ok = i, true
		}
	}
	return best, ok
}
