// Package dns publishes the VIPs of a director whose services work: as a zone file (RFC 1035, 5) and as the answers of a
// name server of its own. Several directors publish one zone, each for itself or knowing its peers.
//
// Make is the pure core: configuration, health and what the peers said make a Zone, and Reply answers a question from it.
// A Server keeps a zone up to date around that. Publish tells it what counts; Run owns everything that moves: one goroutine
// that makes zones and writes the file, two that answer datagrams, one that accepts connections and one for each of at most
// 96 of them, and one for each peer. All have ended when Run returns.
//
// # What a director says that has nothing to say
//
// A service has lost its quorum when none of its servers takes connections and nobody is sorry in their place. Its VIPs then
// leave the names that lead to it. As long as a name has an address left, its own or a peer's, that is all. With the last
// address of a type gone there are four things a name server could say, and a resolver that knows several name servers of
// the zone makes very different things of them:
//
//   - NOERROR without an answer, or NXDOMAIN, is a fact about the zone. The resolver keeps it as long as the SOA's minimum
//     says (RFC 2308, 5), tells it to its clients, and asks no other name server. One director that is down would hide
//     those that work.
//   - REFUSED makes it ask the next name server, but some resolvers take the whole server to be lame for the zone, and leave
//     it alone for minutes after it is well again, for names too that were never touched.
//   - Silence costs each question a time-out of the resolver, again and again.
//   - SERVFAIL makes it ask the next name server at once, is kept for that question and that server only (RFC 2308, 7.1;
//     RFC 9520, 3.2: seconds), and lets a resolver that finds nobody better go on with what it had (RFC 8767, 4).
//
// So it is SERVFAIL, with the extended error "not ready" (RFC 8914, 4.15) where the question has EDNS. It is said of types
// that the configuration promises only: a name that never has IPv6 addresses has none by fact. A server that knows no health
// yet says it of everything. When the process is gone, the port is closed, and resolvers go on for that reason.
//
// A zone file cannot say SERVFAIL: who serves it from a file says that there is no such address, as long as the SOA's minimum
// lets it be kept, which is the TTL. The comment at the end of the file names what is out.
//
// # Peers
//
// Where directors know each other, each publishes the VIPs of all that live. A director asks its peers by DNS over TCP, which
// nobody off the path can answer in their name: for each record what is below the label _own, where a director tells what it
// serves itself, whatever it publishes for others. What a peer says is believed as far as the configuration lists the address
// among the peer's VIPs, so that the worst a false answer can do is to take one of these out. A round is begun every third of
// a TTL and has a third of a TTL to end; a peer that does not answer in it, or not with an answer, is out. What changes at one
// director is thus in everybody's answers within two thirds of a TTL, and out of resolvers a TTL later.
//
// When the directors do not reach each other, but the world reaches all of them, each publishes its own VIPs alone, and
// resolvers still find all of them by their name servers.
//
// # Where it listens
//
// At an address of the host, of the loopback interface too. Frames for a VIP go to the card, and the kernel never sees them:
// it cannot listen on a VIP, and the configuration refuses it. A VIP can serve DNS all the same, as a service whose servers
// are the addresses that directors listen on.
//
// # Abuse
//
// An answer by UDP has at most 1232 bytes and most have less than 200; ANY gets one HINFO (RFC 8482). Each client network
// (IPv4 /24, IPv6 /56) has 200 answers a second by UDP, 400 at once; beyond that every second question gets a truncated answer
// without records, which sends a real resolver to TCP, and the others none. The table of networks has a fixed size. Whole zones
// go to configured addresses only. Every question that gets no answer is counted by its reason.
package dns
