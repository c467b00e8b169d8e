package port

import (
	"errors"
	"slices"
)

// Steps names the steps of opening an interface, in order.
func Steps() (names []string) {
	for _, s := range opening {
		names = append(names, s.name)
	}
	return names
}

// OpenFailing opens an interface with one step replaced by a failure.
func OpenFailing(name, step string, failure error) error {
	steps := slices.Clone(opening[:])
	for i := range steps {
		if steps[i].name == step {
			steps[i].do = func(*Packet, string) error { return failure }
		}
	}
	p, err := openSteps(name, steps)
	if err != nil {
		return err
	}
	return errors.Join(errors.New("no failure"), p.Close())
}
