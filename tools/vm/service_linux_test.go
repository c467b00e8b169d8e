package vm

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// socket is where the guest's runtime answers.
const socket = "/run/splicenic/splice.sock"

// A service is splicectl run in a guest. Its card is with a card process of the guest.
type service struct {
	t    *testing.T
	m    *Machine
	args []string
	cmd  *Command
}

// start starts it and waits until it serves.
func (r *service) start(ctx context.Context) {
	r.t.Helper()
	ready := make(chan struct{})
	var once sync.Once
	c, err := r.m.Start(Options{Follow: func(line string) {
		if strings.HasPrefix(line, "card process ") {
			once.Do(func() { close(ready) })
		}
	}}, append([]string{"/bin/splicectl", "run"}, r.args...)...)
	must(r.t, err)
	r.cmd = c
	select {
	case <-ready:
	case <-c.Done():
		log, _ := r.m.Get(ctx, strings.TrimSuffix(socket, ".sock")+".card.log")
		r.t.Fatalf("splicectl run has ended:\n%s\nits card process:\n%s", c.Output(), log)
	case <-ctx.Done():
		r.t.Fatalf("splicectl run: %v:\n%s", context.Cause(ctx), c.Output())
	}
}

// kill ends it without a word.
func (r *service) kill(ctx context.Context) {
	r.t.Helper()
	must(r.t, r.cmd.Signal(ctx, syscall.SIGKILL))
	exit, err := r.cmd.Wait(ctx)
	if err != nil || exit != 128+int(syscall.SIGKILL) {
		r.t.Fatalf("splicectl run, killed: exit code %d, %v\n%s", exit, err, r.cmd.Output())
	}
}

// stop ends it as an operator does.
func (r *service) stop(ctx context.Context) {
	r.t.Helper()
	must(r.t, r.cmd.Signal(ctx, syscall.SIGTERM))
	if exit, err := r.cmd.Wait(ctx); err != nil || exit != 0 {
		r.t.Errorf("splicectl run: exit code %d, %v\n%s", exit, err, r.cmd.Output())
	}
}

// fetch reads one of the runtime's documents.
func (r *service) fetch(ctx context.Context, name string, v any) {
	r.t.Helper()
	b, err := r.m.Fetch(ctx, socket, "/v1/"+name)
	must(r.t, err)
	must(r.t, json.Unmarshal(b, v))
}

// A status is what a runtime says of itself.
type status struct {
	Attached   string
	Accepting  bool
	Generation uint32
	Exceptions struct{ Lost uint64 }
	LastReload *struct {
		OK    bool
		At    time.Time
		Error string
	} `json:"last_reload"`
}

func (r *service) status(ctx context.Context) (s status) {
	r.t.Helper()
	r.fetch(ctx, "status", &s)
	return s
}

// number reads a number of the statistics by its dotted name.
func (r *service) number(ctx context.Context, name string) float64 {
	r.t.Helper()
	var v any
	r.fetch(ctx, "stats", &v)
	for key := range strings.SplitSeq(name, ".") {
		m, _ := v.(map[string]any)
		v = m[key]
	}
	n, ok := v.(float64)
	if !ok {
		r.t.Fatalf("stats have no number %s: %v", name, v)
	}
	return n
}

// await asks again and again until something holds.
func (r *service) await(ctx context.Context, what string, holds func() bool) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for !holds() {
		if ctx.Err() != nil {
			r.t.Fatalf("in vain: %s", what)
		}
	}
}

// msix matches a vector of a card in /proc/interrupts.
var msix = regexp.MustCompile(`(?m)^ *\d+: +(\d+) .*vfio-msix\[(\d+)\]\(([0-9a-f:.]+)\)`)

// interrupts are how often each vector of a card has interrupted the guest's processor.
func interrupts(ctx context.Context, t *testing.T, m *Machine, card string) map[int]int {
	t.Helper()
	text, err := m.Get(ctx, "/proc/interrupts")
	must(t, err)
	got := map[int]int{}
	for _, f := range msix.FindAllStringSubmatch(string(text), -1) {
		if f[3] == card {
			v, _ := strconv.Atoi(f[2])
			got[v], _ = strconv.Atoi(f[1])
		}
	}
	return got
}

// file is the runtime's configuration in the guest.
const file = "/etc/splice.yaml"

// write writes it; photos is the group that they go to.
func (r *service) write(ctx context.Context, photos string) {
	r.t.Helper()
	must(r.t, r.m.Put(ctx, file, fmt.Appendf(nil, configuration, "vfio:"+firstCard, photos)))
}

// reload has the runtime apply another configuration, and waits until the card has it.
func (r *service) reload(ctx context.Context, photos string) {
	r.t.Helper()
	at := func() time.Time {
		if l := r.status(ctx).LastReload; l != nil && !l.OK {
			r.t.Fatalf("the configuration was not applied: %s", l.Error)
		} else if l != nil {
			return l.At
		}
		return time.Time{}
	}
	before := at()
	r.write(ctx, photos)
	must(r.t, r.cmd.Signal(ctx, syscall.SIGHUP))
	r.await(ctx, "the configuration is applied", func() bool { return at().After(before) })
}
