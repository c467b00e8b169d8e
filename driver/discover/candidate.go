package discover

// Config says what to look for and where. The zero value finds the default image on this machine.
type Config struct {
	Root     string // of sysfs; empty: /sys
	VendorID uint16 // both zero: 1234:5c1c
	DeviceID uint16
}

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
}

// Name returns the card as a user names it.
func (c *Candidate) Name() string { return "vfio:" + c.Address }
