// Package capture judges captures of a card's wires for the command line. The judgement is the oracle's, which knows of a
// card only what its wires show; captures of any card will do.
package capture

import (
	"fmt"
	"io"
	"net/netip"

	"splicenic/emu/oracle"
)

// Config says what is judged.
type Config struct {
	Listeners []netip.AddrPort // none: connections to all
	Partial   bool             // the captures end in the middle of the traffic
	Most      int              // findings in the result; zero: all that are kept
}

// Finding is a rule that the card broke.
type Finding struct {
	AtMS       float64 `json:"at_ms"` // since the first frame
	Frame      uint64  `json:"frame"` // its number in both captures together, from zero
	Wire       string  `json:"wire"`
	Kind       string  `json:"kind"`
	Connection string  `json:"connection"`
	Detail     string  `json:"detail"`
}

// Result is what was found.
type Result struct {
	Summary    oracle.Summary `json:"summary"`
	Violations []Finding      `json:"violations"`
}

// Check judges two captures, of the client's wire and of the server's.
func Check(client, server string, cfg Config) (Result, error) {
	list, sum, err := oracle.ReadPcap(client, server, oracle.Config{Listeners: cfg.Listeners, Partial: cfg.Partial})
	if err != nil {
		return Result{}, err
	}
	r := Result{Summary: sum, Violations: []Finding{}}
	for _, v := range list {
		if cfg.Most != 0 && len(r.Violations) == cfg.Most {
			break
		}
		r.Violations = append(r.Violations, Finding{float64(v.At.Microseconds()) / 1000, v.Frame, v.Wire.String(), v.Kind.String(), v.Connection, v.Detail})
	}
	return r, nil
}

// Text writes a result for people.
func Text(w io.Writer, r Result) {
	s := &r.Summary
	for _, v := range r.Violations {
		fmt.Fprintf(w, "%.3f ms, frame %d, %s wire, %s: %s: %s\n", v.AtMS, v.Frame, v.Wire, v.Connection, v.Kind, v.Detail)
	}
	if n := s.Violations - uint64(len(r.Violations)); n != 0 {
		fmt.Fprintf(w, "and %d more\n", n)
	}
	fmt.Fprintf(w, "%d frames, %d segments, %d connections, %d spliced, %d untracked segments; %d bytes to servers, %d to clients\n",
		s.Frames, s.Segments, s.Connections, s.Spliced, s.Untracked, s.BytesUp, s.BytesDown)
	switch {
	case s.Violations != 0:
		fmt.Fprintf(w, "%d violations\n", s.Violations)
	case s.Connections == 0:
		fmt.Fprintln(w, "nothing was judged: no connection begins in the captures; its segments need right checksums, and its SYN has to be there")
	default:
		fmt.Fprintln(w, "nothing was found")
	}
}
