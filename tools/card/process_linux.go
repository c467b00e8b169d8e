package card

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Start starts a card process, in a session of its own, and waits until it serves. What it says goes to the log; if it
// does not come so far, the error carries the log's last lines and nothing of it is left.
func Start(ctx context.Context, cfg Config, l Launch) (*Process, error) {
	if len(l.Command) == 0 {
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("start card process: %w", err)
		}
		l.Command = []string{self, "card", "serve"}
	}
	if l.Timeout == 0 {
		l.Timeout = startTimeout
	}
	log, from, err := openLog(l.Log)
	if err != nil {
		return nil, fmt.Errorf("start card process: %w", err)
	}
	defer log.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start card process: %w", err)
	}
	defer r.Close()
	args := append(append(l.Command[1:len(l.Command):len(l.Command)], cfg.Args()...), "--"+ReadyFlag, "3")
	c := exec.Command(l.Command[0], args...)
	c.Stdout, c.Stderr, c.ExtraFiles = log, log, []*os.File{w}
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = c.Start()
	w.Close()
	if err != nil {
		return nil, fmt.Errorf("start card process: %w", err)
	}
	if err := await(ctx, r, l.Timeout); err != nil {
		failed := &StartError{Socket: cfg.Socket, Err: err, Log: l.Log}
		if !errors.Is(err, errEnded) {
			_ = c.Process.Kill()
		}
		_ = c.Wait()
		if errors.Is(err, errEnded) {
			failed.Exit = max(c.ProcessState.ExitCode(), 0)
			failed.Err = fmt.Errorf("%w: %s", errEnded, c.ProcessState)
		}
		failed.Lines = lastLines(l.Log, from, 6)
		return nil, failed
	}
	p := &Process{Info: cfg.info(c.Process.Pid), Socket: cfg.Socket}
	p.fd, err = unix.PidfdOpen(p.PID, 0) // ours, and not waited for: its number is its own
	if err != nil {
		return nil, errors.Join(fmt.Errorf("watch card process: %w", err), c.Process.Kill(), c.Wait())
	}
	return p, c.Process.Release()
}

// openLog opens the log and tells where its new lines begin.
func openLog(path string) (*os.File, int64, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, 0, err
	}
	if st, err := os.Stat(path); err == nil && st.Size() > maxLog {
		if err := os.Rename(path, path+".old"); err != nil {
			return nil, 0, err
		}
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, 0, err
	}
	from, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, from, nil
}

var errEnded = errors.New("it ended")

// await waits for the word that a card is served.
func await(ctx context.Context, r *os.File, patience time.Duration) error {
	if err := r.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = r.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	b := make([]byte, len(readyText))
	_, err := io.ReadFull(r, b)
	switch {
	case err == nil && string(b) == readyText:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("it does not serve after %v", patience)
	}
	return errEnded
}

// Find asks who serves a card at a path; nobody is nil. The kernel says which process holds the other end of the socket,
// and its file is believed only if it is of that process.
func Find(ctx context.Context, socket string) (*Process, error) {
	ctx, cancel := context.WithTimeout(ctx, infoTimeout)
	defer cancel()
	for {
		p, err := ask(ctx, socket)
		if errors.Is(err, errEnded) && ctx.Err() == nil {
			continue // its end takes no time, and then nobody is there, or somebody else
		}
		if err != nil {
			return nil, fmt.Errorf("look for a card process at %s: %w", socket, err)
		}
		return p, nil
	}
}

// ask asks whoever listens. A card process writes its file right after it has the socket.
func ask(ctx context.Context, socket string) (*Process, error) {
	c, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.ENOTDIR) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer c.Close()
	pid, fd, err := peer(c.(*net.UnixConn))
	if err != nil {
		return nil, err
	}
	p := &Process{Socket: socket, fd: fd}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		i, lost := readInfo(socket)
		if lost == nil && i.PID == pid {
			p.Info = *i
			return p, nil
		}
		select {
		case <-tick.C:
			err = nil
			if p.Ended(0) {
				err = errEnded
			}
		case <-ctx.Done():
			err = fmt.Errorf("%s serves there: %w", describe(pid), ErrForeign)
			if lost != nil && alike(pid) {
				err = &LostError{Socket: socket, PID: pid, Err: lost}
			}
		}
		if err != nil {
			p.Close()
			return nil, err
		}
	}
}

// peer returns the process that holds the other end of a socket, with a descriptor of it.
func peer(c *net.UnixConn) (pid, fd int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, -1, err
	}
	err1 := raw.Control(func(sock uintptr) {
		var cred *unix.Ucred
		if cred, err = unix.GetsockoptUcred(int(sock), unix.SOL_SOCKET, unix.SO_PEERCRED); err != nil {
			return
		}
		pid = int(cred.Pid)
		if fd, err = unix.PidfdOpen(pid, 0); errors.Is(err, unix.ESRCH) {
			err = errEnded
		}
		if err != nil {
			return
		}
		// While nothing comes the other end is open, so that fd is of the process that has it.
		_, _, quiet := unix.Recvfrom(int(sock), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
		if !errors.Is(quiet, unix.EAGAIN) {
			unix.Close(fd)
			err = errEnded
		}
	})
	return pid, fd, errors.Join(err, err1)
}

// Close forgets the process; it goes on.
func (p *Process) Close() {
	if p.fd >= 0 {
		unix.Close(p.fd)
		p.fd = -1
	}
}

// Ended says whether the process is gone, or goes within a time.
func (p *Process) Ended(within time.Duration) bool {
	for end := time.Now().Add(within); ; {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}}, max(int(time.Until(end).Milliseconds()), 0))
		if !errors.Is(err, unix.EINTR) {
			return n > 0
		}
	}
}

// Stop ends the process, and waits until it is gone. One that is gone already is no error.
func (p *Process) Stop(ctx context.Context) error {
	if err := unix.PidfdSendSignal(p.fd, unix.SIGTERM, nil, 0); errors.Is(err, unix.ESRCH) {
		return nil
	} else if err != nil {
		return fmt.Errorf("end card process %d: %w", p.PID, err)
	}
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	for !p.Ended(50 * time.Millisecond) {
		if ctx.Err() != nil {
			return fmt.Errorf("%s does not end; end it with: kill -KILL %d: %w", p, p.PID, ctx.Err())
		}
	}
	_, _ = unix.Wait4(p.PID, nil, unix.WNOHANG, nil) // it may be a child
	return nil
}
