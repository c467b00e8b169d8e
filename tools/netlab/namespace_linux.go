package netlab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// own is the network namespace of the calling thread, which is not always that of the process.
const own = "/proc/thread-self/ns/net"

// refusals are the answers of a kernel that makes no namespaces for us: no capability, a limit of zero, not built in.
var refusals = [...]error{unix.EPERM, unix.EACCES, unix.ENOSPC, unix.EUSERS, unix.ENOSYS, unix.EINVAL}

// refused marks an error as ErrNotPermitted where it is one.
func refused(err error) error {
	for _, r := range refusals {
		if errors.Is(err, r) {
			return fmt.Errorf("%w: %w", ErrNotPermitted, err)
		}
	}
	return err
}

// newNamespace makes a network namespace and returns the handle that keeps it alive.
func newNamespace() (*os.File, error) {
	runtime.LockOSThread()
	home, err := os.Open(own)
	if err != nil {
		runtime.UnlockOSThread()
		return nil, fmt.Errorf("open the thread's namespace: %w", err)
	}
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		home.Close()
		runtime.UnlockOSThread()
		return nil, refused(os.NewSyscallError("unshare", err))
	}
	handle, err := os.Open(own)
	if back := leave(home); back != nil {
		return nil, errors.Join(err, back) // the thread stays locked
	}
	runtime.UnlockOSThread()
	return handle, err
}

// enter moves the thread, which the caller has locked, into a namespace and returns the one it came from.
func enter(handle *os.File) (home *os.File, err error) {
	if home, err = os.Open(own); err != nil {
		return nil, err
	}
	if err := set(handle); err != nil {
		home.Close()
		return nil, err
	}
	return home, nil
}

// leave moves the thread back.
func leave(home *os.File) error {
	defer home.Close()
	return set(home)
}

// set moves the thread. The file cannot be closed under it.
func set(handle *os.File) error {
	conn, err := handle.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := conn.Control(func(fd uintptr) { inner = unix.Setns(int(fd), unix.CLONE_NEWNET) }); err != nil {
		return err
	}
	return os.NewSyscallError("setns", inner)
}

// groupAttr makes a process the first of a group, and has it told to end when we are gone. SIGTERM, because a server
// with workers ends them on it.
func groupAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}

func killGroup(p *os.Process) error {
	err := unix.Kill(-p.Pid, unix.SIGKILL)
	if errors.Is(err, unix.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

// entered is set in the environment of the program that Enter runs.
const entered = "NETLAB_ENTERED"

// Enter makes sure that this process may make namespaces. Where it may already, done is false and the caller goes on.
// Otherwise Enter runs this program again, with the same arguments, environment and standard files, in a user and network
// namespace where it is uid 0, and waits for it: done is true and the caller exits with code. Where that is not allowed either
// the error is ErrNotPermitted. Enter belongs at the beginning of a program, before anything is opened or printed.
func Enter() (code int, done bool, err error) {
	probe, err := newNamespace()
	if err == nil {
		return 0, false, probe.Close()
	}
	if !errors.Is(err, ErrNotPermitted) || os.Getenv(entered) != "" {
		return 0, false, err
	}

	// The death signal comes when the thread ends that started the program.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), entered+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
	// A terminal sends ^C to both of us; from then on the other one decides when to end.
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	if err := cmd.Start(); err != nil {
		return 0, false, fmt.Errorf("run %s in a user namespace: %w", os.Args[0], refused(err))
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	for {
		select {
		case s := <-signals:
			if s == syscall.SIGTERM {
				_ = cmd.Process.Signal(s) // it may just have ended
			}
		case err := <-exited:
			return exitCode(cmd, err)
		}
	}
}

// exitCode is the code of a program that has ended, as a shell counts it.
func exitCode(cmd *exec.Cmd, err error) (code int, done bool, _ error) {
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return 1, true, err
	}
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if ok && status.Signaled() {
		return 128 + int(status.Signal()), true, nil
	}
	return cmd.ProcessState.ExitCode(), true, nil
}
