package bitstream

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
)

// take is what an image in a container is, in a container's words.
func (in *Inner) take(img *Image) {
	in.Format, in.Part, in.IDCodes, in.Check = img.Format, img.Part, img.IDCodes, img.Check
}

// together is the integrity of a container that has no checks of its own: the worst of what lies in it.
func together(images []Inner, none string) Integrity {
	if len(images) == 0 {
		return Integrity{State: Absent, Why: none}
	}
	all := Integrity{State: Valid}
	rank := map[State]int{Valid: 0, Absent: 1, NotCheckable: 2, Invalid: 3}
	for _, in := range images {
		all.Checks += in.Check.Checks
		if rank[in.Check.State] > rank[all.State] {
			all.State, all.Why = in.Check.State, fmt.Sprintf("the image at byte %d: %s", in.Offset, in.Check.Why)
		}
	}
	return all
}

// readSDM reads an image for the manager inside newer parts. Its blocks are signed, and not described.
func readSDM(data []byte) (*Image, error) {
	img := &Image{Format: IntelSDM, Vendor: "intel", Order: AsIs, Whole: true, Payload: Span{0, int64(len(data))}}
	img.Check = Integrity{State: NotCheckable, Why: "only the device's own manager can check it"}
	img.Note("image for a Secure Device Manager: its vendor's tools load it")
	return img, nil
}

func isSDM(head []byte) bool {
	return len(head) >= 14 && binary.LittleEndian.Uint32(head) == 0x97566593
}

func isAFI(head []byte) bool {
	return isText(head[:min(len(head), 512)]) && bytes.Contains(head[:min(len(head), 4096)], []byte("manifest_format_version="))
}

// afiKeys are what a manifest tells that a reader of reports can use.
var afiKeys = map[string]bool{
	"manifest_format_version": true, "pci_vendor_id": true, "pci_device_id": true, "pci_subsystem_id": true, "pci_subsystem_vendor_id": true,
	"dcp_hash": true, "shell_version": true, "hdk_version": true, "dcp_file_name": true,
}

// readAFI reads the text that goes to a cloud with an image. The image is not in it.
func readAFI(data []byte) (*Image, error) {
	img := &Image{Format: AFIManifest, Vendor: "xilinx", Order: AsIs, Whole: true, Payload: Span{0, int64(len(data))}}
	img.Check = Integrity{State: NotCheckable, Why: "the image itself stays with the cloud's operator"}
	for line := range bytes.Lines(data[:min(len(data), headBytes)]) {
		key, value, _ := strings.Cut(strings.TrimSpace(string(line)), "=")
		switch {
		case key == "date":
			img.Date = value
		case key == "tool_version":
			img.Tool = value
		case afiKeys[key] && len(img.Fields) < len(afiKeys) && len(value) <= 128:
			img.Field(key, value)
			if sum, err := hex.DecodeString(value); key == "dcp_hash" && (err != nil || len(sum) != 32) {
				img.Note("dcp_hash is no SHA-256: the manifest is damaged, or not finished")
			}
		}
	}
	img.Note("AFI manifest: there is no image in it; load it by its AGFI id")
	return img, nil
}
