package vfiouser

import (
	"bytes"
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// connPair returns two ends of a connection.
func connPair(t testing.TB) (*conn, *conn) {
	t.Helper()
	a, fd, err := socketPair()
	if err != nil {
		t.Fatal(err)
	}
	b, err := fromFD(fd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, c := range []*conn{a, b} {
			c.close()
			c.drop()
		}
	})
	return a, b
}

// TestConnPieces: messages arrive whole however they are cut, and a time-out between two loses nothing.
func TestConnPieces(t *testing.T) {
	a, b := connPair(t)
	msg := append(message16(7, cmdRegionWrite, 36, 0), storeReq(2, 8, 0x1234)...)
	for cut := 0; cut <= len(msg); cut++ {
		if _, err := a.sock.Write(msg[:cut]); err != nil {
			t.Fatal(err)
		}
		if cut < headerBytes {
			if m, err := b.read(time.Now().Add(time.Millisecond)); !errors.Is(err, errIdle) {
				t.Fatalf("after %d bytes: %+v, %v", cut, m.header, err)
			}
		}
		go a.sock.Write(msg[cut:])
		m, err := b.read(time.Now().Add(late))
		if err != nil || m.id != 7 || !bytes.Equal(m.body, msg[headerBytes:]) {
			t.Fatalf("cut at %d: %+v, %v", cut, m, err)
		}
	}
}

// TestConnFDs: file descriptors stay with their message, more than may come are closed.
func TestConnFDs(t *testing.T) {
	a, b := connPair(t)
	fd := testEventfd(t)
	before := countFDs(t)
	for _, n := range []int{1, 0, maxFDs, maxFDs + 1, 2, 253, 1} {
		if err := a.write(message16(uint16(n), cmdSetIRQs, 16, 0), dupSlice(fd, n)); err != nil {
			t.Fatalf("%d: %v", n, err)
		}
	}
	for _, n := range []int{1, 0, maxFDs, maxFDs + 1, 2, 253, 1} {
		m, err := b.read(time.Now().Add(late))
		if err != nil {
			t.Fatal(err)
		}
		if int(m.id) != n || len(m.fds) != min(n, maxFDs) || m.many != (n > maxFDs) {
			t.Errorf("%d sent: message %d with %d, more %v", n, m.id, len(m.fds), m.many)
		}
		closeAll(m.fds)
	}
	if n := countFDs(t); n != before {
		t.Errorf("%d file descriptors, %d before", n, before)
	}
}

// TestConnStalls: a peer that stops within a message, or does not take ours, is given up.
func TestConnStalls(t *testing.T) {
	for _, cut := range []int{3, headerBytes, headerBytes + 5} {
		a, b := connPair(t)
		b.patience = 10 * time.Millisecond
		if _, err := a.sock.Write(append(message16(7, cmdRegionWrite, 36, 0), storeReq(2, 8, 1)...)[:cut]); err != nil {
			t.Fatal(err)
		}
		if _, err := b.read(time.Time{}); !errors.Is(err, errProtocol) {
			t.Errorf("stopped after %d bytes: %v", cut, err)
		}
	}
	a, _ := connPair(t)
	a.patience = 10 * time.Millisecond
	big := append(message16(7, cmdRegionWrite, maxMessage, 0), make([]byte, maxMessage-headerBytes)...)
	var err error
	for range 100 {
		if err = a.write(big, nil); err != nil {
			break
		}
	}
	if !os.IsTimeout(err) {
		t.Errorf("write to a peer that does not read: %v", err)
	}
}

func TestConnEnds(t *testing.T) {
	for name, row := range map[string]struct {
		sent []byte
		want error
	}{
		"at once":     {nil, io.EOF},
		"in a header": {[]byte{1, 2, 3}, io.ErrUnexpectedEOF},
		"in a body":   {message16(1, cmdRegionWrite, 36, 0), io.ErrUnexpectedEOF},
	} {
		a, b := connPair(t)
		if _, err := a.sock.Write(row.sent); err != nil {
			t.Fatal(err)
		}
		a.close()
		if _, err := b.read(time.Time{}); !errors.Is(err, row.want) {
			t.Errorf("%s: %v, want %v", name, err, row.want)
		}
	}
}

// TestFromFD: only a stream socket becomes a second socket; the file descriptor is taken in any case.
func TestFromFD(t *testing.T) {
	before := countFDs(t)
	dgram, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	inet, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	event, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range []int{dgram[0], dgram[1], inet, event} {
		if c, err := fromFD(fd); err == nil {
			t.Errorf("%d was taken", fd)
			c.close()
		}
	}
	if n := countFDs(t); n != before {
		t.Errorf("%d file descriptors, %d before", n, before)
	}
}
