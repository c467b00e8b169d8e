package daemon

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"splicenic/driver"
	"splicenic/regs"
	"splicenic/runtime/config"
)

const (
	protocolTCP = 6
	protocolUDP = 17
)

// place is a server's entry, kept while connections name it. What its connections were told is part of its name: a server
// that gets another method has another entry, and the one before goes on with its connections.
type place struct {
	addr    netip.AddrPort // port zero: that of the client's packet
	udp     bool
	method  config.Mode
	tunnel  config.Tunnel // without its position
	returns bool
	locals  []netip.Addr // fullnat; tun: the outer source address alone

	hop     hop
	profile config.Profile
	nat64   bool          // IPv4 clients come to this IPv6 server with nat
	drain   time.Duration // its connections have so long when it is out of the configuration; zero: for ever
	left    []uint32      // as a predecessor left it in the card, where it is out of the configuration since then; nil: none did
}

// name is unique among servers, and so that a predecessor's can be told from the card's tables.
func (p *place) name() string {
	name := p.addr.String() + "/tcp"
	if p.udp {
		name = p.addr.String() + "/udp"
	}
	switch p.method {
	case config.FullNAT:
		return name + "/fullnat/" + digestOf(p.locals)
	case config.Tun:
		t := &p.tunnel
		name = fmt.Sprintf("%s/tun/%s/%d/%s/%d", name, t.Type, t.Port, t.Checksum, t.DSCP)
		if p.returns {
			name += "/card"
		}
		return name
	case config.DR:
		return name + "/dr"
	}
	return name
}

// everyPort is the server by any port: where the connections go that an application module announces.
func (p *place) everyPort(udp bool) place {
	every := *p
	every.addr, every.udp, every.left = netip.AddrPortFrom(p.addr.Addr(), 0), udp, nil
	return every
}

// digestOf names a set of addresses.
func digestOf(list []netip.Addr) string {
	words := make([]string, len(list))
	for i, a := range list {
		words[i] = a.String()
	}
	slices.Sort(words)
	sum := sha256.Sum256([]byte(strings.Join(slices.Compact(words), " ")))
	return hex.EncodeToString(sum[:4])
}

// isServer says whether a name can be a server's.
func isServer(n string) bool {
	part := strings.Split(n, "/")
	a, err := netip.ParseAddrPort(part[0])
	if err != nil || a.String() != part[0] || len(part) < 2 || part[1] != "tcp" && part[1] != "udp" {
		return false
	}
	p := place{addr: a, udp: part[1] == "udp"}
	switch rest := part[2:]; {
	case len(rest) == 0:
	case rest[0] == "dr":
		p.method = config.DR
	case rest[0] == "fullnat" && len(rest) == 2:
		sum, err := hex.DecodeString(rest[1])
		return err == nil && len(sum) == 4 && strings.ToLower(n) == n
	case rest[0] == "tun" && len(rest) >= 5:
		p.method, p.returns = config.Tun, len(rest) == 6
		t := &p.tunnel
		for t.Type = config.IPIP; t.Type < config.DSCP && t.Type.String() != rest[1]; t.Type++ {
		}
		port, _ := strconv.ParseUint(rest[2], 10, 16)
		for t.Checksum = config.NoChecksum; t.Checksum < config.RemoteChecksum && t.Checksum.String() != rest[3]; t.Checksum++ {
		}
		dscp, _ := strconv.ParseUint(rest[4], 10, 6)
		t.Port, t.DSCP = uint16(port), uint8(dscp)
	}
	return p.name() == n
}

var (
	methods     = [...]uint32{config.Splice: regs.MethodNat, config.NAT: regs.MethodNat, config.FullNAT: regs.MethodFullnat, config.Tun: regs.MethodTun, config.DR: regs.MethodDr}
	tunnelTypes = [...]uint32{config.IPIP: regs.ServerTunnelTypeIpip, config.GRE: regs.ServerTunnelTypeGre, config.GUE: regs.ServerTunnelTypeGue, config.DSCP: regs.ServerTunnelTypeDscp}
	checksums   = [...]uint32{config.NoChecksum: regs.ServerTunnelChecksumNone, config.FullChecksum: regs.ServerTunnelChecksumFull, config.RemoteChecksum: regs.ServerTunnelChecksumRemote}
)

// words is the entry of a place, but for what other tables say.
func (p *place) entry() regs.ServerEntry {
	kind, words := driver.AddressWords(p.addr.Addr())
	e := regs.ServerEntry{
		ControlValid: 1, ControlKind: kind, ControlMethod: methods[p.method], ControlProtocol: protocolTCP, ControlPort: uint32(p.addr.Port()), Address: words,
		ProfileMss: uint32(p.profile.MSS), ProfileWscale: uint32(p.profile.WScale), ProfileWscaleOn: bit(p.profile.WScaleOn),
		ProfileSack: bit(p.profile.SACK), ProfileTimestamps: bit(p.profile.Timestamps), ProfileKnown: bit(p.profile.Known), ProfileEcn: bit(p.profile.ECN),
		TunnelNat64: bit(p.nat64), TunnelAnyPort: bit(p.addr.Port() == 0),
	}
	if p.udp {
		e.ControlProtocol = protocolUDP
	}
	if p.method == config.Tun {
		t := &p.tunnel
		e.TunnelType, e.TunnelChecksum, e.TunnelDscp, e.TunnelPort = tunnelTypes[t.Type], checksums[t.Checksum], uint32(t.DSCP), uint32(t.Port)
		e.TunnelReturn = bit(p.returns)
	}
	return e
}

// placeOf reads a place from the card's entry; false where it is none that a configuration makes. local tells the
// addresses of a fullnat server's list.
func placeOf(e *regs.ServerEntry, locals func() []netip.Addr) (p place, ok bool) {
	a := driver.Address(e.ControlKind, e.Address)
	p = place{addr: netip.AddrPortFrom(a, uint16(e.ControlPort)), udp: e.ControlProtocol == protocolUDP}
	if !a.IsValid() || e.ControlProtocol != protocolTCP && !p.udp {
		return p, false
	}
	switch e.ControlMethod {
	case regs.MethodNat:
		p.method = config.NAT
	case regs.MethodDr:
		p.method = config.DR
	case regs.MethodFullnat:
		p.method, p.locals = config.FullNAT, locals()
	case regs.MethodTun:
		p.method, p.returns = config.Tun, e.TunnelReturn != 0
		p.tunnel = config.Tunnel{
			Type:     config.TunnelType(max(slices.Index(tunnelTypes[:], e.TunnelType), 0)),
			Checksum: config.Checksum(max(slices.Index(checksums[:], e.TunnelChecksum), 0)),
			Port:     uint16(e.TunnelPort), DSCP: uint8(e.TunnelDscp),
		}
	default:
		return p, false
	}
	return p, true
}

// serverPlace is where a server of a pool goes; false where no way leads there.
func (in *Inputs) serverPlace(pool config.Pool, s *config.Server) (p place, ok bool) {
	to, ok := in.Config.Route(s.Addr.Addr())
	p = place{addr: s.Addr, udp: pool.UDP, method: pool.Method(s), hop: hop{Hop: to}, profile: in.profile(s), drain: pool.Group.Drain}
	switch p.method {
	case config.FullNAT:
		p.locals = in.Config.LocalFor(pool.Group, s.Addr.Addr())
	case config.Tun:
		p.tunnel, p.returns = s.Tunnel, s.Return
		p.tunnel.At = config.Position{}
		if a := in.Config.Own(to); a.IsValid() {
			p.locals = []netip.Addr{a}
		}
	}
	return p, ok
}
