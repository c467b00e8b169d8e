package signing

import (
	"crypto/ed25519"
	"fmt"
	"strings"
	"time"

	"splicenic/bitstream"
	"splicenic/bitstream/container"
	"splicenic/regs"
	"splicenic/tools/control"
)

// A Request says what a manifest is to say beyond what the image says itself. Empty texts mean the image's own name and
// this host's digests.
type Request struct {
	Name           string
	Version        string // major.minor.patch; needed
	Board          uint32
	MinHost        string
	Rollback       uint32
	ShellDigest    string // 64 hexadecimal digits
	DataPathDigest string
	Created        time.Time
}

// sectorBytes is the grain of the manifest's hashes: the sector of the flashes in use.
const sectorBytes = 64 << 10

// Sign makes a container of an image: the bytes that go into a slot, with a manifest.
func Sign(img *bitstream.Image, r Request, key ed25519.PrivateKey) ([]byte, error) {
	refuse := func(what, do string) ([]byte, error) {
		return nil, control.Refuse("this image cannot be signed", what, do)
	}
	switch {
	case img.Format == bitstream.SPL:
		return refuse("it is a signed container already", "sign the file it was made from")
	case img.Check.State == bitstream.Invalid:
		return refuse("its own checks fail: "+img.Check.Why, "get an undamaged copy")
	case !img.Whole:
		return refuse("it is not whole", "splicectl bitstream info says what is missing")
	case img.Partial:
		return refuse("it is a partial image, which needs another one below it", "sign a whole image")
	case len(img.Segments) == 0:
		return refuse(fmt.Sprintf("files of format %s are not for writing as they are", img.Format), "convert it with its vendor's tool; splicectl bitstream info says to what")
	case len(img.Segments) > 1:
		return refuse(fmt.Sprintf("it has %d regions with gaps between them; a slot takes one run of bytes", len(img.Segments)), "sign an image without gaps")
	case img.Segments[0].Address != 0:
		return refuse(fmt.Sprintf("it is linked for address %#x; the bytes of a slot count from its start", img.Segments[0].Address), "make the file anew with address 0")
	case len(img.IDCodes) == 0:
		return refuse("it names no part by IDCODE, so no card could refuse it", "sign an image that has one")
	}
	m := container.Manifest{
		Name: r.Name, Board: r.Board, IDCode: img.IDCodes[0].Value & 0x0fffffff, Rollback: r.Rollback,
		ShellDigest: first(r.ShellDigest, regs.ShellDigest256), DataPathDigest: first(r.DataPathDigest, regs.DataPathDigest256),
		Created: r.Created.UTC().Format(time.RFC3339), Source: string(img.Format), SectorBytes: sectorBytes,
	}
	if names := img.IDCodes[0].Names; len(names) > 0 {
		m.Part = strings.ToLower(names[0])
	}
	if img.UserCode != nil {
		m.UserCode = *img.UserCode
	}
	if design, _, _ := strings.Cut(img.Design, ";"); design != "" {
		m.Source += ": " + design
		if m.Name == "" {
			m.Name = design
		}
	}
	if m.Name == "" {
		return nil, control.Usage("the image has no name of its own", "give it one with --name")
	}
	var err error
	if m.Version, err = container.ParseVersion(r.Version); err != nil {
		return nil, control.Usage(err.Error(), "say it as in --version 1.2.3")
	}
	if m.MinHost, err = container.ParseVersion(first(r.MinHost, "0.0.0")); err != nil {
		return nil, control.Usage(err.Error(), "say it as in --min-host 1.2.3")
	}
	b, err := container.Sign(m, img.Segments[0].Data, key)
	if err != nil {
		return nil, control.Usage(err.Error(), "correct the flag it names")
	}
	return b, nil
}

func first(s, otherwise string) string {
	if s != "" {
		return s
	}
	return otherwise
}
