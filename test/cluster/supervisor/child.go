package supervisor

import (
	"fmt"
	"os"
	"os/exec"
	"time"
)

// child is a started process.
type child struct {
	process Process
	cmd     *exec.Cmd
	ended   chan struct{} // closed when the process has ended and was reaped
}

// startChild starts p. It sends the child to exits when the child has ended, unless there is no receiver any more.
func startChild(p Process, exits chan<- *child) (*child, error) {
	log, err := os.OpenFile(p.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("log of %s: %w", p.Name, err)
	}
	defer log.Close()
	cmd := exec.Command(p.Path, p.Args...)
	cmd.Env = p.Env
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = childAttributes()
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", p.Name, err)
	}
	c := &child{process: p, cmd: cmd, ended: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // The state has more information than the error.
		close(c.ended)
		exits <- c
	}()
	return c, nil
}

// kill kills the child and waits until it has ended, or until timeout fires.
func (c *child) kill(timeout <-chan time.Time) error {
	_ = c.cmd.Process.Kill() // An error means that it has ended already.
	select {
	case <-c.ended:
		return nil
	case <-timeout:
		return fmt.Errorf("%s (pid %d) did not end within %v of being killed", c.process.Name, c.cmd.Process.Pid, killTimeout)
	}
}
