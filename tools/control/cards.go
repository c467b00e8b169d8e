package control

import (
	"splicenic/driver/discover"
	"splicenic/tools/open"
)

// Found is a card of this machine.
type Found struct {
	Name     string `json:"name"` // as --card takes it
	Body     string `json:"body"`
	Driver   string `json:"driver"`
	Group    int    `json:"group"`
	NUMANode int    `json:"numa_node"`
	Link     string `json:"link"`
	Usable   bool   `json:"usable"`
	Why      string `json:"why"`  // why not
	Next     string `json:"next"` // the command that helps
	Note     string `json:"note"` // what this user could not see
}

// Cards lists the cards of this machine.
func Cards(m open.Machine) ([]Found, error) {
	list, err := discover.List(m.Discover())
	if err != nil {
		return nil, err
	}
	found := []Found{}
	for i := range list {
		c := &list[i]
		found = append(found, Found{
			Name: c.Name(), Body: open.VFIO, Driver: c.Driver, Group: c.Group, NUMANode: c.NUMANode, Link: c.Link.String(),
			Usable: c.Usable, Why: c.Why, Next: c.Next, Note: c.Note,
		})
	}
	return append(found, Found{Name: open.Emulator, Body: open.Emulator, Group: -1, NUMANode: -1, Usable: true}), nil
}

// Served is what a card process says when clients may come.
type Served struct {
	Card   string `json:"card"`
	Socket string `json:"socket"`
	PID    int    `json:"pid"`
}
