package vfio

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"splicenic/driver/device"
)

// A fakeSpace is an address space: of a container, or of an iommufd.
type fakeSpace struct{ iovas map[uint64]uint64 }

// fakeMemory is the host as the card reaches it: the IOMMU's table.
type fakeMemory struct {
	k    *fakeKernel
	mu   sync.RWMutex
	maps []fakeMap // sorted by iova
}

type fakeMap struct {
	iova  uint64
	mem   []byte
	write bool
}

func (m *fakeMemory) count() int {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return len(m.maps)
}

func (m *fakeMemory) add(iova uint64, mem []byte, write bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.maps = append(m.maps, fakeMap{iova, mem, write})
	slices.SortFunc(m.maps, func(a, b fakeMap) int { return cmp.Compare(a.iova, b.iova) })
}

func (m *fakeMemory) remove(iova uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.maps = slices.DeleteFunc(m.maps, func(x fakeMap) bool { return x.iova == iova })
}

// pieces returns the bytes from iova on, or false where one is not mapped or the card is no bus master.
func (m *fakeMemory) pieces(iova, n uint64, write bool) (ps [][]byte, ok bool) {
	if m.k.pci.command.Load()&commandBusMaster == 0 {
		return nil, false
	}
	for _, x := range m.maps {
		if n > 0 && (x.write || !write) && iova >= x.iova && iova-x.iova < uint64(len(x.mem)) {
			p := x.mem[iova-x.iova:]
			p = p[:min(n, uint64(len(p)))]
			ps = append(ps, p)
			iova += uint64(len(p))
			n -= uint64(len(p))
		}
	}
	return ps, n == 0
}

func (m *fakeMemory) Read(iova uint64, p []byte) error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	ps, ok := m.pieces(iova, uint64(len(p)), false)
	if !ok {
		return device.ErrDMA
	}
	for _, x := range ps {
		p = p[copy(p, x):]
	}
	return nil
}

func (m *fakeMemory) Write(iova uint64, p []byte) error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	ps, ok := m.pieces(iova, uint64(len(p)), true)
	if !ok {
		return device.ErrDMA
	}
	for _, x := range ps {
		p = p[copy(x, p):]
	}
	return nil
}

func (m *fakeMemory) Load32(iova uint64) (uint32, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	ps, ok := m.pieces(iova, 4, false)
	if !ok || len(ps) != 1 {
		return 0, device.ErrDMA
	}
	return atomic.LoadUint32(wordOf(ps[0])), nil
}

func (m *fakeMemory) Store32(iova uint64, v uint32) error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	ps, ok := m.pieces(iova, 4, true)
	if !ok || len(ps) != 1 {
		return device.ErrDMA
	}
	atomic.StoreUint32(wordOf(ps[0]), v)
	return nil
}

// mapDMA is what both interfaces have in common; the errors come in the kernel's order.
func (k *fakeKernel) mapDMA(s *fakeSpace, iova uint64, mem []byte, write bool) error {
	n := uint64(len(mem))
	page := k.pageSizes & -k.pageSizes
	if n == 0 || iova%page != 0 || n%page != 0 || iova+n-1 < iova {
		return unix.EINVAL
	}
	for at, size := range s.iovas {
		if iova < at+size && at < iova+n {
			return unix.EEXIST
		}
	}
	if len(s.iovas) >= k.entryLimit {
		return unix.ENOSPC
	}
	if !k.noRanges && !slices.ContainsFunc(k.ranges, func(r device.IOVARange) bool { return iova >= r.First && iova+n-1 <= r.Last }) {
		return unix.EINVAL
	}
	locked := n
	for _, size := range s.iovas {
		locked += size
	}
	if locked > k.limit {
		return unix.ENOMEM
	}
	if err := k.fn.MapDMA(iova, n); err != nil {
		k.t.Errorf("card: %v", err)
		return unix.EFAULT
	}
	s.iovas[iova] = n
	k.memory.add(iova, mem, write)
	return nil
}

func (k *fakeKernel) unmapDMA(s *fakeSpace, iova, n uint64) (done uint64) {
	for at, size := range s.iovas {
		if at >= iova && at+size-1 <= iova+n-1 {
			delete(s.iovas, at)
			k.memory.remove(at)
			if err := k.fn.UnmapDMA(at, size); err != nil {
				k.t.Errorf("card: %v", err)
			}
			done += size
		}
	}
	return done
}

// drop ends an address space.
func (k *fakeKernel) drop(s *fakeSpace) {
	if s != nil {
		k.unmapDMA(s, 0, ^uint64(0))
	}
}

func (k *fakeKernel) ioctl(fd int, r request, arg any) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	call := r.String()
	switch a := arg.(type) {
	case int:
		call += fmt.Sprint(" ", a)
	case []byte:
		call += k.pci.describe(r, a)
	case *irqInfo:
		call += fmt.Sprint(" ", a.Index)
	case *dmaMapCall:
		call += fmt.Sprintf(" %#x+%#x", a.IOVA, len(a.mem))
	case *ioasMapCall:
		call += fmt.Sprintf(" %#x+%#x", a.IOVA, len(a.mem))
	}
	if err := k.step(call); err != nil {
		return -1, err
	}
	f := k.files[fd]
	if f == nil {
		return -1, unix.EBADF
	}
	switch f.kind {
	case "container":
		return k.containerCall(f, r, arg)
	case "group":
		return k.groupCall(f, r, arg)
	case "iommufd":
		return 0, k.iommufdCall(f, r, arg)
	case "cdev":
		if r == deviceBind || r == deviceAttach || r == deviceDetach {
			return 0, k.cdevCall(f, r, arg)
		}
		if f.bound == nil {
			return -1, unix.EINVAL
		}
		return k.pci.call(r, arg)
	case "device":
		return k.pci.call(r, arg)
	}
	return -1, unix.ENOTTY
}

func (k *fakeKernel) containerCall(f *fakeFile, r request, arg any) (int, error) {
	grouped := slices.ContainsFunc(k.filesOf("group"), func(g *fakeFile) bool { return g.container == f })
	switch r {
	case getAPIVersion:
		return k.version, nil
	case checkExtension:
		if slices.Contains(k.types, arg.(int)) {
			return 1, nil
		}
		return 0, nil
	case setIOMMU:
		if !grouped {
			return -1, unix.EINVAL
		}
		f.iommu, f.space = arg.(int), &fakeSpace{map[uint64]uint64{}}
		return 0, nil
	}
	if f.iommu == 0 || f.iommu == extNoIOMMU {
		return -1, unix.EINVAL
	}
	switch r {
	case iommuGetInfo:
		return 0, k.iommuInfo(f.space, arg.([]byte))
	case iommuMapDMA:
		a := arg.(*dmaMapCall)
		if a.Argsz != 32 || a.Size != uint64(len(a.mem)) || a.Flags&^mapFlagWrite != mapFlagRead {
			return -1, unix.EINVAL
		}
		return 0, k.mapDMA(f.space, a.IOVA, a.mem, a.Flags&mapFlagWrite != 0)
	case iommuUnmapDMA:
		a := arg.(*dmaUnmap)
		if a.Argsz != 24 || a.Flags != 0 {
			return -1, unix.EINVAL
		}
		if k.shortUnmap {
			a.Size = 0
			return 0, nil
		}
		a.Size = k.unmapDMA(f.space, a.IOVA, a.Size)
		return 0, nil
	}
	return -1, unix.ENOTTY
}

func (k *fakeKernel) filesOf(kind string) (fs []*fakeFile) {
	for _, f := range k.files {
		if f.kind == kind {
			fs = append(fs, f)
		}
	}
	return fs
}

func (k *fakeKernel) groupCall(f *fakeFile, r request, arg any) (int, error) {
	switch r {
	case groupGetStatus:
		a := arg.(*groupStatus)
		if k.viable {
			a.Flags = groupViable
		}
		return 0, nil
	case groupSetCont:
		c := k.files[int(*arg.(*int32))]
		if c == nil || c.kind != "container" || f.container != nil || !k.viable {
			return -1, unix.EINVAL
		}
		f.container = c
		return 0, nil
	case groupGetDevice:
		name := arg.(string)
		if name != k.addr && name != k.addr+" vf_token="+k.pci.token {
			return -1, unix.ENODEV
		}
		if k.pci.token != "" && name == k.addr {
			return -1, unix.EACCES
		}
		if f.container == nil || f.container.iommu == 0 {
			return -1, unix.EINVAL
		}
		k.pci.acquire()
		return k.add(&fakeFile{kind: "device", path: name}), nil
	}
	return -1, unix.ENOTTY
}

func (k *fakeKernel) iommuInfo(s *fakeSpace, b []byte) error {
	var caps []fakeCap
	if !k.noRanges {
		caps = append(caps, fakeCap{9, []byte{1, 2, 3, 4}}, fakeCap{iommuCapRanges, rangesBody(k.ranges)})
	}
	if k.tellAvail {
		caps = append(caps, fakeCap{iommuCapAvail, encodeInfo(uint32(max(k.entryLimit-len(s.iovas), 0)))})
	}
	return answer(b, encodeInfo(iommuInfo{Flags: iommuFlagPageSizes | iommuFlagCaps, PageSizes: k.pageSizes}), 16, caps)
}

func (k *fakeKernel) cdevCall(f *fakeFile, r request, arg any) error {
	switch r {
	case deviceBind:
		a := arg.(*bindIOMMUFD)
		fd := k.files[int(a.IOMMUFD)]
		if a.Argsz != 16 || a.Flags != 0 || fd == nil || fd.kind != "iommufd" || f.bound != nil {
			return unix.EINVAL
		}
		if k.has("group") {
			return unix.EBUSY
		}
		if slices.ContainsFunc(k.filesOf("cdev"), func(o *fakeFile) bool { return o.bound != nil }) {
			return unix.EINVAL
		}
		f.bound = fd
		k.pci.acquire()
	case deviceAttach:
		a := arg.(*attachIOMMUFD)
		if a.Argsz != attachBytes || f.bound == nil || f.bound.spaces[a.PageTable] == nil {
			return unix.EINVAL
		}
		f.attached = a.PageTable
	case deviceDetach:
		if a := arg.(*detachIOMMUFD); a.Argsz != detachBytes || f.bound == nil {
			return unix.EINVAL
		}
		f.attached = 0
	}
	return nil
}

func (k *fakeKernel) iommufdCall(f *fakeFile, r request, arg any) error {
	switch r {
	case ioasAlloc:
		a := arg.(*ioasAllocate)
		if a.Size != 12 {
			return unix.EINVAL
		}
		a.ID = uint32(len(f.spaces) + 7)
		f.spaces[a.ID] = &fakeSpace{map[uint64]uint64{}}
	case ioasRanges:
		a := arg.(*ioasRangesCall)
		if a.Size != 32 || f.spaces[a.ID] == nil {
			return unix.ENOENT
		}
		room := int(a.Num)
		a.Num, a.Alignment = uint32(len(k.ranges)), k.pageSizes&-k.pageSizes
		for i, x := range k.ranges[:min(room, len(k.ranges))] {
			a.ranges[i] = iovaRange{x.First, x.Last}
		}
		if room < len(k.ranges) {
			return unix.EMSGSIZE
		}
	case ioasMap:
		a := arg.(*ioasMapCall)
		if a.Size != 40 || a.Length != uint64(len(a.mem)) || a.Flags&^ioasWritable != ioasFixed|ioasReadable || f.spaces[a.ID] == nil {
			return unix.EINVAL
		}
		return k.mapDMA(f.spaces[a.ID], a.IOVA, a.mem, a.Flags&ioasWritable != 0)
	case ioasUnmap:
		a := arg.(*ioasUnmapMemory)
		s := f.spaces[a.ID]
		if a.Size != 24 || s == nil {
			return unix.EINVAL
		}
		if a.Length = k.unmapDMA(s, a.IOVA, a.Length); a.Length == 0 {
			return unix.ENOENT
		}
	case iommufdDestroy:
		id := arg.(*destroyObject).ID
		if f.spaces[id] == nil {
			return unix.ENOENT
		}
		if slices.ContainsFunc(k.filesOf("cdev"), func(c *fakeFile) bool { return c.attached == id }) {
			return unix.EBUSY
		}
		k.drop(f.spaces[id])
		delete(f.spaces, id)
	default:
		return unix.ENOTTY
	}
	return nil
}
