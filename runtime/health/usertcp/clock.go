package usertcp

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
)

// A clock is the stack's time, which goes on when it is told to. Timers run one after the other in the goroutine that
// moves it, those of one moment in the order they were set.
type clock struct {
	mu     sync.Mutex
	now    time.Duration
	set    uint64
	timers []*timer // that will run
}

// A timer calls f at a time. Its fields are guarded by the clock's mu.
type timer struct {
	c  *clock
	f  func()
	at time.Duration
	n  uint64 // of the timers set so far
}

// Now is the time as a date, of which only differences mean anything. It is never the zero time, which says "never".
func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Unix(1, 0).Add(c.now)
}

func (c *clock) NowMonotonic() tcpip.MonotonicTime {
	c.mu.Lock()
	defer c.mu.Unlock()
	return tcpip.MonotonicTime{}.Add(time.Second + c.now)
}

func (c *clock) AfterFunc(d time.Duration, f func()) tcpip.Timer {
	t := &timer{c: c, f: f}
	t.Reset(d)
	return t
}

// Stop says whether it kept the timer from running.
func (t *timer) Stop() bool {
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	return t.remove()
}

func (t *timer) remove() bool {
	i := slices.Index(t.c.timers, t)
	if i >= 0 {
		t.c.timers = slices.Delete(t.c.timers, i, i+1)
	}
	return i >= 0
}

// Reset sets the timer again.
func (t *timer) Reset(d time.Duration) {
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	t.remove()
	t.c.set++
	t.at, t.n = t.c.now+max(d, 0), t.c.set
	i, _ := slices.BinarySearchFunc(t.c.timers, t, func(a, b *timer) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.n, b.n))
	})
	t.c.timers = slices.Insert(t.c.timers, i, t)
}

// due takes the next timer that is to run up to a time, and moves to its moment; nil: there is none, and it is that time.
func (c *clock) due(now time.Duration) func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.timers) > 0 && c.timers[0].at <= max(now, c.now) {
		t := c.timers[0]
		c.timers = slices.Delete(c.timers, 0, 1)
		c.now = max(c.now, t.at)
		return t.f
	}
	c.now = max(c.now, now)
	return nil
}

// next is when the next timer runs.
func (c *clock) next() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.timers) == 0 {
		return math.MaxInt64
	}
	return c.timers[0].at
}
