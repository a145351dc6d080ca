package chart

import (
	"encoding/json"
	"maps"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	yaml "go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
	"github.com/rehome-dev/rehome/test/kit/manifesttest"
	"github.com/rehome-dev/rehome/test/kit/program"
)

// descheduler is the meaning of a values file in the descheduler chart, and the intended differences.
type descheduler struct {
	Set         []string       `yaml:"set"` // additional values of the user
	Meaning     map[string]any `yaml:"meaning"`
	Differences map[string]any `yaml:"differences"`
	Ignored     []string       `yaml:"ignored"` // ignored values in the notes
}

// deschedulers are the values files for the chart of the descheduler in testdata, by name.
func deschedulers(t *testing.T) map[string]descheduler {
	t.Helper()
	files, err := filepath.Glob("testdata/descheduler/*.meaning.yaml")
	if err != nil || len(files) != 3 {
		t.Fatalf("got %q, error %v, want three", files, err)
	}
	all := map[string]descheduler{}
	for _, file := range files {
		d := yaml.NewDecoder(strings.NewReader(filetest.Read(t, root, "test/chart/"+file)))
		d.KnownFields(true)
		var p descheduler
		if err := d.Decode(&p); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all[strings.TrimSuffix(filepath.Base(file), ".meaning.yaml")] = p
	}
	return all
}

// args are how a person who moves over calls helm.
func (p descheduler) args(name string) []string {
	args := []string{"--namespace", "kube-system", "--values", "testdata/descheduler/" + name + ".yaml"}
	for _, set := range p.Set {
		args = append(args, "--set", set)
	}
	return args
}

// TestDeschedulerValuesKeepTheirMeaning compares field by field. What differs is listed, and differs indeed.
func TestDeschedulerValuesKeepTheirMeaning(t *testing.T) {
	for name, p := range deschedulers(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := meaningOf(t, rendered(t, "rehome", p.args(name)...))
			theirs := expect.CopyJSON(t, p.Meaning)
			want := maps.Clone(theirs)
			for field, value := range expect.CopyJSON(t, p.Differences) {
				if reflect.DeepEqual(value, theirs[field]) {
					t.Errorf("%s: listed as a difference, and is none", field)
				}
				want[field] = value
				if value == nil {
					delete(want, field)
				}
			}
			for _, field := range slices.Sorted(maps.Keys(union(got, want))) {
				if !reflect.DeepEqual(got[field], want[field]) {
					t.Errorf("%s:\n got %v\nwant %v", field, text(got[field]), text(want[field]))
				}
			}
		})
	}
}

// TestNotesListIgnoredValues reads what helm install would print.
func TestNotesListIgnoredValues(t *testing.T) {
	for name, p := range deschedulers(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := must(t, helm(t, append([]string{"install", "rehome", chart, "--dry-run=client"}, p.args(name)...)...))
			_, notes, found := strings.Cut(out, "\nIgnored values:\n")
			if !found {
				t.Fatalf("there is no list in\n%s", out)
			}
			var got []string
			for line := range strings.Lines(notes) {
				if line = strings.TrimSpace(line); line != "" {
					got = append(got, line)
				}
			}
			if !slices.Equal(got, p.Ignored) {
				t.Errorf("got  %q\nwant %q", got, p.Ignored)
			}
		})
	}
}

// TestDeschedulerPolicyAccepted has the program itself check what is rendered.
func TestDeschedulerPolicyAccepted(t *testing.T) {
	check := func(t *testing.T, args ...string) {
		t.Helper()
		checked := 0
		for _, o := range rendered(t, "rehome", args...) {
			if o.GetKind() != "ConfigMap" {
				continue
			}
			if policy := manifesttest.Typed[corev1.ConfigMap](t, o).Data["policy.yaml"]; policy != "" {
				must(t, withInput(exec.CommandContext(t.Context(), expect.Value(t, program.Build), "policy", "check", "-"), policy))
				checked++
			}
		}
		if checked != 1 {
			t.Errorf("%q: there are %d policies, want one", args, checked)
		}
	}
	for name, p := range deschedulers(t) {
		check(t, p.args(name)...)
	}
	for _, file := range combinations(t) {
		check(t, "--values", file)
	}
	check(t, "--set-json", `{"deschedulerPolicyAPIVersion":"descheduler/v1alpha1",`+
		`"deschedulerPolicy":{"strategies":{"RemoveDuplicates":{"enabled":true}}}}`)
}

func union(a, b map[string]any) map[string]any {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

// text is a value for people.
func text(value any) string {
	data, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// TestDeschedulerKeys renders all keys at once, for each kind of workload.
func TestDeschedulerKeys(t *testing.T) {
	for _, kind := range []string{"CronJob", "Deployment", "Job"} {
		all := rendered(t, "rehome", "--values", "testdata/everykey.yaml", "--set", "kind="+kind)
		var kinds []string
		for _, o := range all {
			if strings.HasPrefix(o.GetName(), "rehome") && o.GetAnnotations()["helm.sh/hook"] == "" &&
				slices.Contains([]string{"CronJob", "Deployment", "Job"}, o.GetKind()) {
				kinds = append(kinds, o.GetKind())
			}
		}
		if !slices.Equal(kinds, []string{kind}) {
			t.Errorf("got %q, want %s", kinds, kind)
		}
	}
}
