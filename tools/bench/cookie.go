package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"splicenic/driver"
	"splicenic/emu"
	"splicenic/emu/frame"
	"splicenic/emu/port"
	"splicenic/regs"
)

// A flooder is the far end of the client wire: it sends SYNs of ever new sources, as Linux would make them, and counts what
// comes back.
type flooder struct {
	template [74]byte
	sum      uint64 // of the template's pseudo-header and TCP header, without what a SYN changes
	state    uint64
	left     int
	received uint64
	check    func(b []byte) // nil: count only
}

func newFlooder() *flooder {
	f := &flooder{state: 0x9e3779b97f4a7c15}
	b := f.template[:]
	copy(b[0:], cardMAC[0][:])
	copy(b[6:], clientMAC[:])
	copy(b[12:], []byte{0x08, 0x00, 0x45, 0, 0, 60, 0, 0, 0x40, 0, 64, 6})
	copy(b[30:], vip.Addr().AsSlice())
	binary.BigEndian.PutUint16(b[36:], vip.Port())
	b[46], b[47] = 10<<4, 0x02 // SYN
	binary.BigEndian.PutUint16(b[48:], 64240)
	copy(b[54:], []byte{2, 4, 0x05, 0xb4, 4, 2, 8, 10, 0, 0, 0, 0, 0, 0, 0, 0, 1, 3, 3, 7})
	f.sum = frame.Sum(b[34:], frame.Pseudo4(b[14:], 6, 40))
	return f
}

// Receive makes as many SYNs as the card has room for.
func (g *flooder) Receive(fs []frame.Frame) int {
	n := min(len(fs), g.left)
	for i := range fs[:n] {
		g.state ^= g.state >> 12
		g.state ^= g.state << 25
		g.state ^= g.state >> 27
		x := g.state * 0x2545f4914f6cdd1d
		address, seq := 198<<24|18<<16|uint32(x>>48), uint32(x)|1 // within the addresses that tests may use
		sport := uint32(x>>32) & 0xffff
		f := &fs[i]
		b := f.Buf[f.Start : f.Start+74 : f.Start+74]
		copy(b, g.template[:])
		binary.BigEndian.PutUint32(b[26:], address)
		binary.BigEndian.PutUint16(b[34:], uint16(sport))
		binary.BigEndian.PutUint32(b[38:], seq)
		binary.BigEndian.PutUint32(b[62:], seq) // TSval
		binary.BigEndian.PutUint16(b[50:], ^frame.Fold(g.sum+uint64(address)+uint64(sport)+2*uint64(seq)))
		binary.BigEndian.PutUint16(b[24:], ^frame.Fold(frame.Sum(b[14:34], 0)))
		f.End, f.Offload = f.Start+74, frame.Offload{}
	}
	g.left -= n
	return n
}

// Transmit counts.
func (g *flooder) Transmit(fs []*frame.Frame) int {
	if g.check != nil {
		for _, f := range fs {
			g.check(f.Bytes())
		}
	}
	g.received += uint64(len(fs))
	return len(fs)
}

func (g *flooder) MAC() [6]byte            { return cardMAC[0] }
func (g *flooder) MTU() int                { return 1500 }
func (g *flooder) Link() port.LinkState    { return port.LinkState{Up: true, Mbps: 1000} }
func (g *flooder) BufferBytes() int        { return frame.Headroom + 18 + 1500 }
func (g *flooder) Offloads() port.Offloads { return port.Offloads{} }
func (g *flooder) FD() int                 { return -1 }
func (g *flooder) Overruns() uint64        { return 0 }
func (g *flooder) Close() error            { return nil }

// judgeCookie looks at an answer: a SYN-ACK of what the SYN offered, to where it came from, with an echo of its number.
func judgeCookie(b []byte) error {
	switch {
	case len(b) != 74 || frame.Fold(frame.Sum(b[14:34], 0)) != 0xffff || frame.Fold(frame.Sum(b[34:], frame.Pseudo4(b[14:], 6, 40))) != 0xffff:
		return errors.New("wrong length or checksum")
	case b[47] != 0x12 || [6]byte(b) != clientMAC || b[30] != 198 || b[31] != 18 || binary.BigEndian.Uint16(b[34:]) != vip.Port():
		return errors.New("no SYN-ACK to the client")
	case binary.BigEndian.Uint32(b[42:]) != binary.BigEndian.Uint32(b[66:])+1: // the flooder's TSval is its sequence number
		return errors.New("acknowledges another SYN")
	case binary.BigEndian.Uint16(b[54:]) != 0x0204 || b[58] != 4 || b[60] != 8 || b[71] != 3:
		return errors.New("other options")
	}
	return nil
}

// A cookies rig is a card that answers SYNs with cookies only.
type cookies struct {
	rig     *rig
	flooder *flooder
}

func newCookies() (*cookies, error) {
	r, err := newRig(emu.Geometry{})
	if err != nil {
		return nil, err
	}
	c := &cookies{rig: r, flooder: newFlooder()}
	m := &regs.Memories[regs.MemService]
	words := make([]uint32, m.EntryBytes/4)
	service := regs.ServiceEntry{
		ControlValid: 1, ControlHasDefault: 1, ControlDefence: regs.ServiceControlDefenceAlways,
		PromiseMssIpv4: 1460, PromiseMssIpv6: 1440, PromiseWscale: 2, PromiseWscaleOn: 1, PromiseSack: 1, PromiseTimestamps: 1,
	}
	service.Encode(words)
	err = errors.Join(r.drv.WriteTable(context.Background(), m.At(1, 0), words), r.drv.SetDefence(driver.Defence{}))
	if err != nil {
		r.close()
		return nil, fmt.Errorf("set defence: %w", err)
	}
	r.wires[0].Port = c.flooder
	return c, nil
}

// pass sends n SYNs and sees as many answers.
func (c *cookies) pass(n int) error {
	f := c.flooder
	f.left, f.received = n, 0
	for f.left > 0 {
		c.rig.step()
	}
	c.rig.step()
	if f.received != uint64(n) {
		return fmt.Errorf("%d SYNs went in, %d answers came out", n, f.received)
	}
	return nil
}

// verify sends some SYNs and looks at each answer.
func (c *cookies) verify() error {
	var bad []error
	c.flooder.check = func(b []byte) {
		if err := judgeCookie(b); err != nil && len(bad) < 3 {
			bad = append(bad, fmt.Errorf("answer: %w\n% x", err, b))
		}
	}
	err := c.pass(20_000)
	c.flooder.check = nil
	return errors.Join(append(bad, err)...)
}

// cookies times answers to SYNs, and random reads between the rounds.
func (res *Result) cookies(ctx context.Context, cfg Config) error {
	c, err := newCookies()
	if err != nil {
		return err
	}
	defer c.rig.close()
	if err := c.verify(); err != nil {
		return err
	}
	var syns, reads []float64
	for i := range cfg.Rounds {
		if err := ctx.Err(); err != nil {
			return err
		}
		cfg.Progress(fmt.Sprintf("answering %d SYNs with cookies, round %d of %d", cfg.SYNs, i+1, cfg.Rounds))
		before, start := mallocs(), processTime()
		if err := c.pass(cfg.SYNs); err != nil {
			return err
		}
		syns = append(syns, float64((processTime()-start).Nanoseconds())/float64(cfg.SYNs))
		res.AllocsPerCookie = max(res.AllocsPerCookie, perRun(mallocs()-before, cfg.SYNs))
		read, err := randomRead(cfg.Loads)
		if err != nil {
			return err
		}
		reads = append(reads, read)
	}
	if live := c.rig.drv.Load(regs.AmuLive); live != 0 {
		return fmt.Errorf("SYNs hold %d pages", live)
	}
	res.NsPerCookie = median(syns)
	res.CookieMpps, res.CookiesPerRead = 1e3/res.NsPerCookie, res.NsPerCookie/median(reads)
	return nil
}
