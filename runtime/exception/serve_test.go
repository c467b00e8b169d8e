package exception

import (
	"slices"
	"strings"
	"testing"
	"time"

	"splicenic/regs"
	"splicenic/runtime/config"
)

// A tried is a connect command.
type tried struct {
	handle, server uint32
	other          bool // not by the client's own port
}

// connect answers by server and port: what the test says of the server by the client's port, then by others.
func (b *bench) connect(handle uint32, x *Connect) Outcome {
	if w := b.waiting[handle]; w != nil && w.card {
		return w.connect(b, x)
	}
	b.tries = append(b.tries, tried{handle, x.Target, x.Port != 0})
	if x.Port == 0 {
		return b.outcomes[x.Target]
	}
	if b.ports == nil {
		b.ports = map[uint16]bool{}
	}
	if x.Port < firstPort || x.Port > lastPort || b.ports[x.Port] {
		b.Errorf("port %d is out of range or tried before", x.Port)
	}
	b.ports[x.Port] = true
	if b.busyPorts > 0 {
		b.busyPorts--
		return KeyTaken
	}
	return Taken
}

func serverFailed(handle, server uint32) *regs.ExceptionEntry {
	return &regs.ExceptionEntry{ReasonReason: regs.ExceptionReasonReasonServerFailed, HandleN: handle, HandleGeneration: 1, IndexServer: server, IndexService: 2}
}

func keyExists(handle, server uint32) *regs.ExceptionEntry {
	e := serverFailed(handle, server)
	e.ReasonReason = regs.ExceptionReasonReasonKeyExists
	return e
}

// serveHTTP makes service 2 one that speaks HTTP.
func (b *bench) serveHTTP() {
	b.h.st.Services = map[uint32]*Service{2: {Service: &config.Service{Name: "web"}}}
}

// given hands an exception over, of a connection that waits for that reason.
func (b *bench) given(e *regs.ExceptionEntry) {
	if b.waiting == nil {
		b.waiting = map[uint32]*waiting{}
	}
	h := handleOf(e)
	if b.waiting[h] == nil {
		b.waiting[h] = &waiting{}
	}
	p := &b.waiting[h].page
	p.ControlState, p.ControlHostReason, p.ControlWaitingHost, p.IndexService = regs.PageControlStateWaitHead, e.ReasonReason, 1, e.IndexService
	b.h.Handle(e, nil, b.now)
}

// TestServe: what is tried for a connection, and how it ends.
func TestServe(t *testing.T) {
	const handle = 7 | 1<<20
	for _, tt := range []struct {
		name      string
		es        []*regs.ExceptionEntry
		others    []uint32
		outcomes  map[uint32]Outcome
		busyPorts int
		tries     []tried
		want      Reason // counted once
		reply     bool
	}{
		{"the next server", []*regs.ExceptionEntry{serverFailed(7, 3)}, []uint32{3, 4, 5}, nil, 0, []tried{{handle, 4, false}}, ServerAgain, false},
		{"a server that takes none", []*regs.ExceptionEntry{serverFailed(7, 3)}, []uint32{3, 4, 5}, map[uint32]Outcome{4: Unusable}, 0, []tried{{handle, 4, false}, {handle, 5, false}}, ServerAgain, false},
		{"the only server", []*regs.ExceptionEntry{serverFailed(7, 3)}, []uint32{3}, nil, 0, nil, Replied, true},
		{"no server any more", []*regs.ExceptionEntry{serverFailed(7, 3)}, nil, nil, 0, nil, Replied, true},
		{"it has gone on", []*regs.ExceptionEntry{serverFailed(7, 3)}, []uint32{3, 4, 5}, map[uint32]Outcome{4: TooLate}, 0, []tried{{handle, 4, false}}, DropCommand, true},
		{"the key is taken, another server", []*regs.ExceptionEntry{keyExists(7, 3)}, []uint32{3, 4}, map[uint32]Outcome{3: KeyTaken}, 0, []tried{{handle, 3, false}, {handle, 4, false}}, ServerAgain, false},
		{"the key is taken, another port", []*regs.ExceptionEntry{keyExists(7, 3)}, []uint32{3}, map[uint32]Outcome{3: KeyTaken}, 2,
			[]tried{{handle, 3, false}, {handle, 3, true}, {handle, 3, true}, {handle, 3, true}}, PortMoved, false},
		{"the key is taken everywhere", []*regs.ExceptionEntry{keyExists(7, 3)}, []uint32{3}, map[uint32]Outcome{3: KeyTaken}, 100,
			append([]tried{{handle, 3, false}}, slices.Repeat([]tried{{handle, 3, true}}, portTries)...), Replied, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, "off").quiet()
			b.serveHTTP()
			b.others, b.outcomes, b.busyPorts = tt.others, tt.outcomes, tt.busyPorts
			if tt.want == DropCommand {
				b.replied = TooLate
			}
			for _, e := range tt.es {
				b.given(e)
			}
			b.wantCount(tt.want, 1)
			if !slices.Equal(b.tries, tt.tries) {
				t.Errorf("tried %v, want %v", b.tries, tt.tries)
			}
			if len(b.resets) != 0 {
				t.Errorf("resets %v", b.resets)
			}
			if got := len(b.replies) == 1 && strings.HasPrefix(b.replies[0], "HTTP/1.1 503 Service Unavailable\r\n"); got != tt.reply {
				t.Errorf("replies %q, want an answer: %v", b.replies, tt.reply)
			}
		})
	}
}

// TestServersAreNotTriedTwice: a connection's failed servers are remembered, until the handle may be another's.
func TestServersAreNotTriedTwice(t *testing.T) {
	b := newBench(t, "off").quiet()
	b.serveHTTP()
	b.others = []uint32{3, 4, 5, 6}
	for i, want := range []uint32{4, 5} {
		b.given(serverFailed(7, uint32(3+i)))
		if got := b.tries[len(b.tries)-1].server; got != want || len(b.tries) != i+1 {
			t.Fatalf("failure %d: tried %v, want %d", i, b.tries, want)
		}
	}
	b.given(serverFailed(7, 5))
	if len(b.tries) != 2 || len(b.replies) != 1 {
		t.Errorf("after three servers: tried %v, replies %q", b.tries, b.replies)
	}
	b.now += attemptLife + time.Second
	b.given(serverFailed(7, 4))
	if got := b.tries[len(b.tries)-1].server; got != 3 {
		t.Errorf("the handle's next use: tried %v, want server 3", b.tries)
	}
}

// TestMemoryIsBounded: however many connections lose their server, what is remembered of them has a bound.
func TestMemoryIsBounded(t *testing.T) {
	b := newBench(t, "off").quiet()
	b.others = []uint32{3, 4}
	for i := range uint32(3 * maxAttempts) {
		b.given(serverFailed(i, 3))
	}
	if got := len(b.h.attempts); got != maxAttempts || len(b.h.order) != maxAttempts {
		t.Errorf("%d connections remembered in an order of %d, want %d", got, len(b.h.order), maxAttempts)
	}
	b.wantCount(ServerAgain, 3*maxAttempts)
}
