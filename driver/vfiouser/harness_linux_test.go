package vfiouser_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"splicenic/driver/device"
	"splicenic/driver/device/devicetest"
	"splicenic/driver/vfiouser"
)

const late = 10 * time.Second

// openFDs returns what every open file descriptor of this process leads to.
func openFDs(t testing.TB) map[string]string {
	t.Helper()
	es, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("needs /proc to count file descriptors")
	}
	fds := map[string]string{}
	for _, e := range es {
		to, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err != nil || strings.HasPrefix(to, "/proc/") || strings.Contains(to, "eventpoll") || strings.Contains(to, "pidfd") {
			continue // the listing itself, and the runtime's own
		}
		fds[e.Name()] = to
	}
	return fds
}

// noLeaks fails the test if it ends with more file descriptors than it has now. It is to be called first.
func noLeaks(t testing.TB) {
	t.Helper()
	before := openFDs(t)
	t.Cleanup(func() {
		var left []string
		for deadline := time.Now().Add(late); time.Now().Before(deadline); {
			left = left[:0]
			after := openFDs(t)
			for fd, to := range after {
				if before[fd] == "" {
					left = append(left, fd+" → "+to)
				}
			}
			if len(after) <= len(before) {
				return
			}
		}
		t.Errorf("file descriptors left open: %v", left)
	})
}

// runDir returns a directory on a tmpfs whose path is short enough for a socket.
func runDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "vfiouser")
	if err != nil {
		t.Skip("needs a tmpfs at /dev/shm: ", err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// served is a server with its run directory.
type served struct {
	t    testing.TB
	dir  string
	path string
	stop context.CancelFunc
	done chan error
}

// serve starts a server for fn; it ends with the test, or with end.
func serve(t testing.TB, fn device.Function, cfg vfiouser.Config) *served {
	t.Helper()
	noLeaks(t)
	dir := runDir(t)
	return serveAt(t, fn, cfg, dir)
}

func serveAt(t testing.TB, fn device.Function, cfg vfiouser.Config, dir string) *served {
	t.Helper()
	if testing.Verbose() && cfg.Log == nil && os.Getenv("VFIOUSER_LOG") != "" {
		cfg.Log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	s := &served{t: t, dir: dir, path: filepath.Join(dir, "card.sock"), done: make(chan error, 1)}
	srv, err := vfiouser.Listen(s.path, fn, cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	go func() { s.done <- srv.Serve(ctx) }()
	t.Cleanup(s.end)
	return s
}

// end stops the server and waits for it. A second call does nothing.
func (s *served) end() {
	s.t.Helper()
	s.stop()
	if s.done == nil {
		return
	}
	select {
	case err := <-s.done:
		if err != nil {
			s.t.Errorf("Serve: %v", err)
		}
	case <-time.After(late):
		s.t.Error("Serve does not end")
	}
	s.done = nil
}

// options returns Options for this server's run directory.
func (s *served) options() vfiouser.Options {
	return vfiouser.Options{Name: "card", Dir: filepath.Join(s.dir, "dma")}
}

func (s *served) dial(o vfiouser.Options) *vfiouser.Client {
	s.t.Helper()
	c, err := vfiouser.Dial(context.Background(), s.path, o)
	if err != nil {
		s.t.Fatalf("Dial: %v", err)
	}
	s.t.Cleanup(func() { c.Close() })
	return c
}

// master makes the device bus master.
func master(t testing.TB, d device.Device) {
	t.Helper()
	if err := d.WriteConfig(4, []byte{6, 0}); err != nil {
		t.Fatal(err)
	}
}

// scratch serves a scratch card and dials it.
func scratch(t testing.TB, cfg vfiouser.Config) (*served, *devicetest.Card, *vfiouser.Client) {
	t.Helper()
	card := devicetest.NewCard()
	s := serve(t, card, cfg)
	c := s.dial(s.options())
	master(t, c)
	return s, card, c
}

func alloc(t testing.TB, d device.Device, name string, n int) *device.DMA {
	t.Helper()
	m, err := d.AllocDMA(name, n)
	if err != nil {
		t.Fatalf("AllocDMA(%s, %d): %v", name, n, err)
	}
	return m
}

func wantErr(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}
