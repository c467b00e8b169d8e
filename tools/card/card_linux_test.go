package card

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"splicenic/driver/device"
	"splicenic/driver/device/devicetest"
	"splicenic/driver/vfiouser"
	"splicenic/emu"
	"splicenic/regs"
	"splicenic/tools/open"
)

var small = emu.Geometry{Pages: 64, Heads: 4, CamClientWords: 256, CamServerWords: 512}

// TestMain is the test, or where it is called as one, a card process.
func TestMain(m *testing.M) {
	if len(os.Args) < 3 || os.Args[1] != "card" {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if os.Args[2] == "hang" {
		<-ctx.Done()
	}
	cfg := Config{Geometry: small, Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	f := flag.NewFlagSet("card serve", flag.ExitOnError)
	cfg.Flags(f)
	f.Parse(os.Args[3:])
	if err := Main(ctx, cfg); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(3)
	}
}

// place returns a Config and a Launch for a card process in a directory of its own, which ends with the test.
func place(t *testing.T) (Config, Launch) {
	t.Helper()
	dir := t.TempDir()
	self, err := os.Executable()
	must(t, err)
	cfg := Config{Card: open.Emulator, Socket: filepath.Join(dir, "splice.card.sock"), Client: "mem", Server: "mem", Seed: 7}
	t.Cleanup(func() {
		p, err := Find(context.Background(), cfg.Socket)
		if p != nil {
			err = p.Stop(context.Background())
			p.Close()
		}
		if err != nil && !errors.Is(err, ErrForeign) {
			t.Error(err)
		}
	})
	return cfg, Launch{Command: []string{self, "card", "serve"}, Log: filepath.Join(dir, "splice.card.log")}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func start(t *testing.T, cfg Config, l Launch) *Process {
	t.Helper()
	p, err := Start(t.Context(), cfg, l)
	must(t, err)
	t.Cleanup(p.Close)
	return p
}

// TestLife starts a card process, finds it, has its card used, and ends it: nothing is left but its log.
func TestLife(t *testing.T) {
	cfg, l := place(t)
	p := start(t, cfg, l)
	if sid, err := unix.Getsid(p.PID); err != nil || sid != p.PID {
		t.Errorf("session %d, %v, want one of its own, %d", sid, err, p.PID)
	}
	found, err := Find(t.Context(), cfg.Socket)
	must(t, err)
	defer found.Close()
	if found.Info != p.Info {
		t.Errorf("found %+v, started %+v", found.Info, p.Info)
	}
	if d := found.Differs(&cfg); d != "" {
		t.Errorf("differs: %s", d)
	}
	dev, err := vfiouser.Dial(t.Context(), cfg.Socket, vfiouser.Options{Memfd: true})
	must(t, err)
	if got := dev.Load32(device.Bar0, uint64(regs.DirectoryMagic)); got != regs.Magic {
		t.Errorf("magic %#x", got)
	}
	_, err = vfiouser.Dial(t.Context(), cfg.Socket, vfiouser.Options{Memfd: true})
	if !errors.Is(err, device.ErrBusy) || !strings.Contains(err.Error(), fmt.Sprintf("process %d", os.Getpid())) {
		t.Errorf("second client: %v, want busy and process %d", err, os.Getpid())
	}
	must(t, dev.Close())
	must(t, p.Stop(t.Context()))
	if !p.Ended(0) || !found.Ended(0) {
		t.Error("it has not ended")
	}
	must(t, found.Stop(t.Context())) // again
	if p, err := Find(t.Context(), cfg.Socket); p != nil || err != nil {
		t.Errorf("found %+v, %v", p, err)
	}
	es, err := os.ReadDir(filepath.Dir(cfg.Socket))
	must(t, err)
	if len(es) != 1 || es[0].Name() != "splice.card.log" {
		t.Errorf("left: %v", es)
	}
	log, err := os.ReadFile(l.Log)
	must(t, err)
	refused := fmt.Sprintf("client=%d refused=%d", os.Getpid(), os.Getpid())
	if !bytes.Contains(log, []byte(refused)) {
		t.Errorf("the log does not say %q:\n%s", refused, log)
	}
}

// TestStaleFiles starts a card process where one was killed.
func TestStaleFiles(t *testing.T) {
	cfg, l := place(t)
	first := start(t, cfg, l)
	must(t, syscall.Kill(first.PID, syscall.SIGKILL))
	if !first.Ended(5 * time.Second) {
		t.Fatal("it has not ended")
	}
	if p, err := Find(t.Context(), cfg.Socket); p != nil || err != nil {
		t.Fatalf("found %+v, %v", p, err)
	}
	second := start(t, cfg, l)
	found, err := Find(t.Context(), cfg.Socket)
	must(t, err)
	defer found.Close()
	if found.PID != second.PID {
		t.Errorf("found process %d, want %d", found.PID, second.PID)
	}
	must(t, first.Stop(t.Context())) // harms nobody
	if second.Ended(0) {
		t.Error("the wrong one ended")
	}
}

// TestStartFails covers what keeps a card process from serving: the error has its words.
func TestStartFails(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(t *testing.T, cfg *Config, l *Launch) context.Context
		want   error
		says   []string
	}{
		{"a wire is missing", func(_ *testing.T, cfg *Config, _ *Launch) context.Context {
			cfg.Client = "pcap:/no/such/file,"
			return nil
		}, errEnded, []string{"exit status 3", "splice.card.log", "/no/such/file", "no such file"}},
		{"the socket is taken", func(t *testing.T, cfg *Config, l *Launch) context.Context {
			start(t, *cfg, *l)
			return nil
		}, errEnded, []string{"process ", "device busy"}},
		{"no socket's place", func(t *testing.T, cfg *Config, _ *Launch) context.Context {
			must(t, os.WriteFile(cfg.Socket, []byte("precious"), 0o600))
			return nil
		}, errEnded, []string{"not a socket"}},
		{"it hangs", func(_ *testing.T, _ *Config, l *Launch) context.Context {
			l.Command, l.Timeout = []string{l.Command[0], "card", "hang"}, 50*time.Millisecond
			return nil
		}, nil, []string{"does not serve after 50ms"}},
		{"given up", func(t *testing.T, _ *Config, l *Launch) context.Context {
			l.Command = []string{l.Command[0], "card", "hang"}
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			t.Cleanup(cancel)
			return ctx
		}, context.DeadlineExceeded, nil},
		{"no such program", func(_ *testing.T, _ *Config, l *Launch) context.Context {
			l.Command = []string{"/no/such/program"}
			return nil
		}, os.ErrNotExist, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg, l := place(t)
			ctx := tt.change(t, &cfg, &l)
			if ctx == nil {
				ctx = t.Context()
			}
			p, err := Start(ctx, cfg, l)
			if err == nil {
				p.Close()
				t.Fatal("it started")
			}
			if tt.want != nil && !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
			for _, s := range tt.says {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("%q does not say %q", err, s)
				}
			}
		})
	}
}

// TestFindForeign meets somebody at the socket who is no card process.
func TestFindForeign(t *testing.T) {
	cfg, _ := place(t)
	ln, err := net.Listen("unix", cfg.Socket)
	must(t, err)
	defer ln.Close()
	other := cfg.info(1) // a file that is about another process
	must(t, other.write(cfg.Socket))
	if p, err := Find(t.Context(), cfg.Socket); p != nil || !errors.Is(err, ErrForeign) || !strings.Contains(err.Error(), fmt.Sprintf("process %d", os.Getpid())) {
		t.Errorf("found %+v, %v", p, err)
	}
}

// TestFindLost finds a card process without the file that describes it: it is not called foreign, and can be used as it is.
func TestFindLost(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(path string) error
		says   string
	}{
		{"gone", func(string) error { return nil }, "it is gone"},
		{"a pipe", func(path string) error { return unix.Mkfifo(path, 0o600) }, "no regular file"},
		{"a link", func(path string) error { return os.Symlink("/etc/passwd", path) }, "no regular file"},
		{"broken", func(path string) error { return os.WriteFile(path, []byte("secret"), 0o600) }, "no card process's"},
		{"huge", func(path string) error { return os.WriteFile(path, make([]byte, maxInfo+1), 0o600) }, "more than 65536 bytes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg, l := place(t)
			p := start(t, cfg, l)
			must(t, os.Remove(infoPath(cfg.Socket)))
			must(t, tt.change(infoPath(cfg.Socket)))
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			_, err := Find(ctx, cfg.Socket)
			lost, ok := errors.AsType[*LostError](err)
			if !ok || errors.Is(err, ErrForeign) || lost.PID != p.PID || lost.Socket != cfg.Socket || !strings.Contains(err.Error(), tt.says) || strings.Contains(err.Error(), "secret") {
				t.Errorf("found %v, want process %d and %q", err, p.PID, tt.says)
			}
			dev, err := vfiouser.Dial(t.Context(), cfg.Socket, vfiouser.Options{Memfd: true})
			must(t, err)
			must(t, dev.Close())
			must(t, p.Stop(t.Context()))
		})
	}
}

// TestStopped describes a process that is stopped.
func TestStopped(t *testing.T) {
	cfg, l := place(t)
	p := start(t, cfg, l)
	must(t, syscall.Kill(p.PID, syscall.SIGSTOP))
	defer syscall.Kill(p.PID, syscall.SIGCONT)
	for end := time.Now().Add(5 * time.Second); !p.Stopped() && time.Now().Before(end); {
		runtime.Gosched()
	}
	if !p.Stopped() || !strings.Contains(p.String(), "stopped") {
		t.Errorf("it is not said to be stopped: %s", p)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := p.Stop(ctx); err == nil || !strings.Contains(err.Error(), "kill -KILL") {
		t.Errorf("stop: %v", err)
	}
	found, err := Find(t.Context(), cfg.Socket) // the kernel answers for it
	must(t, err)
	found.Close()
}

// TestDiffers compares what is served with what is wanted.
func TestDiffers(t *testing.T) {
	has := Info{PID: 1, Card: "emu", Client: "eth1", Server: "eth2", Seed: 1}
	for _, tt := range []struct {
		name string
		want Config
		says []string // none: it is the same
	}{
		{"same", Config{Card: "emu", Client: "eth1", Server: "eth2", Seed: 1}, nil},
		{"card", Config{Card: "vfio:0000:65:00.0"}, []string{"its card is emu, not vfio:0000:65:00.0"}},
		{"wire", Config{Card: "emu", Client: "eth1", Server: "eth3", Seed: 1}, []string{"server wire is eth2, not eth3"}},
		{"one-armed and seed", Config{Card: "emu", Client: "eth1", Seed: 2}, []string{"server wire is eth2, not none", "seed is 1, not 2"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := has.Differs(&tt.want)
			if (got == "") != (len(tt.says) == 0) {
				t.Errorf("got %q", got)
			}
			for _, s := range tt.says {
				if !strings.Contains(got, s) {
					t.Errorf("%q does not say %q", got, s)
				}
			}
		})
	}
}

// TestArgs: what Args says, Flags understands.
func TestArgs(t *testing.T) {
	want := Config{Card: "emu", Socket: "/run/x.sock", Client: "eth1", Server: "pcap:a,b", Seed: 1 << 63}
	var got Config
	f := flag.NewFlagSet("card serve", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	got.Flags(f)
	must(t, f.Parse(want.Args()))
	if g, w := got.info(0), want.info(0); g != w || got.Socket != want.Socket {
		t.Errorf("got %+v, want %+v", g, w)
	}
	bus := Config{Card: "vfio:1", Socket: "s", VFIO: open.VFIOOptions{Transport: "iommufd", NoIOMMU: true, VFToken: "u"}, Machine: open.Machine{Root: "m"}}
	if got, want := bus.Args(), []string{"--card", "vfio:1", "--socket", "s", "--transport", "iommufd", "--vf-token", "u", "--machine", "m", "--noiommu"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestOpenRefuses: a card process has a card of its own, and never guesses.
func TestOpenRefuses(t *testing.T) {
	root := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(root, "sys/bus/pci/devices"), 0o755))
	for _, name := range []string{"", "auto", "vfio-user:/run/x.sock", "vfio:nonsense", "board"} {
		if _, err := Open(Config{Card: name, Machine: open.Machine{Root: root}}); !errors.Is(err, open.ErrName) {
			t.Errorf("card %q: %v, want %v", name, err, open.ErrName)
		}
	}
}

// TestRemoval: the machine asks for the card back. Nobody, a client that lets go and one that does not: it is given back
// in bounded time, and clients are told.
func TestRemoval(t *testing.T) {
	for _, tt := range []struct {
		name   string
		client func(t *testing.T, c *vfiouser.Client) // nil: none
		atMost time.Duration
	}{
		{"no client", nil, drain},
		{"client lets go", func(t *testing.T, c *vfiouser.Client) {
			<-c.RemovalRequested()
			must(t, c.Close())
		}, drain},
		{"client does not hear", func(*testing.T, *vfiouser.Client) {}, 3 * drain},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := runtime.NumGoroutine()
			cfg := Config{Card: open.Emulator, Socket: filepath.Join(t.TempDir(), "c.sock"), Geometry: small}
			b, err := Open(cfg)
			must(t, err)
			removal, ready, served := make(chan struct{}), make(chan struct{}), make(chan error)
			b.Removal = removal
			cfg.Ready = func() { close(ready) }
			go func() { served <- errors.Join(b.Serve(t.Context(), cfg), b.Close()) }()
			<-ready
			var c *vfiouser.Client
			if tt.client != nil {
				c, err = vfiouser.Dial(t.Context(), cfg.Socket, vfiouser.Options{Memfd: true})
				must(t, err)
			}
			watch := devicetest.NewStopwatch()
			close(removal)
			if c != nil {
				tt.client(t, c)
			}
			if err := <-served; !errors.Is(err, ErrRemoved) || !errors.Is(err, device.ErrDeviceLost) {
				t.Errorf("got %v, want %v", err, ErrRemoved)
			}
			if took := watch.Stop(); took > tt.atMost {
				t.Errorf("it took %v, more than %v", took, tt.atMost)
			}
			if c != nil {
				c.Close()
			}
			for end := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > before && time.Now().Before(end); {
				runtime.Gosched()
			}
			if n := runtime.NumGoroutine(); n > before {
				t.Errorf("%d goroutines, %d before", n, before)
			}
		})
	}
}
