package discover

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/u-root/u-root/pkg/pci"
)

const (
	defaultVendor = 0x1234
	defaultDevice = 0x5c1c

	vfioDriver = "vfio-pci"
)

// List returns the cards on the bus in order of their addresses. A machine without PCI has none.
func List(cfg Config) ([]Candidate, error) {
	if cfg.Root == "" {
		cfg.Root = "/sys"
	}
	if cfg.VendorID == 0 && cfg.DeviceID == 0 {
		cfg.VendorID, cfg.DeviceID = defaultVendor, defaultDevice
	}
	bus := filepath.Join(cfg.Root, "bus/pci/devices")
	entries, err := os.ReadDir(bus)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list pci devices: %w", err)
	}
	var cs []Candidate
	for _, e := range entries {
		dir := filepath.Join(bus, e.Name())
		if hex(dir, "vendor") != uint64(cfg.VendorID) || hex(dir, "device") != uint64(cfg.DeviceID) {
			continue
		}
		c := Candidate{Address: e.Name(), VendorID: cfg.VendorID, DeviceID: cfg.DeviceID, Group: -1, NUMANode: -1}
		p, err := pci.OnePCI(dir)
		if err != nil {
			if _, gone := os.Stat(dir); gone != nil {
				continue // it was pulled out meanwhile
			}
			c.refuse("its sysfs entry cannot be read: "+err.Error(), "ls -l "+dir)
		} else {
			c.Class = p.Class
			c.facts(dir)
			c.judge(dir)
		}
		cs = append(cs, c)
	}
	slices.SortFunc(cs, func(a, b Candidate) int { return cmp.Compare(a.Address, b.Address) })
	return cs, nil
}

// facts reads what pkg/pci does not.
func (c *Candidate) facts(dir string) {
	c.Driver = link(dir, "driver")
	if n, err := strconv.Atoi(link(dir, "iommu_group")); err == nil {
		c.Group = n
	}
	if n, err := strconv.Atoi(text(dir, "numa_node")); err == nil {
		c.NUMANode = n
	}
	group, err := os.ReadDir(filepath.Join(dir, "iommu_group/devices"))
	if err != nil {
		return
	}
	for _, e := range group {
		if e.Name() != c.Address {
			c.Siblings = append(c.Siblings, e.Name())
		}
	}
}

func (c *Candidate) refuse(why, next string) { c.Why, c.Next = why, next }

// judge decides whether the card may be taken. The first reason that applies is told; its command leads to the next.
func (c *Candidate) judge(dir string) {
	bus := filepath.Dir(filepath.Dir(dir))
	head, err := config(dir)
	switch {
	case err != nil:
		c.refuse("its configuration space cannot be read: "+err.Error(), "ls -l "+filepath.Join(dir, "config"))
	case bytes.Equal(head[:4], []byte{0xff, 0xff, 0xff, 0xff}):
		c.refuse("it does not answer: its configuration space reads all ones",
			fmt.Sprintf("echo 1 > %s/remove && echo 1 > %s/rescan", dir, bus))
	case head[14]&0x7f != 0:
		c.refuse("its header is that of a bridge, which cannot be given to a process", "lspci -vv -s "+c.Address)
	case text(dir, "power_state") == "D3cold":
		c.refuse("it is powered down (D3cold)", fmt.Sprintf("echo on > %s/power/control", dir))
	case c.Group < 0:
		c.refuse("it has no IOMMU group: the IOMMU is off", "enable the IOMMU in the firmware and boot with intel_iommu=on or amd_iommu=on, then: splicectl card list")
	case c.Driver == "":
		c.refuse("no driver has it", bind(dir, c.Address, bus, false))
	case c.Driver != vfioDriver:
		c.refuse("driver "+c.Driver+" has it", bind(dir, c.Address, bus, true))
	default:
		c.judgeGroup(bus)
	}
}

// judgeGroup makes the card usable if no other driver uses a device of its group. Bridges do not count.
func (c *Candidate) judgeGroup(bus string) {
	for _, s := range c.Siblings {
		dir := filepath.Join(bus, "devices", s)
		driver := link(dir, "driver")
		if driver == "" || driver == vfioDriver || hex(dir, "class")>>8 == 0x0604 {
			continue
		}
		c.refuse(fmt.Sprintf("its IOMMU group %d also holds %s, which driver %s has", c.Group, s, driver),
			fmt.Sprintf("echo %s > %s/driver/unbind", s, dir))
		return
	}
	c.Usable = true
}

// bind is the command that gives a device to vfio-pci.
func bind(dir, address, bus string, bound bool) string {
	s := fmt.Sprintf("modprobe %s && echo %s > %s/driver_override", vfioDriver, vfioDriver, dir)
	if bound {
		s += fmt.Sprintf(" && echo %s > %s/driver/unbind", address, dir)
	}
	return s + fmt.Sprintf(" && echo %s > %s/drivers_probe", address, bus)
}

// config returns the standard header's first 16 bytes.
func config(dir string) ([16]byte, error) {
	var b [16]byte
	f, err := os.Open(filepath.Join(dir, "config"))
	if err != nil {
		return b, err
	}
	defer f.Close()
	_, err = io.ReadFull(f, b[:])
	return b, err
}

// text returns an attribute, empty where it is not there.
func text(dir, name string) string {
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// hex returns a hexadecimal attribute, all ones where there is none.
func hex(dir, name string) uint64 {
	v, err := strconv.ParseUint(strings.TrimPrefix(text(dir, name), "0x"), 16, 32)
	if err != nil {
		return ^uint64(0)
	}
	return v
}

// link returns the last element of what a link points to, empty where there is none.
func link(dir, name string) string {
	to, err := os.Readlink(filepath.Join(dir, name))
	if err != nil {
		return ""
	}
	return filepath.Base(to)
}
