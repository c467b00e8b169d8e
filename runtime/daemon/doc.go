// Package daemon is the one writer of the card's tables.
//
// What the tables should hold is a pure function of the configuration, the health of the servers, the operator's wishes and
// the neighbours: images. A Daemon calls it whenever one of these changes, compares the result with its shadow of the
// card, writes the differences to where nobody reads yet, reads them back, and makes them count with single stores: one
// slot selector for each group whose slots changed, and one bank switch for listeners, services, rules, groups and the URL
// table together. Applying a configuration, a resolved next hop and a changed weight all go this way. Indexes stay: what
// is removed keeps its place, closed to new connections, until no connection names it.
//
// A card that was reset opens when its next hops are known (see Accepting). A card that was adopted serves all the time:
// the shadow is read back from it, the names behind its indexes come from the state file that the predecessor wrote, or
// from the tables where there is none, and the first Apply is a change like any other. A runtime may be killed between any
// two stores; what it leaves is what its successor goes on from.
//
// Step does everything that is due at a time it is given, and nothing else runs meanwhile: it drains the exception and
// event rings, lets timers run, writes and returns. Run calls Step whenever the card interrupts or a timer is due; its
// goroutines end before it returns. All methods may be called from any goroutine; a lock makes them take turns.
package daemon
