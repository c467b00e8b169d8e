package ipvs

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// A Listen is what clients connect to. Port zero is every port.
type Listen struct {
	Addr     netip.Addr
	Port     uint16
	Protocol string // "tcp" or "udp"
}

// String returns the address as a configuration writes it.
func (l Listen) String() string { return endpoint(l.Addr, l.Port) }

func endpoint(a netip.Addr, port uint16) string {
	p := strconv.Itoa(int(port))
	if port == 0 {
		p = "*"
	}
	if a.Is6() {
		return "[" + a.String() + "]:" + p
	}
	return a.String() + ":" + p
}

// ParseMark reads which packets have a firewall mark: "3=198.18.0.80:80,[2001:db8::80]:*,198.18.0.80:53/udp".
func ParseMark(s string) (mark uint32, list []Listen, err error) {
	number, rest, ok := strings.Cut(s, "=")
	n, err := strconv.ParseUint(number, 0, 32)
	if !ok || err != nil || n == 0 {
		return 0, nil, fmt.Errorf("mark %q: write it as 3=198.18.0.80:80,198.18.0.80:53/udp", clip(s))
	}
	for part := range strings.SplitSeq(rest, ",") {
		text, protocol, given := strings.Cut(part, "/")
		if !given {
			protocol = "tcp"
		}
		l := Listen{Protocol: protocol}
		if any, ok := strings.CutSuffix(text, ":*"); ok {
			l.Addr, err = netip.ParseAddr(strings.Trim(any, "[]"))
		} else {
			var a netip.AddrPort
			a, err = netip.ParseAddrPort(text)
			l.Addr, l.Port = a.Addr(), a.Port()
		}
		if err != nil || l.Addr.Zone() != "" || protocol != "tcp" && protocol != "udp" {
			return 0, nil, fmt.Errorf("mark %d: %q is no ADDRESS:PORT, with /udp behind it or nothing", n, clip(part))
		}
		l.Addr = l.Addr.Unmap()
		list = append(list, l)
	}
	if len(list) > maxListeners {
		return 0, nil, fmt.Errorf("mark %d has %d addresses; a service has at most %d", n, len(list), maxListeners)
	}
	return uint32(n), list, nil
}

// The methods, as a configuration writes them.
const (
	nat = "nat"
	tun = "tun"
	dr  = "dr"
)

// A Service is a service of a configuration, as far as an import makes one.
type Service struct {
	Name        string
	From        string // where it stood, for people
	Listen      []Listen
	Mode        string
	Protocol    string
	Group       string
	OnePacket   bool
	FTP         bool // module: ftp
	Persistence *Persistence
}

// Persistence keeps a client at a server.
type Persistence struct {
	Seconds  uint32
	Netmask  uint8 // bits of an IPv4 address
	Netmask6 uint8
	All      bool // one choice for all listeners
}

// A Group is a group of a configuration.
type Group struct {
	Name       string
	Scheduler  string
	Port       bool // hash: port
	Fallback   bool // hash: fallback
	Method     string
	Tunnel     Tunnel
	Check      *Check
	Quorum     uint32 // zero: not said
	Hysteresis uint32
	Sorry      string
	Servers    []Server
}

// A Server is a server of a group.
type Server struct {
	Addr         netip.Addr
	Port         uint16 // zero: the client's destination port
	Weight       uint32
	Method       string // empty: the group's
	Tunnel       Tunnel // zero: the group's
	Upper, Lower uint32
}

// A Tunnel says how packets are wrapped. The zero value is IP in IP.
type Tunnel struct {
	Type     string // "", "ipip", "gre" or "gue"
	Port     uint16
	Checksum string // "", "none", "full" or "remote"
}

// A Check finds out whether a server is well. Durations are milliseconds; zero is what a configuration takes for itself.
type Check struct {
	Type     string // "tcp", "http", "udp", "ping" or "none"
	Port     uint16
	Path     string
	Host     string
	Status   []string
	Send     string
	Expect   string
	Interval uint32
	Timeout  uint32
	Fall     uint32
	Down     bool // servers begin as down
}
