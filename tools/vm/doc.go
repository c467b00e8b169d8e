// Package vm boots virtual machines that own emulated cards. QEMU reaches a card on this machine over a vfio-user socket
// and shows it to its guest as a PCI Express device behind an IOMMU; the guest drives it through its kernel's /dev/vfio.
//
// The machine needs no virtualisation: QEMU interprets the guest's instructions. QEMU and the guest kernels are Debian
// packages, unpacked into a private folder that is kept from one run to the next; nothing is installed. The guest has no
// disk and no network: its files are an initramfs written here, and its first program, tools/vm/init, does what the host
// asks for over a serial line, see tools/vm/agent.
//
// The tests of this package run when asked for: make test-vm, and make test-vm-iommufd for a kernel built with iommufd.
package vm
