// Package bench measures the emulated card: how many small frames a second one core translates with every connection
// live, how many whole connections it carries from SYN to the last ACK, how many SYNs it answers with cookies, and what a
// random read costs on the same machine, to judge the others by.
//
// The card under test is the product's own: tables are written through the driver, connections are set up by
// handshakes, and every frame passes ports, parsers, CAM, page and transmit end. Only the wires are special: at one end
// of each stands a generator in memory. All of it runs in the caller's goroutine.
package bench
