// Package discover finds cards on the PCI bus, says of each whether a process may take it, why not, and what to do, and
// does it: Bind gives a card to vfio-pci, Release gives it back.
//
//	List Auto            what there is, with the facts of sysfs: driver, IOMMU group, link, power, capabilities
//	Bind Release         one transaction each: journal, override, unbind, probe, check; a step that fails undoes the others
//	Doctor UdevRule      what a machine lacks, with a number and the command for it
//	OpenBAR              a BAR through its file in sysfs, for a card that no process has
//
// A card is usable when the vfio-pci driver has it, it answers, its IOMMU group holds nothing that another driver uses, and
// nobody has it open. Devices that vanish while the bus is listed are passed over. Everything but Bind, Release and a BAR's
// stores only reads. The package keeps no state but the journal of what Bind changed, and starts no goroutine.
package discover
