// Package open turns a card's name into a device: auto, emu, vfio:ADDRESS or vfio-user:PATH. It is the only place that
// knows both the emulator and the driver's ways to reach a card; everybody else has a device.Device. Only the card
// process (tools/card) also sees the card's other side, which NewEmulator and OpenVFIO give it.
//
// A Card owns its device and, for the emulator, the card behind it with its ports. It starts no goroutine: Run is its
// caller's.
package open

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"splicenic/driver/discover"
	"splicenic/driver/vfio"
)

// Bodies of a card.
const (
	Auto     = "auto"
	Emulator = "emu"
	VFIO     = "vfio"
	VFIOUser = "vfio-user"
)

// ErrName: no card can have that name.
var ErrName = errors.New("no such card")

// An Error says that there is no usable card, and what to do about it.
type Error struct {
	Card string // as named
	Err  error
	Next string // the next command; may be empty
}

func (e *Error) Error() string { return fmt.Sprintf("open card %s: %v", e.Card, e.Err) }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// A Choice is a card that was decided for, not yet opened.
type Choice struct {
	Body string // never Auto
	Name string // PCI address with VFIO, socket path with VFIOUser
	Note string // what the user should know about how auto decided; empty: nothing
}

// String returns the card as --card names it.
func (c Choice) String() string {
	if c.Name == "" {
		return c.Body
	}
	return c.Body + ":" + c.Name
}

// Choose resolves a card's name; empty means auto. Auto takes the one usable card, the emulator where there is no card
// at all, and refuses to guess in every other case. It binds nothing.
func Choose(card string, d discover.Config) (Choice, error) {
	body, name, named := strings.Cut(card, ":")
	switch body {
	case "", Auto:
		if named {
			break
		}
		return chooseAuto(d)
	case Emulator:
		if named {
			break
		}
		return Choice{Body: Emulator}, nil
	case VFIO:
		if address, err := vfio.ParseAddress(name); err == nil {
			return Choice{Body: body, Name: address}, nil
		}
	case VFIOUser:
		if name != "" {
			return Choice{Body: body, Name: name}, nil
		}
	}
	return Choice{}, &Error{Card: card, Err: ErrName, Next: "name it auto, emu, vfio:ADDRESS or vfio-user:PATH"}
}

func chooseAuto(d discover.Config) (Choice, error) {
	found, err := discover.Auto(d)
	if err != nil {
		e := &Error{Card: Auto, Err: err}
		if _, ok := errors.AsType[*discover.AutoError](err); ok {
			e.Next = "take one of the commands above, or say --card emu"
		}
		return Choice{}, e
	}
	if found == nil {
		return Choice{Body: Emulator, Note: "no card found in this machine; the emulator is the card"}, nil
	}
	return Choice{Body: VFIO, Name: found.Address}, nil
}

// A Machine is where the kernel's file systems are.
type Machine struct {
	Root string // of a tree with sys, dev, proc and run; empty: this machine
}

func (m Machine) dir(name string) string {
	if m.Root == "" {
		return ""
	}
	return filepath.Join(m.Root, name)
}

// Discover is where cards are looked for.
func (m Machine) Discover() discover.Config {
	return discover.Config{Root: m.dir("sys"), Dev: m.dir("dev"), Proc: m.dir("proc"), Run: m.dir("run/splicenic/bind")}
}
