package cam

import "splicenic/regs"

// Result says what became of an insert.
type Result uint8

// The results.
const (
	OK      Result = iota
	Exists         // the key is there already; nothing changed
	Refused        // no place within the bound; nothing changed
)

// visits bounds how many buckets an insert looks into while it searches for a way to make room.
const visits = 512

// Insert stores a key and its result. Where both buckets are full it moves entries to their other bucket, at most
// max_cam_moves of them; the search is a function of the words alone.
func (c *CAM) Insert(k *Key, h uint64, handle uint32, legB bool) Result {
	if _, _, ok := c.Lookup(k, h); ok {
		c.add(regs.CamKeyExists, 1)
		return Exists
	}
	place, moves := c.place(h, width(k.Control))
	if place == nowhere {
		c.add(regs.CamRefused, 1)
		return Refused
	}
	c.write(place, k, handle, legB)
	c.Adjust(-width(k.Control), 1)
	c.add(regs.CamInserts, 1)
	if moves != 0 {
		c.add(regs.CamMoves, uint64(moves))
	}
	return OK
}

// Erase removes a key and says whether it was there.
func (c *CAM) Erase(k *Key, h uint64) bool {
	b := c.first(h)
	i := match(c.bucket(b), k)
	if i < 0 {
		b = c.other(h)
		if i = match(c.bucket(b), k); i < 0 {
			return false
		}
	}
	n := width(k.Control)
	clear(c.bucket(b)[i:][:n*wordLen])
	c.Adjust(n, 1<<32-1)
	c.add(regs.CamErases, 1)
	return true
}

func (c *CAM) add(r regs.Reg, n uint64) { c.reg.Add64(r+c.base, n) }

// width is how many CAM words a key takes.
func width(control uint32) uint32 {
	if isWide(control) {
		return 2
	}
	return 1
}

// A place is a CAM word's number: bucket × slots + slot.
type place uint32

const nowhere place = 1<<32 - 1

// write lays a key and its result out.
func (c *CAM) write(p place, k *Key, handle uint32, legB bool) {
	w := c.words[uint64(p)*wordLen:]
	control := k.Control & keyMask
	w[1], w[2], w[3], w[4], w[5], w[6], w[7] = handle, k.Ports, k.Index, k.Addr[0], 0, 0, 0
	w[0] = regs.SetCamWordControlLegB(control, flag(legB))
	if k.wide() {
		w[9], w[10], w[11], w[12], w[13], w[14], w[15] = 0, 0, 0, k.Addr[1], k.Addr[2], k.Addr[3], 0
		w[8] = valid | second | control&regs.CamWordControlKindMask
	}
}

// read is the reverse of write, as far as the key goes.
func (c *CAM) read(p place, k *Key) {
	w := c.words[uint64(p)*wordLen:]
	*k = Key{Control: w[0] & keyMask, Ports: w[2], Index: w[3], Addr: [4]uint32{w[4]}}
	if k.wide() {
		k.Addr[1], k.Addr[2], k.Addr[3] = w[12], w[13], w[14]
	}
}

func flag(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}
