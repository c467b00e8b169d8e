package acceptance

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"splicenic/driver/device/devicetest"
)

// TestRestartInPlace kills the runtime again and again under load, and starts another build each time. Connections that are there never break, new ones wait
// for at most a second, every page and head comes back, and no exception is missed.
func TestRestartInPlace(t *testing.T) {
	kills := 5
	if long {
		kills = 100
	}
	p := start(t, configuration)
	server := &http.Server{Handler: &fileServer{1 << 20}, ReadHeaderTimeout: time.Minute}
	defer server.Close()
	for _, a := range []string{"198.18.1.11:80", "[2001:db8:1::11]:80"} {
		ln, err := p.servers.Listen("tcp", a)
		must(t, err)
		go func() { _ = server.Serve(ln) }()
	}

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var load sync.WaitGroup
	defer load.Wait()
	defer cancel()
	load.Go(func() { p.upload(ctx) })
	var mu sync.Mutex
	var slowest time.Duration
	requests := 0
	for _, vip := range []string{"198.18.0.80", "[2001:db8::80]"} {
		load.Go(func() {
			for ctx.Err() == nil {
				took, err := p.request(vip)
				if err != nil {
					t.Errorf("request to %s: %v", vip, err)
					return
				}
				mu.Lock()
				slowest = max(slowest, took)
				requests++
				mu.Unlock()
			}
		})
	}
	var attached []string
	for i := range kills {
		p.kill()
		p.runBy([]string{other, binary}[i%2])
		p.await("the runtime answers", 10*time.Second, p.resolved)
		attached = append(attached, p.status().Attached)
	}
	cancel()
	load.Wait()
	t.Logf("%d requests over %d restarts, the slowest took %v; attached: %v", requests, kills, slowest.Round(time.Millisecond), attached)
	if i := slices.IndexFunc(attached, func(s string) bool { return s != "continued" }); i >= 0 {
		t.Errorf("restart %d: %s, want continued", i, attached[i])
	}
	if slowest > time.Second {
		t.Errorf("a connection waited %v for its answer, more than a second", slowest)
	}
	if lost := p.status().Exceptions.Lost; lost != 0 {
		t.Errorf("%d exceptions were missed", lost)
	}
	p.atRest()
}

// request opens a connection, and says how long the answer took.
func (p *product) request(vip string) (time.Duration, error) {
	c := &http.Client{Transport: &http.Transport{DialContext: p.client.Dial, DisableKeepAlives: true}, Timeout: 20 * time.Second}
	watch := devicetest.NewStopwatch()
	r, err := c.Get("http://" + vip + "/file")
	first := watch.Stop()
	if err != nil {
		return 0, err
	}
	defer r.Body.Close()
	if n, err := io.Copy(io.Discard, r.Body); err != nil || n != 1<<20 {
		return 0, fmt.Errorf("%d bytes: %w", n, err)
	}
	return first, nil
}

// upload sends on one connection until ctx ends, and compares what the server got.
func (p *product) upload(ctx context.Context) {
	r, w := io.Pipe()
	h := sha256.New()
	go func() {
		b := make([]byte, 1<<16)
		source := stream(3, 1<<40)
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			<-tick.C
			_, _ = io.ReadFull(source, b)
			h.Write(b)
			if _, err := w.Write(b); err != nil {
				break
			}
		}
		w.Close()
	}()
	q, err := http.NewRequest(http.MethodPut, "http://198.18.0.80/file", r)
	must(p.t, err)
	c := &http.Client{Transport: &http.Transport{DialContext: p.client.Dial, DisableKeepAlives: true}}
	answer, err := c.Do(q)
	if err != nil {
		p.t.Errorf("the upload broke: %v", err)
		return
	}
	defer answer.Body.Close()
	got, err := io.ReadAll(answer.Body)
	if err != nil || string(got) != sum(h) {
		p.t.Errorf("the server got sha256 %s, %v, want %s", got, err, sum(h))
	}
}
