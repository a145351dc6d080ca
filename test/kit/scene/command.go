package scene

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"github.com/rehome-dev/rehome/test/kit/expect"
)

// Result is the output and the exit code of a command.
type Result struct {
	Stdout, Stderr string
	Code           int
}

func (r Result) String() string {
	return fmt.Sprintf("code %d, output %q, errors:\n%s", r.Code, r.Stdout, r.Stderr)
}

// Run runs rehome with arguments until it exits.
func (s *Scene) Run(arguments []string, environment ...string) Result {
	s.T.Helper()
	var stdout, stderr bytes.Buffer
	command := exec.Command(s.Binary, arguments...)
	command.Env = append(s.Environment(), environment...)
	command.Stdout, command.Stderr = &stdout, &stderr
	timer := time.AfterFunc(expect.Patience, func() { _ = command.Process.Kill() })
	defer timer.Stop()
	err := command.Run()
	var status *exec.ExitError
	if err != nil && !errors.As(err, &status) {
		s.T.Fatal(err)
	}
	return Result{stdout.String(), stderr.String(), command.ProcessState.ExitCode()}
}
