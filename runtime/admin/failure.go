package admin

import (
	"errors"
	"fmt"
	"net/http"
	"splicenic/bitstream/program"

	"splicenic/driver"
	"splicenic/driver/device"
	"splicenic/runtime/config"
	"splicenic/runtime/daemon"
	"splicenic/runtime/rule"
	"splicenic/runtime/view"
)

// Error is what a request failed with, in words for a person.
type Error struct {
	What  string `json:"what"`
	Where string `json:"where"`
	Why   string `json:"why"`
	Do    string `json:"do"`
	Exit  int    `json:"exit"` // of the command that asked: 1 failed, 2 usage or configuration, 4 card lost or mismatch, 5 busy, 6 refused
}

func (e *Error) Error() string { return e.What + ": " + e.Why }

// failure is the document of a failed request.
type failure struct {
	Error    Error           `json:"error"`
	Problems config.Problems `json:"problems,omitempty"`
}

// errUsage is the error of a request that cannot be understood.
var errUsage = errors.New("bad request")

// errTooLarge is the error of a body that is longer than any request needs.
var errTooLarge = errors.New("request body too large")

// errSlow is the error of a body that does not arrive.
var errSlow = errors.New("request body did not arrive in time")

// errNoRuntime is the error of what only a runtime knows.
var errNoRuntime = errors.New("no runtime drives this card")

// kinds sorts errors: the first that matches counts.
var kinds = []struct {
	is     error
	status int
	exit   int
	do     string
}{
	{errUsage, http.StatusBadRequest, 2, "correct the request"},
	{view.ErrUsage, http.StatusUnprocessableEntity, 2, "correct the request"},
	{errTooLarge, http.StatusRequestEntityTooLarge, 2, fmt.Sprintf("send less: a configuration file has at most %d bytes, a piece of an image %d", config.MaxBytes, maxFlash)},
	{errSlow, http.StatusRequestTimeout, 2, "send the whole body"},
	{errNotLive, http.StatusConflict, 6, "splicectl bitstream boot SLOT --live drains the services, boots, and starts them again"},
	{errNoRuntime, http.StatusServiceUnavailable, 1, "start one: splicectl run -c FILE"},
	{daemon.ErrUnconfigured, http.StatusServiceUnavailable, 1, "wait until the first configuration is in force"},
	{view.ErrNotFound, http.StatusNotFound, 1, "list what there is: splicectl conn list, cam list, reg list"},
	{errNoZone, http.StatusNotFound, 1, "add dns: to the configuration, with zone, listen or file, nameserver and records"},
	{view.ErrRefused, http.StatusConflict, 6, "see the register's access kind: splicectl reg list"},
	{daemon.ErrRestart, http.StatusConflict, 6, "restart the runtime with the new file"},
	{rule.ErrFull, http.StatusConflict, 6, "make the configuration smaller, or wait until connections have ended"},
	{rule.ErrTooBig, http.StatusConflict, 6, "make the routes fewer or shorter; what was in force stays"},
	{driver.ErrMapMismatch, http.StatusServiceUnavailable, 4, "load an image that this release knows"},
	{device.ErrDeviceLost, http.StatusServiceUnavailable, 4, "look at the card: splicectl card info"},
	{driver.ErrShellOnly, http.StatusServiceUnavailable, 4, "bring the card up: splicectl run -c FILE"},
	{device.ErrRange, http.StatusUnprocessableEntity, 2, "correct the request"},
	{device.ErrBusy, http.StatusConflict, 5, "wait, or stop who has it"},
}

// explain turns an error into an answer.
func explain(what, where string, err error) (status int, f failure) {
	f.Error = Error{What: what, Where: where, Why: err.Error(), Do: "see the log of the runtime", Exit: 1}
	if errors.As(err, &f.Problems) {
		f.Error.Do, f.Error.Exit = "correct the file; nothing was changed", 2
		return http.StatusUnprocessableEntity, f
	}
	if p, ok := errors.AsType[*driver.FlashError](err); ok && p.Protected() {
		f.Error.Do, f.Error.Exit = "take the write protection off first: splicectl bitstream load does", 6
		return http.StatusConflict, f
	}
	if p, ok := errors.AsType[*program.Refused](err); ok {
		f.Error.Do, f.Error.Exit = p.Do, 6
		return http.StatusConflict, f
	}
	for _, k := range kinds {
		if errors.Is(err, k.is) {
			f.Error.Do, f.Error.Exit = k.do, k.exit
			if refused, ok := errors.AsType[*view.RefusedError](err); ok {
				f.Error.Do = refused.Do
			}
			return k.status, f
		}
	}
	return http.StatusInternalServerError, f
}
