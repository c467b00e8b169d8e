package dns

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"

	"splicenic/runtime/config"
)

// Times of what does not follow health, in seconds.
const (
	serverTTL = 3600 // of name servers and their addresses
	leastLife = 60   // of a copy that cannot be refreshed
)

// Heard is what a peer said last. The zero value is a peer that does not answer.
type Heard struct {
	Alive bool
	Live  map[string][]netip.Addr // what it serves, by the record's name in lower case
}

// A Zone is what is published at one time. Nothing in it changes but whose turn it is. Make makes one.
type Zone struct {
	Serial uint32

	origin string // as configured, with its dot
	ttl    uint32 // seconds
	soa    dns.SOA
	names  map[string]*node // by absolute name in lower case
	order  []*node          // apex first, then by name
}

// A node is a name of the zone. One without sets only has names below it.
type node struct {
	name string // absolute, as configured
	own  bool   // below the label that peers ask for: no part of the file or of a transfer
	sets []*set
}

// Make makes the zone that a configuration, the health of its services and what its peers said amount to. c.DNS is not nil.
// heard is in the order of c.DNS.Peers; a peer beyond its end does not answer.
func Make(c *config.Config, serial uint32, quorum func(service string) bool, heard []Heard) *Zone {
	cfg := c.DNS
	ttl := uint32(cfg.TTL / time.Second)
	z := &Zone{Serial: serial, origin: cfg.Zone + ".", ttl: ttl, names: map[string]*node{}}
	z.soa = dns.SOA{
		Hdr: dns.RR_Header{Name: z.origin, Rrtype: dns.TypeSOA, Class: dns.ClassINET, Ttl: ttl},
		Ns:  cfg.Nameserver + ".", Mbox: cfg.Contact + ".", Serial: serial,
		Refresh: ttl, Retry: ttl, Expire: max(20*ttl, leastLife), Minttl: ttl,
	}
	z.servers(cfg)
	own := ownAddresses(c, quorum)
	for _, a := range own {
		all := slices.Clone(a.live)
		for i, p := range cfg.Peers {
			if i < len(heard) && heard[i].Alive {
				all = append(all, allowed(p.VIPs, heard[i].Live[strings.ToLower(a.name)])...)
			}
		}
		z.addresses(z.node(below(a.name, cfg.Zone)), a.kinds, all)
		self := z.node(below(a.name, config.DNSOwn+"."+cfg.Zone))
		self.own = true
		z.addresses(self, [2]bool{}, a.live)
	}
	z.finish()
	return z
}

// below is a record's absolute name.
func below(name, zone string) string {
	if name == "@" {
		return zone + "."
	}
	return name + "." + zone + "."
}

// allowed are the addresses that both lists have.
func allowed(vips, said []netip.Addr) (both []netip.Addr) {
	for _, a := range vips {
		if slices.Contains(said, a) {
			both = append(both, a)
		}
	}
	return both
}

// A published is what a director has for a name.
type published struct {
	name  string       // below the zone, as the first record of it writes it
	kinds [2]bool      // IPv4 and IPv6 addresses are promised
	live  []netip.Addr // of services that have their quorum
}

// ownAddresses collects what the services of each name listen on, in the order of the file. An address that several services
// of the name listen on is out with the first of them that has no quorum.
func ownAddresses(c *config.Config, quorum func(service string) bool) []*published {
	var list []*published
	at := map[string]*published{}
	out := map[[2]string]bool{}
	for _, r := range c.DNS.Records {
		key := strings.ToLower(r.Name)
		p := at[key]
		if p == nil {
			p = &published{name: r.Name}
			at[key], list = p, append(list, p)
		}
		i := slices.IndexFunc(c.Services, func(s config.Service) bool { return s.Name == r.Service })
		if i < 0 {
			continue // Load refuses it
		}
		works := quorum(r.Service)
		for _, l := range c.Services[i].Listen {
			a := l.Addr.Addr()
			p.kinds[kind(a)] = true
			if !works {
				out[[2]string{key, a.String()}] = true
			}
			if !slices.Contains(p.live, a) {
				p.live = append(p.live, a)
			}
		}
	}
	for _, p := range list {
		p.live = slices.DeleteFunc(p.live, func(a netip.Addr) bool { return out[[2]string{strings.ToLower(p.name), a.String()}] })
	}
	return list
}

// kind is 0 for IPv4 and 1 for IPv6.
func kind(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}

// node returns a name's node, made where there is none.
func (z *Zone) node(name string) *node {
	key := strings.ToLower(name)
	n := z.names[key]
	if n == nil {
		n = &node{name: name}
		z.names[key] = n
	}
	return n
}

// servers adds the name servers, and the addresses of those that the zone itself has to tell.
func (z *Zone) servers(cfg *config.DNS) {
	apex := z.node(z.origin)
	list := []struct {
		name string
		addr netip.Addr
	}{{cfg.Nameserver, cfg.Address}}
	for _, p := range cfg.Peers {
		if p.Nameserver != "" {
			list = append(list, struct {
				name string
				addr netip.Addr
			}{p.Nameserver, p.Address.Addr()})
		}
	}
	for _, s := range list {
		name := s.name + "."
		rr := &dns.NS{Hdr: dns.RR_Header{Name: apex.name, Rrtype: dns.TypeNS, Class: dns.ClassINET, Ttl: serverTTL}, Ns: name}
		if ns := apex.set(dns.TypeNS); !slices.ContainsFunc(ns.records, func(r dns.RR) bool { return strings.EqualFold(r.(*dns.NS).Ns, name) }) {
			ns.records = append(ns.records, rr)
		}
		if s.addr.IsValid() && dns.IsSubDomain(z.origin, name) {
			n := z.node(name)
			n.add(s.addr, serverTTL)
		}
	}
}

// addresses gives a name its addresses. A type that is promised and has none is out.
func (z *Zone) addresses(n *node, promised [2]bool, live []netip.Addr) {
	for _, a := range live {
		n.add(a, z.ttl)
	}
	for k, t := range [...]uint16{dns.TypeA, dns.TypeAAAA} {
		if promised[k] && n.find(t) == nil {
			n.set(t).out = true
		}
	}
}

func (n *node) add(a netip.Addr, ttl uint32) {
	hdr := dns.RR_Header{Name: n.name, Rrtype: dns.TypeAAAA, Class: dns.ClassINET, Ttl: ttl}
	if a.Is4() {
		hdr.Rrtype = dns.TypeA
		s := n.set(dns.TypeA)
		s.records = append(s.records, &dns.A{Hdr: hdr, A: a.AsSlice()})
		return
	}
	s := n.set(dns.TypeAAAA)
	s.records = append(s.records, &dns.AAAA{Hdr: hdr, AAAA: a.AsSlice()})
}

// find returns a type's set, nil where there is none.
func (n *node) find(kind uint16) *set {
	if i := slices.IndexFunc(n.sets, func(s *set) bool { return s.kind == kind }); i >= 0 {
		return n.sets[i]
	}
	return nil
}

// set returns a type's set, made where there is none.
func (n *node) set(kind uint16) *set {
	s := n.find(kind)
	if s == nil {
		s = &set{kind: kind}
		n.sets = append(n.sets, s)
	}
	return s
}

// finish makes the names that others are below, and brings all into order.
func (z *Zone) finish() {
	var names []*node
	for _, n := range z.names {
		names = append(names, n)
	}
	for _, n := range names {
		for off, end := dns.NextLabel(n.name, 0); !end && dns.IsSubDomain(z.origin, n.name[off:]); off, end = dns.NextLabel(n.name, off) {
			if key := strings.ToLower(n.name[off:]); z.names[key] == nil {
				z.names[key] = &node{name: n.name[off:], own: n.own}
			}
		}
	}
	for _, n := range z.names {
		slices.SortFunc(n.sets, func(a, b *set) int { return cmp.Compare(a.kind, b.kind) })
		z.order = append(z.order, n)
	}
	slices.SortFunc(z.order, func(a, b *node) int {
		return cmp.Or(cmp.Compare(dns.CountLabel(a.name), dns.CountLabel(b.name)), cmp.Compare(strings.ToLower(a.name), strings.ToLower(b.name)))
	})
}

// Same says whether two zones differ in nothing but their serial number and whose turn it is.
func (z *Zone) Same(other *Zone) bool {
	if other == nil || z.soa.Hdr != other.soa.Hdr || z.soa.Ns != other.soa.Ns || z.soa.Mbox != other.soa.Mbox {
		return false
	}
	return slices.EqualFunc(z.order, other.order, func(a, b *node) bool {
		return a.name == b.name && a.own == b.own && slices.EqualFunc(a.sets, b.sets, func(s, t *set) bool {
			return s.kind == t.kind && s.out == t.out && slices.EqualFunc(s.records, t.records, func(x, y dns.RR) bool { return x.String() == y.String() })
		})
	})
}

// At gives the zone another serial number.
func (z *Zone) At(serial uint32) *Zone {
	z.Serial, z.soa.Serial = serial, serial
	return z
}

// records are all records of the zone but the SOA, apex first. The caller does not change them.
func (z *Zone) records() (all []dns.RR) {
	for _, n := range z.order {
		if n.own {
			continue
		}
		for _, s := range n.sets {
			all = append(all, s.records...)
		}
	}
	return all
}

// String is the zone as a master file (RFC 1035, 5): every record on a line of its own, with absolute names. What is out
// stands in comments at the end.
func (z *Zone) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "; Kept up to date by splicectl run: a change here is lost.\n$ORIGIN %s\n$TTL %d\n%s\n", z.origin, z.ttl, z.soa.String())
	for _, r := range z.records() {
		b.WriteString(r.String())
		b.WriteByte('\n')
	}
	for _, n := range z.order {
		for _, s := range n.sets {
			if s.out {
				fmt.Fprintf(&b, "; out, nobody serves it: %s %s\n", n.name, dns.TypeToString[s.kind])
			}
		}
	}
	return b.String()
}
