package vfio

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"splicenic/driver/device"
)

// fakeRegion is a BAR: the card's own registers, or memory that can be mapped.
type fakeRegion struct {
	size   uint64
	flags  uint32
	caps   []fakeCap
	memory int // a memfd; -1: accesses go to the card
	fail   error
}

// fakePCI is the device as vfio-pci shows it.
type fakePCI struct {
	k       *fakeKernel
	regions [device.Regions]fakeRegion
	config  []byte
	command atomic.Uint32
	token   string
	noReset bool
	irqs    [5]irqInfo
	total   int // vectors of the machine; 0: enough

	raise  [5][]int // receivers by index and vector: descriptors of the kernel's own, -1: none
	masked bool     // the line of INTx
	mask   []bool   // vectors masked in the card
	pend   []bool
	opened int
	resets int
}

const (
	fakePage   = 4096
	fakeOffset = 0x5a5a_0000_0000 // regions lie somewhere
)

func (p *fakePCI) init(k *fakeKernel) {
	p.k = k
	info := k.fn.Info()
	for i := range p.regions {
		p.regions[i] = fakeRegion{size: info.Regions[i].Size, flags: regionFlagRead | regionFlagWrite, memory: -1}
	}
	p.config = make([]byte, configStandard)
	if err := k.fn.ReadConfig(0, p.config); err != nil {
		k.t.Fatal(err)
	}
	binary.LittleEndian.PutUint16(p.config[offCommand:], 0)
	p.config[offBAR+8] = 0xc // BAR2: 64 bits, prefetchable
	p.irqs[irqINTx] = irqInfo{Flags: irqFlagEventfd | irqFlagMaskable | irqFlagAutomasked, Count: 1}
	p.irqs[irqMSIX] = irqInfo{Flags: irqFlagEventfd, Count: uint32(info.Vectors)}
	p.irqs[irqERR] = irqInfo{Flags: irqFlagEventfd | irqFlagNoResize, Count: 1}
	p.irqs[irqREQ] = irqInfo{Flags: irqFlagEventfd | irqFlagNoResize, Count: 1}
	if info.Regions[device.Bar2].Size > 0 {
		p.back(device.Bar2)
	}
}

// back makes a BAR memory that can be mapped.
func (p *fakePCI) back(bar int) {
	r := &p.regions[bar]
	fd, err := linux{}.memfd("fake-bar", int64((r.size+fakePage-1)&^(fakePage-1)), 0)
	if err != nil {
		p.k.t.Fatal(err)
	}
	r.memory = fd
	r.flags |= regionFlagMmap
}

// revoke takes what is mapped of a BAR away, as a removal does.
func (p *fakePCI) revoke(bar int) {
	if err := unix.Ftruncate(p.regions[bar].memory, 0); err != nil {
		p.k.t.Fatal(err)
	}
}

func (p *fakePCI) close() {
	for i := range p.regions {
		if p.regions[i].memory >= 0 {
			unix.Close(p.regions[i].memory)
		}
	}
}

func (p *fakePCI) offset(i int) uint64 { return fakeOffset + uint64(i)<<36 }

// at finds the region that holds n bytes at an offset of the device's file.
func (p *fakePCI) at(off, n uint64) (i int, rel uint64, ok bool) {
	for i := range regionConfig + 1 {
		size := uint64(len(p.config))
		if i < regionConfig {
			size = p.regions[i].size
		}
		if o := p.offset(i); off >= o && off-o < 1<<36 {
			return i, off - o, off-o <= size && n <= size-(off-o)
		}
	}
	return 0, 0, false
}

func (p *fakePCI) mapped(off, n uint64) (fd int, rel int64, ok bool) {
	i, at, _ := p.at(off, 0)
	if i >= regionConfig || p.regions[i].flags&regionFlagMmap == 0 {
		return 0, 0, false
	}
	end := (p.regions[i].size + fakePage - 1) &^ (fakePage - 1)
	return p.regions[i].memory, int64(at), at%fakePage == 0 && at+n <= end
}

// acquire and release count who has the device: the last one takes bus mastering and interrupts away.
func (p *fakePCI) acquire() {
	p.opened++
	p.setCommand(0)
	p.k.fn.SetHost(&p.k.memory)
}

func (p *fakePCI) release() {
	if p.opened == 0 {
		return
	}
	p.opened--
	p.setCommand(uint16(p.command.Load()) &^ commandBusMaster)
	for i := range p.raise {
		p.setReceivers(i, nil)
	}
	p.k.fn.SetHost(nil)
}

func (p *fakePCI) setCommand(v uint16) {
	binary.LittleEndian.PutUint16(p.config[offCommand:], v)
	p.command.Store(uint32(v))
	if err := p.k.fn.WriteConfig(offCommand, p.config[offCommand:offCommand+2]); err != nil {
		p.k.t.Errorf("card: %v", err)
	}
}

func (p *fakePCI) receivers() (n int) {
	for _, fds := range p.raise {
		for _, fd := range fds {
			if fd >= 0 {
				n++
			}
		}
	}
	return n
}

// setReceivers replaces the receivers of an index, first with the card, then by closing the old ones.
func (p *fakePCI) setReceivers(index int, fds []int) {
	old := p.raise[index]
	p.raise[index] = fds
	if index == irqMSIX || index == irqMSI {
		raise := make([]func(), len(fds))
		for i, fd := range fds {
			if fd >= 0 {
				raise[i] = func() { signal(fd) }
			}
		}
		if err := p.k.fn.SetVectors(raise); err != nil {
			p.k.t.Errorf("card: %v", err)
		}
	}
	for _, fd := range old {
		if fd >= 0 && !slices.Contains(fds, fd) {
			unix.Close(fd)
		}
	}
}

func signal(fd int) {
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], 1)
	unix.Write(fd, b[:])
}

// fire raises a vector of an index from outside the card.
func (p *fakePCI) fire(index, v int) {
	p.k.mu.Lock()
	defer p.k.mu.Unlock()
	p.fireLocked(index, v)
}

func (p *fakePCI) fireLocked(index, v int) {
	if v >= len(p.raise[index]) || p.raise[index][v] < 0 {
		return
	}
	if index == irqINTx {
		if p.masked {
			return
		}
		p.masked = true
	}
	if index == irqMSIX && v < len(p.mask) && p.mask[v] {
		p.pend[v] = true
		return
	}
	signal(p.raise[index][v])
}

// setMask masks a vector in the card, or unmasks it and delivers what pends.
func (p *fakePCI) setMask(v int, on bool) {
	p.k.mu.Lock()
	defer p.k.mu.Unlock()
	if p.mask == nil {
		p.mask, p.pend = make([]bool, p.irqs[irqMSIX].Count), make([]bool, p.irqs[irqMSIX].Count)
	}
	p.mask[v] = on
	if !on && p.pend[v] {
		p.pend[v] = false
		p.fireLocked(irqMSIX, v)
	}
}

// describe is what of a call's bytes the log shows.
func (p *fakePCI) describe(r request, b []byte) string {
	switch r {
	case deviceGetRegion, deviceGetIRQ:
		return fmt.Sprint(" ", binary.NativeEndian.Uint32(b[8:]))
	case deviceSetIRQs:
		var s irqSet
		if decode(b, &s) != nil {
			return " short"
		}
		fds := make([]int32, (len(b)-20)/4)
		if _, err := binary.Decode(b[20:], binary.NativeEndian, fds); err != nil {
			return " short"
		}
		for i := range fds {
			fds[i] = min(fds[i], 0) // 0: some receiver
		}
		return fmt.Sprintf(" %s %#x %d+%d %v", irqNames[s.Index], s.Flags, s.Start, s.Count, fds)
	}
	return ""
}

func (p *fakePCI) call(r request, arg any) (int, error) {
	switch r {
	case deviceGetInfo:
		b := arg.([]byte)
		flags := uint32(deviceFlagPCI | deviceFlagReset)
		if p.noReset {
			flags &^= deviceFlagReset
		}
		err := answer(b, encodeInfo(deviceInfo{Flags: flags, NumRegions: 9, NumIRQs: 5}), 16, nil)
		if p.k.deviceInfo != nil {
			p.k.deviceInfo(b)
		}
		return 0, err
	case deviceGetRegion:
		return 0, p.regionInfo(arg.([]byte))
	case deviceGetIRQ:
		a := arg.(*irqInfo)
		if a.Argsz != 16 || a.Index >= uint32(len(p.irqs)) {
			return -1, unix.EINVAL
		}
		i := p.irqs[a.Index]
		if i.Flags == 0xffff_ffff {
			return -1, unix.EINVAL
		}
		a.Flags, a.Count = i.Flags, i.Count
		return 0, nil
	case deviceSetIRQs:
		return p.setIRQs(arg.([]byte))
	case deviceReset:
		return 0, p.reset()
	}
	return -1, unix.ENOTTY
}

func (p *fakePCI) regionInfo(b []byte) error {
	i := int(binary.NativeEndian.Uint32(b[8:]))
	info := regionInfo{Index: uint32(i), Offset: p.offset(i)}
	var caps []fakeCap
	switch {
	case i < regionConfig:
		r := p.regions[i]
		if r.size > 0 {
			info.Flags, info.Size, caps = r.flags, r.size, r.caps
		}
	case i == regionConfig:
		info.Flags, info.Size = regionFlagRead|regionFlagWrite, uint64(len(p.config))
	default:
		return unix.EINVAL
	}
	if len(caps) > 0 {
		info.Flags |= regionFlagCaps
	}
	return answer(b, encodeInfo(info), 12, caps)
}

func (p *fakePCI) setIRQs(b []byte) (int, error) {
	var s irqSet
	if decode(b, &s) != nil || int(s.Argsz) != len(b) || s.Index >= uint32(len(p.irqs)) {
		return -1, unix.EINVAL
	}
	i := p.irqs[s.Index]
	if s.Count > i.Count || s.Start > i.Count-s.Count {
		return -1, unix.EINVAL
	}
	now := p.raise[s.Index]
	switch s.Flags {
	case irqDataNone | irqActionTrigger:
		if s.Count == 0 {
			p.setReceivers(int(s.Index), nil)
			return 0, nil
		}
		for v := range int(s.Count) {
			p.fireLocked(int(s.Index), int(s.Start)+v)
		}
		return 0, nil
	case irqDataNone | irqActionUnmask:
		if i.Flags&irqFlagMaskable == 0 {
			return -1, unix.EINVAL
		}
		p.masked = false
		return 0, nil
	case irqDataEventfd | irqActionTrigger:
	default:
		return -1, unix.EINVAL
	}
	if len(b) != 20+4*int(s.Count) {
		return -1, unix.EINVAL
	}
	end := int(s.Start + s.Count)
	if p.total > 0 && end > p.total {
		return p.total, nil
	}
	if len(now) > 0 && end > len(now) && i.Flags&irqFlagNoResize != 0 {
		return -1, unix.EINVAL
	}
	next := slices.Clone(now)
	for len(next) < end {
		next = append(next, -1)
	}
	for v := range int(s.Count) {
		next[int(s.Start)+v] = -1
		if fd := int32(binary.NativeEndian.Uint32(b[20+4*v:])); fd >= 0 {
			own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
			if err != nil {
				return -1, unix.EBADF
			}
			next[int(s.Start)+v] = own
		}
	}
	p.masked = false
	p.setReceivers(int(s.Index), next)
	return 0, nil
}

func (p *fakePCI) reset() error {
	if p.noReset {
		return unix.EINVAL
	}
	if p.k.again > 0 {
		p.k.again--
		return unix.EAGAIN
	}
	p.resets++
	for i := range p.regions {
		if r := &p.regions[i]; r.memory >= 0 {
			if _, err := unix.Pwrite(r.memory, make([]byte, min(r.size, 1<<20)), 0); err != nil {
				return unix.EIO
			}
		}
	}
	if p.k.resetOK != nil {
		p.k.resetOK()
	}
	if p.k.fn.Reset() != nil {
		return unix.EIO
	}
	return nil
}
