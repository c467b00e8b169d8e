package vfio

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"splicenic/driver/device"
)

// space is a configuration space of n bytes with some of them set.
func configOf(n int, at map[int][]byte) []byte {
	b := make([]byte, n)
	copy(b, []byte{0x34, 0x12, 0x1c, 0x5c})
	for off, v := range at {
		copy(b[off:], v)
	}
	return b
}

func word(v uint32) []byte { return binary.LittleEndian.AppendUint32(nil, v) }

func ext(id, version, next uint32) []byte { return word(id | version<<16 | next<<20) }

// TestCaseD07: walks end whatever the bytes say.
func TestCaseD07(t *testing.T) {
	list := []byte{statusCapList}
	ones := slices.Repeat([]byte{0xff}, 4096)
	withIDs := slices.Clone(ones)
	copy(withIDs, []byte{0x34, 0x12, 0x1c, 0x5c})
	long := configOf(4096, nil)
	for off := uint32(0x100); off < 0x1000; off += 4 { // every step of the longest list there is
		copy(long[off:], ext(0xb, 1, (off+4)&0xfff))
	}
	rows := []struct {
		name string
		b    []byte
		want string
		err  error
	}{
		{"loop", configOf(256, map[int][]byte{6: list, 0x34: {0x40}, 0x40: {0x05, 0x50}, 0x50: {0x10, 0x40}}), "5@40 10@50", ErrCapabilityLoop},
		{"to itself", configOf(256, map[int][]byte{6: list, 0x34: {0x40}, 0x40: {0x05, 0x40}}), "5@40", ErrCapabilityLoop},
		{"all ones", ones, "", device.ErrDeviceLost},
		{"ids, then all ones", withIDs, "", device.ErrDeviceLost},
		{"list bit clear", configOf(256, map[int][]byte{0x34: {0x40}, 0x40: {0x05, 0}}), "", nil},
		{"low bits masked", configOf(256, map[int][]byte{6: list, 0x34: {0x43}, 0x40: {0x05, 0x52}, 0x50: {0x10, 0x03}}), "5@40 10@50", nil},
		{"into the header", configOf(256, map[int][]byte{6: list, 0x34: {0x3c}}), "", nil},
		{"cut at 64 bytes", configOf(64, map[int][]byte{6: list, 0x34: {0x40}}), "", ErrCapabilityCut},
		{"too short", make([]byte, 63), "", ErrCapabilityCut},
		{"last entry", configOf(256, map[int][]byte{6: list, 0x34: {0xfc}, 0xfc: {0x11, 0}}), "11@fc", nil},
		{"extended", configOf(4096, map[int][]byte{0x100: ext(1, 2, 0x140), 0x140: ext(3, 1, 0)}), "x1.2@100 x3.1@140", nil},
		{"extended loop", configOf(4096, map[int][]byte{0x100: ext(1, 2, 0x140), 0x140: ext(3, 1, 0x100)}), "x1.2@100 x3.1@140", ErrCapabilityLoop},
		{"extended at 0x100 loops to itself", configOf(4096, map[int][]byte{0x100: ext(1, 1, 0x100)}), "x1.1@100", ErrCapabilityLoop},
		{"extended, into the standard space", configOf(4096, map[int][]byte{0x100: ext(1, 1, 0x40)}), "x1.1@100", nil},
		{"extended, empty", configOf(4096, nil), "", nil},
		{"extended, not there", configOf(4096, map[int][]byte{0x100: word(^uint32(0))}), "", nil},
		{"extended, gone on the way", configOf(4096, map[int][]byte{0x100: ext(1, 1, 0x200), 0x200: word(^uint32(0))}), "x1.1@100", device.ErrDeviceLost},
		{"extended, cut", configOf(512, map[int][]byte{0x100: ext(1, 1, 0x300)}), "x1.1@100", ErrCapabilityCut},
		{"256 bytes only", configOf(256, map[int][]byte{6: list, 0x34: {0x40}, 0x40: {0x10, 0}}), "10@40", nil},
	}
	for _, row := range rows {
		cs, err := Capabilities(row.b)
		if !errors.Is(err, row.err) {
			t.Errorf("%s: %v, want %v", row.name, err, row.err)
		}
		if got := short(cs); got != row.want {
			t.Errorf("%s: %s, want %s", row.name, got, row.want)
		}
	}
	if cs, err := Capabilities(long); err != nil || len(cs) != extCapSteps || extCapSteps != 960 || capSteps != 48 {
		t.Errorf("the longest list: %d entries, %v", len(cs), err)
	}
}

func short(cs []Capability) string {
	var ss []string
	for _, c := range cs {
		s := fmt.Sprintf("%x@%x", c.ID, c.Offset)
		if c.Extended {
			s = fmt.Sprintf("x%x.%d@%x", c.ID, c.Version, c.Offset)
		}
		ss = append(ss, s)
	}
	return strings.Join(ss, " ")
}

func TestCapabilityNames(t *testing.T) {
	for c, want := range map[Capability]string{
		{ID: CapMSIX}:                         "MSI-X",
		{ID: 0x77}:                            "capability 0x77",
		{ID: ExtCapSRIOV, Extended: true}:     "SR-IOV",
		{ID: 0x0777, Extended: true}:          "extended capability 0x777",
		{ID: CapPCIe, Extended: false}:        "PCI Express",
		{ID: ExtCapAER, Extended: true}:       "advanced error reporting",
		{ID: 0x0b, Extended: true, Offset: 1}: "vendor specific",
	} {
		if got := c.String(); got != want {
			t.Errorf("%+v = %q, want %q", c, got, want)
		}
	}
}

func TestMSIXTables(t *testing.T) {
	b := configOf(256, map[int][]byte{0x40: {CapMSIX, 0, 0x40, 0x00}, 0x44: word(4 | 0x1000), 0x48: word(2 | 0x2000)})
	spans, n := msixTables(b, []Capability{{ID: CapMSIX, Offset: 0x40}})
	if n != 65 || !slices.Equal(spans[4], []span{{0x1000, 65 * 16}}) || !slices.Equal(spans[2], []span{{0x2000, 16}}) {
		t.Errorf("%d vectors, %v", n, spans)
	}
	if _, n := msixTables(b, []Capability{{ID: CapMSIX, Offset: 0xf8}}); n != 0 {
		t.Errorf("a capability that is cut: %d vectors", n)
	}
	copy(b[0x44:], word(7))
	if spans, _ := msixTables(b, []Capability{{ID: CapMSIX, Offset: 0x40}}); slices.ContainsFunc(spans[:], func(s []span) bool { return len(s) > 1 }) {
		t.Errorf("a table in BAR 7: %v", spans)
	}
}

// TestCaseD15: addresses as users write them.
func TestCaseD15(t *testing.T) {
	rows := []struct{ s, want, why string }{
		{"10001:80:05.0", "10001:80:05.0", ""},
		{"0000:3B:00.0", "0000:3b:00.0", ""},
		{"3b:00.0", "0000:3b:00.0", ""},
		{"0:3b:0.7", "0000:3b:00.7", ""},
		{"0000:3b:20.0", "", "device 20 is beyond 1f"},
		{"0000:3b:00.8", "", "function 8 is beyond 7"},
		{"0000:100:00.0", "", "bus 100 is beyond ff"},
		{"100000000:3b:00.0", "", "domain 100000000 is beyond"},
		{"000:000:00.0", "", `bus "000" has more than 2 digits`},
		{"3b:00", "", "has not the form"},
		{"3b.0", "", "has not the form"},
		{"1:2:3:4.5", "", "has not the form"},
		{"0000:3b:00.", "", "no hexadecimal number"},
		{"0000:+b:00.0", "", "no hexadecimal number"},
		{"../../etc:00.0", "", ""},
		{"zz:00.0", "", "no hexadecimal number"},
		{"", "", "has not the form"},
	}
	for _, row := range rows {
		got, err := ParseAddress(row.s)
		if got != row.want || (err == nil) != (row.want != "") {
			t.Errorf("ParseAddress(%q) = %q, %v, want %q", row.s, got, err, row.want)
		}
		if err != nil && (!strings.Contains(err.Error(), row.why) || !strings.Contains(err.Error(), "want [DOMAIN:]BUS:DEVICE.FUNCTION")) {
			t.Errorf("ParseAddress(%q): %v, want it to say %q", row.s, err, row.why)
		}
	}
}
