package main

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"splicenic/regs/spec"
)

// The files in the tree are what this generator writes from this description.
func TestGeneratedFilesAreCurrent(t *testing.T) {
	if err := run([]string{"-check", "-o", ".."}, io.Discard); err != nil {
		t.Error(err)
	}
}

// Nothing left behind by an earlier generator poses as generated.
func TestNoOtherFilesClaimToBeGenerated(t *testing.T) {
	files, err := card()
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir("..")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), "_gen.go") && files[e.Name()] == nil {
			t.Errorf("%s: the generator does not write it", e.Name())
		}
	}
	for name, text := range files {
		first, _, _ := bytes.Cut(text, []byte("\n"))
		if !bytes.Contains(first, []byte(header)) {
			t.Errorf("%s: the first line does not say that it is generated: %q", name, first)
		}
	}
}

func TestWriteThenCheck(t *testing.T) {
	dir := t.TempDir()
	if err := run([]string{"-o", dir}, io.Discard); err != nil {
		t.Fatal(err)
	}
	if err := run([]string{"-check", "-o", dir}, io.Discard); err != nil {
		t.Errorf("check after writing: %v", err)
	}
	name := filepath.Join(dir, "splicenic.h")
	if err := os.WriteFile(name, []byte("stale"), 0o644); err != nil {
		t.Fatal(err)
	}
	err := run([]string{"-check", "-o", dir}, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "splicenic.h is out of date: run go generate") {
		t.Errorf("check of a stale file: got %v", err)
	}
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	if err := run([]string{"-check", "-o", dir}, io.Discard); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("check of a missing file: got %v", err)
	}
}

func TestGenerateTwiceIsTheSame(t *testing.T) {
	a, err := card()
	if err != nil {
		t.Fatal(err)
	}
	b, err := generate(spec.Card())
	if err != nil {
		t.Fatal(err)
	}
	if !maps.EqualFunc(a, b, bytes.Equal) {
		t.Error("two runs differ")
	}
}

// Two parts of a map that need the same Go name stop the generator, and the message says which.
func TestNameClashes(t *testing.T) {
	tests := []struct {
		name   string
		change func(*spec.Map)
		want   string
	}{
		{"two registers", func(m *spec.Map) { block(m, "port").Registers[0].Name = "mac_lo" }, "register port.mac_lo and register port.mac_lo both need the Go name PortMacLo"},
		{"register and block constant", func(m *spec.Map) { block(m, "port").Registers[0].Name = "stride" }, "block port and register port.stride both need the Go name PortStride"},
		{"register and format", func(m *spec.Map) { m.Format("page").Name, m.Memories[0].Format = "port", "port" }, "register port.control and word port.control both need the Go name PortControl"},
		{"type of the package", func(m *spec.Map) { block(m, "port").Name, block(m, "port").Registers[0].Name = "block", "info" }, "package regs itself and register block.info both need the Go name BlockInfo"},
		{"field and register", func(m *spec.Map) { block(m, "port").Registers[1].Name = "control_enable" }, "both need the Go name PortControlEnable"},
		{"alias of other values", func(m *spec.Map) { m.Format("page").Words[0].Fields[1].Alias = "kind" }, "values differ from those of another field with alias kind"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := spec.Card()
			tt.change(m)
			_, err := generate(m)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got error %v, want one with %q", err, tt.want)
			}
		})
	}
}

func block(m *spec.Map, name string) *spec.Block {
	for i := range m.Blocks {
		if m.Blocks[i].Name == name {
			return &m.Blocks[i]
		}
	}
	panic("no block " + name)
}

func TestCamel(t *testing.T) {
	tests := []struct {
		names []string
		want  string
	}{
		{[]string{"amu", "free"}, "AmuFree"},
		{[]string{"port", "mac_lo"}, "PortMacLo"},
		{[]string{"url_node", "bytes"}, "UrlNodeBytes"},
		{[]string{"page", "a_seq_client", ""}, "PageASeqClient"},
	}
	for _, tt := range tests {
		if got := camel(tt.names...); got != tt.want {
			t.Errorf("camel(%q): got %q, want %q", tt.names, got, tt.want)
		}
	}
}

// Neither C nor SystemVerilog keeps block, register and field names apart, so their joined names must differ. Compilers
// say so too, but C only where the values differ.
func TestJoinedNamesAreUnique(t *testing.T) {
	for name, decl := range map[string]*regexp.Regexp{
		"splicenic.h":      regexp.MustCompile(`(?m)^#define (\w+)`),
		"splicenic_pkg.sv": regexp.MustCompile(`(?m)^  localparam logic \[31:0\] (\w+)`),
	} {
		seen := map[string]bool{}
		for _, m := range decl.FindAllSubmatch(generated(t, name), -1) {
			if n := string(m[1]); seen[n] {
				t.Errorf("%s: %s is declared twice", name, n)
			} else {
				seen[n] = true
			}
		}
		if len(seen) < 1000 {
			t.Errorf("%s: found only %d declarations", name, len(seen))
		}
	}
}

// The header's own assertions check every size and offset; those here were worked out by hand.
const headerUser = `
#include "splicenic.h"
#include "splicenic.h"

_Static_assert(SPLICENIC_DIRECTORY_MAGIC == 0 && SPLICENIC_MAGIC == 0x434c5053u, "magic");
_Static_assert(SPLICENIC_AMU_FREE == 0x18018u, "amu.free");
_Static_assert(SPLICENIC_PORT_RX_SIZE_COUNT == 6u && SPLICENIC_PORT_RX_SIZE_STRIDE == 8u, "port.rx_size");
_Static_assert(SPLICENIC_PAGE_DEADLINE == 52u, "page.deadline");
_Static_assert(offsetof(struct splicenic_page, b_index) == 128, "leg set B");
_Static_assert(offsetof(struct splicenic_service, default_) == 8, "service.default");
_Static_assert(sizeof(struct splicenic_event) == 64, "descriptor");
_Static_assert(SPLICENIC_GET(PAGE_CONTROL_STATE, 0x0bu) == SPLICENIC_PAGE_CONTROL_STATE_CLOSING, "get");
_Static_assert(SPLICENIC_SET(PAGE_CONTROL_STATE, ~0u, 2) == 0xfffffff5u, "set");
_Static_assert(SPLICENIC_MEM_CAM_SERVER_OFFSET == 0x14000000u, "memory");
`

func TestHeaderCompiles(t *testing.T) {
	cc := tool(t, "gcc", "gcc", "cc")
	dir := t.TempDir()
	write(t, filepath.Join(dir, "splicenic.h"), generated(t, "splicenic.h"))
	write(t, filepath.Join(dir, "user.c"), []byte(headerUser))
	command(t, cc, "-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only", filepath.Join(dir, "user.c"))
}

const verilogUser = `
module user;
  import splicenic_pkg::*;
  initial begin
    if (AMU_FREE !== 32'h18018) $fatal(1, "amu.free");
    if (PAGE_CONTROL_STATE_MASK !== 32'he) $fatal(1, "page.control.state");
    if (((32'h0b & PAGE_CONTROL_STATE_MASK) >> PAGE_CONTROL_STATE_LSB) !== PAGE_CONTROL_STATE_CLOSING) $fatal(1, "value");
  end
endmodule
`

func TestSystemVerilogParses(t *testing.T) {
	iverilog := tool(t, "iverilog", "iverilog")
	dir := t.TempDir()
	pkg, user, out := filepath.Join(dir, "splicenic_pkg.sv"), filepath.Join(dir, "user.sv"), filepath.Join(dir, "user.vvp")
	write(t, pkg, generated(t, "splicenic_pkg.sv"))
	write(t, user, []byte(verilogUser))
	command(t, iverilog, "-g2012", "-Wall", "-o", out, pkg, user)
	if vvp, err := exec.LookPath("vvp"); err == nil {
		command(t, vvp, "-n", out)
	}
}

// card generates the real map once for all tests that only look.
var card = sync.OnceValues(func() (map[string][]byte, error) { return generate(spec.Card()) })

func generated(t *testing.T, name string) []byte {
	t.Helper()
	files, err := card()
	if err != nil {
		t.Fatal(err)
	}
	return files[name]
}

// tool finds the first of some programs or skips the test, naming the package that has them.
func tool(t *testing.T, pkg string, names ...string) string {
	t.Helper()
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skipf("needs %s: apt-get install %s", names[0], pkg)
	return ""
}

func write(t *testing.T, name string, text []byte) {
	t.Helper()
	if err := os.WriteFile(name, text, 0o644); err != nil {
		t.Fatal(err)
	}
}

func command(t *testing.T, name string, args ...string) {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}
