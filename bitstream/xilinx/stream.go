package xilinx

import "fmt"

// A Family is the kind of packets a stream is made of.
type Family string

// Families.
const (
	Words32   Family = "32bit"           // Virtex-4 to UltraScale+
	Spartan3  Family = "spartan3-32bit"  // Virtex-II, Spartan-3, Spartan-3E
	Spartan3A Family = "spartan3a-16bit" // Spartan-3A, Spartan-3AN, Spartan-3A DSP
	Spartan6  Family = "spartan6-16bit"
)

// Commands, as written to the command register.
const (
	CmdNull     = 0
	CmdWCFG     = 1 // frame data follows
	CmdMFW      = 2 // the last frame is written again wherever MFWR says
	CmdLFRM     = 3 // the last frame has been written
	CmdRCFG     = 4
	CmdStart    = 5
	CmdRCRC     = 7 // resets the check
	CmdAGHIGH   = 8
	CmdSwitch   = 9
	CmdGRestore = 10
	CmdShutdown = 11
	CmdDesync   = 13
	CmdREBOOT   = 14 // what IPROG is to Spartan-3A and Spartan-6
	CmdIPROG    = 15 // loads the image at WBSTAR
	CmdLTimer   = 17
)

// A Stream is what was found in a configuration stream. Offsets count from the start of the data given to Decode.
type Stream struct {
	Family Family
	Order  Order
	Sync   int // offset of the first sync word
	End    int // offset behind the last packet, the no-operations after it included

	Packets int
	Dies    int      // images nested in images, the outermost counted: more than 1 for parts of several dies
	IDCodes []uint32 // different ones, in the order they are written: outermost first

	UserAccess *uint32  // the last value written to AXSS (USR_ACCESS)
	Jumps      []uint32 // values other than 0 that were written to WBSTAR: where IPROG or a fallback would go; at most 16
	Reloads    []uint32 // WBSTAR, 0 as well, when the stream itself wrote IPROG: the device goes there at once; at most 16

	Commands [32]int // how often each command was written

	FrameWords int    // words written as frame data, zero fill between rows included, for all dies
	DieWords   []int  // the same for each die, in the order of IDCodes; at most 16
	Repeats    int    // writes to MFWR, of frames that are written once and repeated
	FARs       int    // frame addresses set
	FirstFAR   uint32 // the first of them, the lowest and the highest
	LowFAR     uint32
	HighFAR    uint32

	Encrypted bool // what lies behind cannot be read; neither can its checks
	Debug     int  // writes to LOUT, one for each frame of a debug image

	Good     int // checks that were computed and agreed
	Bad      int
	FirstBad Mismatch

	// Irregular packets are ones that hardware takes and no tool writes, most likely damage that no check covers.
	Irregular      int
	FirstIrregular Finding

	Desynced      bool // the stream ends with DESYNC, outside of any nested image
	Trailing      int  // bytes behind End
	TrailingBlank bool // they are all ff or all 00
}

// A Mismatch is a check that failed.
type Mismatch struct {
	Offset           int // of the stored value
	Stored, Computed uint32
}

// A Finding is something at an offset.
type Finding struct {
	Offset int
	Text   string
}

// A FormatError says where a stream stopped making sense.
type FormatError struct {
	Off int
	Msg string
}

func (e *FormatError) Error() string { return fmt.Sprintf("offset %d: %s", e.Off, e.Msg) }

// Compressed says whether equal frames are written once and repeated.
func (s *Stream) Compressed() bool { return s.Repeats > 0 }

// Started says whether the stream starts the design.
func (s *Stream) Started() bool { return s.Commands[CmdStart] > 0 }

// Partial says whether the stream changes a running device: it writes frames, but not from the first one on, or does not
// start the device.
func (s *Stream) Partial() bool {
	return s.FrameWords > 0 && !s.Encrypted && (!s.Started() || s.FARs > 0 && s.FirstFAR != 0)
}

// Checks is how many checks there are.
func (s *Stream) Checks() int { return s.Good + s.Bad }

// Fault says what is wrong inside the stream, or nothing. A stream without any check has no fault: see Checks.
func (s *Stream) Fault() string {
	switch {
	case s.Bad > 0:
		return fmt.Sprintf("%d of %d checks fail, first the one at offset %d: the file says %08x, its words give %08x",
			s.Bad, s.Checks(), s.FirstBad.Offset, s.FirstBad.Stored, s.FirstBad.Computed)
	case s.Irregular > 0:
		return fmt.Sprintf("%d irregular packets, first at offset %d: %s", s.Irregular, s.FirstIrregular.Offset, s.FirstIrregular.Text)
	case !s.Desynced && !s.Encrypted:
		return fmt.Sprintf("ends at offset %d after packet %d without DESYNC: the end is missing", s.End, s.Packets)
	}
	return ""
}

func (s *Stream) irregular(off int, word uint32, text string) {
	if s.Irregular == 0 {
		s.FirstIrregular = Finding{off, fmt.Sprintf("%08x: %s", word, text)}
	}
	s.Irregular++
}

func (s *Stream) check(off int, stored, computed uint32) {
	if stored == computed {
		s.Good++
		return
	}
	if s.Bad == 0 {
		s.FirstBad = Mismatch{off, stored, computed}
	}
	s.Bad++
}

// maxIDs bounds what a stream made to be hostile can make us remember; parts have at most four dies.
const maxIDs = 16

func (s *Stream) idcode(off int, id uint32) {
	for _, have := range s.IDCodes {
		if have == id {
			return
		}
	}
	if len(s.IDCodes) == maxIDs {
		s.irregular(off, id, "one IDCODE more than any part has dies")
		return
	}
	s.IDCodes = append(s.IDCodes, id)
}

func (s *Stream) far(far uint32) {
	if s.FARs == 0 {
		s.FirstFAR, s.LowFAR, s.HighFAR = far, far, far
	}
	s.LowFAR, s.HighFAR = min(s.LowFAR, far), max(s.HighFAR, far)
	s.FARs++
}

// frames counts words of frame data for a die, from 0 on.
func (s *Stream) frames(die, words int) {
	s.FrameWords += words
	if die >= maxIDs {
		return
	}
	for len(s.DieWords) <= die {
		s.DieWords = append(s.DieWords, 0)
	}
	s.DieWords[die] += words
}

func (s *Stream) reload(to uint32) {
	if len(s.Reloads) < maxIDs {
		s.Reloads = append(s.Reloads, to)
	}
}

func (s *Stream) jump(to uint32) {
	if to != 0 && len(s.Jumps) < maxIDs {
		s.Jumps = append(s.Jumps, to)
	}
}

func (s *Stream) command(off int, v uint32) {
	if v >= 32 {
		s.irregular(off, v, "no such command")
	}
	s.Commands[v&31]++
}
