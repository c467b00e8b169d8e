package bitstream

import (
	"crypto/ed25519"
	"fmt"

	"splicenic/bitstream/container"
	"splicenic/bitstream/xilinx"
)

// readSPL reads this project's signed container. The signature is checked with the key in the file, which says that
// nothing was changed since; whether that key is one to trust is for verify.
func readSPL(data []byte) (*Image, error) {
	f, err := container.Open(data)
	if err != nil {
		return nil, bad(SPL, 0, "%v", err)
	}
	m := &f.Manifest
	img := &Image{
		Format: SPL, Design: m.Name + " " + m.Version.String(), Part: m.Part, Date: m.Created, UserCode: &m.UserCode,
		IDCodes: []IDCode{{Value: m.IDCode, Names: Names(m.IDCode)}},
		Payload: Span{int64(len(data) - len(f.Payload)), int64(len(f.Payload))}, Whole: true,
		Check: Integrity{State: Valid, Checks: 2 + len(m.Sectors)}, // signature, payload, sectors
	}
	if err := f.Verify([]ed25519.PublicKey{f.Key}); err != nil {
		img.Check = Integrity{State: Invalid, Why: err.Error()}
	}
	if _, order, ok := xilinx.DetectOrder(f.Payload); ok && order == xilinx.AsIs {
		inner, err := readXilinxBin(f.Payload)
		switch {
		case err != nil:
			img.Check = Integrity{State: Invalid, Why: "the payload: " + err.Error()}
		default:
			img.Vendor, img.Variant, img.Order, img.Packed, img.Secret, img.Partial = inner.Vendor, inner.Variant, inner.Order, inner.Packed, inner.Secret, inner.Partial
			img.Jumps, img.Notes = inner.Jumps, inner.Notes
			if img.Check.State == Valid && inner.Check.State == Invalid {
				img.Check = inner.Check
			}
			if len(inner.IDCodes) > 0 && !sameDevice(inner.IDCodes[0].Value, m.IDCode) {
				img.Check = Integrity{State: Invalid, Why: fmt.Sprintf("the manifest says %s, the payload is for %s", describe(m.IDCode), describe(inner.IDCodes[0].Value))}
			}
		}
	}
	img.Segments, img.Container = []Segment{{0, f.Payload}}, f
	img.Field("board", fmt.Sprintf("0x%08x", m.Board))
	img.Field("needs host", m.MinHost.String())
	img.Field("rollback", fmt.Sprint(m.Rollback))
	img.Field("shell digest", m.ShellDigest)
	img.Field("data-path digest", m.DataPathDigest)
	img.Field("made from", m.Source)
	img.Field("signed by", container.ID(f.Key)+" (bitstream verify says whether it is trusted)")
	return img, nil
}
