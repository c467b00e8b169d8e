package tcppeer

import (
	"time"

	"splicenic/emu/frame"
	"splicenic/emu/port"
)

// A Port is a Host at the other end of a card's wire: what the card transmits the host receives at once, what the host
// sends waits until the card takes it. It belongs to the goroutine that steps the card.
type Port struct {
	Host *Host

	mac         [6]byte
	mtu         int
	now         time.Duration
	slots       [][]byte // a ring; its buffers are used again
	first, used int
	overruns    uint64
}

// NewPort makes a port with station address mac in front of a new host; the host's Send is the port's. queue is how many
// frames wait at most; more are lost and counted.
func NewPort(mac [6]byte, queue int, cfg Config) *Port {
	p := &Port{mac: mac, slots: make([][]byte, queue)}
	cfg.Send = p.put
	p.Host = New(cfg)
	p.mtu = int(p.Host.cfg.MTU)
	for i := range p.slots {
		p.slots[i] = make([]byte, 0, len(p.Host.buf))
	}
	return p
}

// Advance sets the time of what follows and runs the host's timers.
func (p *Port) Advance(now time.Duration) {
	p.now = now
	p.Host.Tick(now)
}

// Waiting returns how many frames wait for the card.
func (p *Port) Waiting() int { return p.used }

func (p *Port) put(b []byte) {
	if p.used == len(p.slots) {
		p.overruns++
		return
	}
	s := &p.slots[(p.first+p.used)%len(p.slots)]
	*s = append((*s)[:0], b...)
	p.used++
}

// Receive gives the card the frames that wait.
func (p *Port) Receive(fs []frame.Frame) int {
	n := min(len(fs), p.used)
	for i := range fs[:n] {
		s := p.slots[p.first]
		fs[i].End = fs[i].Start + uint32(copy(fs[i].Buf[fs[i].Start:], s))
		fs[i].Offload = frame.Offload{}
		p.first = (p.first + 1) % len(p.slots)
	}
	p.used -= n
	return n
}

// Transmit hands the card's frames to the host.
func (p *Port) Transmit(fs []*frame.Frame) int {
	for _, f := range fs {
		p.Host.Receive(p.now, f.Bytes())
	}
	return len(fs)
}

// MAC returns the station address of the card's end.
func (p *Port) MAC() [6]byte { return p.mac }

// MTU returns the host's.
func (p *Port) MTU() int { return p.mtu }

// Link is always up.
func (p *Port) Link() port.LinkState { return port.LinkState{Up: true, Mbps: 1000} }

// BufferBytes has room for a frame of the MTU.
func (p *Port) BufferBytes() int { return frame.Headroom + 18 + p.mtu }

// Offloads returns none: the host checks every sum.
func (p *Port) Offloads() port.Offloads { return port.Offloads{} }

// FD returns -1.
func (p *Port) FD() int { return -1 }

// Overruns counts the frames that found the queue full.
func (p *Port) Overruns() uint64 { return p.overruns }

// Close does nothing.
func (p *Port) Close() error { return nil }

var _ port.Port = (*Port)(nil)
