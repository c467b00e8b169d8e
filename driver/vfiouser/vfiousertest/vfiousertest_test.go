package vfiousertest_test

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"splicenic/driver/device"
	"splicenic/driver/device/devicetest"
	"splicenic/driver/vfiouser/vfiousertest"
)

// scratch is a register of devicetest's card that holds what is stored.
const scratch = 4

// TestJoin: whatever joins them, a store has arrived at the card when it returns, nothing is allocated for it, and the
// card is free when the device is closed.
func TestJoin(t *testing.T) {
	for _, x := range []struct{ card, body string }{{"", "scratch"}, {"emu", "scratch"}, {"vfio-user:", "vfio-user"}} {
		t.Run(x.card, func(t *testing.T) {
			t.Setenv(vfiousertest.Variable, x.card)
			card := devicetest.NewCard()
			for round := range uint32(3) {
				d := vfiousertest.Join(t, card)
				if got := d.Info().Body; (got == "vfio-user") != (x.body == "vfio-user") {
					t.Fatalf("body %s", got)
				}
				for i := range uint32(100) {
					d.Store32(device.Bar0, scratch, round<<8|i)
					var p [4]byte
					if err := card.ReadRegion(device.Bar0, scratch, p[:]); err != nil || binary.LittleEndian.Uint32(p[:]) != round<<8|i {
						t.Fatalf("store %d: the card has %x, %v", i, p, err)
					}
				}
				if n := testing.AllocsPerRun(100, func() { d.Store32(device.Bar0, scratch, 1) }); n != 0 && x.body == "vfio-user" && !raceEnabled {
					t.Errorf("%v allocations for a store", n)
				}
				if err := d.Close(); err != nil {
					t.Error(err)
				}
				if n := card.Maps(); n != 0 {
					t.Errorf("%d maps left", n)
				}
			}
		})
	}
}

// skipper is a test that may be skipped without a line about it.
type skipper struct {
	testing.TB
	why string
}

func (s *skipper) Skipf(format string, args ...any) { s.why = fmt.Sprintf(format, args...) }

// TestJoinSkips: a card that the test did not make is not the test's.
func TestJoinSkips(t *testing.T) {
	for _, name := range []string{"vfio-user:/run/card.sock", "vfio:0000:65:00.0", "auto"} {
		t.Setenv(vfiousertest.Variable, name)
		s := &skipper{TB: t}
		if d := vfiousertest.Join(s, devicetest.NewCard()); d != nil || !strings.Contains(s.why, name) {
			t.Errorf("%s: device %v, skipped because %q", name, d, s.why)
		}
	}
}
