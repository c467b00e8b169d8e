package datapath

import "splicenic/regs"

// With FULLNAT a server sees a local address and port of the card. Each server has a list of them, first in, first out,
// in the local-port memory; a port goes back to the end of the list when its page is free.
//
// A server that closed first remembers a connection for a while (TIME-WAIT), and takes a SYN of the same addresses and
// ports only where its sequence number and timestamp are higher than the last it saw (RFC 6191). So a port rests for
// timer.port_rest, unless both are known to be higher. Numbers toward a server run by a clock of the card, which never goes
// back, from where a keyed hash of the four of them puts it (RFC 6528); what a connection sends faster than that clock is
// what a port has to rest for.

// maxTiredPorts bounds how many ports of a list are looked at for one that may be used.
const maxTiredPorts = 8

// lent is the local end of a connection, and where its numbers toward the server begin.
type lent struct {
	address, port uint32 // local-address index and port
	isn           uint32
	timestamp     uint32
}

const (
	answersClient = regs.PageAIndexAnswersClient
	answersLocal  = regs.PageAIndexAnswersLocal
	answersVIP    = regs.PageAIndexAnswersVip
)

// portList returns the state of a server and the entries of its local-port list.
func (c *Core) portList(server uint32) (state, entries []uint32) {
	state = entry(c.m.ServerState, server, regs.ServerStateWords)
	first, size := uint64(state[regs.ServerStatePortsFirst]), uint64(state[regs.ServerStatePortsSize])
	if first+size > uint64(c.m.Geometry.LocalPorts) {
		return state, nil
	}
	return state, c.m.LocalPort[first*regs.LocalPortWords : (first+size)*regs.LocalPortWords]
}

// takePort takes the next local port of a server's list, with the numbers that a connection over it begins with. known says
// that it sends them both, a timestamp too; a datagram sends none. Where no port is free, or the next few still rest, that
// is counted for the server and as pass.drop_no_port.
func (c *Core) takePort(server uint32, known bool) (l lent, ok bool) {
	state, list := c.portList(server)
	size := uint32(len(list) / regs.LocalPortWords)
	free := min(state[regs.ServerStatePortsFree], size)
	head := state[regs.ServerStatePortsHead]
	if head >= size {
		head = 0
	}
	rest := c.ticks(regs.TimerPortRest)
	at := head
	for range min(free, maxTiredPorts) {
		e := (*[regs.LocalPortWords]uint32)(list[at*regs.LocalPortWords:])
		number := e[regs.LocalPortNumber]
		l = lent{address: regs.LocalPortNumberLocalAddress(number), port: regs.LocalPortNumberPort(number)}
		c.numbers(server, &l)
		freed := e[regs.LocalPortFreed]
		higher := known && e[regs.LocalPortTimestamp] != 0 && int32(l.isn-e[regs.LocalPortSeq]) > 0 && int32(l.timestamp-e[regs.LocalPortTimestamp]) > 0
		if freed == 0 || c.tick-freed >= rest || higher {
			// The one at the head takes the place of one behind it that is taken, a few places later than its turn.
			*e = [regs.LocalPortWords]uint32(list[head*regs.LocalPortWords:])
			if head++; head == size {
				head = 0
			}
			state[regs.ServerStatePortsHead], state[regs.ServerStatePortsFree] = head, free-1
			c.count(regs.PassPortsTaken)
			return l, true
		}
		c.count(regs.PassPortsTired)
		if at++; at == size {
			at = 0
		}
	}
	state[regs.ServerStatePortsNone]++
	c.count(regs.PassDropNoPort)
	return l, false
}

// putPort puts a local port back at the end of a server's list: seq is the end of sequence and timestamp the TSval that
// the server was sent last, zero where that is not known.
func (c *Core) putPort(server, local, port, seq, timestamp uint32) {
	state, list := c.portList(server)
	size := uint32(len(list) / regs.LocalPortWords)
	tail, free := state[regs.ServerStatePortsTail], state[regs.ServerStatePortsFree]
	if free >= size { // the host made the list anew
		return
	}
	if tail >= size {
		tail = 0
	}
	e := list[tail*regs.LocalPortWords:]
	e[regs.LocalPortNumber] = port | local<<regs.LocalPortNumberLocalAddressShift
	e[regs.LocalPortFreed] = max(c.tick, 1)
	e[regs.LocalPortSeq], e[regs.LocalPortTimestamp] = seq, timestamp
	if tail++; tail == size {
		tail = 0
	}
	state[regs.ServerStatePortsTail], state[regs.ServerStatePortsFree] = tail, free+1
}

// numbers chooses the initial sequence number and timestamp of a connection toward a server (RFC 6528, 3; RFC 7323, 5.4):
// clocks of 4 microseconds and of one millisecond from a keyed hash of both ends on.
func (c *Core) numbers(server uint32, l *lent) {
	const key = regs.TransmitIsnKey + serverEnd
	k0 := uint64(c.r.Get(key)) | uint64(c.r.Get(key+4))<<32
	k1 := uint64(c.r.Get(key+8)) | uint64(c.r.Get(key+12))<<32
	s := c.server(server)
	d, a := s[regs.ServerAddress:], c.local(l.address)[regs.AddressAddress:]
	m := [4]uint64{uint64(d[0]) | uint64(d[1])<<32, uint64(d[2]) | uint64(d[3])<<32, uint64(a[0]) | uint64(a[1])<<32, uint64(a[2]) | uint64(a[3])<<32}
	h := sipHash(k0, k1, &m)
	m = [4]uint64{h, uint64(l.port) | uint64(regs.ServerControlPort(s[regs.ServerControl]))<<32, uint64(regs.ServerControlKind(s[regs.ServerControl]))}
	h = sipHash(k0, k1, &m)
	l.isn = uint32(h) + uint32(c.r.Get64(regs.TimerNow)/4)
	l.timestamp = uint32(h>>32) + c.tick
}

// lend gives leg set A of a page, which names its server, a local end. seq and timestamp are the client's; the deltas
// shift its stream to where the card's numbers begin.
func (c *Core) lend(w *page, seq, timestamp uint32, timestamps bool) bool {
	server := regs.PageAIndexServer(w[regs.PageAIndex])
	l, ok := c.takePort(server, timestamps)
	if !ok {
		return false
	}
	w[regs.PageAIndex] = regs.SetPageAIndexLocalAddress(regs.SetPageAIndexAnswers(server, answersLocal), l.address)
	w[regs.PageALocal] = regs.SetPageALocalPort(w[regs.PageALocal], l.port)
	w[regs.PageADeltaClient] = l.isn - seq
	if timestamps {
		w[regs.PageATimestampClient] = l.timestamp - timestamp
	}
	return true
}

// giveBack puts the local port of a leg back. What its server was sent last is known where the connection came to its end:
// then the page has followed the client's clock up to it.
func (c *Core) giveBack(w *page, leg int) {
	index := w[regs.PageAIndex+leg]
	if regs.PageAIndexAnswers(index) != answersLocal {
		return
	}
	if isPassed(w) && w[regs.PageBLocal] != 0 { // a port of the host's
		w[regs.PageAIndex+leg] = regs.PageAIndexServer(index)
		return
	}
	const fins = regs.PageClientLinkFinClientAckedMask | regs.PageClientLinkFinServerAckedMask
	seq, timestamp := serverSees(w, serverHas(w, leg))+w[regs.PageADeltaClient+leg], uint32(0)
	if w[regs.PageClientLink]&fins == fins && w[regs.PageAScale+leg]&regs.PageAScaleTimestampsMask != 0 {
		timestamp = w[regs.PageClientTimestamp] + w[regs.PageATimestampClient+leg]
	}
	c.putPort(regs.PageAIndexServer(index), regs.PageAIndexLocalAddress(index), regs.PageALocalPort(w[regs.PageALocal+leg]), seq, timestamp)
	w[regs.PageAIndex+leg] = regs.PageAIndexServer(index)
}

// lastStamp follows the client's clock at the end of a connection, by the last segment of either end, which is translated
// already: a client's says what the server is sent, a server's what it has got.
func (c *Core) lastStamp(p *packet, w *page, leg int) {
	if w[regs.PageAScale+leg]&regs.PageAScaleTimestampsMask == 0 {
		return
	}
	o := readOptions(p.b[p.tcp+20 : p.payload])
	val := o.tsecr
	if p.side == ClientSide {
		val = o.tsval - w[regs.PageATimestampClient+leg]
	}
	if o.timestamps && int32(val-w[regs.PageClientTimestamp]) > 0 {
		w[regs.PageClientTimestamp] = val
	}
}
