package vfiouser

import "encoding/binary"

// Payloads follow the structures of linux/vfio.h. Every append function is the reverse of the decode function beside it;
// both are pure.

var le = binary.LittleEndian

// Flags of a DMA map.
const (
	dmaRead  = 1 << 0
	dmaWrite = 1 << 1
	dmaFlags = dmaRead | dmaWrite | 1<<2 // an old name for "comes with a file"
)

// dmaMap asks to make memory known to the device.
type dmaMap struct {
	argsz, flags       uint32
	offset, iova, size uint64
}

const dmaMapBytes = 32

func appendDMAMap(b []byte, m dmaMap) []byte {
	b = le.AppendUint32(le.AppendUint32(b, m.argsz), m.flags)
	return le.AppendUint64(le.AppendUint64(le.AppendUint64(b, m.offset), m.iova), m.size)
}

func decodeDMAMap(b []byte) (dmaMap, error) {
	if len(b) != dmaMapBytes {
		return dmaMap{}, violation("dma map of %d bytes", len(b))
	}
	m := dmaMap{le.Uint32(b), le.Uint32(b[4:]), le.Uint64(b[8:]), le.Uint64(b[16:]), le.Uint64(b[24:])}
	switch {
	case m.argsz < dmaMapBytes:
		return m, violation("dma map: argsz %d", m.argsz)
	case m.flags&^dmaFlags != 0 || m.flags&(dmaRead|dmaWrite) == 0:
		return m, violation("dma map: flags %#x", m.flags)
	case m.size == 0 || m.size-1 > ^m.iova || m.size-1 > ^m.offset:
		return m, violation("dma map: %d bytes at iova %#x, offset %#x", m.size, m.iova, m.offset)
	}
	return m, nil
}

// Flags of a DMA unmap.
const (
	unmapDirty = 1 << 0
	unmapAll   = 1 << 1
)

// dmaUnmap asks to forget memory; the reply repeats it.
type dmaUnmap struct {
	argsz, flags uint32
	iova, size   uint64
}

const dmaUnmapBytes = 24

func appendDMAUnmap(b []byte, m dmaUnmap) []byte {
	b = le.AppendUint32(le.AppendUint32(b, m.argsz), m.flags)
	return le.AppendUint64(le.AppendUint64(b, m.iova), m.size)
}

func decodeDMAUnmap(b []byte) (dmaUnmap, error) {
	if len(b) < dmaUnmapBytes { // what would follow is a bitmap, which the flags ask for
		return dmaUnmap{}, violation("dma unmap of %d bytes", len(b))
	}
	m := dmaUnmap{le.Uint32(b), le.Uint32(b[4:]), le.Uint64(b[8:]), le.Uint64(b[16:])}
	switch {
	case m.argsz < dmaUnmapBytes:
		return m, violation("dma unmap: argsz %d", m.argsz)
	case m.flags&unmapAll != 0 && (m.iova != 0 || m.size != 0):
		return m, violation("dma unmap of everything with %d bytes at iova %#x", m.size, m.iova)
	case m.flags&unmapAll == 0 && (m.size == 0 || m.size-1 > ^m.iova):
		return m, violation("dma unmap: %d bytes at iova %#x", m.size, m.iova)
	}
	return m, nil
}

// Flags of a device.
const (
	deviceReset = 1 << 0
	devicePCI   = 1 << 1
)

// deviceInfo is request and reply.
type deviceInfo struct{ argsz, flags, regions, irqs uint32 }

const deviceInfoBytes = 16

func appendDeviceInfo(b []byte, i deviceInfo) []byte {
	for _, v := range []uint32{i.argsz, i.flags, i.regions, i.irqs} {
		b = le.AppendUint32(b, v)
	}
	return b
}

func decodeDeviceInfo(b []byte) (deviceInfo, error) {
	if len(b) < deviceInfoBytes {
		return deviceInfo{}, violation("device info of %d bytes", len(b))
	}
	i := deviceInfo{le.Uint32(b), le.Uint32(b[4:]), le.Uint32(b[8:]), le.Uint32(b[12:])}
	if i.argsz < deviceInfoBytes {
		return i, violation("device info: argsz %d", i.argsz)
	}
	return i, nil
}

// Flags of an interrupt index.
const (
	irqEventfd    = 1 << 0
	irqMaskable   = 1 << 1
	irqAutomasked = 1 << 2
	irqNoResize   = 1 << 3
)

// Interrupt indexes of a PCI device.
const (
	irqINTx = iota
	irqMSI
	irqMSIX
	irqError
	irqRequest
	irqIndexes
)

// irqInfo is request and reply.
type irqInfo struct{ argsz, flags, index, count uint32 }

const irqInfoBytes = 16

func appendIRQInfo(b []byte, i irqInfo) []byte {
	for _, v := range []uint32{i.argsz, i.flags, i.index, i.count} {
		b = le.AppendUint32(b, v)
	}
	return b
}

func decodeIRQInfo(b []byte) (irqInfo, error) {
	if len(b) < irqInfoBytes {
		return irqInfo{}, violation("irq info of %d bytes", len(b))
	}
	i := irqInfo{le.Uint32(b), le.Uint32(b[4:]), le.Uint32(b[8:]), le.Uint32(b[12:])}
	if i.argsz < irqInfoBytes {
		return i, violation("irq info: argsz %d", i.argsz)
	}
	return i, nil
}

// Flags of a set-irqs request: one kind of data, one action.
const (
	setNone    = 1 << 0
	setBool    = 1 << 1
	setEventfd = 1 << 2
	setMask    = 1 << 3
	setUnmask  = 1 << 4
	setTrigger = 1 << 5

	setData   = setNone | setBool | setEventfd
	setAction = setMask | setUnmask | setTrigger
)

// irqSet sets what interrupts start..start+count-1 of an index do. data is one byte for each with setBool.
type irqSet struct {
	argsz, flags, index, start, count uint32
	data                              []byte
}

const (
	irqSetBytes = 20
	// maxVectors is the most vectors MSI-X knows.
	maxVectors = 2048
)

func appendIRQSet(b []byte, s irqSet) []byte {
	for _, v := range []uint32{s.argsz, s.flags, s.index, s.start, s.count} {
		b = le.AppendUint32(b, v)
	}
	return append(b, s.data...)
}

func oneBit(v uint32) bool { return v != 0 && v&(v-1) == 0 }

func decodeIRQSet(b []byte) (irqSet, error) {
	if len(b) < irqSetBytes {
		return irqSet{}, violation("set irqs of %d bytes", len(b))
	}
	s := irqSet{argsz: le.Uint32(b), flags: le.Uint32(b[4:]), index: le.Uint32(b[8:]), start: le.Uint32(b[12:]), count: le.Uint32(b[16:])}
	switch {
	case s.argsz < irqSetBytes:
		return s, violation("set irqs: argsz %d", s.argsz)
	case s.flags&^(setData|setAction) != 0 || !oneBit(s.flags&setData) || !oneBit(s.flags&setAction):
		return s, violation("set irqs: flags %#x", s.flags)
	case s.start > maxVectors || s.count > maxVectors-s.start:
		return s, violation("set irqs: %d from %d", s.count, s.start)
	case s.flags&setBool != 0 && len(b)-irqSetBytes < int(s.count):
		return s, violation("set irqs: %d bytes of data for %d interrupts", len(b)-irqSetBytes, s.count)
	case s.count == 0 && (s.start != 0 || s.flags != setNone|setTrigger):
		return s, violation("set irqs: none from %d, flags %#x", s.start, s.flags)
	}
	if s.flags&setBool != 0 {
		s.data = b[irqSetBytes:][:s.count]
	}
	return s, nil
}

// regionAccess reads or writes a region. data is what is written, or what was read.
type regionAccess struct {
	offset        uint64
	region, count uint32
	data          []byte
}

func appendRegionAccess(b []byte, a regionAccess) []byte {
	b = le.AppendUint64(b, a.offset)
	b = le.AppendUint32(le.AppendUint32(b, a.region), a.count)
	return append(b, a.data...)
}

// decodeRegionAccess reads an access that carries its data, or not, as withData says.
func decodeRegionAccess(b []byte, withData bool) (regionAccess, error) {
	if len(b) < accessBytes {
		return regionAccess{}, violation("region access of %d bytes", len(b))
	}
	a := regionAccess{offset: le.Uint64(b), region: le.Uint32(b[8:]), count: le.Uint32(b[12:]), data: b[accessBytes:]}
	want := uint64(0)
	if withData {
		want = uint64(a.count)
	}
	switch {
	case a.count > maxTransfer:
		return a, violation("region access: %d bytes in one message", a.count)
	case uint64(len(a.data)) != want:
		return a, violation("region access: %d bytes of data for a count of %d", len(a.data), a.count)
	}
	return a, nil
}

// dmaAccess reads or writes host memory from the device's side.
type dmaAccess struct {
	iova, count uint64
	data        []byte
}

func appendDMAAccess(b []byte, a dmaAccess) []byte {
	return append(le.AppendUint64(le.AppendUint64(b, a.iova), a.count), a.data...)
}

func decodeDMAAccess(b []byte, withData bool) (dmaAccess, error) {
	if len(b) < accessBytes {
		return dmaAccess{}, violation("dma access of %d bytes", len(b))
	}
	a := dmaAccess{iova: le.Uint64(b), count: le.Uint64(b[8:]), data: b[accessBytes:]}
	want := uint64(0)
	if withData {
		want = a.count
	}
	switch {
	case a.count > maxTransfer:
		return a, violation("dma access: %d bytes in one message", a.count)
	case uint64(len(a.data)) != want:
		return a, violation("dma access: %d bytes of data for a count of %d", len(a.data), a.count)
	}
	return a, nil
}

// decodeDMAWritten reads the reply to a DMA write. Its count is four bytes in the specification and eight in the wild.
func decodeDMAWritten(b []byte) (iova uint64, count uint32, err error) {
	if len(b) < accessBytes-4 {
		return 0, 0, violation("reply to dma write of %d bytes", len(b))
	}
	return le.Uint64(b), le.Uint32(b[8:]), nil
}
