// Package vfiouser carries a card over a UNIX socket, with the vfio-user protocol that virtual machines speak too.
//
// Server offers any device.Function to one client at a time: a host program, or QEMU, whose guest then owns the card as a
// PCI device. Client is a device.Device whose card is behind such a socket. What is on the wire is the protocol of QEMU's
// docs/interop/vfio-user.rst, versions 0.0 and 0.1; the codec (message.go, payload.go, regioninfo.go, version.go) is pure.
//
//	driver → Client ── register loads and stores, set-up ──► Server → Function
//	         memory files ═══ mapped once by the server ═══► device.Memory
//	         eventfds ◄════════ written by the server ══════ vectors
//
// # Order
//
// Commands are answered in their order. Stores are messages without a reply; a load is one with a reply and so follows
// them. Memory that comes with a file is shared, and needs no messages; other memory is read and written by messages of the
// server's own, over a second socket if the client takes one, else on the one socket while no reply is owed. There a
// function must answer loads while it waits for memory, which device.SlowMemory tells it: one that holds a lock over its
// accesses, and needs it for a load the client waits for, is refused after Config.DMATimeout. So is an access to memory
// that the client is about to unmap. A virtual machine that shares its memory (memory-backend-memfd, share=on) is quicker
// and knows nothing of this.
//
// # A client that ends
//
// The function's state outlives its client. The client's eventfds are dropped at once. Its memory stays: the card goes on
// writing its rings until they are full, so a successor finds no gap in the sequence numbers. The successor's first DMA map
// replaces all of it in one step; maps sent without reply count into that step up to the first one with a reply. A map of
// the same file at the same IOVA is not touched at all. Memory without a file goes with its client, and then the function
// has no host until the next one comes.
//
// # Attaching again
//
// A Client keeps its DMA memory in named files under Options.Dir, one for each AllocDMA, and their IOVAs in dma.json beside
// them. A process that dies leaves both behind, one that calls Detach as well; Close removes them. With Options.Reattach
// Dial maps everything that dma.json lists, in the one step above, before it returns. AllocDMA then returns the memory of
// its name if the size is the same; among several of one name, in the order in which they were first allocated. Kept tells
// which memory that was: it is not zeroed. When all memory has been asked for, ReleaseUnclaimed gives back the rest. Whether
// the contents are still good is for the caller to read from the card: the server may be another than before. Interrupts that
// nobody heard are lost, so rings are looked at once after EnableVectors.
//
// # Who owns what
//
// Serve runs one goroutine for each connection and waits for them; it takes file descriptors that it receives and closes
// those it does not keep. A Client runs one goroutine for its socket, one for the second socket, one for each notice; Close
// and Detach end them. Memory of AllocDMA is the caller's until DMA.Close. A peer is not trusted: nothing is allocated by
// a number it sends beyond a fixed bound, and a file it cuts short is an error, not a fault.
package vfiouser
