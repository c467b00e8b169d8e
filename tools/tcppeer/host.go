package tcppeer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// Event says what happened to a connection.
type Event uint8

// Events, as Config.Handle gets them.
const (
	Established Event = iota + 1 // both sides have the handshake
	Data                         // Bytes has grown
	PeerClosed                   // the peer's FIN came in order
	Closed                       // over, both FINs acknowledged; the Conn is used again
	Reset                        // over by an RST of the peer
	TimedOut                     // over: what was sent again as often as allowed was never acknowledged
)

// Config says who a Host is.
type Config struct {
	MAC       [6]byte
	NextHop   [6]byte        // where Dial's segments go; answers go back to the MAC address they came from
	Addresses []netip.Prefix // the host owns every address in them
	VLAN      uint16         // zero: untagged

	MTU         uint16 // zero: 1500
	WindowBytes uint32 // receive buffer of a connection; zero: 65,535
	WindowScale uint8  // shift offered; zero: the option is not offered
	SACK        bool
	Timestamps  bool

	RTO      time.Duration // first retransmission time-out, doubled each time; zero: one second
	Retries  int           // zero: 6
	TimeWait time.Duration // zero: one second; negative: none, the connection ends at once

	Seed uint64
	ISN  func(local, remote netip.AddrPort) uint32 // nil: a keyed function of both and the time

	Send   func(frame []byte)     // the frame is the host's again on return
	Handle func(c *Conn, e Event) // nil: none. May use any method of c and Dial
}

// Stats counts what a Host saw and did.
type Stats struct {
	Frames, Segments, Sent                     uint64
	Malformed, BadChecksum, NotOurs            uint64 // received frames that went no further
	NoConnection, OutOfOrder, Unacceptable     uint64 // segments not taken
	Retransmitted, Resets, Accepted, Connected uint64
}

// ErrInUse: a connection between these two ends is there already.
var ErrInUse = errors.New("tcppeer: address in use")

// A Host is one end system. It is for one goroutine.
type Host struct {
	cfg   Config
	now   time.Duration
	next  time.Duration // no deadline is earlier; 0: none
	buf   []byte
	table table
	live  []*Conn
	free  []*Conn
	ports map[uint16]bool
	last  uint16 // local port Dial gave out last
	stats Stats
}

// New makes a host.
func New(cfg Config) *Host {
	if cfg.MTU == 0 {
		cfg.MTU = 1500
	}
	if cfg.WindowBytes == 0 {
		cfg.WindowBytes = 65_535
	}
	if cfg.RTO == 0 {
		cfg.RTO = time.Second
	}
	if cfg.Retries == 0 {
		cfg.Retries = 6
	}
	if cfg.TimeWait == 0 {
		cfg.TimeWait = time.Second
	}
	return &Host{cfg: cfg, buf: make([]byte, 18+int(cfg.MTU)), ports: map[uint16]bool{}, table: table{seed: mix(cfg.Seed + 1)}}
}

// Listen makes the host answer SYNs to a port, on all its addresses.
func (h *Host) Listen(port uint16) { h.ports[port] = true }

// Stats returns the counters so far.
func (h *Host) Stats() Stats { return h.stats }

// Len returns how many connections there are, in whatever state.
func (h *Host) Len() int { return len(h.live) }

// ConnAt returns one of Len connections. The numbers change whenever one ends.
func (h *Host) ConnAt(i int) *Conn { return h.live[i] }

// Dial sends a SYN from local to remote; a local port of zero is chosen. Handle hears how it goes on.
func (h *Host) Dial(now time.Duration, local, remote netip.AddrPort) (*Conn, error) {
	h.now = now
	k := key{local: toAddr(local.Addr()), remote: toAddr(remote.Addr()), localPort: local.Port(), remotePort: remote.Port()}
	for tries := 0; local.Port() == 0; tries++ {
		const first, ports = 32_768, 28_232
		h.last = (h.last + 1) % ports
		k.localPort = first + h.last
		if h.table.find(&k) == nil {
			break
		}
		if tries == ports {
			return nil, fmt.Errorf("dial %v: %w", remote, ErrInUse)
		}
	}
	if h.table.find(&k) != nil {
		return nil, fmt.Errorf("dial %v from %v: %w", remote, local, ErrInUse)
	}
	c := h.open(&k, h.cfg.NextHop)
	c.state = SynSent
	c.flush()
	return c, nil
}

// open takes a connection from the free list and gives it its first sequence number.
func (h *Host) open(k *key, mac [6]byte) *Conn {
	var c *Conn
	if n := len(h.free); n > 0 {
		c, h.free = h.free[n-1], h.free[:n-1]
		*c = Conn{h: h, serial: c.serial, out: c.out[:0], in: c.in[:0]}
	} else {
		c = &Conn{h: h}
	}
	c.serial++
	c.key, c.mac, c.rto = *k, mac, h.cfg.RTO
	c.iss = uint32(k.hash(h.cfg.Seed)) + uint32(h.now/(4*time.Microsecond))
	if h.cfg.ISN != nil {
		c.iss = h.cfg.ISN(c.Local(), c.Remote())
	}
	c.una, c.nxt, c.max, c.outSeq = c.iss, c.iss, c.iss, c.iss+1
	c.slot = len(h.live)
	h.live = append(h.live, c)
	h.table.add(c, h.live)
	return c
}

// release forgets a connection.
func (h *Host) release(c *Conn) {
	last := len(h.live) - 1
	moved := h.live[last]
	h.live[c.slot], moved.slot = moved, c.slot
	h.live[last] = nil
	h.live = h.live[:last]
	h.table.remove(c)
	c.state = None
	h.free = append(h.free, c)
}

func (h *Host) handle(c *Conn, e Event) {
	if h.cfg.Handle != nil {
		h.cfg.Handle(c, e)
	}
}

func (h *Host) send(b []byte) {
	h.stats.Sent++
	h.cfg.Send(b)
}

func (h *Host) owns(a *addr) bool {
	p := netip.AddrFrom16(*a).Unmap()
	for i := range h.cfg.Addresses {
		if h.cfg.Addresses[i].Contains(p) {
			return true
		}
	}
	return false
}

// Receive takes one frame. It is the caller's again on return.
func (h *Host) Receive(now time.Duration, b []byte) {
	h.now = now
	h.stats.Frames++
	if len(b) < 14 {
		h.stats.Malformed++
		return
	}
	at, etherType, vlan := 14, binary.BigEndian.Uint16(b[12:]), uint16(0)
	if etherType == etherVLAN && len(b) >= 18 {
		at, etherType, vlan = 18, binary.BigEndian.Uint16(b[16:]), binary.BigEndian.Uint16(b[14:])&0xfff
	}
	if vlan != h.cfg.VLAN || [6]byte(b[:6]) != h.cfg.MAC && b[0]&1 == 0 {
		h.stats.NotOurs++
		return
	}
	if etherType == etherARP {
		h.answerARP(b[at:])
		return
	}
	p, ok := parseIP(b, at, etherType)
	switch {
	case !ok:
		h.stats.Malformed++
	case p.protocol == protocolICMPv6 && p.six:
		h.answerSolicitation(&p)
	case p.protocol == protocolTCP:
		h.receiveTCP(&p)
	default:
		h.stats.NotOurs++
	}
}

func (h *Host) receiveTCP(p *packet) {
	var s segment
	if p.sum() != 0xffff {
		h.stats.BadChecksum++
		return
	}
	if !parseTCP(p, &s) {
		h.stats.Malformed++
		return
	}
	h.stats.Segments++
	if c := h.table.find(&s.key); c != nil {
		c.receive(&s)
		return
	}
	if !h.owns(&s.key.local) {
		h.stats.NotOurs++
		return
	}
	if s.flags&(syn|ack|rst|fin) == syn && h.ports[s.key.localPort] {
		h.accept(&s)
		return
	}
	h.stats.NoConnection++
	h.refuse(&s)
}

// accept opens a connection for a SYN and answers it.
func (h *Host) accept(s *segment) {
	h.stats.Accepted++
	c := h.open(&s.key, s.mac)
	c.state, c.passive = SynRcvd, true
	c.learn(s)
	c.flush()
}

// refuse answers a segment of no connection with an RST (RFC 9293, 3.5.2).
func (h *Host) refuse(s *segment) {
	if s.flags&rst != 0 {
		return
	}
	h.stats.Resets++
	out := header{key: &s.key, mac: s.mac, seq: s.ack, flags: rst}
	if s.flags&ack == 0 {
		length := uint32(len(s.data)) + uint32(s.flags&fin) + uint32(s.flags&syn)>>1
		out.seq, out.ack, out.flags = 0, s.seq+length, rst|ack
	}
	h.send(build(h.buf, h.cfg.MAC, h.cfg.VLAN, &out, nil))
}

// Tick runs the timers that are due. Deadline says when to call it.
func (h *Host) Tick(now time.Duration) {
	h.now = now
	if h.next == 0 || now < h.next {
		return
	}
	h.next = 0
	for i := 0; i < len(h.live); i++ {
		c := h.live[i]
		if c.deadline != 0 && c.deadline <= now {
			serial := c.serial
			c.expire()
			if i < len(h.live) && (h.live[i] != c || c.serial != serial) {
				i-- // another took the place
				continue
			}
		}
		h.arm(c.deadline)
	}
}

// Deadline returns when Tick has something to do at the earliest.
func (h *Host) Deadline() (at time.Duration, ok bool) { return h.next, h.next != 0 }

// arm makes the next Tick come no later than at.
func (h *Host) arm(at time.Duration) {
	if at != 0 && (h.next == 0 || at < h.next) {
		h.next = at
	}
}

// timestamp is the host's clock for TSval: milliseconds, from a place the seed gives.
func (h *Host) timestamp() uint32 { return uint32(mix(h.cfg.Seed)) + uint32(h.now/time.Millisecond) }
