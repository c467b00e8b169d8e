package vfio

import "fmt"

// A request is the number of an ioctl: _IO(';', 100 + n) of VFIO, _IO(';', 0x80 + n) of iommufd.
type request uint32

const (
	vfioBase    request = ';'<<8 | 100
	iommufdBase request = ';'<<8 | 0x80

	getAPIVersion   = vfioBase + 0
	checkExtension  = vfioBase + 1
	setIOMMU        = vfioBase + 2
	groupGetStatus  = vfioBase + 3
	groupSetCont    = vfioBase + 4
	groupGetDevice  = vfioBase + 6
	deviceGetInfo   = vfioBase + 7
	deviceGetRegion = vfioBase + 8
	deviceGetIRQ    = vfioBase + 9
	deviceSetIRQs   = vfioBase + 10
	deviceReset     = vfioBase + 11
	iommuGetInfo    = vfioBase + 12
	iommuMapDMA     = vfioBase + 13
	iommuUnmapDMA   = vfioBase + 14
	deviceBind      = vfioBase + 18
	deviceAttach    = vfioBase + 19
	deviceDetach    = vfioBase + 20

	iommufdDestroy = iommufdBase + 0
	ioasAlloc      = iommufdBase + 1
	ioasRanges     = iommufdBase + 4
	ioasMap        = iommufdBase + 5
	ioasUnmap      = iommufdBase + 6
)

var requestNames = map[request]string{
	getAPIVersion: "VFIO_GET_API_VERSION", checkExtension: "VFIO_CHECK_EXTENSION", setIOMMU: "VFIO_SET_IOMMU",
	groupGetStatus: "VFIO_GROUP_GET_STATUS", groupSetCont: "VFIO_GROUP_SET_CONTAINER",
	groupGetDevice: "VFIO_GROUP_GET_DEVICE_FD", deviceGetInfo: "VFIO_DEVICE_GET_INFO", deviceGetRegion: "VFIO_DEVICE_GET_REGION_INFO",
	deviceGetIRQ: "VFIO_DEVICE_GET_IRQ_INFO", deviceSetIRQs: "VFIO_DEVICE_SET_IRQS", deviceReset: "VFIO_DEVICE_RESET",
	iommuGetInfo: "VFIO_IOMMU_GET_INFO", iommuMapDMA: "VFIO_IOMMU_MAP_DMA", iommuUnmapDMA: "VFIO_IOMMU_UNMAP_DMA",
	deviceBind: "VFIO_DEVICE_BIND_IOMMUFD", deviceAttach: "VFIO_DEVICE_ATTACH_IOMMUFD_PT", deviceDetach: "VFIO_DEVICE_DETACH_IOMMUFD_PT",
	iommufdDestroy: "IOMMU_DESTROY", ioasAlloc: "IOMMU_IOAS_ALLOC", ioasRanges: "IOMMU_IOAS_IOVA_RANGES", ioasMap: "IOMMU_IOAS_MAP",
	ioasUnmap: "IOMMU_IOAS_UNMAP",
}

// String returns the name that the kernel's headers give the request.
func (r request) String() string {
	if s, ok := requestNames[r]; ok {
		return s
	}
	return fmt.Sprintf("ioctl %#x", uint32(r))
}

const (
	apiVersion = 0

	// Extensions, which are also IOMMU types.
	extType1   = 1
	extType1v2 = 3
	extNoIOMMU = 8

	groupViable    = 1 << 0
	groupContained = 1 << 1

	deviceFlagReset = 1 << 0
	deviceFlagPCI   = 1 << 1

	regionFlagRead  = 1 << 0
	regionFlagWrite = 1 << 1
	regionFlagMmap  = 1 << 2
	regionFlagCaps  = 1 << 3

	regionCapSparse = 1
	regionCapMSIX   = 3 // the table may lie in a mapping

	regionROM    = 6
	regionConfig = 7

	irqINTx = 0
	irqMSI  = 1
	irqMSIX = 2
	irqERR  = 3
	irqREQ  = 4

	irqFlagEventfd    = 1 << 0
	irqFlagMaskable   = 1 << 1
	irqFlagAutomasked = 1 << 2
	irqFlagNoResize   = 1 << 3

	irqDataNone      = 1 << 0
	irqDataEventfd   = 1 << 2
	irqActionUnmask  = 1 << 4
	irqActionTrigger = 1 << 5

	iommuFlagPageSizes = 1 << 0
	iommuFlagCaps      = 1 << 1
	iommuCapRanges     = 1
	iommuCapAvail      = 3

	mapFlagRead  = 1 << 0 // by the device
	mapFlagWrite = 1 << 1

	ioasFixed    = 1 << 0
	ioasWritable = 1 << 1
	ioasReadable = 1 << 2
)

// The structures of include/uapi/linux/vfio.h and iommufd.h, padding written out. What is not sized by its type starts
// with how many bytes the caller has room for; the kernel answers with how many it would fill.

type groupStatus struct{ Argsz, Flags uint32 }

type deviceInfo struct {
	Argsz, Flags        uint32
	NumRegions, NumIRQs uint32
	CapOffset           uint32
	_                   uint32
}

type regionInfo struct {
	Argsz, Flags     uint32
	Index, CapOffset uint32
	Size, Offset     uint64
}

type sparseArea struct{ Offset, Size uint64 }

type irqInfo struct{ Argsz, Flags, Index, Count uint32 }

// irqSet is followed by its data: nothing, or count descriptors of 32 bits.
type irqSet struct{ Argsz, Flags, Index, Start, Count uint32 }

type iommuInfo struct {
	Argsz, Flags uint32
	PageSizes    uint64
	CapOffset    uint32
	_            uint32
}

type capHeader struct {
	ID, Version uint16
	Next        uint32 // from the start of the structure; 0: last
}

type dmaMap struct {
	Argsz, Flags      uint32
	Vaddr, IOVA, Size uint64
}

type dmaUnmap struct {
	Argsz, Flags uint32
	IOVA, Size   uint64
}

type bindIOMMUFD struct {
	Argsz, Flags uint32
	IOMMUFD      int32
	DeviceID     uint32 // answer
}

type attachIOMMUFD struct{ Argsz, Flags, PageTable, PASID uint32 }

type detachIOMMUFD struct{ Argsz, Flags, PASID uint32 }

// Kernels before PASIDs know these sizes; later ones take them, too.
const (
	attachBytes = 12
	detachBytes = 8
)

type destroyObject struct{ Size, ID uint32 }

type ioasAllocate struct{ Size, Flags, ID uint32 }

type iovaRange struct{ First, Last uint64 }

type ioasIOVARanges struct {
	Size, ID, Num, Reserved uint32
	Allowed, Alignment      uint64 // address of the ranges; answer
}

type ioasMapMemory struct {
	Size, Flags, ID, Reserved uint32
	Vaddr, Length, IOVA       uint64
}

type ioasUnmapMemory struct {
	Size, ID     uint32
	IOVA, Length uint64
}

// Arguments that carry memory of the process: the kernel of kernel_unsafe_linux.go fills in the address.

type dmaMapCall struct {
	dmaMap
	mem []byte
}

type ioasMapCall struct {
	ioasMapMemory
	mem []byte
}

type ioasRangesCall struct {
	ioasIOVARanges
	ranges []iovaRange
}
