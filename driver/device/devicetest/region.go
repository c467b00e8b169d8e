package devicetest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"splicenic/driver/device"
)

func testInfo(t *testing.T, h Harness) {
	i := h.Device.Info()
	if i.Name == "" || i.Body == "" {
		t.Errorf("Info: name %q, body %q", i.Name, i.Body)
	}
	if i.Regions[h.Scratch.Region].Size == 0 || i.Regions[h.Window.Region].Size == 0 {
		t.Errorf("Info: regions %+v lack those of the card", i.Regions)
	}
	if i.Vectors < 1 {
		t.Errorf("Info: %d vectors", i.Vectors)
	}
	if len(i.IOVA) == 0 {
		t.Error("Info: no iova range")
	}
	for _, r := range i.IOVA {
		if r.First > r.Last {
			t.Errorf("Info: iova range %#x-%#x", r.First, r.Last)
		}
	}
	if len(i.IOVA) > 0 { // what the caller does with its copy is its own business
		i.IOVA[0] = device.IOVARange{}
		if h.Device.Info().IOVA[0] == i.IOVA[0] {
			t.Error("Info shares its iova ranges with the caller")
		}
	}
}

func testConfig(t *testing.T, h Harness) {
	i := h.Device.Info()
	var b [4]byte
	if err := h.Device.ReadConfig(0, b[:]); err != nil {
		t.Fatalf("ReadConfig: %v", err)
	}
	want := []byte{byte(i.VendorID), byte(i.VendorID >> 8), byte(i.DeviceID), byte(i.DeviceID >> 8)}
	if !bytes.Equal(b[:], want) {
		t.Errorf("ReadConfig(0) = %x, want %x", b, want)
	}
	for _, on := range []byte{1<<1 | 1<<2, 1 << 1} { // memory space and bus master
		if err := h.Device.WriteConfig(4, []byte{on, 0}); err != nil {
			t.Fatalf("WriteConfig: %v", err)
		}
		var got [2]byte
		if err := h.Device.ReadConfig(4, got[:]); err != nil || got[0]&(1<<1|1<<2) != on {
			t.Errorf("command register %#x (%v), want bits %#x", got, err, on)
		}
	}
	for _, off := range []uint32{4096, 4094, 1<<32 - 2} {
		if err := h.Device.ReadConfig(off, b[:]); !errors.Is(err, device.ErrRange) {
			t.Errorf("ReadConfig(%#x) = %v, want %v", off, err, device.ErrRange)
		}
		if err := h.Device.WriteConfig(off, b[:]); !errors.Is(err, device.ErrRange) {
			t.Errorf("WriteConfig(%#x) = %v, want %v", off, err, device.ErrRange)
		}
	}
	if err := h.Device.Err(); err != nil {
		t.Errorf("Err after refused accesses to configuration space: %v", err)
	}
}

func testRegister(t *testing.T, h Harness) {
	d, s, c := h.Device, h.Scratch, h.Constant
	for _, v := range []uint32{0, 1, 0x5555_5555, 0x2aaa_aaaa, 0x7fff_ffff} {
		d.Store32(s.Region, s.Off, v)
		if got, want := d.Load32(s.Region, s.Off), v&s.Mask; got != want {
			t.Errorf("scratch = %#x, want %#x", got, want)
		}
	}
	d.Store32(c.Region, c.Off, ^c.Value)
	if got := d.Load32(c.Region, c.Off); got != c.Value {
		t.Errorf("constant = %#x, want %#x", got, c.Value)
	}
	if err := d.Err(); err != nil {
		t.Errorf("Err: %v", err)
	}
}

// pattern differs from word to word.
func pattern(i uint64) uint32 { return uint32(i)*2654435761 + 1 }

func testWindow(t *testing.T, h Harness) {
	d, w := h.Device, h.Window
	const n = 16
	for i := uint64(0); i < n; i++ {
		d.Store32(w.Region, w.Off+4*i, pattern(i))
	}
	for i := uint64(0); i < n; i += 2 {
		want := uint64(pattern(i)) | uint64(pattern(i+1))<<32
		if got := d.Load64(w.Region, w.Off+4*i); got != want {
			t.Errorf("Load64 at %#x = %#x, want %#x", w.Off+4*i, got, want)
		}
	}
	d.Store64(w.Region, w.Off+8, 0x1122_3344_5566_7788)
	for i, want := range []uint32{pattern(1), 0x5566_7788, 0x1122_3344, pattern(4)} {
		if got := d.Load32(w.Region, w.Off+4+4*uint64(i)); got != want {
			t.Errorf("word %d = %#x, want %#x", i+1, got, want)
		}
	}
	last := w.Off + w.Bytes - 4
	d.Store32(w.Region, last, 0x600d)
	if got := d.Load32(w.Region, last); got != 0x600d {
		t.Errorf("last word = %#x, want %#x", got, 0x600d)
	}
}

// testStoreOrder: stores are posted in order and a load flushes them all.
func testStoreOrder(t *testing.T, h Harness) {
	d, s, w := h.Device, h.Scratch, h.Window
	for round := range uint64(200) {
		for i := range uint64(8) {
			d.Store32(w.Region, w.Off, uint32(8*round+i))
			d.Store32(s.Region, s.Off, uint32(8*round+i))
		}
		want := uint32(8*round + 7)
		if got := d.Load32(s.Region, s.Off); got != want&s.Mask {
			t.Fatalf("register = %d, want %d", got, want)
		}
		if got := d.Load32(w.Region, w.Off); got != want {
			t.Fatalf("window = %d, want %d", got, want)
		}
	}
}

// testRange: an access outside its region, or misaligned, ends the device. Each row gets a device of its own.
func testRange(t *testing.T, h Harness, open func(*testing.T) Harness) {
	bar := h.Scratch.Region
	size := h.Device.Info().Regions[bar].Size
	absent := -1
	for i, r := range h.Device.Info().Regions {
		if r.Size == 0 {
			absent = i
		}
	}
	rows := []struct {
		name   string
		access func(device.Device)
	}{
		{"load beyond", func(d device.Device) { d.Load32(bar, size) }},
		{"load far beyond", func(d device.Device) { d.Load32(bar, 1<<63) }},
		{"load wraps", func(d device.Device) { d.Load64(bar, ^uint64(7)) }},
		{"load across the end", func(d device.Device) { d.Load64(bar, size-4) }},
		{"load misaligned", func(d device.Device) { d.Load32(bar, 2) }},
		{"load 64 misaligned", func(d device.Device) { d.Load64(bar, 4) }},
		{"store beyond", func(d device.Device) { d.Store32(bar, size, 0) }},
		{"store misaligned", func(d device.Device) { d.Store32(bar, 1, 0) }},
		{"store 64 misaligned", func(d device.Device) { d.Store64(bar, 4, 0) }},
		{"region too high", func(d device.Device) { d.Load32(device.Regions, 0) }},
		{"region negative", func(d device.Device) { d.Load32(-1, 0) }},
		{"region absent", func(d device.Device) { d.Load32(absent, 0) }},
	}
	h.Close() // a card has one owner at a time
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			h := open(t)
			if h.Close != nil {
				defer h.Close()
			}
			defer h.Device.Close()
			row.access(h.Device)
			if err := h.Device.Err(); !errors.Is(err, device.ErrRange) {
				t.Errorf("Err = %v, want %v", err, device.ErrRange)
			}
			if got := h.Device.Load32(h.Constant.Region, h.Constant.Off); got != ^uint32(0) {
				t.Errorf("load after the error = %#x, want all ones", got)
			}
		})
	}
}

// testBlock: a block has what its words have, in either direction, and keeps its place among stores of words.
func testBlock(t *testing.T, h Harness) {
	d, w := h.Device, h.Window
	p := make([]byte, min(w.Bytes, 4096)&^7)
	for i := 0; i < len(p); i += 4 {
		binary.LittleEndian.PutUint32(p[i:], pattern(uint64(i)))
	}
	d.Store32(w.Region, w.Off, 1)
	device.StoreBlock(d, w.Region, w.Off, p)
	for i := 0; i < len(p); i += 4 {
		if got := d.Load32(w.Region, w.Off+uint64(i)); got != pattern(uint64(i)) {
			t.Fatalf("word at %#x = %#x, want %#x", i, got, pattern(uint64(i)))
		}
	}
	at := len(p)/2&^7 - 8
	d.Store32(w.Region, w.Off+uint64(at)+4, 0x600d)
	d.Store64(w.Region, w.Off+uint64(at)+8, 0x1122_3344_5566_7788)
	binary.LittleEndian.PutUint32(p[at+4:], 0x600d)
	binary.LittleEndian.PutUint64(p[at+8:], 0x1122_3344_5566_7788)
	got := make([]byte, len(p))
	device.LoadBlock(d, w.Region, w.Off, got)
	if !bytes.Equal(got, p) {
		t.Error("a block loaded differs from what was stored")
	}
	device.LoadBlock(d, w.Region, w.Off, nil)
	device.StoreBlock(d, w.Region, w.Off, nil)
	if err := d.Err(); err != nil {
		t.Error(err)
	}
}

// testBlockRange: a block that is not inside its region, or misaligned, ends the device and reads all ones.
func testBlockRange(t *testing.T, h Harness, open func(*testing.T) Harness) {
	bar, size := h.Window.Region, h.Device.Info().Regions[h.Window.Region].Size
	h.Close()
	for _, row := range []struct {
		name   string
		region int
		off    uint64
		n      int
	}{
		{"beyond", bar, size, 8},
		{"across the end", bar, size - 8, 16},
		{"wraps", bar, ^uint64(7), 16},
		{"misaligned", bar, 4, 8},
		{"odd length", bar, 0, 12},
		{"region too high", device.Regions, 0, 8},
		{"region negative", -1, 0, 8},
	} {
		for op, access := range map[string]func(device.Device, []byte){
			"load":  func(d device.Device, p []byte) { device.LoadBlock(d, row.region, row.off, p) },
			"store": func(d device.Device, p []byte) { device.StoreBlock(d, row.region, row.off, p) },
		} {
			t.Run(op+" "+row.name, func(t *testing.T) {
				h := open(t)
				if h.Close != nil {
					defer h.Close()
				}
				defer h.Device.Close()
				p := make([]byte, row.n)
				access(h.Device, p)
				if err := h.Device.Err(); !errors.Is(err, device.ErrRange) {
					t.Errorf("Err = %v, want %v", err, device.ErrRange)
				}
				if op == "load" && binary.LittleEndian.Uint32(p[row.n-4:]) != ^uint32(0) {
					t.Errorf("the load has %x, want all ones", p)
				}
			})
		}
	}
}
