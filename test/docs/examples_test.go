package docs

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/rehome-dev/rehome/test/kit/filetest"
)

// TestReadmeSimulation runs the example with the policy of the README and compares what is printed
// with the block below the command.
func TestReadmeSimulation(t *testing.T) {
	text := filetest.Read(t, root, "README.md")
	match := regexp.MustCompile(`(?m)^    bin/rehome (simulate .*)\n\n((?:    .*\n)+)`).FindStringSubmatch(text)
	if match == nil {
		t.Fatal("the README has no simulation with its output")
	}
	c := exec.CommandContext(t.Context(), "go", append([]string{"run", "./cmd/rehome"}, strings.Fields(match[1])...)...)
	c.Dir = root
	c.Stderr = os.Stderr
	got, err := c.Output()
	want := regexp.MustCompile(`(?m)^    `).ReplaceAllString(match[2], "")
	if err != nil || string(got) != want {
		t.Errorf("rehome %s: error %v\ngot\n%s\nwant\n%s", match[1], err, got, want)
	}
}
