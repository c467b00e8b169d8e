package view

import (
	"fmt"
	"strings"

	"splicenic/driver"
	"splicenic/regs"
)

// Card is who a card is.
type Card struct {
	Name           string            `json:"name"`
	Body           string            `json:"body"`
	VendorID       uint16            `json:"vendor_id"`
	DeviceID       uint16            `json:"device_id"`
	Serial         string            `json:"serial"`
	Image          string            `json:"image"`
	ImageVersion   string            `json:"image_version"`
	Magic          string            `json:"magic"`
	ShellDigest    string            `json:"shell_digest"`
	DataPathDigest string            `json:"datapath_digest"`
	Mismatch       string            `json:"mismatch,omitempty"`
	Blocks         []Block           `json:"blocks"`
	Geometry       map[string]uint32 `json:"geometry"`
	Ports          []Port            `json:"ports"`
}

// Block is an entry of the card's directory.
type Block struct {
	Name    string `json:"name"`
	Type    uint16 `json:"type"`
	Version uint16 `json:"version"`
	Offset  uint32 `json:"offset"`
	Size    uint32 `json:"size"`
	Digest  string `json:"digest"`
}

// Port is a port of the card.
type Port struct {
	Index     int               `json:"index"`
	Name      string            `json:"name"`
	MAC       string            `json:"mac"`
	MTU       uint32            `json:"mtu"`
	Present   bool              `json:"present"`
	Link      bool              `json:"link"`
	Mbps      uint32            `json:"mbps"`
	Enabled   bool              `json:"enabled"`
	Addresses []string          `json:"addresses"`
	Gateways  []string          `json:"gateways"`
	Forward   string            `json:"forward"`
	Counters  map[string]uint64 `json:"counters"`
}

// Describe says who the card is. It works on any card whose shell is known.
func (v *View) Describe() Card {
	info, id := v.Card.Device().Info(), v.Card.Identity()
	c := Card{
		Name: info.Name, Body: info.Body, VendorID: id.VendorID, DeviceID: id.DeviceID, Serial: fmt.Sprintf("%016x", id.Serial),
		Image: id.Name, ImageVersion: id.Image.String(), Magic: hex(regs.Magic), ShellDigest: hex(id.ShellDigest), DataPathDigest: hex(id.DataPathDigest),
		Blocks: []Block{}, Geometry: map[string]uint32{}, Ports: []Port{},
	}
	for _, b := range id.Blocks {
		c.Blocks = append(c.Blocks, Block{b.Name, b.Type, b.Version, b.Offset, b.Stride * b.Instances, hex(b.Digest)})
	}
	if err := v.Card.Mismatch(); err != nil {
		c.Mismatch = err.Error()
		return c
	}
	for i := range regs.Blocks {
		b := &regs.Blocks[i]
		if b.Name != "geometry" {
			continue
		}
		for k := range b.Registers {
			if r := &b.Registers[k]; r.Count == 1 {
				c.Geometry[r.Name] = v.Card.Load(regs.Reg(b.Offset + r.Offset))
			}
		}
	}
	c.Ports = v.Ports()
	return c
}

func hex(v uint32) string { return fmt.Sprintf("0x%08x", v) }

// Ports reads the ports of the card.
func (v *View) Ports() []Port {
	ports := []Port{}
	for i := range min(int(v.Card.Geometry().Ports), regs.PortInstances) {
		ports = append(ports, v.port(i))
	}
	return ports
}

func (v *View) port(i int) Port {
	at := func(r regs.Reg) uint32 { return v.Card.Load(r.At(i, regs.PortStride)) }
	mac, status := driver.MAC(at(regs.PortMacLo), regs.PortMacHiAddress(at(regs.PortMacHi))), at(regs.PortStatus)
	p := Port{
		Index: i, MAC: fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", mac[0], mac[1], mac[2], mac[3], mac[4], mac[5]),
		MTU: regs.PortMtuBytes(at(regs.PortMtu)), Present: regs.PortStatusPresent(status) != 0, Link: regs.PortStatusLink(status) != 0,
		Mbps: regs.PortStatusSpeed(status), Enabled: regs.PortControlEnable(at(regs.PortControl)) != 0,
		Addresses: []string{}, Gateways: []string{}, Counters: map[string]uint64{},
	}
	for k := range regs.Blocks {
		b := &regs.Blocks[k]
		if b.Name != "port" {
			continue
		}
		p.Name = b.Instances[i]
		for n := range b.Registers {
			if r := &b.Registers[n]; r.Class == regs.ClassCounter && r.Count == 1 {
				p.Counters[r.Name] = v.Card.Load64(regs.Reg(b.Offset + uint32(i)*b.Stride + r.Offset))
			}
		}
	}
	if i < len(v.Names.Ports) {
		t := &v.Names.Ports[i]
		p.Addresses, p.Gateways, p.Forward = append(p.Addresses, t.Addresses...), append(p.Gateways, t.Gateways...), t.Forward
	}
	return p
}

// below says whether a dotted name is prefix itself or lies below it.
func below(name, prefix string) bool {
	rest, ok := strings.CutPrefix(name, strings.TrimSuffix(prefix, "."))
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}
