package vfiouser_test

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"
)

// TestMain fails if a test left a file descriptor or a goroutine behind.
func TestMain(m *testing.M) {
	if os.Getenv("VFIOUSER_CHILD") != "" {
		child()
	}
	code := m.Run()
	if fuzzing := flag.Lookup("test.fuzz").Value.String() != ""; code == 0 && !fuzzing {
		code = leaks()
	}
	os.Exit(code)
}

func leaks() int {
	deadline := time.Now().Add(10 * time.Second)
	for runtime.NumGoroutine() > 1 {
		if time.Now().After(deadline) {
			b := make([]byte, 1<<20)
			fmt.Printf("goroutines left behind:\n%s\n", b[:runtime.Stack(b, true)])
			return 1
		}
		runtime.Gosched()
	}
	return 0
}
