package devicetest

import (
	"context"
	"errors"
	"testing"

	"splicenic/driver/device"
)

// late returns a context that ends a wait which should have ended by itself.
func late(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// over returns a context that has ended: a wait with it only looks.
func over() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func enable(t *testing.T, h Harness, n int) {
	t.Helper()
	if err := h.Device.EnableVectors(n); err != nil {
		t.Fatalf("EnableVectors(%d): %v", n, err)
	}
}

func testInterrupt(t *testing.T, h Harness) {
	n := min(h.Device.Info().Vectors, 3)
	enable(t, h, n)
	for v := range n {
		h.Raise(v)
		if got, err := h.Device.Wait(late(t), v); err != nil || got < 1 {
			t.Errorf("vector %d: Wait = %d, %v", v, got, err)
		}
		for other := range n {
			if got, err := h.Device.Wait(over(), other); !errors.Is(err, context.Canceled) {
				t.Errorf("vector %d after vector %d was raised: Wait = %d, %v", other, v, got, err)
			}
		}
	}
	done := make(chan error)
	go func() {
		_, err := h.Device.Wait(late(t), 0)
		done <- err
	}()
	h.Raise(0)
	if err := <-done; err != nil {
		t.Errorf("Wait before the raise: %v", err)
	}
}

func testCoalesced(t *testing.T, h Harness) {
	enable(t, h, 1)
	for range 3 {
		h.Raise(0)
	}
	sum, err := h.Device.Wait(late(t), 0)
	if err != nil {
		t.Fatalf("Wait: %v", err)
	}
	for {
		n, err := h.Device.Wait(over(), 0)
		if err != nil {
			break
		}
		sum += n
	}
	if sum < 1 || sum > 3 {
		t.Errorf("three raises counted %d times", sum)
	}
}

func testCancelled(t *testing.T, h Harness) {
	enable(t, h, 1)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := h.Device.Wait(ctx, 0)
		done <- err
	}()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("Wait = %v, want %v", err, context.Canceled)
	}
	h.Raise(0)
	if n, err := h.Device.Wait(late(t), 0); err != nil || n < 1 {
		t.Errorf("Wait after a cancelled one = %d, %v", n, err)
	}
}

func testVectors(t *testing.T, h Harness) {
	have := h.Device.Info().Vectors
	if err := h.Device.EnableVectors(have + 1); err == nil {
		t.Errorf("EnableVectors(%d) of %d succeeded", have+1, have)
	}
	if err := h.Device.EnableVectors(-1); err == nil {
		t.Error("EnableVectors(-1) succeeded")
	}
	enable(t, h, 1)
	for _, v := range []int{-1, 1, have} {
		if _, err := h.Device.Wait(late(t), v); !errors.Is(err, device.ErrRange) {
			t.Errorf("Wait for vector %d = %v, want %v", v, err, device.ErrRange)
		}
	}
	if have > 1 {
		h.Raise(1) // not enabled: not delivered, and no harm
	}
	enable(t, h, have)
	if err := h.Device.Err(); err != nil {
		t.Errorf("Err: %v", err)
	}
}
