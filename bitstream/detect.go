package bitstream

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"splicenic/bitstream/container"
)

// A format is how one kind of file is known and read. Either read or text is set.
type format struct {
	name Format

	// weak says that the signature is short, or that files of other formats may hold it as well: it counts only where no
	// strong one does.
	weak bool

	// detect looks at the first bytes of the file, 64 KiB or all there are. It demands what no other format has.
	detect func(head []byte) bool

	// read reads the whole file. The data are the Image's from then on: read may turn bytes where they stand. FileSize,
	// Wrapping, SHA256 and the names of IDCODEs are filled in by the caller.
	read func(data []byte) (*Image, error)

	// text reads text that stands for bytes. What the bytes are is detected afterwards.
	text func(r io.Reader, limit int64) (*decoded, error)
}

// formats are all that are known, in the order in which messages list them. A new format is a line here.
var formats = []format{
	{name: XilinxBit, detect: isBit, read: readBit},
	{name: IntelHex, detect: isIntelHex, text: readHex},
	{name: HexDump, detect: isHexDump, text: readHexDump},
	{name: XilinxRbt, detect: isRbt, text: readRbt},
	{name: SPL, detect: container.Is, read: readSPL},
	{name: XilinxBin, weak: true, detect: isXilinxBin, read: readXilinxBin},
	{name: LatticeECP5, detect: isLattice, read: readLattice},
	{name: ICE40, detect: isICE40, read: readICE40},
	{name: GowinFS, detect: isGowin, read: readGowin},
	{name: IntelRbf, detect: isRBF, read: readRBF},
	{name: IntelRpd, detect: isRPD, read: readRPD},
	{name: GateMate, detect: isGateMate, read: readGateMate},
	{name: IntelSof, detect: starts("SOF\x00"), read: readQuartus(IntelSof)},
	{name: IntelPof, detect: starts("POF\x00"), read: readQuartus(IntelPof)},
	{name: IntelJic, detect: starts("JIC\x00"), read: readQuartus(IntelJic)},
	{name: IntelSDM, detect: isSDM, read: readSDM},
	{name: OPAEGBS, detect: starts(gbsMagic), read: readGBS},
	{name: OPAEGBS, detect: starts(gbsOldMagic), read: readOldGBS},
	{name: PACSign, detect: isPACSign, read: readPACSign},
	{name: Xclbin, detect: isXclbin, read: readXclbin},
	{name: Efinix, detect: isEfinixHex, text: readEfinixHex},
	{name: EfinixBin, detect: isEfinix, read: readEfinix},
	{name: AFIManifest, detect: isAFI, read: readAFI},
}

// detect finds the format of a file; nil: none.
func detect(head []byte) (*format, error) {
	for _, weak := range []bool{false, true} {
		var hits []*format
		for i := range formats {
			if f := &formats[i]; f.weak == weak && f.detect(head) {
				hits = append(hits, f)
			}
		}
		if len(hits) == 1 {
			return hits[0], nil
		}
		if len(hits) > 1 {
			var names []string
			for _, f := range hits {
				names = append(names, string(f.name))
			}
			return nil, &NotImage{"a file that could be " + strings.Join(names, " or "), "ambiguous content is not read; it starts with " + first(head)}
		}
	}
	return nil, nil
}

// strangers are files that people hand over by mistake, or that are to be converted first.
var strangers = []struct {
	what, do string
	detect   func(head []byte) bool
}{
	{"a git-lfs pointer", "the file itself was not fetched; run git lfs pull", starts("version https://git-lfs")},
	{"a private key", "it signs images, and belongs nowhere else", pem("PRIVATE KEY")},
	{"a public key", "", pem("PUBLIC KEY")},
	{"an ELF program", "", starts("\x7fELF")},
	{"a PDF document", "", starts("%PDF-")},
	{"a Windows program", "", starts("MZ")},
	{"a PNG picture", "", starts("\x89PNG\r\n")},
	{"a zip archive", "unpack it first", starts("PK\x03\x04")},
	{"an xz archive", "unpack it first", starts("\xfd7zXZ\x00")},
	{"a bzip2 archive", "unpack it first", starts("BZh")},
	{"a 7-zip archive", "unpack it first", starts("7z\xbc\xaf\x27\x1c")},
	{"a tar archive", "unpack it first", func(h []byte) bool { return len(h) > 262 && string(h[257:262]) == "ustar" }},
	{"an HTML page", "a download gave a page instead of the file", func(h []byte) bool {
		h = bytes.ToLower(bytes.TrimLeft(h[:min(len(h), 512)], "\xef\xbb\xbf \t\r\n"))
		return bytes.HasPrefix(h, []byte("<!doctype html")) || bytes.HasPrefix(h, []byte("<html"))
	}},
	{"an XML document", "", starts("<?xml")},
	{"an SVF file", "it is a script for JTAG players; export a raw image", func(h []byte) bool {
		return isText(h) && (bytes.Contains(h, []byte("SIR ")) && bytes.Contains(h, []byte("TDI")))
	}},
	{"a JEDEC file", "it is for CPLDs; no card here has one", func(h []byte) bool {
		return isText(h[min(len(h), 1):]) && bytes.Contains(h, []byte("QF")) && bytes.Contains(h, []byte("*"))
	}},
	{"a Motorola S-record file", "convert it: srec_cat FILE -o OUT.mcs -intel", func(h []byte) bool {
		return isText(h) && len(h) > 8 && h[0] == 'S' && h[1] >= '0' && h[1] <= '9' && isHex(h[2:8])
	}},
	{"JSON text", "", func(h []byte) bool {
		h = bytes.TrimLeft(h, " \t\r\n")
		return isText(h) && len(h) > 0 && (h[0] == '{' || h[0] == '[')
	}},
}

func starts(prefix string) func([]byte) bool {
	return func(head []byte) bool { return bytes.HasPrefix(head, []byte(prefix)) }
}

// pem detects text as keys and certificates come in.
func pem(kind string) func([]byte) bool {
	return func(head []byte) bool {
		return isText(head) && bytes.Contains(head, []byte("-----BEGIN ")) && bytes.Contains(head, []byte(kind+"-----"))
	}
}

// stranger names what is no image.
func stranger(head []byte) error {
	if len(head) == 0 {
		return &NotImage{"an empty file", ""}
	}
	if err := damagedBit(head); err != nil {
		return err
	}
	for _, s := range strangers {
		if s.detect(head) {
			return &NotImage{s.what, s.do}
		}
	}
	if isText(head) {
		line, _, _ := bytes.Cut(head, []byte("\n"))
		return &NotImage{fmt.Sprintf("text that starts with %.40q", line), ""}
	}
	return &NotImage{"unknown content that starts with " + first(head), "to write bytes as they are, say so"}
}

// first shows the first 16 bytes.
func first(head []byte) string { return fmt.Sprintf("% x", head[:min(len(head), 16)]) }

// isText says whether bytes are printable text in ASCII or UTF-8.
func isText(p []byte) bool {
	for _, c := range p {
		if c < ' ' && c != '\n' && c != '\r' && c != '\t' && c != '\f' || c == 0x7f {
			return false
		}
	}
	return len(p) > 0 && bytes.Equal(p[:min(len(p), 1024)], bytes.ToValidUTF8(p[:min(len(p), 1024)], nil)) || len(p) > 1024 && isText(p[:1000])
}

func isHex(p []byte) bool {
	for _, c := range p {
		if nibble[c] > 15 {
			return false
		}
	}
	return true
}
