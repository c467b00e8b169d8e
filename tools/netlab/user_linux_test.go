package netlab_test

import (
	"os/exec"
	"syscall"
)

// runAs makes a command run as another user.
func runAs(cmd *exec.Cmd, id uint32) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: id, Gid: id}}
}
