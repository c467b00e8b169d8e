package vfio

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// nodes is where a device shows in the file system.
type nodes struct {
	address        string
	sys, dev, proc string
}

func (n *nodes) device() string { return filepath.Join(n.sys, "bus/pci/devices", n.address) }

func (n *nodes) containerNode() string { return filepath.Join(n.dev, "vfio/vfio") }

func (n *nodes) iommuNode() string { return filepath.Join(n.dev, "iommu") }

// groupNode is the node of a group; one without IOMMU has a name that warns.
func (n *nodes) groupNode(g Group) string {
	if g.NoIOMMU {
		return filepath.Join(n.dev, fmt.Sprintf("vfio/noiommu-%d", g.Number))
	}
	return filepath.Join(n.dev, "vfio", strconv.Itoa(g.Number))
}

// groupOf is the node of the device's group, empty where it is in none.
func (n *nodes) groupOf() string {
	g, err := ReadGroup(n.sys, n.address)
	if err != nil {
		return ""
	}
	return n.groupNode(g)
}

// deviceNode is the node of the device itself, empty where the kernel makes none. Its number is not that of the group.
func (n *nodes) deviceNode() string {
	es, err := os.ReadDir(filepath.Join(n.device(), "vfio-dev"))
	if err != nil {
		return ""
	}
	for _, e := range es {
		if strings.HasPrefix(e.Name(), "vfio") {
			return filepath.Join(n.dev, "vfio/devices", e.Name())
		}
	}
	return ""
}

// DeviceNode returns the node of a device that an iommufd is used with, empty where the kernel makes none. dev is the
// folder of device nodes, sysfs where it is mounted.
func DeviceNode(sysfs, dev, address string) string {
	return (&nodes{address: address, sys: sysfs, dev: dev}).deviceNode()
}

// A Member is a device of an IOMMU group.
type Member struct {
	Address string
	Driver  string // empty: none
	Class   uint32
}

// Bridge says whether the device is a bridge, which no process can be given and which is in nobody's way.
func (m Member) Bridge() bool { return m.Class>>16 == 0x06 }

// Blocks says whether the device keeps its group from a process: a driver other than vfio's has it.
func (m Member) Blocks() bool {
	return m.Driver != "" && m.Driver != "pci-stub" && !strings.Contains(m.Driver, "vfio") && !m.Bridge()
}

// A Group is an IOMMU group: the devices that the IOMMU cannot tell apart.
type Group struct {
	Number  int
	NoIOMMU bool     // vfio made it up for a device without IOMMU
	Members []Member // in order of their addresses, the device itself included
}

// ErrNoGroup: the device is in no IOMMU group, because the IOMMU is off or there is none.
var ErrNoGroup = errors.New("no IOMMU group")

// ReadGroup returns the group of a device as sysfs shows it.
func ReadGroup(sysfs, address string) (Group, error) {
	dir := filepath.Join(sysfs, "bus/pci/devices", address)
	to, err := os.Readlink(filepath.Join(dir, "iommu_group"))
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(dir); err != nil {
			return Group{}, fmt.Errorf("read IOMMU group of %s: there is no such device: %w", address, err)
		}
		return Group{}, fmt.Errorf("read IOMMU group of %s: %w", address, ErrNoGroup)
	}
	if err != nil {
		return Group{}, fmt.Errorf("read IOMMU group of %s: %w", address, err)
	}
	g := Group{}
	if g.Number, err = strconv.Atoi(filepath.Base(to)); err != nil {
		return Group{}, fmt.Errorf("read IOMMU group of %s: %w", address, err)
	}
	g.NoIOMMU = attribute(filepath.Join(dir, "iommu_group"), "name") == "vfio-noiommu"
	es, err := os.ReadDir(filepath.Join(dir, "iommu_group/devices"))
	if err != nil {
		return Group{}, fmt.Errorf("read members of IOMMU group %d: %w", g.Number, err)
	}
	for _, e := range es {
		m := Member{Address: e.Name()}
		d := filepath.Join(sysfs, "bus/pci/devices", m.Address)
		if to, err := os.Readlink(filepath.Join(d, "driver")); err == nil {
			m.Driver = filepath.Base(to)
		}
		class, err := strconv.ParseUint(strings.TrimPrefix(attribute(d, "class"), "0x"), 16, 24)
		if err == nil {
			m.Class = uint32(class)
		}
		g.Members = append(g.Members, m)
	}
	return g, nil
}

// Blocking returns the members that keep the group from a process.
func (g Group) Blocking() []Member {
	var ms []Member
	for _, m := range g.Members {
		if m.Blocks() {
			ms = append(ms, m)
		}
	}
	return ms
}

// attribute returns a sysfs attribute, empty where it is not there.
func attribute(dir, name string) string {
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// An Owner is a process that has a file open.
type Owner struct {
	PID     int
	Command string
}

// Owners returns the processes that have a file open, as far as proc shows this user.
func Owners(proc, path string) []Owner {
	var owners []Owner
	es, err := os.ReadDir(proc)
	if err != nil {
		return nil
	}
	for _, e := range es {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		dir := filepath.Join(proc, e.Name())
		fds, err := os.ReadDir(filepath.Join(dir, "fd"))
		if err != nil {
			continue // it ended, or is not ours to look at
		}
		for _, fd := range fds {
			if to, err := os.Readlink(filepath.Join(dir, "fd", fd.Name())); err == nil && to == path {
				owners = append(owners, Owner{pid, commandLine(dir)})
				break
			}
		}
	}
	return owners
}

func commandLine(dir string) string {
	if b := attribute(dir, "cmdline"); b != "" {
		return strings.TrimSpace(strings.ReplaceAll(b, "\x00", " "))
	}
	return attribute(dir, "comm")
}

// busy explains a node that cannot be had because somebody has it: EBUSY, and EINVAL of a bind, which is the kernel's word
// for a device whose node is in use. own says that this process has the node open by now, so that it is no answer.
func (n *nodes) busy(err error, own bool, paths ...string) error {
	var e *CallError
	if !errors.As(err, &e) || e.Errno != syscall.EBUSY && (e.Errno != syscall.EINVAL || e.Call != deviceBind.String()) {
		return err
	}
	e.busy = true
	var who []string
	for _, p := range paths {
		if p == "" {
			continue
		}
		for _, o := range Owners(n.proc, p) {
			if o.PID == os.Getpid() {
				if !own {
					who = append(who, fmt.Sprintf("this process (%d)", o.PID))
				}
				continue
			}
			who = append(who, fmt.Sprintf("process %d (%s)", o.PID, o.Command))
			e.Fix = fmt.Sprintf("use the socket of process %d, or end it: kill %d", o.PID, o.PID)
		}
	}
	if len(who) == 0 {
		e.Fact = "another process has it, and /proc does not show this user which"
		e.Fix = "as root: splicectl card list"
		return err
	}
	e.Fact = strings.Join(who, " and ") + " has it"
	return err
}
