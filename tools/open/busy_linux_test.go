package open

import (
	"errors"
	"testing"

	"splicenic/driver/device"
	"splicenic/emu/port"
	"splicenic/tools/netlab"
)

// TestWireBusy opens a card on an interface that another card has: it is busy, in the words every card has for that.
func TestWireBusy(t *testing.T) {
	lab, err := netlab.New()
	if errors.Is(err, netlab.ErrNotPermitted) {
		t.Skipf("needs root: go test ./tools/open as root (%v)", err)
	}
	check := func(errs ...error) {
		t.Helper()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	check(err)
	t.Cleanup(func() { check(lab.Close()) })
	peer, err := lab.Namespace("peer")
	check(err)
	card, err := lab.Namespace("card")
	check(err, lab.Link(peer, "eth0", card, "eth1"))
	check(card.Do(func() error {
		first, err := port.Open("eth1")
		if err != nil {
			return err
		}
		_, err = NewEmulator(Config{Client: "eth1", Server: nothing})
		if _, ok := errors.AsType[*Error](err); !ok || !errors.Is(err, device.ErrBusy) || !errors.Is(err, port.ErrBusy) {
			t.Errorf("got %v, want an *Error of both ErrBusy", err)
		}
		return first.Close()
	}))
}
