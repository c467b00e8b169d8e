package port

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"splicenic/emu/frame"
)

// errShared refuses a file that one port writes and another has too.
var errShared = errors.New("another port has this file open")

// Clocked is a port that goes by the card's clock. The card tells it the time since its start before it asks for frames.
type Clocked interface {
	SetNow(now time.Duration)
}

// Pcap is a port whose wire is two capture files: it receives what the one holds, each frame when its time has come, and
// writes what is transmitted to the other. It is Clocked, so that the same input and the same clock give the same output
// file, byte for byte. Until it is told the time, every frame has come.
type Pcap struct {
	mac     [6]byte
	in      *os.File       // nil: nothing to receive
	r       *captureReader // nil at the end
	pending bool           // r stands before a frame
	first   int64          // time of the first frame
	epoch   int64          // what the card's clock counts from, in nanoseconds since 1970
	now     time.Duration
	timed   bool // the card has told the time

	out *os.File // nil: what is transmitted goes nowhere
	w   *captureWriter
	err error // the first of reading or writing
}

// OpenPcap opens a port on two capture files; either name may be empty. The input is read through once before anything
// is taken from it, so that a broken file is an error here and not halfway. An output named .pcapng is written in that
// format. Close completes the output. A file that a port writes is no other port's, on systems that can tell.
func OpenPcap(in, out string) (*Pcap, error) {
	name := in
	if in == "" {
		name = out
	}
	p := &Pcap{mac: localMAC(filepath.Base(name))}
	if in != "" {
		if err := p.openInput(in); err != nil {
			return nil, fmt.Errorf("read capture %s: %w", in, err)
		}
	}
	if out != "" {
		if err := p.openOutput(out); err != nil {
			return nil, errors.Join(fmt.Errorf("write capture %s: %w", out, err), p.Close())
		}
	}
	return p, nil
}

// localMAC is a locally administered address made of a name.
func localMAC(name string) [6]byte {
	h := fnv.New64a()
	h.Write([]byte(name))
	s := h.Sum64()
	return [6]byte{0x02, byte(s >> 32), byte(s >> 24), byte(s >> 16), byte(s >> 8), byte(s)}
}

func (p *Pcap) openInput(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	err = lock(f, false)
	if err == nil {
		err = p.scan(f)
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	p.in, p.epoch = f, p.first
	return nil
}

// scan reads a file to its end and goes back to the beginning.
func (p *Pcap) scan(f *os.File) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() {
		return errors.New("not a regular file")
	}
	r, err := newCaptureReader(f)
	if err != nil {
		return err
	}
	for n := 0; ; n++ {
		if err := r.next(); err == io.EOF {
			break
		} else if err != nil {
			return err
		}
		if n == 0 {
			p.first = r.at
		}
		if err := r.skip(); err != nil {
			return err
		}
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	p.r, err = newCaptureReader(f)
	return err
}

func (p *Pcap) openOutput(name string) error {
	if p.in != nil {
		a, errA := p.in.Stat()
		b, errB := os.Stat(name)
		if errA == nil && errB == nil && os.SameFile(a, b) {
			return errors.New("it is the input")
		}
	}
	// What the file holds stays until it is known to be nobody's.
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return err
	}
	st, err := f.Stat()
	if err == nil {
		err = lock(f, true)
	}
	if err == nil && st.Mode().IsRegular() {
		err = f.Truncate(0)
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	p.out, p.w = f, newCaptureWriter(f, strings.HasSuffix(name, ".pcapng"))
	return nil
}

// Align makes the clocks of capture ports count from the earliest of their first frames, so that captures of one
// event from two places stay in step. Other ports are left alone.
func Align(ports ...Port) {
	var earliest *Pcap
	for _, p := range ports {
		if c, ok := p.(*Pcap); ok && c.in != nil && (earliest == nil || c.first < earliest.first) {
			earliest = c
		}
	}
	for _, p := range ports {
		if c, ok := p.(*Pcap); ok && earliest != nil {
			c.epoch = earliest.first
		}
	}
}

// SetNow tells the time since the card's start.
func (p *Pcap) SetNow(now time.Duration) { p.now, p.timed = now, true }

// Due returns when the next frame comes, by the card's clock; ok is false when there is none left.
func (p *Pcap) Due() (at time.Duration, ok bool) {
	if !p.peek() {
		return 0, false
	}
	return time.Duration(p.r.at - p.epoch), true
}

// peek stands the reader before the next frame.
func (p *Pcap) peek() bool {
	if p.pending {
		return true
	}
	if p.r == nil {
		return false
	}
	if err := p.r.next(); err != nil {
		p.endInput(err)
		return false
	}
	p.pending = true
	return true
}

// endInput stops reading. Only the file changing under us is an error.
func (p *Pcap) endInput(err error) {
	p.r, p.pending = nil, false
	if !errors.Is(err, io.EOF) && p.err == nil {
		p.err = fmt.Errorf("read capture %s: %w", p.in.Name(), err)
	}
}

// MAC is an address made of the input's name, so that it is the same in every run.
func (p *Pcap) MAC() [6]byte { return p.mac }

// MTU is that of Ethernet.
func (p *Pcap) MTU() int { return 1500 }

// Link is up.
func (p *Pcap) Link() LinkState { return LinkState{Up: true, Mbps: 1000} }

// BufferBytes has room for the largest frame a capture may hold.
func (p *Pcap) BufferBytes() int { return frame.Headroom + frame.MaxBytes }

// Offloads is nothing: the output shows frames as on a wire.
func (p *Pcap) Offloads() Offloads { return Offloads{} }

// FD returns -1: there is nothing to wait for but the clock.
func (p *Pcap) FD() int { return -1 }

// Overruns is zero: a file waits.
func (p *Pcap) Overruns() uint64 { return 0 }

// Receive takes the frames whose time has come.
func (p *Pcap) Receive(fs []frame.Frame) int {
	for i := range fs {
		if !p.peek() || p.timed && time.Duration(p.r.at-p.epoch) > p.now {
			return i
		}
		f := &fs[i]
		if err := p.r.body(f.Buf[f.Start:]); err != nil {
			p.endInput(err)
			return i
		}
		f.End = f.Start + uint32(p.r.bytes)
		f.Offload = frame.Offload{}
		p.pending = false
	}
	return len(fs)
}

// Transmit writes frames with the card's time. After an error nothing is taken; Close returns it.
func (p *Pcap) Transmit(fs []*frame.Frame) int {
	if p.w == nil {
		return len(fs)
	}
	for i, f := range fs {
		if p.err != nil {
			return i
		}
		if err := p.w.write(f.Bytes(), p.epoch+int64(p.now)); err != nil {
			p.err = fmt.Errorf("write capture: %w", err)
			return i
		}
	}
	return len(fs)
}

// Close completes the output and returns the first error of the port.
func (p *Pcap) Close() error {
	errs := []error{p.err}
	if p.w != nil {
		if err := p.w.flush(); p.err == nil {
			errs = append(errs, err)
		}
		errs = append(errs, p.out.Close())
	}
	if p.in != nil {
		errs = append(errs, p.in.Close())
	}
	p.in, p.out, p.r, p.w, p.err, p.pending = nil, nil, nil, nil, nil, false
	return errors.Join(errs...)
}
