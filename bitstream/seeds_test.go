package bitstream

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the seeds of the fuzz targets anew")

// seeds are where the fuzz targets start, by target and name: whole files of each format, small ones. They are kept in
// testdata/fuzz, so that a plain run of the tests reads them too.
func seeds(t testing.TB) map[string]map[string][]byte {
	body := stream(0x03636093, 101)
	bit := bitFile(body, "lb0;UserID=0XFFFFFFFF;COMPRESS=TRUE;Version=2020.1;SW_CRC=12", "7a200tfbg484", "2023/01/02", "03:04:05")
	header := func(data []byte) []byte { return data[len(bitMagic):] } // FuzzBit puts it there
	order := func(name string) []byte { return orders(body)[name] }
	lattice := func(fill func(*latticeFile)) []byte {
		var f latticeFile
		fill(&f)
		return bytes.Clone(f.end())
	}
	multi := lattice(func(f *latticeFile) { f.begin("", 0x010f1043); f.frames(2, 20) })
	efinixBytes, efinix := makeEfinix(efinixText, []byte("a stream"))
	return map[string]map[string][]byte{
		"FuzzRead": {
			"bit":           bit,
			"bits-reversed": order("bits-reversed"),
			"words-swapped": order("words-swapped"),
			"dump":          []byte("      0:  ff ff ff ff\n      4:  aa 99 55 66\n      8:  20 00 00 00\n"),
			"gzip":          gz(bit),
			"gzip-deep":     gz(gz(gz(gz(body)))),
			"zstd":          zst(t, bit),
			"hex":           []byte(intelHex(0, body)),
			"blank":         bytes.Repeat([]byte{0xff}, 100),
			"flash":         append(bytes.Clone(body), bytes.Repeat([]byte{0xff}, 200)...),
			"pointer":       []byte("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"),
		},
		"FuzzBit": {
			"whole":  header(bit),
			"ise":    header(bitFile(body, "lb0.ncd;UserID=0xFFFFFFFF", "6slx9tqg144")),
			"empty":  header(bitFile(nil)),
			"cut":    header(bitFile(body[:200], "a", "b")),
			"behind": header(append(bitFile(body, "a", "b", "c", "d"), "tail"...)),
		},
		"FuzzHex": {
			"gap":       []byte(":020000040000FA\n:04000000A1A2A3A472\n:020000040007F3\n:02000000B1B29B\n:00000001FF\n"),
			"unordered": []byte(":020000040007F3\r\n:02000000B1B29B\r\n:020000040000FA\r\n\r\n:04000000A1A2A3A472\r\n"),
			"segment":   []byte(record(2, 0, []byte{0x10, 0}) + record(0, 0xfffe, []byte{1, 2, 3, 4}) + record(3, 0, []byte{1, 2, 3, 4}) + record(1, 0, nil) + "more\n"),
			"twice":     []byte(record(0, 4, []byte{5, 6}) + record(0, 0, []byte{1, 2, 3, 4, 5}) + record(0, 2, []byte{3, 4, 5}) + record(5, 0, []byte{1, 2, 3, 4})),
			"stream":    []byte(intelHex(0xfff8, stream(0x03636093, 4))),
		},
		"FuzzRbt": {
			"whole":  []byte(rbt(stream(0x03636093, 4))),
			"bare":   []byte("Xilinx ASCII Bitstream\n10101010100110010101010101100110\n"),
			"halves": []byte("Xilinx ASCII Bitstream\r\nBits: 64\r\n1111111111111111\r\n1010101010011001\r\n0011000010100001\r\n0000000000000111\r\n"),
			"versal": []byte("Xilinx ASCII CFI Deviceimage\nBits: 32\n"),
		},
		"FuzzDump": {
			"lines": []byte("      0:  ff ff ff ff\n      4:  aa 99\n      6:\n      6:  55\n"),
			"gap":   []byte("0: aa bb\n16: cc\n"),
		},
		"FuzzEfinix": {
			"lines":   []byte(efinix),
			"passive": []byte(strings.Replace(efinix, "61\n63", "70\n61\n73\n73", 1)),
			"bytes":   efinixBytes,
		},
		"FuzzLattice": {
			"plain":     lattice(func(f *latticeFile) { f.begin("Part: LFE5U-25F-6CABGA256", 0x41111043); f.frames(3, 74) }),
			"packed":    lattice(func(f *latticeFile) { f.begin("", 0x41111043); f.packed(2, 74) }),
			"unknown":   multi,
			"multiboot": slices.Concat(multi, bytes.Repeat([]byte{0xff}, 40), multi),
			"real-head": made(t, "ecp5_25k_compress_usercode_qspi.bit")[:1024],
		},
		"FuzzICE40": {
			"file":      ice40File(8, true, 0x20),
			"multiboot": append(ice40Vectored(160, 160, 160, 160, 160), ice40File(8, false, 1)...),
		},
		"FuzzGowin": {
			"plain":  []byte(gowinText{id: 0x0900281b, rows: 2, comment: "right"}.String()),
			"packed": []byte(gowinText{id: 0x1100481b, rows: 1, packed: true, crlf: true, first: "10111011"}.String()),
		},
		"FuzzIntel": {
			"five":        fiveImage(300, 0x15, false),
			"five-packed": fiveImage(300, 0x15, true),
			"four-head":   fourHead(),
			"rpd":         reversed(fourHead()),
		},
		"FuzzGateMate": {
			"real-head": made(t, "gatemate_a1.bit")[:400],
			"no-crc":    made(t, "gatemate_a1_nocrc.bit")[:400],
			"quad":      made(t, "gatemate_a1_quad.bit")[:200],
		},
		"FuzzContainers": {
			"pacsign":    makePACSign([]byte("x")),
			"gbs-signed": gbs(`{"version":1,"afu-image":{"interface-uuid":"abc"}}`, makePACSign([]byte("x"))),
			"gbs":        gbs(`{"version":1}`, fiveImage(300, 0x15, false)[:200]),
			"xclbin1":    []byte("xclbin1\x00aaaa"),
			"afi":        []byte("manifest_format_version=2\npci_vendor_id=0x1d0f\n"),
			"sof":        makeQuartus("SOF", 1, "tool\x00", 2, "part\x00", 17, "data"),
			"gbs-legacy": append([]byte(gbsOldMagic), make([]byte, 30)...),
			"xclbin":     makeXclbin(xclbinBitstream, bit, 6, make([]byte, 8)),
			"xclbin-pdi": makeXclbin(xclbinPDI, []byte("x")),
			"real":       made(t, "emulator.xclbin"),
			"sdm":        append([]byte{0x93, 0x65, 0x56, 0x97}, make([]byte, 20)...),
		},
	}
}

// TestSeeds looks whether the files are what seeds says; -update writes them.
func TestSeeds(t *testing.T) {
	all := seeds(t)
	for _, target := range slices.Sorted(maps.Keys(all)) {
		dir := filepath.Join("testdata", "fuzz", target)
		if *update {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(all[target])) {
			kind := "[]byte"
			if target == "FuzzHex" {
				kind = "string"
			}
			text := fmt.Appendf(nil, "go test fuzz v1\n%s(%q)\n", kind, all[target][name])
			path := filepath.Join(dir, name)
			if len(text) > 16<<10 {
				t.Errorf("%s has %d bytes, which is no small seed", path, len(text))
			}
			if *update {
				if err := os.WriteFile(path, text, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			switch have, err := os.ReadFile(path); {
			case err != nil:
				t.Error(err)
			case strings.HasPrefix(name, "gzip"), strings.HasPrefix(name, "zstd"): // packers change
			case !bytes.Equal(have, text):
				t.Errorf("%s is not what its format's writer gives: go test -run TestSeeds -update", path)
			}
		}
	}
}
