package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"splicenic/emu/image"
	"splicenic/regs"
)

// images runs a bitstream command in this process, on a card of its own. It fails where the command does not end.
func images(t testing.TB, in io.Reader, args ...string) (code int, out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	done := make(chan int, 1)
	go func() {
		done <- run(append([]string{"bitstream", "--card", "emu", "--socket", filepath.Join(t.TempDir(), "none.sock")}, args...), in, &o, &e)
	}()
	select {
	case code = <-done:
		return code, o.String(), e.String()
	case <-time.After(time.Minute):
		t.Fatalf("%q does not end", args)
		return
	}
}

// testImage is an image of the emulated card with a stream of n bytes, 0 for as few as it takes.
func testImage(t testing.TB, n int) []byte {
	t.Helper()
	b, err := image.EncodeBit(image.Params{Name: "next", Version: image.Version{2, 0, 0}, DataPathDigest: regs.DataPathDigest, Geometry: image.Geometry{Pages: 65536}}, image.Options{Bytes: n}, "2026/01/02", "03:04:05")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Each command gets what it cannot use in every place where it takes a file. The answer is one line that says what was got
// and what was wanted, at once.
func TestCaseE23Commands(t *testing.T) {
	dir := t.TempDir()
	file := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	bit, empty := file("next.bit", testImage(t, 0)), file("empty", nil)
	base := filepath.Join(dir, "release")
	if code, _, errs := images(t, nil, "keygen", base); code != 0 {
		t.Fatal(errs)
	}
	key, pub, spl, out := base+".key", base+".pub", filepath.Join(dir, "next.spl"), filepath.Join(dir, "out")
	if code, _, errs := images(t, nil, "sign", bit, "--key", key, "--version", "2.0.0", "--to", spl); code != 0 {
		t.Fatal(errs)
	}
	pipe, socket := filepath.Join(dir, "pipe"), filepath.Join(dir, "s")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	kinds := map[string]string{dir: "a directory", pipe: "a pipe", socket: "a socket", os.DevNull: "a device node", "/dev/zero": "a device node"}
	none := map[string]string{filepath.Join(dir, "none"): "no such file"}
	with := func(more ...map[string]string) map[string]string {
		all := map[string]string{}
		for _, m := range append(more, kinds) {
			for k, v := range m {
				all[k] = v
			}
		}
		return all
	}
	notImages := with(none, map[string]string{key: "a private key", pub: "a public key", empty: "an empty file"})
	words := with(map[string]string{bit: bit, key: key, spl: spl, empty: empty, "99999999": "99999999", "-1": "-1", "1.5": "1.5"})
	for name := range words {
		words[name] = `"` + name + `"`
	}
	for _, c := range []struct {
		args   string // FILE stands for what is wrong
		wrong  map[string]string
		wanted string
	}{
		{"info FILE", notImages, "an FPGA image"},
		{"verify FILE --key " + pub, notImages, "an FPGA image"},
		{"verify " + spl + " --key FILE", with(none, map[string]string{key: "a private key", bit: "a file of format xilinx-bit", spl: "a file of format spl", empty: "an empty file"}), "a public key"},
		{"sign FILE --version 1.0.0 --to " + out + " --key " + key, notImages, "an FPGA image"},
		{"sign " + bit + " --version 1.0.0 --to " + out + " --key FILE", with(none, map[string]string{pub: "a public key", bit: "a file of format xilinx-bit", spl: "a file of format spl", empty: "an empty file"}), "a private key"},
		{"sign " + bit + " --version 1.0.0 --key " + key + " --to FILE", kinds, "a file to write"},
		{"keygen FILE", with(map[string]string{bit: "a file", pub: "a file"}), "a name for new files"},
		{"load FILE --key " + pub, notImages, "an FPGA image"},
		{"load FILE --unsigned", notImages, "an FPGA image"},
		{"load FILE --raw --offset 0x1100000 --yes", with(none, map[string]string{empty: "an empty file"}), "an FPGA image"},
		{"load " + spl + " --key FILE", with(none, map[string]string{key: "a private key", bit: "a file of format xilinx-bit"}), "a public key"},
		{"load " + spl + " --key " + pub + " --slot FILE", words, "the number of a slot, or auto"},
		{"readback --to " + out + " -- FILE", words, "the number of a slot, records or raw"},
		{"readback 1 --to FILE", kinds, "a file to write"},
		{"boot -- FILE", words, "the number of a slot, or auto"},
		{"list -- FILE", words, "no argument"},
	} {
		for wrong, got := range c.wrong {
			args := strings.Fields(c.args)
			args[slices.Index(args, "FILE")] = wrong
			code, text, errs := images(t, nil, args...)
			first, _, _ := strings.Cut(errs, "\n")
			want := "got " + got + ", wanted " + c.wanted
			if strings.HasPrefix(got, "no such") {
				want = got
			}
			if code != 2 || text != "" || !strings.HasPrefix(first, "error: ") || !strings.Contains(first, want) || strings.Contains(errs, "goroutine ") || strings.Count(errs, "\n") > 3 {
				t.Errorf("%q: exit code %d, %s%s; wanted %q", args, code, text, errs, want)
			}
			if _, err := os.Stat(out); err == nil {
				t.Fatalf("%q has made a file", args)
			}
		}
	}
	// What is there is not written over.
	for _, args := range [][]string{{"readback", "0", "--to", bit}, {"sign", bit, "--key", key, "--version", "1.0.0", "--to", spl}, {"keygen", base}} {
		before, _ := os.ReadFile(args[len(args)-1])
		code, text, errs := images(t, nil, args...)
		if code != 6 || text != "" || !strings.Contains(errs, "is there already") {
			t.Errorf("%q: exit code %d, %s%s", args, code, text, errs)
		}
		if after, _ := os.ReadFile(args[len(args)-1]); !bytes.Equal(before, after) {
			t.Errorf("%q has written over a file", args)
		}
	}
	if code, _, errs := images(t, nil, "sign", bit, "--key", key, "--version", "1.0.0", "--to", spl, "--force"); code != 0 {
		t.Errorf("sign --force: exit code %d, %s", code, errs)
	}
}

// Content counts for each command that reads an image, whatever the file's name and wrapping; the clash is noted.
func TestCaseE05Commands(t *testing.T) {
	bit := testImage(t, 0)
	head := bytes.Index(bit, []byte{0xff, 0xff, 0xff, 0xff})
	dir := t.TempDir()
	base := filepath.Join(dir, "release")
	if code, _, errs := images(t, nil, "keygen", base); code != 0 {
		t.Fatal(errs)
	}
	for name, data := range map[string][]byte{"x.bin": bit, "x.mcs": bit, "y.bit": bit[head:]} {
		path := save(t, name, data)
		note := "though the name ends in " + filepath.Ext(name) + ": the content counts"
		code, out, errs := images(t, nil, "load", path, "--unsigned")
		if code != 0 || strings.Count(out, note) != 1 || !strings.Contains(out, "slot 1 holds the image, written and read back") {
			t.Errorf("load %s: exit code %d, %s%s", name, code, out, errs)
		}
		code, out, errs = images(t, nil, "verify", path, "--unsigned", "--key", base+".pub")
		if code != 0 || strings.Count(out, note) != 1 {
			t.Errorf("verify %s: exit code %d, %s%s", name, code, out, errs)
		}
		spl := filepath.Join(dir, name+".spl")
		code, out, errs = images(t, nil, "sign", path, "--key", base+".key", "--version", "2.0.0", "--name", "next", "--to", spl)
		if code != 0 || strings.Count(out, note) != 1 {
			t.Errorf("sign %s: exit code %d, %s%s", name, code, out, errs)
		}
		if b, err := os.ReadFile(spl); err != nil || !bytes.Contains(b, bit[head:]) || bytes.Contains(b, bit[:head]) {
			t.Errorf("sign %s: the container does not hold the stream alone, %v", name, err)
		}
	}
}

// Raw bytes are written with the flag, an address and a word, and nothing less.
func TestCaseE09Commands(t *testing.T) {
	path := save(t, "x.sof", []byte("\x7fELF\x02\x01\x01 and more"))
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"", 2, "got an ELF program, wanted an FPGA image"},
		{"--unsigned", 2, "got an ELF program, wanted an FPGA image"},
		{"--unsigned --offset 0x1100000", 2, "--offset goes with --raw"},
		{"--raw", 2, "raw bytes need --offset"},
		{"--raw --slot 1", 2, "--slot does not go with --raw"},
		{"--raw --offset 0x1100000", 6, "say --yes"},
		{"--raw --offset 0x100000 --yes", 6, "golden slot"},
		{"--raw --offset 0x4000000 --yes", 6, "end behind the flash"},
		{"--raw --offset 0x3000000 --yes", 6, "into the records"},
		{"--raw --offset -1 --yes", 2, "invalid argument"},
	} {
		code, _, errs := images(t, nil, append([]string{"load", path}, strings.Fields(c.args)...)...)
		if code != c.code || !strings.Contains(errs, c.want) {
			t.Errorf("load %s: exit code %d, %s", c.args, code, errs)
		}
	}
	code, out, errs := images(t, nil, "load", path, "--raw", "--offset", "0x1100000", "--yes")
	if code != 0 || !strings.Contains(out, "to the flash, raw, at 0x1100000\n") || !strings.Contains(out, "the flash holds these bytes, written and read back") {
		t.Errorf("exit code %d, %s%s", code, out, errs)
	}
}

// 4 KiB of anything go to 0x100000, where golden has its room, by all words that this takes. Skipped checks are told of.
func TestCaseE17Commands(t *testing.T) {
	path := save(t, "raw.bin", bytes.Repeat([]byte{0x5a, 1, 2, 3}, 1024))
	args := []string{"load", path, "--raw", "--offset", "0x100000", "--force-golden", "--force-running", "--yes"}
	code, out, errs := images(t, nil, args...)
	if code != 0 {
		t.Fatalf("exit code %d, %s%s", code, out, errs)
	}
	for _, want := range []string{"4096 bytes, SHA-256 ", "at 0x100000\n", "note: idcode: the image holds no IDCODE: whether it is for this device cannot be known (skipped)\n", "note: part: the image names no part (skipped)\n", "note: integrity: absent: raw bytes, not looked at (skipped)\n", "note: forced, --force-golden: ", "note: forced, --force-running: ", "note: forced, --raw: "} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	code, out, errs = images(t, nil, append(args, "-o", "json")...)
	var p struct {
		Slot, Offset, Bytes int
		Notes               []string
	}
	if err := json.Unmarshal([]byte(out), &p); err != nil || code != 0 || p.Slot != -1 || p.Offset != 0x100000 || p.Bytes != 4096 || len(p.Notes) != 7 {
		t.Errorf("exit code %d, %v: %s", code, err, out)
	}
	if !strings.Contains(errs, "note: forced, --force-golden: ") || !strings.Contains(errs, `{"phase":"write","done":4096,"total":4096,`) {
		t.Errorf("what was forced is not told of: %s", errs)
	}
}

// A file with a gap goes to its own addresses, in two sectors; it is no image of a slot.
func TestCaseE13Commands(t *testing.T) {
	path := save(t, "gap.mcs", []byte(":020000040110E9\n:04000000A1A2A3A472\n:020000040117E2\n:02000000B1B29B\n:00000001FF\n"))
	code, out, errs := images(t, nil, "load", path, "--raw", "--yes")
	if code != 0 || !strings.Contains(out, "6 bytes, SHA-256 ") || !strings.Contains(out, "\nsectors: 2 to write, 0 to erase, 0 hold already what they should;") ||
		!strings.Contains(out, "\n  write        0x01100000\n") || !strings.Contains(out, "\n  write        0x01170000\n") {
		t.Errorf("exit code %d, %s%s", code, out, errs)
	}
	code, out, errs = images(t, nil, "load", path, "--unsigned")
	if code != 6 || !strings.Contains(errs, "gap.mcs") || strings.Contains(out, "written") {
		t.Errorf("into a slot: exit code %d, %s%s", code, out, errs)
	}
	code, _, errs = images(t, nil, "load", path, "--raw", "--offset", "0x1100000", "--yes")
	if code != 6 || !strings.Contains(errs, "leave --offset out") {
		t.Errorf("with an offset: exit code %d, %s", code, errs)
	}
}

// A read that waits for a terminal ends with the first interrupt; so does a load, between two sectors, and goes on when it is
// given again. Meanwhile no other loader is let in.
func TestLoadInterrupted(t *testing.T) {
	if testing.Short() {
		t.Skip("short")
	}
	dir := t.TempDir()
	bit := filepath.Join(dir, "next.bit")
	const sector = 64 << 10
	if err := os.WriteFile(bit, testImage(t, 3*sector), 0o600); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "c.sock")
	command := func(args ...string) *exec.Cmd {
		c := exec.Command("splicectl", args...)
		c.Env = append(os.Environ(), "SPLICE_SOCKET="+filepath.Join(dir, "none.sock"), "SPLICE_CARD=vfio-user:"+socket)
		return c
	}
	wait := command("bitstream", "info", "-")
	near, far, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	defer near.Close()
	wait.Stdin = near
	serve := command("card", "serve", "--card", "emu", "--client", "mem", "--server", "mem", "--socket", socket)
	for _, c := range []*exec.Cmd{wait, serve} {
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Process.Kill() })
	}
	defer func() {
		serve.Process.Signal(os.Interrupt)
		serve.Wait()
	}()
	awaitSocket(t, socket)

	load := command("bitstream", "load", bit, "--unsigned", "-o", "json")
	stderr, err := load.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := load.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { load.Process.Kill() })
	type event struct {
		Phase string
		Done  int64
	}
	var rest strings.Builder
	busy, asked := false, false
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			rest.WriteString(lines.Text() + "\n")
			continue
		}
		if !busy {
			busy = true
			out, err := command("bitstream", "load", bit, "--unsigned", "--slot", "2").CombinedOutput()
			if code(err) != 5 || !strings.Contains(string(out), "another load is writing this card's flash") {
				t.Errorf("a second loader: exit code %d, %s", code(err), out)
			}
			out, err = command("bitstream", "boot", "0").CombinedOutput()
			if code(err) != 5 || !strings.Contains(string(out), "another load is writing this card's flash") {
				t.Errorf("a boot meanwhile: exit code %d, %s", code(err), out)
			}
		}
		if e.Phase == "write" && e.Done >= sector && !asked {
			asked = true
			load.Process.Signal(os.Interrupt)
		}
	}
	err = load.Wait()
	if code(err) != 1 || !strings.Contains(rest.String(), "of 3 sectors; there is no image in slot 1 now, so a boot of it falls back to golden; run the same command again to go on") || !strings.Contains(rest.String(), "splicectl bitstream load failed: failed (exit code 1)") {
		t.Fatalf("exit code %d, %s", code(err), rest.String())
	}
	out, err := command("bitstream", "list").Output()
	if err != nil || !strings.Contains(string(out), "\n1                      writing ") {
		t.Errorf("%v, %s", err, out)
	}
	out, err = command("bitstream", "boot", "1").CombinedOutput()
	if code(err) != 6 || !strings.Contains(string(out), "slot 1 is half written") {
		t.Errorf("a boot of half an image: exit code %d, %s", code(err), out)
	}
	out, err = command("bitstream", "load", bit, "--unsigned", "-o", "json").Output()
	var p struct {
		Resumes              bool
		Written, Write, Skip int
	}
	if json.Unmarshal(out, &p) != nil || err != nil || !p.Resumes || p.Written < 1 || p.Skip < 1 || p.Write+p.Skip != 3 {
		t.Errorf("again: %v, %s", err, out)
	}

	wait.Process.Signal(os.Interrupt) // it has waited all the time
	if err := wait.Wait(); code(err) != 1 {
		t.Errorf("info -: exit code %d", code(err))
	}
}

// code is a command's exit code, -1 where it was killed.
func code(err error) int {
	if err == nil {
		return 0
	}
	if x, ok := err.(*exec.ExitError); ok {
		return x.ExitCode()
	}
	return -1
}

// Each name in a document of -o json stands in README.md, in the row of its command.
func TestBitstreamJSON(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	bit, base, spl := filepath.Join(dir, "next.bit"), filepath.Join(dir, "release"), filepath.Join(dir, "next.spl")
	if err := os.WriteFile(bit, testImage(t, 0), 0o600); err != nil {
		t.Fatal(err)
	}
	mcs := filepath.Join(dir, "gap.mcs")
	if err := os.WriteFile(mcs, []byte(":020000040000FA\n:04000000A1A2A3A472\n:020000040007F3\n:02000000B1B29B\n:00000001FF\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"info", bit, mcs}, {"keygen", base}, {"sign", bit, "--key", base + ".key", "--version", "2.0.0", "--to", spl}, {"verify", spl, "--key", base + ".pub"},
		{"load", spl, "--key", base + ".pub"}, {"load", spl, "--key", base + ".pub", "--plan"}, {"list"}, {"readback", "0", "--to", filepath.Join(dir, "back.bin")},
	} {
		code, out, errs := images(t, nil, append(args, "-o", "json")...)
		var doc any
		if err := json.Unmarshal([]byte(out), &doc); err != nil || code != 0 {
			t.Errorf("%q: exit code %d, %v: %s%s", args, code, err, out, errs)
			continue
		}
		_, row, _ := strings.Cut(string(readme), "\n| `"+args[0]+"` | ")
		row, _, _ = strings.Cut(row, "\n")
		documented := strings.FieldsFunc(row, func(r rune) bool { return !(r == '_' || r >= 'a' && r <= 'z' || r >= '0' && r <= '9') })
		var names func(v any)
		names = func(v any) {
			switch v := v.(type) {
			case []any:
				for _, x := range v {
					names(x)
				}
			case map[string]any:
				for name, x := range v {
					if !slices.Contains(documented, name) {
						t.Errorf("%s: README.md does not know %q", args[0], name)
					}
					if name != "manifest" && name != "identity" && name != "sensors" { // documents of their own
						names(x)
					}
				}
			}
		}
		names(doc)
	}
}

// Slots complete where a slot is asked for, files where a file is, and nothing anywhere else.
func TestBitstreamCompletion(t *testing.T) {
	const files, nothing = ":0", ":4"
	for args, want := range map[string]string{
		"load --slot ": "auto 0 1 2 3 " + nothing, "boot ": "auto 0 1 2 3 " + nothing, "boot 1 ": nothing, "readback ": "0 1 2 3 records raw " + nothing, "readback 1 ": nothing,
		"load ": files, "load x ": nothing, "load --key ": files, "load --for-host ": nothing, "sign ": files, "sign x ": nothing, "sign --version ": nothing, "sign --to ": files,
		"verify ": files, "verify --idcode ": nothing, "info x ": files, "keygen ": nothing, "list ": nothing,
	} {
		var out, errs bytes.Buffer
		words := append([]string{"__complete", "bitstream"}, strings.Split(args, " ")...)
		if code := run(words, nil, &out, &errs); code != 0 || strings.Join(strings.Fields(out.String()), " ") != want {
			t.Errorf("%s: exit code %d, got %q, wanted %q", args, code, out.String(), want)
		}
	}
}
