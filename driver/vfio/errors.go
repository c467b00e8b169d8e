package vfio

import (
	"errors"
	"fmt"
	"strings"
	"syscall"

	"splicenic/driver/device"
)

// A CallError is a system call that the kernel refused.
type CallError struct {
	Call  string // "VFIO_SET_IOMMU type1v2", "open", "pread"
	On    string // the file
	Errno syscall.Errno
	Fact  string // what it means here; empty: nothing beyond the errno
	Fix   string // what to do
	busy  bool   // it means that somebody else has the device
}

func (e *CallError) Error() string {
	s := fmt.Sprintf("%s on %s: %s (%s)", e.Call, e.On, e.Errno.Error(), errnoName(e.Errno))
	if e.Fact != "" {
		s += ": " + e.Fact
	}
	return s + "; do: " + e.Fix
}

// Unwrap returns the errno.
func (e *CallError) Unwrap() error { return e.Errno }

// Is gives the errnos that package device has a name for that name.
func (e *CallError) Is(target error) bool {
	if target == device.ErrBusy {
		return e.busy || e.Errno == syscall.EBUSY
	}
	switch e.Errno {
	case syscall.ENODEV, syscall.ENXIO:
		return target == device.ErrDeviceLost
	case syscall.ENOTTY, syscall.EOPNOTSUPP:
		return target == device.ErrNotSupported
	}
	return false
}

// A ReplyError is an answer of the kernel that cannot be true.
type ReplyError struct {
	Call string
	Msg  string
}

func (e *ReplyError) Error() string {
	return fmt.Sprintf("%s: the kernel's answer makes no sense: %s; do: report it with the output of uname -r", e.Call, e.Msg)
}

// A GroupError says why an IOMMU group cannot be given to a process, and which devices stand in the way.
type GroupError struct {
	Group    int
	Address  string
	Blocking []Member // never a bridge
}

func (e *GroupError) Error() string {
	var s strings.Builder
	fmt.Fprintf(&s, "IOMMU group %d of %s is not viable", e.Group, e.Address)
	if len(e.Blocking) == 0 {
		s.WriteString(": the kernel says so, though no device of the group has a driver other than vfio; do: splicectl card list")
		return s.String()
	}
	for i, m := range e.Blocking {
		sep := ", "
		if i == 0 {
			sep = ": "
		}
		fmt.Fprintf(&s, "%sdriver %s has %s", sep, m.Driver, m.Address)
	}
	s.WriteString("; do:")
	for i, m := range e.Blocking {
		sep := " &&"
		if i == 0 {
			sep = ""
		}
		fmt.Fprintf(&s, "%s echo %s > /sys/bus/pci/devices/%s/driver/unbind", sep, m.Address, m.Address)
	}
	return s.String()
}

// A QuotaError is a limit found by arithmetic, before the kernel was asked.
type QuotaError struct {
	What       string // "locked memory", "dma mappings"
	Unit       string // "bytes", "mappings"
	Need, Have uint64
	Detail     string // how Have came about
	Fix        string
}

func (e *QuotaError) Error() string {
	return fmt.Sprintf("%s: need %d %s, have %d (%s); do: %s", e.What, e.Need, e.Unit, e.Have, e.Detail, e.Fix)
}

// Unwrap makes the error a refused DMA.
func (e *QuotaError) Unwrap() error { return device.ErrDMA }

// A StateError is a fact that stands in the way without a call that failed.
type StateError struct {
	Fact string
	Fix  string
	Err  error // sentinel of package device
}

func (e *StateError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("%v: %s; do: %s", e.Err, e.Fact, e.Fix)
	}
	return e.Fact + "; do: " + e.Fix
}

// Unwrap returns the sentinel.
func (e *StateError) Unwrap() error { return e.Err }

// An advice is what an errno of a call means and what helps. The first line that matches is taken.
type advice struct {
	call  string // prefix; empty: any
	on    string // prefix of the file; empty: any
	errno syscall.Errno
	fact  string
	fix   string
}

const (
	fixModules = "modprobe vfio-pci vfio_iommu_type1"
	fixBind    = "splicectl card bind ADDRESS"
	fixDoctor  = "splicectl card doctor"
	fixDmesg   = "dmesg | grep -i -e vfio -e iommu -e DMAR"
	fixRescan  = "splicectl card list, then echo 1 > /sys/bus/pci/rescan"
	fixFiles   = "raise the limit of open files: ulimit -n 4096"
	fixMemlock = "raise the limit of locked memory: ulimit -l unlimited, or LimitMEMLOCK=infinity in the unit"
	fixRelease = "end the process that has it, then try again"
)

var advices = []advice{
	{"open", "", syscall.EMFILE, "this process has too many open files", fixFiles},
	{"open", "", syscall.ENFILE, "the machine has too many open files", "raise fs.file-max"},
	{"open", "NODES/iommu", syscall.ENOENT, "the kernel has no iommufd", "take --transport type1, or a kernel with CONFIG_IOMMUFD"},
	{"open", "NODES/vfio/vfio", syscall.ENOENT, "the vfio modules are not loaded", fixModules},
	{"open", "NODES/vfio/vfio", syscall.ENODEV, "the vfio modules are not loaded", fixModules},
	{"open", "NODES/vfio/devices/", syscall.ENOENT, "vfio-pci has no node for the device, or CONFIG_VFIO_DEVICE_CDEV is off", fixBind},
	{"open", "NODES/vfio/", syscall.ENOENT, "vfio-pci does not have the device", fixBind},
	{"open", "", syscall.EACCES, "this user may not open the node", "splicectl card doctor prints the udev rule"},
	{"open", "", syscall.EPERM, "this user may not open the node, or vfio's noiommu mode wants CAP_SYS_RAWIO", "splicectl card doctor prints the udev rule"},
	{"open", "", syscall.EBUSY, "another process has the device", fixRelease},
	{"VFIO_SET_IOMMU", "", syscall.EPERM, "interrupts are not remapped by this IOMMU", "turn interrupt remapping on in the firmware, or, accepting that any device may forge interrupts, set vfio_iommu_type1.allow_unsafe_interrupts=1"},
	{"VFIO_SET_IOMMU", "", syscall.EINVAL, "the group cannot be attached; firmware may reserve memory of it", fixDmesg},
	{"VFIO_SET_IOMMU", "", syscall.ENODEV, "the container has no group, or the IOMMU driver is not loaded", fixModules},
	{"VFIO_GROUP_SET_CONTAINER", "", syscall.EINVAL, "the group has a container already", fixRelease},
	{"VFIO_GROUP_GET_DEVICE_FD", "", syscall.EACCES, "the function is virtual and its owner set a token", "name the token: --vf-token UUID"},
	{"VFIO_GROUP_GET_DEVICE_FD", "", syscall.ENODEV, "the group does not hold this device any more", fixRescan},
	{"VFIO_GROUP_GET_DEVICE_FD", "", syscall.EIO, "the device does not wake up", fixRescan},
	{"VFIO_DEVICE_BIND_IOMMUFD", "", syscall.EPERM, "interrupts are not remapped", fixDoctor},
	{"VFIO_DEVICE_BIND_IOMMUFD", "", syscall.EINVAL, "the device is opened through its group already, or the descriptor is no iommufd", fixRelease},
	{"VFIO_DEVICE_ATTACH_IOMMUFD_PT", "", syscall.EINVAL, "firmware reserves memory of the device, or its group is shared", fixDmesg},
	{"VFIO_IOMMU_MAP_DMA", "", syscall.EINVAL, "address or size is not aligned to the IOMMU's page, or lies outside its ranges", fixDoctor},
	{"VFIO_IOMMU_MAP_DMA", "", syscall.EEXIST, "the range is mapped already", fixDmesg},
	{"VFIO_IOMMU_MAP_DMA", "", syscall.ENOSPC, "the container has no mapping left", "raise vfio_iommu_type1.dma_entry_limit"},
	{"VFIO_IOMMU_MAP_DMA", "", syscall.ENOMEM, "the limit of locked memory is reached", fixMemlock},
	{"IOMMU_IOAS_MAP", "", syscall.ENOMEM, "the limit of locked memory, which counts per user, is reached", fixMemlock},
	{"IOMMU_IOAS_MAP", "", syscall.EEXIST, "the range is mapped already", fixDmesg},
	{"IOMMU_IOAS_MAP", "", syscall.EADDRINUSE, "the range is mapped already", fixDmesg},
	{"VFIO_DEVICE_RESET", "", syscall.EAGAIN, "the device or its bus is locked by another reset", "try again"},
	{"VFIO_DEVICE_RESET", "", syscall.EINVAL, "the kernel knows no reset of this function", "cat /sys/bus/pci/devices/ADDRESS/reset_method"},
	{"VFIO_DEVICE_RESET", "", syscall.ENOTTY, "the function has no reset of its own", "cat /sys/bus/pci/devices/ADDRESS/reset_method"},
	{"VFIO_DEVICE_SET_IRQS", "", syscall.ENOSPC, "the machine has no interrupt vector left", "take cores or devices with many vectors out of use; see /proc/interrupts"},
	{"VFIO_DEVICE_SET_IRQS", "", syscall.EINVAL, "the kernel does not take this set of vectors", fixDmesg},
	{"eventfd", "", syscall.EMFILE, "this process has too many open files", fixFiles},
	{"eventfd", "", syscall.ENFILE, "the machine has too many open files", "raise fs.file-max"},
	{"mmap", "", syscall.ENOMEM, "no memory or address space is left", "free memory; see ulimit -v and vm.max_map_count"},
	{"mmap", "", syscall.EINVAL, "the kernel does not map this part of the BAR", "report it with the output of lspci -vv"},
	{"memfd_create", "", syscall.ENOMEM, "no memory is left", "free memory, or reserve huge pages: vm.nr_hugepages"},
	{"memfd_create", "", syscall.EMFILE, "this process has too many open files", fixFiles},
	{"memfd_create", "", syscall.ENFILE, "the machine has too many open files", "raise fs.file-max"},
	{"pread", "", syscall.EIO, "the device did not answer", fixRescan},
	{"pwrite", "", syscall.EIO, "the device did not answer", fixRescan},

	// Whatever the call.
	{"", "", syscall.EBUSY, "somebody else has it", fixRelease},
	{"", "", syscall.ENODEV, "the device is gone", fixRescan},
	{"", "", syscall.ENXIO, "the device is gone", fixRescan},
	{"", "", syscall.EIO, "the device did not answer", fixRescan},
	{"", "", syscall.ENOMEM, "no memory is left", "free memory; " + fixMemlock},
	{"", "", syscall.EPERM, "this process lacks a privilege", fixDoctor},
	{"", "", syscall.EACCES, "this process lacks a permission", fixDoctor},
	{"", "", syscall.ENOTTY, "this kernel does not know the call", "take a kernel of 6.1 or later, or the other --transport"},
	{"", "", syscall.EOPNOTSUPP, "this kernel does not offer the call", "take a kernel of 6.1 or later, or the other --transport"},
	{"", "", syscall.ENOSYS, "this kernel does not know the call", "take a kernel of 6.1 or later"},
}

// explain makes err of a call an error that says what to do. on is the file, below its directory of nodes where it is one.
func (n *nodes) explain(call, on string, err error) error {
	if err == nil {
		return nil
	}
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return fmt.Errorf("%s on %s: %w", call, on, err)
	}
	e := &CallError{Call: call, On: on, Errno: errno, Fix: fixDmesg}
	for _, a := range advices {
		file := strings.Replace(a.on, "NODES", n.dev, 1)
		if a.errno == errno && strings.HasPrefix(call, a.call) && strings.HasPrefix(on, file) {
			e.Fact, e.Fix = a.fact, a.fix
			break
		}
	}
	e.Fix = strings.ReplaceAll(e.Fix, "ADDRESS", n.address)
	return e
}
