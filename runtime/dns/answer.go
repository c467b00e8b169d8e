package dns

import (
	"strings"
	"sync/atomic"

	"github.com/miekg/dns"
)

// maxUDP is the largest answer by UDP, in bytes, which no path cuts into fragments (RFC 9715).
const maxUDP = 1232

// A set is the records of one type that a name has.
type set struct {
	kind    uint16
	records []dns.RR
	out     bool // promised, but nobody serves any
	turn    atomic.Uint32
}

// next returns the records under a name that is written as the question wrote it, each time another one first.
func (s *set) next(name string) []dns.RR {
	list := make([]dns.RR, 0, len(s.records))
	from := int((s.turn.Add(1) - 1) % uint32(len(s.records)))
	for i := range s.records {
		r := dns.Copy(s.records[(from+i)%len(s.records)])
		r.Header().Name = name
		list = append(list, r)
	}
	return list
}

// Reply answers a question from a zone; nil is one that is not known yet. udp bounds the size. An answer to a question gets
// none: it is nil. A transfer is refused here; who may have one is the caller's to know.
func Reply(z *Zone, q *dns.Msg, udp bool) *dns.Msg {
	if q.Response {
		return nil // answering answers can go on for ever
	}
	r := new(dns.Msg)
	if len(q.Question) != 1 || options(q) > 1 { // RFC 9619; RFC 6891, 6.1.1
		r.SetRcodeFormatError(q)
		r.Question = nil
		return r
	}
	r.SetReply(q)
	r.Compress, r.CheckingDisabled = true, false
	size := dns.MinMsgSize
	opt := q.IsEdns0()
	if opt != nil {
		size = min(max(int(opt.UDPSize()), dns.MinMsgSize), maxUDP)
		r.SetEdns0(maxUDP, false)
	}
	switch {
	case q.Opcode != dns.OpcodeQuery:
		r.Rcode = dns.RcodeNotImplemented
	case opt != nil && opt.Version() != 0:
		r.Rcode = dns.RcodeBadVers
	default:
		z.answer(r, &q.Question[0])
	}
	if !udp {
		size = dns.MaxMsgSize
	}
	r.Truncate(size)
	return r
}

// options counts the OPT records of a message.
func options(q *dns.Msg) (n int) {
	for _, rr := range q.Extra {
		if rr.Header().Rrtype == dns.TypeOPT {
			n++
		}
	}
	return n
}

// answer fills in what the zone says.
func (z *Zone) answer(r *dns.Msg, q *dns.Question) {
	switch {
	case z == nil:
		fail(r)
		return
	case q.Qclass != dns.ClassINET || !dns.IsSubDomain(z.origin, q.Name), q.Qtype == dns.TypeAXFR || q.Qtype == dns.TypeIXFR:
		r.Rcode = dns.RcodeRefused
		return
	}
	r.Authoritative = true
	n := z.names[strings.ToLower(q.Name)]
	if n == nil {
		r.Rcode = dns.RcodeNameError
		z.negative(r)
		return
	}
	if q.Qtype == dns.TypeANY {
		r.Answer = []dns.RR{&dns.HINFO{Hdr: dns.RR_Header{Name: q.Name, Rrtype: dns.TypeHINFO, Class: dns.ClassINET, Ttl: z.ttl}, Cpu: "RFC8482"}}
		return
	}
	if q.Qtype == dns.TypeSOA && n == z.names[strings.ToLower(z.origin)] {
		soa := z.soa
		soa.Hdr.Name = q.Name
		r.Answer = []dns.RR{&soa}
		return
	}
	s := n.find(q.Qtype)
	switch {
	case s == nil:
		z.negative(r)
	case s.out:
		r.Authoritative = false
		fail(r)
	default:
		r.Answer = s.next(q.Name)
		z.additional(r)
	}
}

// fail says that the answer is not to be had here; package documentation says why in this way.
func fail(r *dns.Msg) {
	r.Rcode = dns.RcodeServerFailure
	if opt := r.IsEdns0(); opt != nil {
		opt.Option = append(opt.Option, &dns.EDNS0_EDE{InfoCode: dns.ExtendedErrorCodeNotReady})
	}
}

// negative adds the SOA, which says how long there is no such thing (RFC 2308, 3).
func (z *Zone) negative(r *dns.Msg) {
	soa := z.soa
	r.Ns = []dns.RR{&soa}
}

// additional adds the addresses of the name servers in an answer.
func (z *Zone) additional(r *dns.Msg) {
	for _, rr := range r.Answer {
		ns, ok := rr.(*dns.NS)
		if !ok {
			continue
		}
		if n := z.names[strings.ToLower(ns.Ns)]; n != nil {
			var glue []dns.RR
			for _, s := range n.sets {
				glue = append(glue, s.records...)
			}
			r.Extra = append(glue, r.Extra...) // OPT stays last
		}
	}
}

// transferRecords is how many records of a transfer go into one message: with names of 255 bytes they fit in 64 KiB.
const transferRecords = 100

// transfer is the whole zone as the messages of a transfer (RFC 5936, 2.2).
func (z *Zone) transfer(q *dns.Msg) (messages []*dns.Msg) {
	soa := z.soa
	all := append([]dns.RR{&soa}, z.records()...)
	all = append(all, &soa)
	for len(all) > 0 {
		n := min(len(all), transferRecords)
		r := new(dns.Msg)
		r.SetReply(q)
		r.Authoritative, r.Compress = true, true
		r.Answer, all = all[:n], all[n:]
		messages = append(messages, r)
	}
	return messages
}
