//go:build unix && !linux

package supervisor

import "syscall"

// childAttributes puts a child in its own process group, so Ctrl-C in the terminal of the test does not reach it. A child
// outlives a supervisor that is killed with SIGKILL; only Linux can prevent this.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
