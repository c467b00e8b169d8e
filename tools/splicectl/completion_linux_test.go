package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestF13CompletionInShells presses TAB in real shells, on a terminal: the line that stands there afterwards is right, no
// prefix is doubled, nothing else is printed, and the file behind a redirection is left alone.
func TestF13CompletionInShells(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "splice.sock")
	serveConnections(t, socket)
	kept := filepath.Join(dir, "kept.txt")
	if err := os.WriteFile(kept, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, sh := range []struct {
		name, setup string
		args        []string
	}{
		{"bash", "source <(splicectl completion bash)", []string{"--norc", "--noprofile", "-i"}},
		{"zsh", "unsetopt zle_bracketed_paste; autoload -U compinit; compinit -D -u; source <(splicectl completion zsh)", []string{"-f", "-i"}},
	} {
		t.Run(sh.name, func(t *testing.T) {
			path, err := exec.LookPath(sh.name)
			if err != nil {
				t.Skipf("needs package %s: %v", sh.name, err)
			}
			s := startShell(t, dir, socket, path, sh.args)
			s.run("PS1='@ '; unset PROMPT_COMMAND; " + sh.setup)
			for _, tt := range []struct{ name, typed, want string }{
				{"command", "splicectl compl", "splicectl completion"},
				{"register", "splicectl reg get amu.quarantine_ea", "splicectl reg get amu.quarantine_early"},
				{"second register", "splicectl reg get amu.free hostif.interr", "splicectl reg get amu.free hostif.interrupts"},
				{"field", "splicectl reg set amu.control.en", "splicectl reg set amu.control.enable"},
				{"value of a field", "splicectl reg set configuration.flash_command.operation progr", "splicectl reg set configuration.flash_command.operation program"},
				{"nothing to complete", "splicectl reg get nothing.li", "splicectl reg get nothing.li"},
				{"value before the colon", "splicectl conn show 198.18.0.1", "splicectl conn show 198.18.0.10:40000"},
				{"value at the colon", "splicectl conn show 198.18.0.10:", "splicectl conn show 198.18.0.10:40000"},
				{"value behind the colon", "splicectl conn show 198.18.0.10:4", "splicectl conn show 198.18.0.10:40000"},
				{"flag", "splicectl stats --sock", "splicectl stats --socket"},
				{"flag with a value", "splicectl card info -o js", "splicectl card info -o json"},
				{"flag with a value behind =", "splicectl card info --output=js", "splicectl card info --output=json"},
				{"behind a redirection", "splicectl reg list > kep", "splicectl reg list > kept.txt"},
				{"after a redirection", "splicectl 2> kept.txt reg get amu.quarantine_ea", "splicectl 2> kept.txt reg get amu.quarantine_early"},
			} {
				t.Run(tt.name, func(t *testing.T) {
					if got := s.complete(tt.typed); got != tt.want {
						t.Errorf("%q became\n got %q\nwant %q\n%q", tt.typed, got, tt.want, s.seen)
					}
				})
			}
			if b, err := os.ReadFile(kept); err != nil || string(b) != "precious" {
				t.Errorf("the file behind the redirection is %q, %v", b, err)
			}
			if es, _ := os.ReadDir(dir); len(es) != 2 {
				t.Errorf("completion left files: %v", es)
			}
		})
	}
}

// serveConnections is as much of a runtime as completion asks for.
func serveConnections(t *testing.T, path string) {
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, `[{"id":"7.1","client":"198.18.0.10:40000"}]`)
	})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Serve(ln)
	}()
	t.Cleanup(func() { s.Close(); <-done })
}

// A shell runs on a terminal of its own.
type shell struct {
	t      *testing.T
	master *os.File
	output chan byte
	seen   string // since the last wait
	marks  int
}

func startShell(t *testing.T, dir, socket, path string, args []string) *shell {
	master, slave := openTerminal(t)
	cmd := exec.Command(path, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "SPLICE_SOCKET="+socket, "TERM=dumb", "HOME="+dir, "HISTFILE=", "INPUTRC=/dev/null", "LC_ALL=C")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	slave.Close()
	s := &shell{t: t, master: master, output: make(chan byte, 1<<20)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		b := make([]byte, 4096)
		for {
			n, err := master.Read(b)
			for _, c := range b[:n] {
				s.output <- c
			}
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		<-done // the last user of the terminal is gone: the read ends
		master.Close()
	})
	return s
}

func openTerminal(t *testing.T) (master, slave *os.File) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Skipf("no terminals here: %v", err)
	}
	master = os.NewFile(uintptr(fd), "/dev/ptmx")
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 50, Col: 500})
	}
	if err != nil {
		t.Fatal(err)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return master, slave
}

func (s *shell) send(text string) {
	if _, err := s.master.WriteString(text); err != nil {
		s.t.Fatal(err)
	}
}

// wait reads until text has come.
func (s *shell) wait(text string) {
	deadline := time.After(30 * time.Second)
	s.seen = ""
	for !strings.Contains(s.seen, text) {
		select {
		case c := <-s.output:
			s.seen += string(c)
		case <-deadline:
			s.t.Fatalf("waited for %q, saw %q", text, s.seen)
		}
	}
}

// run runs a command and waits for its end.
func (s *shell) run(command string) {
	s.marks++
	s.send(fmt.Sprintf("%s; echo end-$((%d + 1000))\n", command, s.marks))
	s.wait(fmt.Sprintf("end-%d", s.marks+1000))
}

// complete types a text and TAB, and returns the line that stands there then: the shell is made to print it.
func (s *shell) complete(typed string) string {
	s.send(typed + "\t")
	s.marks++
	mark := fmt.Sprintf("end-%d", s.marks+1000)
	s.send(fmt.Sprintf("\x05'; echo %s\x01printf '%%s\\n' 'line=\n", "end-$(("+fmt.Sprint(s.marks)+" + 1000))"))
	s.wait(mark)
	_, line, _ := strings.Cut(s.seen[strings.LastIndex(s.seen, "\nline="):], "=")
	line, _, _ = strings.Cut(line, "\r")
	return strings.TrimRight(line, " ")
}
