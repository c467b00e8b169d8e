package devicetest

import (
	"runtime"
	"sync"
	"testing"
	"time"

	"splicenic/driver/device"
)

// A Register names a 32-bit register.
type Register struct {
	Region int
	Off    uint64
	Mask   uint32 // bits that hold what was stored
	Value  uint32 // of a constant
}

// A Window names a memory that holds what was stored.
type Window struct {
	Region int
	Off    uint64
	Bytes  uint64
}

// A Harness is a freshly opened device and what the suite may ask of the card behind it.
type Harness struct {
	Device   device.Device
	Scratch  Register // reads back what was stored
	Constant Register // reads Value, ignores stores
	Window   Window   // at least 64 bytes
	// Raise makes the card raise a vector.
	Raise func(vector int)
	// Copy makes the card copy n bytes of host memory, a multiple of 4, and returns when it has: nil, or the error if the
	// card could not. nil: the suite leaves DMA by the card out.
	Copy func(dst, src uint64, n int) error
	// Adjacent says that buffers allocated one after the other have adjacent IOVAs, without a guard gap.
	Adjacent bool
	// Close ends whatever the device does not own; nil: nothing.
	Close func()
}

// patience bounds every wait of the suite that must end by itself.
const patience = 10 * time.Second

// Run runs the suite. open is called once per test; the suite closes the device.
func Run(t *testing.T, open func(t *testing.T) Harness) {
	tests := []struct {
		name string
		run  func(*testing.T, Harness)
	}{
		{"info", testInfo},
		{"config", testConfig},
		{"register", testRegister},
		{"window", testWindow},
		{"block", testBlock},
		{"block range", func(t *testing.T, h Harness) { testBlockRange(t, h, open) }},
		{"store order", testStoreOrder},
		{"range", func(t *testing.T, h Harness) { testRange(t, h, open) }},
		{"dma memory", testMemory},
		{"dma copy", testCopy},
		{"dma order", testCopyOrder},
		{"dma bounds", testBounds},
		{"dma unmapped", testUnmapped},
		{"dma across mappings", testAcross},
		{"dma reuse", testReuse},
		{"dma refused", testRefused},
		{"interrupt", testInterrupt},
		{"interrupt coalesced", testCoalesced},
		{"interrupt cancelled", testCancelled},
		{"interrupt vectors", testVectors},
		{"reset", testReset},
		{"sticky error", testSticky},
		{"notices", testNotices},
		{"close unblocks", testCloseUnblocks},
		{"close", testClose},
		{"concurrent", testConcurrent},
	}
	before := runtime.NumGoroutine()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := open(t)
			others := h.Close
			h.Close = sync.OnceFunc(func() {
				h.Device.Close()
				if others != nil {
					others()
				}
			})
			t.Cleanup(h.Close)
			tt.run(t, h)
		})
	}
	goroutines(t, before)
}

// goroutines fails the test if more goroutines run than before, once those that are ending have ended.
func goroutines(t *testing.T, before int) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for runtime.NumGoroutine() > before {
		if time.Now().After(deadline) {
			buf := make([]byte, 1<<16)
			t.Fatalf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), before, buf[:runtime.Stack(buf, true)])
		}
		runtime.Gosched()
	}
}
