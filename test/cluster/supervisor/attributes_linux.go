package supervisor

import "syscall"

// childAttributes puts a child in a process group of its own, so that a Ctrl-C
// meant for the test does not reach it, and has the kernel kill it when the
// supervisor ends in whichever way.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
