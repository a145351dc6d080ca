//go:build unix && !linux

package supervisor

import "syscall"

// childAttributes puts a child in a process group of its own, so that a Ctrl-C
// meant for the test does not reach it. Children outlive a supervisor that is
// killed with SIGKILL: only Linux can do better.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
