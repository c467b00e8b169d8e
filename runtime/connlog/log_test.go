package connlog

import (
	"encoding/json"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"splicenic/driver"
	"splicenic/regs"
)

// names is a network: service 1 reads requests, 2 hellos, 3 nothing.
type names struct{}

func (names) Service(i uint32) (string, Kind) {
	return "service" + strconv.Itoa(int(i)), [...]Kind{Opaque, Request, Hello, Opaque}[i&3]
}
func (names) VIP(i uint32) (netip.Addr, bool) {
	a, ok := map[uint32]netip.Addr{4: netip.MustParseAddr("198.18.0.80"), 6: netip.MustParseAddr("2001:db8::80")}[i]
	return a, ok
}
func (names) Server(i uint32) string { return "server" + strconv.Itoa(int(i)) }
func (names) Rule(i uint32) string   { return "rule" + strconv.Itoa(int(i)) }
func (names) Reason(r uint32) string { return "reason" + strconv.Itoa(int(r)) }

// event kinds, short for tables.
const (
	opened      = regs.EventControlTypeOpened
	established = regs.EventControlTypeEstablished
	spliced     = regs.EventControlTypeSpliced
	firstByte   = regs.EventControlTypeFirstByte
	closed      = regs.EventControlTypeClosed
)

// an event at a tick, of n.generation.
func ev(kind, n, generation, tick uint32, change func(*regs.EventEntry)) regs.EventEntry {
	e := regs.EventEntry{ControlType: kind, HandleN: n, HandleGeneration: generation, Tick: tick, IndexService: 1}
	if kind == opened {
		_, w := driver.AddressWords(netip.MustParseAddr("198.18.0.10"))
		e.PacketsClient, e.PacketsServer, e.BytesClient, e.BytesServer = w[0], w[1], w[2], w[3]
		e.BytesHighClient, e.BytesHighServer, e.Delta = 40000, 80, 4
	}
	if kind == closed {
		e.ReasonReason, e.Rule, e.IndexServer = regs.EventReasonReasonFin, 3, 7
		e.PacketsClient, e.PacketsServer, e.BytesClient, e.BytesServer, e.BytesHighServer = 5, 6, 100, 200, 1
	}
	if kind == spliced {
		e.Rule, e.IndexServer = 3, 7
	}
	if change != nil {
		change(&e)
	}
	return e
}

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func short(l *Line) string {
	b, _ := json.Marshal(l)
	var m map[string]any
	json.Unmarshal(b, &m)
	for k, v := range m {
		if v == nil || v == "" || v == false || v == 0.0 {
			delete(m, k)
		}
	}
	b, _ = json.Marshal(m)
	return string(b)
}

func TestLog(t *testing.T) {
	const (
		whole = `{"bytes_client":100,"bytes_server":4294967496,"client":"198.18.0.10:40000","duration_ms":90,"end":"reason1","first_byte_ms":30,"handshake_ms":10,` +
			`"head":{"host":"a.example","method":"GET","path":"/x"},"id":"9.2","match":"rule2","packets_client":5,"packets_server":6,"rule":2,"server":"server7","service":"service1","splice_ms":20,"time":"2026-01-01T00:00:00.1Z","vip":"198.18.0.80:80"}`
		late = `{"bytes_client":100,"bytes_server":4294967496,"end":"reason1","id":"9.2","match":"rule2","packets_client":5,"packets_server":6,"partial":true,"rule":2,"service":"service1","time":"2026-01-01T00:00:00.19Z"}`
	)
	life := []regs.EventEntry{ev(opened, 9, 2, 100, nil), ev(established, 9, 2, 110, nil), ev(spliced, 9, 2, 120, nil), ev(firstByte, 9, 2, 130, nil), ev(closed, 9, 2, 190, nil)}
	for _, row := range []struct {
		name   string
		events []regs.EventEntry
		want   []string
		live   int
		count  Counters
	}{
		{"a life", life, []string{whole}, 0, Counters{Lines: 1}},
		{"only its end", life[4:], []string{late}, 0, Counters{Lines: 1, Partial: 1}},
		{"a profile event is nobody's", []regs.EventEntry{ev(regs.EventControlTypeProfile, 9, 2, 1, nil)}, nil, 0, Counters{}},
		{"a type that is none", []regs.EventEntry{ev(100, 9, 2, 1, nil)}, nil, 0, Counters{}},
		{"still alive", life[:3], nil, 1, Counters{}},
		{"times of nobody", []regs.EventEntry{ev(established, 9, 2, 1, nil), ev(firstByte, 9, 2, 1, nil)}, nil, 0, Counters{}},
		{"its end was lost", []regs.EventEntry{ev(opened, 9, 2, 100, nil), ev(opened, 9, 3, 300, nil)},
			[]string{`{"client":"198.18.0.10:40000","end":"unseen","id":"9.2","service":"service1","time":"2026-01-01T00:00:00.1Z","vip":"198.18.0.80:80"}`}, 1, Counters{Lines: 1, Unseen: 1}},
		{"events come again", append([]regs.EventEntry{life[0], life[1], life[0]}, life...), []string{whole}, 0, Counters{Lines: 1}},
		{"events of an older use come again", []regs.EventEntry{ev(opened, 9, 0, 100, nil), ev(opened, 9, 4095, 90, nil), ev(spliced, 9, 4095, 95, nil)}, nil, 1, Counters{}},
		{"the end of an older use comes again", []regs.EventEntry{ev(opened, 9, 3, 195, nil), life[4]}, []string{late}, 1, Counters{Lines: 1, Partial: 1}},
		{"ticks wrap", []regs.EventEntry{ev(opened, 9, 2, 1<<32-5, nil), ev(closed, 9, 2, 5, nil)},
			[]string{`{"bytes_client":100,"bytes_server":4294967496,"client":"198.18.0.10:40000","duration_ms":10,"end":"reason1","id":"9.2","match":"rule2","packets_client":5,"packets_server":6,"rule":2,"service":"service1","time":"2026-02-19T17:02:47.291Z","vip":"198.18.0.80:80"}`}, 0, Counters{Lines: 1}},
		{"a server that refused", []regs.EventEntry{ev(opened, 9, 2, 100, nil), ev(closed, 9, 2, 190, func(e *regs.EventEntry) {
			*e = regs.EventEntry{ControlType: closed, HandleN: 9, HandleGeneration: 2, Tick: 190, IndexService: 1, IndexServer: 7, ReasonReason: regs.EventReasonReasonAbortRefused}
		})}, []string{`{"client":"198.18.0.10:40000","duration_ms":90,"end":"reason12","id":"9.2","server":"server7","service":"service1","time":"2026-01-01T00:00:00.1Z","vip":"198.18.0.80:80"}`}, 0, Counters{Lines: 1}},
		{"answered in the server's place, and not closed by the client", []regs.EventEntry{ev(opened, 9, 2, 100, nil), ev(closed, 9, 2, 190, func(e *regs.EventEntry) {
			*e = regs.EventEntry{ControlType: closed, HandleN: 9, HandleGeneration: 2, Tick: 190, IndexService: 1, PacketsClient: 4, ReasonReason: regs.EventReasonReasonExpiredClosing}
		})}, []string{`{"client":"198.18.0.10:40000","duration_ms":90,"end":"reason8","id":"9.2","packets_client":4,"service":"service1","time":"2026-01-01T00:00:00.1Z","vip":"198.18.0.80:80"}`}, 0, Counters{Lines: 1}},
		{"ipv6", []regs.EventEntry{ev(opened, 9, 2, 100, func(e *regs.EventEntry) {
			_, w := driver.AddressWords(netip.MustParseAddr("2001:db8::10"))
			e.PacketsClient, e.PacketsServer, e.BytesClient, e.BytesServer, e.Delta = w[0], w[1], w[2], w[3], 6
		}), ev(opened, 9, 3, 200, nil)},
			[]string{`{"client":"[2001:db8::10]:40000","end":"unseen","id":"9.2","service":"service1","time":"2026-01-01T00:00:00.1Z","vip":"[2001:db8::80]:80"}`}, 1, Counters{Lines: 1, Unseen: 1}},
		{"a vip that is gone", []regs.EventEntry{ev(opened, 9, 2, 100, func(e *regs.EventEntry) { e.Delta = 5 }), ev(opened, 9, 3, 200, nil)},
			[]string{`{"client":"198.18.0.10:40000","end":"unseen","id":"9.2","service":"service1","time":"2026-01-01T00:00:00.1Z"}`}, 1, Counters{Lines: 1, Unseen: 1}},
	} {
		t.Run(row.name, func(t *testing.T) {
			var got []string
			l := New(func(x *Line) { got = append(got, short(x)) })
			l.SetNames(names{})
			for i := range row.events {
				e := &row.events[i]
				var begin []byte
				if e.ControlType == spliced {
					begin = []byte("GET /x?secret=1 HTTP/1.1\r\nHost: a.example\r\nCookie: secret\r\n\r\n")
				}
				l.Event(e, begin, start.Add(time.Duration(e.Tick)*time.Millisecond))
				clear(begin)
			}
			if d := cmp.Diff(row.want, got); d != "" {
				t.Error(d)
			}
			if strings.Contains(strings.Join(got, ""), "secret") {
				t.Error("a secret in the log")
			}
			if l.Live() != row.live || l.Counters() != row.count {
				t.Errorf("%d live, %+v, want %d, %+v", l.Live(), l.Counters(), row.live, row.count)
			}
		})
	}
}

// TestAbandon: a reset ends everything, in order, and once.
func TestAbandon(t *testing.T) {
	var got []string
	l := New(func(x *Line) { got = append(got, x.ID+" "+x.End) })
	l.SetNames(names{})
	for _, n := range []uint32{5, 1, 3} {
		e := ev(opened, n, 0, n, nil)
		l.Event(&e, nil, start)
	}
	l.Found(4, &regs.PageEntry{ControlState: regs.StateQuarantine}, netip.Addr{}, 0, start)
	l.Abandon()
	l.Abandon()
	if d := cmp.Diff([]string{"1.0 unseen", "3.0 unseen", "5.0 unseen"}, got); d != "" || l.Live() != 0 {
		t.Errorf("%d live\n%s", l.Live(), d)
	}
}

// TestFound begins with connections that were there before.
func TestFound(t *testing.T) {
	page := func(state uint32) *regs.PageEntry {
		return &regs.PageEntry{ControlState: state, ControlGeneration: 2, PortsClient: 40000, PortsVip: 80, IndexVip: 4, IndexService: 1, Rule: 3, AIndexServer: 7}
	}
	for _, row := range []struct {
		name   string
		state  uint32
		events []regs.EventEntry
		want   []string
	}{
		{"its end comes", regs.StateSpliced, []regs.EventEntry{ev(firstByte, 9, 2, 130, nil), ev(closed, 9, 2, 190, nil)},
			[]string{`{"bytes_client":100,"bytes_server":4294967496,"client":"198.18.0.10:40000","end":"reason1","id":"9.2","match":"rule2","packets_client":5,"packets_server":6,"partial":true,"rule":2,"server":"server7","service":"service1","time":"2026-01-01T00:00:00Z","vip":"198.18.0.80:80"}`}},
		{"no server yet", regs.StateWaitHead, []regs.EventEntry{ev(opened, 9, 3, 1, nil)},
			[]string{`{"client":"198.18.0.10:40000","end":"unseen","id":"9.2","partial":true,"service":"service1","time":"2026-01-01T00:00:00Z","vip":"198.18.0.80:80"}`}},
		{"all its events come again", regs.StateSpliced, []regs.EventEntry{ev(opened, 9, 2, 100, nil), ev(spliced, 9, 2, 120, nil), ev(closed, 9, 2, 190, nil)},
			[]string{`{"bytes_client":100,"bytes_server":4294967496,"client":"198.18.0.10:40000","duration_ms":90,"end":"reason1","id":"9.2","match":"rule2","packets_client":5,"packets_server":6,"rule":2,"server":"server7","service":"service1","splice_ms":20,"time":"2026-01-01T00:00:00.1Z","vip":"198.18.0.80:80"}`}},
		{"over, and told by another", regs.StateQuarantine, []regs.EventEntry{ev(opened, 9, 3, 1, nil)}, nil},
		{"over, and its end comes again", regs.StateQuarantine, []regs.EventEntry{ev(closed, 9, 2, 190, nil)},
			[]string{`{"bytes_client":100,"bytes_server":4294967496,"client":"198.18.0.10:40000","end":"reason1","id":"9.2","match":"rule2","packets_client":5,"packets_server":6,"partial":true,"rule":2,"server":"server7","service":"service1","time":"2026-01-01T00:00:00Z","vip":"198.18.0.80:80"}`}},
	} {
		t.Run(row.name, func(t *testing.T) {
			var got []string
			l := New(func(x *Line) { got = append(got, short(x)) })
			l.SetNames(names{})
			l.Found(9, page(row.state), netip.MustParseAddr("198.18.0.10"), 77, start)
			l.Found(9, page(row.state), netip.MustParseAddr("198.18.0.10"), 78, start.Add(1))
			for i := range row.events {
				l.Event(&row.events[i], nil, start.Add(time.Duration(row.events[i].Tick)*time.Millisecond))
			}
			if d := cmp.Diff(row.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}
