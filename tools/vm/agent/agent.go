// Package agent is the conversation between the host and the first program of a guest, over a serial line: one JSON
// document per line each way. The guest serves it, see Serve; the host's side is tools/vm.
//
// A line starts with its document and ends with a newline; what does not parse is somebody else's and is passed over, so
// that a stray kernel message breaks nothing.
package agent

// Operations of a Request.
const (
	Run  = "run"  // start Argv; lines of output follow, and an exit at the end
	Kill = "kill" // send Signal to the command of request Of
	Put  = "put"  // write Data to Path, folders above it included
	Get  = "get"  // read Path; the answer has its Data
	Ask  = "ask"  // write Data to the UNIX socket at Path; the answer has what came until its end
	Off  = "off"  // end: the guest powers off
)

// A Request is what the host asks for. Its answer is one Reply with Done, preceded by others.
type Request struct {
	ID        int      `json:"id"`
	Op        string   `json:"op"`
	Argv      []string `json:"argv,omitempty"`
	Env       []string `json:"env,omitempty"` // in addition to the agent's own
	TimeoutMs int      `json:"timeoutMs,omitempty"`
	Of        int      `json:"of,omitempty"`
	Signal    int      `json:"signal,omitempty"`
	Path      string   `json:"path,omitempty"`
	Data      []byte   `json:"data,omitempty"`
}

// A Reply is what the guest says about a request; about request 0, once, how it came up.
type Reply struct {
	ID    int    `json:"id"`
	PID   int    `json:"pid,omitempty"`  // the command runs
	Line  string `json:"line,omitempty"` // of its output, without the newline
	Done  bool   `json:"done,omitempty"`
	Data  []byte `json:"data,omitempty"`
	Exit  int    `json:"exit,omitempty"`  // its exit code, 128 + signal where one ended it
	Error string `json:"error,omitempty"` // the request failed
	Guest *Guest `json:"guest,omitempty"`
}

// A Guest tells how the guest came up.
type Guest struct {
	Kernel   string   `json:"kernel"`   // release
	Uptime   float64  `json:"uptime"`   // seconds since its kernel started
	Problems []string `json:"problems"` // what did not work
}
