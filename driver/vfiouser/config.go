package vfiouser

import (
	"io/fs"
	"log/slog"
	"time"

	"splicenic/driver/device"
)

// Config says how a Server serves. The zero value suits.
type Config struct {
	// Log is told of clients that come, go and are refused. nil: nobody is.
	Log *slog.Logger
	// Removal and Error are closed by whoever owns the function, to give the client the two notices. nil: never given.
	Removal, Error <-chan struct{}
	// Mode is the socket's file mode. Zero: 0600.
	Mode fs.FileMode
	// DMATimeout bounds one access to memory that only messages reach. Zero: 1 s. A client that gave its memory's files
	// never feels it.
	DMATimeout time.Duration
	// Locked is called once the lock file is taken, before the socket is there; an error ends Listen. nil: nothing is to
	// be done then.
	Locked func() error
}

const defaultDMATimeout = time.Second

// A RegionFile is what a client maps to reach parts of a region without the server.
type RegionFile struct {
	FD     int    // stays the function's
	Offset uint64 // where the region starts in the file
	Areas  []Area // parts that can be mapped, whole pages in order; none: all of it
}

// A RegionMapper is a Function with regions that a client may map.
type RegionMapper interface {
	// RegionFile tells what of a region can be mapped; ErrNotSupported: nothing.
	RegionFile(region int) (RegionFile, error)
}

// A MemoryMapper is a Function that reaches its host's memory by itself, not through SetHost, and so needs the bytes. Its
// maps outlive Reset. Memory that only messages reach is refused to its client.
type MemoryMapper interface {
	// MapMemory is called in place of MapDMA. mem stays where it is until UnmapDMA of the same range has returned.
	MapMemory(iova uint64, mem []byte, write bool) error
}

// EventVectors is a Function that has eventfds written to by somebody else, such as a kernel.
type EventVectors interface {
	// SetEventfds is called in place of SetVectors: an eventfd for each vector, -1 for none. They stay open until the
	// next call has returned.
	SetEventfds(fds []int) error
}

// Options say how Dial opens a card. Dir or Memfd is needed.
type Options struct {
	// Name is how messages call the device. Empty: "vfio-user:" and the path.
	Name string
	// Dir is the directory of the DMA memory's files and of dma.json, which says what lies at which IOVA. It belongs to
	// one client at a time and should be on a tmpfs. It is made if it is missing.
	Dir string
	// HugeDirs are directories on hugetlbfs mounts. Memory is taken from the one with the largest pages that waste no
	// more than they hold, from the next where that one has none left, and at last from Dir.
	HugeDirs []string
	// Memfd takes memory without a name: it ends with the process, and Reattach has nothing to find.
	Memfd bool
	// Reattach takes over the memory that a predecessor left in Dir, at the IOVAs it had. False: its files are removed.
	Reattach bool
	// Timeout bounds the wait for one reply. A card process that is later than this is lost. Zero: 5 s.
	Timeout time.Duration
	// NoGuard gives successive buffers adjacent IOVAs. False: an unmapped page lies between any two.
	NoGuard bool
	// NoMmap sends every access as a message, even where the server would let a region be mapped.
	NoMmap bool
	// Messages keeps the memory's files back, so that the server has to reach it by messages.
	Messages bool
}

const defaultTimeout = 5 * time.Second

// Memory describes one allocation of a Client.
type Memory struct {
	Name      string // as AllocDMA was told
	File      string // empty: it has no name
	IOVA      uint64
	Bytes     uint64
	PageBytes uint64 // of the file system it lies on
	Kept      bool   // it was a predecessor's
	Claimed   bool   // false: a predecessor's that AllocDMA was not asked for yet
}

// defaultIOVA is where a server that does not tell its ranges can surely reach: 39 bits without the window in which
// x86 machines see interrupts.
var defaultIOVA = []device.IOVARange{{First: 0x1000, Last: 0xfedf_ffff}, {First: 0xfef0_0000, Last: 1<<39 - 1}}
