package drivertest

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"slices"

	"splicenic/driver"
	"splicenic/driver/device"
	"splicenic/regs"
)

var (
	key4 = driver.Key{Protocol: 6, Port: 1000, Destination: 80, Index: 1, Addr: netip.MustParseAddr("198.18.0.100")}
	key6 = driver.Key{Protocol: 6, Port: 1001, Destination: 80, Index: 1, Addr: netip.MustParseAddr("2001:db8::100")}
)

// table returns the offset of an entry of the URL table's idle bank, which nothing reads.
func table(c *driver.Card, entry uint32) uint64 {
	off, err := c.Memory(regs.MemUrl).At(1-bankOf(c), entry)
	if err != nil {
		panic(err) // the Bench's card is too small
	}
	return off
}

func bankOf(c *driver.Card) uint32 {
	bank, _ := c.Bank()
	return bank & 1
}

// pattern returns n words that nobody takes for those of another seed.
func pattern(seed uint32, n int) []uint32 {
	w := make([]uint32, n)
	for i := range w {
		w[i] = seed<<24 + uint32(i)
	}
	return w
}

// must says whether got is what it has to be.
func must[T comparable](what string, got, want T) error {
	if got != want {
		return fmt.Errorf("%s is %v, want %v", what, got, want)
	}
	return nil
}

// traffic uses everything of a card that was brought up, and leaves it as it was but for what it received.
func (b *Bench) traffic(ctx context.Context, c *driver.Card) error {
	steps := []func(context.Context, *driver.Card) error{b.tables, b.connection, b.frames, b.counters}
	for _, step := range steps {
		if err := step(ctx, c); err != nil {
			return err
		}
	}
	return c.Err()
}

func (b *Bench) tables(ctx context.Context, c *driver.Card) error {
	at, small, large := table(c, 0), pattern(1, 4), pattern(2, 300)
	if err := c.WriteTable(ctx, at, small); err != nil {
		return err
	}
	if err := c.WriteTable(ctx, at+16, large); err != nil {
		return err
	}
	got := make([]uint32, 304)
	if err := c.ReadTable(ctx, at, got); err != nil {
		return err
	}
	if !slices.Equal(got[:4], small) || !slices.Equal(got[4:], large) {
		return fmt.Errorf("table holds %x…", got[:8])
	}
	if err := c.Fill(ctx, at, 4*304, 7); err != nil {
		return err
	}
	if err := c.Clear(ctx, at, 4*304); err != nil {
		return err
	}
	bank, generation := c.Bank()
	if err := c.SwitchBank(bank&1, max(generation&0xffff, 1)); err != nil {
		return err
	}
	return c.WaitBankIdle(ctx, 1-bank&1)
}

// connection takes a page, lets both CAMs know it, and gives it back.
func (b *Bench) connection(ctx context.Context, c *driver.Card) error {
	want, err := c.Allocate(ctx)
	if err != nil {
		return err
	}
	if _, err := c.Page(ctx, want.N()); err != nil {
		return err
	}
	for side := range regs.CamInstances {
		k := key6
		k.Port, k.Destination = 2000, 80*uint16(1-side)
		if err := c.CAMInsert(ctx, side, k, want, false); err != nil {
			return err
		}
		got, _, err := c.CAMLookup(ctx, side, k)
		if err != nil {
			return err
		}
		if err := must("handle", got, want); err != nil {
			return err
		}
		if err := c.CAMErase(ctx, side, k); err != nil {
			return err
		}
	}
	return c.Free(ctx, want)
}

// frames lets frames come and answers each.
func (b *Bench) frames(ctx context.Context, c *driver.Card) error {
	for i := range regs.PortInstances {
		if err := c.SetPort(i, driver.PortConfig{Enable: true, Promiscuous: true}); err != nil {
			return err
		}
	}
	if err := c.Accept(true); err != nil {
		return err
	}
	sent := c.Load64(regs.PortTxFrames)
	for n := range uint32(3) {
		b.send(1000 + n)
	}
	err := b.receive(ctx, c, 3, func(e *driver.Exception) error {
		if len(e.Frame) != frameBytes || !bytes.Equal(e.Frame[:6], []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}) {
			return fmt.Errorf("frame % x", e.Frame)
		}
		return c.Emit(0, e.Frame)
	})
	if err != nil {
		return err
	}
	c.CommitExceptions()
	c.CommitEvents()
	// Commands let a card that is pumped work.
	now := sent
	for turn := 0; now < sent+3 && turn < 1000; turn++ {
		if err := c.Clear(ctx, table(c, 0), 4); err != nil {
			return err
		}
		now = c.Load64(regs.PortTxFrames)
	}
	if err := c.Err(); err != nil {
		return err
	}
	return must("frames sent", now-sent, 3)
}

func (b *Bench) counters(ctx context.Context, c *driver.Card) error {
	block, ok := regs.LookupRegister("amu.commands")
	if !ok {
		return device.ErrNotSupported
	}
	if _, err := c.BlockCounters(ctx, block.Block, 0); err != nil {
		return err
	}
	c.Causes()
	c.Events(make([]regs.EventEntry, 4))
	c.Load(regs.AmuFree)
	return c.Err()
}
