// Package card is the card process: it holds a card as long as traffic flows, and offers it on a vfio-user socket to one
// runtime after another.
//
//	card process                                            runtime
//	emu.Card  ─────────────┐                                vfiouser.Client ─ driver.Card ─ daemon
//	                       ├─ vfiouser.Server ─ NAME.card.sock ─┘
//	vfio.Device, its fds ──┘                    NAME.card.json: pid, card, wires
//
// Open and Body.Serve are the process itself. Start, Find and Process.Stop are for whoever needs one: Start puts a process
// of its own session beside the caller and waits until the card is served, Find asks who serves at a path and believes
// only what the kernel says about the other end of the socket. A client that goes, in whatever way, changes nothing about
// forwarding; the next one finds the card as it was left.
//
// A Body owns its card; the goroutines of Serve end with Serve. Start leaves a process behind, that is its purpose.
package card
