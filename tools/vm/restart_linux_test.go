package vm

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"splicenic/driver/device/devicetest"
)

// patience is how long a client waits: the runtime's end must not be felt.
const patience = time.Second

// restarts kills the runtime again and again under load. No connection may break, none may wait for long, and no frame for
// the host may be lost.
func restarts(ctx context.Context, t *testing.T, n *network, r *service, kills int) {
	l := newLoad(ctx, t, n)
	defer l.end()
	for i := range kills {
		l.progress(ctx, "before the runtime is killed")
		r.kill(ctx)
		l.progress(ctx, "without a runtime")
		begin := time.Now()
		r.start(ctx)
		s := r.status(ctx)
		t.Logf("kill %d: attached, %s, after %v", i+1, s.Attached, time.Since(begin).Round(time.Millisecond))
		if s.Attached != "continued" {
			t.Errorf("kill %d: the runtime says %q, not continued", i+1, s.Attached)
		}
		if s.Exceptions.Lost != 0 {
			t.Errorf("kill %d: %d gaps in the sequence of exceptions", i+1, s.Exceptions.Lost)
		}
		if live := r.number(ctx, "connections.live"); live < sessions {
			t.Errorf("kill %d: the card has %v live connections, %d stay open", i+1, live, sessions)
		}
		if t.Failed() {
			return
		}
	}
	l.end()
	t.Logf("over %d restarts: %d requests on %d connections that stayed, %d on new ones; the longest wait was %v", kills,
		l.kept.Load(), sessions, l.fresh.Load(), time.Duration(l.longest.Load()).Round(time.Millisecond))
	// The last one rules the card as the first one did.
	for i, want := range []string{"gamma", "beta"} {
		r.reload(ctx, photos[i])
		got, err := n.curl(ctx, "img.example", "http://"+vip+"/photos/#.jpg", 20)
		if err != nil || got[want] != 20 {
			t.Errorf("photos to %s: %v, %v", want, got, err)
		}
	}
	r.await(ctx, "all pages are free again", func() bool { return r.number(ctx, "pages.free") == r.number(ctx, "pages.total") })
}

// sessions is how many connections stay open.
const sessions = 8

// pace is the time from one request of a client to its next.
const pace = 5 * time.Millisecond

// load is requests on connections that stay, and on new ones.
type load struct {
	t                    *testing.T
	stop                 context.CancelFunc
	group                sync.WaitGroup
	kept, fresh, longest atomic.Int64
}

func newLoad(ctx context.Context, t *testing.T, n *network) *load {
	t.Helper()
	ctx, stop := context.WithCancel(ctx)
	l := &load{t: t, stop: stop}
	for i := range sessions {
		s, err := n.dial(ctx, []string{vip, vip6}[i%2])
		must(t, err)
		l.group.Go(func() {
			defer s.conn.Close()
			for j := range paced(ctx) {
				if !l.measure(fmt.Sprintf("connection %d that stays", i), func() error { return s.get(fmt.Sprintf("/kept/%d/%d", i, j)) }) {
					return
				}
				l.kept.Add(1)
			}
		})
	}
	for i := range 2 {
		l.group.Go(func() {
			for j := range paced(ctx) {
				fresh := func() error {
					dialing, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
					defer cancel()
					s, err := n.dial(dialing, []string{vip, vip6}[i%2])
					if err != nil {
						return err
					}
					defer s.conn.Close()
					return s.get(fmt.Sprintf("/fresh/%d/%d", i, j))
				}
				if !l.measure("a new connection", fresh) {
					return
				}
				l.fresh.Add(1)
			}
		})
	}
	return l
}

// paced counts until ctx ends.
func paced(ctx context.Context) iter.Seq[int] {
	return func(yield func(int) bool) {
		tick := time.NewTicker(pace)
		defer tick.Stop()
		for i := 0; yield(i); i++ {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}
}

// measure makes a request.
func (l *load) measure(what string, request func() error) bool {
	watch := devicetest.NewStopwatch()
	err := request()
	took := watch.Stop()
	for old := l.longest.Load(); int64(took) > old && !l.longest.CompareAndSwap(old, int64(took)); old = l.longest.Load() {
	}
	if err != nil || took > patience {
		l.t.Errorf("%s: %v, after %v", what, err, took.Round(time.Millisecond))
		return false
	}
	return true
}

// progress waits until every kind of request was made some more times.
func (l *load) progress(ctx context.Context, when string) {
	l.t.Helper()
	kept, fresh := l.kept.Load()+4*sessions, l.fresh.Load()+8
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for l.kept.Load() < kept || l.fresh.Load() < fresh {
		select {
		case <-tick.C:
		case <-ctx.Done():
			l.t.Fatalf("no progress %s: %v", when, context.Cause(ctx))
		}
		if l.t.Failed() {
			l.t.FailNow()
		}
	}
}

// end ends the load. It may be called twice.
func (l *load) end() {
	l.stop()
	l.group.Wait()
}
