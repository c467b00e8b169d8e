package drivertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"splicenic/driver"
	"splicenic/driver/device"
	"splicenic/regs"
)

// Takeover has the process that drives the card die at every access: in bring-up, traffic, a bulk write, adoption and
// shutdown. Each time a successor adopts what it finds: tables and connections are there, exceptions come again from the
// first that was not committed and without a gap, and all of the card works. stride 1 is every access, 2 every other.
func Takeover(t *testing.T, stride int, open func(testing.TB) *Bench) {
	t.Run("life", func(t *testing.T) {
		every(t, stride, func(at int) int {
			s := begin(t, open)
			defer s.end()
			p := s.start()
			p.wire.at = at
			p.live(false)
			s.die(p)
			s.inherit(p)
			return p.wire.accesses
		})
	})
	for _, row := range []struct {
		name   string
		forget bool // the successor finds no memory and starts the rings anew
	}{{"adoption", false}, {"restart", true}} {
		t.Run(row.name, func(t *testing.T) {
			every(t, stride, func(at int) int {
				s := begin(t, open)
				defer s.end()
				first := s.start()
				first.live(true)
				s.die(first)
				p := s.start()
				p.wire.at = at
				if row.forget {
					p.kept = nil
				}
				if p.open(true); p.card != nil && p.card.Continued() == row.forget {
					t.Errorf("Continued = %v", p.card.Continued())
				}
				p.follow(first)
				s.die(p)
				s.inherit(p)
				return p.wire.accesses
			})
		})
	}
	for _, row := range []struct {
		name string
		do   func(*driver.Card, context.Context) error
	}{{"shutdown", (*driver.Card).Shutdown}, {"leave", (*driver.Card).Leave}, {"reset", (*driver.Card).Reset}} {
		t.Run(row.name, func(t *testing.T) {
			every(t, stride, func(at int) int {
				s := begin(t, open)
				defer s.end()
				p := s.start()
				p.live(false)
				before := p.wire.accesses
				if at != 0 {
					p.wire.at = before + at
				}
				p.note(row.do(p.card, t.Context()))
				s.die(p)
				s.inherit(p)
				return p.wire.accesses - before
			})
		})
	}
}

// A succession is a card and the processes that drive it, one after the other.
type succession struct {
	*testing.T
	b    *Bench
	sent uint32 // frames that the card took
	last device.Device
}

func begin(t *testing.T, open func(testing.TB) *Bench) *succession {
	return &succession{T: t, b: open(t)}
}

func (s *succession) end() {
	if err := s.last.Close(); err != nil {
		s.Errorf("close: %v", err)
	}
	s.b.Close()
}

// A process drives the card until it dies.
type process struct {
	s    *succession
	wire *tripwire
	kept func(*device.DMA) bool
	card *driver.Card

	handle driver.Handle
	round  uint32 // bulk writes that were begun
}

func (s *succession) start() *process {
	dev, kept := s.b.Attach()
	s.last = dev
	return &process{s: s, wire: watch(dev), kept: kept}
}

// die ends a process. Two more frames come, with nobody there.
func (s *succession) die(p *process) {
	p.wire.dead = true
	s.b.Die(p.wire.Device)
	for range 2 {
		s.send()
	}
}

func (s *succession) send() {
	s.b.send(s.sent)
	s.sent++
}

// note fails the test with an error that is not the process's death.
func (p *process) note(err error) {
	p.s.Helper()
	if err != nil && !errors.Is(err, errDead) {
		p.s.Errorf("access %d (%s) killed the process: %v", p.wire.at, p.wire.what, err)
	}
}

func (p *process) open(adopt bool) {
	p.s.Helper()
	c, err := driver.Open(p.s.Context(), p.wire, p.wire.adopting(p.s.b.config(), adopt, p.kept))
	p.note(err)
	if err == nil {
		p.card = c
	}
}

// live is a process that brings the card up and uses it until it dies. open ends it amidst exceptions that it has not
// committed.
func (p *process) live(open bool) {
	p.s.Helper()
	if p.open(false); p.card == nil {
		return
	}
	ctx := p.s.Context()
	err := p.setUp(ctx)
	for round := 0; round < 3 && err == nil; round++ {
		err = p.use(ctx, open && round == 2)
	}
	p.note(err)
}

// follow makes p the one that has done what another did.
func (p *process) follow(o *process) {
	p.handle, p.round = o.handle, o.round
	for off, v := range o.wire.stored {
		if _, ok := p.wire.stored[off]; !ok && !(p.restarted() && off >= uint64(regs.HostifBase)) {
			p.wire.stored[off] = v
		}
	}
}

// setUp writes what a successor must find, and opens the card.
func (p *process) setUp(ctx context.Context) error {
	c := p.card
	if err := c.SetPort(regs.PortClient, driver.PortConfig{Enable: true, Promiscuous: true}); err != nil {
		return err
	}
	if err := c.WriteTable(ctx, table(c, 100), pattern(9, 64)); err != nil {
		return err
	}
	var err error
	if p.handle, err = c.Allocate(ctx); err != nil {
		return err
	}
	for _, k := range []driver.Key{key4, key6} {
		if err := c.CAMInsert(ctx, regs.CamClient, k, p.handle, false); err != nil {
			return err
		}
	}
	bank, _ := c.Bank()
	if err := c.SwitchBank(bank&1, 7); err != nil {
		return err
	}
	return c.Accept(true)
}

// bulkWords is the size of the bulk write: more than the card does in one go.
const bulkWords = 300 << 10 / 4

func heads(c *driver.Card) uint64 { return c.Memory(regs.MemHead).Memory.At(0, 0) }

// use receives exceptions, answers them and writes in bulk.
func (p *process) use(ctx context.Context, open bool) error {
	b, c := p.s.b, p.card
	for range 5 {
		p.s.send()
	}
	reply := func(e *driver.Exception) error { return c.Emit(0, e.Frame) }
	if err := b.receive(ctx, c, 2, reply); err != nil {
		return err
	}
	c.CommitExceptions()
	if err := b.receive(ctx, c, 2, reply); err != nil {
		return err
	}
	p.round++
	if err := c.WriteTable(ctx, heads(c), pattern(p.round, bulkWords)); err != nil {
		return err
	}
	if open {
		return c.Err()
	}
	if err := b.receive(ctx, c, 1, reply); err != nil {
		return err
	}
	c.CommitExceptions()
	return c.Err()
}

// adoptable says whether the process had set the card up.
func (p *process) adoptable() bool {
	stored := p.wire.stored
	return regs.AmuControlEnable(stored[uint64(regs.AmuControl)]) == 1 && regs.TableBankGeneration(stored[uint64(regs.TableBank)]) != 0
}

// runs says whether it left all rings running.
func (p *process) runs() bool {
	ok := p.wire.stored[uint64(regs.HostifControl)] == 1
	for i := range regs.RingInstances {
		ok = ok && p.wire.stored[uint64(regs.RingControl.At(i, regs.RingStride))] == 1
	}
	return ok
}

// committed is the exception index that was published, by which the frames of a card that nobody restarted are numbered.
func (p *process) committed() uint32 {
	return p.wire.stored[uint64(regs.RingConsumer.At(regs.RingException, regs.RingStride))]
}

// restarted says whether the rings were started anew in this process over those of another.
func (p *process) restarted() bool {
	_, ok := p.wire.stored[uint64(regs.ControlReset)]
	return ok
}

// inherit has two more processes adopt the card after each other, and checks what the first one finds.
func (s *succession) inherit(o *process) {
	s.Helper()
	p := s.start()
	if p.open(true); p.card == nil {
		return
	}
	if err := s.check(o, p); err != nil {
		s.Errorf("the process died at access %d of %d (%s): %v", o.wire.at, o.wire.accesses, o.wire.what, err)
		return
	}
	if n := p.wire.bar; n > 400 {
		s.Errorf("adoption took %d accesses", n)
	}
	ctx := s.Context()
	p.note(s.b.traffic(ctx, p.card))
	p.note(p.card.Leave(ctx))
	s.b.Die(p.wire.Device)

	q := s.start()
	if q.open(true); q.card == nil {
		return
	}
	if !q.card.Adopted() || !q.card.Continued() {
		s.Errorf("after Leave: Adopted = %v, Continued = %v", q.card.Adopted(), q.card.Continued())
	}
	p.note(s.b.traffic(ctx, q.card))
	p.note(q.card.Shutdown(ctx))
}

// check compares what p found with what o left.
func (s *succession) check(o, p *process) error {
	ctx, c := s.Context(), p.card
	if err := must("Adopted", c.Adopted(), o.adoptable()); err != nil {
		return err
	}
	if err := must("Continued", c.Continued(), o.adoptable() && o.runs()); err != nil || !c.Adopted() {
		return err
	}
	got := make([]uint32, 64)
	if err := c.ReadTable(ctx, table(c, 100), got); err != nil {
		return err
	}
	if !slices.Equal(got, pattern(9, 64)) {
		return fmt.Errorf("table holds %x…", got[:8])
	}
	for _, k := range []driver.Key{key4, key6} {
		h, _, err := c.CAMLookup(ctx, regs.CamClient, k)
		if err != nil {
			return err
		}
		if err := must("handle", h, o.handle); err != nil {
			return err
		}
	}
	if !c.Continued() {
		return nil
	}
	if err := s.checkBulk(ctx, o, c); err != nil || o.restarted() {
		return err
	}
	return s.checkFrames(ctx, o, c)
}

// checkBulk: a bulk write that the card was given is whole.
func (s *succession) checkBulk(ctx context.Context, o *process, c *driver.Card) error {
	if o.round == 0 {
		return nil
	}
	got, before := make([]uint32, bulkWords), make([]uint32, bulkWords)
	if o.round > 1 {
		before = pattern(o.round-1, bulkWords)
	}
	if err := c.ReadTable(ctx, heads(c), got); err != nil {
		return err
	}
	if !slices.Equal(got, pattern(o.round, bulkWords)) && !slices.Equal(got, before) {
		return fmt.Errorf("bulk write %d is %x … %x", o.round, got[0], got[bulkWords-1])
	}
	return nil
}

// checkFrames: everything that was not committed comes, in order.
func (s *succession) checkFrames(ctx context.Context, o *process, c *driver.Card) error {
	next := o.committed()
	err := s.b.receive(ctx, c, int(s.sent-next), func(e *driver.Exception) error {
		n, err := number(e.Frame)
		if err == nil {
			err = errors.Join(must("frame", n, next), must("sequence number", e.Sequence, next))
		}
		next++
		return err
	})
	if err != nil {
		return err
	}
	c.CommitExceptions()
	return must("lost exceptions", c.Stats().LostExceptions, 0)
}
