package view

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"splicenic/regs"
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

// TestDriven: what a runtime has in hand is refused with what to do instead, whatever way it is named; the rest is not.
func TestDriven(t *testing.T) {
	for name, want := range map[string]bool{
		"control.reset": true, "control.reset.data_path": true, "control.scratch": false, "control.interrupt_test": false,
		"ring.exception.control": true, "ring.command.producer": true, "ring[1].consumer": true, "ring.inject.iova.lo": true,
		"hostif.control.enable": true, "hostif.cause": true, "table.bank.generation": true, "amu.control": true, "amu.low_watermark": false,
		"cam.client.hash_key[2]": true, "transmit.server_end.isn_key[0]": true, "port.client.control.enable": true, "port.client.mtu": false,
		"configuration.boot_command": true, "configuration.boot_next": false, "configuration.icap_command": true,
		"timer.idle": false, "head.low_watermark": false, "sensor.alarm": false,
	} {
		l, ok := regs.LookupRegister(name)
		if !ok {
			t.Fatalf("no register %s", name)
		}
		err := inHand(l)
		if (err != nil) != want || want && !errors.Is(err, ErrRefused) {
			t.Errorf("%s: error %v", name, err)
		}
		if e, ok := errors.AsType[*RefusedError](err); ok && (e.Do == "" || !strings.Contains(e.Why, name[:4])) {
			t.Errorf("%s: %+v", name, e)
		}
	}
}

// TestDrivenRegistersExist: a register that is renamed does not slip out of the table.
func TestDrivenRegistersExist(t *testing.T) {
	for _, d := range driven {
		found := false
		for i := range regs.Blocks {
			b := &regs.Blocks[i]
			found = found || b.Name == d.block && (d.register == "" ||
				slices.ContainsFunc(b.Registers, func(r regs.RegisterInfo) bool { return r.Name == d.register && r.Access.Writable() }))
		}
		if !found {
			t.Errorf("there is no register %s.%s to store", d.block, d.register)
		}
	}
}
