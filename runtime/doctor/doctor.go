package doctor

import (
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
	"slices"
	"time"

	"splicenic/runtime/config"
	"splicenic/runtime/inet"
)

// The times and bounds of an examination.
const (
	askTries   = 3 // of a subnet: answers to all of them count
	synTries   = 3
	echoTries  = 3 // of the first and the full size
	cutTries   = 2 // of the sizes between
	retry      = 300 * time.Millisecond
	maxFlights = 64   // questions at once
	maxTasks   = 4096 // questions in all
	maxMACs    = 8    // who answers for a VIP
	leastEcho  = 64   // bytes
)

// Questions come from ports above those of health checks, which no kernel hands out by itself either. The identifier of an
// echo is of the same numbers.
const (
	firstPort = 65100
	ports     = 400
)

// A Link is a port of the card in one VLAN.
type Link struct {
	Port int
	VLAN uint16 // zero: untagged
	Name string // for people
	MAC  MAC
	Own  []netip.Prefix // the card's addresses there, not masked
}

// own is the card's address from which an address is asked for: of its subnet, else of its family; invalid: there is none.
func (l *Link) own(target netip.Addr) (own netip.Addr) {
	for _, p := range l.Own {
		if p.Contains(target) {
			return p.Addr()
		}
		if !own.IsValid() && p.Addr().Is4() == target.Is4() {
			own = p.Addr()
		}
	}
	return own
}

// A Server is a server of the configuration.
type Server struct {
	Address netip.Addr
	Link    string     // the name of the link behind which it is; empty: no route leads there
	From    netip.Addr // the card's address that it is asked from; invalid: there is none
	Hop     netip.Addr // next hop
	MAC     MAC        // of the next hop
	Ready   bool       // which is resolved
	MTU     int        // of the port
	Targets []Target   // what it has to answer for
}

// A Target is a VIP that a server has to own: packets for it come by DR or through a tunnel.
type Target struct {
	Service string
	VIP     netip.AddrPort
	From    netip.Addr  // the card's address, of the VIP's family, that the SYN comes from; invalid: there is none
	Method  config.Mode // DR or Tun
	Tunnel  config.Tunnel
	Any     bool // nobody has to listen on the port: an RST from the VIP is well, too
}

// marked says that the VIP is in the packet's DSCP alone.
func (t *Target) marked() bool { return t.Method == config.Tun && t.Tunnel.Type == config.DSCP }

// Config is what is examined.
type Config struct {
	Links   []Link
	VIPs    []netip.Addr // nobody else may answer for
	Servers []Server
	Key     [32]byte // makes what is sent hard to guess
}

// A Packet is to be sent: an IP packet to the next hop of To, or where that is invalid an Ethernet frame out of Port.
type Packet struct {
	To   netip.Addr
	Port int
	Data []byte
}

type kind uint8

const (
	ask  kind = iota // who has a VIP
	syn              // does a server have it
	path             // how much fits the path to a server
)

type state uint8

const (
	waiting state = iota
	flying
	done
)

type outcome uint8

const (
	silent  outcome = iota
	well            // SYN-ACK from the VIP
	refused         // RST from the VIP
	own             // an answer from the server's own address
	told            // an ICMP error
	skipped         // not asked, see why
)

// A task is one question and what came of it.
type task struct {
	kind  kind
	state state
	tries int
	due   time.Duration
	why   string // it was skipped

	vip  netip.Addr // ask
	link *Link
	macs []MAC // who answers, in the order of their answers

	server  *Server // syn, path
	target  *Target // syn
	port    uint16  // ours
	seq     uint32  // of the SYN; the low half of an echo's is its number
	nonce   [8]byte
	outcome outcome
	says    string     // of an ICMP error
	by      netip.Addr // whose it is

	alive          bool // path: something came back
	size, low, top int  // bytes: on the way; what passes; what does not, less one
	limit          int  // what a router says that fits; zero: none did
}

// A Doctor examines. Make one with Start.
type Doctor struct {
	cfg    Config
	ours   map[MAC]bool
	tasks  []*task
	left   int // questions beyond the bound
	flying int
	begun  int              // tasks that were begun: those before are not waiting
	of     map[uint16]*task // in flight, by our port
	port   uint16
	sent   uint64
	out    []Packet // what Deliver wants sent
	next   time.Duration
}

// Start begins an examination, of which Step sends the first packets.
func Start(cfg Config) *Doctor {
	d := &Doctor{cfg: cfg, ours: map[MAC]bool{}, of: map[uint16]*task{}}
	for i := range cfg.Links {
		d.ours[cfg.Links[i].MAC] = true
	}
	for _, vip := range cfg.VIPs {
		for i := range cfg.Links {
			if l := &d.cfg.Links[i]; l.own(vip).IsValid() {
				d.add(&task{kind: ask, vip: vip, link: l})
			}
		}
	}
	for i := range cfg.Servers {
		s := &d.cfg.Servers[i]
		lost := s.lost()
		d.add(&task{kind: path, server: s, why: lost})
		for k := range s.Targets {
			t := &task{kind: syn, server: s, target: &s.Targets[k], why: lost}
			if lost == "" && !t.target.From.IsValid() {
				t.why = "the card has no address of the VIP's family beside the server"
			}
			d.add(t)
		}
	}
	return d
}

// lost says why a server cannot be asked; empty: it can.
func (s *Server) lost() string {
	switch {
	case s.Link == "":
		return "no subnet and no gateway leads there"
	case !s.From.IsValid():
		return "the card has no address in the subnet of its next hop"
	case !s.Ready:
		return "its next hop " + s.Hop.String() + " does not answer " + protocolOf(s.Hop)
	}
	return ""
}

func protocolOf(a netip.Addr) string {
	if a.Is4() {
		return "ARP"
	}
	return "neighbour solicitations"
}

func (d *Doctor) add(t *task) {
	if len(d.tasks) == maxTasks {
		d.left++
		return
	}
	if t.why != "" {
		t.state, t.outcome = done, skipped
	}
	d.tasks = append(d.tasks, t)
}

// Done says whether the examination is over.
func (d *Doctor) Done() bool { return d.flying == 0 && d.begun == len(d.tasks) && len(d.out) == 0 }

// Next is when Step has something to do even if nothing is delivered.
func (d *Doctor) Next() time.Duration { return d.next }

// Step does what is due at now, which does not go back, and appends the packets to be sent to list.
func (d *Doctor) Step(now time.Duration, list []Packet) []Packet {
	list = append(list, d.out...)
	d.out = nil
	for _, t := range d.tasks[:d.begun] {
		if t.state == flying && now >= t.due {
			list = d.advance(t, now, list)
		}
	}
	for ; d.begun < len(d.tasks) && d.flying < maxFlights; d.begun++ {
		if t := d.tasks[d.begun]; t.state == waiting {
			d.launch(t)
			list = d.advance(t, now, list)
		}
	}
	d.next = now + time.Minute
	for _, t := range d.tasks[:d.begun] {
		if t.state == flying {
			d.next = min(d.next, t.due)
		}
	}
	return list
}

// launch gives a task its port and its numbers.
func (d *Doctor) launch(t *task) {
	t.state = flying
	d.flying++
	if t.kind == ask {
		return
	}
	for {
		d.port = (d.port + 1) % ports
		if d.of[firstPort+d.port] == nil {
			break
		}
	}
	t.port = firstPort + d.port
	d.of[t.port] = t
	d.sent++
	h := sha256.Sum256(binary.BigEndian.AppendUint64(d.cfg.Key[:], d.sent))
	t.seq = binary.BigEndian.Uint32(h[:])
	copy(t.nonce[:], h[4:])
	t.size, t.low, t.top = leastEcho, 0, 0
}

// land ends a task.
func (d *Doctor) land(t *task) {
	t.state = done
	d.flying--
	if t.kind != ask {
		delete(d.of, t.port)
	}
}

// advance sends what a task sends next, or ends it.
func (d *Doctor) advance(t *task, now time.Duration, list []Packet) []Packet {
	most := [...]int{ask: askTries, syn: synTries, path: echoTries}[t.kind]
	if t.kind == path && t.low > 0 && t.size < t.server.MTU {
		most = cutTries
	}
	if t.tries == most {
		if t.kind != path || !t.smaller(t.size-1) {
			d.land(t)
			if t.kind == syn { // its SYN-ACK may have gone elsewhere
				list = append(list, d.probe(t, t.seq+1, 0, flagRST))
			}
			return list
		}
	}
	t.tries++
	t.due = now + retry
	switch t.kind {
	case ask:
		return append(list, Packet{Port: t.link.Port, Data: who(t.link, t.link.own(t.vip), t.vip)})
	case syn:
		return append(list, d.probe(t, t.seq, 0, flagSYN))
	}
	t.seq++
	return append(list, Packet{To: t.server.Address, Data: echo(t.server.From, t.server.Address, t.port, uint16(t.seq), t.nonce, t.size)})
}

// smaller chooses the next size of an echo, when no more than most bytes pass; false: nothing is left to find out.
func (t *task) smaller(most int) bool {
	t.top = most
	if !t.alive || t.low >= t.top {
		return false
	}
	t.tries, t.size = 0, (t.low+t.top+1)/2
	return true
}

// larger chooses the next size of an echo when so many bytes have passed; false: nothing is left to find out.
func (t *task) larger() bool {
	t.low, t.tries = t.size, 0
	if !t.alive {
		t.alive, t.top = true, max(t.server.MTU, t.size)
		t.size = t.top
		return t.low < t.top
	}
	t.size = (t.low + t.top + 1) / 2
	return t.low < t.top
}

// probe is a segment to a VIP by the server's method.
func (d *Doctor) probe(t *task, seq, ack uint32, flags uint8) Packet {
	x, s := t.target, t.server
	from, to := netip.AddrPortFrom(x.From, t.port), x.VIP
	switch {
	case x.marked():
		to = netip.AddrPortFrom(s.Address, to.Port())
		b := segment(from, to, to.Addr(), seq, ack, flags)
		return Packet{To: s.Address, Data: inet.Layout(from.Addr(), to.Addr(), protocolTCP, x.Tunnel.DSCP<<2, inet.Hops, b)}
	case x.Method == config.Tun:
		inner := inet.Layout(from.Addr(), to.Addr(), protocolTCP, 0, lastHop, segment(from, to, to.Addr(), seq, ack, flags))
		return Packet{To: s.Address, Data: wrap(&x.Tunnel, s.From, s.Address, t.port, inner)}
	}
	return Packet{To: s.Address, Data: inet.Layout(from.Addr(), to.Addr(), protocolTCP, 0, lastHop, segment(from, to, to.Addr(), seq, ack, flags))}
}

// Deliver takes a frame that came in at a port. It returns true where the frame answers a question and is nobody else's.
// Its bytes are only read.
func (d *Doctor) Deliver(port int, frame []byte, now time.Duration) bool {
	p, ok := readFrame(frame)
	switch {
	case !ok:
		return false
	case p.kind == etherARP:
		d.arp(port, &p)
		return false // the table of neighbours learns from it, too
	case p.protocol == protocolICMP6 && len(p.payload) >= 24 && p.payload[0] == 136:
		d.advertised(port, &p)
		return false
	case p.protocol == protocolTCP && len(p.payload) >= 20:
		return d.segment(&p)
	case (p.protocol == protocolICMP4) == p.from.Is4() && (p.protocol == protocolICMP4 || p.protocol == protocolICMP6) && len(p.payload) >= 8:
		return d.icmp(&p, now)
	}
	return false
}

// arp notes who says that a VIP is his: in a reply, or in a request of his own.
func (d *Doctor) arp(port int, p *packetIn) {
	a := p.payload
	if binary.BigEndian.Uint64(a)>>16 != 0x000108000604 || a[7] != 1 && a[7] != 2 {
		return
	}
	d.claimed(port, p.vlan, netip.AddrFrom4([4]byte(a[14:])), MAC(a[8:]))
}

// advertised notes the same of a neighbour advertisement.
func (d *Doctor) advertised(port int, p *packetIn) {
	if p.ttl != ndHops || !p.intact() {
		return
	}
	mac := p.mac
	for o := p.payload[24:]; len(o) >= 8 && o[1] != 0 && int(o[1])*8 <= len(o); o = o[int(o[1])*8:] {
		if o[0] == 2 {
			mac = MAC(o[2:])
		}
	}
	d.claimed(port, p.vlan, netip.AddrFrom16([16]byte(p.payload[8:])), mac)
}

func (d *Doctor) claimed(port int, vlan uint16, vip netip.Addr, mac MAC) {
	if d.ours[mac] || mac[0]&1 != 0 {
		return
	}
	for _, t := range d.tasks[:d.begun] {
		if t.kind == ask && t.state == flying && t.vip == vip && t.link.Port == port && t.link.VLAN == vlan && !slices.Contains(t.macs, mac) && len(t.macs) < maxMACs {
			t.macs = append(t.macs, mac)
		}
	}
}

// segment takes an answer to a SYN.
func (d *Doctor) segment(p *packetIn) bool {
	b := p.payload
	t := d.of[binary.BigEndian.Uint16(b[2:])]
	if t == nil || t.kind != syn || t.target.From != p.to || t.target.VIP.Port() != binary.BigEndian.Uint16(b) {
		return false
	}
	byVIP := p.from == t.target.VIP.Addr()
	if !byVIP && p.from != t.server.Address || !p.intact() || binary.BigEndian.Uint32(b[8:]) != t.seq+1 || b[13]&flagACK == 0 {
		return false
	}
	switch {
	case !byVIP:
		t.outcome = own
	case b[13]&flagRST != 0:
		t.outcome = refused
	case b[13]&flagSYN != 0:
		t.outcome = well
	default:
		return false
	}
	if b[13]&flagRST == 0 {
		d.out = append(d.out, d.probe(t, t.seq+1, 0, flagRST))
	}
	d.finish(t)
	return true
}

// finish ends a task that was answered.
func (d *Doctor) finish(t *task) {
	d.land(t)
	d.next = 0
}

// icmp takes an answer to an echo, or an error about what was sent.
func (d *Doctor) icmp(p *packetIn, now time.Duration) bool {
	if p.payload[0] == 0 && p.from.Is4() || p.payload[0] == 129 && p.from.Is6() {
		return d.echoed(p)
	}
	e, q, ok := errorIn(p)
	if !ok || !p.intact() {
		return false
	}
	t, mine := d.about(&q)
	if t == nil {
		return false
	}
	switch {
	case t.kind == path && e.tooBig:
		if t.low == 0 || e.mtu >= t.size || e.mtu < t.low {
			break // it is no news
		}
		t.limit, t.top = e.mtu, e.mtu
		if t.low == t.top {
			d.finish(t)
			break
		}
		t.tries, t.size, t.due, d.next = 0, t.top, now, 0
	case t.kind == syn && !e.tooBig:
		t.outcome, t.says, t.by = told, e.words, p.from
		d.finish(t)
	}
	return mine
}

// about finds the question that a quoted packet asked. What is quoted of a tunnel's packet may end before what tells it
// from a client's: then it is not the question's alone.
func (d *Doctor) about(q *packetIn) (t *task, mine bool) {
	b := q.payload
	switch q.protocol {
	case protocolTCP:
		if len(b) < 8 {
			return nil, false
		}
		t = d.of[binary.BigEndian.Uint16(b)]
		if t == nil || t.kind != syn || t.target.From != q.from || q.to != t.target.VIP.Addr() && q.to != t.server.Address || binary.BigEndian.Uint32(b[4:]) != t.seq {
			return nil, false
		}
		return t, true
	case protocolICMP4, protocolICMP6:
		if len(b) < 8 {
			return nil, false
		}
		t = d.of[binary.BigEndian.Uint16(b[4:])]
		if t == nil || t.kind != path || t.server.From != q.from || t.server.Address != q.to || binary.BigEndian.Uint16(b[6:]) != uint16(t.seq) {
			return nil, false
		}
		return t, true
	case protocolIPv4, protocolIPv6, protocolGRE, protocolUDP:
		for _, t := range d.tasks[:d.begun] {
			if t.kind == syn && t.state == flying && t.target.Method == config.Tun && t.server.Address == q.to && t.server.From == q.from {
				return t, false
			}
		}
	}
	return nil, false
}

// echoed takes the answer to an echo.
func (d *Doctor) echoed(p *packetIn) bool {
	b := p.payload
	t := d.of[binary.BigEndian.Uint16(b[4:])]
	if t == nil || t.kind != path || t.server.Address != p.from || t.server.From != p.to || len(b) < 16 || [8]byte(b[8:]) != t.nonce {
		return false
	}
	if binary.BigEndian.Uint16(b[6:]) != uint16(t.seq) || !p.intact() {
		return true // late: it was asked again, or for another size
	}
	if t.larger() {
		t.due, d.next = 0, 0
		return true
	}
	d.finish(t)
	return true
}
