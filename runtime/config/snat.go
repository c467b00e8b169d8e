package config

import (
	"net/netip"
	"strings"
)

// Translation is a list of addresses that traffic which servers start leaves with.
type Translation struct {
	At   Position
	Pool []PoolAddress // of both families; what is of a family without any is routed as it is
}

// PoolAddress is one of them.
type PoolAddress struct {
	At      Position
	Address netip.Addr
}

// Addresses are those of the pool, in the order of the file.
func (t *Translation) Addresses() []netip.Addr {
	var all []netip.Addr
	for _, a := range t.Pool {
		all = append(all, a.Address)
	}
	return all
}

// maxPool is how many addresses a pool may have.
const maxPool = 16

func (d *decoder) translation(t *Translation, v value) {
	t.At = v.at
	d.list(v, func(v value) { t.Pool = append(t.Pool, PoolAddress{v.at, d.addr(v)}) })
}

// translation checks the pool of the server port. Its addresses are the card's on the client side and nothing else's.
func (k *checker) translation() {
	if at := k.c.Client.SNAT.At; (at != Position{}) {
		k.problem(at, "ports.client.snat", "translates traffic that servers start: write it under ports.server")
	}
	s := &k.c.Server.SNAT
	if (s.At == Position{}) {
		return
	}
	const key = "ports.server.snat"
	if !k.c.Server.Forward {
		k.problem(s.At, key, "needs forward: routed at the same port: without it nothing that servers start is let through")
	}
	if n := len(s.Pool); n == 0 || n > maxPool {
		k.problem(s.At, key, "has %d addresses; it may have 1 to %d", n, maxPool)
	}
	vips := map[netip.Addr]bool{}
	for i := range k.c.Services {
		for _, l := range k.c.Services[i].Listen {
			vips[l.Addr.Addr()] = true
		}
	}
	seen := map[netip.Addr]bool{}
	for _, x := range s.Pool {
		at, a := x.At, x.Address
		if seen[a] {
			k.problem(at, key, "%s is there twice", a)
		}
		seen[a] = true
		if vips[a] {
			k.problem(at, key, "a service listens on %s: give the pool an address of its own", a)
		}
		if _, inside := k.c.Server.subnet(a); inside {
			k.problem(at, key, "%s lies in a subnet of this port: the addresses are those that the client side sees", a)
		}
		for _, p := range k.c.Ports() {
			for _, own := range p.Addresses {
				if own.Prefix.Addr() == a {
					k.problem(at, key, "%s is the card's own address (line %d), which answers for itself: give the pool an address of its own", a, own.At.Line)
				}
			}
		}
	}
}

func (t *Translation) describe() string {
	var b strings.Builder
	for i, a := range t.Pool {
		b.WriteString([]string{", snat ", " "}[min(i, 1)] + a.Address.String())
	}
	return b.String()
}
