package discover

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// A Status is what a check came to.
type Status int

// Statuses. NA is for what cannot apply here; Check.Why says why.
const (
	OK Status = iota
	Fail
	NA
)

// String returns "ok", "fail" or "n/a".
func (s Status) String() string {
	return [...]string{OK: "ok", Fail: "fail", NA: "n/a"}[s]
}

// A Check is one line of what Doctor finds.
type Check struct {
	Name   string // what was looked at
	Status Status
	Number string // what was found, with its unit
	Why    string // of Fail and NA
	Fix    string // the command; empty: nothing to do
}

// Doctor looks at everything a card needs of its machine. It opens no card: what needs an open one, its interrupt vectors,
// is for the caller, with vfio.Device.LoopVectors.
func Doctor(cfg Config) []Check {
	cfg = cfg.filled()
	checks := []Check{cfg.checkIOMMU(), cfg.checkNoIOMMU(), cfg.checkUnsafe()}
	checks = append(checks, cfg.checkModules()...)
	checks = append(checks, cfg.checkMappings(), cfg.checkMemlock(), cfg.checkHugePages())
	cards, err := List(cfg)
	switch {
	case err != nil:
		checks = append(checks, Check{"cards", Fail, "", err.Error(), "splicectl card list"})
	case len(cards) == 0:
		checks = append(checks, Check{"cards", NA, "0 cards", fmt.Sprintf("no device of this machine is a %04x:%04x", cfg.VendorID, cfg.DeviceID), ""})
	}
	for i := range cards {
		checks = append(checks, cfg.checkCard(&cards[i])...)
	}
	return checks
}

// count returns how many entries a folder of sysfs has.
func (cfg *Config) count(name string) int {
	es, err := os.ReadDir(filepath.Join(cfg.Root, name))
	if err != nil {
		return 0
	}
	return len(es)
}

func (cfg *Config) checkIOMMU() Check {
	n := cfg.count("kernel/iommu_groups")
	c := Check{Name: "iommu", Number: fmt.Sprintf("%d groups", n)}
	if n == 0 {
		c.Status, c.Why = Fail, "the kernel has no IOMMU group: the IOMMU is off, or there is none"
		c.Fix = "turn VT-d or AMD-Vi on in the firmware and boot with intel_iommu=on or amd_iommu=on"
	}
	return c
}

// parameter returns a parameter of a module, empty where it has none.
func (cfg *Config) parameter(module, name string) (value, path string) {
	dir := filepath.Join(cfg.Root, "module", module, "parameters")
	return text(dir, name), filepath.Join(dir, name)
}

func (cfg *Config) checkNoIOMMU() Check {
	v, path := cfg.parameter("vfio", "enable_unsafe_noiommu_mode")
	switch v {
	case "":
		return Check{"noiommu mode", NA, "", "this kernel has no such mode", ""}
	case "Y", "1":
		return Check{"noiommu mode", Fail, v, "a card without IOMMU can be opened, and would reach all memory", "echo N > " + path}
	}
	return Check{"noiommu mode", OK, v, "", ""}
}

func (cfg *Config) checkUnsafe() Check {
	v, path := cfg.parameter("vfio_iommu_type1", "allow_unsafe_interrupts")
	switch v {
	case "":
		return Check{"interrupt remapping", NA, "", "module vfio_iommu_type1 is not loaded", ""}
	case "Y", "1":
		return Check{"interrupt remapping", Fail, "allow_unsafe_interrupts=" + v, "any device may forge interrupts", "turn interrupt remapping on in the firmware, then: echo N > " + path}
	}
	return Check{"interrupt remapping", OK, "allow_unsafe_interrupts=" + v, "", ""}
}

func (cfg *Config) checkModules() []Check {
	loaded := func(module string) bool { return exists(filepath.Join(cfg.Root, "module", module)) }
	var cs []Check
	for _, m := range []struct{ name, modprobe string }{{"vfio", "vfio"}, {"vfio_pci", vfioDriver}} {
		c := Check{Name: "module " + m.name, Number: "loaded"}
		if !loaded(m.name) && !(m.name == "vfio_pci" && exists(cfg.driver(vfioDriver))) {
			c.Status, c.Number, c.Why, c.Fix = Fail, "not loaded", "a card cannot be opened without it", "modprobe "+m.modprobe
		}
		cs = append(cs, c)
	}
	type1 := loaded("vfio_iommu_type1")
	iommufd := exists(filepath.Join(cfg.Dev, "iommu"))
	c := Check{Name: "module vfio_iommu_type1", Number: "loaded"}
	if !type1 {
		c.Status, c.Number, c.Why, c.Fix = Fail, "not loaded", "containers need it", "modprobe vfio_iommu_type1"
		if iommufd {
			c.Status, c.Why, c.Fix = NA, "the card is opened with iommufd", ""
		}
	}
	cs = append(cs, c)
	c = Check{Name: "iommufd", Number: "there"}
	if !iommufd {
		c.Status, c.Number, c.Why = NA, "not there", "this kernel is without it; containers do"
	}
	return append(cs, c)
}

// mappings is how many the runtime makes: rings, their buffers, indexes and staging.
const mappings = 16

func (cfg *Config) checkMappings() Check {
	v, path := cfg.parameter("vfio_iommu_type1", "dma_entry_limit")
	n, err := strconv.ParseUint(v, 10, 64)
	if err != nil {
		return Check{"dma mappings", NA, "", "module vfio_iommu_type1 is not loaded, or has no limit", ""}
	}
	c := Check{Name: "dma mappings", Number: fmt.Sprintf("need %d, have %d", mappings, n)}
	if n < mappings {
		c.Status, c.Why, c.Fix = Fail, "a container may have fewer than the rings take", "echo 65535 > "+path
	}
	return c
}

func (cfg *Config) checkMemlock() Check {
	l, err := cfg.memlock(cfg.Proc)
	c := Check{Name: "locked memory"}
	switch {
	case err != nil:
		c.Status, c.Why = NA, err.Error()
		return c
	case l.Unlimited:
		c.Number = fmt.Sprintf("need %d bytes, no limit for this process", cfg.Memory)
		return c
	case l.Limit == ^uint64(0):
		c.Number = fmt.Sprintf("need %d bytes, no limit", cfg.Memory)
		return c
	}
	c.Number = fmt.Sprintf("need %d bytes, limit %d, %d in use", cfg.Memory, l.Limit, l.Used)
	if l.Room(cfg.Memory) != nil {
		c.Status, c.Why = Fail, "the card's memory does not fit below RLIMIT_MEMLOCK"
		c.Fix = fmt.Sprintf("ulimit -l %d, or LimitMEMLOCK=%d in the unit", (cfg.Memory+l.Used+1023)/1024, cfg.Memory+l.Used)
	}
	return c
}

func (cfg *Config) checkHugePages() Check {
	const page = 2 << 20
	dir := filepath.Join(cfg.Root, "kernel/mm/hugepages/hugepages-2048kB")
	need := (cfg.Memory + page - 1) / page
	free, err := strconv.ParseUint(text(dir, "free_hugepages"), 10, 64)
	if err != nil {
		return Check{"huge pages", NA, "", "this kernel has none of 2 MiB; memory comes in usual pages", ""}
	}
	c := Check{Name: "huge pages", Number: fmt.Sprintf("%d free of 2 MiB, %d would hold all", free, need)}
	if free < need {
		c.Status, c.Why = NA, "not needed: memory comes in usual pages, which costs the IOMMU more"
		total, _ := strconv.ParseUint(text(dir, "nr_hugepages"), 10, 64) // absent: 0
		c.Fix = fmt.Sprintf("echo %d > %s/nr_hugepages", total+need-free, dir)
	}
	return c
}

// checkCard looks at one card.
func (cfg *Config) checkCard(c *Candidate) []Check {
	name := func(s string) string { return c.Address + " " + s }
	cs := []Check{{Name: name("card"), Number: "usable"}}
	if !c.Usable {
		cs[0] = Check{name("card"), Fail, "not usable", c.Why, c.Next}
	}
	group := Check{Name: name("group"), Number: fmt.Sprintf("group %d, %d devices", c.Group, len(c.Members))}
	var blocking []string
	for _, m := range c.Members {
		if m.Address != c.Address && m.Blocks() {
			blocking = append(blocking, m.Address+" has driver "+m.Driver)
			group.Fix = fmt.Sprintf("echo %s > %s/driver/unbind", m.Address, cfg.device(m.Address))
		}
	}
	switch {
	case c.Group < 0:
		group = Check{name("group"), NA, "", "the card is in none", ""}
	case len(blocking) > 0:
		group.Status, group.Why = Fail, "not viable: "+strings.Join(blocking, ", ")
	}
	cs = append(cs, group, cfg.checkNode(c, "group node", c.GroupNode), cfg.checkNode(c, "device node", c.DeviceNode))
	power := Check{Name: name("power"), Number: c.Power}
	switch {
	case c.Power == "":
		power.Status, power.Why = NA, "the kernel does not tell"
	case c.Power == "D3cold":
		power.Status, power.Why, power.Fix = Fail, "it is powered down", "echo on > "+filepath.Join(cfg.device(c.Address), "power/control")
	}
	link := Check{Name: name("link"), Number: c.Link.String()}
	if c.Link.Width == 0 {
		link.Status, link.Why = NA, "it has no PCI Express link"
	}
	numa := Check{Name: name("numa node"), Number: strconv.Itoa(c.NUMANode)}
	if c.NUMANode < 0 {
		numa.Status, numa.Number, numa.Why = NA, "", "the machine has one node, or does not tell"
	}
	caps := Check{Name: name("capabilities"), Number: fmt.Sprintf("%d in %d bytes", len(c.Capabilities), c.ConfigBytes)}
	if c.Note != "" {
		caps.Status, caps.Why = NA, c.Note
	}
	return append(cs, power, link, numa, caps)
}

// checkNode looks whether this user may open a node of the card.
func (cfg *Config) checkNode(c *Candidate, what, node string) Check {
	k := Check{Name: c.Address + " " + what, Number: node}
	if node == "" {
		k.Status, k.Why = NA, "there is none: "+vfioDriver+" does not have the card"
		if c.Driver == vfioDriver {
			k.Why = "this kernel makes none"
		}
		return k
	}
	err := cfg.writable(node)
	switch {
	case err == nil:
	case errors.Is(err, fs.ErrNotExist):
		k.Status, k.Why = NA, "this kernel or container shows none"
	default:
		k.Status, k.Why = Fail, err.Error()
		k.Fix = fmt.Sprintf("as root: write to /etc/udev/rules.d/60-splicenic.rules: %s", UdevRule("GROUP", c))
	}
	return k
}

// UdevRule returns the lines for /etc/udev/rules.d that give the nodes of a card to a group of users. They hold when the
// card comes back after a rescan, as a changed owner of the node would not. The number of the IOMMU group may be another one
// after a boot; the device's node is found by its address.
func UdevRule(group string, c *Candidate) string {
	rules := []string{fmt.Sprintf(`SUBSYSTEM=="vfio-dev", KERNELS=="%s", GROUP="%s", MODE="0660"`, c.Address, group)}
	if c.Group >= 0 {
		rules = append([]string{fmt.Sprintf(`SUBSYSTEM=="vfio", KERNEL=="%d", GROUP="%s", MODE="0660"`, c.Group, group)}, rules...)
	}
	rules = append(rules, fmt.Sprintf(`KERNEL=="iommu", SUBSYSTEM=="misc", GROUP="%s", MODE="0660"`, group))
	return strings.Join(rules, "\n")
}

// exists says whether a file is there.
func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
