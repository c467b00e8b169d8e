package driver

import (
	"errors"
	"fmt"
	"strings"

	"splicenic/driver/device"
	"splicenic/regs"
)

// Errors that callers test with errors.Is. Those of package device arrive unchanged.
var (
	// ErrMapMismatch: the card was built from another register map. The error is a *MismatchError.
	ErrMapMismatch = errors.New("register map mismatch")
	// ErrTimeout: the card did not answer in time.
	ErrTimeout = errors.New("card did not answer in time")
	// ErrFault: the card stopped itself.
	ErrFault = errors.New("card fault")
	// ErrRingFull: no descriptor is free; the card has not caught up.
	ErrRingFull = errors.New("ring full")
	// ErrFrameSize: a frame is empty or larger than a buffer.
	ErrFrameSize = errors.New("frame size")
	// ErrShellOnly: the card was opened for its shell only, or its rings are down.
	ErrShellOnly = errors.New("card is not brought up")
	// ErrStaleHandle: the page has another generation; the connection is gone.
	ErrStaleHandle = errors.New("stale handle")
	// ErrNoPage: the address list is empty.
	ErrNoPage = errors.New("no free page")
	// ErrKeyExists: the CAM holds the key.
	ErrKeyExists = errors.New("key exists")
	// ErrTableFull: the CAM has no place for the key within its bound.
	ErrTableFull = errors.New("table full")
	// ErrNotFound: the CAM does not hold the key.
	ErrNotFound = errors.New("not found")
	// ErrState: the connection's state does not allow it.
	ErrState = errors.New("not in this state")
)

// A MismatchError names what differs between the card's map and this build's.
type MismatchError struct {
	Part       string // "magic", "shell digest", "data-path digest", or a register
	Card, Host uint32
	Blocks     []string // blocks that differ, where the directory tells
}

func (e *MismatchError) Error() string {
	s := fmt.Sprintf("%s of the card is %#08x, this host was built for %#08x", e.Part, e.Card, e.Host)
	if len(e.Blocks) > 0 {
		s += " (different: " + strings.Join(e.Blocks, ", ") + ")"
	}
	return s
}

// Is makes the error an ErrMapMismatch.
func (e *MismatchError) Is(target error) bool { return target == ErrMapMismatch }

// A CommandError is a command that the card refused.
type CommandError struct {
	Verb   uint32 // regs.CommandControlType…
	Status uint32 // regs.Status…
}

// Error names verb and status.
func (e *CommandError) Error() string {
	return fmt.Sprintf("%s refused: %s", commandName("type", e.Verb), commandName("status", e.Status))
}

// Unwrap returns the error that stands for the status, nil where there is none.
func (e *CommandError) Unwrap() error {
	switch e.Status {
	case regs.StatusArgument:
		return device.ErrRange
	case regs.StatusNotSupported:
		return device.ErrNotSupported
	case regs.StatusStaleHandle:
		return ErrStaleHandle
	case regs.StatusNoPage:
		return ErrNoPage
	case regs.StatusKeyExists:
		return ErrKeyExists
	case regs.StatusNoPlace:
		return ErrTableFull
	case regs.StatusNotFound:
		return ErrNotFound
	case regs.StatusState:
		return ErrState
	case regs.StatusDma:
		return device.ErrDMA
	}
	return nil
}

// commandName returns the name a value of a field of the command's control word has in the map.
func commandName(field string, v uint32) string {
	if ft, ok := regs.LookupFormat("command"); ok {
		if f, ok := ft.Words[regs.CommandControl].Field(field); ok {
			if name := f.ValueName(v); name != "" {
				return name
			}
		}
	}
	return fmt.Sprintf("%s %d", field, v)
}
