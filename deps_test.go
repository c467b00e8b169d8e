// Package splicenic holds the rules of the source tree as tests: who may import whom, where unsafe may stand, and that
// every package says what it is. There is no code beside them.
package splicenic

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "splicenic"

// edges says what a package may import of this module. The first column is a package, or a tree with "/..."; the most
// exact line wins, and a package without a line is an error. Tests may import what they need.
//
// The reasons: emu is the card and must not know its host, so that the contract between them is driver/device alone; driver
// must run against any card; runtime must not know which card it drives. Only tools and tests see both sides.
const edges = `
regs/spec               -
regs/gen                regs/spec
regs                    -

driver/device           -
driver/device/...       regs driver/device
driver/mmio             -
driver/runfile          driver/device
driver/discover         driver/device driver/runfile driver/vfio
driver/vfio             driver/device driver/mmio
driver/vfiouser         driver/device driver/mmio driver/runfile
driver/vfiouser/vfiousertest driver/device driver/vfiouser
driver/ring             regs
driver                  driver/device driver/ring regs
driver/drivertest       driver driver/device regs

bitstream/xilinx        -
bitstream/container     -
bitstream               bitstream/xilinx bitstream/container
bitstream/program       driver/device bitstream bitstream/container

emu/frame               -
emu/flash               -
emu/image               regs bitstream/xilinx
emu/regfile             regs
emu/cam                 regs emu/regfile
emu/ssram               regs
emu/urltable            regs
emu/hostif              regs driver/device emu/regfile
emu/datapath            regs emu/frame emu/regfile emu/cam emu/ssram emu/urltable emu/hostif
emu/datapath/gen        regs emu/datapath
emu/port                emu/frame
emu/oracle              regs emu/frame emu/port
emu                     regs driver/device bitstream/xilinx emu/...

runtime/rule            regs
runtime/schedule        regs
runtime/neighbour       -
runtime/health/usertcp  -
runtime/inet            -
runtime/health          runtime/health/usertcp runtime/inet
runtime/config          regs runtime/rule
runtime/head            runtime/config runtime/rule
runtime/ipvs            runtime/config
runtime/canary          regs driver runtime/inet runtime/rule
runtime/flash           regs driver driver/device bitstream/program
runtime/plan            regs runtime/config
runtime/exception/reassembly -
runtime/exception/snat  -
runtime/module          -
runtime/exception       regs runtime/config runtime/exception/reassembly runtime/exception/snat runtime/head runtime/health runtime/module runtime/neighbour runtime/rule
runtime/view            regs driver driver/device
runtime/dns             runtime/config
runtime/doctor          runtime/config runtime/inet
runtime/daemon          regs driver runtime/config runtime/connlog runtime/dns runtime/doctor runtime/exception runtime/head runtime/health runtime/neighbour runtime/rule runtime/schedule runtime/view
runtime/connlog         regs driver runtime/head
runtime/admin           driver driver/device bitstream/program runtime/config runtime/daemon runtime/flash runtime/rule runtime/view

tools/netlab/...        tools/netlab
tools/tcppeer           emu/frame emu/port
tools/open              driver/device driver/discover driver/vfio driver/vfiouser emu emu/port
tools/card              driver/device driver/runfile driver/vfio driver/vfiouser emu tools/open
tools/bench             regs driver driver/device emu emu/frame emu/port emu/ssram emu/urltable runtime/rule tools/tcppeer
tools/capture           regs driver emu/oracle emu/port
tools/demo              regs driver emu/port runtime/config runtime/daemon tools/netlab tools/netlab/httpserver tools/open tools/tcppeer
tools/boot              regs driver driver/device driver/discover bitstream bitstream/program runtime/canary runtime/flash tools/open
tools/control           regs driver driver/device driver/discover driver/vfio bitstream/program runtime/... tools/card tools/open
tools/host              driver driver/device bitstream/program runtime/... tools/boot tools/card tools/control tools/open
tools/ruletest          runtime/config runtime/head runtime/rule
tools/emuimage          regs emu/image
tools/show              regs runtime/dns runtime/view tools/control
tools/imagefile         bitstream tools/control
tools/signing           regs bitstream bitstream/container tools/control tools/imagefile
tools/slots             regs bitstream/... driver driver/device runtime/admin runtime/flash tools/control tools/imagefile tools/open tools/signing
tools/splicectl         bitstream/... runtime/admin runtime/view tools/...
tools/vm                tools/vm/agent
tools/vm/init           tools/vm/agent
tools/vm/agent          -
tools/vm/guest          -
tools/acceptance        -
`

// outside says what packages of other modules and heavy packages of the standard library may come into a package, by
// itself or by what it imports. A package that no line matches may use all of them.
const outside = `
regs/...                none
driver/discover         github.com/u-root/...
driver/...              none
bitstream/xilinx        none
bitstream/container     none
emu/...                 none
runtime/rule            none
runtime/schedule        none
runtime/neighbour       none
runtime/module          none
runtime/exception/reassembly none
runtime/exception/snat  none
runtime/health/usertcp  gvisor.dev/gvisor/...
runtime/health          gvisor.dev/gvisor/...
runtime/config          github.com/goccy/go-yaml/...
runtime/dns             github.com/goccy/go-yaml/... github.com/miekg/dns/...
runtime/doctor          github.com/goccy/go-yaml/...
runtime/head            github.com/goccy/go-yaml/...
runtime/ipvs            github.com/goccy/go-yaml/...
runtime/plan            github.com/goccy/go-yaml/...
runtime/exception       github.com/google/gopacket/... github.com/goccy/go-yaml/... gvisor.dev/gvisor/...
`

// watched are the imports that outside is about.
var watched = []string{
	"github.com/google/gopacket/...", "github.com/goccy/go-yaml/...", "github.com/spf13/cobra/...", "github.com/u-root/...",
	"github.com/rogpeppe/go-internal/...", "github.com/miekg/dns/...", "gvisor.dev/gvisor/...", "net/http/...",
}

// A pkg is what go list says about a package.
type pkg struct {
	ImportPath, Dir                                    string
	GoFiles, IgnoredGoFiles, TestGoFiles, XTestGoFiles []string
	Imports, Deps                                      []string
}

// rule is a line of a table.
type rule struct {
	who string
	may []string
}

func table(text string) []rule {
	var rules []rule
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) > 1 {
			rules = append(rules, rule{f[0], f[1:]})
		}
	}
	return rules
}

// match says whether p is pattern, or lies in the tree "dir/..." names.
func match(pattern, p string) bool {
	if dir, ok := strings.CutSuffix(pattern, "/..."); ok {
		return p == dir || strings.HasPrefix(p, dir+"/")
	}
	return p == pattern
}

// find returns the most exact line about p.
func find(rules []rule, p string) (best rule, ok bool) {
	for _, r := range rules {
		if match(r.who, p) && (!ok || len(r.who) > len(best.who) || r.who == p) {
			best, ok = r, true
		}
	}
	return best, ok
}

func allowed(r rule, p string) bool {
	return slices.ContainsFunc(r.may, func(pattern string) bool { return match(pattern, p) })
}

// checkImports returns one line per broken rule.
func checkImports(edges, outside []rule, ps []pkg) (broken []string) {
	for _, p := range ps {
		name := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
		if name == "" {
			continue // this file
		}
		line, ok := find(edges, name)
		if !ok {
			broken = append(broken, name+": no line in the table of edges")
			continue
		}
		for _, im := range p.Imports {
			if own, ok := strings.CutPrefix(im, module+"/"); ok && !allowed(line, own) {
				broken = append(broken, fmt.Sprintf("%s imports %s; its line allows %s", name, own, strings.Join(line.may, " ")))
			}
		}
		out, ok := find(outside, name)
		if !ok {
			continue
		}
		for _, dep := range p.Deps {
			isWatched := slices.ContainsFunc(watched, func(w string) bool { return match(w, dep) })
			if isWatched && !allowed(out, dep) {
				broken = append(broken, fmt.Sprintf("%s depends on %s; its line allows %s", name, dep, strings.Join(out.may, " ")))
			}
		}
	}
	return broken
}

// list asks the go command for the module's packages.
func list(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,GoFiles,IgnoredGoFiles,TestGoFiles,XTestGoFiles,Imports,Deps", "./...")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.Bytes())
	}
	var ps []pkg
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		err := d.Decode(&p)
		if errors.Is(err, io.EOF) {
			return ps
		}
		if err != nil {
			t.Fatalf("decode go list: %v", err)
		}
		ps = append(ps, p)
	}
}

func TestImports(t *testing.T) {
	for _, b := range checkImports(table(edges), table(outside), list(t)) {
		t.Error(b)
	}
}

// TestImportsCanFail feeds the rules with trees that break them.
func TestImportsCanFail(t *testing.T) {
	for _, tt := range []struct {
		name string
		p    pkg
		want string
	}{
		{"allowed", pkg{ImportPath: module + "/emu", Imports: []string{module + "/driver/device", module + "/emu/cam"}}, ""},
		{"emu imports driver", pkg{ImportPath: module + "/emu", Imports: []string{module + "/driver"}}, "emu imports driver;"},
		{"emu imports runtime", pkg{ImportPath: module + "/emu/hostif", Imports: []string{module + "/runtime/config"}}, "emu/hostif imports runtime/config;"},
		{"driver imports emu", pkg{ImportPath: module + "/driver", Imports: []string{module + "/emu"}}, "driver imports emu;"},
		{"runtime imports emu", pkg{ImportPath: module + "/runtime/daemon", Imports: []string{module + "/emu"}}, "runtime/daemon imports emu;"},
		{"gopacket in the data path", pkg{ImportPath: module + "/emu/datapath", Deps: []string{"github.com/google/gopacket/layers"}}, "emu/datapath depends on github.com/google/gopacket/layers;"},
		{"http in a memory", pkg{ImportPath: module + "/emu/cam", Deps: []string{"net/http"}}, "emu/cam depends on net/http;"},
		{"yaml in regs", pkg{ImportPath: module + "/regs", Deps: []string{"github.com/goccy/go-yaml"}}, "regs depends on github.com/goccy/go-yaml;"},
		{"unknown package", pkg{ImportPath: module + "/util"}, "util: no line in the table of edges"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := strings.Join(checkImports(table(edges), table(outside), []pkg{tt.p}), "\n")
			if tt.want == "" && got != "" || !strings.HasPrefix(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// source is one parsed Go file.
type source struct {
	path string
	file *ast.File
}

// sources parses every Go file of the tree up to its imports, those of other systems included.
func sources(t *testing.T) []source {
	t.Helper()
	var ss []source
	err := filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "testdata" || len(d.Name()) > 1 && strings.HasPrefix(d.Name(), ".")) {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(p, ".go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), p, nil, parser.ImportsOnly|parser.ParseComments)
		if err != nil {
			return err
		}
		ss = append(ss, source{filepath.ToSlash(p), f})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return ss
}

func TestUnsafe(t *testing.T) {
	for _, s := range sources(t) {
		for _, im := range s.file.Imports {
			if (im.Path.Value == `"unsafe"` || im.Path.Value == `"C"`) && !unsafeName(s.path) {
				t.Errorf("%s imports %s: unsafe stands in files named *_unsafe.go, cgo nowhere", s.path, im.Path.Value)
			}
		}
	}
}

// unsafeName says whether a file is named for unsafe; an architecture or _test may follow.
func unsafeName(p string) bool {
	base := strings.TrimSuffix(path.Base(p), ".go")
	for _, s := range []string{"_test", "_linux", "_amd64", "_arm64"} {
		base = strings.TrimSuffix(base, s)
	}
	return strings.HasSuffix(base, "_unsafe")
}

func TestPackageComment(t *testing.T) {
	comments := map[string][]string{} // by directory and package name
	for _, s := range sources(t) {
		if strings.HasSuffix(s.path, "_test.go") && s.path != "deps_test.go" {
			if s.file.Doc != nil {
				t.Errorf("%s: a package comment in a test file", s.path)
			}
			continue
		}
		key := path.Dir(s.path)
		if s.file.Doc != nil {
			comments[key] = append(comments[key], s.path)
		} else if comments[key] == nil {
			comments[key] = []string{}
		}
	}
	for dir, files := range comments {
		if len(files) != 1 {
			t.Errorf("%s: %d package comments %v, want exactly one", dir, len(files), files)
		}
	}
}

// TestLayout keeps the top level to the folders of the product, and runtime/ free of a package of its own, which would
// be mistaken for the standard one.
func TestLayout(t *testing.T) {
	folders := []string{"regs", "driver", "emu", "bitstream", "runtime", "tools", "bin"}
	files := []string{"go.mod", "go.sum", "Makefile", "README.md", "CONTRIBUTING.md", "LICENSE", "deps_test.go"}
	es, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range es {
		known := files
		if e.IsDir() {
			known = folders
		}
		if !strings.HasPrefix(e.Name(), ".") && !slices.Contains(known, e.Name()) {
			t.Errorf("%s does not belong in the root", e.Name())
		}
	}
	stray, err := filepath.Glob("runtime/*.go")
	if err != nil || len(stray) != 0 {
		t.Errorf("Go files directly in runtime/: %v, %v", stray, err)
	}
}
