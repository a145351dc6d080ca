// Package programtest runs programs in tests.
package programtest

import (
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/program"
)

// Start is [program.Start]. The program ends with the test, see [End].
func Start(t testing.TB, binary string, arguments, environment []string) *program.Program {
	t.Helper()
	p, err := program.Start(binary, arguments, environment)
	expect.Must(t, err)
	End(t, p, "rehome "+strings.Join(arguments, " "))
	return p
}

// End kills the program at the end of the test. If the test failed, or with SHOW in the environment, it prints the output.
func End(t testing.TB, p *program.Program, name string) {
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() || os.Getenv("SHOW") != "" {
			t.Logf("%s said:\n%s", name, p.Log)
		}
	})
}

// Settings returns the environment variables that rehome reads.
func Settings(t testing.TB) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), expect.Value(t, program.Build), "settings").Output()
	expect.Must(t, err)
	return regexp.MustCompile(`(?m)^REHOME_\w+`).FindAllString(string(out), -1)
}

// Ready waits until /readyz of the program has the status 200. The test fails if the program ends before.
func Ready(t testing.TB, p *program.Program) {
	t.Helper()
	Answers(t, p, "http://"+p.Address+"/readyz", http.StatusOK)
}

// Answers waits until the program answers a GET request with one of the statuses, or with any status if there are none. The test
// fails if the program ends before.
func Answers(t testing.TB, p *program.Program, url string, statuses ...int) {
	t.Helper()
	expect.EventuallyWithState(t, url+" answers", func() (bool, string) {
		select {
		case <-p.Ended:
			t.Fatalf("it ended: %v\n%s", p.Err(), p.Log)
		default:
		}
		status, body := program.Get(url)
		return status != 0 && (len(statuses) == 0 || slices.Contains(statuses, status)), body
	})
}
