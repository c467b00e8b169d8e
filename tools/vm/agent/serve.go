package agent

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// maxLine is the longest line of output that is passed on in one piece.
const maxLine = 4 << 10

// MaxRequest bounds a request's line.
const MaxRequest = 4 << 20

// patience bounds the wait for output that a grandchild of an ended command may still write.
const patience = time.Second

// askTimeout bounds an exchange on a socket.
const askTimeout = 10 * time.Second

// server is the guest's end of the line.
type server struct {
	group sync.WaitGroup

	mu      sync.Mutex
	out     *json.Encoder
	running map[int]*exec.Cmd // commands by request
}

// Serve says hello and does what the host asks for until it says Off, or the line ends; then it kills what still runs.
func Serve(line io.ReadWriter, hello Guest) error {
	s := &server{out: json.NewEncoder(line), running: map[int]*exec.Cmd{}}
	s.reply(Reply{Guest: &hello, Done: true})
	ctx, cancel := context.WithCancel(context.Background())
	err := s.requests(ctx, line)
	cancel()
	s.group.Wait()
	return err
}

func (s *server) requests(ctx context.Context, line io.Reader) error {
	in := bufio.NewScanner(line)
	in.Buffer(make([]byte, 0, 1<<16), MaxRequest)
	for in.Scan() {
		var r Request
		if json.Unmarshal(in.Bytes(), &r) != nil {
			continue
		}
		switch r.Op {
		case Run:
			s.group.Go(func() { s.run(ctx, r) })
		case Kill:
			s.done(r, s.kill(r))
		case Put:
			s.done(r, put(r))
		case Get:
			s.read(r, func() ([]byte, error) { return os.ReadFile(r.Path) })
		case Ask:
			s.group.Go(func() { s.read(r, func() ([]byte, error) { return ask(r) }) })
		case Off:
			s.done(r, nil)
			return nil
		default:
			s.done(r, fmt.Errorf("no operation %q", r.Op))
		}
	}
	return in.Err()
}

func (s *server) reply(r Reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.out.Encode(r) // a line that is broken ends the scan, too
}

func (s *server) done(r Request, err error) {
	answer := Reply{ID: r.ID, Done: true}
	if err != nil {
		answer.Error = err.Error()
	}
	s.reply(answer)
}

// run runs a command to its end.
func (s *server) run(ctx context.Context, r Request) {
	if len(r.Argv) == 0 {
		s.done(r, errors.New("no command"))
		return
	}
	if r.TimeoutMs > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(r.TimeoutMs)*time.Millisecond)
		defer cancel()
	}
	c := exec.CommandContext(ctx, r.Argv[0], r.Argv[1:]...)
	c.Env = append(os.Environ(), r.Env...)
	w := &lines{s: s, id: r.ID}
	c.Stdout, c.Stderr = w, w // the same one: exec writes from one goroutine
	c.WaitDelay = patience
	if err := c.Start(); err != nil {
		s.done(r, err)
		return
	}
	s.mu.Lock()
	s.running[r.ID] = c
	s.mu.Unlock()
	s.reply(Reply{ID: r.ID, PID: c.Process.Pid})
	err := c.Wait()
	s.mu.Lock()
	delete(s.running, r.ID)
	s.mu.Unlock()
	w.end()
	answer := Reply{ID: r.ID, Done: true, Exit: exitCode(c.ProcessState)}
	switch {
	case ctx.Err() != nil:
		answer.Error = fmt.Sprintf("%s: %v", r.Argv[0], context.Cause(ctx))
	case err != nil && answer.Exit == 0 && !errors.Is(err, exec.ErrWaitDelay):
		answer.Error = err.Error()
	}
	s.reply(answer)
}

// exitCode is a command's status as a shell tells it.
func exitCode(p *os.ProcessState) int {
	if w, ok := p.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return 128 + int(w.Signal())
	}
	return p.ExitCode()
}

func (s *server) kill(r Request) error {
	s.mu.Lock()
	c := s.running[r.Of]
	s.mu.Unlock()
	if c == nil {
		return fmt.Errorf("request %d runs no command", r.Of)
	}
	return c.Process.Signal(syscall.Signal(r.Signal))
}

func put(r Request) error {
	if err := os.MkdirAll(filepath.Dir(r.Path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(r.Path, r.Data, 0o755)
}

// read answers with what f has read.
func (s *server) read(r Request, f func() ([]byte, error)) {
	b, err := f()
	if err != nil {
		s.done(r, err)
		return
	}
	s.reply(Reply{ID: r.ID, Data: b, Done: true})
}

// ask has one exchange with a server on a socket.
func ask(r Request) ([]byte, error) {
	c, err := net.DialTimeout("unix", r.Path, askTimeout)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(askTimeout)); err != nil {
		return nil, err
	}
	if _, err := c.Write(r.Data); err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(c, MaxRequest))
}

// lines passes a command's output on line by line.
type lines struct {
	s    *server
	id   int
	rest []byte
}

func (w *lines) Write(p []byte) (int, error) {
	for _, b := range p {
		if b != '\n' {
			w.rest = append(w.rest, b)
		}
		if b == '\n' || len(w.rest) == maxLine {
			w.flush()
		}
	}
	return len(p), nil
}

func (w *lines) flush() {
	w.s.reply(Reply{ID: w.id, Line: string(w.rest)})
	w.rest = w.rest[:0]
}

func (w *lines) end() {
	if len(w.rest) > 0 {
		w.flush()
	}
}
