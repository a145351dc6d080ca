package chart

import (
	"maps"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/program"
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

// TestNotesCreateSecrets runs the command in the notes, for two release names.
func TestNotesCreateSecrets(t *testing.T) {
	for _, release := range []string{"rehome", "moving"} {
		for _, mode := range []string{"mode=all-in-one", "mode=distributed,dispatcher.enabled=true"} {
			values := []string{"--set", "nats.enabled=true," + mode}
			command := regexp.MustCompile(`(?m)^  rehome (auth secrets .*) \| kubectl apply --server-side -f -$`).
				FindStringSubmatch(notes(t, release, values...))
			if command == nil {
				t.Fatalf("%s, %s: the notes have no command", release, mode)
			}
			typed := exec.CommandContext(t.Context(), "sh", "-c", `"$0" `+command[1], expect.Value(t, program.Build))
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

// secrets returns the names of the Secrets that a pod mounts.
func secrets(t *testing.T, spec map[string]any) (names []string) {
	t.Helper()
	volumes, _, err := unstructured.NestedSlice(spec, "volumes")
	expect.Must(t, err)
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

// TestNotesFollowLogs: kubectl follows at most five logs, unless the command has a higher limit.
func TestNotesFollowLogs(t *testing.T) {
	for name, file := range combinations(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all, most := rendered(t, "rehome", "--values", file), int64(5)
			if m := regexp.MustCompile(`kubectl logs .* -f(?: --max-log-requests=(\d+))?\n`).FindStringSubmatch(notes(t, "rehome", "--values", file)); m == nil {
				return // nothing stays that could be followed
			} else if m[1] != "" {
				most, _ = strconv.ParseInt(m[1], 10, 64)
			}
			if pods := mostPods(t, all); pods > most {
				t.Errorf("there are up to %d pods, and %d are followed", pods, most)
			}
		})
	}
}

// mostPods is how many pods there are when autoscalers have made as many as they may.
func mostPods(t *testing.T, all objects) (pods int64) {
	t.Helper()
	for _, o := range all {
		for _, path := range [][]string{{"spec", "replicas"}, {"spec", "maxReplicas"}, {"spec", "maxReplicaCount"}} {
			n, _, err := unstructured.NestedInt64(o.Object, path...)
			expect.Must(t, err)
			pods += n
		}
		if o.GetKind() == "Job" {
			pods++
		}
	}
	return pods
}

// TestNotesWarnAboutMemory sets the small limit of a values file for the chart of the descheduler.
func TestNotesWarnAboutMemory(t *testing.T) {
	const warning = "The memory limit is "
	for set, want := range map[string]string{
		"resources.limits.memory=2Gi":                                      "",
		"resources.limits.memory=512Mi":                                    "",
		"resources.limits=null":                                            "",
		"resources.limits.memory=256Mi":                                    "256 MiB. One process",
		"resources.limits.memory=268435456":                                "256 MiB. One process",
		"resources.limits.memory=0.25Gi":                                   "256 MiB. One process",
		"resources.limits.memory=256Mi,kind=Job":                           "",
		"resources.limits.memory=256Mi,mode=distributed,nats.enabled=true": "",
	} {
		_, got, found := strings.Cut(notes(t, "rehome", "--set", set), "\n"+warning)
		if found != (want != "") || !strings.HasPrefix(got, want) {
			t.Errorf("%s: got %.40q, want %q", set, got, want)
		}
	}
}

// TestGOMEMLIMIT: the limit of Go is below the limit of the container, so that the process frees memory before the kernel ends it.
func TestGOMEMLIMIT(t *testing.T) {
	for values, want := range map[string]map[string]any{
		`{}`: {"Deployment/rehome": "1843MiB"},
		`{"resources":{"limits":{"memory":"256Mi"}}}`:                      {"Deployment/rehome": "230MiB"},
		`{"resources":{"limits":{"memory":"1.5G"}}}`:                       {"Deployment/rehome": "1287MiB"},
		`{"resources":{"limits":{"memory":268435456}}}`:                    {"Deployment/rehome": "230MiB"},
		`{"resources":{"limits":{"memory":null}}}`:                         {},
		`{"resources":{"limits":null}}`:                                    {},
		`{"resources":{"limits":{"memory":"1e9"}}}`:                        {},
		`{"extraEnv":[{"name":"GOMEMLIMIT","value":"1GiB"}]}`:              {"Deployment/rehome": "1GiB"},
		`{"schedule":"0 3 * * *","resources":{"limits":{"memory":"1Gi"}}}`: {"CronJob/rehome": "921MiB"},
		`{"mode":"distributed","nats":{"enabled":true},"actuator":{"resources":{"limits":{"memory":"512Mi"}}},"knative":{"enabled":true,` +
			`"strategies":["PodLifeTime"],"resources":{"limits":{"memory":"1Gi"}}}}`: {
			"Deployment/rehome-watcher": "1843MiB", "Deployment/rehome-actuator": "460MiB", "Deployment/rehome-functions": "1843MiB",
			"Deployment/rehome-maintenance": "1843MiB", "Deployment/rehome-dispatcher": "1843MiB", "Service/rehome-podlifetime": "921MiB", "Job/rehome-setup": "1843MiB",
		},
	} {
		got := rendered(t, "rehome", "--set-json", values).valuesOf(t, "GOMEMLIMIT")
		if !maps.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", values, got, want)
		}
	}
}
