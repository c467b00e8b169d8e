package emu

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"splicenic/regs"
)

// named collects what the card's code takes from package regs.
func named(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if x, ok := n.(*ast.SelectorExpr); ok {
				if id, ok := x.X.(*ast.Ident); ok && id.Name == "regs" {
					names[x.Sel.Name] = true
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// goName is the name of a constant of package regs.
func goName(parts ...string) string {
	var b strings.Builder
	for _, p := range strings.Split(strings.Join(parts, "_"), "_") {
		b.WriteString(strings.ToUpper(p[:1]) + p[1:])
	}
	return b.String()
}

// TestEveryCounterCounts: each counter of the map stands somewhere in the card's code, and so does each way in which a
// connection can end. One that nothing ever counts would only say that nothing happened.
func TestEveryCounterCounts(t *testing.T) {
	names := named(t)
	counters := 0
	for _, b := range regs.Blocks {
		for _, r := range b.Registers {
			if r.Class != regs.ClassCounter {
				continue
			}
			counters++
			if name := goName(b.Name, r.Name); !names[name] {
				t.Errorf("%s.%s: no code of the card names regs.%s", b.Name, r.Name, name)
			}
		}
	}
	if counters < 100 {
		t.Errorf("%d counters: this cannot be all", counters)
	}
	for _, f := range regs.Formats {
		if f.Name != "event" {
			continue
		}
		for _, w := range f.Words {
			for _, fd := range w.Fields {
				for _, v := range fd.Values {
					if name := goName(f.Name, w.Name, fd.Name, v.Name); w.Name == "reason" && v.Value != 0 && !names[name] {
						t.Errorf("event reason %s: no code of the card names regs.%s", v.Name, name)
					}
				}
			}
		}
	}
}
