package daemon

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"splicenic/driver"
	"splicenic/regs"
	"splicenic/runtime/view"
)

// Status is how the daemon fares.
type Status struct {
	Drains Drains // servers that were taken out of the configuration

	Started     time.Time
	Applied     time.Time // when the configuration in force was applied
	LastReload  *Reload   // nil before the first
	TableErrors uint64    // times the tables could not be written
	StateErrors uint64    // times the state file could not be written

	Attached       string // Reset, Adopted or Continued
	Accepting      bool   // the card takes connections
	Unresolved     int    // next hops that were not resolved when it began to
	LostExceptions uint64 // gaps in the sequence numbers of exceptions

	exceptions [maxReason + 1]uint64
	causes     [len(causeNames)]uint64
	tidied     uint64
}

// How a card came to its runtime.
const (
	Reset     = "reset"     // as if new
	Adopted   = "adopted"   // with tables and connections of a predecessor
	Continued = "continued" // with its rings, too: no exception in between was missed
)

// attached says how a card came to its runtime.
func attached(card *driver.Card) string {
	switch {
	case card.Continued():
		return Continued
	case card.Adopted():
		return Adopted
	}
	return Reset
}

// Reload is how an attempt to apply a configuration went.
type Reload struct {
	OK    bool      `json:"ok"`
	At    time.Time `json:"at"`
	Error string    `json:"error,omitempty"`
}

// maxReason is the largest reason of an exception.
const maxReason = regs.ExceptionReasonReasonFragmented

// Status returns how the daemon fares.
func (d *Daemon) Status() Status {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.status
	s.LostExceptions = d.card.Stats().LostExceptions
	return s
}

// maxEvents is how many recent events are kept.
const maxEvents = 1024

// recent is the latest events and counters of all of them.
type recent struct {
	ring   [maxEvents]regs.EventEntry
	count  uint64
	types  [regs.EventControlTypeFirstByte + 1]uint64
	closed [maxClosed + 1]uint64
	ended  map[view.Flow]view.Traffic // of connections that closed
}

// maxClosed is the largest reason of an event.
const maxClosed = regs.EventReasonReasonNoCamPlace

func (r *recent) add(e *regs.EventEntry) {
	r.ring[r.count%maxEvents] = *e
	r.count++
	if e.ControlType < uint32(len(r.types)) {
		r.types[e.ControlType]++
	}
	if e.ControlType == regs.EventControlTypeClosed && e.ReasonReason < uint32(len(r.closed)) {
		r.closed[e.ReasonReason]++
	}
	if e.ControlType == regs.EventControlTypeClosed {
		r.end(e)
	}
}

// end adds the traffic of a connection that closed. Server 0 is also what an event says where none was chosen; an answer
// tells them apart.
func (r *recent) end(e *regs.EventEntry) {
	if r.ended == nil {
		r.ended = map[view.Flow]view.Traffic{}
	}
	f := view.Flow{Service: e.IndexService, Server: e.IndexServer, Chosen: e.IndexServer != 0 || e.PacketsServer > 0}
	t := r.ended[f]
	t.Add(view.Traffic{
		Connections: 1, PacketsClient: uint64(e.PacketsClient), PacketsServer: uint64(e.PacketsServer),
		BytesClient: uint64(e.BytesHighClient)<<32 | uint64(e.BytesClient), BytesServer: uint64(e.BytesHighServer)<<32 | uint64(e.BytesServer),
	})
	r.ended[f] = t
}

// Ended returns the traffic of the connections that closed since the daemon began, as their events told.
func (d *Daemon) Ended() map[view.Flow]view.Traffic {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.events.ended)
}

// last returns the latest n events, oldest first.
func (r *recent) last(n int) []regs.EventEntry {
	n = int(min(uint64(max(n, 0)), r.count, maxEvents))
	list := make([]regs.EventEntry, 0, n)
	for i := r.count - uint64(n); i < r.count; i++ {
		list = append(list, r.ring[i%maxEvents])
	}
	return list
}

// Events returns the latest n events, oldest first.
func (d *Daemon) Events(n int) []regs.EventEntry {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.events.last(n)
}

func sorted[K cmp.Ordered, V any](m map[K]V) []K {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
