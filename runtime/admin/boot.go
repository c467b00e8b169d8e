package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"splicenic/bitstream/program"
	"splicenic/driver/device"
	"splicenic/runtime/flash"
)

// A BootRequest asks for another image.
type BootRequest struct {
	Slot   int                  `json:"slot"`
	Live   bool                 `json:"live"`          // services run, and may be interrupted
	Bad    bool                 `json:"bad,omitempty"` // boot an image that is recorded bad
	Expect *program.Expectation `json:"expect,omitempty"`
	Drain  time.Duration        `json:"drain_ns,omitempty"` // how long connections may take to end; zero: 10 s
}

// What a boot is doing.
const (
	BootNone     = "none"     // none was asked for
	BootDraining = "draining" // services take no new connections, and those there are may end
	BootBooting  = "booting"  // the runtime has let go of the card
	BootStarting = "starting" // the outcome is known; services start again
	BootDone     = "done"     // they run
	BootEnded    = "ended"    // they do not: the runtime ends
)

// A BootState is how far the last boot has come.
type BootState struct {
	State   string           `json:"state"`
	Slot    int              `json:"slot"`
	Steps   []string         `json:"steps"` // so far, in words
	Began   *time.Time       `json:"began"`
	Ended   *time.Time       `json:"ended"`
	Drained bool             `json:"drained"` // no connection was left when it began
	Cut     uint32           `json:"cut"`     // connections that were
	Outcome *program.Outcome `json:"outcome"` // null: not known yet
	Error   string           `json:"error,omitempty"`
	Lost    bool             `json:"lost"` // the card did not come back
}

// Over says whether nothing more happens.
func (b *BootState) Over() bool {
	return b.State == BootNone || b.State == BootDone || b.State == BootEnded
}

// Boots is whose card this is: it can let the card boot. Its methods return at once.
type Boots interface {
	Ask(BootRequest) error
	// Plan says what Ask would lead to. c is the card.
	Plan(ctx context.Context, q BootRequest, c program.Card) (*program.BootPlan, error)
	State() BootState
}

var (
	errNotLive = errors.New("services run, and a boot interrupts them; say --live")
	errBooting = fmt.Errorf("the card boots: %w", device.ErrBusy)
)

func (s *server) bootState(*http.Request) (any, error) {
	if s.boots == nil {
		return nil, errNoRuntime
	}
	return s.boots.State(), nil
}

func (s *server) bootPlan(r *http.Request) (any, error) {
	if s.boots == nil {
		return nil, errNoRuntime
	}
	var q BootRequest
	if err := whole(r, &q, "slot"); err != nil {
		return nil, err
	}
	return flashing(s, func(c flash.Card) (*program.BootPlan, error) { return s.boots.Plan(r.Context(), q, c) })
}

func (s *server) boot(r *http.Request) (any, error) {
	if s.boots == nil {
		return nil, errNoRuntime
	}
	var q BootRequest
	if err := whole(r, &q, "slot"); err != nil {
		return nil, err
	}
	if q.Drain < 0 || q.Drain > time.Hour {
		return nil, fmt.Errorf("%w: drain_ns is %d, an hour at most is wanted", errUsage, q.Drain)
	}
	if !q.Live {
		return nil, errNotLive
	}
	_, err := flashing(s, func(c flash.Card) (struct{}, error) {
		if err := isSlot(r.Context(), c, q.Slot); err != nil {
			return struct{}{}, err
		}
		if err := program.CheckAlarms(r.Context(), c, "a boot"); err != nil {
			return struct{}{}, err
		}
		_, err := s.boots.Plan(r.Context(), q, c) // what fails there is told before anything is drained
		return struct{}{}, err
	})
	if err != nil {
		return nil, err
	}
	if err := s.boots.Ask(q); err != nil {
		return nil, err
	}
	return s.boots.State(), nil
}

// ServeBoot answers requests while a card boots and no runtime runs: only how far that has come. It returns at the end of
// ctx and leaves the socket open.
func ServeBoot(ctx context.Context, l *Listener, boots Boots) error {
	s := &server{boots: boots}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/boot", func(w http.ResponseWriter, _ *http.Request) { write(w, http.StatusOK, s.boots.State()) })
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		status, f := explain(r.Method+" "+r.URL.Path, r.URL.Path, errBooting)
		f.Error.Do = "wait until it is back: splicectl bitstream boot tells"
		write(w, status, f)
	})
	return serve(ctx, l.visit(), mux)
}
