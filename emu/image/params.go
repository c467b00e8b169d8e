package image

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"splicenic/regs"
)

// Params are what an image makes of the card.
type Params struct {
	Name           string   `json:"name"`    // identity.name: printable ASCII, at most 32 bytes
	Version        Version  `json:"version"` // identity.image_version
	UserCode       uint32   `json:"user_code"`
	DataPathDigest uint32   `json:"data_path_digest"` // of the register map it was built from
	Geometry       Geometry `json:"geometry"`
}

// A Version is major, minor, patch.
type Version [3]uint32

// String returns it with dots.
func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v[0], v[1], v[2]) }

// Register is the version as identity.image_version has it.
func (v Version) Register() uint32 {
	w := regs.SetIdentityImageVersionMajor(0, v[0])
	return regs.SetIdentityImageVersionPatch(regs.SetIdentityImageVersionMinor(w, v[1]), v[2])
}

// A Geometry says how many entries each memory has. Zero: as many as the card's default.
type Geometry struct {
	Pages          uint32 `json:"pages,omitempty"`
	Heads          uint32 `json:"heads,omitempty"`
	CamClientWords uint32 `json:"cam_client_words,omitempty"`
	CamServerWords uint32 `json:"cam_server_words,omitempty"`
	Listeners      uint32 `json:"listeners,omitempty"`
	Services       uint32 `json:"services,omitempty"`
	Groups         uint32 `json:"groups,omitempty"`
	Slots          uint32 `json:"slots,omitempty"`
	Servers        uint32 `json:"servers,omitempty"`
	LocalPorts     uint32 `json:"local_ports,omitempty"`
	NextHops       uint32 `json:"next_hops,omitempty"`
	Vips           uint32 `json:"vips,omitempty"`
	LocalAddresses uint32 `json:"local_addresses,omitempty"`
	Rules          uint32 `json:"rules,omitempty"`
	UrlNodes       uint32 `json:"url_nodes,omitempty"`
	SourceBuckets  uint32 `json:"source_buckets,omitempty"`
}

const nameBytes = 4 * regs.IdentityNameCount

// check refuses what the registers have no room for.
func (p *Params) check() error {
	if p.Name == "" || len(p.Name) > nameBytes {
		return fmt.Errorf("name of %d bytes, an image has 1 to %d", len(p.Name), nameBytes)
	}
	for _, c := range []byte(p.Name) {
		if c < ' ' || c > '~' {
			return fmt.Errorf("name %q: only printable ASCII", p.Name)
		}
	}
	v := p.Version
	if v[0] > regs.IdentityImageVersionMajorMask>>regs.IdentityImageVersionMajorShift ||
		v[1] > regs.IdentityImageVersionMinorMask>>regs.IdentityImageVersionMinorShift ||
		v[2] > regs.IdentityImageVersionPatchMask>>regs.IdentityImageVersionPatchShift {
		return fmt.Errorf("version %s: at most 127.255.65535", v)
	}
	if p.DataPathDigest == 0 || p.DataPathDigest == 1<<32-1 {
		return fmt.Errorf("data-path digest %#x, which no map has", p.DataPathDigest)
	}
	return nil
}

// Foreign says whether the image was built from another register map than this card.
func (p *Params) Foreign() bool { return p.DataPathDigest != regs.DataPathDigest }

// magic begins the first frame, before the length of the text.
const magic = "SPLICE01"

// maxText bounds the text in the frames.
const maxText = 4096

// frames returns the parameters as frame data.
func (p *Params) frames() ([]byte, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	text, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	b := append([]byte(magic), 0, 0, 0, 0)
	binary.BigEndian.PutUint32(b[len(magic):], uint32(len(text)))
	return append(b, text...), nil
}

// ErrForeign: the stream configures the part, but not to be this card.
var ErrForeign = errors.New("image is no emulated card's")

// Decode reads parameters from the start of frame data. It takes nothing that Encode would not make: no unknown field, no
// value out of range, one spelling.
func Decode(frames []byte) (Params, error) {
	var p Params
	if len(frames) < len(magic)+4 || string(frames[:len(magic)]) != magic {
		return p, fmt.Errorf("%w: the frames do not start with %s", ErrForeign, magic)
	}
	n := binary.BigEndian.Uint32(frames[len(magic):])
	text := frames[len(magic)+4:]
	if n > maxText || uint64(n) > uint64(len(text)) {
		return p, fmt.Errorf("%w: %d bytes of parameters in %d bytes of frames", ErrForeign, n, len(text))
	}
	text = text[:n]
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		return Params{}, fmt.Errorf("%w: its parameters: %w", ErrForeign, err)
	}
	if again, err := p.frames(); err != nil || !bytes.Equal(again[len(magic)+4:], text) {
		if err == nil {
			err = errors.New("they are spelled in another way")
		}
		return Params{}, fmt.Errorf("%w: its parameters: %w", ErrForeign, err)
	}
	return p, nil
}
