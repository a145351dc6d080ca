package cli

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestTheProgramBringsTheTimeZonesThatWindowsAreWrittenIn: an image with nothing but the program in it has no files about time
// zones, and Go's own are linked in only where somebody asks for them. Where the machine of a test has such files they are read
// first, so that loading a zone here would prove nothing.
func TestTheProgramBringsTheTimeZonesThatWindowsAreWrittenIn(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(strings.Fields(string(out)), "time/tzdata") {
		t.Error("time/tzdata is not linked in")
	}
}
