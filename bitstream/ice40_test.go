package bitstream

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

var ice40Facts = []facts{
	{"ice40_hx1k.bin", 32220, "f9a7e21db66ae90d3b1009195f76386b42710a0903e7fc58c94d8a36ed1589ef", ICE40, "", "hx1k, lp1k (geometry only)", "", false, "valid 1", ""},
	{"ice40_hx1k_nohdr.bin", 23996, "b31e200db7701a4a10111bc9d01a7f414a01b5ed3b299ea348f43357a68cf46a", ICE40, "no-bram", "hx1k, lp1k (geometry only)", "", false, "valid 1", ""},
	{"ice40_hx1k_nosleep.bin", 32220, "7981a6823fd0e01ac164c94b9547df3e041908f7ca708edd790465da95c5d694", ICE40, "nosleep", "hx1k, lp1k (geometry only)", "", false, "valid 1", ""},
	{"ice40_hx8k.bin", 135100, "4e406401093ed2e0ec90c55f19ffcdb37e0dae41231abbb624a0eb2bfa3d4300", ICE40, "", "hx8k, lp8k, hx4k (geometry only)", "", false, "valid 1", ""},
	{"ice40_hx8k_nohdr.bin", 118684, "cfff4fae75aba33c0efad745cda790c6d2ca3693161aed142a43c01181cc962b", ICE40, "no-bram", "hx8k, lp8k, hx4k (geometry only)", "", false, "valid 1", ""},
	{"ice40_hx8k_nosleep.bin", 135100, "bc16e442c39988176795422a77061ac70192dd4372077d5d99c6f857fcc24e3d", ICE40, "nosleep", "hx8k, lp8k, hx4k (geometry only)", "", false, "valid 1", ""},
	{"ice40_multi_hx8k.bin", 270360, "d268ba6da9640b373db7f851663d01c8aee331bd23b63158064f8d4131424d01", ICE40, "multiboot", "hx8k, lp8k, hx4k (geometry only)", "", false, "valid 2", "0xa0,0x2105c"},
	{"ice40_up5k.bin", 104090, "4b4e50284ded6eb587426ecdd43b7f32eadff8eba4cba33e2f5fbe49ccecdb7c", ICE40, "", "up5k (geometry only)", "", false, "valid 1", ""},
	{"ice40_up5k_nohdr.bin", 88698, "90219db6620f1d1e65a9b5f8a7ef65c9fefbbb1d0377b36eb833131b6fa20f8a", ICE40, "no-bram", "up5k (geometry only)", "", false, "valid 1", ""},
	{"ice40_up5k_nosleep.bin", 104090, "a34cc84130059257f24ee24b7812e572df06563cbfdf5f17aae38d885ae944a0", ICE40, "nosleep", "up5k (geometry only)", "", false, "valid 1", ""},
}

// makeICE40 makes the files that ice40Facts is about. The design is the one of testdata/made.
func makeICE40(t *testing.T) (dir string, same bool) {
	t.Helper()
	for _, tool := range []string{"yosys", "nextpnr-ice40", "icepack", "icemulti"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip("needs package yosys, nextpnr-ice40, fpga-icestorm and fpga-icestorm-chipdb (apt-get install --no-install-recommends): ", err)
		}
	}
	dir = t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	run := func(line string) string {
		c := exec.Command("sh", "-c", line)
		c.Dir = dir
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
		return string(out)
	}
	write("counter.v", `// tiny counter used for every open-tool image in this lab
module top(input clk, output [3:0] led);
  reg [25:0] c = 0;
  always @(posedge clk) c <= c + 1;
  assign led = c[25:22];
endmodule
`)
	run(`yosys -q -p "read_verilog counter.v; synth_ice40 -top top -json c.json"`)
	for _, d := range []struct{ device, package_, pins string }{
		{"hx1k", "tq144", "21 99 98 97 96"}, {"up5k", "sg48", "35 27 25 21 23"}, {"hx8k", "ct256", "J3 B5 B4 A2 A1"},
	} {
		pins := strings.Fields(d.pins)
		var pcf strings.Builder
		fmt.Fprintf(&pcf, "set_io clk %s\n", pins[0])
		for i, pin := range pins[1:] {
			fmt.Fprintf(&pcf, "set_io led[%d] %s\n", i, pin)
		}
		write("ice.pcf", pcf.String())
		run(fmt.Sprintf("nextpnr-ice40 --%s --package %s --json c.json --pcf ice.pcf --asc c.asc --seed 1 -q", d.device, d.package_))
		for option, name := range map[string]string{"": "", "-s": "_nosleep", "-n": "_nohdr"} {
			run(fmt.Sprintf("icepack %s c.asc ice40_%s%s.bin", option, d.device, name))
		}
	}
	run("icemulti -o ice40_multi_hx8k.bin -p0 ice40_hx8k.bin ice40_hx8k_nosleep.bin")
	// Of other versions of the tools other bytes may come, with the same facts.
	same = strings.Contains(run("yosys -V"), "Yosys 0.23 ") && strings.Contains(run("nextpnr-ice40 --version"), "(Version 0.4")
	return dir, same
}

func TestICE40Facts(t *testing.T) {
	dir, same := makeICE40(t)
	if !same {
		t.Log("other versions of yosys or nextpnr than 0.23 and 0.4: the files' hashes are not compared")
	}
	for _, f := range ice40Facts {
		t.Run(f.file, func(t *testing.T) {
			data, err := os.ReadFile(filepath.Join(dir, f.file))
			if err != nil {
				t.Fatal(err)
			}
			if !same {
				f.sha256 = ""
			}
			if !isICE40(data[:4096]) {
				t.Fatal("not recognised")
			}
			img, err := readICE40(data)
			if err != nil {
				t.Fatal(err)
			}
			f.meet(t, data, img)
			if len(img.Notes) > 0 || len(img.Segments) != 1 || len(img.Segments[0].Data) != f.size {
				t.Errorf("notes %q, %d segments", img.Notes, len(img.Segments))
			}
		})
	}
	data, err := os.ReadFile(filepath.Join(dir, "ice40_up5k.bin"))
	if err != nil {
		t.Fatal(err)
	}
	if missed := flips(t, data, bytes.Index(data, []byte{0x01, 0x05})+2, 400, readICE40); missed > 1 { // fill at the very end
		t.Errorf("%d of 400 single bits turned over were not seen", missed)
	}
}

// ice40File encodes a small image: 8 by 16 bits in two banks, and perhaps block memory.
func ice40File(width int, bram bool, flags byte) []byte {
	var b bytes.Buffer
	crc := uint16(0)
	put := func(p ...byte) {
		for _, c := range p { // by bits: the reader has a table
			for i := range 8 {
				top := crc>>15 != uint16(c>>(7-i)&1)
				crc <<= 1
				if top {
					crc ^= 0x1021
				}
			}
		}
		b.Write(p)
	}
	b.WriteString("\xff\x00a comment\x00\x00\xff")
	put(0x7e, 0xaa, 0x99, 0x7e, 0x51, 0, 0x01, 0x05)
	crc = 0xffff
	put(0x92, 0, flags, 0x62, byte((width-1)>>8), byte(width-1), 0x72, 0, 16, 0x82, 0, 0)
	for bank := range 2 {
		put(0x11, byte(bank), 0x01, 0x01)
		put(bytes.Repeat([]byte{byte(bank + 1)}, width*2)...)
		put(0, 0)
	}
	if bram {
		put(0x11, 0, 0x01, 0x03)
		put(bytes.Repeat([]byte{0x55}, width*2)...)
		put(0, 0)
	}
	put(0x22)
	put(byte(crc>>8), byte(crc))
	put(0x01, 0x06, 0)
	return b.Bytes()
}

func ice40Vectored(targets ...int) []byte {
	var b []byte
	for _, t := range targets {
		v := make([]byte, 32)
		copy(v, []byte{0x7e, 0xaa, 0x99, 0x7e, 0x92, 0, 0, 0x44, 3, byte(t >> 16), byte(t >> 8), byte(t), 0x82, 0, 0, 1, 8})
		b = append(b, v...)
	}
	return b
}

func TestICE40Kinds(t *testing.T) {
	one := ice40File(332, true, 0x20)
	for _, row := range []struct {
		name   string
		data   []byte
		state  State
		checks int
		why    string
		also   func(*Image) bool
	}{
		{"whole", one, Valid, 1, "", func(i *Image) bool {
			return i.Part == "hx1k, lp1k (geometry only)" && i.Fields[0] == Field{"comment", "a comment"} && i.Fields[1] == Field{"warm boot", "enabled"}
		}},
		{"other geometry", ice40File(72, false, 1), Valid, 1, "", func(i *Image) bool { return i.Part == "72 by 16 (geometry only)" && i.Variant == "nosleep no-bram" }},
		{"cut", one[:400], Invalid, 0, "the file ends at byte 400, in the configuration memory of bank 0", func(i *Image) bool { return !i.Whole }},
		{"no end", one[:len(one)-3], Invalid, 1, "before the command that starts", func(i *Image) bool { return !i.Whole }},
		{"no memory", append([]byte("\x7e\xaa\x99\x7e\x51\x00\x01\x06"), 0), Invalid, 0, "no configuration memory", func(i *Image) bool { return !i.Whole }},
		{"no CRC", append(bytes.Clone(one[:len(one)-6]), 1, 6, 0), Absent, 0, "no command", func(i *Image) bool { return i.Whole }},
		{"a vector behind the end", append(ice40Vectored(160, 160, 9999, 160, 160), one...), Invalid, 0, "vector 2 leads to byte 9999", func(i *Image) bool { return !i.Whole && i.Segments == nil }},
		{"a vector to nothing", append(ice40Vectored(160, 170, 160, 160, 160), one...), Invalid, 0, "where no preamble is", func(i *Image) bool { return !i.Whole }},
		{"one image behind vectors", append(ice40Vectored(160, 160, 160, 160, 160), one...), Valid, 1, "", func(i *Image) bool { return i.Variant == "multiboot" && len(i.Inner) == 1 && i.Inner[0].Offset == 160 }},
		{"something behind it", append(bytes.Clone(one), "more"...), Valid, 1, "", func(i *Image) bool { return len(i.Notes) == 1 }},
	} {
		t.Run(row.name, func(t *testing.T) {
			if !isICE40(row.data) {
				t.Fatal("not recognised")
			}
			img, err := readICE40(row.data)
			if err != nil {
				t.Fatal(err)
			}
			if img.Check.State != row.state || img.Check.Checks != row.checks || !strings.Contains(img.Check.Why, row.why) || row.why == "" && img.Check.Why != "" {
				t.Errorf("%+v, want %s %d because of %q", img.Check, row.state, row.checks, row.why)
			}
			if !row.also(img) {
				img.Segments = nil // too long to print
				t.Errorf("%+v", img)
			}
		})
	}
	for _, head := range []string{"", "\x7e\xaa\x99\x7e", "\x01\x7e\xaa\x99\x7e\x51\x00", "\x7e\xaa\x99\x7e\xff\xff"} {
		if isICE40([]byte(head)) {
			t.Errorf("%q is taken for an iCE40's", head)
		}
	}
}

func FuzzICE40(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		isICE40(data)
		sane(t, data, readICE40)
	})
}
