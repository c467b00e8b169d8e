//go:build linux

package vm

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// qemuPackages are unpacked together: QEMU, and xz for the modules of kernels.
var qemuPackages = []string{"qemu-system-x86", "xz-utils"}

// leastQEMU is the first version that drives vfio-user devices.
var leastQEMU = [2]int{10, 1}

// A Root is a tree of Debian packages that was never installed. Its programs run with its own libraries.
type Root struct{ Dir string }

// QEMU returns the tree that QEMU lies in, fetched from Debian's backports where it is not there yet.
func (s *Store) QEMU(ctx context.Context) (Root, error) {
	dir, err := s.entry("qemu", func(dir string) error {
		if err := s.install(ctx, dir, backports, qemuPackages...); err != nil {
			return err
		}
		return (Root{dir}).checkQEMU(ctx)
	})
	return Root{dir}, err
}

// Command returns the arguments that start a program of the tree.
func (r Root) Command(program string, args ...string) []string {
	return append([]string{
		filepath.Join(r.Dir, "usr/lib64/ld-linux-x86-64.so.2"),
		"--library-path", filepath.Join(r.Dir, "usr/lib/x86_64-linux-gnu"),
		filepath.Join(r.Dir, "usr/bin", program),
	}, args...)
}

// qemu returns the arguments that start QEMU.
func (r Root) qemu(args ...string) []string {
	return r.Command("qemu-system-x86_64", append([]string{
		"-L", filepath.Join(r.Dir, "usr/share/qemu"), "-L", filepath.Join(r.Dir, "usr/share/seabios"),
	}, args...)...)
}

// checkQEMU runs it.
func (r Root) checkQEMU(ctx context.Context) error {
	a := r.qemu("--version")
	out, err := command(ctx, "", a[0], a[1:]...)
	if err != nil {
		return err
	}
	var v [2]int
	if _, err := fmt.Sscanf(string(out), "QEMU emulator version %d.%d", &v[0], &v[1]); err != nil {
		return fmt.Errorf("QEMU's version: %w in %q", err, out)
	}
	if v[0] < leastQEMU[0] || v[0] == leastQEMU[0] && v[1] < leastQEMU[1] {
		return fmt.Errorf("QEMU %d.%d is too old: %d.%d drives vfio-user devices", v[0], v[1], leastQEMU[0], leastQEMU[1])
	}
	a = r.qemu("-device", "help")
	if out, err = command(ctx, "", a[0], a[1:]...); err != nil {
		return err
	}
	if !strings.Contains(string(out), `"vfio-user-pci"`) {
		return errors.New("this QEMU has no vfio-user-pci device")
	}
	return nil
}
