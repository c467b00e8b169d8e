package config

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// DNS says what a director tells the world about its VIPs. A director is one such runtime with its card; several of them
// publish one zone.
type DNS struct {
	At         Position
	Zone       string         // without the dot at its end
	File       string         // zone file (RFC 1035) that is kept up to date; empty: none
	Listen     netip.AddrPort // where questions are answered, by UDP and TCP; invalid: nowhere
	Address    netip.Addr     // of the name server as the world sees it; default: that of Listen
	Nameserver string         // of this director, without the dot at its end
	Contact    string         // mailbox of the zone as a name (RFC 1035, 3.3.13); default: hostmaster and the zone
	TTL        time.Duration  // of A and AAAA records, whole seconds
	Records    []DNSRecord
	Peers      []DNSPeer
	Transfer   []netip.Prefix // who may have the whole zone (AXFR); none: nobody
}

// DNSRecord publishes the VIPs of a service under a name.
type DNSRecord struct {
	At      Position
	Name    string // below the zone; "@": the zone's own
	Service string
}

// DNSPeer is another director of the zone.
type DNSPeer struct {
	At         Position
	Address    netip.AddrPort // where it answers questions
	Nameserver string         // its name server, without the dot at its end; empty: it is not named in the zone
	VIPs       []netip.Addr   // what it may have published in its name
}

// Bounds of a zone.
const (
	MaxDNSRecords = 256
	MaxDNSPeers   = 16
	MaxDNSVIPs    = 256 // of a peer
)

// DNSOwn is the label below which a director tells its peers what it serves itself, whatever the others serve. No name of
// a host has an underscore, so that nothing else is called so.
const DNSOwn = "_own"

// defaultDNSTTL is how long an answer may be kept where the file does not say.
const defaultDNSTTL = 5 * time.Second

func (d *decoder) dns(c *Config, v value) {
	z := &DNS{At: v.at, TTL: defaultDNSTTL}
	ok := d.mapping(v, "dns", []field{
		{"zone", func(v value) { z.Zone = d.domain(v, "zone") }},
		{"file", func(v value) { z.File = d.path(v, "path of a file", 4000) }},
		{"listen", func(v value) { z.Listen = d.endpoint(v) }},
		{"address", func(v value) { z.Address = d.addr(v) }},
		{"nameserver", func(v value) { z.Nameserver = d.domain(v, "name of a name server") }},
		{"contact", func(v value) { z.Contact = d.domain(v, "mailbox, such as hostmaster.lb.example") }},
		{"ttl", func(v value) { d.ttl(v, &z.TTL) }},
		{"records", func(v value) {
			d.list(v, func(v value) { z.Records = append(z.Records, d.dnsRecord(v)) })
		}},
		{"peers", func(v value) {
			d.list(v, func(v value) { z.Peers = append(z.Peers, d.dnsPeer(v)) })
		}},
		{"transfer", func(v value) {
			d.list(v, func(v value) {
				if s, ok := d.text(v, "a network, such as 198.51.100.0/24"); ok {
					p, err := netip.ParsePrefix(s)
					if err != nil || p != p.Masked() || p.Addr().Is4In6() {
						d.problem(v.at, v.key, "%q is no network, such as 198.51.100.0/24 or 198.51.100.7/32", clip(s))
					}
					z.Transfer = append(z.Transfer, p)
				}
			})
		}},
	})
	if !ok || d.complains(v.key) {
		return
	}
	c.DNS = z
	switch {
	case z.Zone == "":
		d.problem(v.at, v.key, "zone is missing: say whose names these are, such as lb.example")
	case z.Nameserver == "":
		d.problem(v.at, v.key, "nameserver is missing: say what this director is called, such as ns1.%s", z.Zone)
	case len(z.Records) == 0:
		d.problem(v.at, v.key, "records is missing: say which names lead to which services")
	case z.File == "" && !z.Listen.IsValid():
		d.problem(v.at, v.key, "neither file nor listen is given: nobody would learn of the zone")
	}
	if z.Contact == "" {
		z.Contact = "hostmaster." + z.Zone
	}
	if !z.Address.IsValid() && z.Listen.IsValid() {
		z.Address = z.Listen.Addr()
	}
}

// domain decodes a name of hosts (RFC 1123, 2.1). It may end in a dot, which goes.
func (d *decoder) domain(v value, what string) string {
	s, ok := d.text(v, "a "+what)
	if !ok {
		return ""
	}
	name := strings.TrimSuffix(s, ".")
	if why := noDomain(name); why != "" {
		d.problem(v.at, v.key, "%q is no %s: %s", clip(s), what, why)
		return ""
	}
	return name
}

// maxDomain leaves room for the labels that are put before a name (RFC 1035, 2.3.4: 255 bytes on the wire).
const maxDomain = 240

// noDomain says why a name is none.
func noDomain(name string) string {
	if len(name) > maxDomain {
		return fmt.Sprintf("it has %d characters, and there is room for %d", len(name), maxDomain)
	}
	for label := range strings.SplitSeq(name, ".") {
		switch {
		case label == "":
			return "a label is empty"
		case len(label) > 63:
			return "a label has more than 63 characters"
		case label[0] == '-' || label[len(label)-1] == '-':
			return "a label begins or ends with a dash"
		case strings.Trim(label, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-") != "":
			return "its labels may hold letters, digits and dashes"
		}
	}
	return ""
}

// endpoint decodes where this machine listens, or another one does. Unlike the card's, such an address may be a loopback's.
func (d *decoder) endpoint(v value) netip.AddrPort {
	s, ok := d.text(v, "an address and a port")
	if !ok {
		return netip.AddrPort{}
	}
	a, err := netip.ParseAddrPort(s)
	switch {
	case err != nil:
		if bare, err := netip.ParseAddr(s); err == nil {
			d.problem(v.at, v.key, "%q has no port: write %s", s, netip.AddrPortFrom(bare, 53))
			break
		}
		d.problem(v.at, v.key, "%q is no address and port, such as 198.51.100.1:53 or [2001:db8::53]:53", clip(s))
	case a.Port() == 0:
		d.problem(v.at, v.key, "port 0 cannot be asked")
	case a.Addr().IsUnspecified():
		d.problem(v.at, v.key, "%s is every address of the machine, and an answer would leave by another one than was asked: name one", a.Addr())
	case !a.Addr().IsLoopback():
		if why := impossible(a.Addr()); why != "" {
			d.problem(v.at, v.key, "%s %s", a.Addr(), why)
		}
	}
	return a
}

// ttl decodes how long an answer may be kept.
func (d *decoder) ttl(v value, to *time.Duration) {
	d.duration(v, to)
	if *to < time.Second || *to > time.Hour || *to%time.Second != 0 {
		d.problem(v.at, v.key, "ttl is %v; it may be 1s to 1h, in whole seconds", *to)
	}
}

func (d *decoder) dnsRecord(v value) DNSRecord {
	r := DNSRecord{At: v.at}
	ok := d.mapping(v, "a record", []field{
		{"name", func(v value) {
			if s, ok := d.text(v, "a name below the zone"); ok && s == "@" {
				r.Name = s
			} else if ok {
				r.Name = d.domain(v, "name below the zone (the zone itself is @)")
			}
		}},
		{"service", func(v value) { r.Service = d.identifier(v, "service") }},
	})
	if ok && !d.complains(v.key) && (r.Name == "" || r.Service == "") {
		d.problem(v.at, v.key, "wants name and service")
	}
	return r
}

func (d *decoder) dnsPeer(v value) DNSPeer {
	p := DNSPeer{At: v.at}
	ok := d.mapping(v, "a peer", []field{
		{"address", func(v value) { p.Address = d.endpoint(v) }},
		{"nameserver", func(v value) { p.Nameserver = d.domain(v, "name of a name server") }},
		{"vips", func(v value) {
			d.list(v, func(v value) { p.VIPs = append(p.VIPs, d.addr(v)) })
		}},
	})
	if ok && !d.complains(v.key) && (!p.Address.IsValid() || len(p.VIPs) == 0 || len(p.VIPs) > MaxDNSVIPs) {
		d.problem(v.at, v.key, "wants address, where it answers, and vips, the 1 to %d addresses it may have published", MaxDNSVIPs)
	}
	return p
}

// dns checks the zone against the services, and that nobody listens where no frame arrives.
func (k *checker) dns() {
	z := k.c.DNS
	if z == nil {
		return
	}
	if len(z.Records) > MaxDNSRecords {
		k.problem(z.At, "dns.records", "has %d items; it may have 1 to %d", len(z.Records), MaxDNSRecords)
	}
	if len(z.Peers) > MaxDNSPeers {
		k.problem(z.At, "dns.peers", "has %d items; it may have at most %d", len(z.Peers), MaxDNSPeers)
	}
	names := make([]string, len(k.c.Services))
	for i := range k.c.Services {
		names[i] = k.c.Services[i].Name
	}
	seen := map[[2]string]Position{}
	for i, r := range z.Records {
		key := fmt.Sprintf("dns.records[%d]", i)
		if !slices.Contains(names, r.Service) {
			k.problem(r.At, key+".service", "there is no service %s", r.Service).Near = k.near(r.Service, names)
		}
		if len(r.Name)+1+len(z.Zone) > maxDomain {
			k.problem(r.At, key+".name", "%s.%s has more than %d characters", clip(r.Name), clip(z.Zone), maxDomain)
		}
		if full := r.Name + "." + z.Zone; strings.EqualFold(full, z.Nameserver) {
			k.problem(r.At, key+".name", "%s is the name server at line %d", full, z.At.Line)
		}
		what := [2]string{strings.ToLower(r.Name), r.Service}
		if at, ok := seen[what]; ok {
			k.problem(r.At, key, "%s leads to service %s at line %d already", r.Name, r.Service, at.Line)
		}
		seen[what] = r.At
	}
	k.dnsListen(z)
	k.dnsPeers(z)
}

// dnsListen refuses the addresses whose frames the kernel never sees.
func (k *checker) dnsListen(z *DNS) {
	if !z.Listen.IsValid() {
		if inZone(z.Nameserver, z.Zone) && !z.Address.IsValid() {
			k.problem(z.At, "dns.address", "is missing: name server %s lies in zone %s, which has to give its address", z.Nameserver, z.Zone)
		}
		return
	}
	a, key := z.Listen.Addr(), "dns.listen"
	const remedy = "its frames go to the card, where the kernel cannot listen: use an address of the host"
	for _, s := range k.c.Services {
		for _, l := range s.Listen {
			if l.Addr.Addr() == a {
				k.problem(z.At, key, "%s is a VIP of service %s (line %d): %s", a, s.Name, l.At.Line, remedy)
				return
			}
		}
	}
	for _, p := range k.c.Ports() {
		for _, own := range p.Addresses {
			if own.Prefix.Addr() == a {
				k.problem(z.At, key, "%s is the card's own address (line %d): %s", a, own.At.Line, remedy)
				return
			}
		}
	}
	if z.Address.IsLoopback() && inZone(z.Nameserver, z.Zone) {
		k.warn(z.At, "dns.address", "the zone gives %s as the address of %s, which leads every resolver to itself: say what the world sees", z.Address, z.Nameserver)
	}
}

func (k *checker) dnsPeers(z *DNS) {
	where := map[netip.AddrPort]Position{z.Listen: z.At}
	whose := map[netip.Addr]Position{}
	for _, s := range k.c.Services {
		for _, l := range s.Listen {
			whose[l.Addr.Addr()] = l.At
		}
	}
	for i, p := range z.Peers {
		key := fmt.Sprintf("dns.peers[%d]", i)
		if at, ok := where[p.Address]; ok {
			k.problem(p.At, key+".address", "%s is at line %d already", p.Address, at.Line)
		}
		where[p.Address] = p.At
		if strings.EqualFold(p.Nameserver, z.Nameserver) {
			k.problem(p.At, key+".nameserver", "%s is this director's own", p.Nameserver)
		}
		// A VIP that two directors share says nothing about which of them lives.
		for n, a := range p.VIPs {
			if at, ok := whose[a]; ok {
				k.problem(p.At, fmt.Sprintf("%s.vips[%d]", key, n), "%s is at line %d already: a VIP belongs to one director", a, at.Line)
			}
			whose[a] = p.At
		}
	}
}

// inZone says whether a name is the zone's or lies below it.
func inZone(name, zone string) bool {
	name, zone = strings.ToLower(name), strings.ToLower(zone)
	return name == zone || strings.HasSuffix(name, "."+zone)
}

// describe spells the zone out for Diff.
func (z *DNS) describe() string {
	text := fmt.Sprintf("zone %s, nameserver %s, contact %s, ttl %v", z.Zone, z.Nameserver, z.Contact, z.TTL)
	if z.File != "" {
		text += ", file " + z.File
	}
	if z.Listen.IsValid() {
		text += ", listen " + z.Listen.String()
	}
	if z.Address.IsValid() {
		text += ", address " + z.Address.String()
	}
	for _, r := range z.Records {
		text += fmt.Sprintf(", %s: %s", r.Name, r.Service)
	}
	for _, p := range z.Peers {
		text += fmt.Sprintf(", peer %v %s %v", p.Address, p.Nameserver, p.VIPs)
	}
	if len(z.Transfer) > 0 {
		text += fmt.Sprintf(", transfer %v", z.Transfer)
	}
	return text
}
