package vfiouser

import (
	"context"
	"encoding/binary"
	"errors"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

func testEventfd(t testing.TB) int {
	t.Helper()
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// counted returns what an eventfd counted since the last call.
func counted(fd int) uint64 {
	var b [8]byte
	if n, _ := unix.Read(fd, b[:]); n != 8 {
		return 0
	}
	return le.Uint64(b[:])
}

// comes returns what an eventfd counted once the server's goroutine has written to it; zero where that never happens.
func comes(fd int) uint64 {
	const patience = 10_000 // milliseconds
	for {
		switch _, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, patience); err {
		case unix.EINTR:
		default:
			return counted(fd)
		}
	}
}

func dups(t testing.TB, fds ...int) (out []int) {
	t.Helper()
	for _, fd := range fds {
		d, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, d)
	}
	return out
}

// TestIRQBank walks the gates of an interrupt. Case D13: an automasked interrupt comes again after an unmask and not
// before; one that is raised while masked comes once, at the unmask.
//
//	state        | raise            | mask   | unmask
//	no eventfd   | —                | masked | —
//	open         | count, [auto]mask| masked | —
//	masked       | pending          | —      | open
//	pending      | —                | —      | count, [auto]mask
func TestIRQBank(t *testing.T) {
	fd := testEventfd(t)
	one := func(flags uint32) irqSet { return irqSet{argsz: 20, flags: flags, index: irqMSIX, count: 1} }
	for _, auto := range []bool{false, true} {
		b := newBank(2, irqEventfd)
		if auto {
			b.flags |= irqMaskable | irqAutomasked
		}
		do := func(flags uint32, fds ...int) {
			t.Helper()
			if _, err := b.set(one(flags), fds); err != nil {
				t.Errorf("flags %#x: %v", flags, err)
			}
		}
		want := func(what string, n uint64) {
			t.Helper()
			b.ring()
			if got := counted(fd); got != n {
				t.Errorf("automasked %v, %s: counted %d, want %d", auto, what, got, n)
			}
		}
		b.raise(0)
		want("nothing set up", 0)
		do(setEventfd | setTrigger)
		b.raise(0)
		want("no eventfd", 0)
		do(setEventfd|setTrigger, dups(t, fd)...)
		for range 3 {
			b.raise(0)
			want("raise", 1)
			b.raise(0)
			if auto {
				want("raise while automasked", 0)
				do(setNone | setUnmask)
				want("unmask", 1)
				do(setNone | setUnmask)
				want("unmask again", 0)
			} else {
				want("raise again", 1)
			}
		}
		do(setNone | setMask)
		b.raise(0)
		b.raise(0)
		want("raise while masked", 0)
		do(setNone | setUnmask)
		want("unmask", 1)
		do(setNone | setUnmask)
		do(setNone | setTrigger)
		want("loopback", 1)
		b.raise(7)
		do(setEventfd | setTrigger)
		b.raise(0)
		want("eventfd taken away", 0)
		b.reset()
		if raise, fds := b.raisers(); raise != nil || fds != nil {
			t.Error("something is left")
		}
	}
}

func TestIRQSetRefused(t *testing.T) {
	fd := testEventfd(t)
	pipe := make([]int, 2)
	if err := unix.Pipe2(pipe, unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer closeAll(pipe)
	b := newBank(2, irqEventfd)
	defer b.reset()
	for _, row := range []struct {
		name string
		set  irqSet
		fds  []int
		want error
	}{
		{"too many", irqSet{flags: setEventfd | setTrigger, count: 3}, nil, errProtocol},
		{"beyond", irqSet{flags: setNone | setTrigger, start: 2, count: 1}, nil, errProtocol},
		{"fewer eventfds", irqSet{flags: setEventfd | setTrigger, count: 2}, dups(t, fd), errProtocol},
		{"eventfds not asked for", irqSet{flags: setNone | setTrigger, count: 1}, dups(t, fd), errProtocol},
		{"a pipe", irqSet{flags: setEventfd | setTrigger, count: 1}, dups(t, pipe[1]), errProtocol},
		{"eventfd to unmask by", irqSet{flags: setEventfd | setUnmask, count: 1}, dups(t, fd), eNOTSUP},
	} {
		if _, err := b.set(row.set, row.fds); !errors.Is(err, row.want) {
			t.Errorf("%s: %v, want %v", row.name, err, row.want)
		}
		for _, fd := range row.fds { // taken all the same
			if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil {
				t.Errorf("%s: file descriptor %d is open", row.name, fd)
			}
		}
	}
}

// TestIRQBlocked: a client makes its eventfd block, and fills it. Raising goes on, and the client's goroutine gets the bank.
func TestIRQBlocked(t *testing.T) {
	fd := testEventfd(t)
	b := newBank(2, irqEventfd)
	if _, err := b.set(irqSet{flags: setEventfd | setTrigger, index: irqMSIX, count: 1}, dups(t, fd)); err != nil {
		t.Fatal(err)
	}
	full := binary.LittleEndian.AppendUint64(nil, 1<<64-2)
	if _, err := unix.Write(fd, full); err != nil {
		t.Fatal(err)
	}
	if err := unix.SetNonblock(fd, false); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); b.deliver(ctx) }()
	for range 10 {
		b.raise(0)
		b.raise(1)
	}
	for b.mu.TryLock() { // until the write hangs
		b.mu.Unlock()
		b.raise(0)
		runtime.Gosched()
	}
	b.raise(0)
	b.reset()
	cancel()
	<-done
}
