package show

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"splicenic/runtime/view"
)

// TestSilicon checks the arithmetic: the CAM of the default image, and a part that holds 288K addresses without ports.
func TestSilicon(t *testing.T) {
	for _, tt := range []struct {
		name          string
		words, bits   uint32
		bitsWant, dev uint64
	}{
		{"default", 3 << 20, 144, 452_984_832, 24},
		{"one device of 64 bits", 288 << 10, 64, 18 << 20, 1},
		{"one device of 144 bits", 128 << 10, 144, 18 << 20, 1},
		{"one device of 288 bits", 64 << 10, 288, 18 << 20, 1},
		{"a word more", 128<<10 + 4, 144, 18<<20 + 576, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := SiliconOf(map[string]uint32{"cam_client_words": tt.words, "cam_word_bits": tt.bits})
			if s.CAMBits != tt.bitsWant || s.CAMDevices != tt.dev || s.AddressesInOne != 288<<10 {
				t.Errorf("got %d bits in %d devices, want %d in %d", s.CAMBits, s.CAMDevices, tt.bitsWant, tt.dev)
			}
		})
	}
}

func TestDiffRegisters(t *testing.T) {
	n := func(v uint64) *uint64 { return &v }
	from := []view.Register{{Name: "same", Value: n(1)}, {Name: "changed", Value: n(1)}, {Name: "counter", Value: n(1), Class: "counter"}, {Name: "gone", Value: n(5)}}
	to := []view.Register{{Name: "same", Value: n(1)}, {Name: "changed", Value: n(2)}, {Name: "counter", Value: n(2), Class: "counter"}, {Name: "new", Value: n(3)}, {Name: "secret"}, {Name: "who", Value: n(3), Class: "identity"}}
	want := []Change{{"changed", n(1), n(2)}, {"new", nil, n(3)}, {"gone", n(5), nil}}
	if d := cmp.Diff(want, DiffRegisters(from, to, false)); d != "" {
		t.Error(d)
	}
	if got := DiffRegisters(from, to, true); len(got) != 4 || got[1].Name != "counter" {
		t.Errorf("with counters: %+v", got)
	}
	if got := DiffRegisters(from, from, true); got == nil || len(got) != 0 {
		t.Errorf("nothing changed: %#v, want an empty list", got)
	}
}

// TestPageText shows a page with its head: every word by name, the place of the page, the request.
func TestPageText(t *testing.T) {
	var b bytes.Buffer
	PageText(&b, view.Page{N: 17, L: "0x1100", State: "server_syn",
		Fields: map[string]any{"control.state": "server_syn", "ports.client": 40000.0, "client_isn": 4294967295.0, "client_address": []any{1.0, 0.0, 0.0, 0.0}},
		Head:   &view.Head{Buffer: 3, Bytes: 36, Text: "GET / HTTP/1.1\r\nHost: \x01\r\n\r\n"}})
	for _, want := range []string{"page 17 at L = n × m = 0x1100, server_syn\n", "state=server_syn", "client=40000", "client_isn          4294967295", "[1 0 0 0]",
		"head buffer 3, 36 bytes", `| "GET / HTTP/1.1"`, `\x01`} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

// TestNumbers: a counter is an integer, however large.
func TestNumbers(t *testing.T) {
	var doc any
	if err := json.Unmarshal([]byte(`{"a":1048576,"b":[18446744073709549568],"c":1.5,"d":true,"e":0}`), &doc); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	Document(&b, doc)
	const want = "a     1048576\nb[0]  18446744073709549568\nc     1.5\nd     true\ne     0\n"
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

// TestRules: what nothing counts is a dash, what was never hit is 0, and what is slow says why.
func TestRules(t *testing.T) {
	var b bytes.Buffer
	Rules(&b, []view.Rule{
		{Service: "web", Path: "/x", Match: "exact", When: []string{"method GET", "header a=1"}, Group: "app", Hits: new(uint64), Decides: "card", InForce: true},
		{Order: 1, Service: "web", Path: "/y", Match: "regex", Answer: "reply 403", Hits: new(uint64), Decides: "host", Slow: "its path is a regular expression", InForce: true},
		{Order: 2, Service: "web", Match: "default", Decides: "card", InForce: true},
	})
	const want = "ORDER  INDEX  SERVICE  HOST  PATH  MATCH    WHEN                    TO         HITS  DECIDES     IN-FORCE\n" +
		"0      -      web      -     /x    exact    method GET; header a=1  app        0     card        yes\n" +
		"1      -      web      -     /y    regex    -                       reply 403  0     host, slow  yes\n" +
		"2      -      web      -     -     default  -                       -          -     card        yes\n" +
		"slow: order 1 of web: its path is a regular expression\n"
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

func TestSelect(t *testing.T) {
	var doc any
	if err := json.Unmarshal([]byte(`{"pages":{"free":3,"list":[1,2]},"name":"x","none":null}`), &doc); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, want string }{
		{"pages.free", "  3\n"}, {"pages", "free     3\nlist[0]  1\nlist[1]  2\n"}, {"name", "  x\n"}, {"none", "  -\n"}, {"pages.used", ""}, {"name.x", ""},
	} {
		part, ok := Select(doc, tt.name)
		var b bytes.Buffer
		if ok {
			Document(&b, part)
		}
		if b.String() != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, b.String(), tt.want)
		}
	}
}

// TestAnswersAreDocuments checks the form of JSON answers: one document, a list that is empty is [].
func TestAnswersAreDocuments(t *testing.T) {
	var b bytes.Buffer
	if err := JSON(&b, RegisterDocs("nothing")); err != nil || b.String() != "[]\n" {
		t.Errorf("got %q, %v", b.String(), err)
	}
	doc, err := With(json.RawMessage(`{"a":1}`), "b", 2)
	if err != nil || string(doc) != `{"a":1,"b":2}` {
		t.Errorf("got %s, %v", doc, err)
	}
	if _, err := With(json.RawMessage(`[]`), "b", 2); err == nil {
		t.Error("a list took a key")
	}
}
