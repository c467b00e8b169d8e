// Package httpserver is the least server that shows where a request went: it answers with its own name. It owns the
// goroutines of net/http until Serve returns.
package httpserver

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

// headerTimeout bounds the wait for a request's head.
const headerTimeout = 10 * time.Second

// Handler answers every request with the name of its server, in the Server field and as the body.
func Handler(name string) http.Handler {
	body := name + "\n"
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Set("Server", name)
		h.Set("Content-Type", "text/plain; charset=utf-8")
		h.Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = io.WriteString(w, body) // a client that has gone is none of our business
	})
}

// Serve answers on ln until ctx ends, then closes ln and all connections. It returns nil when that was the reason.
func Serve(ctx context.Context, ln net.Listener, name string) error {
	s := &http.Server{Handler: Handler(name), ReadHeaderTimeout: headerTimeout}
	stop := context.AfterFunc(ctx, func() { s.Close() })
	defer stop()
	err := s.Serve(ln)
	if ctx.Err() != nil && errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
