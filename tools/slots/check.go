package slots

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"strings"

	"splicenic/bitstream"
	"splicenic/bitstream/container"
	"splicenic/bitstream/program"
	"splicenic/tools/control"
	"splicenic/tools/imagefile"
	"splicenic/tools/signing"
)

// A Request is a load as a user asks for it.
type Request struct {
	File     string
	Slot     int // program.Auto: chosen
	Keys     []string
	Unsigned bool   // a file without a signature, or whose signature is nobody's, will do
	Golden   bool   // write the golden slot
	Running  bool   // write the running slot
	ForHost  string // the image is for this release of the host side, not for the one that loads it; empty: it is
	Raw      bool   // the bytes as they are, for Offset
	Offset   uint32
	Boots    bool // the card is booted afterwards
}

// An Image is a file that was read and found whole.
type Image struct {
	Bytes    []byte // for the slot; nil: raw
	Segments []bitstream.Segment
	Manifest *container.Manifest // nil: not signed
	Notes    []string

	image *bitstream.Image // nil: raw
	asked bitstream.Admission
}

// ReadImage reads a file and checks all that needs no card: what it is, whether it is whole, and who signed it.
func ReadImage(r Request, in io.Reader) (*Image, error) {
	if r.Raw {
		img, err := imagefile.Read(r.File, in, bitstream.Options{Raw: true, Offset: r.Offset})
		if err != nil {
			return nil, err
		}
		return &Image{Segments: img.Segments, Notes: []string{"raw: whether these bytes are an image for this card was not looked at"}}, nil
	}
	img, err := imagefile.Read(r.File, in, bitstream.Options{})
	if err != nil {
		return nil, err
	}
	out := &Image{image: img, Notes: img.Notes}
	if out.asked, err = (signing.Wanted{Keys: r.Keys, ForHost: r.ForHost, Unsigned: r.Unsigned}).Admission(); err != nil {
		return nil, err
	}
	if _, err := out.admit(r.File, out.asked); err != nil {
		return nil, err
	}
	if len(img.Segments) > 1 {
		return nil, control.Refuse(fmt.Sprintf("%s has %d regions with gaps between them", r.File, len(img.Segments)), "a slot takes one run of bytes", "say --raw --offset 0 to write each region at its address, or build the image without gaps")
	}
	out.Bytes = img.Segments[0].Data
	if f := img.Container; f != nil {
		out.Manifest = &f.Manifest
		inner, err := bitstream.Read(bytes.NewReader(f.Payload), bitstream.Options{})
		if err != nil {
			return nil, control.Refuse(r.File+" holds no image", err.Error(), "sign an image")
		}
		if len(inner.Segments) != 1 || !bytes.Equal(inner.Segments[0].Data, f.Payload) {
			return nil, control.Refuse(r.File+" holds a file, not the bytes of a slot", fmt.Sprintf("its payload is %s with %d regions", inner.Format, len(inner.Segments)), "sign it with splicectl bitstream sign, which takes headers off")
		}
	}
	return out, nil
}

// admit is an error where what is asked of the image is not so; else it returns what somebody should know.
func (i *Image) admit(file string, a bitstream.Admission) (notes []string, err error) {
	var refused []string
	for _, f := range bitstream.Admit(i.image, a) {
		switch {
		case f.Severity == bitstream.Refuse:
			refused = append(refused, f.Rule+": "+f.Text)
		case f.Severity == bitstream.Skipped && f.Rule == "slot": // the plan looks at it
		default:
			notes = append(notes, fmt.Sprintf("%s: %s (%s)", f.Rule, f.Text, f.Severity))
		}
	}
	if refused != nil {
		return nil, control.Refuse(file+" is refused", strings.Join(refused, "; "), "splicectl bitstream info says what the file holds, and verify who signed it")
	}
	return notes, nil
}

// Fit is an error where the image is not for this card; else it returns what somebody should know.
func (i *Image) Fit(file string, id program.Identity, slot *program.Slot) (notes []string, err error) {
	a := i.asked
	a.IDCode, a.Board = id.IDCode, id.Board
	if slot != nil {
		a.SlotOffset, a.SlotBytes = slot.Offset, int64(slot.Bytes)
	}
	return i.admit(file, a)
}

// About is what the card's records keep of an image.
func (i *Image) About(file string) program.About {
	a := program.About{Source: file[strings.LastIndexByte(file, '/')+1:]}
	if m := i.Manifest; m != nil {
		a.Version, a.Rollback, a.Signed = m.Version.String(), m.Rollback, true
		if b, err := hex.DecodeString(m.DataPathDigest); err == nil && len(b) == 32 {
			a.DataPathDigest = uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
		}
	}
	return a
}
