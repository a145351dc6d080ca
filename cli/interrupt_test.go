package cli

import (
	"bytes"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/test/kit/expect"
)

// mainInTest makes the test program run [Main] with its arguments.
const mainInTest = "REHOME_TEST_MAIN"

func TestInterruptedInput(t *testing.T) {
	for _, arguments := range [][]string{
		{"policy", "check", "-"}, {"schemas", "validate"}, {"simulate", "--policy", "testdata/policy.yaml", "--objects", "-"},
	} {
		t.Run(arguments[0], func(t *testing.T) {
			input, typing, err := os.Pipe()
			expect.Must(t, err)
			defer typing.Close()
			c := exec.CommandContext(t.Context(), os.Args[0], arguments...)
			c.Env, c.Stdin = append(os.Environ(), mainInTest+"=1"), input
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			late := time.AfterFunc(30*time.Second, func() { _ = c.Process.Kill() })
			defer late.Stop()
			_ = input.Close()
			if _, err := typing.Write(bytes.Repeat([]byte(" "), 256<<10)); err != nil { // a pipe has no space for that until the process reads
				t.Fatal(err)
			}
			if err := c.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
			if _ = c.Wait(); c.ProcessState.ExitCode() != interrupted {
				t.Errorf("got %v, want exit code %d", c.ProcessState, interrupted)
			}
		})
	}
}
