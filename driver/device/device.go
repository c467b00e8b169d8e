package device

import (
	"context"
	"errors"
	"fmt"
)

// Errors that callers test with errors.Is. Device errors arrive wrapped in *OpError.
var (
	// ErrDeviceLost: the device answers all ones or is gone. It stays set on the Device.
	ErrDeviceLost = errors.New("device lost")
	// ErrClosed: the Device was closed.
	ErrClosed = errors.New("device closed")
	// ErrNotSupported: this backend or operating system cannot do it.
	ErrNotSupported = errors.New("not supported")
	// ErrBusy: another process owns the device.
	ErrBusy = errors.New("device busy")
	// ErrRange: an access outside a region, or not aligned.
	ErrRange = errors.New("access out of range")
	// ErrDMA: an IOVA range is not mapped, overlaps or does not fit.
	ErrDMA = errors.New("dma address not mapped")
)

// OpError says which operation failed on which device.
type OpError struct {
	Op  string // verb and object: "map dma", "read region 2"
	Dev string // the device as the user names it: "emu", "vfio:0000:65:00.0"
	Err error
}

func (e *OpError) Error() string { return fmt.Sprintf("%s: %s: %v", e.Dev, e.Op, e.Err) }

// Unwrap returns the cause.
func (e *OpError) Unwrap() error { return e.Err }

// RegionFlags says what a region can do.
type RegionFlags uint32

// Region capabilities.
const (
	RegionRead RegionFlags = 1 << iota
	RegionWrite
	RegionMmap         // the backend can map it; callers never see the mapping
	RegionPrefetchable // reads have no side effect and may be merged
)

// Region numbers as VFIO counts them.
const (
	Bar0 = 0
	Bar2 = 2
	Bar4 = 4
)

// Regions is how many regions a Device has at most: six BARs and the ROM.
const Regions = 7

// Region describes one BAR. Size 0: absent.
type Region struct {
	Size  uint64
	Flags RegionFlags
}

// IOVARange is a range of IOVAs the device may be given memory at; Last is inclusive.
type IOVARange struct{ First, Last uint64 }

// Info describes a device. It does not change while the device is open.
type Info struct {
	Name     string // as the user names it
	Body     string // "emu", "vfio-user", "vfio"
	VendorID uint16
	DeviceID uint16
	Subsys   uint32 // subsystem vendor, subsystem id << 16
	Revision uint8
	Class    uint32 // 24 bits
	NUMANode int    // -1: unknown
	Regions  [Regions]Region
	Vectors  int // MSI-X vectors
	IOVA     []IOVARange
}

// DMA is memory both sides see: the host through Bytes, the device from IOVA on. It belongs to the caller of AllocDMA
// until Close. Before Close the caller stops the device's use of it; after Close, or after Close of its Device, Bytes is
// invalid.
type DMA struct {
	Bytes []byte // page aligned; ownership words in it are accessed through sync/atomic (driver/ring)
	IOVA  uint64
	free  func() error
}

// NewDMA is for backends: it joins memory, its address and how to give both back.
func NewDMA(b []byte, iova uint64, free func() error) *DMA {
	return &DMA{Bytes: b, IOVA: iova, free: free}
}

// Close unmaps the memory from the device and returns it. A second call does nothing.
func (m *DMA) Close() error {
	if m == nil || m.free == nil {
		return nil
	}
	f := m.free
	m.free, m.Bytes = nil, nil
	return f()
}

// Device is the host side of a card. One process owns it. All methods but Close and Wait are for one goroutine at a time
// per region; Wait may be called from one goroutine per vector; Close from any.
//
// Loads and stores cannot fail: a lost device reads all ones and ignores stores, and Err says why. A Store follows all
// earlier writes to DMA memory; a Load precedes all later reads of it. Stores are posted: a Load from the same device
// flushes them. Offsets are multiples of the access size; an access outside its region sets the sticky error ErrRange.
// The first sticky error stays and ends the device, whatever it is: everything but Close fails with it.
// 64-bit accesses may be split into two 32-bit ones, low word first.
type Device interface {
	Info() Info

	// ReadConfig and WriteConfig access configuration space, little-endian, at most 4096 bytes.
	ReadConfig(off uint32, p []byte) error
	WriteConfig(off uint32, p []byte) error

	Load32(region int, off uint64) uint32
	Store32(region int, off uint64, v uint32)
	Load64(region int, off uint64) uint64
	Store64(region int, off uint64, v uint64)

	// AllocDMA returns zeroed memory of at least size bytes mapped for the device. name tells the purpose in
	// diagnostics and, where memory is a file, names it.
	AllocDMA(name string, size int) (*DMA, error)

	// EnableVectors prepares vectors 0..n-1; n at most Info().Vectors. Calling it again changes their number.
	EnableVectors(n int) error
	// Wait blocks until vector v was raised at least once since the last Wait and returns how often (coalesced
	// raises may count once). It ends early with ctx's error, ErrClosed or ErrDeviceLost.
	Wait(ctx context.Context, v int) (uint64, error)

	// Reset returns the whole function to its state after power-on; DMA maps and vectors have to be set up anew. Memory
	// allocated before stays the caller's, but the device no longer reaches it.
	Reset() error

	// RemovalRequested is closed when the owner must let go of the device; ErrorNotice when the bus reported an
	// error. A nil channel: this backend never gives the notice.
	RemovalRequested() <-chan struct{}
	ErrorNotice() <-chan struct{}

	// Err is the sticky error, nil while the device is well.
	Err() error
	// Lose sets the sticky error; from then on loads read all ones. The driver calls it when the identity check fails.
	Lose(err error)

	// Close stops waits, revokes bus mastering, unmaps everything and lets the device go.
	Close() error
}

// Memory is what a Function sees of the host: bytes at IOVAs. Every method fails with ErrDMA where a byte is not
// mapped, and then has changed nothing. Read and Write may cross any number of mappings.
type Memory interface {
	Read(iova uint64, p []byte) error
	Write(iova uint64, p []byte) error
	// Load32 and Store32 are atomic; iova is a multiple of 4. A Store32 follows all earlier Writes.
	Load32(iova uint64) (uint32, error)
	Store32(iova uint64, v uint32) error
}

// SlowMemory is a Memory that may have to ask the host for its bytes, over the way on which the host waits for answers of
// the function. A function that makes the host's accesses wait while it uses such memory, by a lock, waits for itself
// until the access is refused.
type SlowMemory interface {
	Memory
	// Slow says whether it is so now. It may change with every map and unmap.
	Slow() bool
}

// Function is the card side: a PCI function that somebody hosts (Local in this process, a vfio-user server for another
// one). Its methods may be called from any goroutine.
type Function interface {
	Info() Info

	ReadConfig(off uint32, p []byte) error
	WriteConfig(off uint32, p []byte) error

	// ReadRegion and WriteRegion access a BAR: the words of p, any multiple of 4 bytes, in ascending order.
	ReadRegion(region int, off uint64, p []byte) error
	WriteRegion(region int, off uint64, p []byte) error

	// MapDMA and UnmapDMA tell the function which IOVAs it may use; the bytes are reached through the Memory given
	// to SetHost. After UnmapDMA returns the function has stopped using the range.
	MapDMA(iova, size uint64) error
	UnmapDMA(iova, size uint64) error

	// SetHost gives the function its host's memory; nil takes it away: rings stop, connections go on.
	SetHost(m Memory)

	// SetVectors says how to raise vectors 0..len(raise)-1; nil entries and vectors beyond are not delivered. raise
	// functions do not block.
	SetVectors(raise []func()) error

	Reset() error
}
