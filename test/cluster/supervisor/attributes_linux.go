package supervisor

import "syscall"

// childAttributes puts a child in its own process group, so Ctrl-C in the terminal of the test does not reach it. The kernel
// kills the child when the supervisor ends for any reason.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
