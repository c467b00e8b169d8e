package spec

// Access says what a load and a store of a register, or of one field of it, do.
// No access kind has a side effect on a load.
type Access uint8

const (
	RO  Access = iota + 1 // stores are ignored (strict mode reports them)
	RW                    // reads back what was stored
	WO                    // reads 0; used for secrets and commands
	W1C                   // storing a one clears the bit
	W1S                   // storing a one starts an action or sets the bit
)

// Class says what kind of value a register holds. Identity, control and status registers never legally read all
// ones, so that all ones means a lost device; the other classes may, and cost one check of the identity register.
type Class uint8

const (
	Identity Class = iota + 1
	Control
	Status
	Counter // 64 bits as lo, hi; runs freely, wraps
	Window  // bytes of a buffer
	Key     // secrets and hash keys
	Pointer // addresses, indexes and times that use the whole word
)

// A Value names one value of a field.
type Value struct {
	Value uint32
	Name  string
}

// A Field is a run of bits of a 32-bit word. Bits that no field names are reserved: they read 0 and ignore stores.
type Field struct {
	Name       string
	Lsb, Width uint8
	Access     Access // zero: the register's
	Reset      uint32
	Unit       string
	Values     []Value // named values; empty: a number
	Alias      string  // prefix of short constants for the values, shared by all fields of one meaning; empty: none
	Doc        string
}

// A Register is a 32-bit word of a block, a pair of words (Wide: lo, hi) or an array of either.
type Register struct {
	Name   string
	Offset uint32 // bytes from the start of the block's instance
	Count  uint32 // elements; zero: one
	Stride uint32 // bytes between elements; zero: the size of one element
	Wide   bool   // 64 bits, the low word first
	Access Access
	Class  Class
	Reset  uint32 // of the low word; the fields' where fields are given. Identity: the image decides
	Max    uint32 // largest legal value without fields; zero: every value, which identity, control and status may not
	Unit   string
	Fields []Field
	Doc    string
}

// A Block is a group of registers in BAR0. Instance i starts at Offset + i × Stride.
type Block struct {
	Name      string
	Type      uint16
	Version   uint16
	Offset    uint32
	Stride    uint32   // bytes an instance takes; a multiple of 0x100
	Instances []string // their names; empty: one, named like the block
	Shell     bool     // part of the shell, whose layout never changes
	Registers []Register
	Doc       string
}

// A Word is one 32-bit word of a memory format, or Count words of one meaning.
type Word struct {
	Name   string
	Index  uint32 // words from the start
	Count  uint32 // zero: one
	Unit   string
	Fields []Field
	Doc    string
}

// A Format is the layout of one entry of a memory or ring.
type Format struct {
	Name  string
	Bytes uint32
	Words []Word
	Doc   string
}

// A Memory is a window of BAR2: Banks × Count entries of one Format, linearly from Offset. The card's geometry may have
// fewer entries than Count, never more; Offset never moves.
type Memory struct {
	Name     string
	Format   string
	Also     []string // other formats of the same size that entries may have
	Offset   uint64   // bytes from the start of BAR2
	Count    uint32   // entries of one bank in the default geometry
	Max      uint32   // entries of one bank the window has room for
	Banks    uint32   // zero: one; bank b starts at Offset + b × Max × Bytes
	Geometry string   // the geometry register that says how many entries this image has
	Doc      string
}

// A Map is the whole description.
type Map struct {
	Blocks   []Block
	Formats  []Format
	Memories []Memory
}

// number is the largest value of a plain register that counts something: bit 31 stays zero, so that it never reads all
// ones.
const number = 1<<31 - 1

// notAllOnes is the largest value of a register that may hold any word but that one.
const notAllOnes = 1<<32 - 2

// BAR sizes in bytes. They belong to the shell.
const (
	Bar0Bytes = 1 << 20
	Bar2Bytes = 512 << 20
	Bar4Bytes = 64 << 10
)

// Magic is the first word of the directory: "SPLC", the S in the lowest byte.
const Magic = 0x434c5053

// PCI identity of the default image.
const (
	VendorID = 0x1234
	DeviceID = 0x5c1c
)

// Card returns the map of the card.
func Card() *Map {
	return &Map{
		Blocks:   append(shellBlocks(), dataPathBlocks()...),
		Formats:  formats(),
		Memories: memories(),
	}
}

// f builds a plain field.
func f(name string, lsb, width uint8, doc string) Field {
	return Field{Name: name, Lsb: lsb, Width: width, Doc: doc}
}

// short gives a field's values short constants of their own, beside the long ones.
func short(fd Field, alias string) Field {
	fd.Alias = alias
	return fd
}

// enum builds a field with named values, counted from zero.
func enum(name string, lsb, width uint8, doc string, names ...string) Field {
	fd := Field{Name: name, Lsb: lsb, Width: width, Doc: doc}
	for i, n := range names {
		if n != "" {
			fd.Values = append(fd.Values, Value{uint32(i), n})
		}
	}
	return fd
}

// A count names one counter of a run.
type count struct{ name, unit, doc string }

// counters lays 64-bit counters one after another from offset.
func counters(offset uint32, cs ...count) []Register {
	rs := make([]Register, 0, len(cs))
	for i, c := range cs {
		rs = append(rs, Register{Name: c.name, Offset: offset + uint32(i)*8, Wide: true, Access: RO, Class: Counter, Unit: c.unit, Doc: c.doc})
	}
	return rs
}

// join puts runs of registers together.
func join(runs ...[]Register) []Register {
	var rs []Register
	for _, r := range runs {
		rs = append(rs, r...)
	}
	return rs
}
