package connlog

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"splicenic/driver"
	"splicenic/regs"
)

// Names tells what the indexes of an event stand for.
type Names interface {
	Service(index uint32) (name string, first Kind)
	VIP(index uint32) (a netip.Addr, ok bool)
	Server(index uint32) string
	Rule(index uint32) string // what it asks for
	Reason(r uint32) string   // of an event
}

// record is a live connection.
type record struct {
	Line
	generation uint32
	opened     uint32 // tick; of a partial line when it was found
	over       bool   // its end was told before it was found
}

// Counters of a Log.
type Counters struct {
	Lines   uint64 // given
	Partial uint64 // of these, without their begin
	Unseen  uint64 // of these, without their end
}

// A Log puts lines together. It is for one goroutine.
type Log struct {
	put   func(*Line)
	names Names
	open  map[uint32]*record // by n
	count Counters
}

// New returns a log that gives its lines to put.
func New(put func(*Line)) *Log { return &Log{put: put, open: map[uint32]*record{}} }

// Counters returns what was counted so far.
func (l *Log) Counters() Counters { return l.count }

// Live is how many connections have a record.
func (l *Log) Live() int { return len(l.open) }

// SetNames says what indexes stand for from now on.
func (l *Log) SetNames(n Names) { l.names = n }

// Event takes the next event of the card, with the bytes that it brings, which are the caller's again on return, and the
// time it happened.
func (l *Log) Event(e *regs.EventEntry, begin []byte, at time.Time) {
	switch e.ControlType {
	case regs.EventControlTypeOpened:
		l.opened(e, at)
	case regs.EventControlTypeEstablished:
		if r := l.find(e); r != nil {
			r.HandshakeMS = r.since(e)
		}
	case regs.EventControlTypeSpliced:
		l.spliced(e, begin, at)
	case regs.EventControlTypeFirstByte:
		if r := l.find(e); r != nil {
			r.FirstByteMS = r.since(e)
		}
	case regs.EventControlTypeClosed:
		l.closed(e, at)
	}
}

// find returns the record of an event's connection; nil: there is none.
func (l *Log) find(e *regs.EventEntry) *record {
	if r := l.open[e.HandleN]; r != nil && r.generation == e.HandleGeneration {
		return r
	}
	return nil
}

// since is the time from the begin to an event; not known where the begin is not.
func (r *record) since(e *regs.EventEntry) *uint32 {
	if r.Partial {
		return nil
	}
	ms := e.Tick - r.opened // a tick is a millisecond
	return &ms
}

func id(n, generation uint32) string { return fmt.Sprintf("%d.%d", n, generation) }

// begin makes the record of an event's connection. What another one left at its place is over.
func (l *Log) begin(e *regs.EventEntry, at time.Time) *record {
	if old := l.open[e.HandleN]; old != nil {
		l.end(e.HandleN, old, Unseen)
	}
	r := &record{generation: e.HandleGeneration, opened: e.Tick, Line: Line{Time: at, ID: id(e.HandleN, e.HandleGeneration)}}
	l.open[e.HandleN] = r
	return r
}

func (l *Log) opened(e *regs.EventEntry, at time.Time) {
	r := l.find(e)
	switch {
	case r != nil: // found before its event came
		r.Time, r.opened, r.Partial = at, e.Tick, false
	case l.behind(e):
		return
	default:
		r = l.begin(e, at)
	}
	r.Service, _ = l.names.Service(e.IndexService)
	vip, known := l.names.VIP(e.Delta)
	a := client([4]uint32{e.PacketsClient, e.PacketsServer, e.BytesClient, e.BytesServer}, known && vip.Is6())
	r.Client = netip.AddrPortFrom(a, uint16(e.BytesHighClient)).String()
	r.VIP = endpoint(vip, known, e.BytesHighServer)
}

// client is the address in an opened event, which does not say its kind: the VIP's is the same.
func client(w [4]uint32, six bool) netip.Addr {
	if six || w[1]|w[2]|w[3] != 0 {
		return driver.Address(regs.KindIpv6, w)
	}
	return driver.Address(regs.KindIpv4, w)
}

func endpoint(a netip.Addr, known bool, port uint32) string {
	if !known {
		return ""
	}
	return netip.AddrPortFrom(a, uint16(port)).String()
}

// behind says whether an event is about an earlier use of a page than the record there: it comes again, after a restart.
func (l *Log) behind(e *regs.EventEntry) bool {
	const generations = 1 << 12
	r := l.open[e.HandleN]
	return r != nil && (r.generation-e.HandleGeneration)%generations-1 < generations/2
}

// late makes a record of a connection whose begin was not seen; nil where its page has another by now.
func (l *Log) late(e *regs.EventEntry, at time.Time) *record {
	if l.behind(e) {
		return nil
	}
	r := l.begin(e, at)
	r.Partial = true
	r.Service, _ = l.names.Service(e.IndexService)
	return r
}

func (l *Log) spliced(e *regs.EventEntry, begin []byte, at time.Time) {
	r := l.find(e)
	if r == nil {
		if r = l.late(e, at); r == nil {
			return
		}
	}
	r.SpliceMS = r.since(e)
	r.chosen(e.Rule, l.names)
	r.Server = l.names.Server(e.IndexServer)
	if len(begin) > 0 {
		_, kind := l.names.Service(e.IndexService)
		r.Head = summary(kind, begin)
	}
}

// chosen notes the rule of a request; rule is the index plus one.
func (r *record) chosen(rule uint32, names Names) {
	if rule != 0 {
		i := rule - 1
		r.Rule, r.Match = &i, names.Rule(i)
	}
}

// tried says whether a connection that ended so had a server, spliced or not. One that the card or the host answered ends
// like a splice, but nothing came from a server.
func tried(e *regs.EventEntry) bool {
	switch e.ReasonReason {
	case regs.EventReasonReasonExpiredClosing:
		return e.PacketsServer != 0
	case regs.EventReasonReasonExpiredServerSyn, regs.EventReasonReasonAbortServerSyn, regs.EventReasonReasonAbortRefused,
		regs.EventReasonReasonAbortProfile, regs.EventReasonReasonAbortHeld, regs.EventReasonReasonExpiredIdle:
		return true
	}
	return false
}

func (l *Log) closed(e *regs.EventEntry, at time.Time) {
	r := l.find(e)
	if r == nil {
		if r = l.late(e, at); r == nil {
			l.straggler(e, at)
			return
		}
	}
	l.close(r, e)
	l.end(e.HandleN, r, l.names.Reason(e.ReasonReason))
}

// straggler writes the line of a connection whose page has another by now.
func (l *Log) straggler(e *regs.EventEntry, at time.Time) {
	r := &record{Line: Line{Time: at, ID: id(e.HandleN, e.HandleGeneration), Partial: true, End: l.names.Reason(e.ReasonReason)}}
	r.Service, _ = l.names.Service(e.IndexService)
	l.close(r, e)
	l.give(r)
}

// close notes what a closed event tells.
func (l *Log) close(r *record, e *regs.EventEntry) {
	r.over = false
	r.DurationMS = r.since(e)
	r.PacketsClient, r.PacketsServer = e.PacketsClient, e.PacketsServer
	r.BytesClient = uint64(e.BytesHighClient)<<32 | uint64(e.BytesClient)
	r.BytesServer = uint64(e.BytesHighServer)<<32 | uint64(e.BytesServer)
	if r.Rule == nil {
		r.chosen(e.Rule, l.names)
	}
	if r.Server == "" && tried(e) {
		r.Server = l.names.Server(e.IndexServer)
	}
}

// end gives the line of a record, unless that was done before the record was made.
func (l *Log) end(n uint32, r *record, reason string) {
	delete(l.open, n)
	if r.over {
		return
	}
	if r.End = reason; reason == Unseen {
		l.count.Unseen++
	}
	l.give(r)
}

func (l *Log) give(r *record) {
	l.count.Lines++
	if r.Partial {
		l.count.Partial++
	}
	l.put(&r.Line)
}

// Found is a connection that was there before the log was: what its page tells. tick and at are the present.
func (l *Log) Found(n uint32, p *regs.PageEntry, client netip.Addr, tick uint32, at time.Time) {
	e := regs.EventEntry{HandleN: n, HandleGeneration: p.ControlGeneration, Tick: tick}
	if l.find(&e) != nil || l.behind(&e) {
		return
	}
	r := l.begin(&e, at)
	r.Partial, r.over = true, p.ControlState == regs.StateQuarantine
	r.Service, _ = l.names.Service(p.IndexService)
	r.Client = netip.AddrPortFrom(client, uint16(p.PortsClient)).String()
	vip, known := l.names.VIP(p.IndexVip)
	r.VIP = endpoint(vip, known, p.PortsVip)
	if p.ControlState == regs.StateSpliced || p.ControlState == regs.StateClosing || r.over {
		r.chosen(p.Rule, l.names)
		if p.ControlReply == 0 {
			r.Server = l.names.Server(p.AIndexServer)
		}
	}
}

// Head is what is known of a live connection's request or ClientHello; nil: nothing.
func (l *Log) Head(n, generation uint32) *Head {
	if r := l.open[n]; r != nil && r.generation == generation {
		return r.Head
	}
	return nil
}

// Abandon ends all connections: the card was reset, and says nothing of them any more.
func (l *Log) Abandon() {
	for _, n := range slices.Sorted(maps.Keys(l.open)) {
		l.end(n, l.open[n], Unseen)
	}
}

// Forget drops all records: nobody wants lines any more.
func (l *Log) Forget() { clear(l.open) }
