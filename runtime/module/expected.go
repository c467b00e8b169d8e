package module

import (
	"net/netip"
	"time"
)

// Bounds of Expected.
const (
	expectedLife = time.Minute
	maxExpected  = 4096
)

// A Key is by what an expected connection is known when it comes.
type Key struct {
	UDP        bool
	FromServer bool
	From       netip.Addr     // FromServer: the server's address; else the client's
	At         netip.AddrPort // where it goes
}

// Expected is the table of connections that will follow; T is what its owner knows of each. The zero value is empty.
type Expected[T any] struct {
	Expired, Evicted uint64 // that nobody came for; oldest ones given up for new ones

	of    map[Key]*expected[T]
	order []*expected[T] // oldest first; used ones are passed over
}

type expected[T any] struct {
	key  Key
	what T
	end  time.Duration
	gone bool
}

// Add enters a connection, in the place of one with the same key.
func (x *Expected[T]) Add(k Key, what T, now time.Duration) {
	x.Expire(now)
	if x.of == nil {
		x.of = map[Key]*expected[T]{}
	}
	if old := x.of[k]; old != nil {
		old.gone = true
		delete(x.of, k)
	}
	if len(x.of) == maxExpected {
		x.drop(&x.Evicted)
	}
	if len(x.order) >= 2*maxExpected { // most of it was used
		kept := x.order[:0]
		for _, e := range x.order {
			if !e.gone {
				kept = append(kept, e)
			}
		}
		x.order = kept
	}
	e := &expected[T]{key: k, what: what, end: now + expectedLife}
	x.of[k] = e
	x.order = append(x.order, e)
}

// Get looks a connection up.
func (x *Expected[T]) Get(k Key, now time.Duration) (what T, ok bool) {
	e := x.of[k]
	if e == nil || now >= e.end {
		return what, false
	}
	return e.what, true
}

// Remove takes a connection that came out.
func (x *Expected[T]) Remove(k Key) {
	if e := x.of[k]; e != nil {
		e.gone = true
		delete(x.of, k)
	}
}

// Len is how many there are.
func (x *Expected[T]) Len() int { return len(x.of) }

// Expire forgets what nobody came for in time.
func (x *Expected[T]) Expire(now time.Duration) {
	for len(x.order) > 0 && (x.order[0].gone || now >= x.order[0].end) {
		x.drop(&x.Expired)
	}
}

// drop forgets the oldest one.
func (x *Expected[T]) drop(counter *uint64) {
	for len(x.order) > 0 {
		e := x.order[0]
		x.order[0] = nil
		x.order = x.order[1:]
		if !e.gone {
			*counter++
			delete(x.of, e.key)
			return
		}
	}
}
