package bitstream

import (
	"strings"
	"testing"
)

// Images that free tools made for Xilinx's parts. xc7frames2bit writes no CRC: nobody may call its images valid.
var xilinxFacts = []facts{
	{"xc7a35t_xray.bit", 2192109, "83d3f730cb37df16c01289de997c21133b3e6ad04a9cb6b18ec009ab91c45987", XilinxBit, "32bit", "xc7a35tcpg236-1", "0362d093", false, "absent 0", ""},
	{"xc7a200t_xray.bit", 9730750, "afc9c2e96c0749a7d6c94acea01e7cec013c9ef1737049334c2c230a5c5be997", XilinxBit, "32bit", "xc7a200tfbg484-1", "03636093", false, "absent 0", ""},
	{"xray.xclbin", 2194290, "56e3a0a906b41727e1804940de148134f616bd30521f13e488a7902804fd1a69", Xclbin, "32bit", "xc7a35tcpg236-1", "0362d093", false, "absent 0", "0x240"},
	{"emulator.xclbin", 3653, "c58432c61391f4166069d49f168b84c71460cd2ffe5c23cb184a96fb86b3b48e", Xclbin, "32bit", "7a200tfbg484", "03636093", false, "valid 2", "0x240"},
	{"emulator_signed.xclbin", 4050, "626283af2fafee762fcaf523bf8e8d732ef7664d6bb1e36a055ec54bf3bdaa44", Xclbin, "32bit", "7a200tfbg484", "03636093", false, "valid 2", "0x240"},
}

func TestXilinxMade(t *testing.T) {
	for _, f := range xilinxFacts {
		t.Run(f.file, func(t *testing.T) {
			data := made(t, f.file)
			plain := string(data) // reading may turn bytes where they stand
			img := read(t, data, Options{Name: f.file, Size: int64(len(data))})
			f.meet(t, []byte(plain), img)
			if signed := strings.Contains(f.file, "signed"); signed != (field(img, "signature") != "") {
				t.Errorf("got %v", img.Fields)
			}
			if f.format == Xclbin {
				in := img.Inner[0]
				if field(img, "platform") != "example_vendor_board_1_0" || in.Format != XilinxBit || in.Part != f.part || in.Check != img.Check && img.Check.State == Valid {
					t.Errorf("got %+v, %+v", img.Fields, in)
				}
				return
			}
			if img.Date != "2026/01/01 00:00:00" || img.Tool != "xc7frames2bit" || len(img.Notes) != 0 || len(img.Segments) != 1 {
				t.Errorf("got %q, %q, notes %q", img.Date, img.Tool, img.Notes)
			}
		})
	}
}
