package bitstream

import (
	"encoding/json"
	"fmt"

	"splicenic/bitstream/container"
)

// A Format names a kind of file. The text is what reports print.
type Format string

// Formats.
const (
	XilinxBit      Format = "xilinx-bit" // header with fields, then a configuration stream
	XilinxBin      Format = "xilinx-bin" // a configuration stream alone
	XilinxRbt      Format = "xilinx-rbt" // one word of 0 and 1 a line
	IntelHex       Format = "intel-hex"  // .mcs, .hex
	HexDump        Format = "hex-dump"   // bytes as text
	IntelRbf       Format = "intel-rbf"
	IntelRpd       Format = "intel-rpd"
	IntelSof       Format = "intel-sof"
	IntelPof       Format = "intel-pof"
	IntelJic       Format = "intel-jic"
	IntelSDM       Format = "intel-sdm" // Stratix 10, Agilex
	OPAEGBS        Format = "opae-gbs"
	PACSign        Format = "pacsign" // Intel's signed container
	Xclbin         Format = "xclbin"
	AFIManifest    Format = "afi-manifest"
	LatticeECP5    Format = "lattice-ecp5-bit"
	LatticeNexus   Format = "lattice-nexus-bit"
	LatticeMachXO2 Format = "lattice-machxo2-bit"
	ICE40          Format = "ice40-bin"
	GowinFS        Format = "gowin-fs"
	GateMate       Format = "gatemate-bit"
	Efinix         Format = "efinix-hex" // a byte a line
	EfinixBin      Format = "efinix-bin"
	SPL            Format = "spl" // this project's signed container
	Blank          Format = "blank"
	Unknown        Format = "unknown"
)

// A State says what is known of an image's integrity.
type State string

// States. There is no word for "probably well".
const (
	Valid        State = "valid"         // every check inside was computed and agrees
	Invalid      State = "invalid"       // one does not
	Absent       State = "absent"        // there is none inside
	NotCheckable State = "not checkable" // there is one, which cannot be computed here; Why says the reason
)

// Integrity is what an image's own checks say.
type Integrity struct {
	State  State  `json:"state"`
	Checks int    `json:"checks"`        // how many were computed and agreed
	Why    string `json:"why,omitempty"` // of invalid, absent and not checkable
}

// An Order is the order of bits and bytes in a file, against the order the device takes.
type Order string

// Orders.
const (
	AsIs          Order = "as is"
	BitsReversed  Order = "bits reversed in each byte"
	WordsSwapped  Order = "bytes swapped in each 32-bit word"
	HalvesSwapped Order = "bytes swapped in each 16-bit word"
)

// An IDCode is a JTAG IDCODE found in an image.
type IDCode struct {
	Value uint32
	Names []string // parts that have it, may be none
}

// MarshalJSON gives the value as people write it.
func (c IDCode) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Value string   `json:"value"`
		Names []string `json:"names"`
	}{hex32(c.Value), c.Names})
}

// A Jump is where a stream tells the device to go on.
type Jump struct {
	To  uint32 // as written to WBSTAR: a flash address, or its upper 24 bits where the flash takes 32
	Now bool   // the stream goes there itself, with IPROG; otherwise a fallback, or the design's own IPROG, does
}

// MarshalJSON gives the address as people write it.
func (j Jump) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		To  string `json:"to"`
		Now bool   `json:"now"`
	}{hex32(j.To), j.Now})
}

func hex32(v uint32) string { return fmt.Sprintf("0x%08x", v) }

// A Span is a run of bytes; Offset counts from the start of the file, or of the flash where the file gives addresses.
type Span struct {
	Offset int64 `json:"offset"`
	Bytes  int64 `json:"bytes"`
}

// An Inner is one image of several in a file.
type Inner struct {
	Span
	Format  Format    `json:"format,omitempty"` // where it is another than the file's
	Part    string    `json:"part,omitempty"`
	IDCodes []IDCode  `json:"idcodes,omitempty"`
	Check   Integrity `json:"integrity,omitzero"` // where it has its own
}

// A Segment is bytes to be written at an address. They are in the device's order.
type Segment struct {
	Address uint32
	Data    []byte // the Image's
}

// A Field is a fact that only some formats have.
type Field struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// An Image is what a file holds.
type Image struct {
	Format   Format    `json:"format"`
	Variant  string    `json:"variant,omitempty"`  // "32bit", "spartan3-32bit", "spartan6-16bit", "multiboot", …
	Wrapping []string  `json:"wrapping,omitempty"` // "gzip", "zstd": outermost first
	Vendor   string    `json:"vendor,omitempty"`   // xilinx, intel, lattice, gowin, …
	Order    Order     `json:"order,omitempty"`
	Design   string    `json:"design,omitempty"` // text as found in the file
	Part     string    `json:"part,omitempty"`   // text as found in the file, or what the geometry says
	Date     string    `json:"date,omitempty"`   // as found: "2021/12/21 18:15:01"
	Tool     string    `json:"tool,omitempty"`
	IDCodes  []IDCode  `json:"idcodes"`             // outermost first
	UserCode *uint32   `json:"user_code,omitempty"` // USERCODE, USR_ACCESS
	FileSize int64     `json:"file_bytes"`          // unwrapped
	Payload  Span      `json:"payload"`             // the stream inside the file
	SHA256   string    `json:"sha256"`              // of the file as read, wrapping included
	Whole    bool      `json:"whole"`               // nothing is cut off, every announced length fits
	Packed   bool      `json:"compressed"`
	Secret   bool      `json:"encrypted"`
	Partial  bool      `json:"partial"`
	Check    Integrity `json:"integrity"`
	Inner    []Inner   `json:"images,omitempty"` // where there are several
	Gaps     []Span    `json:"gaps,omitempty"`   // between segments
	Jumps    []Jump    `json:"jumps,omitempty"`  // to other images
	Fields   []Field   `json:"fields,omitempty"`
	Notes    []string  `json:"notes,omitempty"` // warnings

	// Segments are what a flash would be given: the headers of files are not in them. None: this file is not for writing
	// as it is, and Notes say what to do.
	Segments []Segment `json:"-"`

	// Container is what an .spl file was taken apart to; nil for every other format.
	Container *container.File `json:"-"`
}

// Note adds a warning.
func (i *Image) Note(text string) { i.Notes = append(i.Notes, text) }

// Field adds a fact.
func (i *Image) Field(name, value string) { i.Fields = append(i.Fields, Field{name, value}) }
