package bitstream

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The files lie in Debian's package openfpgaloader; their versions in Debian 12 and 13 are the same to the bit.
const loaderImages = "/usr/share/openFPGALoader"

var rbfFacts = []facts{
	{"10cl025256.rbf", 718569, "5d3e6b2af7556d9cba29dcc1b18f9b60e69ac7c6dc7dba35318689a28fda4c8e", IntelRbf, "", "EP3C25, EP4CE22, 10CL025", "020f30dd", false, "valid 2411", ""},
	{"10cl055484.rbf", 1861195, "38ca6e15f7795c75453b874dd47dbd59762a84261368738da46c0865ce51d96a", IntelRbf, "", "EP4CE55, 10CL055", "020f50dd", false, "valid 4011", ""},
	{"5ce223.rbf", 2632660, "edb511431270711fe1d193f140f17efe35e5e5283037bd06e3187f888cbc85be", IntelRbf, "", "5CEA2", "02b150dd", false, "valid 5025", ""},
	{"5ce423.rbf", 2632660, "f303ce6e72fad5f8f593d0c38b08623222588903301e8c098847f5c24d4b5954", IntelRbf, "", "5CEA4", "02b050dd", false, "valid 5025", ""},
	{"5ce523.rbf", 4244820, "852ad01b3c5b1154e0acd346e54b24870b331667c4885c4482fb834f893850c7", IntelRbf, "", "5CEA5", "02b220dd", false, "valid 6065", ""},
	{"5ce927.rbf", 12858972, "8501b2ff0ffd00e484d280858aa90a735d2c28b8d93232b89bfcd02bfdc3f55c", IntelRbf, "", "5CEA9", "02b140dd", false, "valid 10079", ""},
	{"ep4ce11523.rbf", 3571462, "c332e7a9da1ab7229964a0c394ed517fd18357c0eab300fa6c289ecda55ac28e", IntelRbf, "", "EP4CE115, 10CL120", "020f70dd", false, "valid 5589", ""},
	{"ep4ce1523.rbf", 510856, "ba58cee281499c17bf0bfbc46d37a53788d9c6639a8b73a5044a5b2fe6561933", IntelRbf, "", "EP4CE15, 10CL016", "020f20dd", false, "valid 2003", ""},
	{"ep4ce2217.rbf", 718569, "823efc539831ed8b97b2967a9b18d52292e10ede577dd8c5897d0baa295ec185", IntelRbf, "", "EP3C25, EP4CE22, 10CL025", "020f30dd", false, "valid 2411", ""},
}

func TestRBFFacts(t *testing.T) {
	if _, err := os.Stat(loaderImages); err != nil {
		t.Skip("needs package openfpgaloader (apt-get install --no-install-recommends openfpgaloader): ", err)
	}
	for _, f := range rbfFacts {
		t.Run(f.file, func(t *testing.T) {
			data := unpacked(t, filepath.Join(loaderImages, "spiOverJtag_"+f.file+".gz"))
			if !isRBF(data[:4096]) || isRPD(data[:4096]) {
				t.Fatal("not recognised, or as something else")
			}
			img, err := readRBF(data)
			if err != nil {
				t.Fatal(err)
			}
			f.meet(t, data, img)
			if len(img.Notes) > 0 || len(img.Segments[0].Data) != f.size {
				t.Errorf("notes %q", img.Notes)
			}
			// As a flash holds it.
			turned := reversed(data)
			if isRBF(turned[:4096]) || !isRPD(turned[:4096]) {
				t.Fatal("reversed: not recognised, or as something else")
			}
			back, err := readRPD(turned)
			if err != nil || back.Format != IntelRpd || back.Order != BitsReversed || back.Check != img.Check || !bytes.Equal(back.Segments[0].Data, turned) {
				t.Errorf("reversed: %v", err)
			}
			// Cut off.
			for _, n := range []int{len(data) / 3, len(data) - 500} {
				img, err := readRBF(data[:n])
				if err != nil || img.Whole || img.Check.State != Invalid || !strings.Contains(img.Check.Why, "cut off") {
					t.Errorf("cut at %d: %v, %+v", n, err, img.Check)
				}
			}
			if f.size < 1<<20 {
				if missed := flips(t, data, 33, 60, readRBF); missed > 1 { // a byte before each frame is not counted
					t.Errorf("%d of 60 single bits turned over were not seen", missed)
				}
			}
		})
	}
}

// fiveImage encodes an image of Cyclone V's kind: a periphery of 3 frames and a core of 5. There is no real compressed one
// among the packages, so the coding is written here from its description.
func fiveImage(length int, code byte, packed bool) []byte {
	crc := func(p []byte) []byte { // by bits: the reader has a table
		c := uint16(0xffff)
		for i := range 8 * len(p) {
			low := c&1 != uint16(p[i/8]>>(i%8)&1)
			c >>= 1
			if low {
				c ^= 0xa001
			}
		}
		return append(p, byte(c), byte(c>>8))
	}
	data := bytes.Repeat([]byte{0xff}, 128)
	data = append(data, "jjjj"...)
	options := make([]byte, 162)
	for i := range 8 {
		if code>>i&1 != 0 {
			options[(19+i)*4] |= 0x80 >> 6 // strip 6
		}
	}
	data = append(data, crc(options)...)
	for len(data) < length+104 {
		data = append(data, 0xff)
	}
	frame := func(seed byte, mark ...byte) []byte {
		p := make([]byte, length-2)
		for i := 3; i < len(p); i += 5 {
			p[i] = byte(i) * seed
		}
		copy(p, mark)
		return crc(p)
	}
	data = append(data, frame(1)...)
	data = append(data, frame(2)...)
	data = append(data, frame(3, 0x2a, 0xc5, 0x01)...)
	var core []byte
	core = append(core, frame(5, 0x84, 0x3e, 0x01)...)
	for i := range 3 {
		core = append(core, frame(byte(i+6))...)
	}
	core = append(core, frame(11, 0x42, 0x9f, 0x00)...)
	if packed {
		var nibbles []byte
		for i := 0; i < len(core); i += 2 {
			four := []byte{core[i] & 15, core[i] >> 4, core[i+1] & 15, core[i+1] >> 4}
			at := len(nibbles)
			nibbles = append(nibbles, 0)
			for k, v := range four {
				if v != 0 {
					nibbles[at] |= 1 << k
					nibbles = append(nibbles, v)
				}
			}
		}
		if len(nibbles)%2 != 0 {
			nibbles = append(nibbles, 15)
		}
		core = core[:0]
		for i := 0; i < len(nibbles); i += 2 {
			core = append(core, nibbles[i]|nibbles[i+1]<<4)
		}
	}
	data = append(data, core...)
	data = append(data, crc(append([]byte{0xec, 0x64}, make([]byte, 100)...))...)
	data = append(data, crc(append([]byte{0xae, 0xfb}, make([]byte, 8)...))...)
	return append(data, bytes.Repeat([]byte{0xff}, 100)...)
}

func TestRBFKinds(t *testing.T) {
	plain, packed := fiveImage(524, 0x15, false), fiveImage(524, 0x15, true)
	if len(packed) >= len(plain) {
		t.Fatal("nothing was compressed")
	}
	with := func(data []byte, at int, mask byte) []byte {
		data = bytes.Clone(data)
		data[at] ^= mask
		return data
	}
	for _, row := range []struct {
		name   string
		data   []byte
		state  State
		checks int
		why    string
		also   func(*Image) bool
	}{
		{"plain", plain, Valid, 11, "", func(i *Image) bool {
			return i.Whole && !i.Packed && i.Part == "5CEA2" && field(i, "frames") == "3 and 5, of 524 bytes"
		}},
		{"compressed", packed, Valid, 11, "", func(i *Image) bool { return i.Whole && i.Packed && i.Part == "5CEA2" && len(i.Notes) == 0 }},
		{"odd compressed", fiveImage(700, 0x22, true), Valid, 11, "", func(i *Image) bool { return i.Whole && i.Packed && i.Part == "5CEA5" && len(i.Notes) == 0 }},
		{"unknown device", fiveImage(620, 0x77, false), Valid, 11, "", func(i *Image) bool { return i.Whole && i.Part == "" && field(i, "device code") == "77" }},
		{"options damaged", with(plain, 140, 1), Invalid, 10, "the options", func(i *Image) bool { return i.Whole }},
		{"first frames damaged", with(with(plain, 628+9, 1), 628+524+9, 1), Invalid, 9, "frame 0 of the periphery", func(i *Image) bool { return i.Whole && i.Part == "5CEA2" }},
		{"periphery damaged", with(plain, 628+2*524+9, 1), Invalid, 10, "frame 2 of the periphery", func(i *Image) bool { return i.Whole }},
		{"core damaged", with(plain, 628+5*524+9, 1), Invalid, 10, "frame 2 of the core", func(i *Image) bool { return i.Whole }},
		{"compressed core damaged", with(packed, len(packed)-400, 1), Invalid, 8, "the compressed frame 4 of the core", func(i *Image) bool { return !i.Whole }},
		{"end damaged", with(plain, len(plain)-105, 1), Invalid, 10, "the end", func(i *Image) bool { return i.Whole }},
		{"cut in the core", plain[:628+4*524+3], Invalid, 5, "in frame 1 of the core", func(i *Image) bool { return !i.Whole }},
		{"compressed, cut", packed[:len(packed)-400], Invalid, 8, "in the compressed frame 4", func(i *Image) bool { return !i.Whole }},
		{"cut behind the core", plain[:628+8*524], Invalid, 9, "before ec 64", func(i *Image) bool { return !i.Whole }},
		{"more behind it", append(bytes.Clone(plain), "more"...), Valid, 11, "", func(i *Image) bool { return len(i.Notes) == 1 }},
	} {
		t.Run(row.name, func(t *testing.T) {
			if !isRBF(row.data) {
				t.Fatal("not recognised")
			}
			img, err := readRBF(row.data)
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
	for _, head := range []string{"", "\xff", strings.Repeat("\xff", 100), strings.Repeat("\xff", 32) + "j", strings.Repeat("\xff", 32) + "j" + strings.Repeat("a", 42), strings.Repeat("\xff", 32) + "\x56" + strings.Repeat("a", 442)} {
		if isRBF([]byte(head)) || isRPD([]byte(head)) {
			t.Errorf("%.40q is taken for Intel's", head)
		}
	}
}

// fourHead is the start of a Cyclone IV image: options that hold nothing, and their CRC.
func fourHead() []byte {
	four := append(bytes.Repeat([]byte{0xff}, 32), 0x6a)
	four = append(four, make([]byte, 40)...)
	four = append(four, byte(intelCRC(four[33:])), byte(intelCRC(four[33:])>>8))
	return append(four, make([]byte, 600)...)
}

func FuzzIntel(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		isRBF(data)
		isRPD(data)
		sane(t, data, readRBF)
		sane(t, data, readRPD)
	})
}
