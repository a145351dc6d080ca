package walls

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"testing"

	yaml "go.yaml.in/yaml/v3"

	"github.com/rehome-dev/rehome/test/kit/expect"
)

// TestReleaseWorkflow: the job can publish, so it uses only actions that cannot change, no cache that other jobs write, and leaves
// no token in its checkout.
func TestReleaseWorkflow(t *testing.T) {
	type step struct {
		Uses string
		With map[string]any
	}
	var workflow struct {
		Jobs map[string]struct{ Steps []step }
	}
	text, err := os.ReadFile(filepath.Join(root, ".github/workflows/release.yaml"))
	if err == nil {
		err = yaml.Unmarshal(text, &workflow)
	}
	expect.Must(t, err)
	pinned := regexp.MustCompile(`^(.+)@[0-9a-f]{40}$`)
	got := map[string]map[string]any{}
	for _, s := range workflow.Jobs["release"].Steps {
		if s.Uses != "" {
			got[pinned.ReplaceAllString(s.Uses, "$1")] = s.With
		}
	}
	want := map[string]map[string]any{
		"actions/checkout": {"fetch-depth": 0, "persist-credentials": false},
		"actions/setup-go": {"go-version-file": "go.mod", "cache": false},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}
