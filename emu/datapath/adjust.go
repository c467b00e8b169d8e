package datapath

import (
	"encoding/binary"

	"splicenic/emu/frame"
	"splicenic/regs"
)

// An application module of the host makes a line of a stream longer or shorter. From there on the stream's numbers are
// others at its receiver than at its sender. The page keeps one such place per direction, as the sequence adjustment of
// netfilter does: leg set B, which passed connections have no other use for, holds by how much the stream is shifted before
// it and from it on. A second one may take its place when all that the receiver could still lack lies behind the first.
//
// The sender's numbers are those of the stream as it comes in. The marks of the page are the client's numbers: of its own
// stream what it sends, of the server's what it is sent.

// pivot is where a stream's shift changes. The zero value shifts nothing.
type pivot struct{ at, before, after uint32 }

// forth gives the receiver's number for a sender's.
func (v pivot) forth(n uint32) uint32 {
	if int32(n-v.at) >= 0 {
		return n + v.after
	}
	return n + v.before
}

// back gives the sender's number for a receiver's. A receiver that lacks a part of what was altered lacks its last byte:
// the sender sends all of it again, or the host does in its place.
func (v pivot) back(n uint32) uint32 {
	if int32(n-v.after-v.at) >= 0 {
		return n - v.after
	}
	if n -= v.before; int32(n-v.at) >= 0 {
		return v.at - 1
	}
	return n
}

// backFrom is back for the begin of a block of bytes that the receiver has: of what was altered, it has nothing.
func (v pivot) backFrom(n uint32) uint32 {
	if int32(n-v.after-v.at) < 0 && int32(n-v.before-v.at) >= 0 {
		return v.at
	}
	return v.back(n)
}

// pivotOf reads the pivot of the stream that a side sends.
func pivotOf(w *page, side Side) pivot {
	if side == ClientSide {
		return pivot{ld(w, regs.PageBoundaryClient), ld(w, regs.PageBDeltaClient), ld(w, regs.PageBSeqClient)}
	}
	return pivot{ld(w, regs.PageBoundaryServer), ld(w, regs.PageBDeltaServer), ld(w, regs.PageBSeqServer)}
}

func setPivot(w *page, side Side, v pivot) {
	if side == ClientSide {
		w[regs.PageBoundaryClient], w[regs.PageBDeltaClient], w[regs.PageBSeqClient] = v.at, v.before, v.after
		return
	}
	w[regs.PageBoundaryServer], w[regs.PageBDeltaServer], w[regs.PageBSeqServer] = v.at, v.before, v.after
}

// edges is how the edges of SACK blocks are translated where the acknowledged stream has a pivot: pre is added before it is
// asked, post behind.
type edges struct {
	pivot
	pre, post uint32
	on        bool
}

// stretch adds what the host made the streams longer by to a rewrite, whose other parts stand. Segments with SYN speak of
// no stream that was altered.
func (c *Core) stretch(p *packet, w *page, x *rewrite) {
	if p.flags&flagSYN != 0 {
		return
	}
	own, other := pivotOf(w, p.side), pivotOf(w, 1-p.side)
	seq, ack := x.addSeq, x.addAck
	if p.side == ClientSide {
		x.addSeq += own.forth(p.seq) - p.seq
		x.addAck += other.back(p.ack) - p.ack
		x.edges = edges{pivot: other, post: ack, on: true}
	} else {
		x.addSeq = own.forth(p.seq+seq) - p.seq
		x.addAck = other.back(p.ack+ack) - p.ack
		x.edges = edges{pivot: other, pre: ack, on: true}
	}
	x.difference += uint64(frame.Difference(frame.Word(seq)+frame.Word(ack), frame.Word(x.addSeq)+frame.Word(x.addAck)))
}

// stretchBlock translates both edges of a SACK block. One whose receiver has nothing of it, as its sender counts, is
// empty; senders pass such over.
func (x *edges) stretchBlock(t []byte, at int) (d, carries uint64) {
	from, to := binary.BigEndian.Uint32(t[at:]), binary.BigEndian.Uint32(t[at+4:])
	newFrom, newTo := x.backFrom(from+x.pre)+x.post, x.back(to+x.pre)+x.post
	if int32(newFrom-newTo) > 0 {
		newFrom = newTo
	}
	d, carries = shift32(t, at, newFrom-from)
	e, more := shift32(t, at+4, newTo-to)
	return d + e, carries + more
}

// stretchedEnd is the client's number behind a segment of its that has bytes, or a FIN, of n numbers at its receiver.
func stretchedEnd(p *packet, w *page, n uint32) uint32 {
	if p.flags&flagSYN != 0 {
		return p.seq + n
	}
	v := pivotOf(w, ClientSide)
	return v.back(v.forth(p.seq) + n)
}

// serverSees is the number in a server's view, but for the delta, of one of the client's stream.
func serverSees(w *page, n uint32) uint32 {
	if !isPassed(w) || !modular(w[regs.PageControl]) {
		return n
	}
	return pivotOf(w, ClientSide).forth(n)
}

// maxAdjust bounds how much one adjustment makes a stream longer or shorter.
const maxAdjust = 1 << 16

// commandAdjust makes a stream longer for the host from a number on.
func (c *Core) commandAdjust(e *regs.CommandEntry, w *page, state State) uint32 {
	if !isPassed(w) || !modular(w[regs.PageControl]) || datagrams(w) || c.oneSided(w) || state != Spliced && state != Closing {
		return statusState
	}
	side := Side(e.FlagsServerStream & 1)
	v, has := pivotOf(w, side), received(w, side)
	if v.before != v.after && int32(has-v.at) < 0 {
		return statusState // the receiver may still ask for what lies before it
	}
	if int32(e.Boundary-has) <= 0 || e.Value+maxAdjust > 2*maxAdjust {
		return statusArgument
	}
	setPivot(w, side, pivot{at: e.Boundary, before: v.after, after: v.after + e.Value})
	c.count(regs.PassShifted)
	return statusOK
}

// received is the sender's number up to which its receiver has acknowledged a stream.
func received(w *page, side Side) uint32 {
	if side == ClientSide {
		return w[regs.PageAAckServer]
	}
	return pivotOf(w, side).back(w[regs.PageAAckClient])
}

// settleAfter is how many bytes behind a pivot it is forgotten: numbers come round again.
const settleAfter = 1 << 29

// settle forgets pivots that lie far behind.
func settle(w *page) {
	for side := range Side(sides) {
		v := pivotOf(w, side)
		if has := received(w, side); v.before != v.after && int32(has-v.at) > settleAfter {
			setPivot(w, side, pivot{at: has, before: v.after, after: v.after})
		}
	}
}

// unstretch takes a connection that begins anew back to streams as their ends send them.
func unstretch(w *page) {
	setPivot(w, ClientSide, pivot{})
	setPivot(w, ServerSide, pivot{})
}
