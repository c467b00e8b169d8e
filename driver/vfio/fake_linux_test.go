package vfio

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"splicenic/driver/device"
	"splicenic/driver/device/devicetest"
)

// A fakeFile is what a descriptor of the fake kernel stands for.
type fakeFile struct {
	kind string // container, group, device, iommufd, cdev
	path string

	container *fakeFile // of a group
	iommu     int       // of a container: its type; 0: none set
	bound     *fakeFile // of a cdev: its iommufd
	attached  uint32    // of a cdev: its address space
	spaces    map[uint32]*fakeSpace
	space     *fakeSpace // of a container
}

// fakeKernel is a model of VFIO: a machine with one card, a Function, in one IOMMU group. Descriptors of VFIO are numbers of
// its own; eventfds and memory are real. Every call is a step: it is written down, and one step can be made to fail.
type fakeKernel struct {
	t    testing.TB
	root string
	fn   device.Function
	addr string

	// What the kernel and the machine offer; set before open.
	version    int
	types      []int
	viable     bool
	iommufd    bool // has /dev/iommu and device nodes
	type1      bool // has /dev/vfio/vfio
	pageSizes  uint64
	ranges     []device.IOVARange
	noRanges   bool
	entryLimit int // mappings per container
	tellAvail  bool
	limit      uint64 // RLIMIT_MEMLOCK
	huge       map[uint64]uint64
	shortUnmap bool // type1 of the first version: success, and nothing unmapped
	deviceInfo func(b []byte)
	pci        fakePCI

	mu      sync.Mutex
	next    int
	files   map[int]*fakeFile
	memfds  map[int]uint64 // real descriptors; size of pages
	maps    map[*byte]int
	huges   map[*byte]uint64
	events  map[*os.File]bool
	calls   []string
	failAt  int // number of the step that fails; 0: none
	failErr error
	gone    int    // from this step on the device answers all ones, and its stores go nowhere; 0: it is there
	failOn  string // and then whatever has this prefix, always
	paused  time.Duration
	memory  fakeMemory
	again   int // resets that answer EAGAIN first
	deaf    int // reads of the ids after a reset that answer all ones first
	resetOK func()
}

const (
	fakeAddress = "0000:65:00.0"
	fakeGroup   = 14
)

// newFake returns a machine with a scratch card that answers everything well.
func newFake(t testing.TB) *fakeKernel {
	return newFakeOf(t, devicetest.NewCard())
}

func newFakeOf(t testing.TB, fn device.Function) *fakeKernel {
	k := newFakeIn(t, t.TempDir(), fn)
	k.tree()
	return k
}

// newFakeIn is the same in a folder whose tree is made already.
func newFakeIn(t testing.TB, root string, fn device.Function) *fakeKernel {
	k := &fakeKernel{
		t: t, root: root, fn: fn, addr: fakeAddress,
		types: []int{extType1v2, extType1}, viable: true, iommufd: true, type1: true,
		pageSizes: 0x40201000, ranges: fn.Info().IOVA, entryLimit: 65535, tellAvail: true, limit: ^uint64(0),
		huge: map[uint64]uint64{}, next: 1000, files: map[int]*fakeFile{}, memfds: map[int]uint64{}, maps: map[*byte]int{},
		huges: map[*byte]uint64{}, events: map[*os.File]bool{},
	}
	k.memory.k = k
	k.pci.init(k)
	t.Cleanup(func() {
		k.pci.close()
		if !t.Failed() {
			k.leaks()
		}
	})
	return k
}

// tree makes what sysfs and proc show.
func (k *fakeKernel) tree() {
	k.member(k.addr, "vfio-pci", "0x020000")
	k.write("bus/pci/devices/"+k.addr+"/numa_node", "1\n")
	k.write("bus/pci/devices/"+k.addr+"/vfio-dev/vfio3/dev", "511:3\n")
	k.status(0)
}

// write makes a file of the fake sysfs.
func (k *fakeKernel) write(name, content string) {
	k.t.Helper()
	p := filepath.Join(k.root, "sys", name)
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		k.t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(content), 0o644); err != nil {
		k.t.Fatal(err)
	}
}

func (k *fakeKernel) link(name, to string) {
	k.t.Helper()
	p := filepath.Join(k.root, "sys", name)
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		k.t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(k.root, "sys", to), 0o755); err != nil {
		k.t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(k.root, "sys", to), p); err != nil {
		k.t.Fatal(err)
	}
}

// member puts a device into the group.
func (k *fakeKernel) member(address, driver, class string) {
	dir := "bus/pci/devices/" + address
	k.write(dir+"/class", class+"\n")
	group := fmt.Sprintf("kernel/iommu_groups/%d", fakeGroup)
	k.link(dir+"/iommu_group", group)
	k.link(group+"/devices/"+address, dir)
	if driver != "" {
		k.link(dir+"/driver", "bus/pci/drivers/"+driver)
	}
}

// status writes what /proc tells of this process: kibibytes locked, and no privilege.
func (k *fakeKernel) status(kib int) {
	p := filepath.Join(k.root, "proc/self")
	if err := os.MkdirAll(p, 0o755); err != nil {
		k.t.Fatal(err)
	}
	text := fmt.Sprintf("Name:\tx\nVmLck:\t%8d kB\nVmPin:\t       0 kB\nCapEff:\t0000000000000000\n", kib)
	if err := os.WriteFile(filepath.Join(p, "status"), []byte(text), 0o644); err != nil {
		k.t.Fatal(err)
	}
}

func (k *fakeKernel) options() Options {
	return Options{Sysfs: filepath.Join(k.root, "sys"), Dev: filepath.Join(k.root, "dev"), Proc: filepath.Join(k.root, "proc"), kernel: k}
}

// open opens the card; the test fails where it cannot be.
func (k *fakeKernel) mustOpen(t Transport) *Device {
	k.t.Helper()
	o := k.options()
	o.Transport = t
	d, err := Open(k.addr, o)
	if err != nil {
		k.t.Fatalf("Open: %v", err)
	}
	k.t.Cleanup(func() { d.Close() })
	return d
}

// leaks fails the test if something is open or mapped.
func (k *fakeKernel) leaks() {
	k.t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	for fd, f := range k.files {
		k.t.Errorf("leaked descriptor %d of %s %s", fd, f.kind, f.path)
	}
	for fd := range k.memfds {
		k.t.Errorf("leaked memory descriptor %d", fd)
	}
	for range k.maps {
		k.t.Error("leaked mapping")
	}
	for range k.events {
		k.t.Error("leaked event descriptor")
	}
	if n := k.memory.count(); n != 0 {
		k.t.Errorf("leaked %d dma mappings", n)
	}
	if n := k.pci.receivers(); n != 0 {
		k.t.Errorf("leaked %d interrupt receivers", n)
	}
}

// step writes a call down and says whether it is to fail.
func (k *fakeKernel) step(call string) error {
	k.calls = append(k.calls, call)
	if k.failAt == len(k.calls) || k.failOn != "" && strings.HasPrefix(call, k.failOn) {
		return k.failErr
	}
	return nil
}

// log returns the calls so far that have one of the prefixes, all where there is none.
func (k *fakeKernel) log(prefixes ...string) []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var calls []string
	for _, c := range k.calls {
		if len(prefixes) == 0 || slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(c, p) }) {
			calls = append(calls, c)
		}
	}
	return calls
}

func (k *fakeKernel) open(path string, flags int) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	rel, err := filepath.Rel(filepath.Join(k.root, "dev"), path)
	if err != nil {
		return -1, unix.ENOENT
	}
	if err := k.step("open " + rel); err != nil {
		return -1, err
	}
	if flags != os.O_RDWR {
		return -1, unix.EINVAL
	}
	f := &fakeFile{path: rel}
	switch {
	case rel == "vfio/vfio" && k.type1:
		f.kind = "container"
	case (rel == fmt.Sprintf("vfio/%d", fakeGroup) || rel == fmt.Sprintf("vfio/noiommu-%d", fakeGroup)) && k.type1:
		f.kind = "group"
		if k.has("group") || k.has("cdev") {
			return -1, unix.EBUSY
		}
	case rel == "iommu" && k.iommufd:
		f.kind, f.spaces = "iommufd", map[uint32]*fakeSpace{}
	case rel == "vfio/devices/vfio3" && k.iommufd:
		f.kind = "cdev"
	default:
		return -1, unix.ENOENT
	}
	return k.add(f), nil
}

func (k *fakeKernel) add(f *fakeFile) int {
	k.next++
	k.files[k.next] = f
	return k.next
}

func (k *fakeKernel) has(kind string) bool {
	for _, f := range k.files {
		if f.kind == kind {
			return true
		}
	}
	return false
}

// close lets a descriptor go even where it is made to fail, as the kernel does.
func (k *fakeKernel) close(fd int) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	what := "memory"
	if f := k.files[fd]; f != nil {
		what = f.kind
	}
	err := k.step("close " + what)
	if _, ok := k.memfds[fd]; ok {
		delete(k.memfds, fd)
		unix.Close(fd)
		return err
	}
	f, ok := k.files[fd]
	if !ok {
		return unix.EBADF
	}
	delete(k.files, fd)
	switch f.kind {
	case "device", "cdev":
		k.pci.release()
		f.bound = nil
	case "container":
		k.drop(f.space)
	case "iommufd":
		for _, s := range f.spaces {
			k.drop(s)
		}
	}
	return err
}

func (k *fakeKernel) memfd(name string, n int64, page uint64) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.step("memfd " + name); err != nil {
		return -1, err
	}
	if _, ok := k.huge[page]; page != 0 && !ok {
		return -1, unix.ENODEV
	}
	fd, err := linux{}.memfd(name, n, 0)
	if err == nil {
		k.memfds[fd] = page
	}
	return fd, err
}

func (k *fakeKernel) mmap(fd int, off int64, n int) ([]byte, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.step(fmt.Sprintf("mmap %#x", n)); err != nil {
		return nil, err
	}
	page, isMemory := k.memfds[fd]
	real, at := fd, off
	if !isMemory {
		var ok bool
		if real, at, ok = k.pci.mapped(uint64(off), uint64(n)); k.files[fd] == nil || !ok {
			return nil, unix.EINVAL
		}
	}
	if page != 0 {
		if uint64(n) > k.huge[page] {
			return nil, unix.ENOMEM
		}
		k.huge[page] -= uint64(n)
	}
	b, err := linux{}.mmap(real, at, n)
	if err == nil {
		k.maps[&b[0]] = n
		k.huges[&b[0]] = page
	}
	return b, err
}

func (k *fakeKernel) munmap(b []byte) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.step("munmap"); err != nil {
		k.maps[&b[0]] = -1
		linux{}.munmap(b)
		delete(k.maps, &b[0]) // what the kernel refuses to unmap nobody can
		return err
	}
	if k.maps[&b[0]] != len(b) {
		k.t.Errorf("munmap of %d bytes that are not a mapping", len(b))
		return unix.EINVAL
	}
	if page := k.huges[&b[0]]; page != 0 {
		k.huge[page] += uint64(len(b))
	}
	delete(k.maps, &b[0])
	return linux{}.munmap(b)
}

func (k *fakeKernel) eventfd() (*os.File, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.step("eventfd"); err != nil {
		return nil, err
	}
	f, err := linux{}.eventfd()
	if err == nil {
		k.events[f] = true
	}
	return f, err
}

func (k *fakeKernel) closeEvent(f *os.File) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	err := k.step("closeEvent")
	if !k.events[f] {
		k.t.Error("an event descriptor is closed twice")
	}
	delete(k.events, f)
	if e := f.Close(); e != nil {
		return e
	}
	return err
}

func (k *fakeKernel) memlock() (uint64, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.limit, k.step("memlock")
}

func (k *fakeKernel) pause(d time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.paused += d
}
