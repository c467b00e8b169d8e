package exception

import (
	"time"

	"splicenic/runtime/config"
)

// What is believed about the MTU of a path (RFC 1191 3 and 6.3, RFC 8201 4).
const (
	leastPath4  = 552 // the least that Linux believes, too: a smaller one serves attacks only
	leastPath6  = 1280
	pathExpires = 10 * time.Minute
)

// plateaus are tried in turn where a router does not say its MTU (RFC 1191 7.1).
var plateaus = [...]int{1492, 1006}

// paths are the next hops behind which less fits than through their port.
type paths struct {
	mtu     map[config.Hop]path
	version uint64
}

type path struct {
	mtu   uint16
	until time.Duration
}

// of returns the MTU of the path behind a hop; zero: not known to be less than the port's.
func (x *paths) of(hop config.Hop) uint16 { return x.mtu[hop].mtu }

// learnPath takes in what a router said about a packet of total bytes to a server, and says whether that lowers anything.
func (h *Handler) learnPath(s *Server, said uint32, total int) bool {
	if s.Hop == (config.Hop{}) || s.Port >= len(h.st.Ports) {
		return false
	}
	mtu, least := int(min(said, 1<<16-1)), leastPath6
	if s.Hop.Neighbor.Is4() {
		least = leastPath4
		if mtu == 0 {
			mtu = least
			for _, p := range plateaus {
				if p < total {
					mtu = p
					break
				}
			}
		}
	}
	mtu = max(mtu, least)
	if mtu >= total || mtu >= int(h.st.Ports[s.Port].MTU) { // what it is about would have passed
		return false
	}
	old, known := h.paths.mtu[s.Hop]
	if known && mtu > int(old.mtu) {
		return false
	}
	h.paths.mtu[s.Hop] = path{uint16(mtu), h.now + pathExpires}
	if known && mtu == int(old.mtu) {
		return false
	}
	h.paths.version++
	return true
}

// expire forgets what is too old: paths change.
func (x *paths) expire(now time.Duration) {
	for hop, p := range x.mtu {
		if now >= p.until {
			delete(x.mtu, hop)
			x.version++
		}
	}
}

// next is when something is too old next.
func (x *paths) next(sooner time.Duration) time.Duration {
	for _, p := range x.mtu {
		sooner = min(sooner, p.until)
	}
	return sooner
}

// Paths returns the MTU of the paths behind those next hops where it is less than the port's, and a number that changes
// with them.
func (h *Handler) Paths() (mtu map[config.Hop]uint16, version uint64) {
	mtu = make(map[config.Hop]uint16, len(h.paths.mtu))
	for hop, p := range h.paths.mtu {
		mtu[hop] = p.mtu
	}
	return mtu, h.paths.version
}

// PathVersion is the number that Paths returns.
func (h *Handler) PathVersion() uint64 { return h.paths.version }
