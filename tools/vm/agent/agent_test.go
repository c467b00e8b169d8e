package agent_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"splicenic/tools/vm/agent"
)

// host is the other end of the line of an agent that runs in this process.
type host struct {
	t    *testing.T
	conn net.Conn
	in   *json.Decoder
	last int
	over chan error
}

func newHost(t *testing.T) *host {
	t.Helper()
	here, there := net.Pipe()
	h := &host{t: t, conn: here, in: json.NewDecoder(bufio.NewReader(here)), over: make(chan error, 1)}
	go func() {
		err := agent.Serve(there, agent.Guest{Kernel: "1.2"})
		there.Close()
		h.over <- err
	}()
	t.Cleanup(func() {
		here.Close()
		<-h.over
	})
	if r := h.reply(); r.Guest == nil || r.Guest.Kernel != "1.2" || !r.Done {
		t.Fatalf("hello: %+v", r)
	}
	return h
}

func (h *host) reply() (r agent.Reply) {
	h.t.Helper()
	if err := h.in.Decode(&r); err != nil {
		h.t.Fatal(err)
	}
	return r
}

func (h *host) send(r agent.Request) int {
	h.t.Helper()
	h.last++
	r.ID = h.last
	b, err := json.Marshal(r)
	if err != nil {
		h.t.Fatal(err)
	}
	if _, err := fmt.Fprintf(h.conn, "%s\n", b); err != nil {
		h.t.Fatal(err)
	}
	return r.ID
}

// ask sends a request and collects its replies: lines of output, and the last one.
func (h *host) ask(r agent.Request) (lines []string, last agent.Reply) {
	h.t.Helper()
	id := h.send(r)
	for {
		r := h.reply()
		switch {
		case r.ID != id:
			h.t.Errorf("reply to %d, asked was %d", r.ID, id)
		case r.Done:
			return lines, r
		case r.PID == 0:
			lines = append(lines, r.Line)
		}
	}
}

func TestRun(t *testing.T) {
	h := newHost(t)
	for _, x := range []struct {
		name, script string
		timeout      int
		lines        []string
		exit         int
		failed       bool
	}{
		{"both outputs", "echo one; echo two >&2; exit 3", 0, []string{"one", "two"}, 3, false},
		{"no newline", "printf x", 0, []string{"x"}, 0, false},
		{"environment", "echo $HERE", 0, []string{"there"}, 0, false},
		{"signal", "kill -9 $$", 0, nil, 137, false},
		{"late", "exec sleep 60", 50, nil, 137, true},
		{"long line", "printf %05000d 0", 0, []string{strings.Repeat("0", 4096), strings.Repeat("0", 904)}, 0, false},
	} {
		lines, last := h.ask(agent.Request{Op: agent.Run, Argv: []string{"/bin/sh", "-c", x.script}, Env: []string{"HERE=there"}, TimeoutMs: x.timeout})
		if fmt.Sprint(lines) != fmt.Sprint(x.lines) || last.Exit != x.exit || (last.Error != "") != x.failed {
			t.Errorf("%s: %q, %+v", x.name, lines, last)
		}
	}
	for _, argv := range [][]string{nil, {"/no/such/program"}} {
		if _, last := h.ask(agent.Request{Op: agent.Run, Argv: argv}); last.Error == "" {
			t.Errorf("%q ran", argv)
		}
	}
}

func TestKill(t *testing.T) {
	h := newHost(t)
	id := h.send(agent.Request{Op: agent.Run, Argv: []string{"/bin/sh", "-c", "exec sleep 60"}})
	if r := h.reply(); r.ID != id || r.PID == 0 {
		t.Fatalf("start: %+v", r)
	}
	kill := h.send(agent.Request{Op: agent.Kill, Of: id, Signal: 9})
	for range 2 { // in either order
		switch r := h.reply(); {
		case r.ID == kill && r.Done && r.Error == "":
		case r.ID == id && r.Done && r.Exit == 137:
		default:
			t.Errorf("after the kill: %+v", r)
		}
	}
	if _, r := h.ask(agent.Request{Op: agent.Kill, Of: id, Signal: 9}); r.Error == "" {
		t.Error("a command that has ended was killed")
	}
}

func TestFiles(t *testing.T) {
	h := newHost(t)
	path := filepath.Join(t.TempDir(), "a", "b")
	if _, r := h.ask(agent.Request{Op: agent.Put, Path: path, Data: []byte("text\x00")}); r.Error != "" {
		t.Fatal(r.Error)
	}
	if _, r := h.ask(agent.Request{Op: agent.Get, Path: path}); string(r.Data) != "text\x00" || r.Error != "" {
		t.Errorf("get: %+v", r)
	}
	if _, r := h.ask(agent.Request{Op: agent.Get, Path: path + "x"}); r.Error == "" {
		t.Error("a file that is not there was read")
	}
	// What is no request, or none that is known, harms nothing.
	fmt.Fprintln(h.conn, "[ 12.3] a kernel's message")
	if _, r := h.ask(agent.Request{Op: "dance"}); r.Error == "" {
		t.Error("dance succeeded")
	}
}

func TestAsk(t *testing.T) {
	dir, err := os.MkdirTemp("", "agent") // short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ln, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		b := make([]byte, 4)
		n, _ := c.Read(b)
		fmt.Fprintf(c, "%s yourself", b[:n])
	}()
	h := newHost(t)
	if _, r := h.ask(agent.Request{Op: agent.Ask, Path: filepath.Join(dir, "s"), Data: []byte("you")}); string(r.Data) != "you yourself" {
		t.Errorf("ask: %+v", r)
	}
}

// TestOff: the agent ends when it is told to, and takes what runs with it.
func TestOff(t *testing.T) {
	h := newHost(t)
	id := h.send(agent.Request{Op: agent.Run, Argv: []string{"/bin/sh", "-c", "exec sleep 60"}})
	if r := h.reply(); r.ID != id || r.PID == 0 {
		t.Fatalf("start: %+v", r)
	}
	off := h.send(agent.Request{Op: agent.Off})
	for range 2 {
		switch r := h.reply(); {
		case r.ID == off && r.Done:
		case r.ID == id && r.Done && r.Exit == 137:
		default:
			t.Errorf("after off: %+v", r)
		}
	}
	err := <-h.over
	h.over <- err
	if err != nil {
		t.Errorf("Serve: %v", err)
	}
}
