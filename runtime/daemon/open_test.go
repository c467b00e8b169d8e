package daemon_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"splicenic/driver/device"
	"splicenic/regs"
	"splicenic/runtime/daemon"
	"splicenic/runtime/view"
)

func opened(d *daemon.Daemon) bool {
	select {
	case <-d.Accepting():
		return true
	default:
		return false
	}
}

// TestEarlyConnectionsWait: a connection that is opened before the next hops are known is served, not refused.
func TestEarlyConnectionsWait(t *testing.T) {
	r := newRig(t, small)
	r.httpServers("198.18.1.11:8080", "198.18.1.12:8080", "198.18.1.21:80", "198.18.1.31:80")
	c := r.client("198.18.0.10")
	a := r.load(web)
	conn := c.get("198.18.0.80:80", "www.example", "/")
	closed := c.get("198.18.0.80:81", "www.example", "/")
	if a.Generation != 1 || r.d.Status().Accepting || opened(r.d) || r.card.Load(regs.AmuControl) != 0 {
		t.Errorf("generation %d, accepting %v, open %v, enabled %#x before the first step", a.Generation, r.d.Status().Accepting, opened(r.d), r.card.Load(regs.AmuControl))
	}
	r.until("refusal of a closed port", time.Second, func() bool { return c.reset == 1 })
	if closed.State() == conn.State() {
		t.Errorf("both connections are %v", conn.State())
	}
	r.until("card opens", 100*time.Millisecond, func() bool { return r.d.Status().Accepting })
	if !opened(r.d) || r.d.Status().Unresolved != 0 || r.card.Load(regs.AmuControl) == 0 {
		t.Errorf("open %v, %d unresolved, enabled %#x", opened(r.d), r.d.Status().Unresolved, r.card.Load(regs.AmuControl))
	}
	if _, generation := r.card.Bank(); generation != 1 {
		t.Errorf("generation %d is in force", generation)
	}
	r.until("answer", 5*time.Second, func() bool { return c.open == 0 })
	if _, body, _ := strings.Cut(c.answers[conn], "\r\n\r\n"); body != "198.18.1.11:8080" || c.reset != 1 {
		t.Errorf("answered by %q, %d resets", body, c.reset)
	}
	if n := r.d.Counters()["actions"].(view.Stats)["drop_opening"]; n == uint64(0) {
		t.Error("no early SYN was counted")
	}
}

// TestOpensWithoutNextHops: a server that does not answer is waited for, but not for ever.
func TestOpensWithoutNextHops(t *testing.T) {
	r := newRig(t, small)
	d := r.d
	r.httpServers("198.18.1.12:8080", "198.18.1.21:80", "198.18.1.31:80")
	c := r.client("198.18.0.10")
	r.load(web)
	r.run(time.Millisecond)
	start := r.now
	if got := d.Next(); got > start+2*time.Second {
		t.Errorf("the next step is due at %v", got)
	}
	r.run(1999 * time.Millisecond)
	if d.Status().Accepting {
		t.Errorf("open after %v", r.now-start)
	}
	// A change in between is written and counts when the card opens.
	a := r.load(edit(t, web, "/api/*", "/app/*"))
	r.run(time.Millisecond)
	if st := d.Status(); !st.Accepting || st.Unresolved != 1 {
		t.Errorf("accepting %v, %d unresolved after %v", st.Accepting, st.Unresolved, r.now-start)
	}
	if _, generation := r.card.Bank(); generation != 1 || a.Generation != 1 {
		t.Errorf("generation %d, applied %d", generation, a.Generation)
	}
	if !strings.Contains(r.log.String(), "missing=1 first=198.18.1.11") {
		t.Errorf("the log does not tell what is missing:\n%s", &r.log)
	}
	for path, want := range map[string]string{"/app/x": "198.18.1.31:80", "/api/x": "198.18.1.12:8080"} {
		if got := c.fetch("198.18.0.80:80", "x", path); got != want {
			t.Errorf("%s is answered by %q, want %q", path, got, want)
		}
	}
}

// TestResetOpensAgain: after a reset known next hops are not waited for.
func TestResetOpensAgain(t *testing.T) {
	r := newRig(t, small)
	r.httpServers("198.18.1.11:8080", "198.18.1.12:8080", "198.18.1.21:80", "198.18.1.31:80")
	r.apply(web)
	if err := r.d.Reset(context.Background()); err != nil {
		t.Fatal(err)
	}
	if st := r.d.Status(); !st.Accepting || st.Attached != daemon.Reset || r.card.Load(regs.AmuControl) == 0 {
		t.Errorf("accepting %v, attached %s", st.Accepting, st.Attached)
	}
	if bank, generation := r.card.Bank(); bank != 1 || generation != 2 {
		t.Errorf("bank %d, generation %d", bank, generation)
	}
}

// TestRunEndsWithTheCard: Run says within two seconds that the card is lost, whether the card says so or not.
func TestRunEndsWithTheCard(t *testing.T) {
	for _, tt := range []struct {
		name string
		lose func(*rig)
	}{
		{"silently", func(r *rig) { r.emu.Lose() }},
		{"with a notice", func(r *rig) { r.card.Device().Lose(device.ErrDeviceLost) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, small)
			d, err := daemon.New(daemon.Config{Card: r.card}) // with a clock that runs
			if err != nil {
				t.Fatal(err)
			}
			if _, err := d.Apply(t.Context(), mustParse(t, web)); err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() { done <- d.Run(t.Context()) }()
			tt.lose(r)
			select {
			case err = <-done:
				if !errors.Is(err, device.ErrDeviceLost) {
					t.Errorf("run: %v", err)
				}
			case <-time.After(2 * time.Second):
				t.Fatal("run goes on")
			}
		})
	}
}
