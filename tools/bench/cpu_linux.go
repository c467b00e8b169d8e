package bench

import (
	"time"

	"golang.org/x/sys/unix"
)

// threadTime is how long this thread has run, and processTime all of them together: what others do on the machine does
// not count, but for what it does to the caches.
func threadTime() time.Duration { return clock(unix.CLOCK_THREAD_CPUTIME_ID) }

func processTime() time.Duration { return clock(unix.CLOCK_PROCESS_CPUTIME_ID) }

func clock(id int32) time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(id, &t) != nil {
		return time.Duration(time.Now().UnixNano())
	}
	return time.Duration(t.Nano())
}
