package vfiouser

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"splicenic/driver/device"
)

var allTypes = cmp.AllowUnexported(header{}, dmaMap{}, dmaUnmap{}, deviceInfo{}, irqInfo{}, irqSet{}, regionInfo{}, regionAccess{}, dmaAccess{}, version{})

func unhex(s string) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		panic(err)
	}
	return b
}

// TestHeader pins the layout and what ends a connection.
func TestHeader(t *testing.T) {
	for _, row := range []struct {
		name, wire string
		want       header
		bad        bool
	}{
		{"command", "0100 0900 20000000 00000000 00000000", header{id: 1, cmd: cmdRegionRead, size: 32}, false},
		{"posted", "ffff 0a00 24000000 10000000 00000000", header{id: 0xffff, cmd: cmdRegionWrite, size: 36, flags: flagNoReply}, false},
		{"error reply", "0200 0200 10000000 21000000 11000000", header{id: 2, cmd: cmdDMAMap, size: 16, flags: typeReply | flagError, errno: 17}, false},
		{"largest", "0000 0900 20001000 00000000 00000000", header{cmd: cmdRegionRead, size: maxMessage}, false},
		{"too long", "0000 0900 21001000 00000000 00000000", header{cmd: cmdRegionRead, size: maxMessage + 1}, true},
		{"all ones", "ffff ffff ffffffff ffffffff ffffffff", header{0xffff, 0xffff, 0xffffffff, 0xffffffff, 0xffffffff}, true},
		{"shorter than itself", "0000 0100 0f000000 00000000 00000000", header{cmd: cmdVersion, size: 15}, true},
		{"type 2", "0000 0100 10000000 02000000 00000000", header{cmd: cmdVersion, size: 16, flags: 2}, true},
		{"cut", "0000 0100", header{}, true},
	} {
		got, err := decodeHeader(unhex(row.wire))
		if got != row.want || (err != nil) != row.bad || err != nil && !errors.Is(err, errProtocol) {
			t.Errorf("%s: %+v, %v, want %+v", row.name, got, err, row.want)
		}
		if !row.bad && row.want.size < 64 {
			b := make([]byte, row.want.size)
			if putHeader(b, got); !bytes.Equal(b[:headerBytes], unhex(row.wire)) {
				t.Errorf("%s: wrote %x", row.name, b[:headerBytes])
			}
		}
	}
}

// codecs pairs the two directions of every payload.
var codecs = map[string]func([]byte) ([]byte, any, error){
	"dma map": func(b []byte) ([]byte, any, error) {
		v, err := decodeDMAMap(b)
		return appendDMAMap(nil, v), v, err
	},
	"dma unmap": func(b []byte) ([]byte, any, error) {
		v, err := decodeDMAUnmap(b)
		return appendDMAUnmap(nil, v), v, err
	},
	"device info": func(b []byte) ([]byte, any, error) {
		v, err := decodeDeviceInfo(b)
		return appendDeviceInfo(nil, v), v, err
	},
	"region info": func(b []byte) ([]byte, any, error) {
		v, err := decodeRegionInfo(b)
		return appendRegionInfo(nil, v), v, err
	},
	"irq info": func(b []byte) ([]byte, any, error) {
		v, err := decodeIRQInfo(b)
		return appendIRQInfo(nil, v), v, err
	},
	"set irqs": func(b []byte) ([]byte, any, error) {
		v, err := decodeIRQSet(b)
		return appendIRQSet(nil, v), v, err
	},
	"region access": func(b []byte) ([]byte, any, error) {
		v, err := decodeRegionAccess(b, false)
		return appendRegionAccess(nil, v), v, err
	},
	"region data": func(b []byte) ([]byte, any, error) {
		v, err := decodeRegionAccess(b, true)
		return appendRegionAccess(nil, v), v, err
	},
	"dma access": func(b []byte) ([]byte, any, error) {
		v, err := decodeDMAAccess(b, false)
		return appendDMAAccess(nil, v), v, err
	},
	"dma data": func(b []byte) ([]byte, any, error) {
		v, err := decodeDMAAccess(b, true)
		return appendDMAAccess(nil, v), v, err
	},
}

// TestPayloads pins the layout of every payload, in both directions, and what is refused.
func TestPayloads(t *testing.T) {
	for _, row := range []struct {
		kind, name, wire string
		want             any // nil: refused
	}{
		{"dma map", "a page of a file", "20000000 03000000 0030000000000000 0010000000000000 0010000000000000", dmaMap{32, 3, 0x3000, 0x1000, 0x1000}},
		{"dma map", "the last page", "20000000 01000000 0000000000000000 00f0ffffffffffff 0010000000000000", dmaMap{32, 1, 0, 0xfffffffffffff000, 0x1000}},
		{"dma map", "wraps", "20000000 03000000 0000000000000000 00f0ffffffffffff 0020000000000000", nil},
		{"dma map", "offset wraps", "20000000 03000000 00f0ffffffffffff 0010000000000000 0020000000000000", nil},
		{"dma map", "empty", "20000000 03000000 0000000000000000 0010000000000000 0000000000000000", nil},
		{"dma map", "neither read nor written", "20000000 00000000 0000000000000000 0010000000000000 0010000000000000", nil},
		{"dma map", "unknown flag", "20000000 13000000 0000000000000000 0010000000000000 0010000000000000", nil},
		{"dma map", "argsz", "1f000000 03000000 0000000000000000 0010000000000000 0010000000000000", nil},
		{"dma map", "short", "20000000 03000000", nil},
		{"dma map", "long", "20000000 03000000 0000000000000000 0010000000000000 0010000000000000 00", nil},

		{"dma unmap", "a range", "18000000 00000000 0010000000000000 0020000000000000", dmaUnmap{24, 0, 0x1000, 0x2000}},
		{"dma unmap", "everything", "18000000 02000000 0000000000000000 0000000000000000", dmaUnmap{24, unmapAll, 0, 0}},
		{"dma unmap", "everything and a range", "18000000 02000000 0010000000000000 0000000000000000", nil},
		{"dma unmap", "empty", "18000000 00000000 0010000000000000 0000000000000000", nil},
		{"dma unmap", "wraps", "18000000 00000000 0010000000000000 ffffffffffffffff", nil},
		{"dma unmap", "argsz", "17000000 00000000 0010000000000000 0010000000000000", nil},
		{"dma unmap", "short", "18000000", nil},

		{"device info", "reply", "10000000 03000000 09000000 05000000", deviceInfo{16, deviceReset | devicePCI, 9, 5}},
		{"device info", "argsz", "0f000000 00000000 00000000 00000000", nil},
		{"device info", "short", "10000000 000000", nil},

		{"region info", "plain", "20000000 03000000 02000000 00000000 0000002000000000 0000000002000000", regionInfo{32, 3, 2, 0, 0x20000000, 0x200000000, nil}},
		{"region info", "sparse", "50000000 0f000000 00000000 20000000 0040000000000000 0000000000000000" +
			"0100 0100 00000000 02000000 00000000 0000000000000000 0010000000000000 0020000000000000 0020000000000000",
			regionInfo{80, 15, 0, 32, 0x4000, 0, []Area{{0, 0x1000}, {0x2000, 0x2000}}}},
		{"region info", "more than fits", "50000000 0f000000 00000000 20000000 0040000000000000 0000000000000000", regionInfo{80, 15, 0, 32, 0x4000, 0, nil}},
		{"region info", "capability in the structure", "30000000 0b000000 00000000 10000000 0040000000000000 0000000000000000 0000000000000000 0000000000000000", nil},
		{"region info", "capability cut", "24000000 0b000000 00000000 20000000 0040000000000000 0000000000000000 00000000", nil},
		{"region info", "capability far beyond", "28000000 0b000000 00000000 ffffffff 0040000000000000 0000000000000000 0000000000000000", nil},
		{"region info", "areas beyond the end", "50000000 0b000000 00000000 20000000 0040000000000000 0000000000000000 0100 0100 00000000 02000000 00000000 0000000000000000 0010000000000000", nil},
		{"region info", "4 G areas", "50000000 0b000000 00000000 20000000 0040000000000000 0000000000000000 0100 0100 00000000 ffffffff 00000000", nil},
		{"region info", "circle", "28000000 0b000000 00000000 20000000 0040000000000000 0000000000000000 0300 0100 20000000", nil},
		{"region info", "argsz", "1f000000 00000000 00000000 00000000 0000000000000000 0000000000000000", nil},
		{"region info", "short", "20000000 00000000", nil},

		{"irq info", "msi-x", "10000000 09000000 02000000 03000000", irqInfo{16, irqEventfd | irqNoResize, irqMSIX, 3}},
		{"irq info", "argsz", "00000000 00000000 02000000 00000000", nil},
		{"irq info", "short", "10000000", nil},

		{"set irqs", "all off", "14000000 21000000 02000000 00000000 00000000", irqSet{20, setNone | setTrigger, irqMSIX, 0, 0, nil}},
		{"set irqs", "eventfds", "20000000 24000000 02000000 00000000 03000000", irqSet{32, setEventfd | setTrigger, irqMSIX, 0, 3, nil}},
		{"set irqs", "loopback", "16000000 22000000 02000000 01000000 02000000 0100", irqSet{22, setBool | setTrigger, irqMSIX, 1, 2, []byte{1, 0}}},
		{"set irqs", "two kinds of data", "14000000 23000000 02000000 00000000 01000000", nil},
		{"set irqs", "no action", "14000000 01000000 02000000 00000000 01000000", nil},
		{"set irqs", "two actions", "14000000 31000000 02000000 00000000 01000000", nil},
		{"set irqs", "unknown flag", "14000000 61000000 02000000 00000000 01000000", nil},
		{"set irqs", "huge count", "14000000 24000000 02000000 00000000 ffffffff", nil},
		{"set irqs", "start and count wrap", "14000000 24000000 02000000 ffffffff 02000000", nil},
		{"set irqs", "none with eventfds", "14000000 24000000 02000000 00000000 00000000", nil},
		{"set irqs", "none from 1", "14000000 21000000 02000000 01000000 00000000", nil},
		{"set irqs", "data cut", "16000000 22000000 02000000 00000000 03000000 0100", nil},
		{"set irqs", "argsz", "13000000 21000000 02000000 00000000 00000000", nil},
		{"set irqs", "short", "14000000", nil},

		{"region access", "load", "0400000000000000 00000000 04000000", regionAccess{4, 0, 4, []byte{}}},
		{"region access", "with data", "0400000000000000 00000000 04000000 00000000", nil},
		{"region access", "too much", "0000000000000000 02000000 01001000", nil},
		{"region access", "short", "0400000000000000 00000000", nil},
		{"region data", "store", "2400000000000000 02000000 04000000 efbeadde", regionAccess{0x24, 2, 4, []byte{0xef, 0xbe, 0xad, 0xde}}},
		{"region data", "cut", "2400000000000000 02000000 04000000 efbead", nil},
		{"region data", "long", "2400000000000000 02000000 04000000 efbeadde 00", nil},
		{"region data", "count all ones", "2400000000000000 02000000 ffffffff efbeadde", nil},
		{"dma access", "read", "0010000000000000 4000000000000000", dmaAccess{0x1000, 64, []byte{}}},
		{"dma access", "too much", "0010000000000000 0100100000000000", nil},
		{"dma access", "short", "0010000000000000 40", nil},
		{"dma data", "write", "0010000000000000 0200000000000000 0102", dmaAccess{0x1000, 2, []byte{1, 2}}},
		{"dma data", "count beyond 32 bits", "0010000000000000 0200000001000000 0102", nil},
	} {
		t.Run(row.kind+"/"+row.name, func(t *testing.T) {
			wire := unhex(row.wire)
			back, got, err := codecs[row.kind](wire)
			if row.want == nil {
				if !errors.Is(err, errProtocol) {
					t.Errorf("%+v, %v, want it refused", got, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(row.want, got, allTypes); d != "" {
				t.Errorf("decoded (-want +got):\n%s", d)
			}
			if !bytes.Equal(back, wire) {
				t.Errorf("encoded\n%x, want\n%x", back, wire)
			}
		})
	}
}

func TestDMAWritten(t *testing.T) {
	for _, wire := range []string{"0010000000000000 40000000", "0010000000000000 4000000000000000"} {
		if iova, n, err := decodeDMAWritten(unhex(wire)); iova != 0x1000 || n != 64 || err != nil {
			t.Errorf("%s: %#x, %d, %v", wire, iova, n, err)
		}
	}
	if _, _, err := decodeDMAWritten(unhex("0010000000000000 4000")); err == nil {
		t.Error("a short reply was taken")
	}
}

// qemuVersion is what QEMU 11 sends.
const qemuVersion = `{"capabilities": {"pgsizes": 4096, "max_msg_fds": 16, "max_dma_maps": 65535, "max_data_xfer_size": 1048576,` +
	` "migration": {"max_bitmap_size": 268435456, "pgsize": 4096}, "write_multiple": true}}`

func TestVersion(t *testing.T) {
	n := func(v uint64) *uint64 { return &v }
	for _, row := range []struct {
		name, text string
		minor      uint16
		want       *version
	}{
		{"qemu", qemuVersion + "\x00", 0, &version{0, 0, &capabilities{MaxFDs: n(16), MaxTransfer: n(1 << 20), MaxMaps: n(65535), PageSizes: n(4096)}}},
		{"no end", `{"capabilities":{"max_msg_fds":1}}`, 1, &version{0, 1, &capabilities{MaxFDs: n(1)}}},
		{"numbers only", "", 1, &version{0, 1, nil}},
		{"end only", "\x00", 1, &version{0, 1, nil}},
		{"nothing told", "{}\x00", 1, &version{0, 1, nil}},
		{"two sockets", `{"capabilities":{"twin_socket":{"supported":true,"fd_index":0}}}` + "\x00", 1, &version{0, 1, &capabilities{Twin: &twin{true, n(0)}}}},
		{"no json", "hello", 1, nil},
		{"negative", `{"capabilities":{"max_msg_fds":-1}}`, 1, nil},
		{"huge", `{"capabilities":{"max_msg_fds":1e99}}`, 1, nil},
		{"transfers of nothing", `{"capabilities":{"max_data_xfer_size":0}}`, 1, nil},
		{"text behind the text", "{}\x00{}\x00", 1, nil},
		{"too long", strings.Repeat(" ", maxVersion), 1, nil},
	} {
		got, err := decodeVersion(append([]byte{0, 0, byte(row.minor), 0}, row.text...))
		if row.want == nil {
			if !errors.Is(err, errProtocol) {
				t.Errorf("%s: %v, want it refused", row.name, err)
			}
			continue
		}
		if d := cmp.Diff(*row.want, got, allTypes); d != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", row.name, err, d)
		}
		b, err := appendVersion(nil, got)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := decodeVersion(b); err != nil || cmp.Diff(got, again, allTypes) != "" {
			t.Errorf("%s: encoded %q, %v", row.name, b, err)
		}
	}
	if _, err := decodeVersion([]byte{0, 0}); err == nil {
		t.Error("two bytes were taken")
	}
}

// TestAnswer: of what a client names we offer what we have, and nothing it does not name.
func TestAnswer(t *testing.T) {
	info := device.Info{NUMANode: 1, IOVA: []device.IOVARange{{First: 1, Last: 2}}}
	text := func(v version) string {
		b, err := appendVersion(nil, v)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	qemu, err := decodeVersion(append([]byte{0, 0, 0, 0}, qemuVersion...))
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name string
		ask  version
		want string
	}{
		{"nothing", version{minor: 7}, "\x00\x00\x01\x00"},
		{"qemu", qemu, "\x00\x00\x00\x00" + `{"capabilities":{"max_msg_fds":16,"max_data_xfer_size":1048576,"max_dma_maps":65535,"pgsizes":4096}}` + "\x00"},
		{"ours", version{minor: 1, caps: &capabilities{Own: &ownCaps{}}},
			"\x00\x00\x01\x00" + `{"capabilities":{"splicenic":{"iova_ranges":[{"first":1,"last":2}],"numa_node":1,"atomic_remap":true}}}` + "\x00"},
	} {
		if got := text(answer(row.ask, info)); got != row.want {
			t.Errorf("%s: %q, want %q", row.name, got, row.want)
		}
	}
}

func TestErrno(t *testing.T) {
	for _, row := range []struct {
		err  error
		want errno
		back error
	}{
		{device.ErrBusy, eBUSY, device.ErrBusy},
		{device.ErrDeviceLost, eNODEV, device.ErrDeviceLost},
		{device.ErrNotSupported, eNOTSUP, device.ErrNotSupported},
		{&device.OpError{Op: "x", Dev: "y", Err: device.ErrRange}, eINVAL, device.ErrRange},
		{violation("x"), eINVAL, device.ErrRange},
		{device.ErrDMA, eFAULT, device.ErrDMA},
		{errors.Join(errors.New("x"), eEXIST), eEXIST, device.ErrDMA},
		{errors.New("x"), eIO, eIO},
	} {
		got := errnoOf(row.err)
		if got != row.want || !errors.Is(errnoError(got), row.back) || !errors.Is(errnoError(got), got) {
			t.Errorf("%v: %v, back %v", row.err, got, errnoError(got))
		}
	}
	if got := errno(999).Error(); got != "errno 999" {
		t.Error(got)
	}
}

func TestAreas(t *testing.T) {
	for _, row := range []struct {
		name  string
		areas []Area
		ok    bool
	}{
		{"none", nil, true},
		{"two", []Area{{0, 0x1000}, {0x2000, 0x2000}}, true},
		{"overlap", []Area{{0, 0x2000}, {0x1000, 0x1000}}, false},
		{"not in order", []Area{{0x2000, 0x1000}, {0, 0x1000}}, false},
		{"empty", []Area{{0x1000, 0}}, false},
		{"half a page", []Area{{0x800, 0x1000}}, false},
		{"beyond", []Area{{0x3000, 0x2000}}, false},
		{"far beyond", []Area{{1 << 63, 0x1000}}, false},
		{"wraps", []Area{{0x1000, 0xfffffffffffff000}}, false},
	} {
		if err := checkAreas(row.areas, 0x4000, 0x1000); (err == nil) != row.ok {
			t.Errorf("%s: %v", row.name, err)
		}
	}
}
