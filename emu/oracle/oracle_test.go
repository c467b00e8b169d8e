package oracle_test

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"
	"time"

	"splicenic/emu/frame"
	"splicenic/emu/oracle"
	"splicenic/emu/port"
)

const (
	tcpAt = 34 // all frames here are IPv4 without a tag

	flagFIN, flagSYN, flagRST, flagACK = 1, 2, 4, 16
)

// good is the traffic of one connection over wires that lose a little, with every option.
func good(t testing.TB) []shot {
	t.Helper()
	all := peers{7, true, true}
	x := newTransfer(200_000, 200_000)
	cfg := config{promise: all.promise(), seed: 4}
	all.set(&cfg.client)
	all.set(&cfg.server)
	cfg.client.Handle, cfg.server.Handle = x.handle(0), x.handle(1)
	lossy := port.Impairment{Loss: 0.02, Delay: 2 * time.Millisecond}
	cfg.wires = [2]port.Impairment{lossy, lossy}
	n := newNetwork(t, cfg)
	n.keep = true
	if _, err := n.client.Host.Dial(0, netip.AddrPortFrom(clientAddress, 40_000), vip); err != nil {
		t.Fatal(err)
	}
	n.until("transfer", time.Hour, x.done)
	x.check(t)
	n.sound()
	return n.record
}

func (s *shot) tcp() []byte     { return s.bytes[tcpAt:] }
func (s *shot) flags() byte     { return s.tcp()[13] }
func (s *shot) seq() uint32     { return binary.BigEndian.Uint32(s.tcp()[4:]) }
func (s *shot) ack() uint32     { return binary.BigEndian.Uint32(s.tcp()[8:]) }
func (s *shot) options() []byte { return s.tcp()[20 : int(s.tcp()[12]>>4)*4] }
func (s *shot) payload() []byte { return s.tcp()[int(s.tcp()[12]>>4)*4:] }
func (s *shot) setSeq(v uint32) { binary.BigEndian.PutUint32(s.tcp()[4:], v) }
func (s *shot) setAck(v uint32) { binary.BigEndian.PutUint32(s.tcp()[8:], v) }
func (s *shot) setWindow(v int) { binary.BigEndian.PutUint16(s.tcp()[14:], uint16(v)) }

// option returns the value of an option, nil where there is none.
func (s *shot) option(kind byte) []byte {
	for o := s.options(); len(o) > 0 && o[0] != 0; {
		if o[0] == 1 {
			o = o[1:]
			continue
		}
		if o[0] == kind {
			return o[2:o[1]]
		}
		o = o[o[1]:]
	}
	return nil
}

// fill overwrites an option with NOPs.
func (s *shot) fill(kind byte) {
	v := s.option(kind)
	if v == nil {
		return
	}
	at := cap(s.bytes) - cap(v) - 2
	for i := range len(v) + 2 {
		s.bytes[at+i] = 1
	}
}

// resum makes the checksum right again.
func (s *shot) resum() {
	t := s.tcp()
	binary.BigEndian.PutUint16(t[16:], 0)
	binary.BigEndian.PutUint16(t[16:], ^frame.Fold(frame.Sum(t, frame.Pseudo4(s.bytes[14:], 6, len(t)))))
}

func watch(cfg oracle.Config, shots []shot) ([]oracle.Violation, oracle.Summary) {
	o := oracle.New(cfg)
	for _, s := range shots {
		o.Frame(s.wire, s.fromCard, s.at, s.bytes)
	}
	return o.Finish(), o.Summary()
}

// where tells frames apart.
type where func(s *shot) bool

func card(w oracle.Wire, more ...where) where {
	return func(s *shot) bool {
		for _, m := range more {
			if !m(s) {
				return false
			}
		}
		return s.fromCard && s.wire == w
	}
}

func end(w oracle.Wire) where { return func(s *shot) bool { return !s.fromCard && s.wire == w } }

func hasData(s *shot) bool   { return len(s.payload()) > 100 }
func isPlain(s *shot) bool   { return s.flags()&(flagSYN|flagRST|flagFIN) == 0 }
func isSYN(s *shot) bool     { return s.flags()&(flagSYN|flagRST|flagFIN) == flagSYN }
func hasSACK(s *shot) bool   { return s.option(5) != nil }
func hasFIN(s *shot) bool    { return s.flags()&flagFIN != 0 }
func isSpliced(s *shot) bool { return s.at > 50*time.Millisecond }

// change changes the first frame that is so, or all of them.
func change(all bool, is where, do func(s *shot)) func(shots []shot) []shot {
	return func(shots []shot) []shot {
		for i := range shots {
			if s := &shots[i]; is(s) {
				do(s)
				s.resum()
				if !all {
					break
				}
			}
		}
		return shots
	}
}

func remove(is where) func([]shot) []shot {
	return func(shots []shot) []shot {
		return slices.DeleteFunc(shots, func(s shot) bool { return is(&s) })
	}
}

// TestCatches breaks good traffic in every way that there is a rule against.
func TestCatches(t *testing.T) {
	base := good(t)
	const c, s = oracle.ClientWire, oracle.ServerWire
	isn := func(w oracle.Wire, fromCard bool) uint32 {
		for i := range base {
			if x := &base[i]; x.wire == w && x.fromCard == fromCard && x.flags()&flagSYN != 0 {
				return x.seq()
			}
		}
		t.Fatal("no SYN")
		return 0
	}
	clientISN, cardISN, serverISN := isn(c, false), isn(s, true), isn(s, false)
	for _, tt := range []struct {
		name string
		want oracle.Kind
		do   func([]shot) []shot
	}{
		{"checksum of TCP", oracle.Checksum, func(x []shot) []shot {
			i := slices.IndexFunc(x, func(s shot) bool { return card(c, hasData)(&s) })
			x[i].bytes[tcpAt+16] ^= 4
			return x
		}},
		{"checksum of IP", oracle.Checksum, func(x []shot) []shot {
			i := slices.IndexFunc(x, func(x shot) bool { return card(s, hasData)(&x) })
			x[i].bytes[24] ^= 4
			return x
		}},
		{"another byte to the server", oracle.Bytes, change(false, card(s, hasData, isSpliced), func(s *shot) { s.payload()[7]++ })},
		{"another held byte", oracle.Bytes, change(false, card(s, hasData), func(s *shot) { s.payload()[60]++ })},
		{"another byte to the client", oracle.Bytes, change(false, card(c, hasData), func(s *shot) { s.payload()[7]++ })},
		{"a byte too early", oracle.Bytes, change(false, card(s, hasData, isSpliced), func(s *shot) { s.setSeq(s.seq() - 1) })},
		{"data from nowhere", oracle.Bytes, change(false, card(c, hasData), func(s *shot) { s.setSeq(s.seq() + 1<<20) })},
		{"an ACK from nowhere", oracle.Bytes, change(false, card(c, isPlain, isSpliced), func(s *shot) { s.setSeq(s.seq() + 1<<24) })},
		{"a FIN too early", oracle.End, change(false, card(s, hasData, isSpliced), func(s *shot) { s.tcp()[13] |= flagFIN })},
		{"a FIN that nobody sent", oracle.End, func(x []shot) []shot {
			return change(false, card(c, hasFIN), func(*shot) {})(change(true, end(s), func(s *shot) { s.tcp()[13] &^= flagFIN })(x))
		}},
		{"beyond the server's window", oracle.Window, change(true, end(s), func(s *shot) { s.setWindow(100) })},
		{"a window before the splice", oracle.Promise, change(false, card(c, isPlain), func(s *shot) { s.setWindow(66) })},
		{"the server's window before its SYN-ACK", oracle.Promise, remove(func(x *shot) bool { return end(s)(x) && x.flags()&flagSYN != 0 })},
		{"a SYN-ACK's window", oracle.Promise, change(false, card(c), func(s *shot) { s.setWindow(9000) })},
		{"a SYN's window", oracle.Promise, change(true, end(c), func(s *shot) { s.setWindow(10) })},
		{"a window to the client", oracle.Promise, change(false, card(c, isPlain, isSpliced), func(s *shot) { s.setWindow(0xffff) })},
		{"a window to the server", oracle.Promise, change(false, card(s, isPlain, isSpliced), func(s *shot) { s.setWindow(0xffff) })},
		{"acknowledges what was never sent", oracle.Ack, change(false, card(c, isPlain, isSpliced), func(s *shot) { s.setAck(s.ack() + 1<<24) })},
		{"and to the server", oracle.Ack, change(false, card(s, isPlain, isSpliced), func(s *shot) { s.setAck(s.ack() + 1<<24) })},
		{"acknowledges what the server has not", oracle.Ack, change(true, func(x *shot) bool { return end(s)(x) && x.flags()&flagSYN == 0 }, func(x *shot) { x.setAck(cardISN + 1) })},
		{"acknowledges what the client has not", oracle.Ack, change(true, func(s *shot) bool { return end(c)(s) && s.flags()&flagSYN == 0 }, func(s *shot) { s.setAck(isn(c, true) + 1) })},
		{"held bytes that never come", oracle.Lost, func(x []shot) []shot {
			// The server never has them, and the client learns of no more than the held ones.
			x = change(true, func(x *shot) bool { return end(s)(x) && x.flags()&flagSYN == 0 }, func(x *shot) { x.setAck(cardISN + 1) })(x)
			return change(true, func(s *shot) bool { return card(c)(s) && int32(s.ack()-clientISN-1) > 1000 }, func(s *shot) { s.setAck(clientISN + 1001) })(x)
		}},
		{"a segment beyond the MSS", oracle.Size, change(true, func(s *shot) bool { return end(c)(s) && isSYN(s) }, func(s *shot) { binary.BigEndian.PutUint16(s.option(2), 600) })},
		{"TSval goes back", oracle.Timestamp, change(false, card(c, hasData), func(s *shot) { v := s.option(8); binary.BigEndian.PutUint32(v, binary.BigEndian.Uint32(v)-5000) })},
		{"TSval to the server goes back", oracle.Timestamp, change(false, card(s, isPlain, isSpliced), func(s *shot) { binary.BigEndian.PutUint32(s.option(8), 0) })},
		{"an echo of what was never sent", oracle.Timestamp, change(false, card(c, hasData), func(s *shot) { s.option(8)[4] ^= 1 })},
		{"an echo to the server", oracle.Timestamp, change(false, card(s, isPlain, isSpliced), func(s *shot) { s.option(8)[4] ^= 1 })},
		{"a SYN-ACK's echo", oracle.Timestamp, change(false, card(c), func(s *shot) { s.option(8)[5] ^= 1 })},
		{"a block to the client", oracle.Sack, change(false, card(c, hasSACK), func(s *shot) { s.option(5)[0] ^= 0x10 })},
		{"a block to the server that is not shifted", oracle.Sack, change(false, card(s, hasSACK), func(x *shot) {
			for v := x.option(5); len(v) > 0; v = v[4:] {
				binary.BigEndian.PutUint32(v, binary.BigEndian.Uint32(v)-serverISN+isn(c, true))
			}
		})},
		{"SACK that was not negotiated", oracle.Option, func(x []shot) []shot {
			return change(true, func(x *shot) bool { return end(s)(x) && x.flags()&flagSYN != 0 }, func(s *shot) { s.fill(4) })(x)
		}},
		{"a segment without timestamps", oracle.Option, change(false, card(c, hasData), func(s *shot) { s.fill(8) })},
		{"timestamps that were not negotiated", oracle.Option, change(true, func(s *shot) bool { return s.wire == c && (s.flags()&flagSYN != 0 || !s.fromCard) }, func(s *shot) { s.fill(8) })},
		{"an option of its own", oracle.Option, change(false, card(s, isPlain, isSpliced), func(s *shot) { copy(s.options(), []byte{30, 2}) })},
		{"an answer that was not asked for", oracle.Option, change(true, func(s *shot) bool { return end(c)(s) && isSYN(s) }, func(s *shot) { s.fill(3) })},
		{"no ACK", oracle.Connection, change(false, card(c, hasData), func(s *shot) { s.tcp()[13] &^= flagACK })},
		{"a SYN in between", oracle.Connection, change(false, card(c, hasData), func(s *shot) { s.tcp()[13] |= flagSYN; s.tcp()[13] &^= flagACK })},
		{"before the handshake", oracle.Connection, remove(func(x *shot) bool { return end(s)(x) && x.flags()&flagSYN != 0 })},
	} {
		t.Run(tt.name, func(t *testing.T) {
			shots := make([]shot, len(base))
			for i, s := range base {
				s.bytes = append(make([]byte, 0, len(s.bytes)), s.bytes...)
				shots[i] = s
			}
			got, _ := watch(oracle.Config{}, tt.do(shots))
			if !slices.ContainsFunc(got, func(v oracle.Violation) bool { return v.Kind == tt.want }) {
				t.Errorf("nothing of kind %v among %d violations %v", tt.want, len(got), got[:min(len(got), 5)])
			}
		})
	}
	if got, s := watch(oracle.Config{}, base); len(got) != 0 || s.Connections != 1 || s.Spliced != 1 || s.Resets != 0 {
		t.Errorf("untouched: %v, %+v", got, s)
	}
}

// TestImages: what an end sends against the rules the card may pass on, as it is.
func TestImages(t *testing.T) {
	base := good(t)
	mid := slices.IndexFunc(base, func(s shot) bool { return card(oracle.ServerWire, hasData, isSpliced)(&s) })
	at := base[mid].at
	// The client's segment that the card passes on at mid.
	cause := mid - 1
	for ; !end(oracle.ClientWire)(&base[cause]) || string(base[cause].payload()) != string(base[mid].payload()); cause-- {
	}
	blind := func(of shot) shot {
		s := shot{of.wire, of.fromCard, at, append([]byte(nil), of.bytes...)}
		s.setSeq(s.seq() + 0x5000_0000)
		s.resum()
		return s
	}
	in, out := blind(base[cause]), blind(base[mid])
	other := blind(base[mid])
	other.setSeq(other.seq() + 1)
	other.resum()
	for _, tt := range []struct {
		name   string
		frames []shot
		want   int
	}{
		{"passed on", []shot{in, out}, 0},
		{"changed", []shot{in, other}, 1},
		{"made up", []shot{out}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, s := watch(oracle.Config{Partial: true}, slices.Concat(base[:mid+1], tt.frames))
			if len(got) != tt.want || s.Images != uint64(1-tt.want) {
				t.Errorf("%v, %+v", got, s)
			}
		})
	}
}

// TestCoalesced: a kernel's frames have partial checksums, which only an oracle that is told so takes.
func TestCoalesced(t *testing.T) {
	base := good(t)
	for i := range base {
		s := &base[i]
		binary.BigEndian.PutUint16(s.tcp()[16:], frame.Fold(frame.Pseudo4(s.bytes[14:], 6, len(s.tcp()))))
	}
	if got, _ := watch(oracle.Config{Coalesced: true}, base); len(got) != 0 {
		t.Errorf("%v", got[0])
	}
	if got, _ := watch(oracle.Config{}, base); len(got) == 0 || got[0].Kind != oracle.Checksum {
		t.Errorf("as wire frames: %v", got)
	}
}

// TestBounds: what is kept is bounded, whatever comes.
func TestBounds(t *testing.T) {
	base := good(t)
	bad := slices.Clone(base)
	for i := range bad {
		bad[i].bytes = append([]byte(nil), bad[i].bytes...)
		if s := &bad[i]; s.fromCard {
			s.bytes[24] ^= 1
		}
	}
	if got, s := watch(oracle.Config{Violations: 5}, bad); len(got) != 5 || s.Violations < 100 {
		t.Errorf("%d kept of %d", len(got), s.Violations)
	}
	if _, s := watch(oracle.Config{Listeners: []netip.AddrPort{netip.MustParseAddrPort("198.18.0.81:80")}}, base); s.Connections != 0 {
		t.Errorf("%+v of another listener", s)
	}
	// More connections than are followed: those that are over make room.
	o := oracle.New(oracle.Config{Connections: 3})
	for port := range 10 {
		for _, s := range base {
			b := append([]byte(nil), s.bytes...)
			at := tcpAt
			if s.fromCard == (s.wire == oracle.ClientWire) {
				at = tcpAt + 2
			}
			binary.BigEndian.PutUint16(b[at:], 40_000+uint16(port))
			x := shot{s.wire, s.fromCard, s.at, b}
			x.resum()
			o.Frame(x.wire, x.fromCard, time.Hour*time.Duration(port)+x.at, x.bytes)
		}
	}
	if got := o.Finish(); len(got) != 0 || o.Summary().Connections != 10 {
		t.Errorf("%v, %+v", got, o.Summary())
	}
}
