package emu_test

import (
	"encoding/binary"
	"errors"
	"testing"

	"splicenic/driver/device"
	"splicenic/emu"
	"splicenic/emu/port"
	"splicenic/regs"
)

func TestIdentity(t *testing.T) {
	b := newBench(t, emu.Config{Serial: 0x1234_5678_9abc}, port.MemConfig{})
	b.want(regs.DirectoryMagic, regs.Magic)
	b.want(regs.IdentityPciId, regs.VendorID|regs.DeviceID<<16)
	b.want(regs.IdentitySerial, 0x5678_9abc)
	b.want(regs.IdentitySerial+4, 0x1234)
	b.want(regs.IdentityName, 'e'|'m'<<8|'u'<<16|'l'<<24)
	b.want(regs.GeometryPages, 1024)
	b.want(regs.AmuFree, 1024)
	b.want(regs.HeadFree, 64)
	b.want(regs.CamFree, 4096)
	for i, mac := range [][6]byte{clientMAC, serverMAC} {
		b.want(portReg(regs.PortMacLo, i), binary.BigEndian.Uint32(mac[2:]))
		b.want(portReg(regs.PortMacHi, i), uint32(binary.BigEndian.Uint16(mac[:])))
		b.want(portReg(regs.PortMtu, i), 1500)
		b.want(portReg(regs.PortStatus, i), 1|2|1000<<8)
	}
}

func TestNeedsClientPort(t *testing.T) {
	if _, err := emu.New(emu.Config{}); err == nil {
		t.Error("a card without a client port")
	}
}

func TestSeed(t *testing.T) {
	key := func(seed uint64) (k [4]uint32) {
		b := newBench(t, emu.Config{Seed: seed}, port.MemConfig{})
		for i := range k {
			k[i] = b.load(regs.CamHashKey.At(i, regs.CamHashKeyStride))
		}
		b.want(regs.TransmitIsnKey, 0) // no load shows it
		return k
	}
	if key(0) != [4]uint32{} {
		t.Error("keys without a seed")
	}
	if first, again := key(1), key(1); first != again || first == key(2) {
		t.Error("keys are not a function of the seed")
	}
}

func TestAccessRange(t *testing.T) {
	b := newBench(t, emu.Config{}, port.MemConfig{})
	for _, x := range []struct {
		region int
		off    uint64
		n      int
		ok     bool
	}{
		{device.Bar0, 0, 4, true}, {device.Bar0, 0, 8, true}, {device.Bar0, regs.Bar0Bytes - 4, 4, true}, {device.Bar2, 0, 4096, true},
		{device.Bar4, 0, 4, true}, {device.Bar4, regs.Bar4Bytes - 8, 8, true},
		{device.Bar0, 0, 2, false}, {device.Bar0, 2, 4, false}, {device.Bar0, regs.Bar0Bytes, 4, false}, {device.Bar0, regs.Bar0Bytes - 4, 8, false},
		{1, 0, 4, false}, {-1, 0, 4, false}, {7, 0, 4, false}, {device.Bar2, 1<<64 - 4, 8, false}, {device.Bar0, 0, 0, false},
	} {
		p := make([]byte, x.n)
		for _, err := range []error{b.card.ReadRegion(x.region, x.off, p), b.card.WriteRegion(x.region, x.off, p)} {
			if (err == nil) != x.ok || err != nil && !errors.Is(err, device.ErrRange) {
				t.Errorf("region %d at %#x, %d bytes: %v", x.region, x.off, x.n, err)
			}
		}
	}
}

func TestResetBits(t *testing.T) {
	h := newHost(t, emu.Config{}, port.MemConfig{})
	h.serve()
	h.send(0, syn(1000, 1).build(false), noOffload)
	h.settle()
	h.want(regs.AmuLive, 1)
	h.store(regs.ControlScratch, 77)
	h.store(regs.ControlReset, regs.ControlResetHostInterfaceMask)
	h.want(regs.ControlReset, 0)
	h.want(regs.RingStatus, 0)
	h.want(regs.RingIova, 0)
	h.want(regs.HostifControl, 0)
	h.want(regs.AmuLive, 1) // connections stay
	h.start()
	h.mustDo(bulk(regs.CommandControlTypeClear, regs.MemHeadOffset, 4, 0))
	h.store(regs.ControlReset, regs.ControlResetDataPathMask)
	h.want(regs.ControlReset, 0)
	h.want(regs.AmuLive, 0)
	h.want(regs.AmuFree, 1024)
	h.want(regs.CamEntries, 0)
	h.want(regs.CamFree, 4096)
	h.want(regs.PortControl, 0)
	h.want(regs.PortMtu, 1500)
	h.want(regs.ControlScratch, 77)
	h.want(regs.GeometryPages, 1024)
	if got := h.memory(regs.MemVipOffset, 4); got[0] != 0 {
		t.Error("the VIP memory survived")
	}
	if err := h.dev.Reset(); err != nil {
		t.Fatal(err)
	}
	h.want(regs.ControlScratch, 0)
}

func TestStrict(t *testing.T) {
	b := newBench(t, emu.Config{Strict: true}, port.MemConfig{})
	b.load(regs.AmuFree)
	b.store(regs.AmuControl, 1)
	if got, n := b.card.Violations(); len(got) != 0 || n != 0 {
		t.Errorf("violations of allowed accesses: %v", got)
	}
	b.load(0xf0000)
	b.store(regs.AmuFree, 5)
	b.store(regs.AmuControl, 2)
	if err := b.card.WriteRegion(device.Bar2, regs.MemHeadOffset-4, make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	got, n := b.card.Violations()
	want := []string{
		"load from 0xf0000: no register",
		"store of 0x5 to amu.free: store to a read-only register",
		"store of 0x2 to amu.control: store to reserved bits",
		"store of 0x0 to region 2 at 0x7fffffc: no memory",
	}
	if len(got) != len(want) || n != uint64(len(want)) {
		t.Fatalf("violations = %v", got)
	}
	for i := range want {
		if got[i].String() != want[i] {
			t.Errorf("violation %d = %q, want %q", i, got[i], want[i])
		}
	}
}

func TestFaults(t *testing.T) {
	h := newHost(t, emu.Config{}, port.MemConfig{})
	h.card.Stick(regs.AmuFree, 0xff, 0x55)
	h.want(regs.AmuFree, 0x455)
	h.card.Stick(regs.AmuFree, 0, 0)
	h.want(regs.AmuFree, 0x400)
	h.card.CorruptPage(3, 7, 1<<31)
	if got := h.memory(3*256+28, 4); got[3] != 0x80 {
		t.Errorf("page word = %x", got)
	}
	h.card.SetLinkDown(1, true)
	h.step()
	h.want(portReg(regs.PortStatus, 1), 2)
	h.want(portReg(regs.PortLinkChanges, 1), 1)
	h.want(regs.HostifCause, regs.HostifCauseLinkMask)
	h.card.SetLinkDown(1, false)
	h.step()
	h.want(portReg(regs.PortStatus, 1), 1|2|1000<<8)
	h.want(portReg(regs.PortLinkChanges, 1), 2)

	h.card.Lose()
	h.want(regs.DirectoryMagic, ^uint32(0))
	h.store(regs.ControlScratch, 1)
	var id [4]byte
	if err := h.card.ReadConfig(0, id[:]); err != nil || id != [4]byte{0xff, 0xff, 0xff, 0xff} {
		t.Errorf("configuration space of a lost card: %x %v", id, err)
	}
	h.send(0, syn(1, 1).build(false), noOffload)
	if h.step() {
		t.Error("a lost card works")
	}
	if err := h.card.Reset(); !errors.Is(err, device.ErrDeviceLost) {
		t.Errorf("Reset of a lost card: %v", err)
	}
}

// TestClosed: to its host a closed card is a lost one.
func TestClosed(t *testing.T) {
	h := newHost(t, emu.Config{}, port.MemConfig{})
	if err := h.card.Close(); err != nil {
		t.Fatal(err)
	}
	h.want(regs.DirectoryMagic, ^uint32(0))
	h.store(regs.ControlReset, regs.ControlResetDataPathMask)
	if h.step() {
		t.Error("a closed card works")
	}
	if err := h.card.Reset(); !errors.Is(err, device.ErrDeviceLost) {
		t.Errorf("Reset = %v", err)
	}
	if err := h.card.Restore(&emu.State{}); !errors.Is(err, device.ErrClosed) {
		t.Errorf("Restore = %v", err)
	}
}
