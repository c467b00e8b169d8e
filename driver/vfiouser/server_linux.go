package vfiouser

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"splicenic/driver/device"
)

// A Server offers a Function on a socket to one client at a time. Listen makes it.
type Server struct {
	fn   device.Function
	cfg  Config
	log  *slog.Logger
	path string
	ln   *net.UnixListener
	lock *lockFile

	info device.Info
	flr  uint32 // where a write to configuration space starts a function-level reset; 0: nowhere

	// What outlives a client. Only the goroutine of the client, and after it Serve, touches dma.
	memory hostMemory
	dma    dma
	irqs   [irqIndexes]irqBank
	notice [irqIndexes]<-chan struct{} // for irqError and irqRequest

	wg      sync.WaitGroup
	mu      sync.Mutex
	current *session
	closing bool
	conns   map[*conn]struct{} // to be closed at the end
}

// How a second client is treated.
const (
	maxRefused = 8                      // at a time; more are closed without a word
	grace      = 250 * time.Millisecond // in which the first one may yet turn out to be gone
)

// Listen takes the socket at path for a function. A lock file beside it, path+".lock", keeps a second server away and
// tells whose the card is; a socket that a dead server left is removed. The Server is the only host of fn from here on.
func Listen(path string, fn device.Function, cfg Config) (*Server, error) {
	s := &Server{fn: fn, cfg: cfg, log: cfg.Log, path: path, info: fn.Info(), conns: map[*conn]struct{}{}}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.cfg.DMATimeout == 0 {
		s.cfg.DMATimeout = defaultDMATimeout
	}
	if s.cfg.Mode == 0 {
		s.cfg.Mode = 0o600
	}
	if err := s.inspect(); err != nil {
		return nil, fmt.Errorf("serve card on %s: %w", path, err)
	}
	if err := s.listen(); err != nil {
		return nil, fmt.Errorf("serve card on %s: %w", path, err)
	}
	return s, nil
}

// inspect learns from the function what the server has to know.
func (s *Server) inspect() error {
	config := make([]byte, 256)
	if err := s.fn.ReadConfig(0, config); err != nil {
		return fmt.Errorf("read configuration space: %w", err)
	}
	s.flr = findFLR(config)
	s.memory.master.Store(config[cfgCommand]&commandMaster != 0)
	s.dma.fn, s.dma.memory, s.dma.log = s.fn, &s.memory, s.log
	s.dma.mapper, _ = s.fn.(MemoryMapper)
	if config[cfgPin] != 0 {
		s.irqs[irqINTx] = newBank(1, irqEventfd|irqMaskable|irqAutomasked)
	}
	s.irqs[irqMSIX] = newBank(min(max(s.info.Vectors, 0), maxVectors), irqEventfd|irqNoResize)
	s.notice[irqError], s.notice[irqRequest] = s.cfg.Error, s.cfg.Removal
	for i, c := range s.notice {
		if c != nil {
			s.irqs[i] = newBank(1, irqEventfd)
		}
	}
	return nil
}

func (s *Server) listen() error {
	lock, err := takeLock(s.path + ".lock")
	if err != nil {
		return err
	}
	fail := func(err error) error { return errors.Join(err, lock.release()) }
	if err := lock.write(os.Getpid(), 0); err != nil {
		return fail(err)
	}
	st, err := os.Lstat(s.path)
	switch {
	case err == nil && st.Mode().Type() != os.ModeSocket:
		return fail(errors.New("there is something that is not a socket"))
	case err == nil: // who has the lock knows that nobody listens
		if err := os.Remove(s.path); err != nil {
			return fail(err)
		}
	}
	if s.cfg.Locked != nil {
		if err := s.cfg.Locked(); err != nil {
			return fail(err)
		}
	}
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: s.path, Net: "unix"})
	if err != nil {
		return fail(err)
	}
	if err := os.Chmod(s.path, s.cfg.Mode); err != nil {
		return fail(errors.Join(err, ln.Close()))
	}
	s.ln, s.lock = ln, lock
	return nil
}

// Close gives the socket up. It is for a Server whose Serve is never called.
func (s *Server) Close() error { return errors.Join(s.ln.Close(), s.lock.release()) }

// Serve serves until ctx ends, and returns nil then. At the end the function has no host, no vectors and no maps.
func (s *Server) Serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(ctx, s.shut)
	s.watch(ctx)
	for i := range s.irqs {
		s.wg.Go(func() { s.irqs[i].deliver(ctx) })
	}
	err := s.accept(ctx)
	cancel()
	stop()
	s.shut()
	s.wg.Wait()
	if err == nil {
		err = s.dma.end()
	}
	return errors.Join(err, s.lock.release())
}

// shut ends everything that waits.
func (s *Server) shut() {
	s.ln.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing = true
	for c := range s.conns {
		c.close()
	}
}

// watch passes the owner's notices on.
func (s *Server) watch(ctx context.Context) {
	for i, c := range s.notice {
		if c == nil {
			continue
		}
		s.wg.Go(func() {
			select {
			case <-c:
				s.irqs[i].raise(0)
			case <-ctx.Done():
			}
		})
	}
}

// noticed says whether the owner gave the notice of an index.
func (s *Server) noticed(i uint32) bool {
	select {
	case <-s.notice[i]: // nil never is
		return true
	default:
		return false
	}
}

func (s *Server) accept(ctx context.Context) error {
	for {
		sock, err := s.ln.AcceptUnix()
		if err == nil {
			s.greet(ctx, sock)
			continue
		}
		if ctx.Err() != nil {
			return nil
		}
		if !errors.Is(err, unix.EMFILE) && !errors.Is(err, unix.ENFILE) && !errors.Is(err, unix.ECONNABORTED) {
			return fmt.Errorf("accept client: %w", err)
		}
		s.log.Warn("a client could not be let in", "err", err)
		select { // too many files are open: wait for some to be closed
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// greet starts a goroutine for a connection.
func (s *Server) greet(ctx context.Context, sock *net.UnixConn) {
	c, err := newConn(sock)
	if err != nil {
		sock.Close()
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing || len(s.conns) > maxRefused {
		c.close()
		return
	}
	s.conns[c] = struct{}{}
	s.wg.Go(func() {
		s.client(ctx, c)
		c.close()
		c.drop()
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
	})
}

// client serves a connection, or refuses it.
func (s *Server) client(ctx context.Context, c *conn) {
	pid := c.peer()
	patience := time.NewTimer(grace)
	defer patience.Stop()
	for {
		ses, other := s.claim(c, pid)
		if ses != nil {
			s.serve(ses)
			return
		}
		select {
		case <-other.ended:
		case <-ctx.Done():
			return
		case <-patience.C:
			if !other.leaving() {
				s.refuseClient(c, pid, other.pid)
				return
			}
			patience.Reset(grace) // it is gone, what it had set up not yet
		}
	}
}

// claim makes c the client if there is none, or returns who is.
func (s *Server) claim(c *conn, pid int) (mine, other *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current != nil {
		return nil, s.current
	}
	s.current = newSession(s, c, pid)
	return s.current, nil
}

// serve serves the client that has the function.
func (s *Server) serve(ses *session) {
	s.lock.write(os.Getpid(), ses.pid)
	s.log.Info("client came", "socket", s.path, "client", ses.pid, "server", os.Getpid())
	err := ses.run()
	close(ses.left)
	ses.end()
	s.lock.write(os.Getpid(), 0)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
		s.log.Warn("client failed", "socket", s.path, "client", ses.pid, "err", err)
	}
	s.log.Info("client gone", "socket", s.path, "client", ses.pid)
	s.mu.Lock()
	s.current = nil
	s.mu.Unlock()
	close(ses.ended)
}

// introduction bounds the wait for a client's first message.
const introduction = 5 * time.Second

// refuseClient answers the first message of a second client.
func (s *Server) refuseClient(c *conn, pid, owner int) {
	m, err := c.read(time.Now().Add(grace))
	if err != nil {
		return // it wants nothing
	}
	s.log.Warn("client refused: the card has one", "socket", s.path, "client", owner, "refused", pid)
	closeAll(m.fds)
	if !m.reply() && !m.noReply() {
		c.reply(m.header, eBUSY)
	}
}

// Client returns the process that is the client now, and a channel that is closed when it is none any more; 0 and nil
// where there is no client.
func (s *Server) Client() (pid int, gone <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == nil {
		return 0, nil
	}
	return s.current.pid, s.current.ended
}
