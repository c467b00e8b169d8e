// Package guest holds no code: its tests run inside a virtual machine of tools/vm, on a card that the guest's kernel shows
// at /dev/vfio. They are told of the card by the environment and skip without:
//
//	SPLICE_GUEST_CARD       the card's PCI address; vfio-pci has it
//	SPLICE_GUEST_TRANSPORT  how to reach it; empty: whatever the kernel has
//	SPLICE_GUEST_ADJACENT   buffers lie next to each other, without guard gaps
package guest
