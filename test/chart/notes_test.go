package chart

import (
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// notes are what helm prints after it has installed a release.
func notes(t *testing.T, release string, args ...string) string {
	t.Helper()
	out := must(t, helm(t, append([]string{"install", release, chart, "--namespace", "rehome", "--dry-run=client"}, args...)...))
	_, text, found := strings.Cut(out, "\nNOTES:\n")
	if !found {
		t.Fatalf("there are no notes in\n%s", out)
	}
	return text
}

// TestTheCommandOfTheNotesMakesTheSecretsThatThePodsWaitFor types it, under different names of the release.
func TestTheCommandOfTheNotesMakesTheSecretsThatThePodsWaitFor(t *testing.T) {
	for _, release := range []string{"rehome", "moving"} {
		for _, mode := range []string{"mode=all-in-one", "mode=distributed,dispatcher.enabled=true"} {
			values := []string{"--set", "nats.enabled=true," + mode}
			command := regexp.MustCompile(`(?m)^  rehome (setup .*) \| kubectl apply --server-side -f -$`).
				FindStringSubmatch(notes(t, release, values...))
			if command == nil {
				t.Fatalf("%s, %s: the notes have no command", release, mode)
			}
			typed := exec.CommandContext(t.Context(), "sh", "-c", `"$0" `+command[1], rehome(t))
			typed.Dir = t.TempDir()
			made := parse(t, must(t, typed)).names()
			for owner, spec := range rendered(t, release, values...).pods(t) {
				for _, name := range secrets(t, spec) {
					if !slices.Contains(made, "Secret/"+name) {
						t.Errorf("%s, %s: %s waits for %s, the command makes %q", release, mode, owner, name, made)
					}
				}
			}
		}
	}
}

// secrets are the names of those that a pod mounts.
func secrets(t *testing.T, spec map[string]any) (names []string) {
	t.Helper()
	volumes, _, err := unstructured.NestedSlice(spec, "volumes")
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range volumes {
		sources, _, _ := unstructured.NestedSlice(v.(map[string]any), "projected", "sources")
		for _, s := range append(sources, v) {
			of, _, _ := unstructured.NestedMap(s.(map[string]any), "secret")
			for _, key := range []string{"name", "secretName"} {
				if name, is := of[key].(string); is {
					names = append(names, name)
				}
			}
		}
	}
	return names
}
