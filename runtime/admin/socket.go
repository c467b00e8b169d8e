package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"splicenic/driver/device"
	"splicenic/runtime/daemon"
)

// ErrRunning is the error of a socket that another runtime holds.
var ErrRunning = fmt.Errorf("a runtime is running: %w", device.ErrBusy)

// ErrNotSocket is the error of a path at which something other than a socket lies. It is left alone.
var ErrNotSocket = errors.New("is no socket and is left alone")

// ErrTooLong is the error of a path that the kernel cannot give a socket.
var ErrTooLong = fmt.Errorf("a socket's path has at most %d bytes", maxPath)

// maxPath is what fits sun_path beside its final NUL (unix(7)).
const maxPath = 107

// DefaultSocket is where the runtime called name listens unless told otherwise.
func DefaultSocket(name string) string {
	uid := os.Getuid()
	if uid == 0 {
		uid = rootIs()
	}
	if uid == 0 {
		return filepath.Join(rootDir, name+".sock")
	}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		return filepath.Join(dir, "splicenic", name+".sock")
	}
	return filepath.Join(os.TempDir(), "splicenic-"+strconv.Itoa(uid), name+".sock")
}

// rootDir is where root's sockets are.
const rootDir = "/run/splicenic"

// outside returns which user of the machine is root of a user namespace, by its uid_map (user_namespaces(7)): 0 is root of
// the machine, or cannot be told.
func outside(uidMap string) int {
	for line := range strings.Lines(uidMap) {
		f := strings.Fields(line)
		if len(f) != 3 || f[0] != "0" {
			continue
		}
		if uid, err := strconv.ParseUint(f[1], 10, 31); err == nil {
			return int(uid)
		}
	}
	return 0
}

// Listener is a socket that this process alone holds.
type Listener struct {
	net.Listener
	lock *os.File
	once sync.Once
	err  error
}

// Listen takes a socket path. A lock beside it decides between two runtimes, also where one of them hangs: it is held as
// long as the process lives, and only who has it removes a socket that nobody answers on. Nothing but a dead socket is
// ever removed.
func Listen(path string) (*Listener, error) {
	if len(path) > maxPath {
		return nil, fmt.Errorf("listen on %s: it has %d bytes: %w: name a shorter one", path, len(path), ErrTooLong)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	lock, err := lockFile(path + ".lock")
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	l, err := listenLocked(path)
	if err != nil {
		lock.Close()
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	return &Listener{Listener: l, lock: lock}, nil
}

// listenLocked makes the socket once the lock is held.
func listenLocked(path string) (net.Listener, error) {
	if err := clear(path); err != nil {
		return nil, err
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// clear removes a socket that nobody listens on.
func clear(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != os.ModeSocket {
		return fmt.Errorf("%s %w", path, ErrNotSocket)
	}
	c, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		c.Close()
		return fmt.Errorf("somebody answers there without holding the lock: %w", ErrRunning)
	}
	if !refused(err) {
		return fmt.Errorf("%w: %v", ErrRunning, err)
	}
	return os.Remove(path)
}

// lockFile opens and locks a file and notes our process id in it. A file with anything else in it is left alone.
func lockFile(path string) (*os.File, error) {
	f, err := openLock(path)
	if err != nil {
		return nil, err
	}
	was, err := io.ReadAll(io.LimitReader(f, 64))
	holder := strings.TrimSpace(string(was))
	if _, bad := strconv.ParseUint(holder, 10, 32); err != nil || holder != "" && bad != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: the file holds something else and is left alone", path)
	}
	if err := lock(f); err != nil {
		f.Close()
		if errors.Is(err, ErrRunning) && holder != "" {
			return nil, fmt.Errorf("process %s holds %s: %w", holder, path, err)
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	if err := errors.Join(f.Truncate(0), writePID(f)); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func writePID(f *os.File) error {
	_, err := f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

// Close removes the socket and gives the lock up.
func (l *Listener) Close() error {
	l.once.Do(func() { l.err = errors.Join(l.Listener.Close(), l.lock.Close()) })
	return l.err
}

// Serve answers requests about a runtime until ctx ends. The socket stays open for who serves it next; boots is who lets
// the card boot, nil: nobody.
func Serve(ctx context.Context, l *Listener, d *daemon.Daemon, boots Boots) error {
	return serve(ctx, l.visit(), handler(d, d, boots))
}

// A visit is the use of a socket that outlives it.
type visit struct {
	net.Listener
	over atomic.Bool
}

// deadlined is a listener whose Accept can be ended.
type deadlined interface{ SetDeadline(time.Time) error }

func (l *Listener) visit() *visit {
	if d, ok := l.Listener.(deadlined); ok {
		_ = d.SetDeadline(time.Time{})
	}
	return &visit{Listener: l.Listener}
}

// Accept waits for a connection until Close.
func (v *visit) Accept() (net.Conn, error) {
	c, err := v.Listener.Accept()
	if err != nil && v.over.Load() {
		return nil, net.ErrClosed
	}
	return c, err
}

// Close ends Accept, not the socket.
func (v *visit) Close() error {
	v.over.Store(true)
	d, ok := v.Listener.(deadlined)
	if !ok {
		return v.Listener.Close()
	}
	return d.SetDeadline(time.Unix(1, 0))
}

type uidKey struct{}

func serve(ctx context.Context, l net.Listener, h http.Handler) error {
	s := &http.Server{
		Handler: allow(hurried(h, bodyTimeout)), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if uid, err := peer(c); err == nil {
				return context.WithValue(ctx, uidKey{}, uid)
			}
			return ctx
		},
	}
	done := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		select {
		case <-ctx.Done():
		case <-done:
		}
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		if s.Shutdown(grace) != nil {
			s.Close()
		}
	}()
	err := s.Serve(l)
	close(done)
	<-stopped
	if errors.Is(err, http.ErrServerClosed) && ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("serve requests: %w", err)
}

// bodyTimeout is how long the body of a request may take to arrive. The time its answer takes is not bounded by it.
const bodyTimeout = 30 * time.Second

// hurried gives up on a request whose body does not arrive in time.
func hurried(h http.Handler, within time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body != http.NoBody {
			c := http.NewResponseController(w)
			if c.SetReadDeadline(time.Now().Add(within)) == nil {
				r.Body = &timed{r.Body, c}
			}
		}
		h.ServeHTTP(w, r)
	})
}

// timed is a body that is read against a deadline. Once it is there, nothing is hurried any more.
type timed struct {
	io.ReadCloser
	c *http.ResponseController
}

func (t *timed) Read(p []byte) (int, error) {
	n, err := t.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		_ = t.c.SetReadDeadline(time.Time{}) // it could be set
	}
	return n, err
}

// allow lets root and our own user in.
func allow(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		uid, ok := r.Context().Value(uidKey{}).(uint32)
		if ok && (uid == 0 || uid == uint32(os.Getuid())) {
			h.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Connection", "close")
		write(w, http.StatusForbidden, failure{Error: Error{What: r.Method + " " + r.URL.Path, Where: "socket", Why: "only root and the user of the runtime may ask", Do: "use sudo", Exit: 6}})
	})
}
