package slots

import (
	"strings"
	"testing"

	"splicenic/bitstream/program"
)

// What runs is told as the card knows it: the slot that failed only while it is the next one, and no golden image where the
// shell is alone.
func TestListRuns(t *testing.T) {
	for _, tt := range []struct {
		name string
		next int
		want string
	}{
		{"emulator", 1, "runs: emulator 0.0.0 on board 1, IDCODE "},
		{"emulator", 1, ", because slot 1 did not boot: crc\n"},
		{"emulator", 0, ", because the image that was booted last did not load: crc\n"},
		{"", 0, "runs: only the shell, no image is loaded, on board 1, IDCODE "},
	} {
		var w strings.Builder
		l := List{Identity: program.Identity{Name: tt.name, Version: "0.0.0", Board: 1}, Boot: program.Boot{Fallback: true, Next: tt.next, Error: "crc"}}
		l.Text(&w)
		if !strings.Contains(w.String(), tt.want) {
			t.Errorf("got %s, want %s", w.String(), tt.want)
		}
	}
}
