package vfiouser

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// defaultPatience bounds how long a peer may take over the rest of a message it began, or over taking one of ours.
const defaultPatience = 5 * time.Second

// smallBody is room for most messages.
const smallBody = 4096

// conn carries messages over a socket. One goroutine at a time reads; any may write.
type conn struct {
	sock     *net.UnixConn
	raw      syscall.RawConn
	patience time.Duration

	// What has come of the message being read; it stays over a read that a deadline ended.
	hdr  [headerBytes]byte
	got  int // bytes of hdr, then of hdr and body
	head header
	body []byte
	fds  []int
	many bool // more fds came than a message may carry
	oob  []byte

	// What reads, made once, and what it says.
	waitHeader, tryBody func(fd uintptr) bool
	n, oobn, flags      int
	err                 error

	wmu      sync.Mutex // held over one message
	tryWrite func(fd uintptr) bool
	out      []byte
	wn       int
	werr     error
}

// message is one that was read. body is valid until the next read; fds are the receiver's to close.
type message struct {
	header
	body []byte
	fds  []int
	many bool
}

func newConn(sock *net.UnixConn) (*conn, error) {
	raw, err := sock.SyscallConn()
	if err != nil {
		return nil, err
	}
	c := &conn{sock: sock, raw: raw, patience: defaultPatience, oob: make([]byte, unix.CmsgSpace(4*maxFDs))}
	c.waitHeader = func(fd uintptr) bool {
		c.n, c.oobn, c.flags, c.err = recvmsg(int(fd), c.hdr[c.got:], c.oob, unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
		return !errors.Is(c.err, unix.EAGAIN)
	}
	c.tryBody = func(fd uintptr) bool {
		c.n, c.err = unix.Read(int(fd), c.body[c.got-headerBytes:])
		return true
	}
	c.tryWrite = func(fd uintptr) bool {
		c.wn, c.werr = unix.SendmsgN(int(fd), c.out, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		return true
	}
	return c, nil
}

func (c *conn) close() { c.sock.Close() }

// read returns the next message. until bounds the wait for its first byte; zero: no bound. After a time-out the next read
// goes on where this one stopped. Every other error but errTooLong is the end of the connection.
func (c *conn) read(until time.Time) (message, error) {
	if err := c.readHeader(until); err != nil {
		return message{}, err
	}
	if err := c.readBody(); err != nil {
		return message{}, err
	}
	m := message{c.head, c.body, c.fds, c.many}
	c.got, c.fds, c.many = 0, nil, false
	return m, nil
}

// readHeader reads exactly the header, for file descriptors come with it and the next message may have its own.
func (c *conn) readHeader(until time.Time) error {
	if c.got >= headerBytes {
		return nil
	}
	bound := !until.IsZero()
	if bound {
		c.sock.SetReadDeadline(until)
	}
	for c.got < headerBytes {
		if err := c.raw.Read(c.waitHeader); err != nil {
			return c.readError(err, c.got == 0 || !until.IsZero())
		}
		switch {
		case errors.Is(c.err, unix.EINTR):
			continue
		case c.err != nil:
			return c.readError(c.err, false)
		case c.oobn > 0:
			c.take(c.oob[:c.oobn])
		}
		c.many = c.many || c.flags&unix.MSG_CTRUNC != 0
		if c.n == 0 {
			return c.readError(io.EOF, false)
		}
		c.got += c.n
		if c.got < headerBytes && !bound {
			bound = true
			c.sock.SetReadDeadline(time.Now().Add(c.patience))
		}
	}
	if bound {
		c.sock.SetReadDeadline(time.Time{})
	}
	var err error
	c.head, err = decodeHeader(c.hdr[:])
	if err != nil {
		c.drop()
		return err
	}
	n := int(c.head.size) - headerBytes
	switch {
	case cap(c.body) >= n:
	case n <= smallBody:
		c.body = make([]byte, 0, smallBody)
	default:
		c.body = make([]byte, 0, maxMessage-headerBytes) // once: the most there can be
	}
	c.body = c.body[:n]
	return nil
}

// readBody reads the rest: mostly it is there.
func (c *conn) readBody() error {
	if c.got == int(c.head.size) {
		return nil
	}
	if err := c.raw.Read(c.tryBody); err != nil {
		return c.readError(err, false)
	}
	switch {
	case c.err == nil && c.n == 0:
		c.drop()
		return io.ErrUnexpectedEOF
	case c.err == nil:
		c.got += c.n
	case !errors.Is(c.err, unix.EAGAIN) && !errors.Is(c.err, unix.EINTR):
		return c.readError(c.err, false)
	}
	if c.got == int(c.head.size) {
		return nil
	}
	c.sock.SetReadDeadline(time.Now().Add(c.patience))
	n, err := io.ReadFull(c.sock, c.body[c.got-headerBytes:])
	c.got += n
	if err != nil {
		return c.readError(err, false)
	}
	c.sock.SetReadDeadline(time.Time{})
	return nil
}

// errIdle is a time-out with nothing lost.
var errIdle = errors.New("no message in time")

func (c *conn) readError(err error, whole bool) error {
	if os.IsTimeout(err) && whole {
		c.sock.SetReadDeadline(time.Time{})
		return errIdle
	}
	c.drop()
	if os.IsTimeout(err) {
		return violation("message stopped after %d bytes", c.got)
	}
	if errors.Is(err, io.EOF) && c.got > 0 {
		return io.ErrUnexpectedEOF
	}
	return err
}

// drop closes what came with a message that nobody gets.
func (c *conn) drop() {
	closeAll(c.fds)
	c.fds = nil
}

// take collects the file descriptors of control data.
func (c *conn) take(oob []byte) {
	for len(oob) > 0 {
		h, data, rest, err := unix.ParseOneSocketControlMessage(oob)
		if err != nil {
			c.many = true
			return
		}
		oob = rest
		fds, err := unix.ParseUnixRights(&unix.SocketControlMessage{Header: h, Data: data})
		if err != nil {
			continue // not file descriptors
		}
		room := min(len(fds), maxFDs-len(c.fds))
		c.many = c.many || room < len(fds)
		c.fds = append(c.fds, fds[:room]...)
		closeAll(fds[room:])
	}
}

// write sends one whole message, with file descriptors that stay the caller's.
func (c *conn) write(b []byte, fds []int) error {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	n := 0
	if len(fds) == 0 {
		c.out = b
		err := c.raw.Write(c.tryWrite)
		c.out = nil
		switch {
		case err != nil:
			return err
		case c.werr == nil:
			n = c.wn
		case !errors.Is(c.werr, unix.EAGAIN) && !errors.Is(c.werr, unix.EINTR):
			return fmt.Errorf("write to socket: %w", c.werr)
		}
		if n == len(b) {
			return nil
		}
	}
	c.sock.SetWriteDeadline(time.Now().Add(c.patience))
	defer c.sock.SetWriteDeadline(time.Time{})
	if len(fds) > 0 {
		var err error
		if n, _, err = c.sock.WriteMsgUnix(b, unix.UnixRights(fds...), nil); err != nil {
			return err
		}
	}
	_, err := c.sock.Write(b[n:])
	return err
}

// reply answers a command without a payload.
func (c *conn) reply(h header, e errno) error {
	var b [headerBytes]byte
	r := header{id: h.id, cmd: h.cmd, flags: typeReply, errno: uint32(e)}
	if e != 0 {
		r.flags |= flagError
	}
	putHeader(b[:], r)
	return c.write(b[:], nil)
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// peer returns who made the other end of the socket; 0: the kernel does not say.
func (c *conn) peer() int {
	pid := 0
	c.raw.Control(func(fd uintptr) {
		if u, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(u.Pid)
		}
	})
	return pid
}

// fromFD makes a conn of a socket that came from a peer, and takes the file descriptor, whatever comes of it.
func fromFD(fd int) (*conn, error) {
	f := os.NewFile(uintptr(fd), "socket")
	defer f.Close()
	for option, want := range map[int]int{unix.SO_DOMAIN: unix.AF_UNIX, unix.SO_TYPE: unix.SOCK_STREAM} {
		if got, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, option); err != nil || got != want {
			return nil, violation("file descriptor is not a unix stream socket")
		}
	}
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		c.Close()
		return nil, violation("file descriptor is not a unix stream socket")
	}
	return newConn(u)
}

// socketPair returns one end as a conn and the other as a file descriptor of the caller.
func socketPair() (*conn, int, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, -1, fmt.Errorf("make socket pair: %w", err)
	}
	c, err := fromFD(fds[0])
	if err != nil {
		unix.Close(fds[1])
		return nil, -1, err
	}
	return c, fds[1], nil
}
