// Package vfio is device.Device over the kernel's VFIO: a real card, or an emulated one that a virtual machine owns.
//
// Open takes a card that the vfio-pci driver has, either through its IOMMU group and a container (type1) or through its own
// node and an iommufd. FromFD makes a Device of a descriptor that another process opened. What differs between the two
// ways is behind one interface, domain; what differs between this kernel and the tests' is behind one interface, kernel,
// and no other file makes a system call.
//
//	open     nodes → container or iommufd → device → regions, interrupts, ids → mappings → memory space and bus master on
//	dma      memfd (1 GiB, 2 MiB, 4 KiB pages) → quota → place in the reported ranges, guard gaps → map
//	access   area that may be mapped → driver/mmio, fenced against SIGBUS; the rest, MSI-X table included → pread, pwrite
//	close    waits end → bus master off → interrupts off → dma unmapped → BARs unmapped → memory space off → descriptors
//
// BARs of 4 bytes or 512 MiB look the same to the caller. A BAR whose mapping the kernel takes away (reset, removal, power
// management) answers all ones and ends the device with device.ErrDeviceLost instead of ending the process.
//
// An error names the call, the file, the errno in words, what it means there and what to do: *CallError, *GroupError,
// *QuotaError, *ReplyError, always inside a *device.OpError.
//
// A Device starts one goroutine for each notice the kernel offers, removal requested and bus error; Close ends both. It
// needs no privilege beyond access to its nodes and enough lockable memory.
//
// Not here: binding a driver (driver/discover), hot reset of several functions, migration, dirty tracking, and DMA without
// an IOMMU. A group without IOMMU is refused unless Options.NoIOMMU asks for it, and then gives registers only.
package vfio
