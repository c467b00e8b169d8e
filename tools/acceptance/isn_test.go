package acceptance

import (
	"context"
	"os/exec"
	"regexp"
	"strconv"
	"testing"
	"time"
)

// topGrade is the difficulty from which nmap calls a sequence unpredictable.
const topGrade = 16

var gradeLine = regexp.MustCompile(`TCP Sequence Prediction: Difficulty=(\d+) \((.*)\)`)

// TestISNGrade has nmap grade the initial sequence numbers of a VIP.
func TestISNGrade(t *testing.T) {
	need(t, "nmap", "nmap")
	for _, tt := range []struct{ name, service string }{
		{"keyed", ""},
		{"cookies", ", defence: always"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newField(t, 1, 1)
			f.supports(t, "defence: always", tt.service)
			f.begin(fieldConfig(1, []int{plainPort}, tt.service, func(int, int) string { return "" }))
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			out, err := f.clients[0].Command(ctx, "nmap", "-n", "-Pn", "-v", "-O", "--max-os-tries", "1", "-p", "80,81", "198.18.0.100").CombinedOutput()
			if err != nil {
				t.Fatalf("nmap: %v\n%s", err, out)
			}
			m := gradeLine.FindSubmatch(out)
			if m == nil {
				t.Fatalf("nmap says nothing about sequences:\n%s", out)
			}
			difficulty, err := strconv.Atoi(string(m[1]))
			must(t, err)
			if difficulty < topGrade || string(m[2]) != "Good luck!" {
				t.Errorf("got difficulty %d (%s), want at least %d (Good luck!)", difficulty, m[2], topGrade)
			}
			t.Logf("difficulty %d (%s)", difficulty, m[2])
		})
	}
}

// supports skips the test where this build's configuration refuses a line it needs as not supported yet.
func (f *field) supports(t *testing.T, what, line string) {
	t.Helper()
	if line == "" {
		return
	}
	config := fieldConfig(1, []int{plainPort}, line, func(int, int) string { return "" })
	file := f.write("check.yaml", config)
	if out, err := exec.Command(binary, "config", "check", "-c", file).CombinedOutput(); err != nil {
		if regexp.MustCompile(`not supported yet`).Match(out) {
			t.Skipf("%s is not supported yet by this build", what)
		}
		t.Fatalf("config check: %v\n%s", err, out)
	}
}
