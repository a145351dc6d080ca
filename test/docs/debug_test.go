package docs

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rehome-dev/rehome/test/kit/filetest"
)

// TestDiagnosisPageCommands runs each command of the pages beside a bus with the published events, and looks for a text in its
// output. There is no cluster, so `explain` has only the history, which it reads by the name of the pod.
func TestDiagnosisPageCommands(t *testing.T) {
	for page, wants := range map[string]map[string]string{
		"debug": {
			"rehome explain pod cart-0 -n shop":             "cart-0",
			"rehome events --type verdict --since 1h":       "verdict",
			"rehome get deferred":                           "DisruptionBudget",
			"rehome get deferred -n shop -o wide":           "cart-0",
			"rehome get deferred --reason DisruptionBudget": "DisruptionBudget",
		},
		"troubleshooting": {
			"rehome status":                           "cluster circuit breaker closed",
			"rehome get deferred":                     "DisruptionBudget",
			"rehome explain pod cart-0 -n shop":       "cart-0",
			"rehome get breakers":                     "",
			"rehome events --type verdict --since 1h": "verdict",
			"rehome events --since 1h":                "delta",
			"rehome get deadletters":                  "",
			"rehome policy check policy.yaml":         "policy.yaml",
		},
	} {
		t.Run(page, func(t *testing.T) {
			s := newShell(t)
			s.publish()
			filetest.Write(t, filepath.Join(s.dir, "policy.yaml"), filetest.Read(t, root, "deploy/policy.yaml"))
			all := lines(t, "docs/"+page+".md")
			for _, line := range all {
				want, known := wants[line]
				if got := s.run(line); !known || !strings.Contains(got, want) {
					t.Errorf("%s prints\n%s\nwant %q", line, got, want)
				}
			}
			if len(all) != len(wants) {
				t.Errorf("the page has %q", all)
			}
		})
	}
}

// TestDebugPageExample: each line is one that `rehome explain pod` prints.
func TestDebugPageExample(t *testing.T) {
	example := regexp.MustCompile("(?ms)^```text\n(.*?)^```$").FindStringSubmatch(filetest.Read(t, root, "docs/debug.md"))
	if example == nil {
		t.Fatal("the page has no example")
	}
	printed := slices.Collect(strings.Lines(filetest.Read(t, root, "cli/testdata/golden/explain/pod.txt")))
	for line := range strings.Lines(example[1]) {
		if !slices.Contains(printed, line) {
			t.Errorf("the command does not print %q", line)
		}
	}
}

// TestLimitsPageCommands runs each command, with the policy of the page.
func TestLimitsPageCommands(t *testing.T) {
	text := filetest.Read(t, root, "docs/limits.md")
	policy := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$").FindStringSubmatch(text)
	if policy == nil {
		t.Fatal("the page has no policy")
	}
	s := newShell(t)
	s.publish()
	filetest.Write(t, filepath.Join(s.dir, "policy.yaml"), policy[1])
	var limits []string
	for _, line := range lines(t, "docs/limits.md") {
		for sentence := range strings.Lines(s.run(line)) {
			if strings.Contains(sentence, "out of one namespace") {
				limits = append(limits, strings.TrimSpace(sentence))
			}
		}
	}
	if want := []string{
		"Moves at most 2 pods out of one namespace within 10m.",
		"Moves at most 2 pods out of one namespace at the same time.",
	}; !slices.Equal(limits, want) {
		t.Errorf("limits of the policy: got %q, want %q", limits, want)
	}
}
