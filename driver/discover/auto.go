package discover

import (
	"fmt"
	"strings"
)

// An AutoError says why no card could be chosen among those that were found.
type AutoError struct {
	Candidates []Candidate // those in question: all, or the usable ones where they are several
}

// Error lists the cards, each with the next command.
func (e *AutoError) Error() string {
	several := len(e.Candidates) > 0 && e.Candidates[0].Usable
	var s strings.Builder
	switch {
	case several:
		fmt.Fprintf(&s, "choose a card: %d are usable", len(e.Candidates))
	case len(e.Candidates) == 1:
		s.WriteString("choose a card: one was found, and it is not usable")
	default:
		fmt.Fprintf(&s, "choose a card: %d were found, none is usable", len(e.Candidates))
	}
	for i := range e.Candidates {
		c := &e.Candidates[i]
		if several {
			fmt.Fprintf(&s, "\n  %s: name it: --card %s", c.Address, c.Name())
			continue
		}
		fmt.Fprintf(&s, "\n  %s: %s; next: %s", c.Address, c.Why, c.Next)
	}
	return s.String()
}

// Auto chooses a card: the one that is usable. It returns nil where the machine has no card at all, which means the
// emulator, and an *AutoError where there are cards but not exactly one that is usable. It never binds.
func Auto(cfg Config) (*Candidate, error) {
	found, err := List(cfg)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	var usable []Candidate
	for _, c := range found {
		if c.Usable {
			usable = append(usable, c)
		}
	}
	switch len(usable) {
	case 0:
		return nil, &AutoError{found}
	case 1:
		return &usable[0], nil
	}
	return nil, &AutoError{usable}
}
