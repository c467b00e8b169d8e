package control

import (
	"context"
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// TestSilentRuntime: a runtime that is stopped takes connections and answers nothing; a question does not wait for ever.
func TestSilentRuntime(t *testing.T) {
	for _, method := range []string{"GET", "POST"} {
		synctest.Test(t, func(t *testing.T) {
			c := &Client{Where: "s.sock", http: http.Client{Transport: silent{}}}
			begin := time.Now()
			_, err := c.do(t.Context(), method, "stats", nil, nil)
			var f *Failure
			if !errors.As(err, &f) || f.Exit != ExitFailed || f.Where != "s.sock" || f.Why != "no answer in time, which is "+time.Since(begin).String() {
				t.Errorf("%s: %+v after %v", method, f, time.Since(begin))
			}
		})
	}
}

type silent struct{}

func (silent) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// TestInterruptedQuestion: what the user ends is not blamed on the runtime.
func TestInterruptedQuestion(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := dialSocket(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var f *Failure
	if _, err := c.do(ctx, "GET", "stats", nil, nil); !errors.As(err, &f) || f.Why == "" || errors.Is(err, errSilent) {
		t.Errorf("got %v", err)
	}
}
