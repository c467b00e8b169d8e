package discover

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/u-root/u-root/pkg/pci"

	"splicenic/driver/vfio"
)

// List returns the cards on the bus in order of their addresses. A machine without PCI has none.
func List(cfg Config) ([]Candidate, error) {
	cfg = cfg.filled()
	entries, err := os.ReadDir(cfg.device(""))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list pci devices: %w", err)
	}
	var cs []Candidate
	for _, e := range entries {
		dir := cfg.device(e.Name())
		if hex(dir, "vendor") != uint64(cfg.VendorID) || hex(dir, "device") != uint64(cfg.DeviceID) {
			continue
		}
		if c, ok := cfg.candidate(e.Name()); ok {
			cs = append(cs, c)
		}
	}
	slices.SortFunc(cs, func(a, b Candidate) int { return cmp.Compare(a.Address, b.Address) })
	return cs, nil
}

// candidate looks at one device; ok is false where it went away meanwhile.
func (cfg *Config) candidate(address string) (c Candidate, ok bool) {
	dir := cfg.device(address)
	c = Candidate{Address: address, VendorID: uint16(hex(dir, "vendor")), DeviceID: uint16(hex(dir, "device")), Group: -1, NUMANode: -1}
	p, err := pci.OnePCI(dir)
	if err != nil {
		if _, gone := os.Stat(dir); gone != nil {
			return c, false // it was pulled out
		}
		c.refuse("its sysfs entry cannot be read: "+err.Error(), "ls -l "+dir)
		return c, true
	}
	c.Class = p.Class
	for _, b := range p.BARS {
		if b.Index < 6 {
			c.BARs = append(c.BARs, BARInfo{b.Index, b.Lim - b.Base + 1, b.Attr&resourceIO != 0, b.Attr&resourcePrefetch != 0})
		}
	}
	c.facts(cfg)
	config, err := readConfig(dir)
	c.ConfigBytes = len(config)
	c.capabilities(config)
	c.judge(cfg, config, err)
	return c, true
}

// facts reads what pkg/pci does not.
func (c *Candidate) facts(cfg *Config) {
	dir := cfg.device(c.Address)
	number := func(name string, otherwise int) int {
		if n, err := strconv.Atoi(text(dir, name)); err == nil {
			return n
		}
		return otherwise
	}
	c.Driver = link(dir, "driver")
	c.NUMANode = number("numa_node", -1)
	c.Power = text(dir, "power_state")
	c.Resets = text(dir, "reset_method")
	c.Link = Link{text(dir, "current_link_speed"), text(dir, "max_link_speed"), number("current_link_width", 0), number("max_link_width", 0)}
	c.VFs = VFs{number("sriov_numvfs", 0), number("sriov_totalvfs", 0), link(dir, "physfn")}
	g, err := vfio.ReadGroup(cfg.Root, c.Address)
	if err != nil {
		return
	}
	c.Group, c.NoIOMMU, c.Members = g.Number, g.NoIOMMU, g.Members
	for _, m := range g.Members {
		if m.Address != c.Address {
			c.Siblings = append(c.Siblings, m.Address)
		}
	}
	if c.Driver != vfioDriver {
		return
	}
	c.GroupNode = filepath.Join(cfg.Dev, "vfio", strconv.Itoa(g.Number))
	if g.NoIOMMU {
		c.GroupNode = filepath.Join(cfg.Dev, fmt.Sprintf("vfio/noiommu-%d", g.Number))
	}
	c.DeviceNode = vfio.DeviceNode(cfg.Root, cfg.Dev, c.Address)
	for _, node := range []string{c.GroupNode, c.DeviceNode} {
		if node != "" {
			c.Holders = append(c.Holders, vfio.Owners(cfg.Proc, node)...)
		}
	}
}

// capabilities walks the lists as far as the bytes go.
func (c *Candidate) capabilities(config []byte) {
	var err error
	c.Capabilities, err = vfio.Capabilities(config)
	switch {
	case errors.Is(err, vfio.ErrCapabilityCut) && len(config) == configHead:
		c.Note = "capabilities need root"
	case errors.Is(err, vfio.ErrCapabilityLoop):
		c.Note = "its capability list has a loop"
	case errors.Is(err, vfio.ErrCapabilityCut) && len(config) > configHead:
		c.Note = "its capability list is cut"
	}
}

func (c *Candidate) refuse(why, next string) { c.Why, c.Next = why, next }

// judge decides whether the card may be taken. The first reason that applies is told; its command leads to the next.
func (c *Candidate) judge(cfg *Config, head []byte, err error) {
	dir := cfg.device(c.Address)
	bus := filepath.Join(cfg.Root, "bus/pci")
	switch {
	case err != nil:
		c.refuse("its configuration space cannot be read: "+err.Error(), "ls -l "+filepath.Join(dir, "config"))
	case bytes.Equal(head[:4], []byte{0xff, 0xff, 0xff, 0xff}):
		c.refuse("it does not answer: its configuration space reads all ones",
			fmt.Sprintf("echo 1 > %s/remove && echo 1 > %s/rescan", dir, bus))
	case head[14]&0x7f != 0:
		c.refuse("its header is that of a bridge, which cannot be given to a process", "lspci -vv -s "+c.Address)
	case c.Power == "D3cold":
		c.refuse("it is powered down (D3cold)", fmt.Sprintf("echo on > %s/power/control", dir))
	case c.VFs.Enabled > 0:
		c.refuse(fmt.Sprintf("%d virtual functions of it are enabled", c.VFs.Enabled), fmt.Sprintf("echo 0 > %s/sriov_numvfs", dir))
	case c.Group < 0:
		c.refuse("it has no IOMMU group: the IOMMU is off", "enable the IOMMU in the firmware and boot with intel_iommu=on or amd_iommu=on, then: splicectl card list")
	case c.Driver == "":
		c.refuse("no driver has it", cfg.bindCommand(c.Address))
	case c.Driver != vfioDriver:
		c.refuse("driver "+c.Driver+" has it", cfg.bindCommand(c.Address))
	case c.NoIOMMU:
		c.refuse("it has no IOMMU (noiommu): it would give registers only, and taint the kernel", "turn the IOMMU on, then: splicectl card list")
	default:
		c.judgeUse(cfg)
	}
}

// judgeUse makes the card usable if nothing of its group is in the way, nobody has it, and this user may open it.
func (c *Candidate) judgeUse(cfg *Config) {
	group := vfio.Group{Number: c.Group, Members: c.Members}
	if b := group.Blocking(); len(b) > 0 {
		c.refuse(fmt.Sprintf("its IOMMU group %d also holds %s, which driver %s has", c.Group, b[0].Address, b[0].Driver),
			fmt.Sprintf("echo %s > %s/driver/unbind", b[0].Address, cfg.device(b[0].Address)))
		return
	}
	for _, h := range c.Holders {
		c.refuse(fmt.Sprintf("process %d (%s) has it", h.PID, h.Command), fmt.Sprintf("use that process's socket, or end it: kill %d", h.PID))
		return
	}
	if err := c.mayOpen(cfg); err != nil {
		c.refuse("this user may not open its node: "+err.Error(), "splicectl card doctor")
		return
	}
	c.Usable = true
}

// mayOpen returns nil if one of the card's nodes can be opened, or none is there to ask.
func (c *Candidate) mayOpen(cfg *Config) error {
	var first error
	for _, node := range []string{c.GroupNode, c.DeviceNode} {
		if node == "" {
			continue
		}
		err := cfg.writable(node)
		if err == nil {
			return nil
		}
		if first == nil && !errors.Is(err, fs.ErrNotExist) {
			first = err
		}
	}
	return first
}

// bindCommand is the command that gives a device to vfio-pci.
func (cfg *Config) bindCommand(address string) string {
	s := "splicectl card bind " + address
	if _, err := os.Stat(cfg.driver(vfioDriver)); err != nil {
		s = "modprobe " + vfioDriver + " && " + s
	}
	return s
}
