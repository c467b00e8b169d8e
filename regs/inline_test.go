package regs

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"testing"
)

// Accessors are called for every packet, so each one is inlined: the compiler says so itself.
func TestAccessorsAreInlined(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the package once more; run without -short")
	}
	goTool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("needs the go command in PATH")
	}
	out, err := exec.Command(goTool, "build", "-gcflags=-m", ".").CombinedOutput()
	if err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	inlined := map[string]bool{}
	for _, m := range regexp.MustCompile(`can inline (\S+)`).FindAllSubmatch(out, -1) {
		inlined[string(m[1])] = true
	}
	accessors := 0
	for _, name := range []string{"registers_gen.go", "formats_gen.go"} {
		src, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for sc := bufio.NewScanner(bytes.NewReader(src)); sc.Scan(); {
			m := regexp.MustCompile(`^func (\w+)\(`).FindSubmatch(sc.Bytes())
			if m == nil {
				continue
			}
			accessors++
			if !inlined[string(m[1])] {
				t.Errorf("%s is not inlined", m[1])
			}
		}
	}
	if accessors < 400 {
		t.Errorf("found only %d accessors", accessors)
	}
	for _, name := range []string{"Reg.At", "(*Memory).At", "(*FieldInfo).Get", "(*FieldInfo).Set"} {
		if !inlined[name] {
			t.Errorf("%s is not inlined", name)
		}
	}
}
