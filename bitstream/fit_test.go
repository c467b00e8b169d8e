package bitstream

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"splicenic/bitstream/xilinx"
)

// Rules of one severity that found something.
func rules(fs []Finding, s Severity) (out []string) {
	for _, f := range fs {
		if f.Severity == s {
			out = append(out, f.Rule)
		}
	}
	return out
}

// The IDCODE inside against the device decides. Text that says something else is a warning, and never more. All eight
// ways in which text, embedded IDCODE and device can agree in pairs, as far as they exist:
//
//	text = embedded | embedded = device | text = device | refused | warned
func TestCaseE03(t *testing.T) {
	const id45, id85, id25 = 0x41112043, 0x41113043, 0x41111043
	for _, c := range []struct {
		text             string
		embedded, device uint32
		refused          bool
		warnings         int
	}{
		{"LFE5U-45F-6CABGA256", id45, id45, false, 0}, // all agree
		{"LFE5U-45F-6CABGA256", id85, id85, false, 2}, // the text alone differs, from both
		{"LFE5U-45F-6CABGA256", id45, id85, true, 1},  // the device alone differs
		{"LFE5U-45F-6CABGA256", id85, id45, true, 1},  // the embedded one alone differs: what people met
		{"LFE5U-45F-6CABGA256", id85, id25, true, 2},  // all differ
		{"", id45, id45, false, 0},                    // no text
		{"", id85, id45, true, 0},
		{"LFE5U-99X", id45, id45, false, 0}, // text that nobody knows proves nothing
	} {
		t.Run(fmt.Sprintf("%s/%08x/%08x", c.text, c.embedded, c.device), func(t *testing.T) {
			img := &Image{Format: LatticeECP5, Part: c.text, IDCodes: []IDCode{{Value: c.embedded}}, Whole: true, Check: Integrity{State: Valid, Checks: 1}, Segments: []Segment{{0, make([]byte, 16)}}}
			got := Fit(img, Target{IDCode: c.device, SlotBytes: 1 << 20})
			if r := rules(got, Refuse); slices.Contains(r, "idcode") != c.refused || len(r) > 1 {
				t.Errorf("refused for %v, wanted %v: %+v", r, c.refused, got)
			}
			if w := rules(got, Warn); len(w) != c.warnings {
				t.Errorf("%d warnings, wanted %d: %+v", len(w), c.warnings, got)
			}
			if s := rules(got, Skipped); slices.Contains(s, "part") != (c.text == "") {
				t.Errorf("skipped %v", s)
			}
		})
	}
}

// The version counts for Lattice, and for nobody else whose numbers are known.
func TestVersionNibble(t *testing.T) {
	for _, c := range []struct {
		file, device uint32
		same         bool
	}{
		{0x03636093, 0x13636093, true},  // XC7A200T
		{0x0362d093, 0x0362c093, false}, // XC7A35T and XC7A50T: one die, two parts
		{0x020f30dd, 0x120f30dd, true},
		{0x0900281b, 0x1900281b, true},
		{0x21111043, 0x41111043, false}, // ECP5-12F and -25F
		{0x00000001, 0x20000001, false}, // a maker whose rules are not known
	} {
		if got := sameDevice(c.file, c.device); got != c.same {
			t.Errorf("%08x, %08x: got %v", c.file, c.device, got)
		}
	}
	if got := Names(0x13822093); !slices.Equal(got, []string{"XCKU040"}) {
		t.Errorf("got %v", got)
	}
	if got := Names(0x12345678); got == nil || len(got) != 0 {
		t.Errorf("got %#v", got)
	}
}

// No IDCODE stands twice, and every name leads back to where it came from.
func TestParts(t *testing.T) {
	seen := map[uint32]string{}
	for _, p := range parts {
		if old := seen[p.id]; old != "" {
			t.Errorf("%08x stands for %s and for %s", p.id, old, p.names)
		}
		seen[p.id] = p.names
		if p.id&1 == 0 {
			t.Errorf("%08x: an IDCODE ends in 1", p.id)
		}
		for _, n := range strings.Fields(p.names) {
			if !samePart(strings.ToLower(n), Names(p.id)) {
				t.Errorf("%s is not found under %08x", n, p.id)
			}
		}
	}
	for text, want := range map[string]string{
		"7a35tcpg236": "7a35t", "xcvu9p-flga2104-1-e": "vu9p", "6slx45tfgg484": "6slx45t", "6slx45csg324": "6slx45",
		"3s500evq100": "3s500e", "LFE5UM5G-85F-8CABGA381": "lfe5um5g-85f", "nonsense": "",
	} {
		if got := known(text); got != want {
			t.Errorf("%s: got %q, wanted %q", text, got, want)
		}
	}
}

func TestFit(t *testing.T) {
	fine := func() *Image {
		return &Image{Format: XilinxBit, Part: "7a200tfbg484", IDCodes: []IDCode{{Value: 0x03636093}}, Whole: true, Check: Integrity{State: Valid, Checks: 2}, Segments: []Segment{{0, make([]byte, 1000)}}}
	}
	target := Target{IDCode: 0x13636093, SlotOffset: 0x1000000, SlotBytes: 1000}
	if got := Fit(fine(), target); len(got) != 0 {
		t.Fatalf("got %+v", got)
	}
	for _, c := range []struct {
		name, rule string
		want       Severity
		change     func(*Image, *Target)
	}{
		{"other part", "idcode", Refuse, func(i *Image, _ *Target) { i.IDCodes[0].Value = 0x03631093 }},
		{"device unknown", "idcode", Skipped, func(_ *Image, t *Target) { t.IDCode = 0 }},
		{"no IDCODE", "idcode", Skipped, func(i *Image, _ *Target) { i.IDCodes = nil }},
		{"damaged", "integrity", Refuse, func(i *Image, _ *Target) { i.Check.State = Invalid }},
		{"no check", "integrity", Skipped, func(i *Image, _ *Target) { i.Check.State = Absent }},
		{"cut", "whole", Refuse, func(i *Image, _ *Target) { i.Whole = false }},
		{"partial", "partial", Refuse, func(i *Image, _ *Target) { i.Partial = true }},
		{"encrypted", "encrypted", Warn, func(i *Image, _ *Target) { i.Secret = true }},
		{"nothing to write", "content", Refuse, func(i *Image, _ *Target) { i.Segments = nil }},
		{"too large", "slot", Refuse, func(_ *Image, t *Target) { t.SlotBytes = 999 }},
		{"slot unknown", "slot", Skipped, func(_ *Image, t *Target) { t.SlotBytes = 0 }},
		{"other slot", "slot", Refuse, func(i *Image, _ *Target) { i.Segments[0].Address = 0x2000000 }},
		{"past the slot", "slot", Refuse, func(i *Image, _ *Target) { i.Segments[0].Address = 0x1000001 }},
	} {
		img, target := fine(), target
		c.change(img, &target)
		got := Fit(img, target)
		if !slices.ContainsFunc(got, func(f Finding) bool { return f.Severity == c.want && f.Rule == c.rule && f.Text != "" }) {
			t.Errorf("%s: got %+v", c.name, got)
		}
	}
	linked := fine()
	linked.Segments[0].Address = 0x1000000
	if got := Fit(linked, target); len(got) != 0 {
		t.Errorf("linked for the slot: got %+v", got)
	}
}

// Where a stream sends the device decides which image runs. Golden may try another first; no other slot may.
func TestFitJumps(t *testing.T) {
	const slot = 1 << 24
	for _, c := range []struct {
		name   string
		to     uint32
		now    bool
		offset uint32
		bytes  int64
		want   Severity
	}{
		{"none", 0, false, slot, slot, ""},
		{"another slot, by itself", 2 * slot, true, slot, slot, Refuse},
		{"its own slot, by itself", slot, true, slot, slot, Refuse},
		{"golden, by itself", 0, true, slot, slot, Refuse},
		{"golden goes to a slot", slot, true, 0, slot, Warn},
		{"golden goes to a slot, 32-bit addresses", slot >> 8, true, 0, slot, Warn},
		{"golden goes to itself", 0, true, 0, slot, Refuse},
		{"golden goes into itself", 0x100, true, 0, slot, Refuse},
		{"slot not known", slot, true, 0, 0, Skipped},
		{"set for another slot", 2 * slot, false, slot, slot, Warn},
		{"set for its own slot", slot, false, slot, slot, ""},
		{"set for its own slot, 32-bit addresses", slot >> 8, false, slot, slot, ""},
		{"set, slot not known", slot, false, 0, 0, Warn},
	} {
		e := xilinx.Encoder{IDCode: 0x03636093, WBSTAR: c.to, IPROG: c.now, Runs: []xilinx.Run{{Words: make([]uint32, 101)}}}
		img := read(t, e.Append(nil), Options{})
		var got Severity
		for _, f := range Fit(img, Target{IDCode: 0x13636093, SlotOffset: c.offset, SlotBytes: c.bytes}) {
			if f.Rule == "jump" {
				got = f.Severity
			}
		}
		if got != c.want || img.Check.State != Valid {
			t.Errorf("%s: got %q, want %q; %s", c.name, got, c.want, img.Check)
		}
		if notes := strings.Join(img.Notes, "\n"); strings.Contains(notes, "by itself") != c.now || strings.Contains(notes, "WBSTAR") != (c.now || c.to != 0) {
			t.Errorf("%s: notes %q", c.name, notes)
		}
	}
}
