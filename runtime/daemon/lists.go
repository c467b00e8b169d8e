package daemon

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"

	"splicenic/driver"
	"splicenic/regs"
	"splicenic/runtime/config"
)

// A FULLNAT server has a list of local ports in the card: every port of each of its local addresses, as far as there is
// room. A port pair may be used toward several servers at once, so that lists do not share. The card takes ports from a
// list's head and puts them back at its tail; the host writes a list once, when its server begins, and leaves it alone
// after that: what it knows of it is where it lies.

// A region is where a list lies in the memory of local ports.
type region struct{ first, size uint32 }

// putLists writes the lists of FULLNAT servers that have none, and forgets those of servers that are gone.
func (w *writer) putLists(ctx context.Context, im *Image) error {
	var fresh []uint32
	for _, i := range sorted(im.ix.serverAt) {
		p := im.ix.serverAt[i]
		if _, ok := w.lists[i]; !ok && p.method == config.FullNAT && p.left == nil {
			fresh = append(fresh, i)
		}
	}
	for n, i := range fresh {
		p := im.ix.serverAt[i]
		r, err := w.allot(uint32(len(p.locals))*config.LocalPorts, uint32(len(fresh)-n))
		if err != nil {
			return fmt.Errorf("server %s: %w", p.addr, err)
		}
		if err := w.putList(ctx, im, i, r); err != nil {
			return err
		}
	}
	return nil
}

// allot finds room for a list that wants so many entries, while so many lists are to come. What is left over is for servers
// that come later: a list takes no more than its share of half of it.
func (w *writer) allot(want, lists uint32) (region, error) {
	size := w.card.Memory(regs.MemLocalPort).Entries
	taken := make([]region, 0, len(w.lists)+1)
	used := uint32(0)
	for _, i := range sorted(w.lists) {
		taken = append(taken, w.lists[i])
		used += w.lists[i].size
	}
	slices.SortFunc(taken, func(a, b region) int { return cmp.Compare(a.first, b.first) })
	taken = append(taken, region{size, 0})
	share := min(want, (size-min(used, size))/(2*lists))
	best, at := region{}, uint32(0)
	for _, t := range taken {
		if gap := t.first - min(at, t.first); gap > best.size {
			best = region{at, min(gap, share)}
			if gap >= share {
				break
			}
		}
		at = t.first + t.size
	}
	if best.size == 0 {
		return best, fmt.Errorf("no room for its local ports: the card has %d, %d of them in lists of %d servers", size, used, len(w.lists))
	}
	return best, nil
}

// putList writes a list, all of it free, and then where it is.
func (w *writer) putList(ctx context.Context, im *Image, server uint32, r region) error {
	p := im.ix.serverAt[server]
	words := make([]uint32, r.size*regs.LocalPortWords)
	for n := range r.size {
		local, _ := im.ix.locals.Of(p.locals[n%uint32(len(p.locals))].String())
		e := regs.LocalPortEntry{NumberPort: config.FirstLocalPort + n/uint32(len(p.locals)), NumberLocalAddress: local}
		e.Encode(words[n*regs.LocalPortWords:])
	}
	off, err := w.card.Memory(regs.MemLocalPort).At(0, r.first)
	if err == nil {
		err = w.card.WriteTable(ctx, off, words)
	}
	if err == nil {
		err = w.putState(ctx, server, regs.ServerStatePortsFirst, []uint32{r.first, r.size, 0, 0, r.size})
	}
	if err != nil {
		return fmt.Errorf("write local ports of server %s: %w", p.addr, err)
	}
	w.lists[server] = r
	return nil
}

// dropLists takes the lists from servers that have no entry any more.
func (w *writer) dropLists(ctx context.Context, im *Image) error {
	for _, i := range sorted(w.lists) {
		if _, there := im.ix.serverAt[i]; there {
			continue
		}
		if err := w.putState(ctx, i, regs.ServerStatePortsFirst, make([]uint32, 5)); err != nil {
			return fmt.Errorf("take local ports from server %d: %w", i, err)
		}
		delete(w.lists, i)
	}
	return nil
}

// putLimits writes how many connections servers take.
func (w *writer) putLimits(ctx context.Context, im *Image) error {
	for _, i := range sorted(im.ix.serverAt) {
		want := im.limits[i]
		if want == w.limits[i] {
			continue
		}
		if err := w.putState(ctx, i, regs.ServerStateUpper, want[:]); err != nil {
			return fmt.Errorf("write limits of server %s: %w", im.ix.serverAt[i].addr, err)
		}
		w.limits[i] = want
	}
	return nil
}

// putState writes words of a server's state that are the host's. The card writes its own beside them, so that they are not
// read back with the tables.
func (w *writer) putState(ctx context.Context, server uint32, word int, words []uint32) error {
	off, err := w.card.Memory(regs.MemServerState).At(0, server)
	if err != nil {
		return err
	}
	return w.card.WriteTable(ctx, off+4*uint64(word), words)
}

// readStates finds the lists and limits of a predecessor.
func (w *writer) readStates(ctx context.Context) error {
	servers := uint32(len(w.shadow[memory{regs.MemServer, 0}])) / regs.ServerWords
	words := make(table, servers*regs.ServerStateWords)
	if err := w.readAt(ctx, memory{regs.MemServerState, 0}, 0, words); err != nil {
		return err
	}
	for i := range servers {
		s := words[i*regs.ServerStateWords:]
		if size := s[regs.ServerStatePortsSize]; size != 0 {
			w.lists[i] = region{s[regs.ServerStatePortsFirst], size}
		}
		if l := [2]uint32{s[regs.ServerStateUpper], s[regs.ServerStateLower]}; l != [2]uint32{} {
			w.limits[i] = l
		}
	}
	return nil
}

// listed reads which local addresses the list of a server has; the order does not matter.
func (w *writer) listed(ctx context.Context, server uint32) (list []netip.Addr) {
	r := w.lists[server]
	words := make(table, r.size*regs.LocalPortWords)
	if w.readAt(ctx, memory{regs.MemLocalPort, 0}, r.first*regs.LocalPortWords, words) != nil {
		return nil
	}
	seen := map[uint32]bool{}
	addresses := w.shadow[memory{regs.MemLocalAddress, 0}]
	for at := 0; at < len(words); at += regs.LocalPortWords {
		i := regs.LocalPortNumberLocalAddress(words[at])
		if words[at] == 0 || seen[i] || int(i+1)*regs.AddressWords > len(addresses) {
			continue
		}
		seen[i] = true
		var e regs.AddressEntry
		if e.Decode(addresses[i*regs.AddressWords:]); e.ControlValid != 0 {
			list = append(list, driver.Address(e.ControlKind, e.Address))
		}
	}
	slices.SortFunc(list, netip.Addr.Compare)
	return list
}
