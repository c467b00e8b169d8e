//go:build linux

package vm

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"time"

	"splicenic/tools/vm/agent"
)

// errLine: the guest is gone.
var errLine = errors.New("the guest's line has ended")

// line is the host's end of a guest's serial line.
type line struct {
	conn  net.Conn
	ended chan struct{} // the reader has returned
	first chan agent.Guest

	mu      sync.Mutex
	last    int
	pending map[int]func(agent.Reply)
}

func newLine(conn net.Conn) *line {
	l := &line{conn: conn, ended: make(chan struct{}), first: make(chan agent.Guest, 1), pending: map[int]func(agent.Reply){}}
	go l.read()
	return l
}

func (l *line) close() {
	l.conn.Close()
	<-l.ended
}

// read hands replies to whoever has asked.
func (l *line) read() {
	defer close(l.ended)
	in := bufio.NewScanner(l.conn)
	in.Buffer(make([]byte, 0, 1<<16), agent.MaxRequest)
	for in.Scan() {
		var r agent.Reply
		if json.Unmarshal(in.Bytes(), &r) != nil {
			continue
		}
		if r.Guest != nil {
			select {
			case l.first <- *r.Guest:
			default: // it has come up already
			}
			continue
		}
		l.mu.Lock()
		f := l.pending[r.ID]
		if r.Done {
			delete(l.pending, r.ID)
		}
		l.mu.Unlock()
		if f != nil {
			f(r)
		}
	}
}

// hello waits for the guest's first word.
func (l *line) hello(ctx context.Context, done <-chan struct{}) (agent.Guest, error) {
	select {
	case g := <-l.first:
		return g, nil
	case <-l.ended:
		return agent.Guest{}, errLine
	case <-done:
		return agent.Guest{}, errLine
	case <-ctx.Done():
		return agent.Guest{}, ctx.Err()
	}
}

// send sends a request; reply is called for each of its replies, one after the other.
func (l *line) send(r agent.Request, reply func(agent.Reply)) (id int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	r.ID = l.last
	text, err := json.Marshal(r)
	if err != nil {
		return 0, err
	}
	if len(text) > agent.MaxRequest {
		return 0, fmt.Errorf("request of %d bytes", len(text))
	}
	l.pending[r.ID] = reply
	_, err = l.conn.Write(append(text, '\n'))
	return r.ID, err
}

// ask sends a request and waits for its end.
func (l *line) ask(ctx context.Context, r agent.Request) (data []byte, err error) {
	answer := make(chan agent.Reply, 1)
	_, err = l.send(r, func(r agent.Reply) {
		if r.Done {
			answer <- r
		}
	})
	if err != nil {
		return nil, err
	}
	select {
	case a := <-answer:
		if a.Error != "" {
			return nil, errors.New(a.Error)
		}
		return a.Data, nil
	case <-l.ended:
		return nil, errLine
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// A Command runs in a guest.
type Command struct {
	Argv []string
	line *line
	id   int
	done chan struct{}

	mu     sync.Mutex
	pid    int
	out    strings.Builder
	reply  agent.Reply // its last one, with done
	follow func(line string)
}

// An Options says how a command runs.
type Options struct {
	Env     []string
	Timeout time.Duration     // zero: none
	Follow  func(line string) // called with each line of output; nil: not
}

// Start starts a command in the guest. Its program is named by its path.
func (m *Machine) Start(o Options, argv ...string) (*Command, error) {
	c := &Command{Argv: argv, line: m.line, done: make(chan struct{}), follow: o.Follow}
	id, err := m.line.send(agent.Request{Op: agent.Run, Argv: argv, Env: o.Env, TimeoutMs: int(o.Timeout.Milliseconds())}, c.replied)
	if err != nil {
		return nil, fmt.Errorf("guest: %s: %w", argv[0], err)
	}
	c.id = id
	return c, nil
}

func (c *Command) replied(r agent.Reply) {
	c.mu.Lock()
	switch {
	case r.Done:
		c.reply = r
	case r.PID != 0:
		c.pid = r.PID
	default:
		c.out.WriteString(r.Line + "\n")
	}
	c.mu.Unlock()
	if !r.Done && r.PID == 0 && c.follow != nil {
		c.follow(r.Line)
	}
	if r.Done {
		close(c.done)
	}
}

// Output is what the command has written so far, on both its outputs.
func (c *Command) Output() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.out.String()
}

// Done is closed when the command has ended; a guest that ends does not close it.
func (c *Command) Done() <-chan struct{} { return c.done }

// Signal sends the command a signal.
func (c *Command) Signal(ctx context.Context, s syscall.Signal) error {
	if _, err := c.line.ask(ctx, agent.Request{Op: agent.Kill, Of: c.id, Signal: int(s)}); err != nil {
		return fmt.Errorf("guest: signal %s: %w", c.Argv[0], err)
	}
	return nil
}

// Wait waits for the end of the command and returns its exit code.
func (c *Command) Wait(ctx context.Context) (int, error) {
	select {
	case <-c.done:
	case <-c.line.ended:
		return 0, fmt.Errorf("guest: %s: %w", c.Argv[0], errLine)
	case <-ctx.Done():
		return 0, fmt.Errorf("guest: %s: %w", c.Argv[0], context.Cause(ctx))
	}
	if c.reply.Error != "" {
		return c.reply.Exit, fmt.Errorf("guest: %s: %s", c.Argv[0], c.reply.Error)
	}
	return c.reply.Exit, nil
}

// Run runs a command in the guest to its end.
func (m *Machine) Run(ctx context.Context, o Options, argv ...string) (exit int, out string, err error) {
	c, err := m.Start(o, argv...)
	if err != nil {
		return 0, "", err
	}
	exit, err = c.Wait(ctx)
	return exit, c.Output(), err
}

// Put writes a file in the guest.
func (m *Machine) Put(ctx context.Context, path string, data []byte) error {
	if _, err := m.line.ask(ctx, agent.Request{Op: agent.Put, Path: path, Data: data}); err != nil {
		return fmt.Errorf("guest: write %s: %w", path, err)
	}
	return nil
}

// Get reads a file of the guest.
func (m *Machine) Get(ctx context.Context, path string) ([]byte, error) {
	b, err := m.line.ask(ctx, agent.Request{Op: agent.Get, Path: path})
	if err != nil {
		return nil, fmt.Errorf("guest: read %s: %w", path, err)
	}
	return b, nil
}

// Fetch makes an HTTP request on a UNIX socket of the guest and returns the body of the answer.
func (m *Machine) Fetch(ctx context.Context, socket, path string) ([]byte, error) {
	fail := func(err error) ([]byte, error) { return nil, fmt.Errorf("guest: get %s of %s: %w", path, socket, err) }
	b, err := m.line.ask(ctx, agent.Request{Op: agent.Ask, Path: socket, Data: fmt.Appendf(nil, "GET %s HTTP/1.0\r\nHost: guest\r\n\r\n", path)})
	if err != nil {
		return fail(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(b)), nil)
	if err != nil {
		return fail(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", res.Status, tail(body, 300))
	}
	if err != nil {
		return fail(err)
	}
	return body, nil
}
