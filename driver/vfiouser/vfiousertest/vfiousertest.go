// Package vfiousertest joins a card to its host for a test: in one process, or over a vfio-user socket, as the
// environment says. With it `SPLICE_CARD=vfio-user: go test ./...` runs the tests of the whole tree over the socket.
//
// Only tests import it. What it starts ends with the test: the device first, then its server; the card is the test's.
package vfiousertest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"splicenic/driver/device"
	"splicenic/driver/vfiouser"
)

// Variable is the environment variable that picks the body of the card, here as on the command line.
const Variable = "SPLICE_CARD"

// patience bounds the wait for a server's end.
const patience = 10 * time.Second

// Join returns the host's side of a card that the test has made. What SPLICE_CARD says:
//
//	empty, emu:  device.Local
//	vfio-user:   a server of the card on a socket of its own, and a client of it
//
// Anything else names one card, whose registers and ports the test cannot see from behind: the test is skipped. The test
// may close the device; it is closed at the test's end in any case.
//
// Stores over a socket are posted. A test that steps its card by hand steps it after its stores, so each store of the
// device is followed by a read of configuration space, which comes back when the store has arrived. No region is read
// for it.
func Join(t testing.TB, fn device.Function) device.Device {
	t.Helper()
	switch card := os.Getenv(Variable); card {
	case "", "emu":
		d := device.Local(fn, device.LocalConfig{})
		t.Cleanup(func() { d.Close() })
		return d
	case "vfio-user:":
		c, end := serve(t, fn, vfiouser.Options{Memfd: true})
		return &arriving{Client: c, end: end}
	default:
		t.Skipf("%s=%s names a card, and this test brings its own: leave it empty, or say vfio-user:", Variable, card)
		return nil
	}
}

// Dial serves a card on a socket and returns a client of it, whatever the environment says. Its stores are posted. Both
// end with the test.
func Dial(t testing.TB, fn device.Function, o vfiouser.Options) *vfiouser.Client {
	t.Helper()
	c, _ := serve(t, fn, o)
	return c
}

// serve returns a client, and how to end its server before the test ends.
func serve(t testing.TB, fn device.Function, o vfiouser.Options) (c *vfiouser.Client, end func()) {
	t.Helper()
	path := filepath.Join(directory(t), "card.sock")
	server, err := vfiouser.Listen(path, fn, vfiouser.Config{})
	if errors.Is(err, device.ErrNotSupported) {
		t.Skip("vfio-user needs Linux: ", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx) }()
	end = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("serve the card: %v", err)
			}
		case <-time.After(patience):
			t.Error("the card's server does not end")
		}
	})
	t.Cleanup(end)
	if c, err = vfiouser.Dial(context.Background(), path, o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, end
}

// maxPath is what a socket's address has room for.
const maxPath = 100

// directory returns the test's directory, or one with a shorter name if a socket would not fit there.
func directory(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	if len(dir)+len("/card.sock.lock") < maxPath {
		return dir
	}
	dir, err := os.MkdirTemp("", "card")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// arriving is a client whose stores have arrived when they return. With it ends its server, so that the card is free then.
type arriving struct {
	*vfiouser.Client
	end   func()
	words sync.Pool // *[4]byte: a store allocates nothing
}

func (a *arriving) Close() error {
	defer a.end()
	return a.Client.Close()
}

func (a *arriving) Store32(region int, off uint64, v uint32) {
	a.Client.Store32(region, off, v)
	a.arrive()
}

func (a *arriving) Store64(region int, off uint64, v uint64) {
	a.Client.Store64(region, off, v)
	a.arrive()
}

// arrive waits for the answer to a command that is behind the stores. Its error is the client's.
func (a *arriving) arrive() {
	w, _ := a.words.Get().(*[4]byte)
	if w == nil {
		w = new([4]byte)
	}
	_ = a.ReadConfig(0, w[:])
	a.words.Put(w)
}
