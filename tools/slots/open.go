package slots

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"splicenic/bitstream/program"
	"splicenic/driver"
	"splicenic/driver/device"
	"splicenic/runtime/admin"
	"splicenic/runtime/flash"
	"splicenic/tools/control"
	"splicenic/tools/open"
)

// Config says whose slots. The runtime that listens at the socket is asked; where none does, the card is opened.
type Config struct {
	Card    string // empty: auto
	Socket  string // empty: the default path
	VFIO    open.VFIOOptions
	Machine open.Machine
	Write   bool // the card's flash is written: nobody else may be about to
	Note    func(text string)
}

// A Session is a card whose slots can be looked at and written.
type Session struct {
	program.Card
	Where string
	close func() error
}

// Close lets the card go, and what else waits for it.
func (s *Session) Close() error { return s.close() }

// Open opens a card.
func Open(ctx context.Context, cfg Config) (*Session, error) {
	note := cfg.Note
	if note == nil {
		note = func(string) {}
	}
	cl, err := control.Runtime(ctx, control.Config{Socket: cfg.Socket})
	if err != nil {
		return nil, err
	}
	if cl != nil {
		return behind(cl, cfg)
	}
	choice, err := open.Choose(cfg.Card, cfg.Machine.Discover())
	if err != nil {
		return nil, err
	}
	if cfg.Write && choice.Body == open.Emulator && choice.Note != "" { // nobody named it
		do := "name a card: --card vfio-user:SOCKET is that of a card process, and splicectl card serve --card emu --flash FILE is one that keeps what is written; --card emu tries it on a card that is gone afterwards"
		if left := strings.TrimSuffix(socket(cfg), ".sock") + ".card.sock"; isSocket(left) {
			do = "a runtime has left its card process there: say --card vfio-user:" + left
		}
		return nil, control.Refuse("there is no card to write", choice.Note+", and would be gone when this command ends", do)
	}
	unlock := func() error { return nil }
	if cfg.Write && choice.Body != open.Emulator {
		if unlock, err = LockCard(cfg, choice); err != nil {
			return nil, err
		}
	}
	if choice.Note != "" {
		note(choice.Note)
	}
	dev, err := open.Open(ctx, choice, open.Config{VFIO: cfg.VFIO, Machine: cfg.Machine})
	if err != nil {
		return nil, errors.Join(err, unlock())
	}
	drv, err := driver.Open(ctx, dev, driver.Config{Shell: true, Adopt: dev.Outlives()})
	if err != nil {
		return nil, errors.Join(err, dev.Detach(), unlock())
	}
	if dev.Emulated() {
		note("this is a fresh emulated card: what is written is gone when this command ends")
	}
	return &Session{flash.Of(drv), choice.String(), func() error { return errors.Join(dev.Detach(), unlock()) }}, nil
}

func isSocket(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().Type() == os.ModeSocket
}

// behind opens the card of a runtime, which goes on driving it.
func behind(cl *control.Client, cfg Config) (*Session, error) {
	unlock := func() error { return nil }
	if cfg.Write {
		var err error
		if unlock, err = LockRuntime(cfg); err != nil {
			return nil, errors.Join(err, cl.Close())
		}
	}
	return &Session{cl.Program(), cl.Where, func() error { return errors.Join(cl.Close(), unlock()) }}, nil
}

// LockRuntime keeps loads and boots of the card of the runtime at the socket out until unlock is called.
func LockRuntime(cfg Config) (unlock func() error, err error) { return lock(socket(cfg) + ".load") }

// LockCard does the same for a card without a runtime.
func LockCard(cfg Config, c open.Choice) (unlock func() error, err error) {
	return lock(lockPath(cfg, c))
}

// lockPath is beside the socket of the card's process, or where the runtime's would be.
func lockPath(cfg Config, c open.Choice) string {
	if c.Body == open.VFIOUser {
		return c.Name + ".load"
	}
	return filepath.Join(filepath.Dir(socket(cfg)), strings.ReplaceAll(c.Name, "/", "_")+".load")
}

func socket(cfg Config) string {
	if cfg.Socket == "" {
		return admin.DefaultSocket(control.DefaultName)
	}
	return cfg.Socket
}

// lock keeps other loads and boots out until unlock is called or this process ends. The file stays: who removes it lets two in.
func lock(path string) (unlock func() error, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the card against other loads: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("another load is writing this card's flash, or it boots: %w", device.ErrBusy)
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return f.Close, nil
}
