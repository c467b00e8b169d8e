package discover

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"splicenic/driver/device"
)

// bar0 is the configuration space of a card with a BAR somewhere.
func bar0(address string) string {
	return "\x34\x12\x1c\x5c\x06\x00\x10\x00\x00\x00\x00\x02\x00\x00\x00\x00" + address + strings.Repeat("\x00", 44)
}

func TestRevive(t *testing.T) {
	const there, gone = "\x00\x00\x00\xe0", "\x00\x00\x00\x00"
	for _, tt := range []struct {
		name   string
		config string // empty: the device is not there
		found  bool   // by a rescan
		writes []string
		is     error
	}{
		{"as it was", bar0(there), false, nil, nil},
		{"off the bus", strings.Repeat("\xff", 64), false, nil, device.ErrDeviceLost},
		{"back, without BARs", bar0(gone), true, []string{"remove", "rescan"}, nil},
		{"seen to go, and back", "", true, []string{"rescan"}, nil},
		{"seen to go, and not back", "", false, []string{"rescan"}, device.ErrDeviceLost},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &sysfs{t, t.TempDir()}
			if tt.config != "" {
				s.add(dev{address: card, config: tt.config})
			}
			cfg := s.config()
			var writes []string
			cfg.write = func(path, value string) error {
				name := filepath.Base(path)
				writes = append(writes, name)
				switch {
				case name == "remove":
					return os.RemoveAll(filepath.Dir(path))
				case name == "rescan" && tt.found:
					s.must(os.RemoveAll(filepath.Join(s.root, "kernel")))
					s.add(dev{address: card, config: bar0(there)}) // vfio-pci has it: Bind has nothing to do
				}
				return nil
			}
			ctx, cancel := context.WithCancel(t.Context())
			if !tt.found {
				cancel() // no waits
			}
			defer cancel()
			err := Revive(ctx, cfg, card)
			if (err == nil) != (tt.is == nil) || tt.is != nil && !errors.Is(err, tt.is) {
				t.Errorf("error %v", err)
			}
			if !slices.Equal(writes, tt.writes) {
				t.Errorf("wrote %q, want %q", writes, tt.writes)
			}
		})
	}
	if err := Revive(t.Context(), Config{}, "nonsense"); err == nil {
		t.Error("an address that is none")
	}
	s := &sysfs{t, t.TempDir()}
	s.add(dev{address: card, config: bar0(gone)})
	cfg := s.config()
	boom := errors.New("boom")
	cfg.write = func(string, string) error { return boom }
	if err := Revive(t.Context(), cfg, card); !errors.Is(err, boom) {
		t.Errorf("error %v", err)
	}
}
