package datapath

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"slices"
	"testing"
)

// TestPageWordsCounted builds the package again with every page access of the packet mapping unit counted, and runs the
// test that holds the counts to their bounds.
func TestPageWordsCounted(t *testing.T) {
	if countsPageWords {
		t.Skip("this is the counting build: TestPageWords does the work")
	}
	if testing.Short() || raceEnabled {
		t.Skip("builds the package again; run: go test -tags pagewords -run TestPageWords ./emu/datapath")
	}
	cmd := exec.Command("go", "test", "-tags", "pagewords", "-count", "1", "-run", "^Test(Passed)?PageWords$", "-v", ".")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("go test -tags pagewords: %v\n%s", err, out)
	}
	t.Logf("%s", out)
}

// TestPageAccessesAreCounted keeps every access of the unit to a page in ld and st, where the counting build sees it.
func TestPageAccessesAreCounted(t *testing.T) {
	for file, checked := range map[string]func(name string) bool{
		"pmu.go":   func(name string) bool { return name != "differences" }, // of the arming
		"close.go": func(string) bool { return true },
		"pass.go": func(name string) bool {
			return name == "passOn" || name == "direct" || name == "closingOneSided" || name == "datagramToServer" || name == "datagramToClient"
		},
		"kind.go":    func(name string) bool { return name == "rangeOfRST" || name == "outOfPlace" },
		"server.go":  func(name string) bool { return name == "heldAcked" },
		"request.go": func(name string) bool { return name == "addBytes" },
		"amu.go":     func(name string) bool { return name == "releaseHead" },
	} {
		fs := token.NewFileSet()
		f, err := parser.ParseFile(fs, file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		var found []string
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || !checked(fn.Name.Name) {
				continue
			}
			found = append(found, fn.Name.Name)
			ast.Inspect(fn, func(n ast.Node) bool {
				if x, ok := n.(*ast.IndexExpr); ok {
					if id, ok := x.X.(*ast.Ident); ok && id.Name == "w" {
						t.Errorf("%v: %s reaches into the page past ld and st", fs.Position(x.Pos()), fn.Name.Name)
					}
				}
				return true
			})
		}
		if len(found) == 0 {
			t.Errorf("%s: no function of the unit is there: this test looks in the wrong place", file)
		}
		if file == "pmu.go" && (!slices.Contains(found, "toServer") || !slices.Contains(found, "toClient")) {
			t.Errorf("pmu.go: toServer and toClient are not among %v", found)
		}
	}
}
