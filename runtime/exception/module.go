package exception

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/google/gopacket/layers"

	"splicenic/regs"
	"splicenic/runtime/config"
	"splicenic/runtime/exception/reassembly"
	"splicenic/runtime/module"
)

// Payload of services with an application module comes here before it goes on. What a module says about it is carried
// out: lines are altered, and the connections that it announces find their way.

// A Pass is a connection that follows another.
type Pass struct {
	UDP     bool
	Client  netip.AddrPort // the port does not matter where the client begins
	VIP     netip.AddrPort // as the client sees it; the server has the same port
	VLAN    uint16         // of the client's frames
	Service uint32         // of the connection that is followed
	Server  uint32         // of it: the one that follows goes to another port there
	// FromServer: the server begins, and sees the client at Port of the address where it sees the client of Beside; zero: at
	// its own. Else the client will begin, from a port that nobody knows.
	FromServer bool
	Beside     uint32
	Port       uint16
}

// Bounds of what is read along on.
const (
	maxReadings    = 16384
	firstOwnPort   = config.EndLocalPorts
	modulePortBand = 65536 - firstOwnPort
)

// readings are the connections that are read along on.
type readings struct {
	of       map[uint32]*reading // by handle
	order    []uint32            // of the handles that ever were in it, oldest first
	expected module.Expected[*follow]
	tally    module.Tally
	port     uint32 // last one given out, from firstOwnPort on
	frame    []byte // of a piece on its way
}

// reading is one of them. It owns its streams' lines.
type reading struct {
	h      *Handler
	handle uint32
	conn   module.Conn
	reader module.Reader
	stream [2]*module.Stream
	off    bool

	service, server uint32
	vlan            uint16
	deltaServer     uint32
	dir             module.Direction // of the segment at hand
}

// follow is what is known of a connection that will follow.
type follow struct {
	pass     Pass
	template uint32 // handle of what leads the client there
}

// readAlong takes a segment or datagram of a connection with a module.
func (h *Handler) readAlong(p *packet, e *regs.ExceptionEntry) {
	r := h.reading(p, e)
	if r == nil {
		h.count(ModuleUnread)
		h.goOn(p.port, p.frame)
		return
	}
	r.dir = module.Direction(e.ReasonSide)
	at := p.transportAt()
	switch {
	case p.is(layers.LayerTypeUDP):
		if !r.off {
			v := r.reader.Read(r.dir, p.ip[min(at+8, len(p.ip)):])
			r.Apply(&v)
		}
		h.goOn(p.port, p.frame)
	case p.is(layers.LayerTypeTCP):
		r.segment(p, at)
	default:
		h.count(DropMalformed)
	}
}

// segment takes a segment of a stream, whose TCP header begins at a place of the packet.
func (r *reading) segment(p *packet, at int) {
	h := r.h
	text := p.ip[min(at+4*int(p.tcp.DataOffset), len(p.ip)):]
	shift := uint32(0) // from the sender's numbers to those of the stream
	if r.dir == module.FromServer {
		shift = r.deltaServer
	}
	seq := p.tcp.Seq + shift
	pieces := r.stream[r.dir].Segment(seq, text, p.tcp.FIN || p.tcp.RST, r)
	if len(pieces) == 0 {
		h.count(DropModuleHeld)
		return
	}
	if len(pieces) == 1 && pieces[0].Seq == seq && len(pieces[0].Text) == len(text) && (len(text) == 0 || &pieces[0].Text[0] == &text[0]) {
		h.goOn(p.port, p.frame)
		return
	}
	for i, x := range pieces {
		last := i == len(pieces)-1
		h.goOn(p.port, h.piece(p, at, x.Seq-shift, x.Text, last && x.Seq+uint32(len(x.Text)) == seq+uint32(len(text)) || last && p.tcp.FIN))
	}
}

// piece is p with another payload. Only the last one of a segment says that its sender is at an end.
func (h *Handler) piece(p *packet, at int, seq uint32, text []byte, last bool) []byte {
	network := 14 + 4*p.tags
	header := network + at + 4*int(p.tcp.DataOffset)
	b := append(append(h.readings.frame[:0], p.frame[:header]...), text...)
	h.readings.frame = b
	ip := b[network:]
	t := ip[at:]
	binary.BigEndian.PutUint32(t[4:], seq)
	if !last {
		t[13] &^= 0x09 // FIN, PSH
	}
	t[16], t[17] = 0, 0
	pseudo := uint32(len(t)) + uint32(layers.IPProtocolTCP)
	if p.src.Is4() {
		binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
		ip[10], ip[11] = 0, 0
		binary.BigEndian.PutUint16(ip[10:], ^uint16(reassembly.Sum(ip[:at], 0)))
		binary.BigEndian.PutUint16(t[16:], ^uint16(reassembly.Sum(t, reassembly.Sum(ip[12:20], pseudo))))
		return b
	}
	binary.BigEndian.PutUint16(ip[4:], uint16(len(ip)-40))
	binary.BigEndian.PutUint16(t[16:], ^uint16(reassembly.Sum(t, reassembly.Sum(ip[8:40], pseudo))))
	return b
}

// goOn sends a frame on its way.
func (h *Handler) goOn(port int, frame []byte) {
	if h.cfg.ReinjectDone == nil || h.cfg.ReinjectDone(port, frame) != nil {
		h.count(DropEmit)
	}
}

// reading finds the reader of a connection, or begins one; nil where it cannot be read.
func (h *Handler) reading(p *packet, e *regs.ExceptionEntry) *reading {
	handle := handleOf(e)
	if r := h.readings.of[handle]; r != nil {
		return r
	}
	s := h.st.Services[e.IndexService]
	if s == nil {
		return nil
	}
	m := module.Modules[s.Module]
	c, ok := h.cfg.Connection(handle)
	if m == nil || !ok {
		return nil
	}
	w := &c.Page
	r := &reading{h: h, handle: handle, service: e.IndexService, server: w.AIndexServer, deltaServer: w.ADeltaServer}
	if w.ClientLinkTagged != 0 {
		r.vlan = uint16(w.ClientLinkVlan)
	}
	r.conn = module.Conn{Client: c.client(), VIP: c.vip(), Server: c.Servers[0].Addr, Port: r.port}
	local := c.client().Addr()
	if c.Local.IsValid() {
		local = c.Local
	}
	r.conn.Local = netip.AddrPortFrom(local, uint16(w.ALocalPort))
	if r.conn.Server.Port() == 0 {
		r.conn.Server = netip.AddrPortFrom(r.conn.Server.Addr(), c.vip().Port())
	}
	r.reader = m.Begin(r.conn)
	// What the receivers have acknowledged was read, if by a predecessor; a line begins there if it is all.
	next := w.AAckClient - w.BSeqServer
	r.stream[module.FromClient] = module.NewStream(module.FromClient, w.AAckServer, w.AAckServer == w.ClientIsn+1, &h.readings.tally)
	r.stream[module.FromServer] = module.NewStream(module.FromServer, next, next == w.AServerIsn+w.ADeltaServer+1, &h.readings.tally)
	h.readings.add(r, &h.counters[ModuleEvicted])
	return r
}

// add enters a connection. The oldest one makes room where it has to: should it still be there, it is begun anew.
func (x *readings) add(r *reading, evicted *uint64) {
	if x.of == nil {
		x.of = map[uint32]*reading{}
	}
	for len(x.of) >= maxReadings {
		if x.of[x.order[0]] != nil {
			*evicted++
			delete(x.of, x.order[0])
		}
		x.order = x.order[1:]
	}
	if len(x.order) >= 2*maxReadings {
		x.order = slices.DeleteFunc(x.order, func(handle uint32) bool { return x.of[handle] == nil })
	}
	x.of[r.handle] = r
	x.order = append(x.order, r.handle)
}

// Read and Holds are the module's.
func (r *reading) Read(dir module.Direction, line []byte) module.Verdict {
	return r.reader.Read(dir, line)
}
func (r *reading) Holds(dir module.Direction, begin []byte) bool { return r.reader.Holds(dir, begin) }

// Adjust has the card make the stream of the segment at hand longer.
func (r *reading) Adjust(boundary uint32, by int32) module.Outcome {
	switch r.h.cfg.Adjust(r.handle, r.dir == module.FromServer, boundary, by) {
	case Taken:
		return module.Done
	case TooLate:
		return module.Wait
	}
	return module.Lost
}

var moduleReasons = map[module.Note]Reason{
	module.Altered: ModuleAltered, module.Expects: ModuleExpects, module.Foreign: ModuleForeign, module.Unreadable: ModuleUnreadable, module.NoPort: ModuleNoPort, module.Encrypted: ModuleEncrypted,
}

// Apply carries out what a module says.
func (r *reading) Apply(v *module.Verdict) {
	h := r.h
	if why, ok := moduleReasons[v.Note]; ok {
		h.count(why)
		if why == ModuleForeign || why == ModuleEncrypted {
			h.tellModule(r.conn.Client, r.service, why)
		}
	}
	if v.Off {
		r.off = true
		for _, s := range r.stream {
			s.Stop()
		}
	}
	for i := range v.Expect {
		h.expect(r, &v.Expect[i])
	}
}

func (h *Handler) tellModule(client netip.AddrPort, service uint32, why Reason) {
	if s := h.st.Services[service]; s != nil && h.cfg.Tell != nil && h.told.take(h.now) {
		h.cfg.Tell(client, s.Name, why)
	}
}

// port gives a port that servers may be told to connect to.
func (r *reading) port() (uint16, bool) {
	x := &r.h.readings
	for range modulePortBand {
		x.port = (x.port + 1) % modulePortBand
		port := uint16(firstOwnPort + x.port)
		k := module.Key{FromServer: true, From: r.conn.Server.Addr(), At: netip.AddrPortFrom(r.conn.Local.Addr(), port)}
		if _, busy := x.expected.Get(k, r.h.now); !busy {
			return port, true
		}
	}
	return 0, false
}

// expect makes ready for a connection that will follow.
func (h *Handler) expect(r *reading, e *module.Expectation) {
	f := &follow{pass: Pass{UDP: e.UDP, Client: e.Client, VIP: r.conn.VIP, VLAN: r.vlan, Service: r.service, Server: r.server}}
	k := module.Key{UDP: e.UDP, FromServer: e.FromServer, From: r.conn.Server.Addr(), At: e.At}
	if e.FromServer {
		f.pass.FromServer, f.pass.Beside = true, r.handle
		if e.At != e.Client {
			f.pass.Port = e.At.Port()
		}
		h.readings.expected.Add(k, f, h.now)
		return
	}
	f.pass.VIP, k.From = e.At, e.Client.Addr()
	old, there := h.readings.expected.Get(k, h.now)
	handle, outcome := h.cfg.Pass(&f.pass)
	if outcome == KeyTaken && there {
		if old.pass.Server == f.pass.Server {
			return // it leads there already
		}
		h.cfg.Free(old.template)
		handle, outcome = h.cfg.Pass(&f.pass)
	}
	if outcome != Taken {
		h.count(DropModuleExpect)
		return
	}
	f.template = handle
	h.readings.expected.Add(k, f, h.now)
}

// followed opens the connection that a server begins as a module announced; false for any other packet.
func (h *Handler) followed(p *packet, e *regs.ExceptionEntry) bool {
	if e.HandleN|e.HandleGeneration != 0 || h.readings.expected.Len() == 0 {
		return false
	}
	if part, _ := p.fragment(); part {
		return false
	}
	k := module.Key{FromServer: true, From: p.src}
	var from uint16
	switch {
	case p.is(layers.LayerTypeTCP) && p.tcp.SYN && !p.tcp.ACK:
		k.At, from = netip.AddrPortFrom(p.dst, uint16(p.tcp.DstPort)), uint16(p.tcp.SrcPort)
	case p.is(layers.LayerTypeUDP):
		k.UDP, k.At, from = true, netip.AddrPortFrom(p.dst, uint16(p.udp.DstPort)), uint16(p.udp.SrcPort)
	default:
		return false
	}
	f, ok := h.readings.expected.Get(k, h.now)
	if !ok {
		return false
	}
	x := f.pass
	x.VIP = netip.AddrPortFrom(x.VIP.Addr(), from)
	if _, outcome := h.cfg.Pass(&x); outcome != Taken {
		h.count(DropModuleExpect)
		return true
	}
	h.readings.expected.Remove(k)
	h.count(ModuleOpened)
	if h.cfg.Reinject(p.port, p.frame) != nil {
		h.count(DropEmit)
	}
	return true
}

// ReadAlong tells what the streams of modules met, and how many connections they read and expect.
func (h *Handler) ReadAlong() (t module.Tally, connections, expected int) {
	return h.readings.tally, len(h.readings.of), h.readings.expected.Len()
}
