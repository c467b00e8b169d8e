package datapath

import "splicenic/regs"

// A cookie is the sequence number of a SYN-ACK that nobody remembers:
//
//	31                               5   4   3      0
//	| keyed hash                      | epoch | MSS |
//
// The hash is of the four-tuple with the VIP's index, the client's initial sequence number, the MSS index, and all that
// the SYN-ACK promised; its key is the secret of the epoch, whose lowest bit tells which of the two valid ones. The low
// bits are masked with the hash, so that the whole looks as random as it.
//
// With timestamps the lowest bits of TSval keep the rest of the SYN: the client sends them back as TSecr.
//
//	5     4      3       0
//	| ECN | SACK | wscale |
//
// Nobody can change them: what they lead to is in the hash.

// cookieLow is how many low bits of a cookie are not hash.
const cookieLow = 5

// The MSS values a cookie can tell, by family. What a client announces is rounded down to one of them.
var (
	mssIPv4 = [16]uint32{88, 256, 536, 1024, 1220, 1300, 1360, 1380, 1400, 1412, 1420, 1440, 1452, 1460, 4312, 8960}
	mssIPv6 = [16]uint32{88, 256, 536, 1024, 1220, 1280, 1320, 1340, 1360, 1380, 1392, 1400, 1420, 1440, 4292, 8940}
)

func mssTable(kind uint8) *[16]uint32 {
	if kind == kindIPv6 {
		return &mssIPv6
	}
	return &mssIPv4
}

// mssIndex is the largest MSS of the table that a client can take. Less than the least nobody can use.
func mssIndex(kind uint8, mss uint32) uint32 {
	t := mssTable(kind)
	i := uint32(len(t) - 1)
	for i > 0 && t[i] > mss {
		i--
	}
	return i
}

// Bits of TSval.
const (
	clockWscale = 15 // this value: no window scale
	clockSACK   = 1 << 4
	clockECN    = 1 << 5
	clockMask   = 1<<6 - 1
)

// keepInClock puts what a cookie keeps into a TSval. The result is not ahead of the clock, so that no later segment goes
// back behind it.
func keepInClock(clock, link uint32) uint32 {
	bits := uint32(clockWscale)
	if link&regs.PageClientLinkWscaleMask != 0 {
		bits = regs.PageClientLinkClientWscale(link)
	}
	if link&regs.PageClientLinkSackMask != 0 {
		bits |= clockSACK
	}
	if link&regs.PageClientLinkEcnMask != 0 {
		bits |= clockECN
	}
	val := clock&^clockMask | bits
	if int32(val-clock) > 0 {
		val -= clockMask + 1
	}
	return val
}

// draftCookie fills a page with what a cookie keeps of a SYN and returns the cookie.
func (c *Core) draftCookie(p *packet, w *page) uint32 {
	o := p.options()
	if !o.hasMSS || o.mss == 0 {
		o.mss = defaultMSS(p.kind)
	}
	index := mssIndex(p.kind, o.mss)
	o.mss, o.hasMSS = mssTable(p.kind)[index], true
	if !o.timestamps {
		o = options{mss: o.mss, hasMSS: true}
	}
	c.fillDraft(p, w, p.seq, &o)
	if o.timestamps && w[regs.PageClientLink]&regs.PageClientLinkTimestampsMask == 0 { // offered, but not promised
		o = options{mss: o.mss, hasMSS: true}
		c.fillDraft(p, w, p.seq, &o)
	}
	return cookieOf(w, index, c.r.Get(regs.DefenceEpoch), &c.secrets[0])
}

// fillDraft fills a page as for a SYN with the given number and options.
func (c *Core) fillDraft(p *packet, w *page, isn uint32, o *options) {
	seq := p.seq
	p.seq, p.syn, p.kept = isn, *o, true
	*w = page{}
	c.fillPage(p, w, 0, uint32(p.service))
	p.seq, p.kept = seq, false
}

// verify says whether a segment brings a valid cookie back, and fills a page with what that kept.
func (c *Core) verify(p *packet, w *page) bool {
	cookie, o := p.ack-1, p.options()
	low := unmask(cookie)
	index, epoch := low&15, low>>4
	secret := &c.secrets[0]
	if epoch != c.r.Get(regs.DefenceEpoch)&1 {
		secret = &c.secrets[1]
	}
	kept := options{mss: mssTable(p.kind)[index], hasMSS: true}
	if o.timestamps {
		kept.timestamps, kept.tsval = true, o.tsval
		kept.wscale, kept.hasWscale = o.tsecr&15, o.tsecr&15 != clockWscale
		if !kept.hasWscale {
			kept.wscale = 0
		}
		kept.sack = o.tsecr&clockSACK != 0
		kept.ecn = o.tsecr&clockECN != 0
	}
	if kept.wscale > maxWscale {
		return false
	}
	c.fillDraft(p, w, p.seq-1, &kept)
	if o.timestamps != (w[regs.PageClientLink]&regs.PageClientLinkTimestampsMask != 0) {
		return false
	}
	if o.timestamps {
		if age := w[regs.PageTimestampBase] - o.tsecr; age > 2*c.ticks(regs.DefencePeriod)+clockMask {
			return false // an echo of what we never sent
		}
		w[regs.PageTimestampBase] = o.tsecr
	}
	return cookie == cookieOf(w, index, epoch, secret)
}

// cookieOf is the cookie of a page whose SYN is what a cookie keeps.
func cookieOf(w *page, index, epoch uint32, secret *[2]uint64) uint32 {
	const promised = regs.PageClientLinkVlanMask | regs.PageClientLinkTaggedMask | regs.PageClientLinkSackMask | regs.PageClientLinkTimestampsMask |
		regs.PageClientLinkWscaleMask | regs.PageClientLinkEcnMask | regs.PageClientLinkClientWscaleMask
	link := w[regs.PageClientLink]&promised | regs.PageControlKind(w[regs.PageControl])&1<<13 | index<<16 |
		regs.PageOptionsPromisedWscale(w[regs.PageOptions])<<28
	a := w[regs.PageClientAddress:]
	h := sipHash(secret[0], secret[1], &[4]uint64{
		uint64(a[0]) | uint64(a[1])<<32, uint64(a[2]) | uint64(a[3])<<32,
		uint64(w[regs.PagePorts]) | uint64(w[regs.PageClientIsn])<<32,
		uint64(link) | uint64(regs.PageIndexVip(w[regs.PageIndex]))<<32 | uint64(regs.PageClientMacHiMss(w[regs.PageClientMacHi]))<<48,
	})
	tag := uint32(h) << cookieLow
	return tag | (epoch&1<<4 | index) ^ mask(tag)
}

// unmask returns the low bits of a cookie.
func unmask(cookie uint32) uint32 {
	const low = 1<<cookieLow - 1
	return cookie&low ^ mask(cookie&^low)
}

// mask spreads the hash over the low bits: without it they would tell apart what this card sends.
func mask(tag uint32) uint32 { return tag * 0x9e3779b1 >> (32 - cookieLow) }

// What the defence's key is used for, the last word of what is hashed with it.
const (
	secretUse = 1
	bucketUse = 2
)

func (c *Core) defenceKey() (k0, k1 uint64) {
	return c.r.Get64(regs.DefenceKey), c.r.Get64(regs.DefenceKey + 8)
}

// RekeyDefence computes the two valid secrets anew, after the host stored the key or an epoch began. They follow from the
// key and the epoch's number.
func (c *Core) RekeyDefence() {
	k0, k1 := c.defenceKey()
	epoch := c.r.Get(regs.DefenceEpoch)
	for i := range c.secrets {
		for half := range c.secrets[i] {
			c.secrets[i][half] = sipHash(k0, k1, &[4]uint64{uint64(epoch - uint32(i)), uint64(half), 0, secretUse})
		}
	}
}
