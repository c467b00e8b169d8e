package imagefile

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"splicenic/bitstream"
	"splicenic/bitstream/xilinx"
	"splicenic/tools/control"
)

func save(t *testing.T, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func bitFile(t *testing.T) []byte {
	t.Helper()
	stream := (&xilinx.Encoder{IDCode: 0x03636093, Runs: []xilinx.Run{{Words: make([]uint32, 404)}}}).Append(nil)
	head, err := xilinx.BitHeader{Design: "top", Part: "7a200tfbg484", Date: "2023/01/02", Time: "03:04:05"}.Append(nil, len(stream))
	if err != nil {
		t.Fatal(err)
	}
	return append(head, stream...)
}

func usage(t *testing.T, err error, what string) {
	t.Helper()
	f, ok := errors.AsType[*control.Failure](err)
	if !ok || f.Exit != control.ExitUsage || !strings.Contains(f.What, what) || strings.Contains(f.What, "\n") {
		t.Errorf("got %v, wanted %q", err, what)
	}
}

// special are paths to all that is no file, and their names.
func special(t *testing.T) map[string]string {
	dir := t.TempDir()
	pipe, socket := filepath.Join(dir, "pipe"), filepath.Join(dir, "s")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	link := filepath.Join(dir, "link")
	if err := os.Symlink(pipe, link); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{dir: "a directory", pipe: "a pipe", socket: "a socket", link: "a pipe", "/dev/null": "a device node", "/dev/zero": "a device node"}
	for _, block := range []string{"/dev/loop0", "/dev/sda", "/dev/vda", "/dev/nvme0n1"} {
		if s, err := os.Stat(block); err == nil && s.Mode()&os.ModeDevice != 0 {
			all[block] = "a device node"
		}
	}
	return all
}

// What is no file is not opened: nothing waits for the other end of a pipe, and no device is asked to do anything.
func TestSpecialFiles(t *testing.T) {
	for path, kind := range special(t) {
		_, err := Read(path, nil, bitstream.Options{})
		usage(t, err, path+": got "+kind+", wanted an FPGA image")
		_, _, err = OpenFile(path, "a private key")
		usage(t, err, path+": got "+kind+", wanted a private key")
		usage(t, Write(path, []byte{1}, true), path+": got "+kind+", wanted a file to write")
	}
	_, err := Read(filepath.Join(t.TempDir(), "none"), nil, bitstream.Options{})
	usage(t, err, "no such file")
	_, err = Read("", nil, bitstream.Options{})
	usage(t, err, "no such file")
	if os.Geteuid() != 0 { // who reads everything
		locked := save(t, "x.bit", bitFile(t))
		if err := os.Chmod(locked, 0); err != nil {
			t.Fatal(err)
		}
		_, err = Read(locked, nil, bitstream.Options{})
		usage(t, err, "permission denied")
	}
}

func TestRead(t *testing.T) {
	bit := bitFile(t)
	for name, in := range map[string]io.Reader{save(t, "x.bit", bit): nil, "-": bytes.NewReader(bit)} {
		img, err := Read(name, in, bitstream.Options{})
		if err != nil || img.Format != bitstream.XilinxBit || img.Part != "7a200tfbg484" {
			t.Errorf("%s: %+v, %v", name, img, err)
		}
	}
	_, err := Read("-", nil, bitstream.Options{})
	usage(t, err, "standard input cannot be read a second time")
	for want, data := range map[string]string{
		"got an empty file": "", "got an ELF program": "\x7fELF\x02", "got a private key": "-----BEGIN PRIVATE KEY-----\nAA==\n-----END PRIVATE KEY-----\n",
		"got a public key": "-----BEGIN PUBLIC KEY-----\nAA==\n-----END PUBLIC KEY-----\n", "got text that starts with": "text",
	} {
		path := save(t, "x.bit", []byte(data))
		_, err := Read(path, nil, bitstream.Options{})
		usage(t, err, path+": "+want)
	}
	_, err = Read(save(t, "x.bit", bit[:len(bit)-9]), nil, bitstream.Options{})
	if f, ok := errors.AsType[*control.Failure](err); !ok || f.Exit != control.ExitFailed || !strings.Contains(f.Why, "cut off") {
		t.Errorf("a cut file: %v", err)
	}
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	_, err = Read("-", Until(t.Context(), dir), bitstream.Options{})
	usage(t, err, "standard input: got a directory, wanted an FPGA image")
}

func TestWhat(t *testing.T) {
	for want, data := range map[string][]byte{
		"a file of format xilinx-bit": bitFile(t)[:60], "a file of format blank": {0xff, 0xff}, "an empty file": nil, "a PDF document": []byte("%PDF-1.4"),
	} {
		if got := What(data); got != want {
			t.Errorf("got %q, wanted %q", got, want)
		}
	}
}

// A file is there whole or not at all, and what was there stays unless it was said to go.
func TestWrite(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.bin")
	if err := Write(path, []byte("one"), false); err != nil {
		t.Fatal(err)
	}
	err := Write(path, []byte("two"), false)
	if f, ok := errors.AsType[*control.Failure](err); !ok || f.Exit != control.ExitRefused || !strings.Contains(f.Do, "--force") {
		t.Errorf("got %v", err)
	}
	is := func(want string) {
		t.Helper()
		if b, err := os.ReadFile(path); string(b) != want {
			t.Errorf("it holds %q, %v; wanted %q", b, err, want)
		}
		if all, err := os.ReadDir(dir); len(all) != 1 {
			t.Errorf("%v beside it, %v", all, err)
		}
	}
	is("one")
	old, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	if err := Write(path, []byte("three"), true); err != nil {
		t.Fatal(err)
	}
	is("three")
	if b, _ := io.ReadAll(old); string(b) != "one" {
		t.Errorf("who had it open reads %q: it was not replaced, but written over", b)
	}
	usage(t, Write(filepath.Join(dir, "none", "x"), nil, false), "no such file")
	usage(t, Write(filepath.Join(path, "x"), nil, false), "not a directory")
	usage(t, Writable("-", false), "wanted a file to write")
	if err := Writable(filepath.Join(dir, "new"), false); err != nil {
		t.Error(err)
	}
	is("three")
}

// A read that waits for ever ends with its context.
func TestUntil(t *testing.T) {
	text := strings.Repeat("what is read comes as it is. ", 10_000)
	if b, err := io.ReadAll(Until(t.Context(), strings.NewReader(text))); string(b) != text || err != nil {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	broken := errors.New("broken")
	if _, err := io.ReadAll(Until(t.Context(), io.MultiReader(strings.NewReader("x"), failing{broken}))); err != broken {
		t.Errorf("got %v", err)
	}
	r, w := io.Pipe()
	defer w.Close()
	ctx, cancel := context.WithCancel(t.Context())
	u := Until(ctx, r)
	go func() {
		w.Write([]byte("some"))
		cancel()
	}()
	if b, err := io.ReadAll(u); !errors.Is(err, context.Canceled) || string(b) != "some" && len(b) != 0 {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := u.Read(make([]byte, 1)); !errors.Is(err, context.Canceled) {
		t.Errorf("again: %v", err)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// Of several files each fault has its line, and what could be read is reported.
func TestInfo(t *testing.T) {
	good, empty, dir := save(t, "good.bit", bitFile(t)), save(t, "empty.bit", nil), t.TempDir()
	var faults []string
	reports, err := Info([]string{good, empty, dir, "-", "-"}, bytes.NewReader(bitFile(t)), func(text string) { faults = append(faults, text) })
	if len(reports) != 2 || reports[0].File != good || reports[1].File != "-" || reports[0].Segments != nil {
		t.Errorf("got %+v", reports)
	}
	usage(t, err, "3 of 5 files")
	if len(faults) != 3 || !strings.HasPrefix(faults[0], empty+": got an empty file") || !strings.HasPrefix(faults[1], dir+": got a directory") || !strings.Contains(faults[2], "second time") {
		t.Errorf("faults are %q", faults)
	}
	damaged := bitFile(t)
	damaged[len(damaged)-200] ^= 1
	faults = nil
	reports, err = Info([]string{save(t, "x.bit", damaged)}, nil, func(text string) { faults = append(faults, text) })
	if f, ok := errors.AsType[*control.Failure](err); !ok || f.Exit != control.ExitFailed || !strings.Contains(f.Why, "integrity invalid") || len(reports) != 1 || faults != nil {
		t.Errorf("a damaged one: %+v, %v, %q", reports, err, faults)
	}
	var text strings.Builder
	Text(&text, append(reports, reports...))
	if got := strings.Count(text.String(), "\n\nfile "); got != 1 {
		t.Errorf("%d empty lines between two reports:\n%s", got, text.String())
	}
}
