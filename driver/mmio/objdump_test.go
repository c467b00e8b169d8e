package mmio

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// instructions are all there is in each stub: fetch the arguments from the stack, one access through the device pointer,
// on arm64 one barrier, return.
var instructions = map[string]map[string][]string{
	"amd64": {
		"Load32":  {"MOVQ 0x8(SP), AX", "MOVL 0(AX), AX", "MOVL AX, 0x10(SP)", "RET"},
		"Store32": {"MOVQ 0x8(SP), AX", "MOVL 0x10(SP), CX", "MOVL CX, 0(AX)", "RET"},
		"Load64":  {"MOVQ 0x8(SP), AX", "MOVQ 0(AX), AX", "MOVQ AX, 0x10(SP)", "RET"},
		"Store64": {"MOVQ 0x8(SP), AX", "MOVQ 0x10(SP), CX", "MOVQ CX, 0(AX)", "RET"},
	},
	"arm64": { // DMB $1 is OSHLD, DMB $2 is OSHST
		"Load32":  {"MOVD 8(RSP), R0", "MOVWU (R0), R0", "DMB $1", "MOVW R0, 16(RSP)", "RET"},
		"Store32": {"MOVD 8(RSP), R0", "MOVWU 16(RSP), R1", "DMB $2", "MOVW R1, (R0)", "RET"},
		"Load64":  {"MOVD 8(RSP), R0", "MOVD (R0), R0", "DMB $1", "MOVD R0, 16(RSP)", "RET"},
		"Store64": {"MOVD 8(RSP), R0", "MOVD 16(RSP), R1", "DMB $2", "MOVD R1, (R0)", "RET"},
	},
}

// program keeps the linker from leaving the stubs out.
const program = `package main

import (
	"unsafe"

	"splicenic/driver/mmio"
)

func main() {
	var v uint64
	p := unsafe.Pointer(&v)
	mmio.Store32(p, mmio.Load32(p))
	mmio.Store64(p, mmio.Load64(p))
}
`

func TestInstructions(t *testing.T) {
	goTool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("needs the go command in PATH to disassemble the stubs")
	}
	for arch, want := range instructions {
		t.Run(arch, func(t *testing.T) {
			got := disassemble(t, goTool, arch)
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("instructions (-want +got):\n%s", d)
			}
		})
	}
}

// disassemble returns the instructions of the stubs in a program built for arch.
func disassemble(t *testing.T, goTool, arch string) map[string][]string {
	t.Helper()
	dir := t.TempDir()
	src, bin := filepath.Join(dir, "main.go"), filepath.Join(dir, "main")
	if err := os.WriteFile(src, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.Command(goTool, "build", "-o", bin, src)
	build.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+arch, "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build for %s: %v\n%s", arch, err, out)
	}
	out, err := exec.Command(goTool, "tool", "objdump", "-s", `driver/mmio\.(Load|Store)(32|64)\.abi0$`, bin).CombinedOutput()
	if err != nil {
		t.Fatalf("disassemble: %v\n%s", err, out)
	}
	return parseDump(string(out))
}

// parseDump reads the output of objdump: a TEXT line per function, then file:line, address, code and instruction.
func parseDump(out string) map[string][]string {
	funcs := map[string][]string{}
	name := ""
	for line := range strings.Lines(out) {
		if rest, ok := strings.CutPrefix(line, "TEXT splicenic/driver/mmio."); ok {
			name, _, _ = strings.Cut(rest, ".")
			continue
		}
		f := strings.Fields(line)
		if len(f) < 4 || f[3] == "?" || strings.HasPrefix(f[3], "INT") { // padding behind the function
			continue
		}
		funcs[name] = append(funcs[name], strings.Join(f[3:], " "))
	}
	return funcs
}
