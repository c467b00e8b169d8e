//go:build linux

package vm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"splicenic/tools/vm/agent"
)

// Bounds of the life of a machine.
const (
	bootTimeout = 3 * time.Minute
	offTimeout  = time.Minute
)

// A Config describes a machine.
type Config struct {
	Root      Root
	Kernel    *Kernel
	Dir       string    // its files; short enough for a socket's path
	Init      string    // tools/vm/init, built without cgo
	Programs  []Program // what the guest has beside it
	Cards     []string  // vfio-user sockets; somebody listens on each already
	MemoryMiB int       // zero: 768
	CPUs      int       // zero: 1
	HugePages int       // of 2 MiB, set aside in the guest
	Append    string    // more of the kernel's command line
}

// A Machine is a running guest.
type Machine struct {
	guest   agent.Guest
	line    *line
	console string
	stop    context.CancelFunc
	done    chan struct{} // QEMU has ended
	err     error         // how; before done nobody's
}

// Boot starts a machine and waits until its first program answers. The machine ends with ctx, which has to end when a
// card's server does: QEMU waits for a dead one for minutes.
func Boot(ctx context.Context, cfg Config) (*Machine, error) {
	initrd := filepath.Join(cfg.Dir, "initrd")
	if err := writeImage(initrd, cfg.Kernel, cfg.Init, cfg.Programs, cfg.HugePages); err != nil {
		return nil, fmt.Errorf("boot linux %s: %w", cfg.Kernel.Name, err)
	}
	socket := filepath.Join(cfg.Dir, "line")
	ln, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	defer ln.Close()
	ctx, stop := context.WithCancel(ctx)
	m := &Machine{console: filepath.Join(cfg.Dir, "console.log"), stop: stop, done: make(chan struct{})}
	if err := m.start(ctx, cfg.Root.qemu(cfg.arguments(initrd, socket, m.console)...)); err != nil {
		stop()
		return nil, err
	}
	if err := m.hello(ctx, ln); err != nil {
		m.kill()
		return nil, fmt.Errorf("boot linux %s: %w\n%s", cfg.Kernel.Version, err, m.Console())
	}
	return m, nil
}

// arguments are QEMU's.
func (cfg *Config) arguments(initrd, socket, console string) []string {
	memory := strconv.Itoa(orElse(cfg.MemoryMiB, 768))
	a := []string{
		"-machine", "q35,kernel-irqchip=split,memory-backend=m0",
		// The cards reach the guest's memory through the file's descriptor: it has to be shared.
		"-object", "memory-backend-memfd,id=m0,share=on,size=" + memory + "M", "-m", memory,
		"-accel", "tcg", "-cpu", "max", "-smp", strconv.Itoa(orElse(cfg.CPUs, 1)),
		"-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
		"-serial", "file:" + console,
		"-chardev", "socket,id=line,path=" + socket, "-serial", "chardev:line",
		// With caching-mode the IOMMU tells the cards every mapping.
		"-device", "intel-iommu,intremap=on,caching-mode=on",
	}
	for i, card := range cfg.Cards {
		a = append(a, "-device", fmt.Sprintf("pcie-root-port,id=rp%d,chassis=%d,slot=%d", i, i+1, i+1),
			"-device", fmt.Sprintf(`{"driver":"vfio-user-pci","bus":"rp%d","socket":{"type":"unix","path":%q}}`, i, card))
	}
	// no_timer_check: a host that is busy lets the kernel's count of ticks at the start fail, and the kernel panic.
	return append(a, "-kernel", cfg.Kernel.image(), "-initrd", initrd,
		"-append", strings.TrimSpace("console=ttyS0 panic=-1 intel_iommu=on no_timer_check quiet "+cfg.Append))
}

func orElse(n, otherwise int) int {
	if n == 0 {
		return otherwise
	}
	return n
}

// start starts QEMU. Its thread stays this goroutine's, because the kernel ends a process with the thread that started it.
func (m *Machine) start(ctx context.Context, argv []string) error {
	c := exec.CommandContext(ctx, argv[0], argv[1:]...)
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true} // Ctrl-C is for the tests
	log, err := os.Create(m.console + ".qemu")
	if err != nil {
		return err
	}
	c.Stdout, c.Stderr = log, log
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer log.Close()
		err := c.Start()
		started <- err
		if err != nil {
			return
		}
		m.err = c.Wait()
		close(m.done)
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start QEMU: %w", err)
	}
	return nil
}

// hello waits for the guest's first word.
func (m *Machine) hello(ctx context.Context, ln net.Listener) error {
	ctx, cancel := context.WithTimeoutCause(ctx, bootTimeout, fmt.Errorf("no word from the guest within %v", bootTimeout))
	defer cancel()
	go func() {
		select {
		case <-m.done:
		case <-ctx.Done():
		}
		ln.Close() // ends Accept
	}()
	conn, err := ln.Accept()
	if err == nil {
		m.line = newLine(conn)
		m.guest, err = m.line.hello(ctx, m.done)
	}
	select {
	case <-m.done:
		return fmt.Errorf("QEMU has ended: %w", errors.Join(m.err, err))
	default:
	}
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return cause
	}
	return err
}

// Guest tells how the guest came up.
func (m *Machine) Guest() agent.Guest { return m.guest }

// Done is closed when the machine has ended, in whatever way.
func (m *Machine) Done() <-chan struct{} { return m.done }

// Console is what guest's kernel and QEMU have written so far.
func (m *Machine) Console() string {
	var all strings.Builder
	for _, name := range []string{m.console, m.console + ".qemu"} {
		b, _ := os.ReadFile(name) // QEMU may not have got that far
		all.Write(b)
	}
	return all.String()
}

// Close has the guest power off, and ends the machine if it does not.
func (m *Machine) Close() error {
	defer m.kill()
	ctx, cancel := context.WithTimeout(context.Background(), offTimeout)
	defer cancel()
	_, _ = m.line.ask(ctx, agent.Request{Op: agent.Off}) // the end of QEMU tells
	select {
	case <-m.done:
		return m.err
	case <-ctx.Done():
		return fmt.Errorf("the guest has not powered off within %v", offTimeout)
	}
}

// kill ends QEMU, and returns when it has.
func (m *Machine) kill() {
	m.stop()
	<-m.done
	if m.line != nil {
		m.line.close()
	}
}
