package bitstream

import (
	"bytes"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
)

// OPAE's container of a partial image for Intel's cards: the magic, the length of JSON, JSON, then a raw image or a signed
// one. Before it had a magic of four bytes and the interface's UUID, last byte first. Numbers are little-endian.
const (
	gbsMagic    = "XeonFPGA\xb7GBSv001"
	gbsOldMagic = "\x80\x86\x1f\x1d"
)

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
	img := &Image{Format: OPAEGBS}
	img.Field("version", fmt.Sprint(meta.Version))
	img.Field("interface uuid", fmt.Sprintf("%.64s", meta.Image.Interface))
	switch meta.Version {
	case 1, 640, 650: // the last two are what two releases wrote for 1
	default:
		img.Note(fmt.Sprintf("version %d of the JSON is not known here", meta.Version))
	}
	gbsPayload(img, data, int(20+n))
	return img, nil
}

func readOldGBS(data []byte) (*Image, error) {
	if len(data) < 20 {
		return nil, bad(OPAEGBS, len(data), "the file ends in its header: fetch it again")
	}
	uuid := bytes.Clone(data[4:20])
	slices.Reverse(uuid)
	img := &Image{Format: OPAEGBS, Variant: "legacy"}
	img.Field("interface uuid", hex.EncodeToString(uuid))
	gbsPayload(img, data, 20)
	return img, nil
}

// gbsPayload says what the image from byte at on is.
func gbsPayload(img *Image, data []byte, at int) {
	img.Vendor, img.Order, img.Partial, img.Whole = "intel", AsIs, true, true
	img.Payload = Span{int64(at), int64(len(data) - at)}
	in := Inner{Span: img.Payload}
	if isPACSign(data[at:]) {
		signed := pacsign(data[at:], at)
		img.Variant, img.Whole, img.Inner, img.Fields = "signed", signed.Whole, signed.Inner, append(img.Fields, signed.Fields...)
		img.Check = signed.Check
	} else {
		if in.raw(data[at:]); len(data) == at {
			img.Whole = false
		}
		img.Inner = []Inner{in}
		img.Check = together(img.Inner, "")
	}
	img.Note("a partial image for an OPAE card: its own tools load it")
}

// raw says what a raw image for Intel's parts is. Containers are not looked for: one in another in another would take the
// square of their size.
func (in *Inner) raw(data []byte) {
	in.Format = Unknown
	var read func([]byte) (*Image, error)
	switch fill, blank := blank(data); {
	case len(data) == 0:
		in.Check = Integrity{State: Invalid, Why: "there is no image behind the header: it is cut off, fetch it again"}
		return
	case blank:
		in.Format, in.Check = Blank, Integrity{State: Invalid, Why: fmt.Sprintf("every byte of the image is %02x", fill)}
		return
	case isRBF(data):
		read = readRBF
	case isSDM(data):
		read = readSDM
	}
	if read == nil {
		in.Check = Integrity{State: NotCheckable, Why: "the raw image is of a kind that is not read here: it starts with " + first(data)}
		return
	}
	img, err := read(data)
	if err != nil {
		in.Check = Integrity{State: Invalid, Why: err.Error()}
		return
	}
	in.take(img)
}

// Intel's signed container, PACSign's: two blocks of 1024 bytes together, then the payload.
//
//	0    b6eafd19, length of the payload, what it is for
//	10   SHA-256 of the payload, 30: SHA-384
//	80   f27f28d7: keys and signatures
const pacsignHead = 1024

func isPACSign(head []byte) bool {
	return len(head) >= 132 && binary.LittleEndian.Uint32(head) == 0xb6eafd19 && binary.LittleEndian.Uint32(head[128:]) == 0xf27f28d7
}

func readPACSign(data []byte) (*Image, error) { return pacsign(data, 0), nil }

// pacsign checks both hashes over the payload. The container begins at byte start of the file.
func pacsign(data []byte, start int) *Image {
	img := &Image{Format: PACSign, Vendor: "intel", Order: AsIs, Check: Integrity{State: Invalid}}
	img.Payload = Span{int64(start + min(len(data), pacsignHead)), int64(max(0, len(data)-pacsignHead))}
	img.Field("type", fmt.Sprint(data[8]))
	img.Note("the signatures are the card's to check")
	n := int64(binary.LittleEndian.Uint32(data[4:]))
	if n > int64(len(data))-pacsignHead {
		img.Check.Why = fmt.Sprintf("the header announces %d bytes, the file has %d behind it: it is cut off, fetch it again", n, max(0, len(data)-pacsignHead))
		return img
	}
	img.Whole, img.Payload.Bytes = true, n
	payload := data[pacsignHead : pacsignHead+n]
	h256, h384 := sha256.Sum256(payload), sha512.Sum384(payload)
	switch {
	case !bytes.Equal(h256[:], data[0x10:0x30]):
		img.Check.Why = fmt.Sprintf("SHA-256 is %s in the file, %s over the payload", hex.EncodeToString(data[0x10:0x30]), hex.EncodeToString(h256[:]))
	case !bytes.Equal(h384[:], data[0x30:0x60]):
		img.Check.Why = "SHA-384 of the payload is another than the file's"
	default:
		img.Check = Integrity{State: Valid, Checks: 2}
	}
	if extra := int64(len(data)) - pacsignHead - n; extra > 0 {
		img.Note(fmt.Sprintf("%d bytes stand behind the %d that the header announces", extra, n))
	}
	in := Inner{Span: img.Payload}
	in.raw(payload)
	img.Inner = []Inner{in}
	if img.Check.State == Valid && in.Check.State == Invalid { // signed as it is: damaged before
		img.Check = in.Check
	}
	return img
}
