package bitstream

import (
	"os"
	"path/filepath"
	"testing"
)

// Real files, which openfpgaloader of Debian 13 ships; SPLICE_IMAGES is a directory that it was unpacked into with
// dpkg-deb -x, where it is not installed.
func TestEfinixPackaged(t *testing.T) {
	for _, f := range []struct {
		name, sha256, part, tool, family string
		bytes                            int64
	}{
		{"t8f81", "d4c1ef6609e8fbc5928c3e5d53c5f670462ddca1be342e17e059230c3a039fd8", "T8F81", "Efinity 2022.2.322.2.14", "Trion", 173380},
		{"t13f256", "a512701588317e5e476ad2755d089cc69d0c868776f894dac0224af27349f708", "T13F256", "Efinity 2024.1.163", "Trion", 609770},
		{"ti60f225", "608f60018b21bc8c34685591c2c627fa10e81003e6d207a05bf49d76209266f9", "Ti60F225", "Efinity 2022.2.322.2.14", "Titanium", 671482},
		{"ti180j484", "287146bd60083ce01b19b0cb1b4c0fdf13ea0f1692cab57e3e2152c8fb113cbc", "Ti180J484", "Efinity 2024.1.163.2.15", "Titanium", 1661396},
	} {
		t.Run(f.name, func(t *testing.T) {
			path := filepath.Join(os.Getenv("SPLICE_IMAGES"), "/usr/share/openFPGALoader/spiOverJtag_efinix_"+f.name+".bit.gz")
			if _, err := os.Stat(path); err != nil {
				t.Skip("only openfpgaloader 0.13 and later brings it")
			}
			data := unpacked(t, path)
			if sha(data) != f.sha256 {
				t.Skipf("%s is another release's: SHA-256 %s", path, sha(data))
			}
			img := read(t, data, Options{Name: path})
			if img.Format != Efinix || img.Part != f.part || img.Tool != f.tool || field(img, "family") != f.family || img.Payload.Bytes != f.bytes || img.Check.State != NotCheckable {
				t.Errorf("got %s, %s, %s, %v, %+v", img.Format, img.Part, img.Tool, img.Fields, img.Payload)
			}
			if field(img, "mode") != "passive" || img.Segments != nil { // made for a host that feeds the device
				t.Errorf("%v, %d segments", img.Fields, len(img.Segments))
			}
		})
	}
}
