package flash

// faults are what goes wrong on demand.
type faults struct {
	wrap uint32
	bad  map[uint32]bool // by sector
	cut  func(op Operation, off uint32) bool
	dark bool // power has failed
}

// Wrap makes the part ignore bits of every address, as one does whose address lines are not connected, or that is smaller
// than it says. Zero ends it.
func (f *Flash) Wrap(bits uint32) { f.wrap = bits }

// Break makes a sector refuse to be erased and programmed; what it holds can still be read.
func (f *Flash) Break(sector uint32, broken bool) {
	if f.bad == nil {
		f.bad = map[uint32]bool{}
	}
	f.bad[sector] = broken
}

// Cut asks before every operation that changes something whether power fails in the midst of it. A page is programmed up
// to its half then, a sector erased up to its half; the operation and all after it fail with ErrPower, until PowerOn. nil
// ends it.
func (f *Flash) Cut(fails func(op Operation, off uint32) bool) { f.cut = fails }

// CutAfter lets power fail in the midst of the operation after the next n ones that change something.
func (f *Flash) CutAfter(n int) {
	f.Cut(func(Operation, uint32) bool {
		n--
		return n < 0
	})
}

// Dark says whether power has failed.
func (f *Flash) Dark() bool { return f.dark }

// PowerOff takes the power away between two operations.
func (f *Flash) PowerOff() { f.dark = true }

// PowerOn brings power back. Nothing fails any more; what is broken stays so.
func (f *Flash) PowerOn() { f.dark, f.cut = false, nil }

func (f *Flash) cutting(op Operation, off uint32) bool {
	if f.cut == nil || !f.cut(op, off) {
		return false
	}
	f.dark = true
	return true
}
