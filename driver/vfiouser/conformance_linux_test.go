package vfiouser_test

import (
	"testing"

	"splicenic/driver/device/devicetest"
	"splicenic/driver/vfiouser"
)

// TestConformance runs the contract's suite over a socket: memory shared by files, by memfds, and reached by messages.
func TestConformance(t *testing.T) {
	for _, row := range []struct {
		name string
		set  func(*vfiouser.Options)
	}{
		{"files", func(*vfiouser.Options) {}},
		{"adjacent", func(o *vfiouser.Options) { o.NoGuard = true }},
		{"memfd", func(o *vfiouser.Options) { o.Memfd, o.Dir = true, "" }},
		{"messages", func(o *vfiouser.Options) { o.Messages = true }},
		{"messages adjacent", func(o *vfiouser.Options) { o.Messages, o.NoGuard = true, true }},
	} {
		t.Run(row.name, func(t *testing.T) {
			devicetest.Run(t, func(t *testing.T) devicetest.Harness {
				card := devicetest.NewCard()
				s := serve(t, card, vfiouser.Config{})
				o := s.options()
				row.set(&o)
				c := s.dial(o)
				master(t, c)
				h := card.NewHarness(c)
				h.Adjacent = o.NoGuard
				h.Close = func() {
					s.end()
					if n := card.Maps(); n != 0 {
						t.Errorf("%d dma maps left", n)
					}
				}
				return h
			})
		})
	}
}
