package vfiouser

import (
	"bytes"
	"testing"

	"golang.org/x/sys/unix"
)

// TestQEMU replays what QEMU 11 sends, from its start over a guest's boot, a driver in the guest and a reset to its end.
func TestQEMU(t *testing.T) {
	card := newPCICard()
	path, _ := rawServer(t, card, Config{})
	q := rawDial(t, path)
	ram := testMemfd(t, 16<<20)
	mem, err := unix.Mmap(ram, 0, 16<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mem)

	reply := q.must(cmdVersion, append(append([]byte{0, 0, 0, 0}, qemuVersion...), 0))
	if v, err := decodeVersion(reply); err != nil || v.minor != 0 || v.caps.maxTransfer() < 4096 || v.caps.twin() {
		t.Fatalf("version %q: %v", reply, err)
	}
	// All RAM by guest-physical address, and a ROM without a file.
	q.must(cmdDMAMap, mapReq(0, 0xc0000, 0), ram)
	q.must(cmdDMAMap, appendDMAMap(nil, dmaMap{dmaMapBytes, dmaRead, 0, 0xc0000, 0x20000}))
	q.must(cmdDMAMap, mapReq(0x100000, 15<<20, 1<<20), ram)
	if _, e := q.call(cmdDMAMap, mapReq(0xbf000, 0x2000, 0), ram); e != eEXIST {
		t.Errorf("map over another: %v, want %v", e, eEXIST)
	}
	qemuInfo(t, q)
	qemuConfig(t, q)

	// The guest turns its IOMMU on: everything goes, in ranges that match some maps or none.
	for i := range uint64(32) {
		q.must(cmdDMAUnmap, unmapReq(i<<43, 1<<43))
	}
	if n := card.Maps(); n != 0 {
		t.Errorf("%d maps left", n)
	}
	// The guest's driver maps one huge page in small ones, at scattered places, and unmaps them in one.
	const iova = 0x7f0000000000
	for i := range uint64(512) {
		q.must(cmdDMAMap, mapReq(iova+i<<12, 0x1000, (i*37%512)<<12), ram)
	}
	copy(mem[0:], "from here")
	q.must(cmdRegionWrite, configReq(cfgCommand, 6, 0))
	if !q.copied(iova+0x100ff8, iova, 16) { // page 0 to pages 256 and 257
		t.Error("the card did not copy")
	}
	if got := append(bytes.Clone(mem[256*37%512<<12+0xff8:][:8]), mem[257*37%512<<12:][:8]...); string(got) != "from here\x00\x00\x00\x00\x00\x00\x00" {
		t.Errorf("copied %q", got)
	}
	if _, e := q.call(cmdDMAUnmap, unmapReq(iova, 0x201800)); e == eINVAL {
		t.Error("an unmap of more than is mapped failed")
	}
	if n := card.Maps(); n != 0 {
		t.Errorf("%d maps left of 512", n)
	}
	if q.copied(iova+0x1000, iova, 16) {
		t.Error("the card copied through addresses that were unmapped")
	}
	qemuVectors(t, q, card)
	qemuReset(t, q, card)
}

// qemuInfo asks the questions QEMU asks.
func qemuInfo(t *testing.T, q *rawClient) {
	t.Helper()
	info, err := decodeDeviceInfo(q.must(cmdDeviceInfo, appendDeviceInfo(nil, deviceInfo{argsz: 16})))
	if want := (deviceInfo{16, deviceReset | devicePCI, 9, 5}); err != nil || info != want {
		t.Errorf("device info %+v, %v", info, err)
	}
	for index, size := range map[uint32]uint64{0: 4096, 1: 0, 2: 4096, 3: 0, 4: 0, 5: 0, 6: 0, 7: 4096, 8: 0} {
		i, err := decodeRegionInfo(q.must(cmdRegionInfo, appendRegionInfo(nil, regionInfo{argsz: 32, index: index})))
		if err != nil || i.argsz != 32 || i.index != index || i.size != size || (i.flags != 3) != (size == 0) {
			t.Errorf("region info %d: %+v, %v", index, i, err)
		}
	}
	for index, want := range map[uint32]irqInfo{
		irqINTx: {16, irqEventfd | irqMaskable | irqAutomasked, irqINTx, 1}, irqMSI: {16, 0, irqMSI, 0},
		irqMSIX: {16, irqEventfd | irqNoResize, irqMSIX, 4}, irqError: {16, 0, irqError, 0}, irqRequest: {16, 0, irqRequest, 0},
	} {
		i, err := decodeIRQInfo(q.must(cmdIRQInfo, appendIRQInfo(nil, irqInfo{argsz: 16, index: index})))
		if err != nil || i != want {
			t.Errorf("irq info %+v, %v, want %+v", i, err, want)
		}
	}
	for _, cmd := range []command{cmdRegionIOFDs, cmdDirtyPages, cmdWriteMulti, cmdDeviceFeature, cmdMigRead, cmdMigWrite, cmdDMARead, cmdDMAWrite, 0, 99} {
		if _, e := q.call(cmd, make([]byte, 32)); e != eNOTSUP {
			t.Errorf("%v: %v, want %v", cmd, e, eNOTSUP)
		}
	}
}

// qemuConfig reads the whole configuration space and sizes the BARs.
func qemuConfig(t *testing.T, q *rawClient) {
	t.Helper()
	config := q.must(cmdRegionRead, appendRegionAccess(nil, regionAccess{region: regionConfig, count: 4096}))[accessBytes:]
	if len(config) != 4096 || le.Uint32(config) != 0x5c1c1234 || config[cfgCapabilities] != 0x40 {
		t.Errorf("configuration space of %d bytes starts %x", len(config), config[:4])
	}
	q.must(cmdRegionWrite, configReq(cfgBars, 0xff, 0xff, 0xff, 0xff))
	q.must(cmdRegionWrite, configReq(cfgBars, 0, 0, 0, 0xfe))
	if b := q.must(cmdRegionRead, appendRegionAccess(nil, regionAccess{offset: 0x0e, region: regionConfig, count: 1})); len(b) != accessBytes+1 {
		t.Errorf("a byte of configuration space: %x", b)
	}
	if _, e := q.call(cmdRegionRead, appendRegionAccess(nil, regionAccess{offset: 4095, region: regionConfig, count: 2})); e != eINVAL {
		t.Errorf("read over the end of configuration space: %v", e)
	}
}

// qemuVectors sets MSI-X up as QEMU does for a guest that enables one vector after the other.
func qemuVectors(t *testing.T, q *rawClient, card *pciCard) {
	t.Helper()
	fds := []int{testEventfd(t), testEventfd(t), testEventfd(t)}
	card.took()
	q.must(cmdSetIRQs, irqReq(setEventfd|setTrigger, irqMSIX, 0, 1))
	want := "vectors 0/1"
	for k := 1; k <= len(fds); k++ {
		q.must(cmdSetIRQs, irqReq(setNone|setTrigger, irqMSIX, 0, 0))
		q.must(cmdSetIRQs, irqReq(setEventfd|setTrigger, irqMSIX, 0, uint32(k)), fds[:k]...)
		want += " vectors 0/0 vectors " + []string{"", "1/1", "2/2", "3/3"}[k]
	}
	if got := card.took(); got != want {
		t.Errorf("the card was told %q, want %q", got, want)
	}
	for v, fd := range fds {
		q.post(0, regInterrupt, 1<<v)
		q.load(0, 0) // follows the store
		if n := comes(fd); n != 1 {
			t.Errorf("vector %d counted %d", v, n)
		}
	}
	q.post(0, regInterrupt, 1<<3) // not set up
	q.must(cmdSetIRQs, irqReq(setNone|setTrigger, irqMSIX, 1, 1))
	if n := comes(fds[1]); n != 1 {
		t.Errorf("loopback of vector 1 counted %d", n)
	}
	// One at a time, as with max_msg_fds 1.
	q.must(cmdSetIRQs, irqReq(setNone|setTrigger, irqMSIX, 0, 0))
	for v, fd := range fds {
		q.must(cmdSetIRQs, irqReq(setEventfd|setTrigger, irqMSIX, uint32(v), 1), fd)
	}
	q.post(0, regInterrupt, 7)
	q.load(0, 0)
	for v, fd := range fds {
		if n := comes(fd); n != 1 {
			t.Errorf("vector %d, set up alone, counted %d", v, n)
		}
	}
}

// qemuReset resets the card both ways: maps and vectors are the guest's IOMMU's and QEMU's business and stay.
func qemuReset(t *testing.T, q *rawClient, card *pciCard) {
	t.Helper()
	ram := testMemfd(t, 1<<20)
	q.must(cmdDMAMap, mapReq(0x10000, 0x2000, 0), ram)
	fd := testEventfd(t)
	q.must(cmdSetIRQs, irqReq(setNone|setTrigger, irqMSIX, 0, 0))
	q.must(cmdSetIRQs, irqReq(setEventfd|setTrigger, irqMSIX, 0, 1), fd)
	const want = "vectors 0/0 host false unmap 0x10000+0x2000 reset map 0x10000+0x2000 host true vectors 1/1"
	for name, reset := range map[string]func(){
		"message": func() { q.must(cmdReset, nil) },
		"flr":     func() { q.must(cmdRegionWrite, configReq(0x48, 0x10, 0x80)) },
		"flr in a longer write": func() {
			q.must(cmdRegionWrite, configReq(0x40, 0x10, 0, 2, 0, 0, 0, 0, 0x10, 0x10, 0xff, 0, 0))
		},
	} {
		q.must(cmdRegionWrite, configReq(cfgCommand, 6, 0))
		q.post(0, regScratch, 0x1234)
		card.took()
		reset()
		if got := card.took(); got != want {
			t.Errorf("%s: the card was told %q, want %q", name, got, want)
		}
		if v := q.load(0, regScratch); v != 0 {
			t.Errorf("%s: scratch %#x after it", name, v)
		}
		if q.copied(0x11000, 0x10000, 64) {
			t.Errorf("%s: the card is still bus master", name)
		}
		q.must(cmdRegionWrite, configReq(cfgCommand, 6, 0))
		if !q.copied(0x11000, 0x10000, 64) {
			t.Errorf("%s: the card lost its maps", name)
		}
		q.post(0, regInterrupt, 1)
		q.load(0, 0)
		if n := comes(fd); n != 1 {
			t.Errorf("%s: vector counted %d", name, n)
		}
	}
	card.took()
	q.must(cmdRegionWrite, configReq(0x48, 0x10, 0x7f))
	if got := card.took(); got != "" {
		t.Errorf("a write without the reset bit: the card was told %q", got)
	}
}
