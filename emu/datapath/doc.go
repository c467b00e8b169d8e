// Package datapath is the card's pipeline: receive parser, address management unit, packet mapping unit, transmit ends
// and timer scan, joined by one state table.
//
// # One batch
//
// Process takes a batch of frames of one port through the pipeline, column by column, so that the memory accesses of
// different frames overlap:
//
//	parse → VIP and server memories, keys → CAM → page → act → output
//
// The last column runs frame by frame in arrival order. Where an earlier frame of the batch changed a CAM, the lookup is
// repeated, so a batch gives the same output as its frames one at a time.
//
// # Receive state machine
//
// A frame passes these states; each that it fails ends it with a counter (drop) or hands it to the host (exception):
//
//	ETHERNET → VLAN → IPV4 | IPV6 → EXTENSION* → TCP → CHECKSUM → FLAGS → OPTIONS (of a SYN) → KEY → CONNECTION → KIND
//
// CONNECTION is the page's state and the side whose CAM was hit; without a hit the state is FREE. KIND is known from
// FLAGS, but where a row of the state table wants to know more, as of a RST whether it is exact, the page tells: never
// for data and ACKs of a splice. State, side and kind are a row of the table, and the row is what act carries out;
// states.md is written from it. For the counters a segment is one of four classes: SYN (no connection, a listener),
// request (payload for a connection that waits for its head), ordinary (any other segment of a connection), exception.
//
// The order of the checks is that of the words on the wire, so CHECKSUM stands behind TCP's lengths and before its
// flags: no verdict but a drop rests on a frame whose sum is wrong.
//
// # Without a page
//
// While the SYN defence answers for a listener, a segment that hits no page acts in state STATELESS: a SYN is answered
// with a cookie and nothing is kept, what brings the cookie back takes a page, and the rest is dropped (defence.go). What a
// cookie holds, and what of a SYN it keeps, stands in cookie.go.
//
// # Passed on
//
// A service whose mode is not splice chooses its server at the SYN or first datagram, and passes that on (pass.go). Its
// connections have states of their own in the table. How a server is chosen stands in pick.go, for splices too; what leads
// a client to the same server again in template.go. Under cookies a service with nat or fullnat proves its clients before
// a server hears of them, and then splices, without reading a head.
//
// The host may have what it injects come back instead of going to a wire (inject.go): so it translates datagrams that it
// put together from fragments, which it then cuts again.
//
// # Toward a server
//
// What a service decides by is its protocol's: a request head, a ClientHello, or nothing, where the first byte is enough,
// or not even that where its servers speak first. Until all of it is there the card only looks for its end; then it
// matches once and picks a server. What only the host can do, or is asked to, it gets with a reason (decide.go): a rule
// that it tests, an answer, a head to be altered, what is refused in words. The scan, which has no rows in the state
// table, sends clients that say nothing for service.fallback to the default group, and asks the host for a word to those
// whose head of HTTP does not end in time, counted from the handshake.
//
// A connection may be one of a single request (lastrequest.go). The client's bytes behind that go nowhere.
//
// # Methods
//
// How a server sees a client is its method. With nat it sees the client's address, with fullnat one of the card's (ports.go);
// either may be of the other family (family.go). Behind a tunnel it gets the client's packet as it is, in one of the card's
// (wrap.go), and with direct routing just so. Splices go by nat and fullnat, and by tunnels whose servers answer through the
// card: those answers come from the VIP, and are known by that.
//
// # What a segment can do
//
// A segment of a spliced connection goes on whatever its numbers, for its receiver to answer. The card concludes something
// from it, where the ends are, that one has closed, only if its receiver takes it (RFC 5961): so nobody who does not see
// a connection's numbers can end it, or make a later RST count as exact. Where a connection has come to a second server,
// that is judged by leg set B.
//
// What the card answers in an end's place, a segment that repeats, that comes out of order or that acknowledges what was
// never sent, may draw the next such segment. A connection is given geometry.max_answers of these answers between two
// looks of the timer scan; more is dropped and counted as storm.
//
// # State
//
// Everything that outlives a batch is in the register file and the memories, where the host can see it. The Core keeps
// only scratch space, indexes that Reindex derives from the memories, and secrets that follow from the defence's key and
// epoch.
//
// A Core belongs to one goroutine at a time; the card's lock sees to it. It starts none.
package datapath

//go:generate go run ./gen
