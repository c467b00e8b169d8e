//go:build !linux

package admin

import (
	"net"
	"os"

	"splicenic/driver/device"
)

func peer(net.Conn) (uint32, error)          { return 0, device.ErrNotSupported }
func openLock(path string) (*os.File, error) { return nil, device.ErrNotSupported }
func lock(*os.File) error                    { return device.ErrNotSupported }
func refused(error) bool                     { return false }
func rootIs() int                            { return 0 }
