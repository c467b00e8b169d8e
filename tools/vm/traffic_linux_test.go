package vm

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// photos are the groups that the photos go to in turn.
var photos = [2]string{"static", "other"}

// TestTraffic: a runtime in the guest programs the card, and the card splices connections between clients and servers of
// this machine. Then the runtime is killed, again and again.
func TestTraffic(t *testing.T) {
	for _, x := range []struct {
		kernel          string
		requests, kills int
	}{{Linux612, 2000, 20}, {Linux61, 240, 1}, {LinuxIOMMUFD, 2000, 20}} {
		t.Run(x.kernel, func(t *testing.T) {
			k := kernel(t, x.kernel)
			n := newNetwork(t)
			ctx := bounded(t, 10*time.Minute)
			ctx, wired := n.serveProcess(ctx, "wired")
			ctx, other := serve(ctx, t, "other", unwired(1))
			m := boot(ctx, t, k, wired, other)
			bind(ctx, t, m, k, firstCard)
			r := &service{t: t, m: m, args: []string{"-c", file, "--transport", transport(k)}}
			r.write(ctx, photos[0])
			begin := time.Now()
			r.start(ctx)
			t.Logf("the runtime is up after %v:\n%s", time.Since(begin).Round(time.Millisecond), r.cmd.Output())
			traffic(ctx, t, n, m, r, x.requests)
			restarts(ctx, t, n, r, x.kills)
			r.stop(ctx)
		})
	}
}

// traffic sends requests while the guest applies one configuration after the other; half of them come after the first
// change.
func traffic(ctx context.Context, t *testing.T, n *network, m *Machine, r *service, requests int) {
	const streams = 8
	before := interrupts(ctx, t, m, firstCard)
	generation := r.status(ctx).Generation
	begin := time.Now()
	loading, loaded := context.WithCancel(ctx)
	changed := make(chan struct{}) // the second configuration is in force
	var mu sync.Mutex
	answers := map[string]map[string]int{} // by kind of request, then by server
	var group sync.WaitGroup
	for i := range streams {
		group.Go(func() {
			kind, host, url := "item", "www.example", fmt.Sprintf("http://%s/item/%d/#", vip, i)
			switch i % 4 {
			case 1:
				kind, host, url = "photo", "img.example", fmt.Sprintf("http://%s/photos/%d/#.jpg", vip, i)
			case 2:
				kind, url = "item6", fmt.Sprintf("http://%s/item/%d/#", vip6, i)
			}
			for range 2 {
				got, err := n.curl(ctx, host, url, requests/streams/2)
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				if answers[kind] == nil {
					answers[kind] = map[string]int{}
				}
				for server, count := range got {
					answers[kind][server] += count
				}
				mu.Unlock()
				select {
				case <-changed:
				case <-ctx.Done():
				}
			}
		})
	}
	go func() {
		group.Wait()
		loaded()
	}()
	applied := 0
	for loading.Err() == nil {
		applied++
		r.reload(ctx, photos[applied%2])
		if applied == 1 {
			close(changed)
		}
	}
	group.Wait()
	took := time.Since(begin)
	sum := 0
	for _, servers := range answers {
		for _, count := range servers {
			sum += count
		}
	}
	t.Logf("%d requests in %v, %.0f/s, while %d configurations were applied: %v", sum, took.Round(time.Millisecond), float64(sum)/took.Seconds(), applied, answers)
	if sum != requests {
		t.Errorf("%d answers to %d requests", sum, requests)
	}
	for kind, may := range map[string][]string{"item": {"alpha", "beta"}, "photo": {"beta", "gamma"}, "item6": {"alpha", "beta"}} {
		if got := slices.Sorted(maps.Keys(answers[kind])); !slices.Equal(got, may) {
			t.Errorf("%s was answered by %v, want %v", kind, got, may)
		}
	}
	if now := r.status(ctx); applied == 0 || now.Generation < generation+uint32(applied) || now.Exceptions.Lost != 0 {
		t.Errorf("after %d configurations: generation %d, it was %d; %d exceptions lost", applied, now.Generation, generation, now.Exceptions.Lost)
	}
	after := interrupts(ctx, t, m, firstCard)
	t.Logf("interrupts by vector: %v, before %v", after, before)
	if after[0] <= before[0] || after[2] <= before[2] {
		t.Errorf("interrupts by vector: %v, before the traffic %v: want more for exceptions (0) and completions (2)", after, before)
	}
	if rules := splicectl(ctx, t, m, "rule", "list"); !strings.Contains(rules, "img.example") {
		t.Errorf("splicectl rule list:\n%s", rules)
	} else {
		t.Logf("splicectl rule list:\n%s", rules)
	}
	if got := r.number(ctx, "connections.spliced"); got < float64(requests) {
		t.Errorf("connections.spliced = %v after %d requests", got, requests)
	}
	if got := r.number(ctx, "hostif.dma_errors"); got != 0 {
		t.Errorf("hostif.dma_errors = %v", got)
	}
	r.await(ctx, "all pages are free again", func() bool { return r.number(ctx, "pages.free") == r.number(ctx, "pages.total") })
}
