package health

// A Quorum says whether enough of a group is healthy. It is lost when the weights of the healthy servers sum up to less
// than Need, and back when they sum up to Need and Hysteresis. The zero value asks for one and is not lost.
type Quorum struct {
	Need       uint64 // zero: one
	Hysteresis uint64
	Lost       bool
}

// Next returns the quorum as it is with so much weight healthy.
func (q Quorum) Next(healthy uint64) Quorum {
	least := max(q.Need, 1)
	if q.Lost {
		least += q.Hysteresis
	}
	q.Lost = healthy < least
	return q
}
