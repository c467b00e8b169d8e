package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"splicenic/bitstream/program"
	"splicenic/driver/device"
	"splicenic/runtime/admin"
	"splicenic/tools/control"
)

// TestBoot: with a runtime in one process the card boots golden again, and services run afterwards.
func TestBoot(t *testing.T) {
	cfg, log := write(t, "emu")
	configure(t, cfg, "CARD", "emu")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cfg.Ready = func(r Ready) {
		go func() {
			defer cancel()
			c, err := control.Open(ctx, control.Config{Socket: r.Socket})
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			if _, err := c.Boot(ctx, admin.BootRequest{}, nil); err == nil {
				t.Error("booted without being told that services may be interrupted")
			}
			p, err := c.BootPlan(ctx, admin.BootRequest{Drain: time.Minute})
			if err != nil || len(p.Steps) < 5 || !strings.Contains(p.Steps[0], "drain the services: new connections are refused, those there are have 1m0s to end") || p.Seconds <= 0 || p.AtMost < 60 {
				t.Errorf("%+v, %v", p, err)
			}
			var steps []string
			st, err := c.Boot(ctx, admin.BootRequest{Live: true}, func(s string) { steps = append(steps, s) })
			if told := strings.Join(steps, "; "); !strings.HasPrefix(told, "drain the services; ") || !strings.Contains(told, "boot slot 0; wait for the card") || !strings.HasSuffix(told, "start the services") {
				t.Errorf("told %s", told)
			}
			if err != nil || st.State != admin.BootDone || st.Outcome == nil || !st.Outcome.Booted || !st.Drained {
				t.Errorf("%+v, %v", st, err)
			}
			var now admin.Status
			if _, err := c.Get(ctx, "status", nil, &now); err != nil || !now.Accepting {
				t.Errorf("afterwards %+v, %v", now, err)
			}
		}()
	}
	if err := Run(ctx, cfg); err != nil {
		t.Errorf("%v\n%s", err, log)
	}
}

// TestBootEnded: a runtime that ends after its card has booted says why to whoever waits, also if the daemon answered on the
// socket for a while.
func TestBootEnded(t *testing.T) {
	for _, tt := range []struct {
		name        string
		served      bool // by the daemon
		err         error
		before, why string
		lost        bool
	}{
		{"not up", false, errors.New("bring card up: boom"), "", "bring card up: boom", false},
		{"up for a while", true, errors.New("apply: boom"), "", "apply: boom", false},
		{"another image than wanted", false, errors.New("apply: boom"), "health gate", "health gate; and services do not run: apply: boom", false},
		{"lost", true, fmt.Errorf("card: %w", device.ErrDeviceLost), "", "card: ", true},
		{"told to end", false, nil, "", "the runtime was told to end", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "s")
			l, err := admin.Listen(path)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			log := slog.New(slog.DiscardHandler)
			r := &runner{cfg: Config{Log: log}, listener: l, boots: newBooter(log), booted: true}
			r.boots.change(func(st *admin.BootState) {
				st.State, st.Error, st.Outcome = admin.BootStarting, tt.before, &program.Outcome{Booted: true}
			})
			if !tt.served {
				r.quietBoot = r.serveBoot(t.Context())
			}
			ended := make(chan struct{})
			go func() {
				r.ended(t.Context(), tt.err)
				close(ended)
			}()
			var st admin.BootState
			for st.State != admin.BootEnded {
				c, err := control.Open(t.Context(), control.Config{Socket: path})
				if err != nil {
					t.Fatal(err)
				}
				_, err = c.Get(t.Context(), "boot", nil, &st)
				c.Close()
				if err != nil {
					t.Fatal(err)
				}
			}
			<-ended
			if !strings.HasPrefix(st.Error, tt.why) || st.Lost != tt.lost {
				t.Errorf("%+v", st)
			}
		})
	}
}
