package exception

import (
	"net/netip"

	"splicenic/regs"
	"splicenic/runtime/config"
	"splicenic/runtime/neighbour"
)

// The sides of the card, as the CAMs count them.
const (
	clientSide = 0
	serverSide = 1
)

// A Flow names a connection by what one side of it sees: Far is the client as that side knows it, Near the VIP or the
// server.
type Flow struct {
	Protocol  uint8 // TCP or UDP
	VLAN      uint16
	Near, Far netip.AddrPort
}

// A Connection is what the card knows about a connection.
type Connection struct {
	Page    regs.PageEntry
	VIP     netip.Addr
	Servers [2]Server  // of leg sets A and B; the zero Server where there is none
	LegB    bool       // it was found by the key of leg set B
	Local   netip.Addr // what the server of leg set A sees in the client's place; the zero Addr: the client's own
}

// datagrams says whether the connection is one of UDP: what it carries has no numbers.
func (c *Connection) datagrams() bool { return c.Page.AScaleDatagrams != 0 }

// A Server is the far end of a leg and the way there.
type Server struct {
	Addr     netip.AddrPort
	Hop      config.Hop // the zero Hop where only the card knows it
	Port     int
	VLAN     uint16
	Tagged   bool
	Resolved bool
	MAC      neighbour.MAC
	Method   uint32           // as regs counts them
	Tunnel   regs.ServerEntry // with tun: what the tunnel's fields say
	Local    netip.Addr       // with tun: the outer source address
}

// client is the client as the client's side sees it.
func (c *Connection) client() netip.AddrPort {
	return netip.AddrPortFrom(addressOf(c.Page.ControlKind, c.Page.ClientAddress), uint16(c.Page.PortsClient))
}

func (c *Connection) vip() netip.AddrPort {
	return netip.AddrPortFrom(c.VIP, uint16(c.Page.PortsVip))
}

// clientLink is the way to the client: back where its SYN came from.
func (c *Connection) clientLink() link {
	lo, hi := c.Page.ClientMacLo, c.Page.ClientMacHiAddress
	return link{
		port: int(c.Page.ControlPort), vlan: uint16(c.Page.ClientLinkVlan), tagged: c.Page.ClientLinkTagged != 0,
		to: neighbour.MAC{byte(hi >> 8), byte(hi), byte(lo >> 24), byte(lo >> 16), byte(lo >> 8), byte(lo)},
	}
}

// link is the way to a neighbour.
func (s *Server) link() link { return link{s.Port, s.VLAN, s.Tagged, s.MAC} }

// A leg is one of the two leg sets of a page. Sequence numbers and acknowledgements are the client's, the ISN is our own
// toward the server.
type leg struct {
	server                                       *Server
	local                                        uint16 // source port the server sees
	armed                                        bool
	deltaClient, deltaServer, isn                uint32
	seqClient, ackClient, seqServer, ackOfServer uint32
}

func (c *Connection) leg(b bool) leg {
	p := &c.Page
	if b {
		return leg{&c.Servers[1], uint16(p.BLocalPort), p.BScaleArmed != 0, p.BDeltaClient, p.BDeltaServer, p.BIsn, p.BSeqClient, p.BAckClient, p.BSeqServer, p.BAckServer}
	}
	return leg{&c.Servers[0], uint16(p.ALocalPort), p.AScaleArmed != 0, p.ADeltaClient, p.ADeltaServer, p.AIsn, p.ASeqClient, p.AAckClient, p.ASeqServer, p.AAckServer}
}

// addressOf is the address that a page's words stand for.
func addressOf(kind uint32, w [4]uint32) netip.Addr {
	var b [16]byte
	for i, x := range w {
		at := 12 - 4*i
		b[at], b[at+1], b[at+2], b[at+3] = byte(x>>24), byte(x>>16), byte(x>>8), byte(x)
	}
	if kind == regs.KindIpv4 {
		return netip.AddrFrom4([4]byte(b[12:]))
	}
	return netip.AddrFrom16(b)
}
