package httpserver_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"

	"splicenic/tools/netlab/httpserver"
)

func TestServe(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- httpserver.Serve(ctx, ln, "app-1") }()
	for _, path := range []string{"/", "/photos/a.jpg?x=1"} {
		res, err := http.Get("http://" + ln.Addr().String() + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || string(body) != "app-1\n" || res.Header.Get("Server") != "app-1" || res.StatusCode != http.StatusOK {
			t.Errorf("%s: got %d %q from %q, %v", path, res.StatusCode, body, res.Header.Get("Server"), err)
		}
	}
	// The connection is kept alive; the end of the context closes it too.
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := net.Dial("tcp", ln.Addr().String()); err == nil {
		t.Error("still listening")
	}

	ln.Close()
	if err := httpserver.Serve(context.Background(), ln, "app-1"); err == nil {
		t.Error("no error from a closed listener")
	}
}
