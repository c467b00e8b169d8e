// Package discover finds cards on the PCI bus and says of each whether a process may take it, why not, and what to do.
//
// It reads sysfs and changes nothing: no card is bound, released or opened here. A card is usable when the vfio-pci
// driver has it, it answers, and its IOMMU group holds nothing that another driver uses. Devices that vanish while the bus
// is listed are passed over. The package keeps no state and starts no goroutine.
package discover
