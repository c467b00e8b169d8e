package host

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"splicenic/runtime/admin"
	"splicenic/tools/open"
)

const file = `card: CARD
emu: {client: mem, server: mem}
ports:
  client: {addresses: [198.18.0.1/24]}
  server: {addresses: [198.18.1.1/24]}
services:
  - {name: web, listen: [198.18.0.80:80], mode: splice, protocol: http, default: app}
groups:
  - {name: app, servers: [{address: 198.18.1.11:8080}]}
`

// write puts a configuration for a card into a directory of its own, beside the root of a fake /sys without cards.
func write(t *testing.T, card string) (cfg Config, log *bytes.Buffer) {
	t.Helper()
	dir := t.TempDir()
	name := filepath.Join(dir, "web.yaml")
	if err := os.WriteFile(name, []byte(strings.Replace(file, "CARD", card, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "sys/bus/pci/devices"), 0o755); err != nil {
		t.Fatal(err)
	}
	log = &bytes.Buffer{}
	cfg = Config{File: name, Socket: filepath.Join(dir, "splice.sock"), Machine: open.Machine{Root: dir}, Log: slog.New(slog.NewTextHandler(log, nil)), InProcess: true}
	return cfg, log
}

// leaks fails the test if there are more goroutines than before.
func leaks(t *testing.T, before int) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > before && time.Now().Before(end); {
		runtime.Gosched()
	}
	if n := runtime.NumGoroutine(); n > before {
		b := make([]byte, 1<<16)
		t.Errorf("%d goroutines, %d before\n%s", n, before, b[:runtime.Stack(b, true)])
	}
}

// A trigger fires when a text is written.
type trigger struct {
	*bytes.Buffer
	text string
	fire func()
}

func (t *trigger) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte(t.text)) {
		t.fire()
	}
	return t.Buffer.Write(p)
}

// TestRun starts everything, sees it answer, applies the file again, and ends it: nothing is left.
func TestRun(t *testing.T) {
	before := runtime.NumGoroutine()
	cfg, log := write(t, "auto")
	hangup := make(chan os.Signal, 1)
	cfg.Hangup = hangup
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var ready Ready
	cfg.Ready = func(r Ready) {
		ready = r
		if c, err := net.Dial("unix", r.Socket); err != nil {
			t.Error(err)
		} else {
			c.Close()
		}
		if err := os.Remove(cfg.File); err != nil { // the reload finds no file
			t.Error(err)
		}
		hangup <- syscall.SIGHUP
	}
	cfg.Log = slog.New(slog.NewTextHandler(&trigger{Buffer: log, text: "stays in force", fire: cancel}, nil))
	if err := Run(ctx, cfg); err != nil {
		t.Fatal(err)
	}
	if ready.Card != "emu" || ready.Services != 1 || ready.PID != os.Getpid() || ready.CardProcess != 0 || ready.CardSocket != "" || ready.Attached != "reset" {
		t.Errorf("ready: %+v", ready)
	}
	for _, want := range []string{"no card found in this machine", "the one before stays in force"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log does not say %q:\n%s", want, log)
		}
	}
	if _, err := os.Stat(cfg.Socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
	leaks(t, before)
}

// TestRunRefuses covers what keeps a runtime from starting.
func TestRunRefuses(t *testing.T) {
	for _, tt := range []struct {
		name, card string
		change     func(t *testing.T, cfg *Config)
		want       error
	}{
		{"nobody serves that card", "emu", func(_ *testing.T, cfg *Config) { cfg.Card = "vfio-user:/no/such.sock" }, os.ErrNotExist},
		{"no such card", "emu", func(_ *testing.T, cfg *Config) { cfg.Card = "board" }, open.ErrName},
		{"another one runs", "emu", func(t *testing.T, cfg *Config) {
			l, err := admin.Listen(cfg.Socket)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { l.Close() })
		}, admin.ErrRunning},
		{"ended before it began", "emu", func(_ *testing.T, cfg *Config) {}, context.Canceled},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg, _ := write(t, tt.card)
			tt.change(t, &cfg)
			ctx := t.Context()
			if errors.Is(tt.want, context.Canceled) {
				over, cancel := context.WithCancel(ctx)
				cancel()
				ctx = over
			}
			if err := Run(ctx, cfg); !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
		})
	}
}
