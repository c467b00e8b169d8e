package vfio

import (
	"encoding/binary"
	"errors"
	"fmt"

	"splicenic/driver/device"
)

// A Capability is an entry of one of the two lists in configuration space.
type Capability struct {
	ID       uint16
	Offset   uint16
	Version  uint8 // of an extended one
	Extended bool
}

// Capability ids.
const (
	CapPowerManagement = 0x01
	CapMSI             = 0x05
	CapPCIe            = 0x10
	CapMSIX            = 0x11
	CapAF              = 0x13

	ExtCapAER          = 0x0001
	ExtCapSerialNumber = 0x0003
	ExtCapARI          = 0x000e
	ExtCapSRIOV        = 0x0010
)

var capNames = map[uint16]string{
	CapPowerManagement: "power management", 0x03: "vital product data", CapMSI: "MSI", 0x09: "vendor specific", CapPCIe: "PCI Express",
	CapMSIX: "MSI-X", 0x12: "SATA", CapAF: "advanced features", 0x14: "enhanced allocation",
}

var extCapNames = map[uint16]string{
	ExtCapAER: "advanced error reporting", 0x0002: "virtual channel", ExtCapSerialNumber: "serial number", 0x000b: "vendor specific",
	0x000d: "access control", ExtCapARI: "alternative routing id", 0x000f: "address translation", ExtCapSRIOV: "SR-IOV",
	0x0015: "resizable BAR", 0x0018: "latency tolerance", 0x0019: "secondary PCI Express", 0x001e: "L1 substates", 0x0025: "data link feature",
}

// String returns the capability's name, or its number.
func (c Capability) String() string {
	names, kind := capNames, "capability"
	if c.Extended {
		names, kind = extCapNames, "extended capability"
	}
	if s, ok := names[c.ID]; ok {
		return s
	}
	return fmt.Sprintf("%s %#x", kind, c.ID)
}

// Errors of Capabilities. What was found before is returned with them.
var (
	// ErrCapabilityLoop: the list comes back to an entry it had.
	ErrCapabilityLoop = errors.New("capability list has a loop")
	// ErrCapabilityCut: the list goes on where no bytes were given, which is what a reader without privilege sees.
	ErrCapabilityCut = errors.New("capability list goes on beyond the bytes that can be read")
)

const (
	configHeader   = 64   // bytes everybody may read
	configStandard = 256  // bytes of the standard space
	configBytes    = 4096 // bytes of the extended space

	offCommand   = 0x04
	offStatus    = 0x06
	offBAR       = 0x10
	offSubsystem = 0x2c
	offCapList   = 0x34

	commandMemory    = 1 << 1
	commandBusMaster = 1 << 2
	statusCapList    = 1 << 4

	capSteps    = (configStandard - configHeader) / 4
	extCapSteps = (configBytes - configStandard) / 4
)

// Capabilities walks both lists of a configuration space of 64, 256 or 4096 bytes. The walk ends after 48 and 960 steps
// whatever the bytes say. A space of all ones is a device that is gone.
func Capabilities(config []byte) ([]Capability, error) {
	if len(config) < configHeader {
		return nil, fmt.Errorf("walk capabilities of %d bytes: %w", len(config), ErrCapabilityCut)
	}
	if binary.LittleEndian.Uint32(config) == ^uint32(0) {
		return nil, fmt.Errorf("walk capabilities: configuration space reads all ones: %w", device.ErrDeviceLost)
	}
	cs, err := standardList(config)
	if err != nil {
		return cs, fmt.Errorf("walk capabilities: %w", err)
	}
	ext, err := extendedList(config)
	cs = append(cs, ext...)
	if err != nil {
		return cs, fmt.Errorf("walk extended capabilities: %w", err)
	}
	return cs, nil
}

func standardList(config []byte) ([]Capability, error) {
	if binary.LittleEndian.Uint16(config[offStatus:])&statusCapList == 0 {
		return nil, nil
	}
	config = config[:min(len(config), configStandard)]
	var cs []Capability
	var seen [configStandard]bool
	at := config[offCapList] &^ 3
	for range capSteps {
		if at < configHeader {
			return cs, nil
		}
		if int(at)+2 > len(config) {
			return cs, ErrCapabilityCut
		}
		if seen[at] {
			return cs, ErrCapabilityLoop
		}
		seen[at] = true
		id, next := config[at], config[at+1]
		if id == 0xff {
			return cs, fmt.Errorf("the entry at %#x reads all ones: %w", at, device.ErrDeviceLost)
		}
		cs = append(cs, Capability{ID: uint16(id), Offset: uint16(at)})
		at = next &^ 3
	}
	if at < configHeader {
		return cs, nil
	}
	return cs, ErrCapabilityLoop
}

func extendedList(config []byte) ([]Capability, error) {
	config = config[:min(len(config), configBytes)]
	if len(config) <= configStandard {
		return nil, nil
	}
	var cs []Capability
	var seen [configBytes]bool
	at := uint32(configStandard)
	for range extCapSteps {
		if int(at)+4 > len(config) {
			return cs, ErrCapabilityCut
		}
		if seen[at] {
			return cs, ErrCapabilityLoop
		}
		seen[at] = true
		w := binary.LittleEndian.Uint32(config[at:])
		if at == configStandard && (w == 0 || w == ^uint32(0)) {
			return nil, nil // there is no extended space behind these bytes
		}
		if w == ^uint32(0) {
			return cs, fmt.Errorf("the entry at %#x reads all ones: %w", at, device.ErrDeviceLost)
		}
		if id := uint16(w); id != 0 {
			cs = append(cs, Capability{ID: id, Offset: uint16(at), Version: uint8(w >> 16 & 0xf), Extended: true})
		}
		if at = w >> 20 &^ 3; at < configStandard {
			return cs, nil
		}
	}
	return cs, ErrCapabilityLoop
}

// find returns the first capability with an id.
func find(cs []Capability, id uint16, extended bool) (Capability, bool) {
	for _, c := range cs {
		if c.ID == id && c.Extended == extended {
			return c, true
		}
	}
	return Capability{}, false
}

// A span is a range of bytes of a region.
type span struct{ off, bytes uint64 }

func (s span) overlaps(off, n uint64) bool {
	return n > 0 && s.bytes > 0 && off < s.off+s.bytes && s.off < off+n
}

// msixTables returns where the MSI-X table and its pending bits lie, by region.
func msixTables(config []byte, cs []Capability) (spans [device.Regions][]span, vectors int) {
	c, ok := find(cs, CapMSIX, false)
	if !ok || int(c.Offset)+12 > len(config) {
		return spans, 0
	}
	b := config[c.Offset:]
	vectors = int(binary.LittleEndian.Uint16(b[2:])&0x7ff) + 1
	table, pending := binary.LittleEndian.Uint32(b[4:]), binary.LittleEndian.Uint32(b[8:])
	for _, t := range []struct {
		word  uint32
		bytes uint64
	}{{table, 16 * uint64(vectors)}, {pending, uint64(vectors+63) / 64 * 8}} {
		if bar := t.word & 7; bar < 6 {
			spans[bar] = append(spans[bar], span{uint64(t.word &^ 7), t.bytes})
		}
	}
	return spans, vectors
}
