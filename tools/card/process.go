package card

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// ErrForeign: whoever serves at a path is no card process of this program.
var ErrForeign = errors.New("it is no card process of ours")

// A LostError is a card process of this program whose file beside the socket does not say so any more.
type LostError struct {
	Socket string
	PID    int
	Err    error // why its file tells nothing
}

func (e *LostError) Error() string {
	why := e.Err.Error()
	if errors.Is(e.Err, os.ErrNotExist) {
		why = "it is gone"
	}
	return fmt.Sprintf("%s serves there, but the file that describes it, %s, does not tell: %s", describe(e.PID), infoPath(e.Socket), why)
}

// Unwrap returns the cause.
func (e *LostError) Unwrap() error { return e.Err }

// Launch says how Start starts a card process.
type Launch struct {
	Command []string      // before the flags; empty: this program's own `card serve`
	Log     string        // file that takes its output; it is appended to
	Timeout time.Duration // until the card is served; zero: 30 s
}

// A StateError is the failure of a card with what its process does meanwhile, which may be the reason.
type StateError struct {
	State string // of the process, and what to do about it
	Err   error
}

func (e *StateError) Error() string { return e.State + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *StateError) Unwrap() error { return e.Err }

// A StartError is a card process that did not come to serve its card.
type StartError struct {
	Socket string
	Err    error
	Log    string   // file
	Lines  []string // its last ones
	Exit   int      // of the process; 0: it was ended because it took too long
}

func (e *StartError) Error() string {
	s := fmt.Sprintf("start card process for %s: %v", e.Socket, e.Err)
	if len(e.Lines) > 0 {
		s += "; the end of " + e.Log + ":\n  " + strings.Join(e.Lines, "\n  ")
	}
	return s
}

// Unwrap returns the cause.
func (e *StartError) Unwrap() error { return e.Err }

// How long things may take that take no time.
const (
	startTimeout = 30 * time.Second
	infoTimeout  = 2 * time.Second // between a card process's socket and its file
	stopTimeout  = 5 * time.Second
)

// maxLog is how large a log grows before the next start puts it aside.
const maxLog = 1 << 20

// lastLines returns up to n last lines of what a file has from an offset on.
func lastLines(path string, from int64, n int) []string {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil
	}
	from = max(from, st.Size()-4096)
	b := make([]byte, max(st.Size()-from, 0))
	k, _ := f.ReadAt(b, from)
	text := strings.TrimRight(string(b[:k]), "\n")
	if text == "" {
		return nil
	}
	lines := strings.Split(text, "\n")
	return lines[max(len(lines)-n, 0):]
}

// A Process is a card process, known for good: its number cannot become another's while the Process is open.
type Process struct {
	Info
	Socket string
	fd     int // pidfd
}

// String describes the process for a person: "process 123 (splicectl)", and that it is stopped where it is.
func (p *Process) String() string { return describe(p.PID) }

func describe(pid int) string {
	name, state := status(pid)
	switch {
	case name == "":
		return fmt.Sprintf("process %d", pid)
	case stopped(state):
		return fmt.Sprintf("process %d (%s, stopped)", pid, name)
	}
	return fmt.Sprintf("process %d (%s)", pid, name)
}

// Stopped says whether the process is stopped, by a signal or a debugger.
func (p *Process) Stopped() bool {
	_, state := status(p.PID)
	return stopped(state)
}

// alike says whether a process runs a program of this one's name.
func alike(pid int) bool {
	mine, _ := status(os.Getpid())
	its, _ := status(pid)
	return its != "" && its == mine
}

func stopped(state byte) bool { return state == 'T' || state == 't' }

// status reads a process's name and state from /proc.
func status(pid int) (name string, state byte) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", 0
	}
	first, last := strings.IndexByte(string(b), '('), strings.LastIndexByte(string(b), ')')
	if first < 0 || last < first || last+2 >= len(b) {
		return "", 0
	}
	return string(b[first+1 : last]), b[last+2]
}
