package vfio

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"splicenic/driver/device"
	"splicenic/driver/device/devicetest"
)

// errnos are what the calls of this package can answer.
var errnos = []unix.Errno{
	unix.EPERM, unix.ENOENT, unix.EIO, unix.ENXIO, unix.EBADF, unix.EAGAIN, unix.ENOMEM, unix.EACCES, unix.EFAULT, unix.EBUSY,
	unix.EEXIST, unix.ENODEV, unix.EINVAL, unix.ENFILE, unix.EMFILE, unix.ENOTTY, unix.EFBIG, unix.ENOSPC, unix.ERANGE, unix.ENOSYS,
	unix.EMSGSIZE, unix.EOPNOTSUPP, unix.EADDRINUSE, unix.ETIMEDOUT, unix.E2BIG, unix.EOVERFLOW,
}

// A session is a life of a device: each call of the package, in the order a driver makes them. It returns the first error.
func session(k *fakeKernel, t Transport) (err error) {
	o := k.options()
	o.Transport = t
	d, err := Open(k.addr, o)
	if err != nil {
		return err
	}
	defer func() {
		if e := d.Close(); err == nil {
			err = e
		}
		if e := d.Close(); e != nil { // a second Close does nothing
			k.t.Errorf("second Close: %v", e)
		}
	}()
	a, err := d.AllocDMA("ring", 8192)
	if err != nil {
		return err
	}
	if _, err := d.AllocDMA("frames", 2<<20); err != nil {
		return err
	}
	for _, n := range []int{2, 4, 1} {
		if err := d.EnableVectors(n); err != nil {
			return err
		}
	}
	if err := d.Trigger(0); err != nil {
		return err
	}
	if _, err := d.Wait(context.Background(), 0); err != nil {
		return err
	}
	d.Store32(device.Bar0, 4, 1)
	d.Store64(device.Bar2, 8, d.Load64(device.Bar2, 0)+uint64(d.Load32(device.Bar0, 4)))
	if err := d.Err(); err != nil {
		return err
	}
	var b [2]byte
	if err := d.ReadConfig(4, b[:]); err != nil {
		return err
	}
	if err := d.WriteConfig(4, b[:]); err != nil {
		return err
	}
	if err := a.Close(); err != nil {
		return err
	}
	if err := d.Reset(); err != nil {
		return err
	}
	if _, err := d.AllocDMA("ring", 8192); err != nil {
		return err
	}
	return d.EnableVectors(1)
}

// survives are the calls whose failure a session may outlive, with the errnos it does; none listed: all.
var survives = []struct {
	call   string
	errnos []unix.Errno
}{
	{"memfd splicenic-frames", nil}, // the next smaller pages
	{"mmap 0x200000", nil},
	{"close memory", nil},                                                // of the larger pages
	{"VFIO_DEVICE_RESET", []unix.Errno{unix.EAGAIN, unix.EBUSY}},         // tried again
	{"VFIO_DEVICE_GET_IRQ_INFO 3", []unix.Errno{unix.EINVAL}},            // no PCI Express
	{"VFIO_DEVICE_GET_IRQ_INFO 4", []unix.Errno{unix.EINVAL}},            // an older kernel
	{"IOMMU_IOAS_IOVA_RANGES", []unix.Errno{unix.EMSGSIZE, unix.EINVAL}}, // asked again with more room
}

func outlives(call string, errno unix.Errno) bool {
	for _, s := range survives {
		if strings.HasPrefix(call, s.call) && (s.errnos == nil || slices.Contains(s.errnos, errno)) {
			return true
		}
	}
	return false
}

// TestInject makes every call of a life fail with every errno, one at a time: nothing leaks, nothing panics, and the error
// says which device, which call, which errno in words, and what to do.
func TestInject(t *testing.T) {
	for _, tr := range []Transport{Type1, IOMMUFD} {
		k := newFake(t)
		k.huge[2<<20] = 1 << 30
		k.limit = 1 << 30
		if err := session(k, tr); err != nil {
			t.Fatalf("%s: session: %v", tr, err)
		}
		calls := slices.Clone(k.calls)
		t.Logf("%s: %d calls", tr, len(calls))
		for step, call := range calls {
			t.Run(fmt.Sprintf("%s/%d %s", tr, step, strings.Fields(call)[0]), func(t *testing.T) {
				for _, errno := range errnos {
					injectAt(t, k.root, tr, step+1, call, errno)
				}
			})
		}
	}
}

func injectAt(t *testing.T, root string, tr Transport, step int, call string, errno unix.Errno) {
	t.Helper()
	k := newFakeIn(t, root, devicetest.NewCard())
	k.huge[2<<20] = 1 << 30
	k.limit = 1 << 30
	k.failAt, k.failErr = step, errno
	err := session(k, tr)
	k.leaks()
	if err == nil {
		if !outlives(call, errno) {
			t.Errorf("%s fails with %v: no error", call, errno)
		}
		return
	}
	var op *device.OpError
	if !errors.As(err, &op) || op.Dev != "vfio:"+k.addr {
		t.Errorf("%s fails with %v: %v is no OpError of the device", call, errno, err)
	}
	if !errors.Is(err, errno) {
		t.Errorf("%s fails with %v: %v does not wrap it", call, errno, err)
	}
	var c *CallError
	if !errors.As(err, &c) {
		t.Errorf("%s fails with %v: %v is no CallError", call, errno, err)
		return
	}
	for _, says := range []string{k.addr, errno.Error(), unix.ErrnoName(errno), "do: "} {
		if !strings.Contains(err.Error(), says) {
			t.Errorf("%s fails with %v: %v\ndoes not say %q", call, errno, err, says)
		}
	}
	if c.Fix == "" || strings.Contains(c.Fix, "ADDRESS") {
		t.Errorf("%s fails with %v: fix %q", call, errno, c.Fix)
	}
}

// TestInjectFromThere makes a call and everything like it fail from the start on, as a kernel without it does.
func TestInjectFromThere(t *testing.T) {
	for _, tr := range []Transport{Type1, IOMMUFD} {
		first := newFake(t)
		if err := session(first, tr); err != nil {
			t.Fatalf("%s: session: %v", tr, err)
		}
		seen := map[string]bool{}
		for _, call := range first.calls {
			if seen[call] {
				continue
			}
			seen[call] = true
			for _, errno := range []unix.Errno{unix.EIO, unix.ENOMEM, unix.EINVAL, unix.EAGAIN} {
				k := newFakeIn(t, first.root, devicetest.NewCard())
				k.failOn, k.failErr = call, errno
				err := session(k, tr)
				k.leaks()
				if err == nil && !outlives(call, errno) || err != nil && !strings.Contains(err.Error(), "do: ") {
					t.Errorf("%s: %s always fails with %v: %v", tr, call, errno, err)
				}
			}
		}
	}
}
