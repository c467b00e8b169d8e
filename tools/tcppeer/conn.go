package tcppeer

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"time"
)

// State is a connection's state as RFC 9293 names it. LISTEN is the host's; CLOSED is None.
type State uint8

// States.
const (
	None State = iota
	SynSent
	SynRcvd
	Open // ESTABLISHED
	FinWait1
	FinWait2
	Closing
	TimeWait
	CloseWait
	LastAck
)

var stateNames = [...]string{"CLOSED", "SYN_SENT", "SYN_RCVD", "ESTABLISHED", "FIN_WAIT_1", "FIN_WAIT_2", "CLOSING", "TIME_WAIT", "CLOSE_WAIT", "LAST_ACK"}

func (s State) String() string { return stateNames[min(int(s), len(stateNames)-1)] }

// A Conn is one end of a connection. It belongs to its Host and is used again after Closed, Reset or TimedOut.
type Conn struct {
	// Tag is the caller's.
	Tag uint64

	h      *Host
	key    key
	mac    [6]byte
	state  State
	serial uint32 // counts the uses of this Conn
	slot   int    // in Host.live
	chain  *Conn

	// Send side: out holds the bytes from outSeq on that are not acknowledged.
	iss, una, nxt, max uint32
	window             uint32 // the peer's, scaled
	out                []byte
	outSeq             uint32
	finQueued          bool
	duplicates         uint8 // acknowledgements that moved nothing, in a row
	mss                uint16
	scaleOut, scaleIn  uint8

	// Receive side.
	irs, rcv   uint32
	in         []byte
	advertised uint32 // right edge of the window last told
	ackNow     bool
	ahead      []piece   // what came before its turn, in order, where SACK was agreed on
	newest     uint32    // where the last of those begins
	again      [2]uint32 // what came twice, for a D-SACK; empty: nothing

	passive    bool
	finSeen    bool
	timestamps bool
	sack       bool
	recent     uint32 // the peer's TSval to be echoed

	rto      time.Duration
	retries  int
	deadline time.Duration
}

// piece is data that came before its turn.
type piece struct {
	seq  uint32
	data []byte
	fin  bool
}

// maxAhead is how many pieces are kept.
const maxAhead = 256

// State returns the state.
func (c *Conn) State() State { return c.state }

// Passive says whether the peer opened the connection.
func (c *Conn) Passive() bool { return c.passive }

// Local returns this end's address and port.
func (c *Conn) Local() netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom16(c.key.local).Unmap(), c.key.localPort)
}

// Remote returns the peer's.
func (c *Conn) Remote() netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom16(c.key.remote).Unmap(), c.key.remotePort)
}

// Options returns what both ends agreed on.
func (c *Conn) Options() (mss uint16, scaleOut, scaleIn uint8, sack, timestamps bool) {
	return c.mss, c.scaleOut, c.scaleIn, c.sack, c.timestamps
}

// Sequence returns the two initial sequence numbers, ours and the peer's.
func (c *Conn) Sequence() (ours, peers uint32) { return c.iss, c.irs }

// Next returns the sequence numbers of the next byte to be sent and the next to be received.
func (c *Conn) Next() (send, receive uint32) { return c.nxt, c.rcv }

// Bytes returns what was received and not discarded. It is valid until the next call for this connection.
func (c *Conn) Bytes() []byte { return c.in }

// Discard drops the first n bytes of Bytes and tells the peer when that opens a closed window.
func (c *Conn) Discard(n int) {
	c.in = c.in[:copy(c.in, c.in[n:])]
	if c.state >= Open && c.advertised-c.rcv < uint32(c.mss) && c.room() >= uint32(c.mss) {
		c.ackNow = true
		c.flush()
	}
}

// Write queues bytes and sends what the window allows. After CloseWrite it does nothing.
func (c *Conn) Write(p []byte) {
	if c.state == None || c.finQueued {
		return
	}
	c.out = append(c.out, p...)
	c.flush()
}

// Queued returns how many bytes of Write are not acknowledged yet.
func (c *Conn) Queued() int { return len(c.out) }

// KeepAlive sends a probe that the peer answers (RFC 9293, 3.8.4).
func (c *Conn) KeepAlive() {
	if c.state >= Open {
		c.emit(c.una-1, ack, nil)
	}
}

// CloseWrite sends a FIN after what is queued.
func (c *Conn) CloseWrite() {
	if c.state == None || c.finQueued {
		return
	}
	c.finQueued = true
	c.flush()
}

// Abort sends an RST and forgets the connection. There is no event.
func (c *Conn) Abort() {
	if c.state == None {
		return
	}
	c.h.stats.Resets++
	c.emit(c.nxt, rst|ack, nil)
	c.h.release(c)
}

// before compares sequence numbers.
func before(a, b uint32) bool { return int32(a-b) < 0 }

// learn takes the peer's SYN.
func (c *Conn) learn(s *segment) {
	cfg := &c.h.cfg
	c.irs, c.rcv = s.seq, s.seq+1
	c.window = s.window // never scaled in a SYN
	own := cfg.MTU - 40
	if c.key.six() {
		own = cfg.MTU - 60
	}
	c.mss = 536
	if s.mss != 0 {
		c.mss = s.mss
	}
	c.mss = min(c.mss, own)
	if c.timestamps = cfg.Timestamps && s.timestamps; c.timestamps {
		c.recent = s.tsval
		c.mss -= 12
	}
	c.sack = cfg.SACK && s.sackOK
	if cfg.WindowScale != 0 && s.scaleOn {
		c.scaleOut, c.scaleIn = s.scale, cfg.WindowScale
	}
}

// receive runs the state machine over one segment (RFC 9293, 3.10.7).
func (c *Conn) receive(s *segment) {
	if c.state == SynSent {
		c.receiveSynSent(s)
		return
	}
	if !c.acceptable(s) {
		return
	}
	if s.timestamps && c.timestamps && !before(s.tsval, c.recent) && !before(c.rcv, s.seq) {
		c.recent = s.tsval
	}
	opened := false
	if c.state == SynRcvd {
		if s.ack != c.iss+1 {
			c.h.stats.Unacceptable++
			c.h.refuse(s)
			return
		}
		c.state, opened = Open, true
		c.h.stats.Connected++
	}
	if !c.acknowledge(s) {
		return
	}
	serial := c.serial
	fresh, finished := c.take(s)
	for _, e := range [...]struct {
		happened bool
		event    Event
	}{{opened, Established}, {fresh, Data}, {finished, PeerClosed}} {
		if e.happened {
			c.h.handle(c, e.event)
		}
		if c.serial != serial || c.state == None {
			return // the handler ended it
		}
	}
	c.flush()
	if c.state == TimeWait && c.h.cfg.TimeWait < 0 {
		c.end(Closed)
	}
}

func (c *Conn) receiveSynSent(s *segment) {
	if s.flags&ack != 0 && s.ack != c.iss+1 {
		c.h.stats.Unacceptable++
		c.h.refuse(s)
		return
	}
	if s.flags&rst != 0 {
		if s.flags&ack != 0 {
			c.end(Reset)
		}
		return
	}
	if s.flags&(syn|ack) != syn|ack { // no simultaneous open
		c.h.stats.Unacceptable++
		return
	}
	c.learn(s)
	c.state, c.una, c.retries, c.rto, c.deadline = Open, c.iss+1, 0, c.h.cfg.RTO, 0
	c.h.stats.Connected++
	c.acknowledgeNow() // as kernels do: the handshake's ACK leaves on its own
	serial := c.serial
	c.h.handle(c, Established)
	if c.serial == serial && c.state != None {
		c.flush()
	}
}

// acceptable does what comes before the acknowledgement: RST, SYN and sequence number.
func (c *Conn) acceptable(s *segment) bool {
	switch {
	case s.flags&rst != 0:
		if s.seq == c.rcv && c.state != TimeWait { // RFC 1337
			c.end(Reset)
		} else {
			c.h.stats.Unacceptable++
		}
		return false
	case s.flags&syn != 0:
		if c.state == SynRcvd && s.seq == c.irs && s.flags&ack == 0 {
			c.nxt = c.una // our SYN-ACK was lost
			c.flush()
			return false
		}
		if c.state == TimeWait && s.flags&ack == 0 && before(c.rcv, s.seq) && c.h.ports[c.key.localPort] {
			c.h.release(c)
			c.h.accept(s)
			return false
		}
		c.h.stats.Unacceptable++
		c.acknowledgeNow()
		return false
	case s.flags&ack == 0:
		c.h.stats.Unacceptable++
		return false
	}
	return true
}

// acknowledge takes the segment's acknowledgement and window. It is false when the segment is of no more use.
func (c *Conn) acknowledge(s *segment) bool {
	if before(c.max, s.ack) {
		c.h.stats.Unacceptable++
		c.acknowledgeNow()
		return false
	}
	if before(s.ack, c.una) {
		return true // old; its data may still count
	}
	window := s.window << c.scaleOut
	if s.ack == c.una {
		if c.una != c.max && len(s.data) == 0 && s.flags&fin == 0 && window == c.window {
			if c.duplicates++; c.duplicates == 3 {
				c.retransmit(uint32(c.mss))
			}
		}
		if c.window = window; window == 0 {
			c.retries = 0 // a probe was answered
		}
		return true
	}
	c.duplicates = 0
	c.window = window
	c.una = s.ack
	if before(c.nxt, c.una) {
		c.nxt = c.una
	}
	finAcked := false
	if n := int(c.una - c.outSeq); n > 0 && n <= len(c.out)+1 {
		finAcked = n == len(c.out)+1
		n = min(n, len(c.out))
		c.out = c.out[:copy(c.out, c.out[n:])]
		c.outSeq += uint32(n)
	}
	c.retries, c.rto, c.deadline = 0, c.h.cfg.RTO, 0
	if c.una != c.max {
		c.due(c.rto)
	}
	return !finAcked || c.finAcknowledged()
}

// finAcknowledged is false when the connection is over.
func (c *Conn) finAcknowledged() bool {
	switch c.state {
	case FinWait1:
		c.state = FinWait2
	case Closing:
		c.linger()
	case LastAck:
		c.end(Closed)
		return false
	}
	return true
}

// linger enters TIME_WAIT, or starts its time again.
func (c *Conn) linger() {
	c.state = TimeWait
	c.due(max(c.h.cfg.TimeWait, 0))
}

// take takes data and FIN where they are in order.
func (c *Conn) take(s *segment) (fresh, finished bool) {
	length := uint32(len(s.data)) + uint32(s.flags&fin)
	if length == 0 {
		c.ackNow = before(s.seq, c.rcv) // a keep-alive, or something late
		return false, false
	}
	c.ackNow = true
	if before(c.rcv, s.seq) {
		c.h.stats.OutOfOrder++
		c.keep(s)
		return false, false
	}
	if c.finSeen || !before(c.rcv, s.seq+length) {
		c.again = [2]uint32{s.seq, s.seq + uint32(len(s.data))}
		if c.state == TimeWait {
			c.linger()
		}
		return false, false
	}
	fresh, finished = c.accept(s.seq, s.data, s.flags&fin != 0)
	for len(c.ahead) > 0 && !finished && !before(c.rcv, c.ahead[0].seq) {
		p := c.ahead[0]
		c.ahead = slices.Delete(c.ahead, 0, 1)
		if end := p.seq + uint32(len(p.data)); before(c.rcv, end) || p.fin && c.rcv == end {
			more, last := c.accept(p.seq, p.data, p.fin)
			fresh, finished = fresh || more, last
		}
	}
	return fresh, finished
}

// keep puts a segment beyond a gap aside, if it fits the window.
func (c *Conn) keep(s *segment) {
	if !c.sack || len(c.ahead) == maxAhead || before(c.advertised, s.seq+uint32(len(s.data))) {
		return
	}
	c.newest = s.seq
	i, _ := slices.BinarySearchFunc(c.ahead, s.seq, func(p piece, seq uint32) int { return int(int32(p.seq - seq)) })
	if i < len(c.ahead) && c.ahead[i].seq == s.seq && len(c.ahead[i].data) >= len(s.data) {
		c.again = [2]uint32{s.seq, s.seq + uint32(len(s.data))}
		return
	}
	c.ahead = slices.Insert(c.ahead, i, piece{s.seq, append([]byte(nil), s.data...), s.flags&fin != 0})
}

// accept takes what is new of data that begins no later than it has to.
func (c *Conn) accept(seq uint32, data []byte, last bool) (fresh, finished bool) {
	end := seq + uint32(len(data))
	data = data[min(c.rcv-seq, uint32(len(data))):]
	if room := c.room(); uint32(len(data)) > room {
		data = data[:room]
	}
	c.in = append(c.in, data...)
	c.rcv += uint32(len(data))
	fresh = len(data) > 0
	if !last || c.rcv != end {
		return fresh, false
	}
	c.rcv++
	c.finSeen = true
	switch c.state {
	case Open:
		c.state = CloseWait
	case FinWait1:
		c.state = Closing
	case FinWait2:
		c.linger()
	}
	return fresh, true
}

// room is how many bytes the receive buffer has room for.
func (c *Conn) room() uint32 {
	return c.h.cfg.WindowBytes - min(uint32(len(c.in)), c.h.cfg.WindowBytes)
}

// end forgets the connection and says why.
func (c *Conn) end(e Event) {
	c.h.release(c)
	c.h.handle(c, e)
}

// due sets the deadline.
func (c *Conn) due(d time.Duration) {
	c.deadline = c.h.now + d
	c.h.arm(c.deadline)
}

// expire runs the deadline.
func (c *Conn) expire() {
	c.deadline = 0
	if c.state == TimeWait {
		c.end(Closed)
		return
	}
	if c.retries == c.h.cfg.Retries {
		c.end(TimedOut)
		return
	}
	c.retries++
	c.rto *= 2
	c.nxt = c.una
	c.retransmit(max(c.window, 1))
}

// retransmit sends again what lies in the first bytes from una on.
func (c *Conn) retransmit(bytes uint32) {
	c.h.stats.Retransmitted++
	nxt := c.nxt
	c.nxt = c.una
	c.transmit(bytes)
	if before(c.nxt, nxt) {
		c.nxt = nxt
	}
}

// flush sends what may be sent, and an ACK where one is owed.
func (c *Conn) flush() {
	c.transmit(c.window)
	if c.ackNow {
		c.acknowledgeNow()
	}
	if c.deadline == 0 && (c.una != c.max || len(c.out) > 0 && c.state >= Open) {
		c.due(c.rto) // retransmission or window probe
	}
}

// transmit sends SYN, data and FIN from nxt on, as far as the window goes from una.
func (c *Conn) transmit(window uint32) {
	if c.nxt == c.iss {
		flags := uint8(syn)
		if c.state == SynRcvd {
			flags |= ack
		}
		c.emit(c.nxt, flags, nil)
		c.advance(1)
	}
	if c.state < Open {
		return
	}
	for {
		at := int(c.nxt - c.outSeq)
		if at < 0 || at > len(c.out) {
			return // the FIN is out
		}
		left := len(c.out) - at
		n := min(left, int(c.mss), max(0, int(int32(c.una+window-c.nxt))))
		last := n == left && c.finQueued
		if n == 0 && !last {
			return
		}
		flags := uint8(ack)
		if n == left {
			flags |= psh
		}
		if last {
			flags |= fin
		}
		c.emit(c.nxt, flags, c.out[at:at+n])
		c.advance(uint32(n))
		if last {
			c.advance(1)
			c.finSent()
			return
		}
	}
}

func (c *Conn) finSent() {
	switch c.state {
	case Open:
		c.state = FinWait1
	case CloseWait:
		c.state = LastAck
	}
}

func (c *Conn) advance(n uint32) {
	c.nxt += n
	if before(c.max, c.nxt) {
		c.max = c.nxt
	}
	if c.deadline == 0 {
		c.due(c.rto)
	}
}

func (c *Conn) acknowledgeNow() { c.emit(c.max, ack, nil) }

// emit sends one segment with the options its flags call for.
func (c *Conn) emit(seq uint32, flags uint8, data []byte) {
	var space [40]byte
	options := space[:0]
	cfg := &c.h.cfg
	scale := c.scaleIn
	if flags&syn != 0 {
		options = c.synOptions(options, flags&ack != 0)
		scale = 0
	} else if c.timestamps {
		options = append(options, optionNop, optionNop)
		options = c.appendTimestamps(options)
	}
	if flags&(syn|ack|rst) == ack && len(data) == 0 {
		options = c.appendSACK(options)
	}
	window := min(c.room()>>scale, 0xffff)
	out := header{key: &c.key, mac: c.mac, seq: seq, flags: flags, window: uint16(window), options: options}
	if flags&ack != 0 {
		out.ack = c.rcv
		c.advertised = c.rcv + window<<scale
		c.ackNow = false
	}
	c.h.send(build(c.h.buf, cfg.MAC, cfg.VLAN, &out, data))
}

// synOptions appends what is offered, or in an answer what was offered and is accepted.
func (c *Conn) synOptions(o []byte, answer bool) []byte {
	cfg := &c.h.cfg
	mss := cfg.MTU - 40
	if c.key.six() {
		mss = cfg.MTU - 60
	}
	o = append(o, optionMSS, 4, byte(mss>>8), byte(mss))
	sack, timestamps := cfg.SACK, cfg.Timestamps
	if answer {
		sack, timestamps = c.sack, c.timestamps
	}
	switch {
	case sack:
		o = append(o, optionSACKOK, 2)
	case timestamps:
		o = append(o, optionNop, optionNop)
	}
	if timestamps {
		o = c.appendTimestamps(o)
	} else if sack {
		o = append(o, optionNop, optionNop)
	}
	if cfg.WindowScale != 0 && (!answer || c.scaleIn != 0) {
		o = append(o, optionNop, optionScale, 3, cfg.WindowScale)
	}
	return o
}

func (c *Conn) appendTimestamps(o []byte) []byte {
	o = append(o, optionTimestamps, 10)
	o = binary.BigEndian.AppendUint32(o, c.h.timestamp())
	return binary.BigEndian.AppendUint32(o, c.recent)
}

// appendSACK appends the blocks that are known: a repeated one first (RFC 2883), then the newest (RFC 2018, 4).
func (c *Conn) appendSACK(o []byte) []byte {
	if !c.sack || len(c.ahead) == 0 && c.again[0] == c.again[1] {
		return o
	}
	most := (40 - len(o) - 4) / 8
	at := len(o)
	o = append(o, optionNop, optionNop, optionSACK, 2)
	put := func(left, right uint32) {
		if most > 0 {
			o = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(o, left), right)
			most--
		}
	}
	if c.again[0] != c.again[1] {
		put(c.again[0], c.again[1])
		c.again = [2]uint32{}
	}
	// Blocks are runs of pieces that touch. The one with the newest piece goes first.
	for _, newest := range [...]bool{true, false} {
		for i := 0; i < len(c.ahead); {
			left, right, has := c.ahead[i].seq, c.ahead[i].seq, false
			for ; i < len(c.ahead) && !before(right, c.ahead[i].seq); i++ {
				has = has || c.ahead[i].seq == c.newest
				if end := c.ahead[i].seq + uint32(len(c.ahead[i].data)); before(right, end) {
					right = end
				}
			}
			if has == newest && left != right {
				put(left, right)
			}
		}
	}
	o[at+3] = byte(len(o) - at - 2)
	if len(o)-at == 4 {
		return o[:at]
	}
	return o
}
