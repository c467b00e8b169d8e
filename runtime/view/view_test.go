package view

import (
	"encoding/json"
	"testing"
)

func TestStatsSet(t *testing.T) {
	s := Stats{}
	s.Set("pages.free", 1)
	s.Set("ports.client.rx_frames", 2)
	s.Set("ports.server.rx_frames", 3)
	s.Set("up", true)
	s.Set("pages.free", 4)
	got, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"pages":{"free":4},"ports":{"client":{"rx_frames":2},"server":{"rx_frames":3}},"up":true}`
	if string(got) != want {
		t.Errorf("statistics %s, want %s", got, want)
	}
}

func TestBelow(t *testing.T) {
	for _, tt := range []struct {
		name, prefix string
		want         bool
	}{
		{"port.client.mtu", "port", true},
		{"port.client.mtu", "port.client.", true},
		{"port.client.mtu", "port.client.mtu", true},
		{"geometry.cycles[3]", "geometry.cycles", true},
		{"port.client.mtu", "por", false},
		{"port.client.mtu", "port.server", false},
	} {
		if got := below(tt.name, tt.prefix); got != tt.want {
			t.Errorf("below(%q, %q) = %v, want %v", tt.name, tt.prefix, got, tt.want)
		}
	}
}

func TestNamesFallBackToIndexes(t *testing.T) {
	v := View{Names: Names{Services: map[uint32]string{1: "web"}}}
	for i, want := range map[uint32]string{1: "web", 2: "2"} {
		if got := v.service(i); got != want {
			t.Errorf("service %d is called %q, want %q", i, got, want)
		}
	}
	if got := ExceptionReason(200); got != "200" {
		t.Errorf("unknown reason is called %q", got)
	}
}
