// Package demo shows the product at work: a client, the card and three HTTP servers, a few hundred requests over different
// hosts and paths, and for each which server got it, which page carried it and by how much its numbers were moved.
//
// Run makes the network of network namespaces, with the kernel's TCP at both ends and the emulated card between two veth
// pairs. Where namespaces are not allowed RunInMemory carries the same requests over ports in memory, with a client and a
// server of package tcppeer, in virtual time. Either starts card and runtime in this process and ends them before it
// returns.
package demo
