package bitstream

import (
	"bytes"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
)

// named makes an Image of a container that is known by name only.
func named(f Format, vendor, why, note string) func([]byte) (*Image, error) {
	return func(data []byte) (*Image, error) {
		img := &Image{Format: f, Vendor: vendor, Order: AsIs, Whole: true, Payload: Span{0, int64(len(data))}, Check: Integrity{State: NotCheckable, Why: why}}
		img.Note(note)
		return img, nil
	}
}

var (
	readSOF = named(IntelSof, "intel", "the container is not read", "SOF container: convert it to a raw image first (quartus_cpf -c IN.sof OUT.rbf)")
	readPOF = named(IntelPof, "intel", "the container is not read", "POF container: convert it to a raw image first (quartus_cpf)")
	readJIC = named(IntelJic, "intel", "the container is not read", "JIC container: convert it to a raw image first (quartus_cpf)")
	readSDM = named(IntelSDM, "intel", "only the device's own manager can check it", "image for a Secure Device Manager: its vendor's tools load it")
	readAFI = named(AFIManifest, "xilinx", "the image itself stays with the cloud's operator", "AFI manifest: there is no image in it; load it by its AGFI id")
)

func isSDM(head []byte) bool {
	return len(head) >= 14 && binary.LittleEndian.Uint32(head) == 0x97566593
}

func isAFI(head []byte) bool {
	return isText(head[:min(len(head), 512)]) && bytes.Contains(head[:min(len(head), 4096)], []byte("manifest_format_version="))
}

const gbsMagic = "XeonFPGA\xb7GBSv001"

// readGBS reads OPAE's container: the magic, a length, JSON, then a raw image or a signed one.
func readGBS(data []byte) (*Image, error) {
	if len(data) < 20 {
		return nil, bad(OPAEGBS, len(data), "the file ends in its header: fetch it again")
	}
	n := int64(binary.LittleEndian.Uint32(data[16:]))
	if n > int64(len(data)-20) {
		return nil, bad(OPAEGBS, 16, "the header announces %d bytes of JSON, the file has %d left: it is cut off, fetch it again", n, len(data)-20)
	}
	var meta struct {
		Version int `json:"version"`
		Image   struct {
			Interface string `json:"interface-uuid"`
		} `json:"afu-image"`
	}
	if err := json.Unmarshal(data[20:20+n], &meta); err != nil {
		return nil, bad(OPAEGBS, 20, "the JSON is broken: %v", err)
	}
	img := &Image{Format: OPAEGBS, Vendor: "intel", Order: AsIs, Whole: true, Partial: true, Check: Integrity{State: Absent, Why: "the container has no checks"}}
	img.Payload = Span{20 + n, int64(len(data)) - 20 - n}
	img.Field("version", fmt.Sprint(meta.Version))
	img.Field("interface uuid", fmt.Sprintf("%.64s", meta.Image.Interface))
	if in := data[20+n:]; isPACSign(in) {
		signed, err := readPACSign(in)
		if err != nil {
			return nil, err
		}
		img.Variant, img.Check = "signed", signed.Check
		img.Whole = signed.Whole
	}
	img.Note("a partial image for an OPAE card: its own tools load it")
	return img, nil
}

func isPACSign(head []byte) bool {
	return len(head) >= 132 && binary.LittleEndian.Uint32(head) == 0xb6eafd19 && binary.LittleEndian.Uint32(head[128:]) == 0xf27f28d7
}

// readPACSign checks both hashes over the payload, which follows two blocks of 1024 bytes together.
func readPACSign(data []byte) (*Image, error) {
	img := &Image{Format: PACSign, Vendor: "intel", Order: AsIs, Check: Integrity{State: Invalid}}
	n := int64(binary.LittleEndian.Uint32(data[4:]))
	if n > int64(len(data))-1024 {
		img.Check.Why = fmt.Sprintf("the header announces %d bytes, the file has %d behind it: it is cut off, fetch it again", n, max(0, len(data)-1024))
		return img, nil
	}
	img.Whole = true
	img.Payload = Span{1024, n}
	payload := data[1024 : 1024+n]
	h256, h384 := sha256.Sum256(payload), sha512.Sum384(payload)
	switch {
	case !bytes.Equal(h256[:], data[0x10:0x30]):
		img.Check.Why = fmt.Sprintf("SHA-256 is %s in the file, %s over the payload", hex.EncodeToString(data[0x10:0x30]), hex.EncodeToString(h256[:]))
	case !bytes.Equal(h384[:], data[0x30:0x60]):
		img.Check.Why = "SHA-384 of the payload is another than the file's"
	default:
		img.Check = Integrity{State: Valid, Checks: 2}
	}
	img.Field("type", fmt.Sprint(data[8]))
	img.Note("the signatures are the card's to check")
	return img, nil
}

// readXclbin reads the sections of XRT's container; the one with kind 0 may hold a .bit, whose facts are taken.
func readXclbin(data []byte) (*Image, error) {
	if !bytes.HasPrefix(data, []byte("xclbin2\x00")) {
		return nil, &NotImage{"an xclbin of an old kind (" + string(data[:7]) + ")", "make it again with a newer xclbinutil"}
	}
	if len(data) < 456 {
		return nil, bad(Xclbin, len(data), "the file ends in its header: fetch it again")
	}
	img := &Image{Format: Xclbin, Vendor: "xilinx", Order: AsIs, Check: Integrity{State: Absent, Why: "the container has no checks"}}
	size, count := binary.LittleEndian.Uint64(data[304:]), uint64(binary.LittleEndian.Uint32(data[448:]))
	if size > uint64(len(data)) || count > uint64(len(data)-456)/40 {
		return nil, bad(Xclbin, 304, "it announces %d bytes and %d sections, the file has %d bytes: it is cut off, fetch it again", size, count, len(data))
	}
	img.Whole = true
	img.Payload = Span{0, int64(len(data))}
	platform, _, _ := bytes.Cut(data[352:416], []byte{0})
	img.Field("platform", strings.ToValidUTF8(string(platform), "?"))
	img.Field("uuid", hex.EncodeToString(data[416:432]))
	if n := int32(binary.LittleEndian.Uint32(data[8:])); n >= 0 {
		img.Field("signature", fmt.Sprintf("%d bytes, for the driver to check", n))
	}
	for i := range int(count) {
		h := data[456+40*i:]
		offset, n := binary.LittleEndian.Uint64(h[24:]), binary.LittleEndian.Uint64(h[32:])
		if offset > uint64(len(data)) || n > uint64(len(data))-offset {
			return nil, bad(Xclbin, 456+40*i, "section %d is said to be %d bytes at %d, the file has %d: it is cut off", i, n, offset, len(data))
		}
		if section := data[offset : offset+n]; binary.LittleEndian.Uint32(h) == 0 && isBit(section) && img.IDCodes == nil {
			in, err := readBit(bytes.Clone(section))
			if err != nil {
				return nil, fmt.Errorf("section %d, at byte %d: %w", i, offset, err)
			}
			img.Part, img.IDCodes, img.Check, img.Packed, img.Partial = in.Part, in.IDCodes, in.Check, in.Packed, in.Partial
			img.Payload = Span{int64(offset), int64(n)}
		}
	}
	img.Note("XRT loads it; it is not written to a flash")
	return img, nil
}
