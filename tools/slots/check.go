package slots

import (
	"bytes"
	"encoding/hex"
	"errors"
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
	Unsigned bool    // a file without a signature, or whose signature is nobody's, will do
	Golden   bool    // write the golden slot
	Running  bool    // write the running slot
	ForHost  string  // the image is for this release of the host side, not for the one that loads it; empty: it is
	Raw      bool    // bytes for addresses of the flash, whatever they are
	Offset   *uint32 // of raw bytes; nil: the file says it, as Intel HEX does
	Boots    bool    // the card is booted afterwards
}

// An Image is a file that was read and found whole.
type Image struct {
	Bytes    []byte // for the slot; nil: raw
	Segments []bitstream.Segment
	Manifest *container.Manifest // nil: not signed
	Notes    []string

	image   *bitstream.Image // nil: raw
	asked   bitstream.Admission
	trusted bool // the manifest is signed by a key that counts
}

// ReadImage reads a file and checks all that needs no card: what it is, whether it is whole, and who signed it.
func ReadImage(r Request, in io.Reader) (*Image, error) {
	if r.Raw {
		return readRaw(r, in)
	}
	img, err := imagefile.Read(r.File, in, bitstream.Options{})
	if err != nil {
		return nil, err
	}
	out := &Image{image: img, Notes: img.Notes}
	if img.Container != nil {
		out.Manifest = &img.Container.Manifest
	}
	if out.asked, err = (signing.Wanted{Keys: r.Keys, ForHost: r.ForHost, Unsigned: r.Unsigned}).Admission(); err != nil {
		return nil, err
	}
	if _, err := out.admit(r.File, out.asked); err != nil {
		return nil, err
	}
	out.trusted = img.Container != nil && img.Container.Verify(out.asked.Trusted) == nil
	if len(img.Segments) > 1 {
		return nil, control.Refuse(fmt.Sprintf("%s has %d regions with gaps between them", r.File, len(img.Segments)), "a slot takes one run of bytes", "say --raw to write each region at its address, or build the image without gaps")
	}
	out.Bytes = img.Segments[0].Data
	if f := img.Container; f != nil {
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

// readRaw reads bytes that go to addresses of the flash. With an offset they are the file's, whatever it is; but an image
// that a flash is given otherwise than it stands in its file is no such thing: its header would be written.
func readRaw(r Request, in io.Reader) (*Image, error) {
	var offset uint32
	if r.Offset != nil {
		offset = *r.Offset
	}
	raw, err := imagefile.Read(r.File, in, bitstream.Options{Raw: true, Offset: offset})
	if err != nil {
		return nil, err
	}
	data := raw.Segments[0].Data
	img, err := bitstream.Read(bytes.NewReader(data), bitstream.Options{})
	damaged, isDamaged := errors.AsType[*bitstream.FormatError](err)
	known := err == nil && img.Format != bitstream.Blank
	switch {
	case r.Offset == nil && known && img.Format == bitstream.IntelHex && len(img.Segments) > 0:
		raw = img
	case r.Offset == nil && isDamaged && damaged.Format == bitstream.IntelHex:
		return nil, control.Explain(r.File, err)
	case r.Offset == nil:
		return nil, control.Usage("raw bytes need --offset: "+r.File+" does not say where they go", "splicectl bitstream load FILE --raw --offset 0x1100000")
	case isDamaged && damaged.Format != bitstream.XilinxBin: // any bytes may hold the start of a bare stream
		return nil, control.Refuse(r.File+" is not written raw", "it is a damaged file of a known format: "+err.Error(), "get an undamaged copy")
	case known && !stands(img, data):
		do := "leave --raw out and name a --slot: what does not belong into a flash is taken off"
		if img.Format == bitstream.IntelHex {
			do = "leave --offset out: the file says where its bytes go"
		}
		return nil, control.Refuse(r.File+" is not written raw", fmt.Sprintf("it is an image, %s, that a flash is given otherwise than it stands in the file", describe(img)), do)
	}
	out := &Image{Segments: raw.Segments, Notes: []string{"raw: whether these bytes are an image for this card was not looked at"}}
	if known {
		out.Notes = append(out.Notes, "the content is "+describe(img))
	}
	for _, f := range bitstream.Fit(raw, bitstream.Target{}) {
		if f.Severity == bitstream.Skipped && f.Rule != "slot" { // the plan looks at it
			out.Notes = append(out.Notes, note(f))
		}
	}
	return out, nil
}

// stands says whether an image is the bytes of its file, with blank ones behind it or none.
func stands(img *bitstream.Image, data []byte) bool {
	if len(img.Segments) != 1 || len(img.Wrapping) > 0 {
		return false
	}
	rest, ok := bytes.CutPrefix(data, img.Segments[0].Data)
	return ok && len(bytes.Trim(rest, "\xff")) == 0
}

func describe(img *bitstream.Image) string {
	s := string(img.Format)
	for _, w := range img.Wrapping {
		s += " in " + w
	}
	return s
}

func note(f bitstream.Finding) string { return fmt.Sprintf("%s: %s (%s)", f.Rule, f.Text, f.Severity) }

// admit is an error where what is asked of the image is not so; else it returns what somebody should know.
func (i *Image) admit(file string, a bitstream.Admission) (notes []string, err error) {
	var refused []string
	for _, f := range bitstream.Admit(i.image, a) {
		switch {
		case f.Severity == bitstream.Refuse:
			refused = append(refused, f.Rule+": "+f.Text)
		case f.Severity == bitstream.Skipped && f.Rule == "slot": // the plan looks at it
		default:
			notes = append(notes, note(f))
		}
	}
	if refused != nil {
		do := "splicectl bitstream info says what the file holds, and verify who signed it"
		if len(refused) == 1 && strings.HasPrefix(refused[0], "signature: ") && i.Manifest != nil {
			do = "name the file with its public key by --key, or say --unsigned"
		}
		return nil, control.Refuse(file+" is refused", strings.Join(refused, "; "), do)
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

// About is what the card's records keep of an image. What a manifest says counts only if a trusted key signed it: a stranger's
// rollback counter, once accepted, would keep the card from ever taking a real image again.
func (i *Image) About(file string) program.About {
	a := program.About{Source: file[strings.LastIndexByte(file, '/')+1:]}
	if m := i.Manifest; m != nil && i.trusted {
		a.Version, a.Rollback, a.Signed = m.Version.String(), m.Rollback, true
		if b, err := hex.DecodeString(m.DataPathDigest); err == nil && len(b) == 32 {
			a.DataPathDigest = uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
		}
	}
	return a
}
