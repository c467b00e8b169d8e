package boot

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"splicenic/bitstream/program"
	"splicenic/driver"
	"splicenic/regs"
	"splicenic/runtime/canary"
	"splicenic/tools/open"
)

// links is which ports had a link before the boot.
type links struct {
	known bool // false: the image before was not of this host's map
	up    [regs.PortInstances]bool
}

func linksOf(c *driver.Card) *links {
	l := &links{known: c.Mismatch() == nil}
	for i := range l.up {
		l.up[i] = l.known && regs.PortStatusLink(c.Load(regs.PortStatus.At(i, regs.PortStride))) != 0
	}
	return l
}

// linkPatience is for autonegotiation.
var linkPatience = 10 * time.Second

const (
	interruptPatience = 2 * time.Second
	look              = 10 * time.Millisecond
)

// gate says whether the image that runs is well: this host drives its data path, its registers hold what they are given,
// its interrupts arrive, its links are up, nothing is too hot, and it splices. It leaves the card at its reset values.
func gate(ctx context.Context, dev *open.Card, before links) (err error) {
	c, err := driver.Open(ctx, dev, driver.Config{})
	if err != nil {
		return err
	}
	if err := c.Mismatch(); err != nil {
		return fmt.Errorf("%w: this release cannot drive it", err)
	}
	defer func() { err = errors.Join(err, c.Shutdown(context.WithoutCancel(ctx))) }()
	for _, step := range []func() error{
		func() error { return scratch(c) },
		func() error { return interrupts(ctx, c) },
		func() error { return sensors(c) },
		func() error { return cable(linksUp(ctx, c, before), before) },
		func() error { _, err := canary.Run(ctx, c, canary.Config{}); return err },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return c.Err()
}

// scratch has one register hold every bit alone.
func scratch(c *driver.Card) error {
	for bit := uint32(1); bit&regs.ControlScratchValueMask != 0; bit <<= 1 {
		for _, v := range []uint32{bit, regs.ControlScratchValueMask &^ bit} {
			c.Store(regs.ControlScratch, v)
			if got := c.Load(regs.ControlScratch); got != v {
				if err := c.Err(); err != nil {
					return err
				}
				return fmt.Errorf("self-test: %s holds %#08x after %#08x was stored", regs.ControlScratch.Name(), got, v)
			}
		}
	}
	return c.Err()
}

// interrupts raises every vector once and waits for it.
func interrupts(ctx context.Context, c *driver.Card) error {
	for v := driver.VectorException; v <= driver.VectorCompletion; v++ {
		c.Store(regs.ControlInterruptTest, 1<<v)
		wait, cancel := context.WithTimeout(ctx, interruptPatience)
		err := c.Wait(wait, v)
		cancel()
		if err != nil {
			if e := c.Err(); e != nil {
				return e
			}
			return fmt.Errorf("self-test: interrupt vector %d was raised and did not arrive within %v: %w", v, interruptPatience, err)
		}
	}
	return nil
}

// sensors fails where an alarm comes again after it was cleared.
func sensors(c *driver.Card) error {
	c.Store(regs.SensorAlarm, c.Load(regs.SensorAlarm))
	alarm := c.Load(regs.SensorAlarm)
	if err := c.Err(); err != nil || alarm == 0 {
		return err
	}
	var list []string
	if regs.SensorAlarmTemperature(alarm) != 0 {
		millidegrees := int32(regs.SensorTemperatureValue(c.Load(regs.SensorTemperature))<<8) >> 8
		list = append(list, fmt.Sprintf("it has %.1f °C", float64(millidegrees)/1000))
	}
	if regs.SensorAlarmVccint(alarm) != 0 {
		list = append(list, fmt.Sprintf("its core has %d mV", regs.SensorVccintValue(c.Load(regs.SensorVccint))))
	}
	if regs.SensorAlarmVccaux(alarm) != 0 {
		list = append(list, fmt.Sprintf("its auxiliary supply has %d mV", regs.SensorVccauxValue(c.Load(regs.SensorVccaux))))
	}
	return fmt.Errorf("sensor alarm: %s, beyond the limit that the card was told", strings.Join(list, ", "))
}

// A linkError is a link that stays down.
type linkError struct{ port string }

func (e *linkError) Error() string {
	return fmt.Sprintf("the link of the %s port did not come up within %v; it was up before", e.port, linkPatience)
}

// cable gives a link that stays down the way to find out whether it is the image that keeps it down.
func cable(err error, before links) error {
	down, ok := errors.AsType[*linkError](err)
	if !ok {
		return err
	}
	return &program.OutsideError{
		Err: err,
		Still: func(ctx context.Context, c program.Opened) bool {
			drv, err := driver.Open(ctx, c.(session).dev, driver.Config{})
			if err != nil || drv.Mismatch() != nil {
				return false
			}
			_, still := errors.AsType[*linkError](linksUp(ctx, drv, before))
			_ = drv.Shutdown(ctx)
			return still
		},
		What: fmt.Sprintf("look at the cable of the %s port and at what is at its other end until splicectl port list shows the link up", down.port),
	}
}

// linksUp waits for the links that there were; where that is not known, for those of all ports that have a wire.
func linksUp(ctx context.Context, c *driver.Card, before links) error {
	by := time.Now().Add(linkPatience)
	for {
		down := ""
		for i, name := range [...]string{"client", "server"} {
			st := c.Load(regs.PortStatus.At(i, regs.PortStride))
			wanted := before.up[i] || !before.known && regs.PortStatusPresent(st) != 0
			if wanted && regs.PortStatusLink(st) == 0 {
				down = name
			}
		}
		if err := c.Err(); err != nil || down == "" {
			return err
		}
		if time.Now().After(by) {
			return &linkError{down}
		}
		t := time.NewTimer(look)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return context.Cause(ctx)
		}
	}
}
