package driver

import (
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"splicenic/driver/device"
	"splicenic/driver/vfiouser/vfiousertest"
	"splicenic/regs"
)

// fakeCard is just enough of a card to test the driver on: registers from the map, a sparse BAR2, the rings, and commands
// carried out one per step. Its data path is empty.
type fakeCard struct {
	mu       sync.Mutex
	config   [256]byte
	bar0     [regs.Bar0Bytes / 4]uint32
	bar2     map[uint64]uint32
	host     device.Memory
	raise    []func()
	injected []injected
	cams     [2]map[camKey]Handle
	verbs    []uint32 // commands seen
	kick     chan struct{}
	instance map[regs.Reg]int // of every register that takes stores

	lost      bool // reads all ones, ignores everything
	hold      int  // commands to leave waiting, counted in steps
	drop      int  // completions to lose
	quiet     bool // interrupts are lost
	strayReal bool // every completion is preceded by one nobody asked for
	stuck     bool // reset never ends
	accesses  atomic.Int64
}

type injected struct {
	verb, port uint32
	frame      string
}

type camKey struct{ control, ports, index, a0, a1, a2, a3 uint32 }

func newFakeCard() *fakeCard {
	f := &fakeCard{kick: make(chan struct{}, 1), instance: map[regs.Reg]int{}}
	for off := regs.Reg(0); off < regs.RingBase+regs.RingInstances*regs.RingStride; off += 4 {
		if _, info, instance, _, ok := regs.At(uint32(off)); ok && info.Access.Writable() {
			f.instance[off] = instance
		}
	}
	f.powerOn()
	return f
}

func (f *fakeCard) get(r regs.Reg) uint32    { return f.bar0[r/4] }
func (f *fakeCard) set(r regs.Reg, v uint32) { f.bar0[r/4] = v }
func (f *fakeCard) get64(r regs.Reg) uint64  { return uint64(f.get(r)) | uint64(f.get(r+4))<<32 }

func (f *fakeCard) powerOn() {
	binary.LittleEndian.PutUint32(f.config[0:], regs.DeviceID<<16|regs.VendorID)
	f.resetBlocks(true)
	f.set(regs.DirectoryEntries, uint32(len(regs.Blocks)))
	f.set(regs.DirectoryShellDigest, regs.ShellDigest)
	f.set(regs.DirectoryDataPathDigest, regs.DataPathDigest)
	for i, b := range regs.Blocks {
		at := func(r regs.Reg, v uint32) { f.set(r.At(i, regs.DirectoryEntryTypeStride), v) }
		at(regs.DirectoryEntryType, uint32(b.Type)|uint32(b.Version)<<16)
		at(regs.DirectoryEntryOffset, b.Offset)
		at(regs.DirectoryEntryStride, b.Stride)
		at(regs.DirectoryEntryInstances, uint32(len(b.Instances)))
		at(regs.DirectoryEntryDigest, b.Digest)
	}
	f.set(regs.IdentityImageVersion, 1<<24|2<<16|3)
	f.set(regs.IdentitySerial, 0x89abcdef)
	f.set(regs.IdentitySerial+4, 0x01234567)
	copy4 := func(r regs.Reg, s string) {
		var b [8]byte
		copy(b[:], s)
		f.set(r, binary.LittleEndian.Uint32(b[:]))
		f.set(r+4, binary.LittleEndian.Uint32(b[4:]))
	}
	copy4(regs.IdentityName, "fake")
}

// geometry of the fake card: small, but more than one staging buffer of pages.
var fakeGeometry = map[regs.Reg]uint32{
	regs.GeometryPageBytes: regs.PageBytes, regs.GeometryHeadBytes: regs.HeadBytes, regs.GeometryPages: 5000, regs.GeometryHeads: 16,
	regs.GeometryCamClientWords: 4096, regs.GeometryCamServerWords: 8192, regs.GeometryListeners: 16, regs.GeometryServices: 16,
	regs.GeometryGroups: 4, regs.GeometryServers: 8, regs.GeometryNextHops: 8, regs.GeometryVips: 8, regs.GeometryLocalAddresses: 8,
	regs.GeometryRules: 64, regs.GeometryUrlNodes: 64, regs.GeometrySlots: 32, regs.GeometryLocalPorts: 16, regs.GeometryPorts: 2,
	regs.GeometryVectors: 3, regs.GeometryPipelines: 1,
}

func (f *fakeCard) resetBlocks(shell bool) {
	for _, b := range regs.Blocks {
		if b.Shell && !shell {
			continue
		}
		for i := range b.Instances {
			for _, r := range b.Registers {
				for e := range r.Count {
					f.bar0[(b.Offset+uint32(i)*b.Stride+r.Offset+e*r.Stride)/4] = r.Reset
				}
			}
		}
	}
	for r, v := range fakeGeometry {
		f.set(r, v)
	}
	f.bar2 = map[uint64]uint32{}
	f.cams = [2]map[camKey]Handle{{}, {}}
}

func (f *fakeCard) Info() device.Info {
	i := device.Info{Name: "fake", Body: "test", VendorID: regs.VendorID, DeviceID: regs.DeviceID, NUMANode: -1, Vectors: 3, IOVA: []device.IOVARange{{First: 0x10000, Last: 1<<40 - 1}}}
	i.Regions[device.Bar0].Size = regs.Bar0Bytes
	i.Regions[device.Bar2].Size = regs.Bar2Bytes
	return i
}

func (f *fakeCard) ReadConfig(off uint32, p []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	copy(p, f.config[off:])
	return nil
}

func (f *fakeCard) WriteConfig(off uint32, p []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	copy(f.config[off:], p)
	return nil
}

func (f *fakeCard) ReadRegion(region int, off uint64, p []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.accesses.Add(1)
	for i := 0; i < len(p); i += 4 {
		v := allOnes
		switch at := (off + uint64(i)) / 4; {
		case f.lost:
		case region == device.Bar0:
			v = f.bar0[at]
		default:
			v = f.bar2[at]
		}
		binary.LittleEndian.PutUint32(p[i:], v)
	}
	return nil
}

func (f *fakeCard) WriteRegion(region int, off uint64, p []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.accesses.Add(1)
	if f.lost {
		return nil
	}
	for i := 0; i < len(p); i += 4 {
		v := binary.LittleEndian.Uint32(p[i:])
		if region == device.Bar2 {
			f.bar2[(off+uint64(i))/4] = v
			continue
		}
		f.store(regs.Reg(off)+regs.Reg(i), v)
	}
	return nil
}

func (f *fakeCard) store(r regs.Reg, v uint32) {
	instance, ok := f.instance[r]
	if !ok {
		panic(fmt.Sprintf("store to %s", r.Name()))
	}
	switch r {
	case regs.ControlReset:
		if v&regs.ControlResetDataPathMask != 0 {
			f.resetBlocks(false)
		}
		if v&regs.ControlResetHostInterfaceMask != 0 {
			clear(f.bar0[regs.HostifBase/4:][:(regs.RingBase-regs.HostifBase+5*regs.RingStride)/4])
		}
		if f.stuck {
			f.set(r, v)
		}
		return
	case regs.ControlInterruptTest:
		for i := range 16 {
			if v>>i&1 != 0 {
				f.interrupt(i)
			}
		}
		return
	case regs.HostifCause:
		f.set(r, f.get(r)&^v)
		return
	}
	switch r - regs.Reg(instance)*regs.RingStride {
	case regs.RingControl:
		f.set(r+4, v&1) // status
	case regs.RingProducer:
		if instance < regs.RingInject {
			return
		}
	case regs.RingConsumer:
		if instance >= regs.RingInject {
			return
		}
	}
	f.set(r, v)
	if r == ringReg(regs.RingProducer, regs.RingCommand) {
		select {
		case f.kick <- struct{}{}:
		default:
		}
	}
}

func (f *fakeCard) interrupt(v int) {
	if !f.quiet && v < len(f.raise) && f.raise[v] != nil {
		f.raise[v]()
	}
}

func (f *fakeCard) MapDMA(iova, size uint64) error   { return nil }
func (f *fakeCard) UnmapDMA(iova, size uint64) error { return nil }

func (f *fakeCard) SetHost(m device.Memory) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.host = m
}

func (f *fakeCard) SetVectors(raise []func()) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.raise = raise
	return nil
}

func (f *fakeCard) Reset() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.powerOn()
	return nil
}

// configure makes the data path look set up.
func (f *fakeCard) configure() {
	f.set(regs.AmuControl, 1)
	f.set(regs.TableBank, regs.SetTableBankGeneration(0, 7))
}

// produce writes a descriptor to a ring of the card's. A full ring loses it.
func (f *fakeCard) produce(i int, w []uint32, vector int) {
	index, entries := f.get(ringReg(regs.RingProducer, i)), f.get(ringReg(regs.RingEntries, i))
	seq := ringReg(regs.RingSequence, i)
	if i != regs.RingCompletion {
		w[regs.EventSequence] = f.get(seq)
	}
	f.set(seq, f.get(seq)+1)
	if index-f.get(ringReg(regs.RingConsumer, i)) >= entries || f.get(ringReg(regs.RingStatus, i)) != 1 {
		return
	}
	iova := f.get64(ringReg(regs.RingIova, i)) + uint64(index%entries)*64
	w[0] = w[0]&^1 | ^(index/entries)&1
	b := make([]byte, 64)
	for j, x := range w {
		binary.LittleEndian.PutUint32(b[4*j:], x)
	}
	f.must(f.host.Write(iova+4, b[4:]))
	f.must(f.host.Store32(iova, w[0]))
	f.set(ringReg(regs.RingProducer, i), index+1)
	f.interrupt(vector)
}

func (f *fakeCard) must(err error) {
	if err != nil {
		panic(err)
	}
}

// consume reads the next descriptor of one of the host's rings.
func (f *fakeCard) consume(i int, w []uint32) bool {
	r := ringReg(regs.RingConsumer, i)
	index, entries := f.get(r), f.get(ringReg(regs.RingEntries, i))
	if index == f.get(ringReg(regs.RingProducer, i)) || f.get(ringReg(regs.RingStatus, i)) != 1 {
		return false
	}
	b := make([]byte, 64)
	f.must(f.host.Read(f.get64(ringReg(regs.RingIova, i))+uint64(index%entries)*64, b))
	for j := range w {
		w[j] = binary.LittleEndian.Uint32(b[4*j:])
	}
	if w[0]&1 != ^(index/entries)&1 || w[3] != index {
		panic("phase or sequence number")
	}
	f.set(r, index+1)
	f.must(f.host.Store32(f.get64(ringReg(regs.RingWriteback, i)), index+1))
	return true
}

// exception hands a frame to the host.
func (f *fakeCard) exception(e regs.ExceptionEntry, frame string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	index, entries := f.get(ringReg(regs.RingProducer, regs.RingException)), f.get(ringReg(regs.RingEntries, regs.RingException))
	iova := f.get64(regs.RingBuffers) + uint64(index%entries)*uint64(f.get(regs.RingBufferBytes))
	if index-f.get(ringReg(regs.RingConsumer, regs.RingException)) < entries {
		f.must(f.host.Write(iova, []byte(frame)))
	}
	if e.Length == 0 {
		e.Length, e.IovaLo, e.IovaHi = uint32(len(frame)), uint32(iova), uint32(iova>>32)
	}
	var w [16]uint32
	e.Encode(w[:])
	f.produce(regs.RingException, w[:], VectorException)
}

// brings is an event with the begin of a head.
func (f *fakeCard) brings(e regs.EventEntry, begin string) {
	at := func(r regs.Reg) regs.Reg { return ringReg(r, regs.RingEvent) }
	iova := f.get64(at(regs.RingBuffers)) + uint64(f.get(at(regs.RingProducer))%f.get(at(regs.RingEntries)))*uint64(f.get(at(regs.RingBufferBytes)))
	f.must(f.host.Write(iova, []byte(begin)))
	e.Length, e.IovaLo, e.IovaHi = uint32(len(begin)), uint32(iova), uint32(iova>>32)
	f.event(e)
}

func (f *fakeCard) event(e regs.EventEntry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var w [16]uint32
	e.Encode(w[:])
	f.produce(regs.RingEvent, w[:], VectorEvent)
}

// step carries out one command and takes what was injected.
func (f *fakeCard) step() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lost || f.host == nil {
		return
	}
	var w [16]uint32
	for f.consume(regs.RingInject, w[:]) {
		var e regs.InjectEntry
		e.Decode(w[:])
		b := make([]byte, e.Length)
		f.must(f.host.Read(uint64(e.IovaLo)|uint64(e.IovaHi)<<32, b))
		f.injected = append(f.injected, injected{e.ControlType, e.ControlPort, string(b)})
	}
	if f.hold > 0 {
		f.hold--
		return
	}
	if !f.consume(regs.RingCommand, w[:]) {
		return
	}
	var e regs.CommandEntry
	e.Decode(w[:])
	f.verbs = append(f.verbs, e.ControlType)
	done := regs.CompletionEntry{ControlType: 1, VerbVerb: e.ControlType, Sequence: e.Sequence, Cookie: e.Cookie, HandleN: e.HandleN, HandleGeneration: e.HandleGeneration}
	done.ControlStatus = f.carryOut(&e, &done)
	if f.drop > 0 {
		f.drop--
		return
	}
	if f.strayReal {
		stray := regs.CompletionEntry{ControlType: 1, Cookie: e.Cookie - 1, Sequence: e.Sequence}
		stray.Encode(w[:])
		f.produce(regs.RingCompletion, w[:], VectorCompletion)
	}
	done.Encode(w[:])
	f.produce(regs.RingCompletion, w[:], VectorCompletion)
}

func (f *fakeCard) carryOut(e *regs.CommandEntry, done *regs.CompletionEntry) uint32 {
	iova, at := uint64(e.IovaLo)|uint64(e.IovaHi)<<32, uint64(e.Bar2Offset)/4
	b := make([]byte, e.Length)
	words := uint64(e.Length) / 4
	switch e.ControlType {
	case regs.CommandControlTypeAllocate:
		if f.get(regs.AmuFree) == 0 {
			return regs.StatusNoPage
		}
		done.HandleN, done.HandleGeneration = 77, 5
	case regs.CommandControlTypeFree, regs.CommandControlTypeReset:
		if e.HandleGeneration != 5 {
			return regs.StatusStaleHandle
		}
	case regs.CommandControlTypeArmAndSend:
		f.must(f.host.Read(iova, b))
		f.injected = append(f.injected, injected{99, e.ControlPort, string(b)})
	case regs.CommandControlTypeConnect:
		text := fmt.Sprint("port ", e.KeyPortsPort)
		if e.FlagsGroup != 0 {
			text += " group"
		}
		if e.Bar2Offset != 0 {
			text += fmt.Sprint(" rule ", e.Bar2Offset)
		}
		if e.FlagsReplace != 0 {
			f.must(f.host.Read(iova, b))
			text += fmt.Sprintf(" replace %q inserted %d", b, int32(e.Value))
		}
		if e.FlagsLast != 0 {
			text += fmt.Sprint(" last ", e.Boundary)
		}
		f.injected = append(f.injected, injected{98, e.KeyIndexIndex, text})
		done.Result[0] = 42
	case regs.CommandControlTypePass:
		f.must(f.host.Read(iova, b))
		f.injected = append(f.injected, injected{95, e.HandleN, fmt.Sprintf("kind %d protocol %d vlan %d ports %d>%d vip %d server %d port %d service %d port %d flags %d%d%d value %#x %x", e.KeyControlKind, e.KeyControlProtocol, e.KeyControlVlan,
			e.KeyPortsPort, e.KeyPortsDestination, e.KeyIndexIndex, e.Bar2Offset&0xffff, e.Bar2Offset>>16, e.Boundary&0xffff, e.Boundary>>16, e.FlagsTemplate, e.FlagsFromServer, e.FlagsModule, e.Value, b)})
		done.HandleN, done.HandleGeneration = 78, 6
	case regs.CommandControlTypeAdjust:
		f.injected = append(f.injected, injected{94, e.HandleN, fmt.Sprint(e.FlagsServerStream, e.Boundary, int32(e.Value))})
	case regs.CommandControlTypeFeed:
		f.must(f.host.Read(iova, b))
		f.injected = append(f.injected, injected{96, e.HandleN, string(b)})
	case regs.CommandControlTypeTake:
		text := fmt.Sprint("taken ", e.FlagsKeep)
		f.must(f.host.Write(iova, []byte(text)))
		done.Length, done.Result[0] = uint32(len(text)), 4711
	case regs.CommandControlTypeReply:
		f.must(f.host.Read(iova, b))
		f.injected = append(f.injected, injected{97, e.HandleN, string(b)})
	case regs.CommandControlTypeCamInsert, regs.CommandControlTypeCamErase, regs.CommandControlTypeCamLookup:
		return f.cam(e, done)
	case regs.CommandControlTypeClear, regs.CommandControlTypeFill:
		for i := range words {
			f.bar2[at+i] = e.Value
		}
	case regs.CommandControlTypeWrite:
		f.must(f.host.Read(iova, b))
		for i := range words {
			f.bar2[at+i] = binary.LittleEndian.Uint32(b[4*i:])
		}
	case regs.CommandControlTypeRead:
		for i := range words {
			binary.LittleEndian.PutUint32(b[4*i:], f.bar2[at+i])
		}
		f.must(f.host.Write(iova, b))
	case regs.CommandControlTypeSnapshot:
		for i := range words {
			binary.LittleEndian.PutUint32(b[4*i:], f.bar0[at+i])
		}
		f.must(f.host.Write(iova, b))
		done.Result[0], done.Result[1] = f.get(regs.TimerNow), f.get(regs.TimerNow+4)
	default:
		return regs.StatusNotSupported
	}
	return regs.StatusOk
}

func (f *fakeCard) cam(e *regs.CommandEntry, done *regs.CompletionEntry) uint32 {
	k := camKey{control: e.KeyControlKind | e.KeyControlProtocol<<8 | e.KeyControlVlan<<16, ports: e.KeyPortsPort | e.KeyPortsDestination<<16, index: e.KeyIndexIndex, a0: e.Value}
	if e.KeyControlKind == regs.KindIpv6 {
		b := make([]byte, 16)
		f.must(f.host.Read(uint64(e.IovaLo)|uint64(e.IovaHi)<<32, b))
		k.a0, k.a1, k.a2, k.a3 = binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:]), binary.LittleEndian.Uint32(b[8:]), binary.LittleEndian.Uint32(b[12:])
	}
	m := f.cams[e.FlagsServerSide]
	h, exists := m[k]
	switch e.ControlType {
	case regs.CommandControlTypeCamInsert:
		if exists {
			return regs.StatusKeyExists
		}
		if len(m) == 4 {
			return regs.StatusNoPlace
		}
		m[k] = NewHandle(e.HandleN, e.HandleGeneration)
		return regs.StatusOk
	case regs.CommandControlTypeCamErase:
		delete(m, k)
	}
	if !exists {
		return regs.StatusNotFound
	}
	done.Result[0], done.Result[1] = 1, uint32(h)
	return regs.StatusOk
}

// run steps the card whenever a command's doorbell rings, until the test ends.
func (f *fakeCard) run(t *testing.T) {
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-f.kick:
				f.step()
			case <-stop:
				return
			}
		}
	}()
	t.Cleanup(func() { close(stop); <-done })
}

// testCard opens a fake card with the pump as its clock.
func testCard(t *testing.T, cfg Config) (*Card, *fakeCard) {
	t.Helper()
	f := newFakeCard()
	if cfg.Pump == nil {
		cfg.Pump = f.step
	}
	return openFake(t, f, cfg), f
}

func openFake(t *testing.T, f *fakeCard, cfg Config) *Card {
	t.Helper()
	d := vfiousertest.Join(t, f)
	t.Cleanup(func() { d.Close() })
	c, err := Open(t.Context(), d, cfg)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	return c
}
