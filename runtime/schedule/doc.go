// Package schedule turns a group's scheduler and its servers into what the card has: a slot table to walk, a slot table to
// hash into, or slots whose servers' counters it compares. [Make] lays the slots out and says how they are meant, as a
// [Plan]; [Plan.Pick] is the card's own arithmetic over them, for explanations and as the reference of the card's tests.
//
// It is pure: clock, counters and what was remembered come from the caller, nothing depends on map order, and the same
// input gives the same slots. It holds no memory and no goroutine.
//
// # The schedulers
//
// The names are ipvsadm's, and so is the meaning; where it differs the table says how. "overhead" is 256 × active +
// inactive connections, "slots" what the card chooses from.
//
//	rr     walk     One slot a server, in their order.
//	wrr    walk     Slots in proportion to weight, in the order of LVS: A A B A B C A B C for 4:3:2.
//	lc     compare  The least overhead.
//	wlc    compare  The least overhead / weight.
//	sed    compare  The least (active + 1) / weight: shortest expected delay.
//	nq     compare  The first server without an active connection; where all have one, as sed: never queue.
//	fo     compare  The greatest weight that takes connections: fail over.
//	ovf    compare  The greatest weight of those with fewer active connections than weight, else the greatest. LVS lets
//	                active reach weight + 1, and refuses where all are full.
//	twos   compare  Two random slots of the wrr table, the less overhead / weight of the two.
//	p2c    compare  Two random slots of the wrr table, the fewer active connections. LVS does not have it.
//	sh     hash     The client's address into the wrr table; with Port address and port (sh-port). LVS lays the same shares
//	                out in 256 buckets in runs, and keeps a bucket for weight zero; here weight zero has no slot.
//	dh     hash     The VIP's address into the rr table.
//	mh     hash     The client's address, with Port address and port (mh-port), into a Maglev table: when one of n servers
//	                goes its clients get another server, and few of the others: of all clients 3 % with 10 servers and
//	                1,021 places, 1 % with 4,093. Servers stand in it by their ID, not by their place in the file, so
//	                that cards with the same servers and seed agree. The places are a prime, as in LVS.
//	lblc   hash     The VIP's address into a table that gives each VIP a server by wlc; it moves when the server has more
//	                active connections than weight while another has fewer than half its weight: locality.
//	lblcr  hash     As lblc with a set of servers for each VIP: the least loaded of the set serves; under overload the set
//	                grows, and after Options.Expire without growing it loses its most loaded server.
//
// Where the hashed slot's server takes no connection there is none, as in LVS; with Fallback (sh-fallback, mh-fallback) the
// slots behind it are tried. lblc and lblcr always fall back: the host moves what it finds closed. With sh and dh a change
// of servers or weights, a slow start too, moves most clients, as in LVS; with mh few.
//
// # Bounds
//
// The card compares the counters of at most 64 servers, and looks at no more slots to find one that takes connections.
// A larger group of lc, wlc, sed or nq gets a table of the connections to come: the scheduler's next choices, simulated
// from the counters, to be walked from the first slot on and computed again soon ([Plan.Refresh]). In it a connection
// chosen counts as active at once: it is not long before it is, and as inactive one 256th of a connection would draw all to
// the server that has one fewer. A larger group of fo or ovf has the 64 best of its servers compared.
//
// A slot's weight has 15 bits; larger weights are scaled down together, those of fo and ovf, where weight is also a
// number of connections, cut off. A slot table has at most the card's room: shares are scaled to fit.
//
// # Who is left out
//
// Weight zero: no slot. All weights zero: no slots; the group takes no connection, and the card counts each it refuses. An
// overloaded server (upper and lower thresholds) keeps its slots, for the card passes over them, except where so many
// would stand in a row that the card gives up before the end, and in simulated tables.
package schedule
