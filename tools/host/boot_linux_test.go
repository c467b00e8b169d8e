package host

import (
	"context"
	"testing"
	"time"

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
			st, err := c.Boot(ctx, admin.BootRequest{Live: true}, nil)
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
