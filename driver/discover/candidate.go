package discover

import (
	"fmt"
	"path/filepath"

	"splicenic/driver/vfio"
)

// Config says what to look for and where. The zero value finds the default image on this machine.
type Config struct {
	Root     string // of sysfs; empty: /sys
	Dev      string // of device nodes; empty: /dev
	Proc     string // empty: /proc
	Run      string // of the journal of Bind; empty: /run/splicenic/bind
	VendorID uint16 // both zero: 1234:5c1c
	DeviceID uint16
	// Memory is how many bytes of DMA memory a runtime will want, for Doctor. Zero: 80 MiB, what the default rings take.
	Memory uint64

	write    func(path, value string) error         // of tests; nil: the kernel's
	resource func(path string) (barFile, error)     // of tests; nil: the kernel's
	writable func(path string) error                // of tests; nil: the kernel's
	memlock  func(proc string) (vfio.Locked, error) // of tests; nil: the kernel's
}

const (
	defaultVendor = 0x1234
	defaultDevice = 0x5c1c
	defaultMemory = 80 << 20

	vfioDriver = "vfio-pci"
)

// filled returns the configuration with its defaults.
func (c Config) filled() Config {
	or := func(s *string, otherwise string) {
		if *s == "" {
			*s = otherwise
		}
	}
	or(&c.Root, "/sys")
	or(&c.Dev, "/dev")
	or(&c.Proc, "/proc")
	or(&c.Run, "/run/splicenic/bind")
	if c.VendorID == 0 && c.DeviceID == 0 {
		c.VendorID, c.DeviceID = defaultVendor, defaultDevice
	}
	if c.Memory == 0 {
		c.Memory = defaultMemory
	}
	if c.write == nil {
		c.write = writeAttribute
	}
	if c.resource == nil {
		c.resource = openResource
	}
	if c.writable == nil {
		c.writable = writable
	}
	if c.memlock == nil {
		c.memlock = vfio.ReadLocked
	}
	return c
}

func (c *Config) device(address string) string {
	return filepath.Join(c.Root, "bus/pci/devices", address)
}

func (c *Config) driver(name string) string { return filepath.Join(c.Root, "bus/pci/drivers", name) }

// A Candidate is a card that was found.
type Candidate struct {
	Address            string // 0000:65:00.0
	VendorID, DeviceID uint16
	Class              uint32
	Driver             string   // empty: none
	Group              int      // IOMMU group; -1: none
	Siblings           []string // other devices of the group
	NUMANode           int      // -1: unknown
	Usable             bool
	Why                string // why not
	Next               string // the command that helps

	Members      []vfio.Member // of the group, the card included
	NoIOMMU      bool          // the group is one that vfio made up
	GroupNode    string        // /dev/vfio/14; empty: none
	DeviceNode   string        // /dev/vfio/devices/vfio0; empty: none
	Power        string        // D0, D3hot, …; empty: unknown
	Link         Link
	VFs          VFs
	Resets       string // how the kernel can reset it; empty: unknown or not at all
	BARs         []BARInfo
	ConfigBytes  int               // of configuration space that this user can read
	Capabilities []vfio.Capability // as far as they can be read
	Note         string            // why they cannot
	Holders      []vfio.Owner      // processes that have it open, as far as this user sees them
}

// Name returns the card as a user names it.
func (c *Candidate) Name() string { return "vfio:" + c.Address }

// A Link is a PCI Express link as it is and as it could be; empty and zero where there is none.
type Link struct {
	Speed, MaxSpeed string // "16.0 GT/s PCIe"
	Width, MaxWidth int
}

// String returns the link in a few words, empty where there is none.
func (l Link) String() string {
	if l.Width == 0 {
		return ""
	}
	s := fmt.Sprintf("%s x%d", l.Speed, l.Width)
	if l.Reduced() {
		s += fmt.Sprintf(" (can do %s x%d)", l.MaxSpeed, l.MaxWidth)
	}
	return s
}

// Reduced says whether the link is slower or narrower than the card could have it.
func (l Link) Reduced() bool {
	return l.Width < l.MaxWidth || l.Speed != l.MaxSpeed && l.MaxSpeed != ""
}

// VFs says how a card stands to SR-IOV.
type VFs struct {
	Enabled, Total int
	Physical       string // address of the physical function, where the card is a virtual one
}

// A BARInfo is a BAR as sysfs lists it.
type BARInfo struct {
	Index        int
	Bytes        uint64
	IO           bool // ports, not memory
	Prefetchable bool
}
