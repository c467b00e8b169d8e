package slots

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"slices"
	"strings"
	"testing"

	"splicenic/bitstream/program"
	"splicenic/bitstream/xilinx"
	"splicenic/emu/flash"
	"splicenic/tools/control"
)

func withHeader(t *testing.T, design, part string, stream []byte) []byte {
	t.Helper()
	head, err := xilinx.BitHeader{Design: design, Part: part, Date: "2023/01/02", Time: "03:04:05"}.Append(nil, len(stream))
	if err != nil {
		t.Fatal(err)
	}
	return append(head, stream...)
}

func packed(data []byte) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	z.Write(data)
	z.Close()
	return b.Bytes()
}

// noted says whether a note starts like this.
func noted(notes []string, prefix string) bool {
	return slices.ContainsFunc(notes, func(n string) bool { return strings.HasPrefix(n, prefix) })
}

// An image for another part is refused before anything is erased, whatever its header says; a header that says another part
// than the stream is a warning. What is forced is in the plan.
func TestCaseE03Load(t *testing.T) {
	s, e := emulated(t, nil)
	frames := make([]uint32, 404)
	good := stream(t, 2, 0)
	other := (&xilinx.Encoder{IDCode: 0x03631093, Runs: []xilinx.Run{{Words: frames}}}).Append(nil)
	for _, c := range []struct {
		name, part string
		stream     []byte
		refused    bool
		warned     bool
	}{
		{"all agree", "7a200tfbg484", good, false, false},
		{"the text differs", "7a100tfbg484", good, false, true},
		{"the stream differs", "7a200tfbg484", other, true, false},
		{"the card differs", "7a100tfbg484", other, true, false},
		{"no text", "", good, false, false},
	} {
		for _, forced := range []bool{false, true} { // neither does away with the IDCODE
			r := Request{File: save(t, "x.bit", withHeader(t, "top", c.part, c.stream)), Slot: 1, Unsigned: true, Running: forced, Golden: forced}
			p, err := planned(t, s, r)
			if c.refused {
				if f := failure(t, err); f.Exit != control.ExitRefused || !strings.Contains(f.Why, "XC7A100T") || !strings.Contains(f.Why, "XC7A200T (0x13636093)") {
					t.Errorf("%s: got %+v", c.name, f)
				}
				continue
			}
			if err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			if got := noted(p.Notes, "part: the image's text says 7a100tfbg484"); got != c.warned {
				t.Errorf("%s: notes %q", c.name, p.Notes)
			}
			if !noted(p.Notes, "forced, --unsigned: ") || noted(p.Notes, "forced, --force-running: ") != forced {
				t.Errorf("%s: notes %q", c.name, p.Notes)
			}
		}
	}
	if n := erased(e); n != nil {
		t.Errorf("sectors %v were erased", n)
	}
}

// Whatever the file is called and wrapped in, the flash gets the stream, and no byte of a header.
func TestCaseE05Load(t *testing.T) {
	s, e := emulated(t, nil)
	for i, c := range []struct {
		name  string
		data  func(bit, bin []byte) []byte
		clash bool
	}{
		{"x.bin", func(bit, _ []byte) []byte { return bit }, true},
		{"x.BIT", func(bit, _ []byte) []byte { return bit }, false},
		{"x", func(bit, _ []byte) []byte { return bit }, false},
		{"x.bit.gz", func(bit, _ []byte) []byte { return packed(bit) }, false},
		{"x.bit", func(_, bin []byte) []byte { return bin }, true},
	} {
		bin := stream(t, uint32(i+2), 0)
		bit := withHeader(t, "lb0;UserID=0XFFFFFFFF", "7a200tfbg484", bin)
		path := save(t, c.name, c.data(slices.Clone(bit), slices.Clone(bin)))
		p := mustLoad(t, s, Request{File: path, Slot: 1, Unsigned: true})
		if got := noted(p.Notes, "the content is xilinx-bi"); got != c.clash {
			t.Errorf("%s: notes %q", c.name, p.Notes)
		}
		if got := read(t, s, slot1, sector); !bytes.Equal(got[:len(bin)], bin) || len(bytes.Trim(got[len(bin):], "\xff")) != 0 {
			t.Errorf("%s: the flash holds something else than the stream", c.name)
		}
		before := len(erased(e))
		at := uint32(slot2)
		_, err := planned(t, s, Request{File: path, Raw: true, Offset: &at})
		if bytes.Equal(c.data(bit, bin), bin) {
			if err != nil {
				t.Errorf("%s, raw: %v", c.name, err)
			}
		} else if f := failure(t, err); f.Exit != control.ExitRefused || !strings.Contains(f.Why, "xilinx-bit") || !strings.Contains(f.Do, "leave --raw out") {
			t.Errorf("%s, raw: got %+v", c.name, f)
		}
		if len(erased(e)) != before {
			t.Errorf("%s: a refusal has erased something", c.name)
		}
	}
}

// What is no image is named, and is written with a word and an address only.
func TestCaseE09Load(t *testing.T) {
	s, e := emulated(t, nil)
	at := uint32(slot1 + 3*sector)
	for _, c := range []struct {
		name, data, got string
		raw             int // exit code with --raw and --offset
	}{
		{"x.sof", "SOF\x00 and so on, for as long as such a file is", "", 6},
		{"x.elf", "\x7fELF\x02\x01\x01", "an ELF program", 0},
		{"x.txt", "all sorts of text", "text that starts with", 0},
		{"x.bin", "\x01\x02\x03\x04 unknown", "unknown content that starts with 01 02 03 04", 0},
		{"x.bit", "", "an empty file", 2},
	} {
		path := save(t, c.name, []byte(c.data))
		_, err := planned(t, s, Request{File: path, Slot: 1, Unsigned: true})
		f := failure(t, err)
		if c.got != "" && (f.Exit != control.ExitUsage || !strings.Contains(f.What, "got "+c.got) || !strings.Contains(f.What, "wanted an FPGA image")) {
			t.Errorf("%s: got %+v", c.name, f)
		}
		_, err = planned(t, s, Request{File: path, Raw: true})
		if f := failure(t, err); f.Exit != control.ExitUsage || c.data != "" && !strings.Contains(f.What, "raw bytes need --offset") {
			t.Errorf("%s, raw without an offset: got %+v", c.name, f)
		}
		p, err := planned(t, s, Request{File: path, Raw: true, Offset: &at})
		switch {
		case c.raw != 0:
			if f := failure(t, err); f.Exit != c.raw {
				t.Errorf("%s, raw: got %+v", c.name, f)
			}
		case err != nil || p.Offset != at || p.Bytes != len(c.data) || !noted(p.Notes, "forced, --raw: "):
			t.Errorf("%s, raw: %+v, %v", c.name, p, err)
		}
	}
	if n := erased(e); n != nil {
		t.Errorf("sectors %v were erased", n)
	}
}

// The two regions of a file with a gap go into a flash full of 5a: only their sectors are erased, and what lies beside them in
// these sectors stays. Records out of order do the same; two values for one byte are refused.
func TestCaseE13Load(t *testing.T) {
	const (
		low  = ":020000040000FA\n:04000000A1A2A3A472\n"
		high = ":020000040007F3\n:02000000B1B29B\n"
		end  = ":00000001FF\n"
	)
	full := bytes.Repeat([]byte{0x5a}, 16*sector)
	for name, text := range map[string]string{"in order": low + high + end, "out of order": high + low + end} {
		f, err := flash.New(flash.Config{Part: flash.MT25QL512, Store: flash.NewMemory(flash.MT25QL512, slices.Clone(full)), Scale: 0.0001})
		if err != nil {
			t.Fatal(err)
		}
		s, e := emulated(t, f)
		r := Request{File: save(t, "x.mcs", []byte(text)), Raw: true, Golden: true, Running: true}
		p := mustLoad(t, s, r)
		if p.Bytes != 6 || p.Erase != 2 || p.Write != 2 || len(p.Steps) != 2 {
			t.Errorf("%s: planned %+v", name, p)
		}
		want := slices.Clone(full)
		copy(want, "\xa1\xa2\xa3\xa4")
		copy(want[0x70000:], "\xb1\xb2")
		if !bytes.Equal(read(t, s, 0, len(full)), want) {
			t.Errorf("%s: the flash does not hold both regions and 5a beside them", name)
		}
		got := erased(e)
		if got = slices.DeleteFunc(got, func(n int) bool { return n >= 48<<20/sector }); fmt.Sprint(got) != "[0 7]" { // records
			t.Errorf("%s: sectors %v were erased", name, got)
		}
	}
	s, _ := emulated(t, nil)
	_, err := planned(t, s, Request{File: save(t, "x.mcs", []byte(low+":02000300A5FF57\n"+end)), Raw: true, Golden: true, Running: true})
	if f := failure(t, err); f.Exit != control.ExitFailed || !strings.Contains(f.Why, "is given twice") {
		t.Errorf("an overlap that differs: %+v", f)
	}
	at := uint32(slot1)
	_, err = planned(t, s, Request{File: save(t, "x.mcs", []byte(low+":02000300A5FF58\n"+end)), Raw: true, Offset: &at})
	if f := failure(t, err); f.Exit != control.ExitRefused || !strings.Contains(f.Why, "damaged file of a known format: intel-hex") {
		t.Errorf("a damaged one with an offset: %+v", f)
	}
	gap := save(t, "x.mcs", []byte(low+high+end))
	_, err = planned(t, s, Request{File: gap, Raw: true, Offset: &at})
	if f := failure(t, err); f.Exit != control.ExitRefused || !strings.Contains(f.Do, "leave --offset out") {
		t.Errorf("with an offset: %+v", f)
	}
	_, err = planned(t, s, Request{File: gap, Slot: 1, Unsigned: true})
	if f := failure(t, err); f.Exit != control.ExitRefused || !strings.Contains(f.Why+f.What, "2 regions") && !strings.Contains(f.Why, "slot") {
		t.Errorf("into a slot: %+v", f)
	}
}

// A flash that ignores bit 21 of its addresses: 3 MiB fail at 0x200000, with both values and a suspicion.
func TestCaseE15Load(t *testing.T) {
	s, e := emulated(t, nil)
	e.WithFlash(func(f *flash.Flash) { f.Wrap(0x200000) })
	data := make([]byte, 3<<20)
	for i := range data {
		data[i] = byte(i>>8) ^ byte(i>>16) | 1
	}
	at := uint32(slot1)
	var out strings.Builder
	told := NewProgress(&out, false)
	p := mustPlan(t, s, Request{File: save(t, "x.bin", data), Raw: true, Offset: &at})
	err := Run(t.Context(), p, told.Show)
	f := failure(t, err)
	if f.Exit != control.ExitFailed || !strings.Contains(f.Why, "verify failed at offset 2097152 (0x200000, flash address 0x1200000): expected ") || !strings.Contains(f.Why, ", read ") || !strings.Contains(f.Why, "suspicion: address wrap or flash size") {
		t.Errorf("got %+v", f)
	}
	if strings.Contains(out.String(), "100 %") {
		t.Errorf("it says that it is done:\n%s", out.String())
	}
}

// Raw bytes go where they are told to, and checks that need what they lack are skipped, and said to be.
func TestCaseE17Load(t *testing.T) {
	s, e := emulated(t, nil)
	raw := bytes.Repeat([]byte{0x5a, 1, 2, 3}, 1024)
	golden := read(t, s, 0, sector)
	for _, at := range []uint32{0x100000, slot1 + 0x100000} {
		r := Request{File: save(t, "raw.bin", raw), Raw: true, Offset: &at, Golden: at < slot1, Running: at < slot1}
		p := mustLoad(t, s, r)
		if p.Slot != -1 || p.Offset != at || p.Bytes != 4096 || p.Write != 1 || p.Erase != 0 {
			t.Errorf("planned %+v", p)
		}
		for _, want := range []string{"raw: whether these bytes are an image", "idcode: the image holds no IDCODE", "part: the image names no part", "integrity: absent: raw bytes", "forced, --raw: "} {
			if !noted(p.Notes, want) {
				t.Errorf("no note %q among %q", want, p.Notes)
			}
		}
		got := read(t, s, at-16, 4096+32)
		if !bytes.Equal(got[16:][:4096], raw) || len(bytes.Trim(append(got[:16:16], got[16+4096:]...), "\xff")) != 0 {
			t.Errorf("the flash does not hold the bytes at %#x, or something beside them", at)
		}
	}
	if got := read(t, s, 0, sector); !bytes.Equal(got, golden) || slices.Contains(erased(e), 0) {
		t.Error("the golden image was touched")
	}
	// A text header without its keys.
	body := stream(t, 2, 0)
	var text strings.Builder
	text.WriteString("Xilinx ASCII Bitstream\n")
	for i := 0; i < len(body); i += 4 {
		fmt.Fprintf(&text, "%08b%08b%08b%08b\n", body[i], body[i+1], body[i+2], body[i+3])
	}
	p := mustLoad(t, s, Request{File: save(t, "x.rbt", []byte(text.String())), Slot: 1, Unsigned: true})
	if !noted(p.Notes, "part: the image names no part (skipped)") || !bytes.Equal(read(t, s, slot1, len(body)), body) {
		t.Errorf("a header without keys: notes %q", p.Notes)
	}
}

// TestAddressChoosesTheSlot: an Intel HEX file for the address of slot 2 goes there, not to the slot that would be chosen.
func TestAddressChoosesTheSlot(t *testing.T) {
	s, _ := emulated(t, nil)
	body := stream(t, 2, 0)
	hex := func(at uint32) string {
		var b strings.Builder
		line := func(off uint32, kind byte, data ...byte) {
			rec := append([]byte{byte(len(data)), byte(off >> 8), byte(off), kind}, data...)
			sum := byte(0)
			for _, v := range rec {
				sum -= v
			}
			fmt.Fprintf(&b, ":%X%02X\n", rec, sum)
		}
		for i := 0; i < len(body); i += 16 {
			a := at + uint32(i)
			if i == 0 || a&0xffff == 0 {
				line(0, 4, byte(a>>24), byte(a>>16))
			}
			line(a&0xffff, 0, body[i:min(i+16, len(body))]...)
		}
		line(0, 1)
		return save(t, "x.mcs", []byte(b.String()))
	}
	for _, tt := range []struct {
		at   uint32
		slot int
	}{{0, 1}, {slot1, 1}, {slot2, 2}} {
		p, err := planned(t, s, Request{File: hex(tt.at), Slot: program.Auto, Unsigned: true})
		if err != nil || p.Slot != tt.slot || p.Offset != map[int]uint32{1: slot1, 2: slot2}[tt.slot] {
			t.Errorf("a file for %#x: %v, %+v, want slot %d", tt.at, err, p, tt.slot)
		}
	}
	if _, err := planned(t, s, Request{File: hex(0x3100000), Slot: program.Auto, Unsigned: true}); err == nil || !strings.Contains(failure(t, err).Why, "in no slot") {
		t.Errorf("a file for an address in no slot: %v", err)
	}
}
