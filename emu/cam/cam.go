package cam

import (
	"math/bits"

	"splicenic/emu/regfile"
	"splicenic/regs"
)

// A Key is what is looked up. Control holds kind, protocol and VLAN where a CAM word has them, and the valid bit.
type Key struct {
	Control uint32
	Ports   uint32
	Index   uint32
	Addr    [4]uint32 // lowest 32 bits first; one word of IPv4 address or local-address index, the rest zero
}

// wide says whether the key takes two words.
func (k *Key) wide() bool { return isWide(k.Control) }

const (
	wordLen   = 8 // 32-bit words per CAM word
	slots     = 4 // CAM words per bucket
	bucketLen = wordLen * slots

	keyMask   = regs.CamWordControlValidMask | regs.CamWordControlKindMask | regs.CamWordControlProtocolMask | regs.CamWordControlVlanMask
	matchMask = keyMask | regs.CamWordControlSecondMask
	kindIPv6  = regs.CamWordControlKindIpv6 << regs.CamWordControlKindShift
	second    = regs.CamWordControlSecondMask
	valid     = regs.CamWordControlValidMask
)

func isWide(control uint32) bool { return control&regs.CamWordControlKindMask == kindIPv6 }

// CAM is one side's exact match. New makes it.
type CAM struct {
	words    []uint32
	buckets  uint32
	key      [2]uint64 // the hash key's registers, as Rekey found them
	maxMoves int
	version  uint32
	reg      *regfile.File
	base     regs.Reg // where this instance's registers are from instance 0's
}

// New makes the CAM of a side over its words, a multiple of four CAM words.
func New(words []uint32, r *regfile.File, instance int) *CAM {
	c := &CAM{words: words, buckets: uint32(len(words) / bucketLen), reg: r, base: regs.Reg(instance) * regs.CamStride}
	c.Rebuild()
	return c
}

// Rebuild takes the hash key from its registers and counts the words again: after a reset, a restore, or a host's stores
// into the window.
func (c *CAM) Rebuild() {
	c.Rekey()
	c.maxMoves = int(c.reg.Get(regs.GeometryMaxCamMoves))
	free, entries := Count(c.words)
	c.reg.Set(regs.CamFree+c.base, free)
	c.reg.Set(regs.CamEntries+c.base, entries)
	c.version++
}

// Rekey takes the hash key from its registers, after a host stored there.
func (c *CAM) Rekey() {
	at := regs.CamHashKey + c.base
	c.key[0], c.key[1] = c.reg.Get64(at), c.reg.Get64(at+8)
}

// Count counts free CAM words and keys in a run of whole CAM words.
func Count(words []uint32) (free, entries uint32) {
	for i := 0; i+wordLen <= len(words); i += wordLen {
		switch words[i] & (valid | second) {
		case valid:
			entries++
		case valid | second:
		default:
			free++
		}
	}
	return free, entries
}

// Adjust adds to the counts: host software stored into the window, and Count found other numbers than before.
func (c *CAM) Adjust(free, entries uint32) {
	f, e := regs.CamFree+c.base, regs.CamEntries+c.base
	c.reg.Set(f, c.reg.Get(f)+free)
	c.reg.Set(e, c.reg.Get(e)+entries)
	c.version++
}

// Version changes whenever an entry is inserted, erased or moved: a result found under one version holds as long as the
// version does. It is not state and starts anywhere.
func (c *CAM) Version() uint32 { return c.version }

// Hash folds a key, once for each 128 bits of it, with the hash key. Both buckets derive from the result.
func (c *CAM) Hash(k *Key) uint64 {
	h := fold(uint64(k.Ports)|uint64(k.Index)<<32^c.key[0], uint64(k.Addr[0])|uint64(k.Control&keyMask)<<32^c.key[1])
	if k.wide() {
		h ^= fold(uint64(k.Addr[1])|uint64(k.Addr[2])<<32^bits.RotateLeft64(c.key[1], 17), uint64(k.Addr[3])^h^c.key[0])
	}
	return fold(h^multiplier, multiplier^c.key[0])
}

// multiplier has half its bits set, evenly spread: the fraction of the golden ratio.
const multiplier = 0x9e3779b97f4a7c15

// fold multiplies to 128 bits and folds the halves together.
func fold(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}

// first is the bucket tried first. Taking the high half of a product spares a division and allows any number of buckets.
func (c *CAM) first(h uint64) uint32 { return uint32((h >> 32) * uint64(c.buckets) >> 32) }

// other is the second bucket, never the first where there are two.
func (c *CAM) other(h uint64) uint32 {
	b := uint32((h & (1<<32 - 1)) * uint64(c.buckets) >> 32)
	if b == c.first(h) {
		b++
		if b == c.buckets {
			b = 0
		}
	}
	return b
}

// bucket returns a bucket's words. An array's bound is known, so the comparisons below need no checks.
func (c *CAM) bucket(b uint32) *[bucketLen]uint32 {
	return (*[bucketLen]uint32)(c.words[uint64(b)*bucketLen:])
}

// Touch loads from both cache lines of the first bucket, so that the misses of a batch's keys overlap. The result means
// nothing; returning it keeps the loads.
func (c *CAM) Touch(h uint64) uint32 {
	w := c.bucket(c.first(h))
	return w[0] | w[2*wordLen]
}

// TouchOther is Touch for the second bucket, of a key that is likely in neither.
func (c *CAM) TouchOther(h uint64) uint32 {
	w := c.bucket(c.other(h))
	return w[0] | w[2*wordLen]
}

// Lookup finds a key by its hash.
func (c *CAM) Lookup(k *Key, h uint64) (handle uint32, legB, ok bool) {
	w := c.bucket(c.first(h))
	i := match(w, k)
	if i < 0 {
		w = c.bucket(c.other(h))
		if i = match(w, k); i < 0 {
			return 0, false, false
		}
	}
	return w[(i+1)%bucketLen], w[i%bucketLen]&regs.CamWordControlLegBMask != 0, true
}

// match returns where in a bucket the key's word starts, or -1. It compares all words and selects, because which slot
// holds the key is a branch no predictor gets right.
func match(w *[bucketLen]uint32, k *Key) int {
	if k.wide() {
		return matchWide(w, k)
	}
	control, ports, index, addr := k.Control&keyMask, k.Ports, k.Index, k.Addr[0]
	at := -1
	if (w[24]&matchMask^control)|(w[26]^ports)|(w[27]^index)|(w[28]^addr) == 0 {
		at = 24
	}
	if (w[16]&matchMask^control)|(w[18]^ports)|(w[19]^index)|(w[20]^addr) == 0 {
		at = 16
	}
	if (w[8]&matchMask^control)|(w[10]^ports)|(w[11]^index)|(w[12]^addr) == 0 {
		at = 8
	}
	if (w[0]&matchMask^control)|(w[2]^ports)|(w[3]^index)|(w[4]^addr) == 0 {
		at = 0
	}
	return at
}

// matchWide is match for a key of two words.
func matchWide(w *[bucketLen]uint32, k *Key) int {
	control, ports, index := k.Control&keyMask, k.Ports, k.Index
	at := -1
	if (w[16]&matchMask^control)|(w[18]^ports)|(w[19]^index)|(w[20]^k.Addr[0])|
		(w[28]^k.Addr[1])|(w[29]^k.Addr[2])|(w[30]^k.Addr[3])|(w[24]&(valid|second)^(valid|second)) == 0 {
		at = 16
	}
	if (w[0]&matchMask^control)|(w[2]^ports)|(w[3]^index)|(w[4]^k.Addr[0])|
		(w[12]^k.Addr[1])|(w[13]^k.Addr[2])|(w[14]^k.Addr[3])|(w[8]&(valid|second)^(valid|second)) == 0 {
		at = 0
	}
	return at
}
