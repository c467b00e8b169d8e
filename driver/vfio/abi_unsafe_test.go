package vfio

import (
	"encoding/binary"
	"testing"
	"unsafe"
)

// TestFact31ABI compares structures with the sizes and offsets of the kernel's headers.
func TestFact31ABI(t *testing.T) {
	rows := []struct {
		name       string
		memory     uintptr // as Go lays it out
		wire, want int
	}{
		{"vfio_group_status", unsafe.Sizeof(groupStatus{}), binary.Size(groupStatus{}), 8},
		{"vfio_device_info", unsafe.Sizeof(deviceInfo{}), binary.Size(deviceInfo{}), 24},
		{"vfio_region_info", unsafe.Sizeof(regionInfo{}), binary.Size(regionInfo{}), 32},
		{"vfio_region_sparse_mmap_area", unsafe.Sizeof(sparseArea{}), binary.Size(sparseArea{}), 16},
		{"vfio_irq_info", unsafe.Sizeof(irqInfo{}), binary.Size(irqInfo{}), 16},
		{"vfio_irq_set", unsafe.Sizeof(irqSet{}), binary.Size(irqSet{}), 20},
		{"vfio_iommu_type1_info", unsafe.Sizeof(iommuInfo{}), binary.Size(iommuInfo{}), 24},
		{"vfio_info_cap_header", unsafe.Sizeof(capHeader{}), binary.Size(capHeader{}), 8},
		{"vfio_iommu_type1_dma_map", unsafe.Sizeof(dmaMap{}), binary.Size(dmaMap{}), 32},
		{"vfio_iommu_type1_dma_unmap", unsafe.Sizeof(dmaUnmap{}), binary.Size(dmaUnmap{}), 24},
		{"vfio_device_bind_iommufd", unsafe.Sizeof(bindIOMMUFD{}), binary.Size(bindIOMMUFD{}), 16},
		{"vfio_device_attach_iommufd_pt", unsafe.Sizeof(attachIOMMUFD{}), binary.Size(attachIOMMUFD{}), 16},
		{"vfio_device_attach_iommufd_pt before pasid", unsafe.Offsetof(attachIOMMUFD{}.PASID), attachBytes, 12},
		{"vfio_device_detach_iommufd_pt", unsafe.Sizeof(detachIOMMUFD{}), binary.Size(detachIOMMUFD{}), 12},
		{"vfio_device_detach_iommufd_pt before pasid", unsafe.Offsetof(detachIOMMUFD{}.PASID), detachBytes, 8},
		{"iommu_destroy", unsafe.Sizeof(destroyObject{}), binary.Size(destroyObject{}), 8},
		{"iommu_ioas_alloc", unsafe.Sizeof(ioasAllocate{}), binary.Size(ioasAllocate{}), 12},
		{"iommu_iova_range", unsafe.Sizeof(iovaRange{}), binary.Size(iovaRange{}), 16},
		{"iommu_ioas_iova_ranges", unsafe.Sizeof(ioasIOVARanges{}), binary.Size(ioasIOVARanges{}), 32},
		{"iommu_ioas_map", unsafe.Sizeof(ioasMapMemory{}), binary.Size(ioasMapMemory{}), 40},
		{"iommu_ioas_unmap", unsafe.Sizeof(ioasUnmapMemory{}), binary.Size(ioasUnmapMemory{}), 24},

		{"offset of vfio_region_info.size", unsafe.Offsetof(regionInfo{}.Size), 16, 16},
		{"offset of vfio_region_info.offset", unsafe.Offsetof(regionInfo{}.Offset), 24, 24},
		{"offset of vfio_device_info.cap_offset", unsafe.Offsetof(deviceInfo{}.CapOffset), 16, 16},
		{"offset of vfio_iommu_type1_info.cap_offset", unsafe.Offsetof(iommuInfo{}.CapOffset), 16, 16},
		{"offset of vfio_iommu_type1_dma_map.iova", unsafe.Offsetof(dmaMap{}.IOVA), 16, 16},
		{"offset of vfio_iommu_type1_dma_unmap.size", unsafe.Offsetof(dmaUnmap{}.Size), 16, 16},
		{"offset of iommu_ioas_map.iova", unsafe.Offsetof(ioasMapMemory{}.IOVA), 32, 32},
		{"offset of iommu_ioas_iova_ranges.allowed_iovas", unsafe.Offsetof(ioasIOVARanges{}.Allowed), 16, 16},
	}
	for _, row := range rows {
		if int(row.memory) != row.want || row.wire != row.want {
			t.Errorf("%s: %d bytes in memory, %d on the wire, want %d", row.name, row.memory, row.wire, row.want)
		}
	}
	numbers := []struct {
		r    request
		want uint32
	}{
		{getAPIVersion, 0x3b64}, {checkExtension, 0x3b65}, {setIOMMU, 0x3b66}, {groupGetStatus, 0x3b67}, {groupSetCont, 0x3b68},
		{groupGetDevice, 0x3b6a}, {deviceGetInfo, 0x3b6b}, {deviceGetRegion, 0x3b6c}, {deviceGetIRQ, 0x3b6d},
		{deviceSetIRQs, 0x3b6e}, {deviceReset, 0x3b6f}, {iommuGetInfo, 0x3b70}, {iommuMapDMA, 0x3b71}, {iommuUnmapDMA, 0x3b72},
		{deviceBind, 0x3b76}, {deviceAttach, 0x3b77}, {deviceDetach, 0x3b78}, {iommufdDestroy, 0x3b80}, {ioasAlloc, 0x3b81},
		{ioasRanges, 0x3b84}, {ioasMap, 0x3b85}, {ioasUnmap, 0x3b86},
	}
	for _, n := range numbers {
		if uint32(n.r) != n.want {
			t.Errorf("%s = %#x, want %#x", n.r, uint32(n.r), n.want)
		}
	}
	if len(numbers) != len(requestNames) {
		t.Errorf("%d requests are checked of %d", len(numbers), len(requestNames))
	}
}
