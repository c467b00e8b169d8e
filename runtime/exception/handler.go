package exception

import (
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
	"slices"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"splicenic/regs"
	"splicenic/runtime/config"
	"splicenic/runtime/exception/reassembly"
	"splicenic/runtime/exception/snat"
	"splicenic/runtime/health"
	"splicenic/runtime/neighbour"
)

// Config joins a Handler to its card. All functions are needed but Tell, Check and Examine.
type Config struct {
	// Emit sends a frame out of a port. The frame is valid during the call.
	Emit func(port int, frame []byte) error
	// Reset ends a connection with RST to both ends.
	Reset func(handle uint32) error
	// Connect offers the request of a waiting connection to a server.
	Connect func(handle uint32, x *Connect) Outcome
	// Take copies what the card holds of the bytes of a waiting connection's client, a head buffer's at most; boundary is
	// the client's next sequence number. Unless the card keeps them the client may go on: it takes as many again.
	Take func(handle uint32, keep bool, to []byte) (n int, boundary uint32, outcome Outcome)
	// Feed gives the card more of the bytes that a connection's server is owed.
	Feed func(handle uint32, chunk []byte) Outcome
	// Reply answers a client in a server's place and closes the connection.
	Reply func(handle uint32, answer []byte) Outcome
	// Others lists the servers of a group that the request of a connection may go to, in the order to try them.
	Others func(handle, group uint32) []uint32
	// Find looks up the connection that a side of the card knows by its flow.
	Find func(side int, f Flow) (Connection, bool)
	// Connection reads a connection by its handle.
	Connection func(handle uint32) (Connection, bool)
	// Reinject gives a frame to a port's parser, as if it had come in there. The frame is valid during the call.
	Reinject func(port int, frame []byte) error
	// ReinjectBack does the same, but what would go to a wire comes back as an exception, however long, with the cookie.
	ReinjectBack func(port int, frame []byte, cookie uint32) error
	// ReinjectDone does that for a segment or datagram whose payload a module has read.
	ReinjectDone func(port int, frame []byte) error
	// Pass makes ready for a connection that follows another. KeyTaken says that there is one like it.
	Pass func(x *Pass) (handle uint32, outcome Outcome)
	// Adjust makes a stream of a connection longer from a sequence number on; TooLate says that it waits for the receiver.
	Adjust func(handle uint32, server bool, boundary uint32, bytes int32) Outcome
	// Free forgets a connection or what leads to one.
	Free func(handle uint32)
	// Tell is told, at a bounded rate, whom a service refused and why. nil: nobody is.
	Tell func(client netip.AddrPort, service string, why Reason)
	// Check takes an IP packet that came for an address of the card's, which is valid during the call; false where it
	// answers no health check. nil: there are none.
	Check func(packet []byte) bool
	// Examine takes a frame that came in at a port, which is valid during the call; false where it does not answer the
	// examination that is going on, or others have to know of it, too. nil: there is none.
	Examine func(port int, frame []byte) bool
	// Key makes the numbers of probes hard to guess. It may be zero where nobody guesses.
	Key [32]byte
}

// Port is a port of the card.
type Port struct {
	MAC neighbour.MAC
	MTU uint16
}

// Station is what the card is in its networks.
type Station struct {
	Ports  []Port
	Config *config.Config
	VIPs   []netip.Addr // those that connections still name included
	Locals []netip.Addr // what servers see in their clients' place
	Hops   []config.Hop // next hops of servers
	// Servers are the servers that the card knows, those that connections still name included.
	Servers []netip.AddrPort
	// Services and Groups are those of the configuration by index.
	Services map[uint32]*Service
	Groups   map[uint32]*config.Group
	// Opening says that the card does not take connections yet and soon will: its listeners are not refused.
	Opening bool
}

// The rates of answers, a second and in a burst.
const (
	resetRate, resetBurst = 1000, 1000
	errorRate, errorBurst = 1000, 100
	echoRate, echoBurst   = 10000, 1000
	// The card is asked about connections: each answer takes commands, which the data path shares its memories with.
	lookupRate, lookupBurst = 1000, 100
	tellRate, tellBurst     = 10, 50
)

// Handler decides about exceptions. Make one with New and give it its Station.
type Handler struct {
	cfg   Config
	st    Station
	table *neighbour.Table
	own   map[netip.Addr][]place // by address, where it is ours
	now   time.Duration

	vips    map[netip.Addr]bool
	servers map[netip.AddrPort]bool
	paths   paths

	serverHosts map[netip.Addr]bool
	fragments   *reassembly.Table
	fragmentID  uint32 // the last one of our own
	wire        []byte // a fragment on its way out

	nat   *snat.Table
	pool  map[netip.Addr]bool // its addresses outside
	gue   map[uint16]bool     // ports of tunnels
	q     *packet             // one with other ends, which lies
	spare []byte              // here

	p       *packet
	buf     gopacket.SerializeBuffer
	queue   map[neighbour.Key]*queued // a packet for each hop that is being resolved
	actions []neighbour.Action

	attempts map[uint32]*attempt // by handle
	order    []uint32            // of the handles in attempts, oldest first

	groups         map[string]uint32 // their indexes
	gathers, feeds store
	nextSweep      time.Duration
	taken          [regs.HeadBytes]byte // by Take, during an exception
	stream         []byte               // for a server, during an exception
	proxied        uint64               // connections that a server was told of by a PROXY header
	name           [8]byte              // of this handler, in the names of those
	shares         shares
	readings       readings

	prober   *health.Prober
	resolved uint64 // version of the neighbours that the prober knows
	segments []health.Segment

	resets, errors, echoes, lookups, oversize, told bucket
	counters                                        [reasons]uint64
}

// place is where an address of ours is: a port and its VLAN.
type place struct {
	port int
	vlan uint16
}

// maxQueued is how many packets wait for next hops at most.
const maxQueued = 64

// New returns a handler of a card without addresses.
func New(cfg Config) *Handler {
	h := &Handler{
		cfg: cfg, gathers: newStore(), feeds: newStore(), told: newBucket(tellRate, tellBurst), table: neighbour.New(), prober: health.New(cfg.Key), own: map[netip.Addr][]place{},
		p: newPacket(), buf: gopacket.NewSerializeBuffer(), queue: map[neighbour.Key]*queued{}, attempts: map[uint32]*attempt{},
		resets: newBucket(resetRate, resetBurst), errors: newBucket(errorRate, errorBurst), echoes: newBucket(echoRate, echoBurst), lookups: newBucket(lookupRate, lookupBurst), oversize: newBucket(lookupRate, lookupBurst),
		paths: paths{mtu: map[config.Hop]path{}}, fragments: reassembly.New(), q: newPacket(),
	}
	sum := sha256.Sum256(append([]byte("unique id"), cfg.Key[:]...))
	copy(h.name[:], sum[:])
	h.nat = snat.New(sha256.Sum256(append([]byte("ports"), cfg.Key[:]...)))
	h.fragmentID = binary.BigEndian.Uint32(sum[len(h.name):])
	return h
}

// Configure replaces the station. Addresses that are new are announced, hops that are new are resolved.
func (h *Handler) Configure(st Station, now time.Duration) {
	h.st, h.now = st, now
	h.own = map[netip.Addr][]place{}
	var announced []neighbour.Key
	for i, p := range st.Config.Ports() {
		for _, a := range p.Addresses {
			h.own[a.Prefix.Addr()] = append(h.own[a.Prefix.Addr()], place{i, a.VLAN})
			announced = append(announced, neighbour.Key{Port: i, VLAN: a.VLAN, Addr: a.Prefix.Addr()})
		}
	}
	pool := st.Config.Server.SNAT.Addresses()
	h.nat.Pool(pool)
	h.pool = map[netip.Addr]bool{}
	for _, a := range pool {
		h.pool[a] = true
	}
	h.gue = guePorts(st.Config)
	for i, vip := range slices.Concat(st.VIPs, pool, st.Locals) {
		if _, ours := h.own[vip]; ours {
			continue
		}
		// A VIP in no subnet is routed to the card; who asks for it nevertheless is on the client side.
		at := place{0, 0}
		if i >= len(st.VIPs)+len(pool) && !st.Config.OneArmed {
			at.port = serverPort
		}
		if hop, ok := st.Config.Route(vip); ok && hop.Neighbor == vip {
			at = place{hop.Port, hop.VLAN}
			announced = append(announced, neighbour.Key{Port: hop.Port, VLAN: hop.VLAN, Addr: vip})
		}
		h.own[vip] = []place{at}
	}
	h.vips, h.servers, h.serverHosts = map[netip.Addr]bool{}, map[netip.AddrPort]bool{}, map[netip.Addr]bool{}
	for _, vip := range st.VIPs {
		h.vips[vip] = true
	}
	for _, s := range st.Servers {
		h.servers[s], h.serverHosts[s.Addr()] = true, true
	}
	h.groups = map[string]uint32{}
	for i, g := range st.Groups {
		h.groups[g.Name] = i
	}
	h.table.Own(announced, now)
	keys := make([]neighbour.Key, len(st.Hops))
	for i, hop := range st.Hops {
		keys[i] = keyOf(hop)
	}
	for _, p := range st.Config.Ports() {
		for _, g := range p.Gateways {
			if hop, ok := st.Config.Route(g.Address); ok {
				keys = append(keys, keyOf(hop))
			}
		}
	}
	h.table.Want(keys, now)
	h.prober.Want(h.targets(), now)
}

func keyOf(hop config.Hop) neighbour.Key {
	return neighbour.Key{Port: hop.Port, VLAN: hop.VLAN, Addr: hop.Neighbor}
}

// Neighbours is the table of neighbours, for reading.
func (h *Handler) Neighbours() *neighbour.Table { return h.table }

// Counters returns how often each Reason applied.
func (h *Handler) Counters() [reasons]uint64 {
	c := h.counters
	c[DropFragmentExpired] += h.fragments.Expired
	c[DropFragmentFull] += h.fragments.Evicted
	t := &h.readings.tally
	c[ModuleLate], c[ModuleLong], c[ModuleWaits] = t.Late, t.Long, t.Waits
	c[ModuleExpired] = h.readings.expected.Expired + h.readings.expected.Evicted
	return c
}

func (h *Handler) count(r Reason) { h.counters[r]++ }

// Next is when Advance may have something to do again.
func (h *Handler) Next() time.Duration {
	next := min(h.nat.Next(h.fragments.Next(h.paths.next(h.table.Next()))), h.prober.Next())
	if len(h.gathers.of)+len(h.feeds.of) > 0 {
		next = min(next, h.nextSweep)
	}
	return next
}

// Advance sends the solicitations, announcements and probes that are due, and forgets what is too old.
func (h *Handler) Advance(now time.Duration) {
	h.now = now
	h.shares = shares{dropped: h.shares.dropped}
	h.sweep(now)
	h.paths.expire(now)
	h.readings.expected.Expire(now)
	h.fragments.Expire(now)
	h.nat.Expire(now)
	h.actions = h.table.Advance(now, h.actions[:0], h.hopFailed)
	for _, a := range h.actions {
		h.act(a)
	}
	h.probe()
}

// Handle decides about one exception.
func (h *Handler) Handle(e *regs.ExceptionEntry, frame []byte, now time.Duration) {
	h.now = now
	switch e.ReasonReason {
	case regs.ExceptionReasonReasonBadRequest, regs.ExceptionReasonReasonNoRule, regs.ExceptionReasonReasonNoServer, regs.ExceptionReasonReasonHeadTooLarge,
		regs.ExceptionReasonReasonServerFailed, regs.ExceptionReasonReasonKeyExists, regs.ExceptionReasonReasonRewrite, regs.ExceptionReasonReasonRuleHost,
		regs.ExceptionReasonReasonAnswer, regs.ExceptionReasonReasonHeadMore, regs.ExceptionReasonReasonHeldMore, regs.ExceptionReasonReasonHeadTimeout,
		regs.ExceptionReasonReasonNotHttp, regs.ExceptionReasonReasonNotTls, regs.ExceptionReasonReasonH2c, regs.ExceptionReasonReasonBadHello:
		h.content(e)
		return
	case regs.ExceptionReasonReasonFragmented:
		h.back(int(e.ControlPort), frame, e.Back)
		return
	}
	if h.examine(int(e.ControlPort), frame) || h.check(frame) {
		return
	}
	if !h.shares.frame(e.ReasonReason) {
		h.count(DropShare)
		return
	}
	if e.ReasonReason == regs.ExceptionReasonReasonNextHop {
		h.count(DropNextHop)
		return
	}
	port := int(e.ControlPort)
	p := h.p
	if port >= len(h.st.Ports) || !p.decode(port, frame) {
		h.count(DropMalformed)
		return
	}
	switch {
	case p.tags > 1:
		h.count(DropVLAN)
	case p.is(layers.LayerTypeARP):
		h.arp(p)
	case e.ReasonReason == regs.ExceptionReasonReasonTooBig:
		h.tooBigFor(p, e)
	case e.ReasonReason == regs.ExceptionReasonReasonFragment && h.fragment(p):
	case e.ReasonReason == regs.ExceptionReasonReasonModule:
		h.readAlong(p, e)
	case h.followed(p, e):
	case h.splice(p):
	case h.inward(p):
	case h.ours(p.dst):
		h.local(p, e)
	case p.src.Is6() && h.toUs(p):
		h.ndp(p)
	default:
		h.forward(p)
	}
}

func (h *Handler) ours(a netip.Addr) bool {
	_, ok := h.own[a]
	return ok
}

// at says whether an address is ours where a packet came in.
func (h *Handler) at(a netip.Addr, p *packet) bool {
	return slices.Contains(h.own[a], place{p.port, p.vlan()}) || slices.Contains(h.own[a], place{p.port, 0}) && !h.inSubnet(a)
}

func (h *Handler) inSubnet(a netip.Addr) bool {
	hop, ok := h.st.Config.Route(a)
	return ok && hop.Neighbor == a
}

// toUs says whether a packet goes to a multicast group that stations listen to for neighbour discovery.
func (h *Handler) toUs(p *packet) bool {
	return p.dst.IsMulticast() && p.is(layers.LayerTypeICMPv6)
}

// local answers what is addressed to the card itself.
func (h *Handler) local(p *packet, e *regs.ExceptionEntry) {
	if part, _ := p.fragment(); part {
		h.count(DropFragment)
		return
	}
	switch {
	case p.is(layers.LayerTypeICMPv4) || p.is(layers.LayerTypeICMPv6):
		h.icmp(p)
	case e.ReasonReason == regs.ExceptionReasonReasonTtl:
		h.timeExceeded(p)
	case e.ReasonReason == regs.ExceptionReasonReasonUnclassified || e.HandleN != 0 || e.HandleGeneration != 0:
		h.count(DropState)
	case p.is(layers.LayerTypeTCP) && h.answered(p):
	case p.is(layers.LayerTypeTCP) && h.st.Opening && p.tcp.SYN && !p.tcp.ACK && h.listens(p):
		h.count(DropOpening)
	case p.is(layers.LayerTypeTCP):
		h.closedTCP(p)
	default:
		h.closedOther(p)
	}
}

// listens says whether a service listens where a segment goes.
func (h *Handler) listens(p *packet) bool {
	to := netip.AddrPortFrom(p.dst, uint16(p.tcp.DstPort))
	return slices.ContainsFunc(h.st.Config.Services, func(s config.Service) bool {
		return slices.ContainsFunc(s.Listen, func(l config.Listen) bool { return l.Addr == to })
	})
}
