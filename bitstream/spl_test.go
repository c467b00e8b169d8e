package bitstream

import (
	"bytes"
	"crypto/ed25519"
	"slices"
	"strings"
	"testing"

	"splicenic/bitstream/container"
)

// spl is a signed container of a payload.
func spl(t *testing.T, payload []byte, change func(m *container.Manifest)) []byte {
	t.Helper()
	m := container.Manifest{
		Name: "top", Version: container.Version{Major: 2, Patch: 7}, Board: 0x11, Part: "xc7a200t", IDCode: 0x03636093, ShellDigest: strings.Repeat("0a", 32),
		DataPathDigest: strings.Repeat("0b", 32), MinHost: container.Version{Major: 1, Minor: 2}, Rollback: 5, Created: "2026-01-02T03:04:05Z", SectorBytes: 4096,
		Source: "xilinx-bit: top", UserCode: 0xc0ffee,
	}
	if change != nil {
		change(&m)
	}
	b, err := container.Sign(m, payload, ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A container is its manifest and its payload, of which a flash gets nothing but the latter.
func TestSPL(t *testing.T) {
	payload := stream(0x03636093, 2020)
	data := spl(t, payload, nil)
	img := read(t, slices.Clone(data), Options{Name: "x.spl"})
	if img.Format != SPL || img.Design != "top 2.0.7" || img.Part != "xc7a200t" || img.Date != "2026-01-02T03:04:05Z" || *img.UserCode != 0xc0ffee || !img.Whole || len(img.Notes) != 0 {
		t.Errorf("got %+v", img)
	}
	if len(img.IDCodes) != 1 || img.IDCodes[0].Value != 0x03636093 || !slices.Equal(img.IDCodes[0].Names, []string{"XC7A200T"}) {
		t.Errorf("got %+v", img.IDCodes)
	}
	if img.Vendor != "xilinx" || img.Variant != "32bit" || img.Order != AsIs { // what the payload says of itself
		t.Errorf("got %q, %q, %q", img.Vendor, img.Variant, img.Order)
	}
	sectors := (len(payload) + 4095) / 4096
	if img.Check.State != Valid || img.Check.Checks != 2+sectors {
		t.Errorf("got %+v, wanted a signature, a payload and %d sectors", img.Check, sectors)
	}
	if len(img.Segments) != 1 || img.Segments[0].Address != 0 || !bytes.Equal(img.Segments[0].Data, payload) {
		t.Error("a flash would get something other than the payload")
	}
	if !bytes.Equal(data[img.Payload.Offset:][:img.Payload.Bytes], payload) {
		t.Errorf("the payload is not at %+v", img.Payload)
	}
	if img.Container == nil || img.Container.Manifest.Rollback != 5 {
		t.Error("no container")
	}
	key := container.ID(ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)).Public().(ed25519.PublicKey))
	for name, want := range map[string]string{
		"board": "0x00000011", "needs host": "1.2.0", "rollback": "5", "shell digest": strings.Repeat("0a", 32), "data-path digest": strings.Repeat("0b", 32),
		"made from": "xilinx-bit: top", "signed by": key + " (bitstream verify says whether it is trusted)",
	} {
		if got := field(img, name); got != want {
			t.Errorf("%s is %q, wanted %q", name, got, want)
		}
	}
}

// Whatever byte is changed, the file is invalid or refused, and never valid.
func TestSPLDamaged(t *testing.T) {
	data := spl(t, stream(0x03636093, 404), nil)
	for at := range data {
		damaged := slices.Clone(data)
		damaged[at] ^= 0x10
		img, err := Read(bytes.NewReader(damaged), Options{})
		if err == nil && img.Format == SPL && img.Check.State != Invalid {
			t.Fatalf("byte %d of %d was changed, and got %s", at, len(data), img.Check)
		}
	}
	for _, n := range []int{len(data) - 1, len(data) - 404, 100, len(container.Magic)} {
		if img, err := Read(bytes.NewReader(data[:n]), Options{}); err == nil && img.Check.State == Valid {
			t.Errorf("%d of %d bytes: %s", n, len(data), img.Check)
		}
	}
}

// A manifest about another payload than it has is invalid, with both values; so is a damaged payload that somebody signed.
func TestSPLPayload(t *testing.T) {
	good := stream(0x03636093, 404)
	broken := slices.Clone(good)
	broken[len(broken)-200] ^= 1
	for name, c := range map[string]struct {
		payload []byte
		change  func(m *container.Manifest)
		state   State
		why     []string
	}{
		"another part":           {stream(0x03631093, 404), nil, Invalid, []string{"the manifest says XC7A200T (0x03636093)", "the payload is for XC7A100T (0x03631093)"}},
		"another version of it":  {good, func(m *container.Manifest) { m.IDCode = 0x13636093 }, Valid, nil},
		"a CRC that is wrong":    {broken, nil, Invalid, []string{""}},
		"no stream of this kind": {bytes.Repeat([]byte{1, 2, 3, 4}, 100), nil, Valid, nil},
	} {
		img := read(t, spl(t, c.payload, c.change), Options{})
		if img.Check.State != c.state {
			t.Errorf("%s: got %+v, wanted %s", name, img.Check, c.state)
		}
		for _, want := range c.why {
			if img.Check.Why == "" || !strings.Contains(img.Check.Why, want) {
				t.Errorf("%s: got %q, wanted %q", name, img.Check.Why, want)
			}
		}
	}
}
