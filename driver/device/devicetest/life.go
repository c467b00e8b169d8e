package devicetest

import (
	"context"
	"errors"
	"sync"
	"testing"

	"splicenic/driver/device"
)

func testReset(t *testing.T, h Harness) {
	d, s := h.Device, h.Scratch
	m := alloc(t, h, 4096)
	iova := m.IOVA
	enable(t, h, 1)
	h.Raise(0)
	d.Store32(s.Region, s.Off, 0x1234)
	if err := d.Reset(); err != nil {
		t.Fatalf("Reset: %v", err)
	}
	if got := d.Load32(s.Region, s.Off); got != 0 {
		t.Errorf("scratch after Reset = %#x", got)
	}
	if got := d.Load32(h.Constant.Region, h.Constant.Off); got != h.Constant.Value {
		t.Errorf("constant after Reset = %#x, want %#x", got, h.Constant.Value)
	}
	if _, err := d.Wait(late(t), 0); !errors.Is(err, device.ErrRange) {
		t.Errorf("Wait after Reset = %v, want %v: vectors have to be enabled anew", err, device.ErrRange)
	}
	if err := d.WriteConfig(4, []byte{1<<1 | 1<<2, 0}); err != nil { // a card that is not bus master sends no message
		t.Fatalf("WriteConfig: %v", err)
	}
	enable(t, h, 1)
	if n, err := d.Wait(over(), 0); err == nil {
		t.Errorf("a raise before Reset was counted after it: %d", n)
	}
	h.Raise(0)
	if _, err := d.Wait(late(t), 0); err != nil {
		t.Errorf("Wait: %v", err)
	}
	m.Bytes[0] = 1 // still the owner's
	if err := m.Close(); err != nil {
		t.Errorf("Close of memory at %#x after Reset: %v", iova, err)
	}
	alloc(t, h, 4096)
	if err := d.Err(); err != nil {
		t.Errorf("Err: %v", err)
	}
}

// dead checks what is left of a device after its sticky error.
func dead(t *testing.T, h Harness, want error) {
	t.Helper()
	d, c, w := h.Device, h.Constant, h.Window
	if err := d.Err(); !errors.Is(err, want) {
		t.Errorf("Err = %v, want %v", err, want)
	}
	if got := d.Load32(c.Region, c.Off); got != ^uint32(0) {
		t.Errorf("Load32 = %#x, want all ones", got)
	}
	if got := d.Load64(w.Region, w.Off); got != ^uint64(0) {
		t.Errorf("Load64 = %#x, want all ones", got)
	}
	d.Store32(h.Scratch.Region, h.Scratch.Off, 1)
	d.Store64(w.Region, w.Off, 1)
	if _, err := d.Wait(context.Background(), 0); !errors.Is(err, want) {
		t.Errorf("Wait = %v, want %v", err, want)
	}
	if _, err := d.AllocDMA("test", 64); !errors.Is(err, want) {
		t.Errorf("AllocDMA = %v, want %v", err, want)
	}
	if err := d.EnableVectors(1); !errors.Is(err, want) {
		t.Errorf("EnableVectors = %v, want %v", err, want)
	}
	if err := d.ReadConfig(0, make([]byte, 4)); !errors.Is(err, want) {
		t.Errorf("ReadConfig = %v, want %v", err, want)
	}
	if err := d.Reset(); !errors.Is(err, want) {
		t.Errorf("Reset = %v, want %v", err, want)
	}
}

func testSticky(t *testing.T, h Harness) {
	enable(t, h, 1)
	alloc(t, h, 4096)
	if err := h.Device.Err(); err != nil {
		t.Fatalf("Err of a well device: %v", err)
	}
	done := make(chan error)
	go func() {
		_, err := h.Device.Wait(late(t), 0)
		done <- err
	}()
	h.Device.Lose(device.ErrDeviceLost)
	if err := <-done; !errors.Is(err, device.ErrDeviceLost) {
		t.Errorf("Wait = %v, want %v", err, device.ErrDeviceLost)
	}
	h.Device.Lose(device.ErrBusy) // the first error stays
	h.Device.Load32(h.Scratch.Region, 1)
	dead(t, h, device.ErrDeviceLost)
	var op *device.OpError
	if err := h.Device.Err(); !errors.As(err, &op) || op.Dev != h.Device.Info().Name {
		t.Errorf("Err = %v, want an OpError that names the device", err)
	}
	if err := h.Device.Close(); err != nil {
		t.Errorf("Close of a lost device: %v", err)
	}
}

func testNotices(t *testing.T, h Harness) {
	select {
	case <-h.Device.RemovalRequested():
		t.Error("removal requested")
	case <-h.Device.ErrorNotice():
		t.Error("error notice")
	default:
	}
}

func testCloseUnblocks(t *testing.T, h Harness) {
	n := h.Device.Info().Vectors
	enable(t, h, n)
	done := make(chan error)
	for v := range n {
		go func() {
			_, err := h.Device.Wait(late(t), v)
			done <- err
		}()
	}
	if err := h.Device.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	for range n {
		if err := <-done; !errors.Is(err, device.ErrClosed) {
			t.Errorf("Wait = %v, want %v", err, device.ErrClosed)
		}
	}
}

func testClose(t *testing.T, h Harness) {
	m := alloc(t, h, 4096)
	enable(t, h, 1)
	for range 2 {
		if err := h.Device.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	dead(t, h, device.ErrClosed)
	if err := m.Close(); err != nil {
		t.Errorf("Close of memory after the device's: %v", err)
	}
}

// testConcurrent uses the device from as many goroutines as the contract allows: one per region, one per vector, one
// that sets up memory. The race detector judges.
func testConcurrent(t *testing.T, h Harness) {
	d, s, w := h.Device, h.Scratch, h.Window
	vectors := min(d.Info().Vectors, 3)
	enable(t, h, vectors)
	const rounds = 200
	var wg sync.WaitGroup
	for v := range vectors {
		wg.Go(func() {
			for {
				if _, err := d.Wait(context.Background(), v); err != nil {
					return
				}
			}
		})
	}
	var users sync.WaitGroup
	users.Go(func() {
		for i := range uint32(rounds) {
			d.Store32(s.Region, s.Off, i)
			if got := d.Load32(s.Region, s.Off); got != i {
				t.Errorf("scratch = %d, want %d", got, i)
			}
			h.Raise(int(i) % vectors)
		}
	})
	if w.Region != s.Region {
		users.Go(func() {
			for i := range uint64(rounds) {
				d.Store64(w.Region, w.Off, i)
				if got := d.Load64(w.Region, w.Off); got != i {
					t.Errorf("window = %d, want %d", got, i)
				}
			}
		})
	}
	users.Go(func() {
		for range rounds / 4 {
			m, err := d.AllocDMA("test", 8192)
			if err != nil {
				t.Errorf("AllocDMA: %v", err)
				return
			}
			m.Bytes[8191] = 1
			if err := m.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		}
	})
	users.Wait()
	if err := d.Err(); err != nil {
		t.Errorf("Err: %v", err)
	}
	d.Close()
	wg.Wait()
}
