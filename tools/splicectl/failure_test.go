package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// lastLine is the last line of a command's stderr.
func lastLine(b []byte) string {
	lines := strings.Split(strings.TrimRight(string(b), "\n"), "\n")
	return lines[len(lines)-1]
}

// TestF09EveryCommandFails makes each command fail in the ways it can: the exit code is that of the kind, nothing is on
// stdout, and the last line on stderr says that the command failed.
func TestF09EveryCommandFails(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.yaml")
	if err := os.WriteFile(bad, []byte("card: emu\nservices: 7\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	dead := filepath.Join(dir, "dead.sock")
	broken := filepath.Join(dir, "broken.sock")
	serveErrors(t, broken)

	asking := []string{"card info", "card reset", "port list", "reg get amu.free", "reg set amu.low_watermark 5", "reg dump", "reg diff", "rule list",
		"cam list client", "cam lookup client --client 198.18.0.10:1 --vip 198.18.0.80:80", "cam lookup server --client 198.18.0.10:1 --server 198.18.1.11:80",
		"page show 3", "conn list", "conn show 3", "stats"}
	type row struct {
		args   []string
		socket string
		want   int
	}
	var rows []row
	for _, c := range asking {
		args := strings.Fields(c)
		rows = append(rows,
			row{append(args, "--card", "vfio:0000:65:00.0"), dead, 3},
			row{append(args, "--card", "vfio-user:"+dead), dead, 3},
			row{append(args, "--card", "nonsense"), dead, 2},
			row{append(args, "-o", "xml"), dead, 2},
			row{args, broken, 4}, // a runtime whose card is lost
		)
	}
	rows = append(rows,
		row{[]string{"config", "check", "-c", bad}, dead, 2},
		row{[]string{"config", "diff", "-c", bad}, broken, 4},
		row{[]string{"config", "apply", "-c", bad}, dead, 1},
		row{[]string{"config", "apply", "-c", filepath.Join(dir, "absent")}, dead, 2},
		row{[]string{"run", "-c", bad}, dead, 2},
		row{[]string{"run", "-c", filepath.Join(dir, "absent")}, dead, 2},
		row{[]string{"reg", "diff", bad}, dead, 2},
		row{[]string{"reg", "get", "amu.fre"}, dead, 2},
		row{[]string{"reg", "set", "amu.free", "1"}, dead, 6},
		row{[]string{"bench", "datapath", "--flows", "900000"}, dead, 1},
		row{[]string{"version", "now"}, dead, 2},
		row{[]string{"completion", "tcsh"}, dead, 2},
		row{[]string{"demo", "--requests", "none"}, dead, 2},
		row{[]string{"demo", "--requests", "-5"}, dead, 2},
		row{[]string{"demo", "--memory", "--requests", "0"}, dead, 2},
		row{[]string{"demo", "--requests", "9223372036854775807"}, dead, 2},
		row{[]string{"card", "list", "all"}, dead, 2},
		row{[]string{"card", "serve"}, dead, 2},
		row{[]string{"card", "serve", "--card", "vfio:0000:65:00.0", "--socket", filepath.Join(dir, "c.sock")}, dead, 3},
		row{[]string{"card", "serve", "--card", "emu", "--socket", bad}, dead, 1},
		row{[]string{"card", "bind", "board"}, dead, 2},
		row{[]string{"card", "release", "ffff:65:00.0"}, dead, 3},
		row{[]string{"card", "doctor", "--udev-rule", "cards", "--card", "vfio:ffff:65:00.0"}, dead, 3},
	)
	for _, r := range rows {
		t.Run(strings.Join(r.args, " ")+" "+filepath.Base(r.socket), func(t *testing.T) {
			t.Parallel()
			c := exec.Command("splicectl", r.args...)
			c.Env = append(os.Environ(), "SPLICE_CARD=emu", "SPLICE_SOCKET="+r.socket)
			var out, errs bytes.Buffer
			c.Stdout, c.Stderr = &out, &errs
			got := 0
			if err := c.Run(); err != nil {
				exit, ok := errors.AsType[*exec.ExitError](err)
				if !ok {
					t.Fatal(err)
				}
				got = exit.ExitCode()
			}
			if got != r.want || !strings.Contains(lastLine(errs.Bytes()), " failed: ") || out.Len() != 0 {
				t.Errorf("exit code %d, want %d\nstdout %s\nstderr %s", got, r.want, out.Bytes(), errs.Bytes())
			}
		})
	}
}

// serveErrors is a runtime whose card is lost.
func serveErrors(t *testing.T, path string) {
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprint(w, `{"error":{"what":"read card","where":"emu","why":"device lost","do":"look at the card","exit":4}}`)
	})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Serve(ln)
	}()
	t.Cleanup(func() { s.Close(); <-done })
}

// TestF09Interrupted ends commands by Ctrl-C when they have begun: they fail and say so.
func TestF09Interrupted(t *testing.T) {
	for _, args := range [][]string{
		{"demo", "--memory", "--requests", "1000000"},
		{"bench", "datapath"},
	} {
		t.Run(args[0], func(t *testing.T) {
			c := exec.Command("splicectl", args...)
			var out, errs bytes.Buffer
			pipe, err := c.StdoutPipe()
			c.Stderr = &errs
			if args[0] == "bench" { // its first words come on stderr
				c.Stderr = nil
				c.Stdout = &out
				pipe, err = c.StderrPipe()
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			r := bufio.NewReader(pipe)
			if _, err := r.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
			c.Process.Signal(os.Interrupt)
			rest := &out
			if args[0] == "bench" {
				rest = &errs
			}
			if _, err := rest.ReadFrom(r); err != nil {
				t.Fatal(err)
			}
			if err := c.Wait(); err == nil || c.ProcessState.ExitCode() != 1 {
				t.Errorf("exit code %d, want 1", c.ProcessState.ExitCode())
			}
			if !strings.Contains(lastLine(errs.Bytes()), " failed: ") {
				t.Errorf("stderr ends %q", lastLine(errs.Bytes()))
			}
		})
	}
}

// TestF11TwoAtOnce starts two runtimes at the same moment: one runs, the other is told so.
func TestF11TwoAtOnce(t *testing.T) {
	t.Setenv("SPLICE_CARD", "") // the file says which card
	dir := t.TempDir()
	file := filepath.Join(dir, "web.yaml")
	text := "card: emu\nemu: {client: mem, server: mem}\nports:\n  client: {addresses: [198.18.0.1/24]}\n  server: {addresses: [198.18.1.1/24]}\nservices: []\ngroups: []\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	type end struct {
		code int
		errs string
	}
	ends := make(chan end)
	var cmds [2]*exec.Cmd
	for i := range cmds {
		c := exec.Command("splicectl", "run", "-c", file, "--socket", filepath.Join(dir, "splice.sock"))
		var errs bytes.Buffer
		c.Stderr = &errs
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		cmds[i] = c
		go func() {
			c.Wait()
			ends <- end{c.ProcessState.ExitCode(), errs.String()}
		}()
	}
	if loser := <-ends; loser.code != 5 || !strings.Contains(loser.errs, "running") {
		t.Errorf("the one that ended first: exit code %d, want 5\n%s", loser.code, loser.errs)
	}
	if out, err := exec.Command("splicectl", "port", "list", "--socket", filepath.Join(dir, "splice.sock")).CombinedOutput(); err != nil {
		t.Errorf("port list: %v\n%s", err, out)
	}
	for _, c := range cmds {
		c.Process.Signal(os.Interrupt)
	}
	if winner := <-ends; winner.code != 0 {
		t.Errorf("the other: exit code %d, want 0\n%s", winner.code, winner.errs)
	}
}
