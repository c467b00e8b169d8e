package admin

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// TestDefaultSocketNamespace: an ordinary user who is root in a namespace of its own may not write where root does.
func TestDefaultSocketNamespace(t *testing.T) {
	if os.Getenv("ADMIN_PRINT") != "" {
		fmt.Println("socket " + DefaultSocket("a"))
		return
	}
	cred := &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{HostID: 12345, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: 12345, Size: 1}},
		Credential:  &syscall.Credential{NoSetGroups: true},
	}
	want := 12345
	if os.Getuid() != 0 {
		want = os.Getuid()
		cred.UidMappings[0].HostID, cred.GidMappings[0].HostID = os.Getuid(), os.Getgid()
	}
	for _, tt := range []struct{ name, dir, want string }{
		{"with a run directory", "/run/user/77", "/run/user/77/splicenic/a.sock"},
		{"without", "", fmt.Sprintf("/tmp/splicenic-%d/a.sock", want)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := exec.Command("/proc/self/exe", "-test.run=^TestDefaultSocketNamespace$")
			c.Env, c.Dir, c.SysProcAttr = []string{"ADMIN_PRINT=1", "XDG_RUNTIME_DIR=" + tt.dir}, "/", cred
			out, err := c.CombinedOutput()
			if errors.Is(err, os.ErrPermission) || errors.Is(err, syscall.ENOSPC) {
				t.Skipf("no user namespace here: %v; run as root: go test ./runtime/admin", err)
			}
			if err != nil || !strings.Contains(string(out), "socket "+tt.want+"\n") {
				t.Errorf("%v: %s, want %s", err, out, tt.want)
			}
		})
	}
}
