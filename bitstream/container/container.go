package container

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Magic begins every container.
const Magic = "\x89SPL\r\n\x1a\n"

// Limits of the layout.
const (
	headBytes   = 16
	MaxManifest = 1 << 20
	MaxPayload  = 1 << 30
	layout      = 1
	signedText  = "splicenic image\n" // keeps a signature for this purpose alone
)

// Errors that callers test with errors.Is.
var (
	ErrNotContainer = errors.New("not an .spl container")
	ErrMalformed    = errors.New("malformed container")
	ErrKey          = errors.New("signed by a key that is not among the trusted ones")
	ErrSignature    = errors.New("the signature does not hold")
	ErrDigest       = errors.New("the payload is not what the manifest describes")
)

// A Manifest says what a payload is, and which card and host it is for.
type Manifest struct {
	Name           string   `json:"name"`    // of the image, printable ASCII, at most 32 bytes
	Version        Version  `json:"version"` // of the image
	Board          uint32   `json:"board"`   // identity.board
	Part           string   `json:"part"`    // for people: xc7a200t
	IDCode         uint32   `json:"idcode"`  // of the part the image is for, version bits zero
	UserCode       uint32   `json:"user_code"`
	ShellDigest    string   `json:"shell_digest"`     // SHA-256 as 64 hexadecimal digits
	DataPathDigest string   `json:"data_path_digest"` // likewise
	MinHost        Version  `json:"min_host"`         // the first release of the host side that drives this image
	Rollback       uint32   `json:"rollback"`         // a card that took a higher one refuses this image
	Created        string   `json:"created"`          // RFC 3339
	Source         string   `json:"source"`           // format and design of the file it was made from
	Bytes          int      `json:"bytes"`            // of the payload
	SHA256         string   `json:"sha256"`           // of the payload
	SectorBytes    int      `json:"sector_bytes"`     // grain of Sectors
	Sectors        []string `json:"sectors"`          // SHA-256 of each run of SectorBytes; the last may be shorter
}

// A Version is the version of an image or a host, major.minor.patch.
type Version struct{ Major, Minor, Patch uint32 }

// String returns the version with dots.
func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Patch) }

// Less says whether v is older than o.
func (v Version) Less(o Version) bool {
	if v.Major != o.Major {
		return v.Major < o.Major
	}
	if v.Minor != o.Minor {
		return v.Minor < o.Minor
	}
	return v.Patch < o.Patch
}

// ParseVersion reads major.minor.patch, as the card's registers can hold it: at most 127.255.65535. A leading v is allowed.
func ParseVersion(s string) (Version, error) {
	var n [3]uint32
	f := strings.Split(strings.TrimPrefix(s, "v"), ".")
	if len(f) == 3 {
		for i, bits := range []int{7, 8, 16} {
			x, err := strconv.ParseUint(f[i], 10, bits)
			if err != nil || strconv.FormatUint(x, 10) != f[i] {
				f = nil
				break
			}
			n[i] = uint32(x)
		}
	}
	if len(f) != 3 {
		return Version{}, fmt.Errorf("version %q is not major.minor.patch of numbers up to 127.255.65535", s)
	}
	return Version{n[0], n[1], n[2]}, nil
}

// MarshalText and UnmarshalText are the form in a manifest.
func (v Version) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// UnmarshalText reads what MarshalText writes.
func (v *Version) UnmarshalText(b []byte) (err error) {
	*v, err = ParseVersion(string(b))
	return err
}

// A File is a container that has been taken apart. Before Verify nothing of it is to be believed.
type File struct {
	Manifest  Manifest
	Payload   []byte // of the bytes given to Open
	Key       ed25519.PublicKey
	signed    []byte // what the signature is of
	signature []byte
}

// Is says whether head, the first bytes of a file, begins a container.
func Is(head []byte) bool { return bytes.HasPrefix(head, []byte(Magic)) }

// Open takes a container apart. It keeps data.
func Open(data []byte) (*File, error) {
	if !Is(data) {
		if bytes.HasPrefix(data, []byte("\x89SPL\n")) || bytes.HasPrefix(data, []byte("\x89SPL\r\r\n")) {
			return nil, fmt.Errorf("%w: its line ends were converted: copy it in binary mode", ErrMalformed)
		}
		return nil, ErrNotContainer
	}
	if len(data) < headBytes {
		return nil, fmt.Errorf("%w: it ends after %d bytes, within its head of %d", ErrMalformed, len(data), headBytes)
	}
	if v := binary.LittleEndian.Uint32(data[8:]); v != layout {
		return nil, fmt.Errorf("%w: layout %d, this host reads %d", ErrMalformed, v, layout)
	}
	m := binary.LittleEndian.Uint32(data[12:])
	if m > MaxManifest {
		return nil, fmt.Errorf("%w: it announces a manifest of %d bytes, %d are allowed", ErrMalformed, m, MaxManifest)
	}
	key := headBytes + int(m)
	sig, payload := key+ed25519.PublicKeySize, key+ed25519.PublicKeySize+ed25519.SignatureSize
	if len(data) < payload {
		return nil, fmt.Errorf("%w: it ends after %d bytes, before its payload at %d", ErrMalformed, len(data), payload)
	}
	f := &File{Payload: data[payload:], Key: ed25519.PublicKey(data[key:sig]), signed: data[:sig], signature: data[sig:payload]}
	if err := f.Manifest.decode(data[headBytes:key]); err != nil {
		return nil, err
	}
	if len(f.Payload) != f.Manifest.Bytes {
		return nil, fmt.Errorf("%w: the payload has %d bytes, the manifest says %d", ErrMalformed, len(f.Payload), f.Manifest.Bytes)
	}
	return f, nil
}

// decode reads the canonical form alone, so that no two readers see two manifests in one text.
func (m *Manifest) decode(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(m); err != nil {
		return fmt.Errorf("%w: manifest: %w", ErrMalformed, err)
	}
	if again, err := m.encode(); err != nil || !bytes.Equal(again, text) {
		return fmt.Errorf("%w: the manifest is not in its canonical form: fields are missing, doubled, out of order or spaced otherwise", ErrMalformed)
	}
	if err := m.check(); err != nil {
		return fmt.Errorf("%w: manifest: %w", ErrMalformed, err)
	}
	return nil
}

func (m *Manifest) encode() ([]byte, error) { return json.Marshal(m) }

// check says what of a manifest cannot be.
func (m *Manifest) check() error {
	if m.Name == "" || len(m.Name) > 32 || strings.ContainsFunc(m.Name, func(r rune) bool { return r < ' ' || r > '~' }) {
		return fmt.Errorf("name %q is not 1 to 32 printable ASCII characters", m.Name)
	}
	for _, h := range []struct{ name, value string }{{"shell_digest", m.ShellDigest}, {"data_path_digest", m.DataPathDigest}, {"sha256", m.SHA256}} {
		if err := digest(h.name, h.value); err != nil {
			return err
		}
	}
	if _, err := time.Parse(time.RFC3339, m.Created); err != nil {
		return fmt.Errorf("created is %q, not a date and time of RFC 3339", m.Created)
	}
	if m.Bytes <= 0 || m.Bytes > MaxPayload {
		return fmt.Errorf("bytes is %d, not between 1 and %d", m.Bytes, MaxPayload)
	}
	if s := m.SectorBytes; s < 4096 || s > 1<<20 || s&(s-1) != 0 {
		return fmt.Errorf("sector_bytes is %d, not a power of two between 4096 and %d", s, 1<<20)
	}
	if n := (m.Bytes + m.SectorBytes - 1) / m.SectorBytes; len(m.Sectors) != n {
		return fmt.Errorf("sectors has %d entries, %d bytes in sectors of %d need %d", len(m.Sectors), m.Bytes, m.SectorBytes, n)
	}
	for i, s := range m.Sectors {
		if err := digest(fmt.Sprintf("sectors[%d]", i), s); err != nil {
			return err
		}
	}
	return nil
}

func digest(name, value string) error {
	if _, err := hex.DecodeString(value); err != nil || len(value) != 2*sha256.Size || strings.ToLower(value) != value {
		return fmt.Errorf("%s is %q, not 64 hexadecimal digits in lower case", name, value)
	}
	return nil
}

// Verify checks the signature under one of the trusted keys, then the payload against the manifest.
func (f *File) Verify(trusted []ed25519.PublicKey) error {
	known := false
	for _, k := range trusted {
		known = known || k.Equal(f.Key)
	}
	if !known {
		return fmt.Errorf("%w: its key is %s, trusted: %s", ErrKey, ID(f.Key), ids(trusted))
	}
	if !ed25519.Verify(f.Key, append([]byte(signedText), f.signed...), f.signature) {
		return fmt.Errorf("%w: manifest or signature were changed after signing with key %s", ErrSignature, ID(f.Key))
	}
	return f.Manifest.Match(f.Payload)
}

// Match compares a payload, read from a file or back from a slot, with the manifest, sector by sector.
func (m *Manifest) Match(payload []byte) error {
	if len(payload) != m.Bytes {
		return fmt.Errorf("%w: %d bytes, the manifest says %d", ErrDigest, len(payload), m.Bytes)
	}
	whole := sha256.New()
	for i, want := range m.Sectors {
		at := i * m.SectorBytes
		p := payload[at:min(at+m.SectorBytes, len(payload))]
		whole.Write(p)
		if got := hexSum(p); got != want {
			return fmt.Errorf("%w: sector %d at %#x has SHA-256 %s, the manifest says %s", ErrDigest, i, at, got, want)
		}
	}
	if got := hex.EncodeToString(whole.Sum(nil)); got != m.SHA256 {
		return fmt.Errorf("%w: SHA-256 is %s, the manifest says %s", ErrDigest, got, m.SHA256)
	}
	return nil
}

func hexSum(p []byte) string {
	s := sha256.Sum256(p)
	return hex.EncodeToString(s[:])
}

// Sign makes a container of a payload. It fills in what of the manifest describes the payload: Bytes, SHA256, Sectors.
func Sign(m Manifest, payload []byte, key ed25519.PrivateKey) ([]byte, error) {
	m.Bytes, m.SHA256, m.Sectors = len(payload), hexSum(payload), nil
	if m.SectorBytes > 0 && len(payload) <= MaxPayload {
		for at := 0; at < len(payload); at += m.SectorBytes {
			m.Sectors = append(m.Sectors, hexSum(payload[at:min(at+m.SectorBytes, len(payload))]))
		}
	}
	if err := m.check(); err != nil {
		return nil, fmt.Errorf("sign image: %w", err)
	}
	text, err := m.encode()
	if err != nil {
		return nil, fmt.Errorf("sign image: %w", err)
	}
	if len(text) > MaxManifest {
		return nil, fmt.Errorf("sign image: the manifest has %d bytes, %d are allowed: take a larger sector_bytes", len(text), MaxManifest)
	}
	b := make([]byte, 0, headBytes+len(text)+ed25519.PublicKeySize+ed25519.SignatureSize+len(payload))
	b = append(b, Magic...)
	b = binary.LittleEndian.AppendUint32(b, layout)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(text)))
	b = append(b, text...)
	b = append(b, key.Public().(ed25519.PublicKey)...)
	b = append(b, ed25519.Sign(key, append([]byte(signedText), b...))...)
	return append(b, payload...), nil
}
