package main

import (
	"strings"
	"testing"

	"splicenic/bitstream/program"
	"splicenic/runtime/admin"
	"splicenic/tools/control"
)

// A boot whose image runs while the services do not has failed, and says why and what to do.
func TestServicesGone(t *testing.T) {
	st := admin.BootState{State: admin.BootEnded, Outcome: &program.Outcome{Slot: 2, Running: 2, Booted: true, Answers: true, Identity: &program.Identity{Name: "next", Version: "2.0.0"}}}
	for _, tt := range []struct {
		why  string
		lost bool
		exit int
		want string
	}{
		{"bring card up: boom", false, control.ExitFailed, "services did not start again: bring card up: boom"},
		{"", false, control.ExitFailed, "did not say why"},
		{"card: device lost", true, control.ExitCard, "device lost"},
	} {
		st.Error, st.Lost = tt.why, tt.lost
		f := control.Explain("boot", servicesGone(st))
		var text strings.Builder
		f.Print(&text, "splicectl bitstream boot")
		if f.Exit != tt.exit || !strings.Contains(text.String(), `slot 2 runs: "next" 2.0.0, but `) || !strings.Contains(text.String(), tt.want) || !strings.Contains(text.String(), "splicectl run") {
			t.Errorf("exit code %d\n%s", f.Exit, text.String())
		}
	}
}
