package dns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"

	"splicenic/runtime/config"
)

// addressTypes are the types of addresses.
var addressTypes = map[uint16]string{dns.TypeA: "A", dns.TypeAAAA: "AAAA"}

// pollKey tells whether peers are asked the same things.
func pollKey(c *config.DNS) string {
	return fmt.Sprint(c.Zone, c.TTL, c.Listen.Addr(), recordNames(c), len(c.Peers), c.Peers)
}

// recordNames are the names of the records in lower case, each once.
func recordNames(c *config.DNS) (names []string) {
	for _, r := range c.Records {
		if name := strings.ToLower(r.Name); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// poll asks all peers until ctx ends.
func (s *Server) poll(ctx context.Context, c *config.DNS) {
	var group sync.WaitGroup
	defer group.Wait()
	for i := range c.Peers {
		group.Go(func() {
			turn := time.NewTicker(c.TTL / 3)
			defer turn.Stop()
			for {
				h := s.round(ctx, c, &c.Peers[i])
				if ctx.Err() != nil {
					return
				}
				s.hear(c, i, h)
				select {
				case <-ctx.Done():
					return
				case <-turn.C:
				}
			}
		})
	}
}

// round asks a peer once.
func (s *Server) round(ctx context.Context, c *config.DNS, p *config.DNSPeer) Heard {
	ctx, cancel := context.WithTimeout(ctx, c.TTL/3)
	defer cancel()
	s.counts.rounds.Add(1)
	live, err := ask(ctx, c, p.Address)
	if err != nil {
		s.counts.silent.Add(1)
		s.log.Debug("peer does not answer", "peer", p.Address, "error", err)
		return Heard{}
	}
	return Heard{Alive: true, Live: live}
}

// hear notes what a peer said.
func (s *Server) hear(c *config.DNS, i int, h Heard) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cfg == nil || !slices.EqualFunc(s.cfg.DNS.Peers, c.Peers, samePeer) {
		return // asked for another configuration
	}
	if s.heard == nil {
		s.heard = make([]Heard, len(c.Peers))
	}
	if was := s.heard[i].Alive; was != h.Alive {
		s.log.Info("peer changed", "peer", c.Peers[i].Address, "alive", h.Alive)
	}
	s.heard[i] = h
	s.again()
}

// errPeer is the error of a peer that answers, but does not know or says something else than was asked.
var errPeer = errors.New("no answer to the question")

// ask asks a peer what it serves, by record, on one connection.
func ask(ctx context.Context, c *config.DNS, at netip.AddrPort) (map[string][]netip.Addr, error) {
	var d net.Dialer
	if from := c.Listen.Addr(); from.IsValid() && from.Is4() == at.Addr().Is4() && from.IsLoopback() == at.Addr().IsLoopback() {
		d.LocalAddr = &net.TCPAddr{IP: from.AsSlice()} // the peer knows this address, and keeps a place for it
	}
	raw, err := d.DialContext(ctx, "tcp", at.String())
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	stop := context.AfterFunc(ctx, func() { raw.Close() })
	defer stop()
	conn := &dns.Conn{Conn: raw}
	live := map[string][]netip.Addr{}
	id := uint16(0)
	for _, name := range recordNames(c) {
		for _, kind := range [...]uint16{dns.TypeA, dns.TypeAAAA} {
			id++
			list, err := exchange(conn, id, below(name, config.DNSOwn+"."+c.Zone), kind)
			if err != nil {
				return nil, fmt.Errorf("ask %s for %s: %w", at, name, err)
			}
			live[name] = append(live[name], list...)
		}
	}
	return live, nil
}

// exchange asks one question.
func exchange(conn *dns.Conn, id uint16, name string, kind uint16) (list []netip.Addr, err error) {
	q := new(dns.Msg)
	q.SetQuestion(name, kind)
	q.Id, q.RecursionDesired = id, false
	if err := conn.WriteMsg(q); err != nil {
		return nil, err
	}
	r, err := conn.ReadMsg()
	if err != nil {
		return nil, err
	}
	return heardIn(q, r)
}

// heardIn reads an answer. A peer that does not have the name serves nothing under it.
func heardIn(q, r *dns.Msg) (list []netip.Addr, err error) {
	switch {
	case r.Id != q.Id || !r.Response || r.Truncated || len(r.Question) != 1 || r.Question[0] != q.Question[0]:
		return nil, errPeer
	case r.Rcode == dns.RcodeNameError:
		return nil, nil
	case r.Rcode != dns.RcodeSuccess || !r.Authoritative:
		return nil, fmt.Errorf("%w: %s", errPeer, dns.RcodeToString[r.Rcode])
	}
	for _, rr := range r.Answer {
		if a, ok := address(rr); ok && rr.Header().Name == q.Question[0].Name && rr.Header().Rrtype == q.Question[0].Qtype && len(list) < config.MaxDNSVIPs {
			list = append(list, a)
		}
	}
	return list, nil
}

// address is the address in a record of one.
func address(rr dns.RR) (netip.Addr, bool) {
	switch rr := rr.(type) {
	case *dns.A:
		a, ok := netip.AddrFromSlice(rr.A)
		return a.Unmap(), ok
	case *dns.AAAA:
		return netip.AddrFromSlice(rr.AAAA)
	}
	return netip.Addr{}, false
}
