package vfio

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"
)

// TestMain fails if the tests left a descriptor or a goroutine behind.
func TestMain(m *testing.M) {
	if f, err := (linux{}).eventfd(); err == nil { // the runtime's poller takes its descriptors with the first one
		f.Close()
	}
	fds, goroutines := descriptors(), runtime.NumGoroutine()
	code := m.Run()
	if f := flag.Lookup("test.fuzz"); code == 0 && f.Value.String() == "" { // workers of the fuzzer end later
		code = left(fds, goroutines)
	}
	os.Exit(code)
}

func descriptors() int {
	es, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(es)
}

// left says what is there beyond the start, once what is ending has ended.
func left(fds, goroutines int) int {
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); runtime.Gosched() {
		if descriptors() <= fds && runtime.NumGoroutine() <= goroutines {
			return 0
		}
	}
	fmt.Printf("%d descriptors, %d at the start; %d goroutines, %d at the start\n", descriptors(), fds, runtime.NumGoroutine(), goroutines)
	return 1
}
