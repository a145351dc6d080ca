package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rehome-dev/rehome/app/settings"
)

// goodPolicies are typical files: one for each strategy, one for each preset, and others.
const goodPolicies = "../policy/testdata/good/*.yaml"

// TestGoodPolicies checks each file. A converted file is accepted too, and has the same meaning.
func TestGoodPolicies(t *testing.T) {
	files, err := filepath.Glob(goodPolicies)
	if err != nil || len(files) < 20 {
		t.Fatalf("got %d files, %v, want at least 20", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			checked, err := said(t, "", "policy", "check", file)
			if err != "" {
				t.Fatalf("rehome policy check: error %q and\n%s", err, checked)
			}
			if _, err := said(t, "", "policy", "explain", file); err != "" {
				t.Errorf("rehome policy explain: error %q", err)
			}
			converted, err := said(t, "", "policy", "convert", file)
			if err != "" {
				t.Fatalf("rehome policy convert: error %q", err)
			}
			again, err := said(t, converted, "policy", "check", "-")
			if want := "stdin:" + strings.TrimPrefix(checked, file+":"); again != want || err != "" {
				t.Errorf("the converted file: error %q and\n%swant\n%s", err, again, want)
			}
			twice, err := said(t, converted, "policy", "convert", "-")
			if twice != converted || err != "" {
				t.Errorf("converted twice: error %q and\n%swant\n%s", err, twice, converted)
			}
		})
	}
}

// TestGoodPolicyPerStrategy checks that each strategy has a file with its name that enables it.
func TestGoodPolicyPerStrategy(t *testing.T) {
	for _, s := range settings.Strategies() {
		file := strings.Replace(goodPolicies, "*", s.Name, 1)
		if _, err := os.Stat(file); err != nil {
			t.Errorf("%s has no example: %v", s.Name, err)
			continue
		}
		want := file + ": 1 profile, enabled: " + s.Name + "\n"
		if got, _ := said(t, "", "policy", "check", file); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
