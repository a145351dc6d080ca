package cli

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/rehome-dev/rehome/test/kit/expect"
)

// TestEmbeddedTimeZones checks the imports. An image with only the program has no time zone files, and Go embeds them only on
// request. A machine with such files reads them first, so loading a zone here would prove nothing.
func TestEmbeddedTimeZones(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	expect.Must(t, err)
	if !slices.Contains(strings.Fields(string(out)), "time/tzdata") {
		t.Error("time/tzdata is not linked in")
	}
}
