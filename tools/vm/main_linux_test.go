package vm

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
)

// variable asks for the tests that need a machine: 1, or the name of the one kernel to run them with.
const variable = "SPLICE_VM"

// lab is what the tests share.
var lab struct {
	ctx      context.Context // ends with a signal
	dir      string          // of this run
	prepared func() error

	root                   Root
	init, splicectl, guest string
}

// TestMain removes what the tests leave, however they end: machines and card processes end with this process.
func TestMain(m *testing.M) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	dir, err := os.MkdirTemp("", "vm") // short: sockets lie in it
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	lab.ctx, lab.dir, lab.prepared = ctx, dir, sync.OnceValue(prepare)
	code := m.Run()
	stop()
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// prepare fetches QEMU and builds the guest's programs.
func prepare() error {
	begin := time.Now()
	s, err := OpenStore(os.Stderr)
	if err != nil {
		return err
	}
	if lab.root, err = s.QEMU(lab.ctx); err != nil {
		return err
	}
	for _, b := range []struct {
		to   *string
		name string
		args []string
	}{
		{&lab.init, "init", []string{"build", "./init"}},
		{&lab.splicectl, "splicectl", []string{"build", "../splicectl"}},
		{&lab.guest, "guest.test", []string{"test", "-c", "./guest"}},
	} {
		*b.to = filepath.Join(lab.dir, b.name)
		n := len(b.args) - 1
		c := exec.CommandContext(lab.ctx, "go", append(b.args[:n:n], "-o", *b.to, b.args[n])...)
		c.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", b.name, err, out)
		}
	}
	fmt.Fprintf(os.Stderr, "prepared in %v\n", time.Since(begin).Round(time.Millisecond))
	return nil
}

// kernel returns the kernel of a test, or skips it.
func kernel(t *testing.T, name string) *Kernel {
	t.Helper()
	switch asked := os.Getenv(variable); {
	case asked == "":
		t.Skip("boots virtual machines, and fetches QEMU and kernels the first time: make test-vm")
	case name == LinuxIOMMUFD && asked != name:
		t.Skip("builds a kernel the first time: make test-vm-iommufd")
	case asked != "1" && asked != name:
		t.Skipf("%s=%s leaves this kernel out", variable, asked)
	}
	if err := lab.prepared(); err != nil {
		t.Fatal(err)
	}
	s, err := OpenStore(os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	k, err := s.Kernel(lab.ctx, lab.root, name)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// bounded is a context for one test that also ends with a signal.
func bounded(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeoutCause(lab.ctx, d, fmt.Errorf("the test takes longer than %v", d))
	t.Cleanup(cancel)
	return ctx
}

// boot boots a machine with cards.
func boot(ctx context.Context, t *testing.T, k *Kernel, cards ...string) *Machine {
	t.Helper()
	dir, err := os.MkdirTemp(lab.dir, "m")
	if err != nil {
		t.Fatal(err)
	}
	m, err := Boot(ctx, Config{
		Root: lab.root, Kernel: k, Dir: dir, Init: lab.init, Cards: cards, HugePages: 96,
		Programs: []Program{{"bin/splicectl", lab.splicectl}, {"bin/guest.test", lab.guest}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := m.Close()
		if err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("console of the guest:\n%s", m.Console())
		}
	})
	g := m.Guest()
	t.Logf("linux %s is up %.1f s after its start", g.Kernel, g.Uptime)
	for _, p := range g.Problems {
		t.Errorf("guest: %s", p)
	}
	return m
}
