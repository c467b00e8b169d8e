package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

var update = flag.Bool("update", false, "write the golden text of the scripts anew")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"splicectl": main})
}

// TestScripts runs the command line as a shell does. The card is the emulated one, the socket one of the script's own.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("SPLICE_CARD", "emu")
			e.Setenv("SPLICE_SOCKET", filepath.Join(e.WorkDir, "splice.sock"))
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exits":  exits,
			"answer": answers,
			"signal": send,
			"status": status,
		},
	})
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
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
		if got = getStatus(ts); want.Match(got) {
			return
		}
	}
	ts.Fatalf("status never matched %s: %s", args[0], got)
}

// send sends the runtime a signal: signal HUP|STOP|CONT. A stopped one answers no more, so its number is kept.
func send(ts *testscript.TestScript, neg bool, args []string) {
	signals := map[string]syscall.Signal{"HUP": syscall.SIGHUP, "STOP": syscall.SIGSTOP, "CONT": syscall.SIGCONT}
	if neg || len(args) != 1 || signals[args[0]] == 0 {
		ts.Fatalf("usage: signal HUP|STOP|CONT")
	}
	if args[0] != "CONT" {
		var s struct{ PID int }
		ts.Check(json.Unmarshal(getStatus(ts), &s))
		ts.Setenv("RUNTIME", strconv.Itoa(s.PID))
	}
	pid, err := strconv.Atoi(ts.Getenv("RUNTIME"))
	ts.Check(err)
	ts.Check(syscall.Kill(pid, signals[args[0]]))
}

// answers waits until a runtime answers on the script's socket; negated, until none does any more.
func answers(ts *testscript.TestScript, neg bool, args []string) {
	path := ts.Getenv("SPLICE_SOCKET")
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
