package discover

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const above = "0000:64:00.0"

// portConfig is the configuration space of a port that reports everything.
func portConfig(change func(b []byte)) []byte {
	b := make([]byte, configBytes)
	word := func(at int, v uint16) { binary.LittleEndian.PutUint16(b[at:], v) }
	copy(b, "\x86\x80\x34\x12")
	word(0x04, 0x0547) // SERR
	word(0x06, 0x0010) // has capabilities
	b[0x0e] = 1        // bridge
	b[0x34] = 0x40
	word(0x3e, 0x0013)                       // SERR
	copy(b[0x40:], []byte{0x10, 0, 0x42, 0}) // PCI Express
	word(0x48, 0x000f)                       // all reports
	copy(b[0x100:], []byte{1, 0, 1, 0x14})   // AER, goes on at 0x140
	word(0x108, 0)                           // nothing masked
	copy(b[0x140:], []byte{0x1d, 0, 1, 0})   // DPC
	word(0x146, 0x0009)                      // triggered by fatal errors
	if change != nil {
		change(b)
	}
	return b
}

// behind puts devices below a port, the card first.
func behind(t *testing.T, config []byte, devices ...string) *sysfs {
	s := &sysfs{t, t.TempDir()}
	port := filepath.Join(s.root, "devices/pci0000:64", above)
	s.must(os.MkdirAll(port, 0o755))
	s.must(os.WriteFile(filepath.Join(port, "config"), config, 0o644))
	s.must(os.MkdirAll(filepath.Join(port, "power"), 0o755))
	s.must(os.MkdirAll(filepath.Join(s.root, "bus/pci/devices"), 0o755))
	for _, a := range devices {
		s.must(os.Mkdir(filepath.Join(port, a), 0o755))
		s.must(os.Symlink(filepath.Join(port, a), filepath.Join(s.root, "bus/pci/devices", a)))
	}
	return s
}

func (s *sysfs) port() []byte {
	b, err := os.ReadFile(filepath.Join(s.root, "devices/pci0000:64", above, "config"))
	s.must(err)
	return b
}

func TestQuiet(t *testing.T) {
	config := portConfig(nil)
	s := behind(t, config, card)
	q, err := Upstream(s.config(), "65:00.0")
	if err != nil {
		t.Fatal(err)
	}
	if q.Port != above || !strings.Contains(q.Plan(), above) {
		t.Errorf("port %s, plan %q", q.Port, q.Plan())
	}
	if err := q.Mask(); err != nil {
		t.Fatal(err)
	}
	if err := q.Mask(); err == nil {
		t.Error("masked twice")
	}
	b := s.port()
	for _, x := range []struct {
		name      string
		at        int
		got, want uint32
	}{
		{"command", 0x04, get(b[0x04:], 2), 0x0447}, {"bridge control", 0x3e, get(b[0x3e:], 2), 0x0011}, {"device control", 0x48, get(b[0x48:], 2), 0x000b},
		{"AER mask", 0x108, get(b[0x108:], 4), 0x20}, {"DPC control", 0x146, get(b[0x146:], 2), 0x0008},
	} {
		if x.got != x.want {
			t.Errorf("%s = %#x, want %#x", x.name, x.got, x.want)
		}
	}
	// Somebody changes a bit beside.
	binary.LittleEndian.PutUint16(b[0x04:], 0x0443)
	s.must(os.WriteFile(filepath.Join(s.root, "devices/pci0000:64", above, "config"), b, 0o644))
	if err := q.Restore(); err != nil {
		t.Fatal(err)
	}
	want := bytes.Clone(config)
	binary.LittleEndian.PutUint16(want[0x04:], 0x0543)
	binary.LittleEndian.PutUint32(want[0x104:], aerSurpriseDown) // what clears the bit
	if got := s.port(); !bytes.Equal(got, want) {
		for i := range got {
			if got[i] != want[i] {
				t.Errorf("byte %#x is %#x, want %#x", i, got[i], want[i])
			}
		}
	}
	if err := q.Restore(); err != nil {
		t.Errorf("restored twice: %v", err)
	}
}

// TestQuietAlready: what is silent before stays so, and is not touched.
func TestQuietAlready(t *testing.T) {
	config := portConfig(func(b []byte) {
		b[0x05], b[0x3e], b[0x48], b[0x108], b[0x146] = 0, 0, 0, 0x20, 0
	})
	s := behind(t, config, card)
	q, err := Upstream(s.config(), card)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(q.Mask(), q.Restore()); err != nil || !bytes.Equal(s.port(), config) {
		t.Errorf("it was touched; %v", err)
	}
}

// TestQuietLess: a port without AER and DPC is told what it knows of.
func TestQuietLess(t *testing.T) {
	s := behind(t, portConfig(func(b []byte) { clear(b[0x100:]) })[:256], card)
	q, err := Upstream(s.config(), card)
	if err != nil {
		t.Fatal(err)
	}
	if err := q.Mask(); err != nil || len(q.done) != 3 {
		t.Errorf("%v, %+v", err, q.done)
	}
}

func TestUpstreamRefused(t *testing.T) {
	for _, tt := range []struct {
		name    string
		config  []byte
		devices []string
		is      error
		says    string
	}{
		{"another function", portConfig(nil), []string{card, "0000:65:00.1"}, ErrRefused, "0000:65:00.1 is behind the same port " + above},
		{"two more", portConfig(nil), []string{card, "0000:65:00.1", "0000:65:01.0"}, ErrRefused, "0000:65:00.1, 0000:65:01.0"},
		{"no bridge", portConfig(func(b []byte) { b[0x0e] = 0 }), []string{card}, ErrNoPort, "no bridge"},
		{"not express", portConfig(func(b []byte) { b[0x34] = 0 }), []string{card}, ErrNoPort, "not of PCI Express"},
		{"gone", bytes.Repeat([]byte{0xff}, 4096), []string{card}, ErrNoPort, "no bridge"},
		{"a loop", portConfig(func(b []byte) { b[0x41] = 0x40 }), []string{card}, nil, "read capabilities"},
		{"not root", portConfig(nil)[:64], []string{card}, nil, "as root"},
		{"AER reads all ones", portConfig(func(b []byte) { copy(b[0x108:], "\xff\xff\xff\xff") }), []string{card}, nil, "AER uncorrectable mask of port " + above + " reads all ones"},
		{"empty", nil, []string{card}, nil, "read configuration space"},
		{"not there", portConfig(nil), nil, os.ErrNotExist, "find the port"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := behind(t, tt.config, tt.devices...)
			_, err := Upstream(s.config(), card)
			if err == nil || tt.is != nil && !errors.Is(err, tt.is) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("error %v", err)
			}
		})
	}
	s := &sysfs{t, t.TempDir()}
	s.add(dev{address: card}) // below no port
	if _, err := Upstream(s.config(), card); !errors.Is(err, ErrNoPort) {
		t.Errorf("below no port: %v", err)
	}
	if _, err := Upstream(s.config(), "nonsense"); err == nil {
		t.Error("an address that is none")
	}
}

// TestQuietFails: where the port goes away meanwhile the error says what to restore by hand.
func TestQuietFails(t *testing.T) {
	s := behind(t, portConfig(nil), card)
	q, err := Upstream(s.config(), card)
	if err != nil {
		t.Fatal(err)
	}
	if err := q.Mask(); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(q.dir, "config")
	s.must(os.WriteFile(name, bytes.Repeat([]byte{0xff}, configBytes), 0o644))
	err = q.Restore()
	if err == nil || !strings.Contains(err.Error(), "setpci -s 0000:64:00.0 0x108.l=0") || !strings.Contains(err.Error(), "command") {
		t.Errorf("error %v", err)
	}
	q, _ = Upstream(behind(t, portConfig(nil), card).config(), card)
	s.must(os.Remove(filepath.Join(q.dir, "config")))
	if err := q.Mask(); err == nil {
		t.Error("masked a port that is gone")
	}
	if err := q.Reset(t.Context()); err == nil {
		t.Error("reset a port that is gone")
	}
}

func TestBusReset(t *testing.T) {
	config := portConfig(nil)
	s := behind(t, config, card)
	q, err := Upstream(s.config(), card)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // no waits
	if err := q.Reset(ctx); !errors.Is(err, context.Canceled) || !bytes.Equal(s.port(), config) {
		t.Errorf("the reset has not ended: %v", err)
	}
	if err := q.Reset(t.Context()); err != nil || !bytes.Equal(s.port(), config) {
		t.Error(err)
	}
}
