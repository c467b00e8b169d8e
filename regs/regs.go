package regs

// A Reg is the offset of a 32-bit word in BAR0, in bytes.
type Reg uint32

// At returns the register stride × instance further on: of another instance of its block, or another element of its
// array.
func (r Reg) At(instance int, stride Reg) Reg { return r + Reg(instance)*stride }

// Name returns the register's dotted name, or a number where the map has none.
func (r Reg) Name() string {
	if name, _, _, _, ok := At(uint32(r)); ok {
		return name
	}
	return hex(uint32(r))
}

// Access says what a load and a store do. No load has a side effect.
type Access uint8

// The access kinds.
const (
	RO  Access = iota + 1 // stores are ignored
	RW                    // reads back what was stored
	WO                    // reads zero
	W1C                   // storing a one clears the bit
	W1S                   // storing a one starts an action or sets the bit
)

// String returns the access kind as documents write it.
func (a Access) String() string { return pick(uint8(a), "none", "ro", "rw", "wo", "w1c", "w1s") }

// Readable says whether a load tells anything.
func (a Access) Readable() bool { return a != WO }

// Writable says whether a store does anything.
func (a Access) Writable() bool { return a != RO }

// Class says what kind of value a register holds. Identity, control and status registers never read all ones on a card
// that is there.
type Class uint8

// The classes.
const (
	ClassIdentity Class = iota + 1
	ClassControl
	ClassStatus
	ClassCounter // runs freely and wraps
	ClassWindow  // bytes of a buffer
	ClassKey     // secrets and hash keys
	ClassPointer // addresses, indexes and times that use the whole word
)

// String returns the class as documents write it.
func (c Class) String() string {
	return pick(uint8(c), "none", "identity", "control", "status", "counter", "window", "key", "pointer")
}

// BlockInfo describes a block of registers. Instance i starts at Offset + i × Stride.
type BlockInfo struct {
	Name      string
	Type      uint16
	Version   uint16
	Offset    uint32
	Stride    uint32
	Instances []string // at least one; the only one is named like the block
	Shell     bool
	Digest    uint32
	Doc       string
	Registers []RegisterInfo // in order of offset
}

// RegisterInfo describes a register or an array of registers.
type RegisterInfo struct {
	Name   string
	Offset uint32 // from the start of the block's instance
	Count  uint32 // elements, at least one
	Stride uint32 // bytes from one element to the next
	Wide   bool   // 64 bits, the low word first
	Access Access
	Class  Class
	Reset  uint32 // of the low word; of an identity register, the default image's
	Max    uint32 // largest legal value; zero: every value
	Unit   string
	Doc    string
	Fields []FieldInfo // empty: the whole word is one number
}

// Bytes returns the size of one element.
func (r *RegisterInfo) Bytes() uint32 {
	if r.Wide {
		return 8
	}
	return 4
}

// Mask returns the bits that mean something; the others are reserved.
func (r *RegisterInfo) Mask() uint32 { return mask(r.Fields) }

// WriteMask returns the bits that a store changes or acts on.
func (r *RegisterInfo) WriteMask() uint32 {
	if len(r.Fields) == 0 {
		if r.Access.Writable() {
			return 1<<32 - 1
		}
		return 0
	}
	var m uint32
	for i := range r.Fields {
		if r.Fields[i].Access.Writable() {
			m |= r.Fields[i].Mask()
		}
	}
	return m
}

// Field finds a field by its name.
func (r *RegisterInfo) Field(name string) (*FieldInfo, bool) { return field(r.Fields, name) }

// FieldInfo describes a run of bits of a register or of a word of a format.
type FieldInfo struct {
	Name   string
	Lsb    uint8
	Width  uint8
	Access Access
	Reset  uint32
	Unit   string
	Doc    string
	Values []ValueInfo // empty: a number
}

// Mask returns the field's bits in place.
func (f *FieldInfo) Mask() uint32 { return uint32(uint64(1)<<f.Width-1) << f.Lsb }

// Get takes the field out of a word.
func (f *FieldInfo) Get(w uint32) uint32 { return w & f.Mask() >> f.Lsb }

// Set puts the field into a word.
func (f *FieldInfo) Set(w, v uint32) uint32 { return w&^f.Mask() | v<<f.Lsb&f.Mask() }

// ValueName returns the name of a value, empty where it has none.
func (f *FieldInfo) ValueName(v uint32) string {
	for _, x := range f.Values {
		if x.Value == v {
			return x.Name
		}
	}
	return ""
}

// ValueInfo names one value of a field.
type ValueInfo struct {
	Value uint32
	Name  string
}

// FormatInfo describes the layout of an entry of a memory or of a descriptor.
type FormatInfo struct {
	Name  string
	Bytes uint32
	Doc   string
	Words []WordInfo // in order of index
}

// WordInfo describes a 32-bit word of a format, or Count words of one meaning.
type WordInfo struct {
	Name   string
	Index  uint32
	Count  uint32 // at least one
	Unit   string
	Doc    string
	Fields []FieldInfo // empty: the whole word is one number
}

// Reserved says whether the word is kept for later; it is zero.
func (w *WordInfo) Reserved() bool { return w.Name == "reserved" }

// Mask returns the bits that mean something.
func (w *WordInfo) Mask() uint32 {
	if w.Reserved() {
		return 0
	}
	return mask(w.Fields)
}

// Field finds a field by its name.
func (w *WordInfo) Field(name string) (*FieldInfo, bool) { return field(w.Fields, name) }

// Memory describes a window of BAR2: Banks banks with room for Max entries each, one after another from Offset.
type Memory struct {
	Name       string
	Format     string
	Offset     uint64 // in BAR2
	Count      uint32 // entries of a bank in the default geometry
	Max        uint32 // entries of a bank the window has room for
	Banks      uint32
	EntryBytes uint32
	Geometry   Reg // register that says how many entries this image has; zero: see Doc
	Doc        string
}

// Bytes returns the size of the window, all banks together.
func (m *Memory) Bytes() uint64 { return uint64(m.Banks) * uint64(m.Max) * uint64(m.EntryBytes) }

// At returns the BAR2 offset of an entry. Neither number is checked.
func (m *Memory) At(bank, entry uint32) uint64 {
	return m.Offset + (uint64(bank)*uint64(m.Max)+uint64(entry))*uint64(m.EntryBytes)
}

func mask(fs []FieldInfo) uint32 {
	if len(fs) == 0 {
		return 1<<32 - 1
	}
	var m uint32
	for i := range fs {
		m |= fs[i].Mask()
	}
	return m
}

func field(fs []FieldInfo, name string) (*FieldInfo, bool) {
	for i := range fs {
		if fs[i].Name == name {
			return &fs[i], true
		}
	}
	return nil, false
}

func pick(i uint8, names ...string) string {
	if int(i) >= len(names) {
		return names[0]
	}
	return names[i]
}
