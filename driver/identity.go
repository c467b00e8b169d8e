package driver

import (
	"encoding/binary"
	"fmt"
	"strings"

	"splicenic/regs"
)

// An Identity is what a card says about itself.
type Identity struct {
	VendorID, DeviceID uint16
	Board              uint32
	Serial             uint64
	Image              Version
	IDCode, UserCode   uint32
	Slot               uint32 // boot slot
	Golden, Fallback   bool
	Name               string // of the image
	ShellDigest        uint32
	DataPathDigest     uint32
	Blocks             []Block
}

// A Version is the version of an image.
type Version struct{ Major, Minor, Patch uint32 }

// String returns the version with dots.
func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Patch) }

// A Block is an entry of the card's directory.
type Block struct {
	Name      string // as this host knows the type, or a number
	Type      uint16
	Version   uint16
	Offset    uint32
	Stride    uint32
	Instances uint32
	Digest    uint32
	Known     bool // this host was built for the same block
}

// Identity returns what the card said when it was opened.
func (c *Card) Identity() Identity { return c.identity }

// Mismatch returns nil for a card this host was built for, or the *MismatchError that every operation beyond the shell
// returns.
func (c *Card) Mismatch() error {
	if c.mismatch == nil {
		return nil
	}
	return c.mismatch
}

// identify reads directory and identity; it stores nothing. The error is nil where the shell is as this host knows it; a
// data path it does not know is noted in c.mismatch.
func (c *Card) identify() error {
	magic := c.Load(regs.DirectoryMagic)
	if err := c.dev.Err(); err != nil {
		return err
	}
	if magic != regs.Magic {
		return &MismatchError{Part: regs.DirectoryMagic.Name(), Card: magic, Host: regs.Magic}
	}
	id := &c.identity
	id.ShellDigest = c.Load(regs.DirectoryShellDigest)
	id.DataPathDigest = c.Load(regs.DirectoryDataPathDigest)
	if err := c.dev.Err(); err != nil {
		return err
	}
	if id.ShellDigest != regs.ShellDigest {
		return &MismatchError{Part: "shell digest", Card: id.ShellDigest, Host: regs.ShellDigest}
	}
	if err := c.readBlocks(); err != nil {
		return err
	}
	c.readIdentity()
	if id.DataPathDigest != regs.DataPathDigest {
		c.mismatch = &MismatchError{Part: "data-path digest", Card: id.DataPathDigest, Host: regs.DataPathDigest, Blocks: differing(id.Blocks)}
	}
	return c.dev.Err()
}

func (c *Card) readBlocks() error {
	n := c.Load(regs.DirectoryEntries)
	if err := c.dev.Err(); err != nil {
		return err
	}
	if n > regs.DirectoryEntryTypeCount {
		return &MismatchError{Part: regs.DirectoryEntries.Name(), Card: n, Host: uint32(len(regs.Blocks))}
	}
	for i := range int(n) {
		at := func(r regs.Reg) uint32 { return c.Load(r.At(i, regs.DirectoryEntryTypeStride)) }
		t := at(regs.DirectoryEntryType)
		b := Block{
			Type:      uint16(regs.DirectoryEntryTypeType(t)),
			Version:   uint16(regs.DirectoryEntryTypeVersion(t)),
			Offset:    at(regs.DirectoryEntryOffset),
			Stride:    at(regs.DirectoryEntryStride),
			Instances: at(regs.DirectoryEntryInstances),
			Digest:    at(regs.DirectoryEntryDigest),
		}
		b.Name = fmt.Sprintf("type %d", b.Type)
		for j := range regs.Blocks {
			if k := &regs.Blocks[j]; k.Type == b.Type {
				b.Name, b.Known = k.Name, k.Digest == b.Digest
			}
		}
		c.identity.Blocks = append(c.identity.Blocks, b)
	}
	return nil
}

// differing names the blocks that card and host do not share.
func differing(blocks []Block) []string {
	var names []string
	have := map[uint16]bool{}
	for i := range blocks {
		have[blocks[i].Type] = true
		if !blocks[i].Known {
			names = append(names, blocks[i].Name)
		}
	}
	for i := range regs.Blocks {
		if !have[regs.Blocks[i].Type] {
			names = append(names, regs.Blocks[i].Name+" missing")
		}
	}
	return names
}

func (c *Card) readIdentity() {
	id := &c.identity
	c.pciID = c.Load(regs.IdentityPciId)
	id.VendorID = uint16(regs.IdentityPciIdVendor(c.pciID))
	id.DeviceID = uint16(regs.IdentityPciIdDevice(c.pciID))
	id.Board = c.Load(regs.IdentityBoard)
	id.Serial = c.Load64(regs.IdentitySerial)
	v := c.Load(regs.IdentityImageVersion)
	id.Image = Version{regs.IdentityImageVersionMajor(v), regs.IdentityImageVersionMinor(v), regs.IdentityImageVersionPatch(v)}
	id.IDCode = c.Load(regs.IdentityIdcode)
	id.UserCode = c.Load(regs.IdentityUserCode)
	boot := c.Load(regs.IdentityBoot)
	id.Slot = regs.IdentityBootSlot(boot)
	id.Golden = regs.IdentityBootGolden(boot) != 0
	id.Fallback = regs.IdentityBootFallback(boot) != 0
	var name [4 * regs.IdentityNameCount]byte
	for i := range regs.IdentityNameCount {
		binary.LittleEndian.PutUint32(name[4*i:], c.Load(regs.IdentityName.At(i, regs.IdentityNameStride)))
	}
	id.Name, _, _ = strings.Cut(string(name[:]), "\x00")
}

func hex(v uint32) string { return fmt.Sprintf("%#x", v) }
