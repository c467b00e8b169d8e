package demo

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"splicenic/tools/netlab"
)

// TestInMemory runs the demo without namespaces: every request goes right, every page is free again.
func TestInMemory(t *testing.T) {
	var live bytes.Buffer
	r, err := RunInMemory(t.Context(), 300, "test", &live)
	if err != nil {
		t.Fatalf("%v\n%s", err, live.Bytes())
	}
	if r.Requests.OK != 300 || r.Requests.Failed != 0 {
		t.Errorf("%d ok, %d failed\n%s", r.Requests.OK, r.Requests.Failed, live.Bytes())
	}
	if r.Card.Pages.Free != r.Card.Pages.Total || r.Card.Heads.Free != r.Card.Heads.Total {
		t.Errorf("not all free: %+v", r.Card)
	}
	t.Logf("%s", live.Bytes()[:min(2000, live.Len())])
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := json.Unmarshal(b, &doc); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"requests", "servers", "card", "mode"} {
		if _, ok := doc[name]; !ok {
			t.Errorf("no %s in %s", name, b)
		}
	}
}

// TestInMemoryAgain runs it twice: the same lines, to the last digit.
func TestInMemoryAgain(t *testing.T) {
	var lines [2]bytes.Buffer
	for i := range lines {
		if _, err := RunInMemory(t.Context(), 40, "test", &lines[i]); err != nil {
			t.Fatal(err)
		}
	}
	if d := cmp.Diff(lines[0].String(), lines[1].String()); d != "" {
		t.Error(d)
	}
}

// TestInNamespaces runs it with the kernel's TCP at both ends.
func TestInNamespaces(t *testing.T) {
	var live bytes.Buffer
	r, err := Run(t.Context(), 300, &live)
	if errors.Is(err, netlab.ErrNotPermitted) {
		t.Skipf("needs root: go test ./tools/demo as root (%v)", err)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, live.Bytes())
	}
	if r.Requests.OK != 300 || r.Requests.Failed != 0 {
		t.Errorf("%d ok, %d failed\n%s", r.Requests.OK, r.Requests.Failed, live.Bytes())
	}
	if r.Card.Pages.Free != r.Card.Pages.Total || r.Card.Heads.Free != r.Card.Heads.Total {
		t.Errorf("not all free: %+v", r.Card)
	}
	t.Logf("%s", live.Bytes()[:min(2000, live.Len())])
}

// TestWrongAnswers puts answers on the board that must not count: of a server the rules do not lead to, of another server
// than the page names, and none at all.
func TestWrongAnswers(t *testing.T) {
	alpha := netip.MustParseAddrPort("198.18.1.11:80")
	for _, tt := range []struct {
		name string
		o    Outcome
		want int // failed
	}{
		{"right", Outcome{Server: "alpha", sight: sight{server: alpha}}, 0},
		{"wrong group", Outcome{Server: "gamma", sight: sight{server: alpha}}, 1},
		{"not the page's server", Outcome{Server: "beta", sight: sight{server: alpha}}, 1},
		{"error", Outcome{Error: "connection reset"}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var r Report
			newBoard(nil, &r).add(tt.o, []string{"alpha", "beta"})
			if r.Requests.Failed != tt.want || r.Requests.OK != 1-tt.want {
				t.Errorf("%d ok, %d failed, want %d failed", r.Requests.OK, r.Requests.Failed, tt.want)
			}
			if err := r.verdict(nil); (err != nil) != (tt.want > 0) {
				t.Errorf("verdict %v", err)
			}
		})
	}
}
