//go:build linux

package vm

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

// source is Debian's package with the sources of a kernel.
const source = "linux-source-6.12"

// toolchain is what a kernel's makefiles call, and what their programs call.
var toolchain = []string{
	"bash", "bc", "binutils", "bison", "coreutils", "dash", "diffutils", "findutils", "flex", "gcc", "grep", "gzip", "hostname",
	"libc6-dev", "libelf-dev", "m4", "make", "mawk", "perl-base", "sed", "tar", "xz-utils",
}

// options are what the guests need on top of the smallest kernel there is. None is a module.
var options = strings.Fields(`
	64BIT PRINTK TTY MULTIUSER BLK_DEV_INITRD RD_GZIP BINFMT_ELF KERNEL_GZIP
	FUTEX EPOLL SIGNALFD TIMERFD EVENTFD POSIX_TIMERS HIGH_RES_TIMERS ADVISE_SYSCALLS MEMBARRIER FILE_LOCKING INOTIFY_USER FHANDLE
	SHMEM MEMFD_CREATE TMPFS HUGETLBFS TRANSPARENT_HUGEPAGE PROC_FS PROC_SYSCTL SYSFS DEVTMPFS NET UNIX
	SERIAL_8250 SERIAL_8250_CONSOLE
	SMP X86_X2APIC ACPI PCI PCI_MMCONFIG PCI_MSI PCIEPORTBUS PCIEAER PCI_QUIRKS
	IOMMU_SUPPORT INTEL_IOMMU INTEL_IOMMU_DEFAULT_ON IRQ_REMAP
	IOMMUFD VFIO VFIO_GROUP VFIO_CONTAINER VFIO_IOMMU_TYPE1 VFIO_DEVICE_CDEV VFIO_NOIOMMU VFIO_PCI
`)

// buildKernel builds a kernel with iommufd, which Debian's have not, from Debian's sources. The compiler is Debian's, too,
// in a folder of its own, so that what this machine has installed does not matter.
func (s *Store) buildKernel(ctx context.Context, dir string) error {
	if os.Geteuid() != 0 {
		return errors.New("needs root: the compiler runs with its folder as root")
	}
	root, err := s.entry("toolchain", func(dir string) error {
		if err := s.install(ctx, dir, trixie, toolchain...); err != nil {
			return err
		}
		return furnish(dir)
	})
	if err != nil {
		return err
	}
	tree := filepath.Join(root, "linux")
	defer os.RemoveAll(tree)
	if err := s.sources(ctx, dir, tree); err != nil {
		return err
	}
	b := &builder{root: root, log: filepath.Join(s.Dir, "linux-"+LinuxIOMMUFD+".log")}
	if err := b.make(ctx, "tinyconfig"); err != nil {
		return err
	}
	if err := configure(filepath.Join(tree, ".config")); err != nil {
		return err
	}
	if err := b.make(ctx, "olddefconfig"); err != nil {
		return err
	}
	if err := configured(filepath.Join(tree, ".config")); err != nil {
		return err
	}
	fmt.Fprintf(s.Log, "building a kernel takes a while; its log is %s\n", b.log)
	if err := b.make(ctx, "-j"+strconv.Itoa(runtime.GOMAXPROCS(0)), "bzImage"); err != nil {
		return err
	}
	release, err := os.ReadFile(filepath.Join(tree, "include/config/kernel.release"))
	if err != nil {
		return err
	}
	k := &Kernel{Name: LinuxIOMMUFD, Version: strings.TrimSpace(string(release)), Image: "vmlinuz"}
	if err := copyFile(filepath.Join(tree, "arch/x86/boot/bzImage"), filepath.Join(dir, k.Image)); err != nil {
		return err
	}
	return k.save(dir)
}

// furnish makes what the packages' scripts would have made.
func furnish(root string) error {
	for _, l := range []struct{ name, target string }{{"sh", "dash"}, {"awk", "mawk"}} {
		err := os.Symlink(l.target, filepath.Join(root, "usr/bin", l.name))
		if err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	for _, d := range []string{"dev", "tmp"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o1777); err != nil {
			return err
		}
	}
	for _, n := range []struct {
		name  string
		minor int
	}{{"null", 3}, {"zero", 5}, {"urandom", 9}} {
		if err := syscall.Mknod(filepath.Join(root, "dev", n.name), syscall.S_IFCHR|0o666, 1<<8|n.minor); err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("make device node %s: %w", n.name, err)
		}
	}
	return nil
}

// sources unpacks the kernel's sources at tree.
func (s *Store) sources(ctx context.Context, dir, tree string) error {
	fmt.Fprintf(s.Log, "fetching %s\n", source)
	deb, err := s.download(ctx, dir, source+"/"+trixie)
	if err != nil {
		return err
	}
	defer os.Remove(deb)
	archive := filepath.Join(dir, "usr/src", source+".tar.xz")
	if err := unpack(ctx, deb, dir, "./usr/src/"+source+".tar.xz"); err != nil {
		return err
	}
	defer os.RemoveAll(filepath.Join(dir, "usr"))
	root := filepath.Dir(tree)
	if err := errors.Join(os.RemoveAll(tree), os.Mkdir(tree, 0o755)); err != nil {
		return err
	}
	inside := filepath.Join(root, "tmp", filepath.Base(archive))
	if err := os.Rename(archive, inside); err != nil {
		return err
	}
	defer os.Remove(inside)
	b := &builder{root: root, log: os.DevNull}
	return b.run(ctx, "tar", "-xf", "/tmp/"+filepath.Base(archive), "-C", "/linux", "--strip-components=1")
}

// builder runs programs with root as their root folder.
type builder struct{ root, log string }

func (b *builder) make(ctx context.Context, args ...string) error {
	return b.run(ctx, append([]string{"make", "-C", "/linux", "KBUILD_BUILD_USER=splicenic", "KBUILD_BUILD_HOST=vm"}, args...)...)
}

func (b *builder) run(ctx context.Context, argv ...string) error {
	log, err := os.OpenFile(b.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	var end bytes.Buffer
	c := exec.CommandContext(ctx, "/usr/bin/nice", append([]string{"-n", "19"}, argv...)...)
	c.Env = []string{"PATH=/usr/bin:/usr/sbin", "LC_ALL=C", "HOME=/tmp", "TMPDIR=/tmp"}
	c.Dir = "/"
	c.Stdout, c.Stderr = log, io.MultiWriter(log, &end)
	c.SysProcAttr = &syscall.SysProcAttr{Chroot: b.root, Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) } // the whole group
	if err := c.Run(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(argv, " "), err, tail(end.Bytes(), 3000))
	}
	return nil
}

// configure sets the options.
func configure(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	for _, o := range options {
		fmt.Fprintf(f, "CONFIG_%s=y\n", o)
	}
	fmt.Fprintf(f, "# CONFIG_MODULES is not set\n# CONFIG_KERNEL_XZ is not set\n")
	return f.Close()
}

// configured checks that every option is on: one that is misspelled, or that another one rules out, vanishes silently.
func configured(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	on := map[string]bool{}
	in := bufio.NewScanner(f)
	for in.Scan() {
		if name, ok := strings.CutSuffix(in.Text(), "=y"); ok {
			on[strings.TrimPrefix(name, "CONFIG_")] = true
		}
	}
	var missing []string
	for _, o := range options {
		if !on[o] {
			missing = append(missing, o)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("this kernel cannot have %s", strings.Join(missing, ", "))
	}
	return in.Err()
}

func copyFile(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o644)
}
