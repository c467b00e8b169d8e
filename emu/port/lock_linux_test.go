package port_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"splicenic/emu/frame"
	"splicenic/emu/port"
)

// TestPcapShared opens two ports on files of which one is another's output, by whatever name: the second is refused and
// harms nothing. Two may read one file, and a device takes the output of both.
func TestPcapShared(t *testing.T) {
	const refusal = "another port has this file open"
	for _, tt := range []struct {
		name, first, second string // IN,OUT in a directory with captures a and b, and link to the output out
		want                string // empty: fine
	}{
		{"one output", "a,out", "b,out", "write capture %s/out: " + refusal},
		{"one output by a link", "a,out", "b,link", "write capture %s/link: " + refusal},
		{"output is the other's input", "a,out", "b,a", "write capture %s/a: " + refusal},
		{"input is the other's output", ",out", "out,", "read capture %s/out: " + refusal},
		{"one input", "a,out", "a,out2", ""},
		{"outputs apart", "a,out", "b,out2", ""},
		{"one device", "a,/dev/null", "b,/dev/null", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := filepath.Dir(capture(t, "a", shots(0)))
			a, err := os.ReadFile(filepath.Join(dir, "a"))
			check(t, err, os.WriteFile(filepath.Join(dir, "b"), a, 0o644), os.Symlink("out", filepath.Join(dir, "link")))
			spec := func(files string) string {
				in, out, _ := strings.Cut(files, ",")
				for _, name := range []*string{&in, &out} {
					if *name != "" && !filepath.IsAbs(*name) {
						*name = filepath.Join(dir, *name)
					}
				}
				return "pcap:" + in + "," + out
			}
			first, err := port.Open(spec(tt.first))
			check(t, err)
			first.Transmit([]*frame.Frame{wrap(make([]byte, 60), frame.Offload{})})
			second, err := port.Open(spec(tt.second))
			if tt.want == "" {
				check(t, err, second.Close())
			} else if want := fmt.Sprintf("open port %q: "+tt.want, spec(tt.second), dir); err == nil || err.Error() != want {
				t.Errorf("got  %v\nwant %s", err, want)
			}
			check(t, first.Close())
			if got, err := os.ReadFile(filepath.Join(dir, "a")); err != nil || !bytes.Equal(got, a) {
				t.Errorf("the input was harmed: %d bytes of %d, %v", len(got), len(a), err)
			}
			if out, _ := filepath.Match("*,out", tt.first); out {
				if st, err := os.Stat(filepath.Join(dir, "out")); err != nil || st.Size() != 24+16+60 {
					t.Errorf("the output was harmed: %v, %v", st, err)
				}
			}
			// Closing lets go of the files.
			again, err := port.Open(spec(tt.first))
			check(t, err, again.Close())
		})
	}
}
