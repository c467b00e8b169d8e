// Package netlab makes test networks: network namespaces of its own, joined by veth pairs, in which real clients and
// servers run. It needs a Linux kernel and nothing else: no ip command, no /run/netns, no mounts, no TAP, no packet filter.
//
// A process that may make network namespaces (root, or CAP_SYS_ADMIN) uses a Lab directly. An ordinary user calls Enter
// first, which runs the same program again inside a user and network namespace where it may.
//
// A namespace has no name in the system. It lives as long as this process holds it, a command runs in it or a socket
// made in it is open, and it vanishes with the last of these, however the process ends. A Lab owns one goroutine, which
// starts the commands; Close stops it. Addresses come from 198.18.0.0/15 and 2001:db8::/32 only.
package netlab
