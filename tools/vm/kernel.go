//go:build linux

package vm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Kernels by the name the tests call them. Debian's have no iommufd.
const (
	Linux61      = "6.1"  // bookworm
	Linux612     = "6.12" // trixie
	LinuxIOMMUFD = "iommufd"
)

// releases says where a kernel of Debian comes from.
var releases = map[string]string{Linux61: bookworm, Linux612: trixie}

// modules are what a guest loads, in this order, where the kernel has it as a module: vfio_virqfd is part of vfio from
// 6.2 on, and the kernel built here has no module at all.
var modules = []string{"irqbypass", "vfio_virqfd", "vfio", "vfio_iommu_type1", "vfio-pci-core", "vfio-pci"}

// A Kernel is what a guest boots.
type Kernel struct {
	Name    string   `json:"name"`
	Version string   `json:"version"`
	Image   string   `json:"image"`   // in the same folder
	Modules []string `json:"modules"` // likewise, in the order to load them, unpacked
	dir     string
}

const kernelFile = "kernel.json"

func (k *Kernel) image() string { return filepath.Join(k.dir, k.Image) }

// Kernel returns a kernel, fetched or built where it is not there yet. root holds xz.
func (s *Store) Kernel(ctx context.Context, root Root, name string) (*Kernel, error) {
	fill := func(dir string) error { return s.fetchKernel(ctx, root, name, dir) }
	switch {
	case name == LinuxIOMMUFD:
		fill = func(dir string) error { return s.buildKernel(ctx, dir) }
	case releases[name] == "":
		return nil, fmt.Errorf("no kernel %q: there are %s, %s and %s", name, Linux61, Linux612, LinuxIOMMUFD)
	}
	dir, err := s.entry("linux-"+name, fill)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(dir, kernelFile))
	if err != nil {
		return nil, err
	}
	k := &Kernel{dir: dir}
	if err := json.Unmarshal(text, k); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, kernelFile), err)
	}
	return k, nil
}

func (k *Kernel) save(dir string) error {
	text, err := json.Marshal(k)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, kernelFile), text, 0o644)
}

// fetchKernel takes image and modules out of Debian's kernel for clouds, which is a third of the usual one.
func (s *Store) fetchKernel(ctx context.Context, root Root, name, dir string) error {
	pkg, err := s.depends(ctx, "linux-image-cloud-amd64/"+releases[name], "linux-image-")
	if err != nil {
		return err
	}
	deb, err := s.download(ctx, dir, pkg)
	if err != nil {
		return err
	}
	defer os.Remove(deb)
	tree := filepath.Join(dir, "tree")
	if err := os.Mkdir(tree, 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(tree)
	if err := unpack(ctx, deb, tree, "./boot/vmlinuz*", "*/vfio*.ko*", "*/irqbypass.ko*"); err != nil {
		return err
	}
	k := &Kernel{Name: name, Version: strings.TrimPrefix(pkg, "linux-image-"), Image: "vmlinuz"}
	if err := os.Rename(filepath.Join(tree, "boot/vmlinuz-"+k.Version), filepath.Join(dir, k.Image)); err != nil {
		return err
	}
	found := map[string]string{}
	err = filepath.WalkDir(tree, func(path string, d fs.DirEntry, err error) error {
		if module, ok := strings.CutSuffix(strings.TrimSuffix(filepath.Base(path), ".xz"), ".ko"); ok {
			found[module] = path
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, m := range modules {
		path, ok := found[m]
		if !ok {
			continue
		}
		if err := plain(ctx, root, path, filepath.Join(dir, m+".ko")); err != nil {
			return err
		}
		k.Modules = append(k.Modules, m+".ko")
	}
	if !slices.Contains(k.Modules, "vfio-pci.ko") {
		return errors.New(pkg + " has no module vfio-pci")
	}
	return k.save(dir)
}

// plain copies a module, unpacked.
func plain(ctx context.Context, root Root, from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if strings.HasSuffix(from, ".xz") {
		a := root.Command("xz", "-dc")
		c := exec.CommandContext(ctx, a[0], a[1:]...)
		c.Stdin = bytes.NewReader(b)
		if b, err = c.Output(); err != nil {
			return fmt.Errorf("unpack %s: %w", filepath.Base(from), err)
		}
	}
	return os.WriteFile(to, b, 0o644)
}
