package tcppeer

import "encoding/binary"

// key names a connection from the host's side.
type key struct {
	local, remote         addr
	localPort, remotePort uint16
}

// six says whether the connection runs over IPv6.
func (k *key) six() bool {
	return binary.LittleEndian.Uint64(k.local[:]) != 0 || binary.LittleEndian.Uint32(k.local[8:]) != 0xffff0000
}

// hash multiplies each part by an odd number of its own, and mixes the sum.
func (k *key) hash(seed uint64) uint64 {
	le := binary.LittleEndian
	return mix(seed + le.Uint64(k.local[:])*0x9e3779b97f4a7c15 + le.Uint64(k.local[8:])*0xc2b2ae3d27d4eb4f +
		le.Uint64(k.remote[:])*0x165667b19e3779f9 + le.Uint64(k.remote[8:])*0xd6e8feb86659fd93 +
		(uint64(k.localPort)<<16|uint64(k.remotePort))*0xff51afd7ed558ccd)
}

// mix is the finaliser of splitmix64.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// table finds connections by key: chains in a slice whose size is a power of two.
type table struct {
	chains []*Conn
	seed   uint64
}

func (t *table) find(k *key) *Conn {
	if len(t.chains) == 0 {
		return nil
	}
	for c := t.chains[k.hash(t.seed)&uint64(len(t.chains)-1)]; c != nil; c = c.chain {
		if c.key == *k {
			return c
		}
	}
	return nil
}

// add puts c in; live is how many there are then, for the size of the table.
func (t *table) add(c *Conn, live []*Conn) {
	if len(live) > len(t.chains) {
		t.chains = make([]*Conn, max(64, 2*len(t.chains)))
		for _, c := range live {
			t.link(c)
		}
		return
	}
	t.link(c)
}

func (t *table) link(c *Conn) {
	i := c.key.hash(t.seed) & uint64(len(t.chains)-1)
	c.chain, t.chains[i] = t.chains[i], c
}

func (t *table) remove(c *Conn) {
	p := &t.chains[c.key.hash(t.seed)&uint64(len(t.chains)-1)]
	for *p != c {
		p = &(*p).chain
	}
	*p, c.chain = c.chain, nil
}
