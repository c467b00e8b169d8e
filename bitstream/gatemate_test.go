package bitstream

import (
	"strings"
	"testing"
)

var gateMateFacts = []facts{
	{"gatemate_a1.bit", 5907, "a61c186618cd32229a5cd135465a0cfe006bb9a4c563ca78319b78b2c800c2df", GateMate, "", "CCGM1A1 (geometry only)", "", false, "valid 252", ""},
	{"gatemate_a1_nocrc.bit", 5419, "26f83ae2b23e06499c999a0a24b983d378b31e91b48e33467410f66616cbfab8", GateMate, "", "CCGM1A1 (geometry only)", "", false, "not checkable 4", ""},
	{"gatemate_a1_quad.bit", 5923, "dc7ea3a78c5fcf38678031e621dc0d9172a0915bd9c521d7e158b23eedb32212", GateMate, "", "CCGM1A1 (geometry only)", "", false, "valid 254", ""},
	{"gatemate_a2.bit", 6091, "287b24f8f956d0d2d56ff4c3c34c0bad398421fd60e8201c02079cf606fda99b", GateMate, "", "CCGM1A2 (geometry only)", "", false, "valid 274", ""},
}

func TestGateMateFacts(t *testing.T) {
	for _, f := range gateMateFacts {
		t.Run(f.file, func(t *testing.T) {
			data := made(t, f.file)
			if !isGateMate(data) {
				t.Fatal("not recognised")
			}
			img, err := readGateMate(data)
			if err != nil {
				t.Fatal(err)
			}
			f.meet(t, data, img)
			if quad := strings.Contains(f.file, "quad"); quad != (field(img, "spi mode") == "quad") {
				t.Errorf("%v", img.Fields)
			}
			for n := 20; n < len(data)-20; n += 501 {
				img, err := readGateMate(data[:n])
				if err != nil || img.Whole || img.Check.State != Invalid || !strings.Contains(img.Check.Why, "cut off") {
					t.Errorf("cut at %d: %v, %+v", n, err, img.Check)
				}
			}
			if img.Check.State == Valid {
				if missed := flips(t, data, 0, 500, readGateMate); missed > 0 {
					t.Errorf("%d of 500 single bits turned over were not seen", missed)
				}
			}
		})
	}
	for _, head := range []string{"", "\xd9\x01", "\xd9\x01\x00\x00\x10\x00\x00"} {
		if isGateMate([]byte(head)) {
			t.Errorf("%q is taken for GateMate's", head)
		}
	}
}

func FuzzGateMate(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		isGateMate(data)
		sane(t, data, readGateMate)
	})
}
