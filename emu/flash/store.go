package flash

// A Store keeps what a flash holds. Ranges lie inside the flash; no Store is used after an error of its own but by Close.
type Store interface {
	ReadAt(p []byte, off uint32) error
	WriteAt(p []byte, off uint32) error // inside one sector
	Blank(sector uint32) error          // that starts there
	Board() (Board, error)
	SetBoard(b Board) error
	Close() error
}

// A Board is what stays over power cycles beside the cells.
type Board struct {
	Next      uint32 // boot slot
	Protected bool
}

// Memory is a Store in memory. A blank sector costs nothing, and neither does one that was never changed.
type Memory struct {
	sectorBytes uint32
	sectors     [][]byte // nil: blank
	given       []bool   // the sector's bytes are somebody else's
	board       Board
}

// NewMemory makes a Store that holds content from address 0 on and is blank beyond. content is never written to and must
// not change.
func NewMemory(p Part, content []byte) *Memory {
	n := p.Bytes / p.SectorBytes
	m := &Memory{sectorBytes: p.SectorBytes, sectors: make([][]byte, n), given: make([]bool, n)}
	for i := 0; i < int(n) && len(content) > 0; i++ {
		k := min(len(content), int(p.SectorBytes))
		m.sectors[i], m.given[i] = content[:k:k], true
		content = content[k:]
	}
	return m
}

// ReadAt reads over any number of sectors.
func (m *Memory) ReadAt(p []byte, off uint32) error {
	for len(p) > 0 {
		in := off % m.sectorBytes
		n := min(int(m.sectorBytes-in), len(p))
		have := 0
		if s := m.sectors[off/m.sectorBytes]; int(in) < len(s) {
			have = copy(p[:n], s[in:])
		}
		fill(p[have:n])
		p, off = p[n:], off+uint32(n)
	}
	return nil
}

// WriteAt writes inside one sector.
func (m *Memory) WriteAt(p []byte, off uint32) error {
	i := off / m.sectorBytes
	if m.sectors[i] == nil || m.given[i] {
		s := make([]byte, m.sectorBytes)
		fill(s[copy(s, m.sectors[i]):])
		m.sectors[i], m.given[i] = s, false
	}
	copy(m.sectors[i][off%m.sectorBytes:], p)
	return nil
}

// Blank erases a sector.
func (m *Memory) Blank(sector uint32) error {
	m.sectors[sector/m.sectorBytes], m.given[sector/m.sectorBytes] = nil, false
	return nil
}

// Board returns what is kept beside the cells.
func (m *Memory) Board() (Board, error) { return m.board, nil }

// SetBoard keeps it.
func (m *Memory) SetBoard(b Board) error {
	m.board = b
	return nil
}

// Close does nothing.
func (m *Memory) Close() error { return nil }

// fill makes bytes blank.
func fill(p []byte) {
	for i := range p {
		p[i] = 0xff
	}
}
