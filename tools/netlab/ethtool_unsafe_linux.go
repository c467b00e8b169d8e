package netlab

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ethtoolValue is struct ethtool_value: a command and its one number.
type ethtoolValue struct{ command, data uint32 }

// ifreqData is struct ifreq with a pointer, padded to the kernel's 40 bytes.
type ifreqData struct {
	name [unix.IFNAMSIZ]byte
	data *ethtoolValue
	_    [24 - unsafe.Sizeof(uintptr(0))]byte
}

// ethtool sends one command to an interface of the namespace that fd belongs to.
func ethtool(fd int, ifname string, command, data uint32) error {
	value := ethtoolValue{command, data}
	request := ifreqData{data: &value}
	copy(request.name[:unix.IFNAMSIZ-1], ifname)
	// The kernel reads and writes the 40 bytes of request and the 8 of value, within this call only. Both live until after
	// it: request because the conversion stands in the call itself (unsafe.Pointer, rule 4), value by KeepAlive. Neither
	// moves: a stack does not grow or shrink during a system call.
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request)))
	runtime.KeepAlive(&value)
	if errno != 0 {
		return os.NewSyscallError("ioctl SIOCETHTOOL", errno)
	}
	return nil
}

// setOffload switches the offloads; segmentation needs checksums, so these go first when switched on.
func setOffload(ifname string, o Offload) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	for _, f := range []struct {
		name    string
		command uint32
		on      bool
	}{
		{"tx-checksum", unix.ETHTOOL_STXCSUM, o.Checksum},
		{"tso", unix.ETHTOOL_STSO, o.Segmentation},
		{"gso", unix.ETHTOOL_SGSO, o.Segmentation},
		{"gro", unix.ETHTOOL_SGRO, o.Receive},
	} {
		var data uint32
		if f.on {
			data = 1
		}
		if err := ethtool(fd, ifname, f.command, data); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	return nil
}
