package config

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// whole loads a text without taking runs out of it.
func whole(text []byte) (*Config, error) {
	d := &decoder{file: "x.yaml"}
	if at, why := screen(text); why != "" {
		d.problem(at, "", "%s", why)
		return nil, d.problems
	}
	return d.load(d.tree(text), text)
}

// sameAsWhole compares what a text means with runs taken out and without, positions and all.
func sameAsWhole(t *testing.T, text string) {
	t.Helper()
	got, err := Load("x.yaml", []byte(text))
	want, wantErr := whole([]byte(strings.TrimPrefix(text, "\ufeff")))
	if wantErr != nil || err != nil {
		if fmt.Sprint(err) != fmt.Sprint(wantErr) {
			t.Errorf("%s\nerror\n%v\nwant\n%v", text, err, wantErr)
		}
		return
	}
	got.Text, want.Text = "", ""
	if diff := cmp.Diff(want, got, ignored[1:], cmp.AllowUnexported(Position{})); diff != "" {
		t.Errorf("%s\n(-want +got):\n%s", text, diff)
	}
}

// TestRows reads lists with runs of lines in every place and shape.
func TestRows(t *testing.T) {
	routes := func(lines string) string {
		return spoken("default: app\nroutes:\n  " + strings.ReplaceAll(strings.TrimSpace(lines), "\n", "\n  "))
	}
	for _, tt := range []struct {
		name, text string
		runs, rows int
	}{
		{"none", small, 0, 0},
		{"one line", routes("- {path: /a, to: app}"), 0, 0},
		{"three lines", routes("- {path: /a, to: app}\n- {path: /b/*, to: app}\n- {host: c.example, to: app}"), 1, 2},
		{"not indented", strings.ReplaceAll(routes("- {path: /a, to: app}\n- {path: /b, to: app}"), "\n      - ", "\n    - "), 1, 1},
		{"quoted", routes("- {path: \"/a\", to: \"app\"}\n- {path: \"/b\", to: \"app\"}\n- {host: \"*.c\", to: app}"), 1, 2},
		{"other things between", routes("- {path: /a, to: app}\n- {path: /b, to: app}\n# remark\n- {path: /c, to: app}\n- path: /d\n  to: app\n- {path: /e, to: {reply: 404}}\n- {path: /f, to: app}\n- {path: /g, to: app}"), 2, 2},
		{"empty lines between", routes("- {path: /a, to: app}\n\n- {path: /b, to: app}\n- {path: /c, to: app}"), 1, 1},
		{"problems", routes("- {path: /a, to: app}\n- {path: b, too: app}\n- {path: /c, path: /d, to: apq}"), 1, 2},
		{"findings", routes("- {path: /a, to: app}\n- {path: /a, to: app}\n- {path: /a, to: app}"), 1, 2},
		{"values of other kinds", routes("- {path: /a, to: app}\n- {path: 7, to: app}\n- {path: true, to: app}\n- {path: *x, to: app}\n- {path: 'x', to: app}\n- {path: /b, to: app}"), 0, 0},
		{"servers", small + "      - {address: x, weight: z}\n      - {address: x, weight: z}\n", 1, 1},
		{"in a block of text", spoken("default: app\nroutes:\n  - path: /a\n    to:\n      reply:\n        status: 200\n        body: |\n          - {a: b}\n          - {c: d}"), 1, 1},
		{"in quotes", spoken("default: app\nroutes:\n  - path: /a\n    to: {reply: {status: 200, body: \"\n\n      - {a: b}\n      - {c: d}\n      \"}}"), 1, 1},
		{"in brackets", spoken("default: app\nroutes: [\n  - {path: /a}\n  - {path: /b}\n  ]"), 1, 1},
		{"deeper behind", routes("- {path: /a, to: app}\n- {path: /b, to: app}\n    to: app"), 1, 1},
		{"deeper below", routes("- {path: /a, to: app}\n  - {path: /b, to: app}\n  - {path: /b, to: app}"), 1, 1},
		{"less deep", routes("- {path: /a, to: app}\n- {path: /b, to: app}") + "- {a: b}\n- {a: b}\n", 2, 2},
		{"a key that begins like a line", "x:\n- {a: b}\n- {a: b}\n" + small, 1, 1},
		{"at the top", "- {a: b}\n- {a: b}\n", 1, 1},
		{"byte order mark", "\ufeff- {a: b}\n- {a: b}\n", 1, 1},
		{"without an end of line", "- {a: b}\n- {a: b}", 1, 1},
		{"carriage returns", "- {a: b}\r\n- {a: b}\r\n", 0, 0},
		{"words that are none", "- {a: b}\n- {a: yes}\n- {a: \"b\\n\"}\n- {a: b }\n- {a: b,c: d}\n- {a: b} # x\n- {a: .5}\n- {a: b: c}\n-  {a: b}\n- { a: b}\n- {}\n- {a}\n- {null: x}\n", 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, runs := fold([]byte(strings.TrimPrefix(tt.text, "\ufeff")))
			rows := 0
			for _, r := range runs {
				rows += len(r.rows)
			}
			if len(runs) != tt.runs || rows != tt.rows {
				t.Errorf("%d runs, %d rows; want %d, %d", len(runs), rows, tt.runs, tt.rows)
			}
			sameAsWhole(t, tt.text)
		})
	}
}

// TestHundredThousandRoutes: as many routes as a card holds are checked.
func TestHundredThousandRoutes(t *testing.T) {
	const n = 100_000
	var b strings.Builder
	b.WriteString("default: app\nroutes:")
	for i := range n {
		fmt.Fprintf(&b, "\n  - {host: h%d.example, path: /p/%d/*, to: app}", i/10, i)
	}
	c := load(t, spoken(b.String()))
	s := &c.Services[0]
	if len(s.Routes) != n || len(c.Warnings) != 0 || s.Routes[n-1].At != (Position{Line: n + 9, Column: 9}) || s.Routes[n-1].item != n-1 {
		t.Errorf("%d routes, %d warnings, the last is %+v", len(s.Routes), len(c.Warnings), s.Routes[len(s.Routes)-1])
	}
	if _, err := Load("x.yaml", []byte(spoken(b.String()+"\n  - {path: /p, to: apq}"))); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("x.yaml:%d:24: services[0].routes[%d].to: there is no group apq", n+10, n)) {
		t.Errorf("error %v", err)
	}
}

// FuzzRows compares both ways to read a text.
func FuzzRows(f *testing.F) {
	f.Add("- {a: b}\n- {a: b}\n")
	f.Add(spoken("default: app\nroutes:\n  - {host: a, path: /a/*, to: app}\n  - {host: \"*.b\", path: /b, to: app}\n  - {to: app}"))
	f.Add("x: |\n  - {a: b}\n  - {a: b}\n")
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) < 1<<12 {
			sameAsWhole(t, text)
		}
	})
}

func BenchmarkHundredThousandRoutes(b *testing.B) {
	var text strings.Builder
	text.WriteString("default: app\nroutes:")
	for i := range 100_000 {
		fmt.Fprintf(&text, "\n  - {host: h%d.example, path: /p/%d/*, to: app}", i/10, i)
	}
	file := []byte(spoken(text.String()))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Load("x.yaml", file); err != nil {
			b.Fatal(err)
		}
	}
}
