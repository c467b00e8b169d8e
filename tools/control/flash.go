package control

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"splicenic/bitstream/program"
	"splicenic/driver/device"
	"splicenic/runtime/admin"
)

// Program is the card as package program wants it. Its requests go to the runtime, where one runs: the card's flash can be
// written while it forwards.
func (c *Client) Program() program.Card { return flashClient{c} }

// flashClient asks for everything anew: the runtime may have let the card boot meanwhile.
type flashClient struct{ c *Client }

// maxRead is how much one request reads: on a busy machine, with a card behind a socket, a whole sector may take longer
// than a request is waited for.
const maxRead = 8 << 10

func (f flashClient) info(ctx context.Context) (v admin.Flash, err error) {
	_, err = f.c.Get(ctx, "flash", nil, &v)
	return v, lostCard(err)
}

// lostCard gives an error that says so in words only the type that callers look for.
func lostCard(err error) error {
	var f *Failure
	if errors.As(err, &f) && f.Exit == ExitCard {
		return &lostFailure{f}
	}
	return err
}

// lostFailure is a Failure that is a device.ErrDeviceLost.
type lostFailure struct{ *Failure }

// Unwrap makes it both.
func (l *lostFailure) Unwrap() []error { return []error{l.Failure, device.ErrDeviceLost} }

// Geometry returns the flash and its slots.
func (f flashClient) Geometry(ctx context.Context) (program.Geometry, error) {
	v, err := f.info(ctx)
	return v.Geometry, err
}

// Protected says whether the write protection is on.
func (f flashClient) Protected(ctx context.Context) (bool, error) {
	v, err := f.info(ctx)
	return v.Protected, err
}

// Identity returns what the card says about itself.
func (f flashClient) Identity(ctx context.Context) (program.Identity, error) {
	v, err := f.info(ctx)
	return v.Identity, err
}

// Alarms returns what the card's sensors have to say.
func (f flashClient) Alarms(ctx context.Context) (program.Alarms, error) {
	v, err := f.info(ctx)
	return v.Alarms, err
}

// Boot returns the state of the boot logic.
func (f flashClient) Boot(ctx context.Context) (program.Boot, error) {
	v, err := f.info(ctx)
	return v.Boot, err
}

// Read reads bytes.
func (f flashClient) Read(ctx context.Context, offset uint32, p []byte) error {
	for len(p) > 0 {
		n := min(len(p), maxRead)
		q := url.Values{"offset": {strconv.FormatUint(uint64(offset), 10)}, "length": {strconv.Itoa(n)}}
		b, err := f.c.do(ctx, http.MethodGet, "flash/data?"+q.Encode(), nil, nil)
		if err != nil {
			return lostCard(err)
		}
		if len(b) != n {
			return fmt.Errorf("read flash at %#x: %d bytes came, %d were asked for", offset, len(b), n)
		}
		copy(p, b)
		offset, p = offset+uint32(n), p[n:]
	}
	return nil
}

// Erase erases the sector that starts at an offset.
func (f flashClient) Erase(ctx context.Context, offset uint32) error {
	_, err := f.c.Send(ctx, http.MethodPost, "flash/erase", admin.FlashSector{Offset: offset}, nil)
	return lostCard(err)
}

// Program programs bytes inside one page.
func (f flashClient) Program(ctx context.Context, offset uint32, p []byte) error {
	_, err := f.c.do(ctx, http.MethodPut, "flash/data?offset="+strconv.FormatUint(uint64(offset), 10), bytes.NewReader(p), nil)
	return lostCard(err)
}

// Protect sets the write protection.
func (f flashClient) Protect(ctx context.Context, on bool) error {
	_, err := f.c.Send(ctx, http.MethodPut, "flash/protect", admin.FlashProtection{On: on}, nil)
	return lostCard(err)
}

// SetNext says which slot the next boot tries first.
func (f flashClient) SetNext(ctx context.Context, slot int) error {
	_, err := f.c.Send(ctx, http.MethodPut, "flash/next", admin.BootSlot{Slot: slot}, nil)
	return lostCard(err)
}

// Start is not for who does not hold the card: see Client.Boot and package boot.
func (f flashClient) Start(context.Context) error {
	return fmt.Errorf("start a boot by requests: %w", device.ErrNotSupported)
}

// bootLook is how often Boot asks how far the boot has come, and bootSilence how long the runtime may not answer.
const (
	bootLook    = 100 * time.Millisecond
	bootSilence = 2 * time.Minute
)

// BootPlan asks the runtime what a boot would do.
func (c *Client) BootPlan(ctx context.Context, q admin.BootRequest) (*program.BootPlan, error) {
	p := &program.BootPlan{}
	_, err := c.Send(ctx, http.MethodPost, "boot/plan", q, p)
	return p, lostCard(err)
}

// Boot has the runtime let its card boot, and waits until it is known what came of it. say is told each step.
func (c *Client) Boot(ctx context.Context, q admin.BootRequest, say func(step string)) (st admin.BootState, err error) {
	if _, err := c.Send(ctx, http.MethodPost, "boot", q, &st); err != nil {
		return st, err
	}
	heard, told := time.Now(), 0
	tell := func() {
		for ; told < len(st.Steps); told++ {
			if say != nil {
				say(st.Steps[told])
			}
		}
	}
	for {
		tell()
		if st.Over() {
			return st, nil
		}
		t := time.NewTimer(bootLook)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return st, context.Cause(ctx)
		}
		var now admin.BootState
		_, err := c.Get(ctx, "boot", nil, &now)
		switch {
		case err == nil:
			st, heard = now, time.Now()
		case ctx.Err() != nil:
			return st, context.Cause(ctx)
		case st.Outcome != nil || time.Since(heard) > bootSilence:
			return st, err
		case gone(err):
			return st, err
		}
	}
}

// gone says whether nobody listens any more.
func gone(err error) bool {
	var f *Failure
	return errors.Is(err, io.EOF) || errors.As(err, &f) && f.Exit == ExitFailed && f.Do == ""
}
