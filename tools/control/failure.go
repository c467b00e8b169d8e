package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"splicenic/driver"
	"splicenic/driver/device"
	"splicenic/driver/discover"
	"splicenic/runtime/admin"
	"splicenic/runtime/config"
	"splicenic/runtime/daemon"
	"splicenic/runtime/view"
	"splicenic/tools/card"
	"splicenic/tools/open"
)

// Exit codes of splicectl.
const (
	ExitOK      = 0
	ExitFailed  = 1
	ExitUsage   = 2 // usage or configuration
	ExitNoCard  = 3
	ExitCard    = 4 // card lost, or its map is not ours
	ExitBusy    = 5
	ExitRefused = 6
)

var exitWords = [...]string{"done", "failed", "wrong usage or configuration", "no usable card", "card lost or mismatch", "busy", "refused"}

// words are what failed, where, why, what to do, and the exit code.
type words = admin.Error

// A Failure is an error a user reads: what failed, where, why, and what to do.
type Failure struct {
	words
	Problems config.Problems // of a configuration file
}

// Print writes the failure for a person. The last line says that command failed.
func (f *Failure) Print(w io.Writer, command string) {
	for _, p := range f.Problems {
		fmt.Fprintln(w, p)
	}
	what := f.What
	if f.Why != "" {
		what += ": " + f.Why
	}
	fmt.Fprintf(w, "error: %s\n", what)
	if f.Where != "" {
		fmt.Fprintf(w, "  where: %s\n", f.Where)
	}
	if f.Do != "" {
		fmt.Fprintf(w, "  do: %s\n", f.Do)
	}
	fmt.Fprintf(w, "%s failed: %s (exit code %d)\n", command, exitWords[min(max(f.Exit, 0), len(exitWords)-1)], f.Exit)
}

// Usage is a Failure of wrong usage.
func Usage(what, do string) *Failure {
	return &Failure{words: words{What: what, Do: do, Exit: ExitUsage}}
}

// Refuse is a Failure of something that is not done unless it is asked for in so many words.
func Refuse(what, why, do string) *Failure {
	return &Failure{words: words{What: what, Why: why, Do: do, Exit: ExitRefused}}
}

// Explain makes a Failure of any error; what says what was being done.
func Explain(what string, err error) *Failure {
	var f *Failure
	if errors.As(err, &f) {
		return f
	}
	f = &Failure{words: words{What: what, Why: err.Error(), Exit: ExitFailed}}
	if problems, ok := errors.AsType[config.Problems](err); ok {
		f.Problems, f.Exit, f.Why = problems, ExitUsage, "one error"
		if len(problems) != 1 {
			f.Why = fmt.Sprintf("%d errors", len(problems))
		}
		f.Do = "correct the file; nothing was changed"
		return f
	}
	if state, ok := errors.AsType[*card.StateError](err); ok { // before what it holds: that knows nothing of the process
		f.Exit, f.Why, f.Do = ExitCard, state.Error(), "splicectl card info says what the card answers"
		return f
	}
	if e, ok := errors.AsType[*open.Error](err); ok {
		f.Exit, f.Where, f.Why, f.Do = ExitNoCard, e.Card, e.Err.Error(), e.Next
		if why, do, ok := strings.Cut(f.Why, "; do: "); ok { // the driver knows better
			f.Why, f.Do = why, do
		}
		switch {
		case errors.Is(err, open.ErrName):
			f.Exit = ExitUsage
		case errors.Is(err, device.ErrBusy):
			f.Exit, f.Do = ExitBusy, "stop the other user of the card, or ask it through its --socket"
		case errors.Is(err, device.ErrDeviceLost):
			f.Exit, f.Do = ExitCard, "splicectl card list says whether it is still there"
		}
		return f
	}
	if start, ok := errors.AsType[*card.StartError](err); ok {
		f.Exit, f.Where, f.Do = ExitFailed, start.Socket, "see "+start.Log
		if start.Exit > ExitFailed && start.Exit <= ExitRefused {
			f.Exit = start.Exit // it has words for the same things
		}
		return f
	}
	if lost, ok := errors.AsType[*card.LostError](err); ok {
		f.Exit, f.Where = ExitBusy, lost.Socket
		f.Do = fmt.Sprintf("traffic goes on; attach to it as it is with --card vfio-user:%s, or end it: kill %d", lost.Socket, lost.PID)
		return f
	}
	if bind, ok := errors.AsType[*discover.BindError](err); ok {
		explainBind(f, bind)
	}
	for _, k := range []struct {
		err  error
		exit int
		do   string
	}{
		{device.ErrDeviceLost, ExitCard, "splicectl card info says what the card answers"},
		{driver.ErrMapMismatch, ExitCard, "run the release that was made for the card's image, or give the card this one's: splicectl bitstream load FILE, then splicectl bitstream boot; splicectl card info names both digests"},
		{admin.ErrRunning, ExitBusy, "ask the running one through its --socket, or stop it"},
		{admin.ErrNotSocket, ExitFailed, "name another --socket, or remove the file yourself"},
		{admin.ErrTooLong, ExitUsage, "name a shorter --socket"},
		{card.ErrForeign, ExitBusy, "name another --socket"},
		{device.ErrBusy, ExitBusy, "stop the other user of the card, or ask it through its --socket"},
		{daemon.ErrRestart, ExitUsage, "stop the runtime and start it with the new file"},
		{view.ErrRefused, ExitRefused, ""},
		{discover.ErrRefused, ExitRefused, ""},
		{fs.ErrNotExist, ExitFailed, "check the path"},
		{fs.ErrPermission, ExitFailed, "run it as root, or as the user the runtime runs as"},
		{context.Canceled, ExitFailed, ""},
	} {
		if errors.Is(err, k.err) {
			if f.Exit == ExitFailed {
				f.Exit = k.exit
			}
			if f.Do == "" {
				f.Do = k.do
			}
			break
		}
	}
	return f
}

// Refused is a Failure of something that is not done, with the reason in its words.
func Refused(what, where, do string) *Failure {
	return &Failure{words: words{What: what, Where: where, Do: do, Exit: ExitRefused}}
}
