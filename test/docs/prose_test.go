package docs

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rehome-dev/rehome/test/kit/expect"
)

// vale returns the rules that find something in a text, sorted.
func vale(t *testing.T, text string) []string {
	t.Helper()
	program, err := filepath.Abs(filepath.Join(root, ".build/tools/vale"))
	expect.Must(t, err)
	if _, err := os.Stat(program); err != nil {
		t.Fatalf("build it with `make prose`: %v", err)
	}
	c := exec.CommandContext(t.Context(), program, "--output=JSON", "--ext=.md")
	c.Dir, c.Stdin = root, strings.NewReader(text)
	out, err := c.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && (!ok || exit.ExitCode() != 1) { // 1: something was found
		t.Fatalf("%v\n%s", err, out)
	}
	var found map[string][]struct{ Check string }
	if err := json.Unmarshal(out, &found); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var rules []string
	for _, alerts := range found {
		for _, a := range alerts {
			rules = append(rules, strings.TrimPrefix(a.Check, "Rehome."))
		}
	}
	slices.Sort(rules)
	return slices.Compact(rules)
}

// TestProse has a wrong and a correct sentence for each rule of the style.
func TestProse(t *testing.T) {
	long := strings.Repeat("the pod waits and ", 10)
	cases := map[string]struct{ wrong, correct string }{
		"Easy":         {"Simply run the command.", "Run the command."},
		"Exclamation":  {"It works! Now read on.", "It works: `!` is code."},
		"Future":       {"The pod will move.", "The pod moves."},
		"Latin":        {"A taint, e.g. from a person.", "A taint, for example from a person."},
		"LinkText":     {"See [here](policy.md).", "See [the policy file](policy.md)."},
		"LongSentence": {"The pod waits, " + long + "moves.", "The pod waits. The pod moves."},
		"Marketing":    {"A powerful descheduler.", "A descheduler."},
		"OfWhich":      {"The node from which it came.", "The node where it was."},
		"OpenQuestion": {"What the node lacks is memory.", "What does the node lack?"},
		"Persons":      {"Nobody reads it.", "No client reads it."},
		"Reader":       {"We move the pod.", "Rehome moves the pod."},
		"Repeated":     {"It moves the the pod.", "It moves the pod."},
		"Spelling":     {"A kubernetes cluster.", "A Kubernetes cluster with kubernetes-sigs/descheduler."},
		"Terms":        {"A k8s cluster.", "A Kubernetes cluster."},
		"ThatOf":       {"The name is that of the pod.", "The name is the name of the pod."},
		"ToBe":         {"The pod is to be moved.", "The pod must move."},
		"Told":         {"The same is said of nodes.", "The same applies to nodes."},
		"Wordy":        {"Wait in order to move it.", "Wait to move it."},
	}
	files, err := filepath.Glob(filepath.Join(root, "test/tools/vale/styles/Rehome/*.yml"))
	if err != nil || len(files) != len(cases) {
		t.Errorf("the style has %d rules, want %d, error %v", len(files), len(cases), err)
	}
	for _, file := range files {
		rule := strings.TrimSuffix(filepath.Base(file), ".yml")
		t.Run(rule, func(t *testing.T) {
			if got := vale(t, cases[rule].wrong); !slices.Equal(got, []string{rule}) {
				t.Errorf("%q: got %q, want %q", cases[rule].wrong, got, rule)
			}
			if got := vale(t, cases[rule].correct); len(got) != 0 {
				t.Errorf("%q: got %q, want nothing", cases[rule].correct, got)
			}
		})
	}
}
