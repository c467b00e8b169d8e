package xilinx

// FrameWords is the length of a frame of the 7 series.
const FrameWords = 101

// idcodeMask is what of an IDCODE is compared: the highest four bits are the silicon's revision.
const idcodeMask = 0x0fffffff

// A Refusal is why the configuration logic stopped.
type Refusal uint8

// Refusals.
const (
	RefusedNothing Refusal = iota
	RefusedIDCode          // for another part, or frame data before any IDCODE
	RefusedCRC
	RefusedCommand // not a packet, or a command that is none
)

func (r Refusal) String() string {
	return [...]string{"none", "idcode", "crc", "command"}[r&3]
}

// Logic is the configuration logic of a 7-series part: what flash and ICAP feed, word for word. It is made by NewLogic.
//
// It takes no notice of anything before a sync word. After a refusal it has lost sync too, so that nothing of a bad stream
// has an effect any more; the next sync word begins anew and forgets the refusal. Frame addresses do not count up by
// themselves here, for which frames a part has is not known.
type Logic struct {
	// Data takes frame data, unless it is nil: word n after the frame address was set. Words arrive before their check
	// does, so they count for nothing until Up.
	Data func(far uint32, n int, word uint32)

	// What the stream wrote since the last sync word.
	UserAccess    uint32 // AXSS
	HasUserAccess bool
	WBSTAR        uint32
	IPROG         bool // asked to load the image at WBSTAR
	Started       bool
	Checks        int // that agreed

	idcode   uint32
	synced   bool
	desynced bool
	refusal  Refusal

	reg, left uint32 // words to come for a register
	pending   bool   // type 2 may say how many
	known     bool   // the right IDCODE was written
	crc       uint32
	far       uint32
	words     int                // since far was set
	frame     [FrameWords]uint32 // the last frame, as a ring
}

// NewLogic is the configuration logic of a part with this IDCODE.
func NewLogic(idcode uint32) *Logic { return &Logic{idcode: idcode} }

// Reset is the state after power-on.
func (l *Logic) Reset() { *l = Logic{Data: l.Data, idcode: l.idcode} }

// Synced says whether a sync word was seen, and neither DESYNC nor a refusal after it.
func (l *Logic) Synced() bool { return l.synced }

// Refused is the refusal since the last sync word.
func (l *Logic) Refused() Refusal { return l.refusal }

// Up says whether the design runs: it does once START and DESYNC came and nothing was refused.
func (l *Logic) Up() bool { return l.Started && l.desynced && l.refusal == RefusedNothing }

// Write takes a word.
func (l *Logic) Write(w uint32) {
	if !l.synced {
		if w == syncWord {
			l.Reset()
			l.synced = true
		}
		return
	}
	if l.left > 0 {
		l.left--
		l.take(w)
		return
	}
	switch w >> 29 {
	case 0: // zero fill between the rows of a debug image
		if w != 0 {
			l.refuse(RefusedCommand)
			return
		}
		l.reg, l.left = regFDRI, 0
		l.take(w)
	case 1:
		l.reg, l.left = register(w), w&0x7ff
		l.pending = opcode(w) != 0 && l.left == 0
	case 2:
		if !l.pending {
			l.refuse(RefusedCommand)
			return
		}
		l.left, l.pending = w&0x7ffffff, false
	default:
		l.refuse(RefusedCommand)
		return
	}
	if w>>29 != 0 && opcode(w) != 2 {
		l.left = 0 // no operation, or a read, which brings no words
	}
}

func (l *Logic) refuse(r Refusal) {
	l.refusal, l.synced = r, false
}

// take is a word for register reg.
func (l *Logic) take(w uint32) {
	switch l.reg {
	case regCRC:
		if w != l.crc {
			l.refuse(RefusedCRC)
			return
		}
		l.Checks++
		l.crc = 0
		return
	case regLOUT, regBOUT:
		return
	}
	l.crc = crc32C.word(l.crc, l.reg, w)
	switch l.reg {
	case regFAR:
		l.far, l.words = w, 0
	case regIDCODE:
		if (w^l.idcode)&idcodeMask != 0 {
			l.refuse(RefusedIDCode)
			return
		}
		l.known = true
	case regFDRI:
		if !l.known {
			l.refuse(RefusedIDCode)
			return
		}
		l.frame[l.words%FrameWords] = w
		if l.Data != nil {
			l.Data(l.far, l.words, w)
		}
		l.words++
	case regMFWR:
		// The words of the packet are idle time for the part, in which it writes the last frame to the address.
		if !l.known {
			l.refuse(RefusedIDCode)
			return
		}
		if l.left == 0 && l.Data != nil {
			for n, word := range l.frame {
				l.Data(l.far, n, word)
			}
		}
	case regAXSS:
		l.UserAccess, l.HasUserAccess = w, true
	case regWBSTAR:
		l.WBSTAR = w
	case regCMD:
		l.command(w)
	}
}

// commands are the ones there are, one bit each.
const commands = 1<<0 | 1<<1 | 1<<2 | 1<<3 | 1<<4 | 1<<5 | 1<<6 | 1<<7 | 1<<8 | 1<<9 | 1<<10 | 1<<11 | 1<<12 | 1<<13 | 1<<15 | 1<<16 | 1<<17 | 1<<18 | 1<<19

func (l *Logic) command(c uint32) {
	if c > 31 || commands>>c&1 == 0 {
		l.refuse(RefusedCommand)
		return
	}
	switch c {
	case CmdRCRC:
		l.crc = 0
	case CmdStart:
		l.Started = true
	case CmdDesync:
		l.synced, l.desynced = false, true
	case CmdIPROG:
		l.IPROG = true
	}
}
