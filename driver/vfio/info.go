package vfio

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"

	"splicenic/driver/device"
)

// host is the kernel, and the names its answers are told with.
type host struct {
	k kernel
	nodes
}

// ioctl makes one call; detail is said after the request's name.
func (h *host) ioctl(fd int, on string, r request, detail string, arg any) (int, error) {
	n, err := h.k.ioctl(fd, r, arg)
	return n, h.explain(named(r, detail), on, err)
}

func named(r request, detail string) string {
	if detail == "" {
		return r.String()
	}
	return r.String() + " " + detail
}

func (h *host) open(path string, flags int) (int, error) {
	fd, err := h.k.open(path, flags)
	return fd, h.explain("open", path, err)
}

func (h *host) closeEvent(f *os.File, what string) error {
	return h.explain("close", "the event of "+what+" of "+h.address, h.k.closeEvent(f))
}

// maxInfo bounds an answer: what the kernel says it would fill is not believed without a limit.
const maxInfo = 1 << 16

// query asks for a structure that capabilities may follow. size is the structure's; index goes to its third word where it is
// not negative. When the kernel has more to say than there is room for, it is asked again.
func (h *host) query(fd int, on string, r request, size, index int) ([]byte, error) {
	detail := ""
	if index >= 0 {
		detail = fmt.Sprint(index)
	}
	room := uint32(size)
	for range 4 {
		b := make([]byte, room)
		binary.NativeEndian.PutUint32(b, room)
		if index >= 0 {
			binary.NativeEndian.PutUint32(b[8:], uint32(index))
		}
		if _, err := h.ioctl(fd, on, r, detail, b); err != nil {
			return nil, err
		}
		argsz := binary.NativeEndian.Uint32(b)
		if argsz <= room {
			return b[:max(argsz, uint32(size))], nil
		}
		if argsz > maxInfo {
			return nil, &ReplyError{named(r, detail), fmt.Sprintf("it has %d bytes", argsz)}
		}
		room = argsz
	}
	return nil, &ReplyError{named(r, detail), "its size never settles"}
}

// decode takes a structure from the front of an answer.
func decode(b []byte, v any) error {
	if _, err := binary.Decode(b, binary.NativeEndian, v); err != nil {
		return fmt.Errorf("an answer of %d bytes is too short: %w", len(b), err)
	}
	return nil
}

// An infoCap is one capability of an answer. body goes on to the answer's end.
type infoCap struct {
	id, version uint16
	body        []byte
}

// chain walks the capabilities of an answer from first on. Each lies inside the answer, behind the structure of size bytes,
// and none is met twice.
func chain(b []byte, first uint32, size int) ([]infoCap, error) {
	var caps []infoCap
	seen := map[uint32]bool{}
	for at := first; at != 0; {
		if at < uint32(size) || at%4 != 0 || uint64(at)+8 > uint64(len(b)) {
			return nil, fmt.Errorf("a capability at %d of %d bytes", at, len(b))
		}
		if seen[at] {
			return nil, fmt.Errorf("the capability at %d comes twice", at)
		}
		seen[at] = true
		var h capHeader
		if err := decode(b[at:], &h); err != nil {
			return nil, err
		}
		caps = append(caps, infoCap{h.ID, h.Version, b[at+8:]})
		at = h.Next
	}
	return caps, nil
}

// A region is what the kernel says about one.
type region struct {
	flags        uint32
	size, offset uint64 // offset in the device's file: told, never computed
	msixMappable bool
	sparse       bool         // only areas may be mapped
	areas        []sparseArea // in order, disjoint
}

func parseRegion(b []byte, index int, page uint64) (region, error) {
	var i regionInfo
	if err := decode(b, &i); err != nil {
		return region{}, err
	}
	r := region{flags: i.Flags, size: i.Size, offset: i.Offset}
	if i.Index != uint32(index) {
		return r, fmt.Errorf("it is about region %d", i.Index)
	}
	if r.size > 1<<62 || r.offset > 1<<63-1-r.size {
		return r, fmt.Errorf("%d bytes at %#x", r.size, r.offset)
	}
	if i.Flags&regionFlagCaps == 0 {
		return r, nil
	}
	caps, err := chain(b, i.CapOffset, binary.Size(i))
	if err != nil {
		return r, err
	}
	for _, c := range caps {
		switch c.id {
		case regionCapMSIX:
			r.msixMappable = true
		case regionCapSparse:
			r.sparse = true
			if r.areas, err = parseAreas(c.body, r.size, page); err != nil {
				return r, err
			}
		}
	}
	return r, nil
}

// parseAreas takes the areas of a sparse region.
func parseAreas(b []byte, size, page uint64) ([]sparseArea, error) {
	var n struct{ Areas, Reserved uint32 }
	if err := decode(b, &n); err != nil {
		return nil, err
	}
	b = b[8:]
	if uint64(n.Areas)*16 > uint64(len(b)) {
		return nil, fmt.Errorf("%d areas in %d bytes", n.Areas, len(b))
	}
	var areas []sparseArea
	end := uint64(0)
	for i := range n.Areas {
		var a sparseArea
		if err := decode(b[16*i:], &a); err != nil {
			return nil, err
		}
		if a.Size == 0 {
			continue
		}
		if a.Offset%page != 0 || a.Offset < end || a.Offset > size || a.Size > size-a.Offset {
			return nil, fmt.Errorf("area %d, %#x bytes at %#x, in a region of %#x bytes", i, a.Size, a.Offset, size)
		}
		end = a.Offset + a.Size
		areas = append(areas, a)
	}
	return areas, nil
}

// windows is where a device's memory may be mapped.
type windows struct {
	ranges  []device.IOVARange
	page    uint64 // smallest page of the IOMMU
	sizes   uint64 // all of them, one bit each; zero: not told
	avail   uint32 // mappings left
	limited bool   // avail is told
}

// fullRange is assumed of a kernel that tells no ranges: the first 39 bits, the least any IOMMU translates, without the
// window that x86 keeps for interrupts.
func fullRange() []device.IOVARange {
	return []device.IOVARange{{First: 0, Last: 0xfedf_ffff}, {First: 0xfef0_0000, Last: 1<<39 - 1}}
}

func parseIOMMU(b []byte) (windows, error) {
	w := windows{page: 4096}
	var i iommuInfo
	if err := decode(b, &i); err != nil {
		return w, err
	}
	if i.Flags&iommuFlagPageSizes != 0 && i.PageSizes != 0 {
		w.sizes = i.PageSizes
		w.page = i.PageSizes & -i.PageSizes
	}
	if i.Flags&iommuFlagCaps != 0 {
		caps, err := chain(b, i.CapOffset, binary.Size(i))
		if err != nil {
			return w, err
		}
		for _, c := range caps {
			switch c.id {
			case iommuCapRanges:
				if w.ranges, err = parseRanges(c.body); err != nil {
					return w, err
				}
			case iommuCapAvail:
				if len(c.body) < 4 {
					return w, fmt.Errorf("a number of mappings in %d bytes", len(c.body))
				}
				w.avail, w.limited = binary.NativeEndian.Uint32(c.body), true
			}
		}
	}
	if w.ranges == nil {
		w.ranges = fullRange()
	}
	return w, w.check()
}

func parseRanges(b []byte) ([]device.IOVARange, error) {
	var n struct{ Ranges, Reserved uint32 }
	if err := decode(b, &n); err != nil {
		return nil, err
	}
	b = b[8:]
	if uint64(n.Ranges)*16 > uint64(len(b)) {
		return nil, fmt.Errorf("%d ranges in %d bytes", n.Ranges, len(b))
	}
	rs := make([]device.IOVARange, n.Ranges)
	if err := binary.Read(bytes.NewReader(b), binary.NativeEndian, rs); err != nil {
		return nil, fmt.Errorf("%d ranges in %d bytes: %w", n.Ranges, len(b), err)
	}
	return rs, nil
}

func (w *windows) check() error {
	if w.page < 1 || w.page > 1<<30 {
		return fmt.Errorf("the IOMMU's smallest page has %d bytes", w.page)
	}
	for _, r := range w.ranges {
		if r.First > r.Last {
			return fmt.Errorf("a range from %#x to %#x", r.First, r.Last)
		}
	}
	return nil
}
