package driver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"splicenic/driver/device"
	"splicenic/driver/ring"
	"splicenic/regs"
)

// patience is how long the commands of a predecessor have to end before the rings start anew.
const patience = time.Second

// Adopted says whether the card was taken over from a predecessor rather than reset. Reset ends it.
func (c *Card) Adopted() bool { return c.adopted.Load() }

// Continued says whether the card was adopted and its rings went on in the predecessor's memory: every exception and event
// that the predecessor had not committed comes, those it had taken come again, and a gap in their sequence numbers is one
// that the card made.
func (c *Card) Continued() bool { return c.continued.Load() }

// configured says whether a predecessor has set the data path up.
func (c *Card) configured() bool {
	st := c.Load(regs.ControlStatus)
	return regs.ControlStatusReady(st) == 1 && regs.ControlStatusResetting(st) == 0 && regs.ControlStatusFault(st) == 0 &&
		c.Load(regs.ControlReset) == 0 &&
		regs.AmuControlEnable(c.Load(regs.AmuControl)) == 1 && regs.TableBankGeneration(c.Load(regs.TableBank)) != 0
}

// resume goes on with the rings of a predecessor, in its memory, and says whether it could. Where it could not, they have
// to be started anew: the predecessor ended in the middle of something, has left other rings, or its memory is gone. The
// card is only looked at until it is sure that the memory is the one its registers name.
func (c *Card) resume(ctx context.Context) (bool, error) {
	if c.cfg.Kept == nil || !c.ringsFit() {
		return false, c.dev.Err()
	}
	if err := c.allocate(); err != nil {
		return false, err
	}
	if !c.memoryFits() {
		return false, c.dev.Err()
	}
	if err := c.enable(); err != nil {
		return false, err
	}
	err := c.outlive(ctx)
	for i := range regs.RingInstances {
		if err == nil {
			err = c.resumeRing(i)
		}
	}
	if errors.Is(err, ErrTimeout) || errors.Is(err, ring.ErrResume) || errors.Is(err, errStopped) {
		return false, c.dev.Err()
	}
	if err != nil {
		return false, err
	}
	// Nothing is in flight, so that these are completions of commands that nobody waits for any more.
	var ds [batch]ring.Descriptor
	for c.completions.Recv(ds[:]) > 0 {
	}
	c.completions.Commit()
	c.inFlight = 0
	if c.Load(ringReg(regs.RingBufferBytes, regs.RingEvent)) == 0 { // a predecessor without
		c.storeBegins()
	}
	return true, c.dev.Err()
}

// ringsFit says whether all rings run and have the size that they would get.
func (c *Card) ringsFit() bool {
	ok := regs.HostifControlEnable(c.Load(regs.HostifControl)) == 1 &&
		c.Load(ringReg(regs.RingBufferBytes, regs.RingException)) == c.cfg.Rings.FrameBytes
	for i, n := range c.cfg.Rings.entries() {
		ok = ok && c.ringRuns(i) && c.Load(ringReg(regs.RingEntries, i)) == n
	}
	return ok
}

func (c *Card) ringRuns(i int) bool {
	return regs.RingControlEnable(c.Load(ringReg(regs.RingControl, i))) == 1 && regs.RingStatusRunning(c.Load(ringReg(regs.RingStatus, i))) == 1
}

// memoryFits says whether all memory was kept and lies where the registers say.
func (c *Card) memoryFits() bool {
	ok := !slices.ContainsFunc(c.dma, func(m *device.DMA) bool { return m != c.begins && !c.cfg.Kept(m) }) && c.beginsFit() &&
		c.Load64(ringReg(regs.RingBuffers, regs.RingException)) == c.exceptions.buffers.IOVA
	for i, m := range c.rings.descriptors {
		ok = ok && c.Load64(ringReg(regs.RingIova, i)) == m.IOVA
		if i >= regs.RingInject {
			ok = ok && c.Load64(ringReg(regs.RingWriteback, i)) == c.rings.writeback(i)
		}
	}
	return ok
}

// beginsFit says whether the event ring's buffers are those that were kept, or there are none yet.
func (c *Card) beginsFit() bool {
	n := c.Load(ringReg(regs.RingBufferBytes, regs.RingEvent))
	return n == 0 || n == c.cfg.Rings.BeginBytes && c.cfg.Kept(c.begins) && c.Load64(ringReg(regs.RingBuffers, regs.RingEvent)) == c.begins.IOVA
}

var errStopped = errors.New("ring stopped")

// outlive waits until the card has done with what a predecessor gave it: frames and commands.
func (c *Card) outlive(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, ErrTimeout)
	defer cancel()
	frames, commands := c.Load(ringReg(regs.RingProducer, regs.RingInject)), c.Load(ringReg(regs.RingProducer, regs.RingCommand))
	stopped := false
	err := c.poll(ctx, func() bool {
		done := c.Load(ringReg(regs.RingConsumer, regs.RingInject)) == frames && c.Load(ringReg(regs.RingConsumer, regs.RingCommand)) == commands
		for i := regs.RingCompletion; i <= regs.RingCommand; i++ {
			stopped = stopped || regs.RingStatusRunning(c.Load(ringReg(regs.RingStatus, i))) == 0
		}
		return stopped || done && !c.bulkBusy() // a bulk command is busy before it is seen to be consumed
	})
	if err == nil && stopped {
		err = errStopped
	}
	return err
}

func (c *Card) bulkBusy() bool { return regs.AmuStatusBulkBusy(c.Load(regs.AmuStatus)) == 1 }

// Leave ends this Card's use of the card so that a successor can adopt it: it waits for commands in flight and hands
// queued frames over. Rings, bus mastering and DMA memory stay as they are; the device is to be let go without taking them
// away. What was not committed comes to the successor.
func (c *Card) Leave(ctx context.Context) error {
	if err := c.acquire(ctx); err != nil {
		return fmt.Errorf("leave card: %w", err)
	}
	defer c.release()
	if !c.up.Load() {
		return nil
	}
	w := c.newWaiter(ctx, firstSlice)
	defer w.cancel()
	err := c.settle(w)
	c.Flush()
	c.close()
	c.forget()
	c.Load(regs.ControlStatus) // after all stores
	if lost := c.dev.Err(); lost != nil && err == nil {
		err = lost
	}
	if err != nil {
		return fmt.Errorf("leave card: %w", err)
	}
	return nil
}

// close keeps everybody away from the rings.
func (c *Card) close() {
	c.inject.mu.Lock() // nobody is about to queue a frame
	defer c.inject.mu.Unlock()
	c.up.Store(false)
}

// forget leaves memory and rings to whoever has the device.
func (c *Card) forget() {
	c.dma, c.ours = nil, false
}
