package devicetest

import "time"

// A Stopwatch measures how long something took, less the time in which the machine let nobody run: a bound that a test
// holds against it says something about the code and nothing about its neighbours.
type Stopwatch struct {
	begin   time.Time
	stalled time.Duration
	end     chan struct{}
	ended   chan struct{}
}

// beat is how often a Stopwatch looks whether it is let run, and hiccup the delay that is not counted as a stall.
const (
	beat   = time.Millisecond
	hiccup = 5 * time.Millisecond
)

// NewStopwatch starts one. Its owner stops it, once.
func NewStopwatch() *Stopwatch {
	s := &Stopwatch{begin: time.Now(), end: make(chan struct{}), ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		tick := time.NewTicker(beat)
		defer tick.Stop()
		for last := s.begin; ; {
			select {
			case <-s.end:
				return
			case <-tick.C:
			}
			now := time.Now()
			if gap := now.Sub(last); gap > hiccup {
				s.stalled += gap - beat
			}
			last = now
		}
	}()
	return s
}

// Stop ends it and returns the time since its start.
func (s *Stopwatch) Stop() time.Duration {
	close(s.end)
	<-s.ended
	return time.Since(s.begin) - s.stalled
}
