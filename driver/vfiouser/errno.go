package vfiouser

import (
	"errors"
	"fmt"
	"syscall"

	"splicenic/driver/device"
)

// errno is a number in the header of an error reply. The numbers are Linux's.
type errno uint32

const (
	eNOENT  errno = 2
	eIO     errno = 5
	eNOMEM  errno = 12
	eFAULT  errno = 14
	eBUSY   errno = 16
	eEXIST  errno = 17
	eNODEV  errno = 19
	eINVAL  errno = 22
	eNOSPC  errno = 28
	eNOTSUP errno = 95
)

var errnoNames = map[errno]string{
	eNOENT: "ENOENT", eIO: "EIO", eNOMEM: "ENOMEM", eFAULT: "EFAULT", eBUSY: "EBUSY", eEXIST: "EEXIST", eNODEV: "ENODEV",
	eINVAL: "EINVAL", eNOSPC: "ENOSPC", eNOTSUP: "ENOTSUP",
}

func (e errno) Error() string {
	if s, ok := errnoNames[e]; ok {
		return s
	}
	return fmt.Sprintf("errno %d", uint32(e))
}

// meanings joins numbers and the errors of the device contract, the first that fits.
var meanings = []struct {
	errno errno
	err   error
}{
	{eBUSY, device.ErrBusy},
	{eNODEV, device.ErrDeviceLost},
	{eNODEV, device.ErrClosed},
	{eNOTSUP, device.ErrNotSupported},
	{eINVAL, device.ErrRange},
	{eFAULT, device.ErrDMA},
	{eEXIST, device.ErrDMA},
	{eNOENT, device.ErrDMA},
	{eINVAL, errProtocol},
}

// errnoOf says what number tells a peer about err.
func errnoOf(err error) errno {
	var e errno
	if errors.As(err, &e) {
		return e
	}
	for _, m := range meanings {
		if errors.Is(err, m.err) {
			return m.errno
		}
	}
	var sys syscall.Errno
	if errors.As(err, &sys) && sys != 0 {
		return errno(sys)
	}
	return eIO
}

// errnoError is what an error reply means to a client.
func errnoError(e errno) error {
	for _, m := range meanings {
		if m.errno == e {
			return fmt.Errorf("the card process answered %w: %w", e, m.err)
		}
	}
	return fmt.Errorf("the card process answered %w", e)
}
