package demo

import (
	"bytes"
	"errors"
	"math"
	"testing"
)

// TestRequestsOutOfRange asks for numbers of requests that there is no plan for, in both ways of running.
func TestRequestsOutOfRange(t *testing.T) {
	for _, n := range []int{math.MinInt, -5, 0, MaxRequests + 1, math.MaxInt} {
		var live bytes.Buffer
		if _, err := RunInMemory(t.Context(), n, "test", &live); !errors.Is(err, ErrRequests) || live.Len() != 0 {
			t.Errorf("%d in memory: got %v, want ErrRequests; it has shown %q", n, err, live.Bytes())
		}
		if _, err := Run(t.Context(), n, &live); !errors.Is(err, ErrRequests) || live.Len() != 0 {
			t.Errorf("%d in namespaces: got %v, want ErrRequests; it has shown %q", n, err, live.Bytes())
		}
		cfg := Config{Requests: n, Note: func(text string) { t.Errorf("%d: noted %q", n, text) }}
		if r, code, err := Main(t.Context(), cfg); r != nil || code != 0 || !errors.Is(err, ErrRequests) {
			t.Errorf("%d: got %v, exit code %d, %v; want ErrRequests alone", n, r, code, err)
		}
	}
}
