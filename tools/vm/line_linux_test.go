package vm

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"splicenic/tools/vm/agent"
)

// pair is a machine whose guest is an agent in this process.
func pair(t *testing.T) *Machine {
	t.Helper()
	here, there := net.Pipe()
	served := make(chan error, 1)
	go func() {
		err := agent.Serve(there, agent.Guest{})
		there.Close()
		served <- err
	}()
	m := &Machine{line: newLine(here)}
	t.Cleanup(func() {
		m.line.close()
		<-served
	})
	if _, err := m.line.hello(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestLine(t *testing.T) {
	m := pair(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var followed []string
	exit, out, err := m.Run(ctx, Options{Env: []string{"A=b"}, Follow: func(l string) { followed = append(followed, l) }}, "/bin/sh", "-c", "echo $A; echo c; exit 2")
	if exit != 2 || out != "b\nc\n" || err != nil || strings.Join(followed, " ") != "b c" {
		t.Errorf("Run: %d, %q, %v, %q", exit, out, err, followed)
	}
	if _, _, err := m.Run(ctx, Options{}, "/no/such/program"); err == nil {
		t.Error("a program that is not there ran")
	}
	path := t.TempDir() + "/f"
	if err := m.Put(ctx, path, []byte("x")); err != nil {
		t.Error(err)
	}
	if b, err := m.Get(ctx, path); string(b) != "x" || err != nil {
		t.Errorf("Get: %q, %v", b, err)
	}
	if _, err := m.Fetch(ctx, path, "/"); err == nil {
		t.Error("a file answered")
	}
	c, err := m.Start(Options{}, "/bin/sh", "-c", "exec sleep 60")
	if err != nil {
		t.Fatal(err)
	}
	// The guest ends: whoever waits for it is told.
	if _, err := m.line.ask(ctx, agent.Request{Op: agent.Off}); err != nil {
		t.Error(err)
	}
	if _, err := c.Wait(ctx); err != nil && !strings.Contains(err.Error(), "canceled") && !strings.Contains(err.Error(), errLine.Error()) {
		t.Errorf("Wait for a command of a guest that ended: %v", err)
	}
	<-m.line.ended
	if _, err := m.Get(ctx, path); err == nil {
		t.Error("a guest that has ended answered")
	}
}

// FuzzLine: whatever a guest says, the host's end neither fails nor blocks.
func FuzzLine(f *testing.F) {
	f.Add([]byte(`{"id":0,"guest":{"kernel":"6.1"}}` + "\n" + `{"id":1,"pid":7}` + "\n" + `{"id":1,"line":"x"}` + "\n" + `{"id":1,"done":true,"exit":3}` + "\n"))
	f.Add([]byte("[ 1.2] panic\n{}\n{\"id\":1,\"done\":true}\n{\"id\":1,\"done\":true}\n"))
	f.Add([]byte("{\"id\":1,\"data\":\"!\"}\n\n\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		here, there := net.Pipe()
		l := newLine(here)
		c := &Command{Argv: []string{"x"}, line: l, done: make(chan struct{})}
		l.mu.Lock()
		l.pending[1] = c.replied
		l.mu.Unlock()
		there.Write(b)
		there.Close()
		<-l.ended
		c.Wait(t.Context())
		c.Output()
		l.close()
	})
}

// TestDirs: a folder stands before what lies in it.
func TestDirs(t *testing.T) {
	at := map[string]int{}
	for i, d := range dirs([]File{{Name: "a/b/c"}, {Name: "etc/x"}}) {
		at[d.Name] = i + 1
	}
	if at["a"] == 0 || at["a/b"] < at["a"] || at["etc"] == 0 || at["proc"] == 0 {
		t.Errorf("folders %v", at)
	}
}
