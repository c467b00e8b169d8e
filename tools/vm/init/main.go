//go:build linux

// Init is the first program of a guest of tools/vm: it mounts what a system needs, loads the modules of /etc/vm.json,
// sets huge pages aside, serves the host's requests on the second serial line and powers the machine off.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"splicenic/tools/vm/agent"
)

// console is the line the host listens on; the kernel's own is the first one.
const console = "/dev/ttyS1"

func main() {
	if os.Getpid() == 1 {
		first()
		return
	}
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, "init:", err)
		os.Exit(1)
	}
}

// first is the life of process 1: it starts this program again, which does the work, and takes the orphans of the
// system until that has ended.
func first() {
	var problems []string
	note := func(err error) {
		if err != nil {
			problems = append(problems, err.Error())
		}
	}
	mounts(note)
	c := exec.Command("/proc/self/exe")
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	c.Env = []string{"PATH=/bin", "HOME=/root", "TMPDIR=/tmp", "VM_PROBLEMS=" + strings.Join(problems, "\n")}
	if err := c.Start(); err == nil {
		for {
			var status unix.WaitStatus
			pid, err := unix.Wait4(-1, &status, 0, nil)
			if err == unix.EINTR {
				continue
			}
			if err != nil || pid == c.Process.Pid {
				break
			}
		}
	} else {
		fmt.Fprintln(os.Stderr, "init:", err)
	}
	unix.Sync()
	if err := unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF); err != nil {
		fmt.Fprintln(os.Stderr, "init: power off:", err)
	}
}

func mounts(note func(error)) {
	for _, m := range []struct{ kind, path, data string }{
		{"devtmpfs", "/dev", ""}, {"proc", "/proc", ""}, {"sysfs", "/sys", ""}, {"tmpfs", "/run", "mode=755"},
		{"tmpfs", "/tmp", ""}, {"tmpfs", "/dev/shm", ""}, {"hugetlbfs", "/dev/hugepages", "pagesize=2M"},
	} {
		note(os.MkdirAll(m.path, 0o755))
		if err := unix.Mount(m.kind, m.path, m.kind, 0, m.data); err != nil {
			note(fmt.Errorf("mount %s: %w", m.path, err))
		}
	}
}

// config is /etc/vm.json.
type config struct {
	Modules   []string // files, in order
	HugePages int      // of 2 MiB
}

// serve is the second program: the system's services are there.
func serve() error {
	var problems []string
	if p := os.Getenv("VM_PROBLEMS"); p != "" {
		problems = strings.Split(p, "\n")
	}
	os.Unsetenv("VM_PROBLEMS")
	if err := setUp(); err != nil {
		problems = append(problems, err.Error())
	}
	line, err := openLine()
	if err != nil {
		return err
	}
	defer line.Close()
	return agent.Serve(line, hello(problems))
}

func setUp() error {
	text, err := os.ReadFile("/etc/vm.json")
	if err != nil {
		return err
	}
	var c config
	if err := json.Unmarshal(text, &c); err != nil {
		return fmt.Errorf("/etc/vm.json: %w", err)
	}
	for _, m := range c.Modules {
		if err := load(m); err != nil {
			return fmt.Errorf("load module %s: %w", filepath.Base(m), err)
		}
	}
	return os.WriteFile("/proc/sys/vm/nr_hugepages", []byte(strconv.Itoa(c.HugePages)), 0)
}

func load(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.FinitModule(int(f.Fd()), "", 0)
}

// openLine opens the serial line as it is: no echo, no translation.
func openLine() (*os.File, error) {
	f, err := os.OpenFile(console, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	t, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	if err == nil {
		t.Iflag, t.Oflag, t.Lflag = 0, 0, 0
		t.Cflag = unix.CS8 | unix.CREAD | unix.CLOCAL | unix.B115200
		t.Cc[unix.VMIN], t.Cc[unix.VTIME] = 1, 0
		err = unix.IoctlSetTermios(int(f.Fd()), unix.TCSETS, t)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("set %s: %w", console, err)
	}
	return f, nil
}

func hello(problems []string) agent.Guest {
	g := agent.Guest{Problems: problems}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		g.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	if b, err := os.ReadFile("/proc/uptime"); err == nil {
		fmt.Sscan(string(b), &g.Uptime)
	}
	return g
}
