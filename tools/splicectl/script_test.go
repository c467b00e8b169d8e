package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"splicenic/bitstream/container"
	"splicenic/emu/image"
	"splicenic/regs"
	"splicenic/tools/card"
)

var update = flag.Bool("update", false, "write the golden text of the scripts anew")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"splicectl": main})
}

// TestScripts runs the command line as a shell does. The card is the emulated one, the socket one of the script's own.
func TestScripts(t *testing.T) {
	captures, err := filepath.Abs(filepath.Join("testdata", "capture"))
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("SPLICE_CARD", "emu")
			e.Setenv("CAPTURE", captures) // a connection's page, and captures of both wires
			e.Setenv("SPLICE_SOCKET", filepath.Join(e.WorkDir, "splice.sock"))
			e.Defer(func() {
				if err := endCards(e.WorkDir); err != nil {
					t.Error(err)
				}
			})
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exits":  exits,
			"answer": answers,
			"signal": send,
			"status": status,
			"card":   addCard,
			"image":  makeImage,
		},
	})
}

// makeImage writes an image of the emulated card, or a flash with it as golden: image bit|flash FILE VERSION [older].
func makeImage(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: image bit|flash FILE VERSION [older]")
	}
	v, err := container.ParseVersion(args[2])
	ts.Check(err)
	p := image.Params{Name: "emulator", Version: image.Version{v.Major, v.Minor, v.Patch}, DataPathDigest: regs.DataPathDigest, Geometry: image.Geometry{Pages: 65536}}
	if len(args) > 3 {
		p.DataPathDigest ^= 1 << 16
	}
	encode := image.Encode
	if args[0] == "bit" {
		encode = func(p image.Params, o image.Options) ([]byte, error) {
			return image.EncodeBit(p, o, "2026/01/02", "03:04:05")
		}
	}
	b, err := encode(p, image.Options{})
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), b, 0o600))
}

// endCards ends the card processes with sockets in a directory.
func endCards(dir string) (err error) {
	sockets, _ := filepath.Glob(filepath.Join(dir, "*.card.sock"))
	for _, path := range sockets {
		p, err1 := card.Find(context.Background(), path)
		err = errors.Join(err, err1)
		if p != nil {
			_ = syscall.Kill(p.PID, syscall.SIGCONT)
			err = errors.Join(err, p.Stop(context.Background()))
			p.Close()
		}
	}
	return err
}

// exits runs a command and compares its exit code: exits CODE PROGRAM ARGS...
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM ARGS...")
	}
	err := ts.Exec(args[1], args[2:]...)
	var exit *exec.ExitError
	got := 0
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("run %v: %v", args[1:], err)
	}
	if strconv.Itoa(got) != args[0] {
		ts.Fatalf("exit code %d, want %s", got, args[0])
	}
}

// getStatus asks the runtime behind the script's socket how it fares.
func getStatus(ts *testscript.TestScript) []byte {
	path := ts.Getenv("SPLICE_SOCKET")
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	}}}
	res, err := c.Get("http://card/v1/status")
	ts.Check(err)
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	ts.Check(err)
	return b
}

// status waits until the runtime's status matches: status PATTERN.
func status(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: status PATTERN")
	}
	want, err := regexp.Compile(args[0])
	ts.Check(err)
	var got []byte
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); <-tick.C {
		if got = getStatus(ts); want.Match(got) {
			return
		}
	}
	ts.Fatalf("status never matched %s: %s", args[0], got)
}

// send sends the runtime or its card process a signal: signal runtime|card KILL|HUP|STOP|CONT. A stopped runtime answers no
// more, so its number is kept.
func send(ts *testscript.TestScript, neg bool, args []string) {
	signals := map[string]syscall.Signal{"KILL": syscall.SIGKILL, "HUP": syscall.SIGHUP, "STOP": syscall.SIGSTOP, "CONT": syscall.SIGCONT}
	if neg || len(args) != 2 || signals[args[1]] == 0 || args[0] != "runtime" && args[0] != "card" {
		ts.Fatalf("usage: signal runtime|card KILL|HUP|STOP|CONT")
	}
	var pid int
	switch {
	case args[0] == "card":
		p, err := card.Find(context.Background(), strings.TrimSuffix(ts.Getenv("SPLICE_SOCKET"), ".sock")+".card.sock")
		ts.Check(err)
		if p == nil {
			ts.Fatalf("there is no card process")
		}
		pid = p.PID
		p.Close()
	case args[1] != "CONT":
		var s struct{ PID int }
		ts.Check(json.Unmarshal(getStatus(ts), &s))
		ts.Setenv("RUNTIME", strconv.Itoa(s.PID))
		pid = s.PID
	default:
		var err error
		pid, err = strconv.Atoi(ts.Getenv("RUNTIME"))
		ts.Check(err)
	}
	ts.Check(syscall.Kill(pid, signals[args[1]]))
}

// answers waits until somebody answers on the script's socket, or on another one; negated, until nobody does any more.
func answers(ts *testscript.TestScript, neg bool, args []string) {
	path := ts.Getenv("SPLICE_SOCKET")
	if len(args) == 1 {
		path = ts.MkAbs(args[0])
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for range 1000 {
		c, err := net.Dial("unix", path)
		if err == nil {
			c.Close()
		}
		if (err == nil) != neg {
			return
		}
		<-tick.C
	}
	ts.Fatalf("socket %s: %s", path, map[bool]string{false: "nobody answers", true: "somebody still answers"}[neg])
}

// addCard puts a card into a machine of the script's, a tree for --machine: card DIR ADDRESS DRIVER|none GROUP.
func addCard(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 4 {
		ts.Fatalf("usage: card DIR ADDRESS DRIVER|none GROUP")
	}
	ts.Check(makeCard(ts.MkAbs(args[0]), args[1], args[2], args[3]))
}

// makeCard puts a card into a tree for --machine.
func makeCard(root, address, driver, group string) (err error) {
	sys := filepath.Join(root, "sys")
	dir := filepath.Join(sys, "bus/pci/devices", address)
	file := func(name, text string) {
		err = errors.Join(err, os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644))
	}
	link := func(to, name string) {
		err = errors.Join(err, os.MkdirAll(to, 0o755), os.MkdirAll(filepath.Dir(name), 0o755), os.Symlink(to, name))
	}
	err = errors.Join(os.MkdirAll(dir, 0o755), os.MkdirAll(filepath.Join(sys, "bus/pci/drivers/vfio-pci"), 0o755))
	for name, text := range map[string]string{
		"vendor": "0x1234\n", "device": "0x5c1c\n", "class": "0x020000\n", "irq": "11\n", "power_state": "D0\n", "numa_node": "1\n", "driver_override": "(null)\n",
		"resource": "0x00000000e0000000 0x00000000e00fffff 0x0000000000040200\n0x0000000000000000 0x0000000000000000 0x0000000000000000",
		"config":   "\x34\x12\x1c\x5c\x06\x00\x10\x00\x00\x00\x00\x02\x00\x00\x00\x00",
	} {
		file(filepath.Join(dir, name), text)
	}
	if driver != "none" {
		link(filepath.Join(sys, "bus/pci/drivers", driver), filepath.Join(dir, "driver"))
	}
	members := filepath.Join(sys, "kernel/iommu_groups", group)
	link(members, filepath.Join(dir, "iommu_group"))
	link(dir, filepath.Join(members, "devices", address))
	return err
}
