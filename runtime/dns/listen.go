package dns

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/miekg/dns"

	"splicenic/runtime/config"
)

// Bounds of what clients can take.
const (
	readers        = 2               // goroutines that answer datagrams
	maxQuestion    = 4096            // bytes of a question; those with every option have some hundred
	maxConnections = 64              // by TCP, of all but peers
	idle           = 5 * time.Second // without a question a connection ends, and an answer has so long to leave
	maxQuestions   = 1024            // on a connection: those of a peer with every record, twice
)

// listen answers at an address until ctx ends. What keeps it from listening is tried again every second.
func (s *Server) listen(ctx context.Context, at netip.AddrPort) {
	if !at.IsValid() {
		return
	}
	for ctx.Err() == nil {
		err := s.serve(ctx, at)
		if ctx.Err() != nil {
			return
		}
		s.say(troubleListen, err)
		select {
		case <-ctx.Done():
		case <-time.After(retry):
		}
	}
}

// serve answers until ctx ends or the address is lost.
func (s *Server) serve(ctx context.Context, at netip.AddrPort) error {
	udp, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
	if err != nil {
		return err
	}
	defer udp.Close()
	tcp, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at))
	if err != nil {
		return err
	}
	defer tcp.Close()
	s.say(troubleListen, nil)
	ctx, cancel := context.WithCancelCause(ctx)
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel(nil)
	for range readers {
		group.Go(func() { cancel(s.datagrams(udp)) })
	}
	group.Go(func() { cancel(s.accept(ctx, tcp)) })
	<-ctx.Done()
	udp.Close()
	tcp.Close()
	return context.Cause(ctx)
}

// datagrams answers what comes by UDP until the socket is closed.
func (s *Server) datagrams(conn *net.UDPConn) error {
	in, out := make([]byte, maxQuestion), make([]byte, maxUDP)
	for {
		n, from, err := conn.ReadFromUDPAddrPort(in)
		if errors.Is(err, net.ErrClosed) {
			return err
		}
		if err != nil { // an ICMP error of an earlier answer
			s.counts.unsent.Add(1)
			continue
		}
		s.counts.udp.Add(1)
		answer := s.datagram(in[:n], from, out)
		if answer == nil {
			continue
		}
		if _, err := conn.WriteToUDPAddrPort(answer, from); err != nil {
			s.counts.unsent.Add(1)
		}
	}
}

// datagram is the answer to a datagram, in out where it fits; nil: none.
func (s *Server) datagram(in []byte, from netip.AddrPort, out []byte) []byte {
	if from.Port() == 0 || len(in) < headerBytes {
		s.counts.ignored.Add(1)
		return nil
	}
	what := s.limit.allow(from.Addr(), s.now().Sub(s.start))
	if what == drop {
		return nil
	}
	q, r := s.question(in)
	if q != nil {
		r = Reply(s.zone.Load(), q, true)
	}
	if r == nil {
		s.counts.ignored.Add(1)
		return nil
	}
	if what == slip {
		r.Answer, r.Ns, r.Truncated, r.Rcode = nil, nil, true, dns.RcodeSuccess
		r.Extra = nil
	}
	return s.pack(r, out)
}

// headerBytes is the length of a message's header (RFC 1035, 4.1.1).
const headerBytes = 12

// question reads a message. One that cannot be read has no q but an answer that says so; one that is an answer has neither.
func (s *Server) question(in []byte) (q, r *dns.Msg) {
	q = new(dns.Msg)
	if err := q.Unpack(in); err == nil {
		return q, nil
	}
	if len(in) < headerBytes || in[2]&0x80 != 0 {
		return nil, nil
	}
	r = new(dns.Msg)
	r.Id, r.Response, r.Rcode = binary.BigEndian.Uint16(in), true, dns.RcodeFormatError
	r.Opcode = int(in[2]) >> 3 & 15
	return nil, r
}

// pack writes an answer out, and counts it.
func (s *Server) pack(r *dns.Msg, out []byte) []byte {
	b, err := r.PackBuffer(out)
	if err != nil { // of a question that cannot be repeated
		s.counts.ignored.Add(1)
		return nil
	}
	if r.Truncated {
		s.counts.truncated.Add(1)
	}
	switch r.Rcode {
	case dns.RcodeSuccess:
		s.counts.answered.Add(1)
	case dns.RcodeServerFailure:
		s.counts.failed.Add(1)
	case dns.RcodeNameError:
		s.counts.nameError.Add(1)
	case dns.RcodeRefused:
		s.counts.refused.Add(1)
	default:
		s.counts.bad.Add(1)
	}
	return b
}

// accept takes connections until the socket is closed. Peers have places of their own, so that a crowd does not make them
// believe that this director is gone.
func (s *Server) accept(ctx context.Context, l *net.TCPListener) error {
	var group sync.WaitGroup
	defer group.Wait()
	places := make(chan struct{}, maxConnections)
	peers := make(chan struct{}, 2*config.MaxDNSPeers)
	for {
		c, err := l.AcceptTCP()
		if errors.Is(err, net.ErrClosed) {
			return err
		}
		if err != nil { // out of descriptors, or the client is gone already
			s.counts.crowded.Add(1)
			select {
			case <-ctx.Done():
			case <-time.After(retry / 20):
			}
			continue
		}
		from := c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
		place := places
		if s.isPeer(from) {
			place = peers
		}
		select {
		case place <- struct{}{}:
		default:
			s.counts.crowded.Add(1)
			c.Close()
			continue
		}
		group.Go(func() {
			defer func() { <-place }()
			stop := context.AfterFunc(ctx, func() { c.Close() })
			defer stop()
			defer c.Close()
			s.connection(c, from)
		})
	}
}

// connection answers what comes on a connection, one question after the other.
func (s *Server) connection(c net.Conn, from netip.Addr) {
	in := make([]byte, maxQuestion)
	for range maxQuestions {
		c.SetDeadline(time.Now().Add(idle))
		var length [2]byte
		if _, err := io.ReadFull(c, length[:]); err != nil {
			return // the client has no more, or is too slow
		}
		n := binary.BigEndian.Uint16(length[:])
		if int(n) > len(in) || n < headerBytes {
			s.counts.cut.Add(1)
			return
		}
		if _, err := io.ReadFull(c, in[:n]); err != nil {
			s.counts.cut.Add(1)
			return
		}
		s.counts.tcp.Add(1)
		for _, r := range s.stream(in[:n], from) {
			b := s.pack(r, nil)
			if b == nil {
				return
			}
			if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(b))), b...)); err != nil {
				s.counts.unsent.Add(1)
				return
			}
		}
	}
}

// stream are the answers to a question on a connection: several messages for a transfer.
func (s *Server) stream(in []byte, from netip.Addr) []*dns.Msg {
	q, r := s.question(in)
	z := s.zone.Load()
	if q != nil {
		if s.transferable(z, q, from) {
			s.counts.transfers.Add(1)
			return z.transfer(q)
		}
		r = Reply(z, q, false)
	}
	if r == nil {
		s.counts.ignored.Add(1)
		return nil
	}
	return []*dns.Msg{r}
}

// transferable says whether a question is for the whole zone, by someone who may have it. What is asked as a difference
// is answered in full too (RFC 1995, 2).
func (s *Server) transferable(z *Zone, q *dns.Msg, from netip.Addr) bool {
	if z == nil || q.Response || q.Opcode != dns.OpcodeQuery || len(q.Question) != 1 {
		return false
	}
	w := &q.Question[0]
	kind := w.Qtype == dns.TypeAXFR || w.Qtype == dns.TypeIXFR
	return kind && w.Qclass == dns.ClassINET && dns.CanonicalName(w.Name) == dns.CanonicalName(z.origin) && s.permitted(from)
}
