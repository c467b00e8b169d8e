package control

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"splicenic/runtime/view"
)

// TestRates: by the card's clock, which may turn over; what began anew counts from zero, what is new not at all.
func TestRates(t *testing.T) {
	table := func(tick uint32, service, server uint64, address string) *view.Table {
		return &view.Table{Tick: tick, Services: []view.Service{{Name: "web", Traffic: view.Traffic{Connections: service}, Groups: []view.ServiceGroup{{Servers: []view.ServiceServer{
			{Address: address, Traffic: view.Traffic{BytesServer: server}},
		}}}}}}
	}
	for _, tt := range []struct {
		name            string
		before, after   *view.Table
		service, server float64
	}{
		{"half a second", table(1000, 10, 1000, "a"), table(1500, 20, 4000, "a"), 20, 6000},
		{"the clock turned over", table(1<<32-500, 10, 0, "a"), table(500, 20, 0, "a"), 10, 0},
		{"the runtime began anew", table(0, 10, 1000, "a"), table(1000, 3, 4, "a"), 3, 4},
		{"another server", table(0, 10, 1000, "a"), table(1000, 10, 4000, "b"), 0, 0},
		{"no time at all", table(7, 0, 0, "a"), table(7, 0, 0, "a"), 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rates(tt.before, tt.after)
			s := &tt.after.Services[0]
			got := []float64{s.Rate.Connections, s.Groups[0].Servers[0].Rate.BytesServer}
			if d := cmp.Diff([]float64{tt.service, tt.server}, got); d != "" {
				t.Error(d)
			}
		})
	}
}
