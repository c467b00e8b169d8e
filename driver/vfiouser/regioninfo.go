package vfiouser

// Regions as VFIO numbers them: six BARs, the ROM, configuration space, VGA.
const (
	regionConfig = 7
	regionVGA    = 8
	regionCount  = 9

	configBytes = 4096
)

// Flags of a region.
const (
	regionRead  = 1 << 0
	regionWrite = 1 << 1
	regionMmap  = 1 << 2
	regionCaps  = 1 << 3
)

// An Area is a part of a region that can be mapped; both numbers are whole pages.
type Area struct{ Offset, Size uint64 }

// regionInfo is request and reply. In the reply a capability may follow:
//
//	32  id u16 = 1  version u16 = 1  next u32   40  areas u32, reserved u32   48  {offset u64, size u64} each
type regionInfo struct {
	argsz, flags, index, capOffset uint32
	size, offset                   uint64
	areas                          []Area
}

const (
	regionInfoBytes = 32
	capHeaderBytes  = 8
	sparseBytes     = capHeaderBytes + 8
	areaBytes       = 16
	capSparse       = 1

	maxAreas = 256
	maxCaps  = 16 // in one reply, so that a chain in a circle ends
)

// regionInfoSize is how long the whole reply is.
func regionInfoSize(areas int) uint32 {
	if areas == 0 {
		return regionInfoBytes
	}
	return uint32(regionInfoBytes + sparseBytes + areas*areaBytes)
}

// appendRegionInfo writes i as it is; areas follow if there are any.
func appendRegionInfo(b []byte, i regionInfo) []byte {
	for _, v := range []uint32{i.argsz, i.flags, i.index, i.capOffset} {
		b = le.AppendUint32(b, v)
	}
	b = le.AppendUint64(le.AppendUint64(b, i.size), i.offset)
	if len(i.areas) == 0 {
		return b
	}
	b = le.AppendUint16(le.AppendUint16(b, capSparse), 1)
	b = le.AppendUint32(b, 0)
	b = le.AppendUint64(b, uint64(len(i.areas)))
	for _, a := range i.areas {
		b = le.AppendUint64(le.AppendUint64(b, a.Offset), a.Size)
	}
	return b
}

// decodeRegionInfo reads a request or a reply. Capabilities of other kinds are passed over.
func decodeRegionInfo(b []byte) (regionInfo, error) {
	if len(b) < regionInfoBytes {
		return regionInfo{}, violation("region info of %d bytes", len(b))
	}
	i := regionInfo{
		argsz: le.Uint32(b), flags: le.Uint32(b[4:]), index: le.Uint32(b[8:]), capOffset: le.Uint32(b[12:]),
		size: le.Uint64(b[16:]), offset: le.Uint64(b[24:]),
	}
	if i.argsz < regionInfoBytes {
		return i, violation("region info: argsz %d", i.argsz)
	}
	if i.flags&regionCaps == 0 {
		return i, nil
	}
	at := i.capOffset
	for range maxCaps {
		if at == 0 || at >= uint32(len(b)) && at < i.argsz { // none, or it did not fit into the reply
			return i, nil
		}
		if at < regionInfoBytes || uint64(at)+capHeaderBytes > uint64(len(b)) {
			return i, violation("region info: capability at %d of %d bytes", at, len(b))
		}
		c := b[at:]
		if le.Uint16(c) == capSparse {
			if err := i.decodeSparse(c); err != nil {
				return i, err
			}
		}
		at = le.Uint32(c[4:])
	}
	return i, violation("region info: more than %d capabilities", maxCaps)
}

func (i *regionInfo) decodeSparse(c []byte) error {
	if len(c) < sparseBytes {
		return violation("region info: sparse capability of %d bytes", len(c))
	}
	n := le.Uint32(c[capHeaderBytes:])
	if n > maxAreas || int(n)*areaBytes > len(c)-sparseBytes {
		return violation("region info: %d areas in %d bytes", n, len(c))
	}
	i.areas = make([]Area, n)
	for j := range i.areas {
		a := c[sparseBytes+j*areaBytes:]
		i.areas[j] = Area{le.Uint64(a), le.Uint64(a[8:])}
	}
	return nil
}

// checkAreas refuses areas that are not whole pages inside a region of the given size, in order and apart.
func checkAreas(areas []Area, size, page uint64) error {
	at := uint64(0)
	for _, a := range areas {
		if a.Offset < at || a.Offset%page != 0 || a.Size == 0 || a.Size%page != 0 || a.Size > size || a.Offset > size-a.Size {
			return violation("area of %#x bytes at %#x in a region of %#x", a.Size, a.Offset, size)
		}
		at = a.Offset + a.Size
	}
	return nil
}
