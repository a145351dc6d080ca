package chart

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	yaml "go.yaml.in/yaml/v3"

	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
)

// TestLint lints it with every combination of values, warnings being errors.
func TestLint(t *testing.T) {
	for name, file := range combinations(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			must(t, helm(t, "lint", "--strict", chart, "--values", file))
		})
	}
}

// TestPolicySchema checks the policy in the values before helm talks to the cluster.
func TestPolicySchema(t *testing.T) {
	for name, c := range map[string]struct{ values, want string }{
		"key":       {`{"deschedulerPolicy":{"profils":[]}}`, "at '/deschedulerPolicy': additional properties 'profils' not allowed"},
		"value":     {`{"policyAdditions":{"rate":{"burst":-1}}}`, "at '/policyAdditions/rate/burst': minimum: got -1, want 1"},
		"version":   {`{"deschedulerPolicy":{"profiles":[],"rate":{}}}`, "at '/deschedulerPolicy/rate': false schema"},
		"old":       {`{"deschedulerPolicyAPIVersion":"descheduler/v1alpha1","deschedulerPolicy":{"profiles":[]}}`, "additional properties 'profiles' not allowed"},
		"templates": {`{"deschedulerPolicy":{"profiles":[],"maxNoOfPodsToEvictPerNode":"{{ add 2 3 }}"}}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, complaint, err := run(helm(t, "template", "rehome", chart, "--set-json", c.values))
			if (err != nil) != (c.want != "") || !strings.Contains(complaint, c.want) {
				t.Errorf("got %v, %s\nwant %q", err, complaint, c.want)
			}
		})
	}
}

// schema is the part of a JSON Schema that says which keys there are.
type schema struct {
	Properties           map[string]schema `json:"properties"`
	AdditionalProperties json.RawMessage   `json:"additionalProperties"`
}

// keys are the paths of all keys of an object that takes no others.
func (s schema) keys(prefix string) (all []string) {
	for name, inner := range s.Properties {
		path := strings.TrimPrefix(prefix+"."+name, ".")
		if len(inner.Properties) == 0 || path == "leaderElection" || path == "ports" { // whose keys need not be there
			all = append(all, path)
			continue
		}
		all = append(all, inner.keys(path)...)
	}
	return all
}

// TestValuesMatchSchema compares the keys of both files, without global, which belongs to a parent chart.
func TestValuesMatchSchema(t *testing.T) {
	s := expect.FromJSON[schema](t, []byte(filetest.Read(t, root, "deploy/helm/rehome/values.schema.json")))
	var values map[string]any
	if err := yaml.Unmarshal([]byte(filetest.Read(t, root, "deploy/helm/rehome/values.yaml")), &values); err != nil {
		t.Fatal(err)
	}
	free := map[string]bool{}
	closed(t, s, "", free)
	inSchema := slices.DeleteFunc(s.keys(""), func(path string) bool { return path == "global" })
	slices.Sort(inSchema)
	inValues := leaves(values, "", free)
	slices.Sort(inValues)
	if !slices.Equal(inSchema, inValues) {
		t.Errorf("schema: %q\nvalues: %q", inSchema, inValues)
	}
}

// closed checks that each object with properties rejects others, and records objects that accept any.
func closed(t *testing.T, s schema, path string, free map[string]bool) {
	t.Helper()
	if len(s.Properties) == 0 {
		free[path] = true
		return
	}
	if string(s.AdditionalProperties) != "false" {
		t.Errorf("schema: %q accepts unknown keys", path)
	}
	if path == "leaderElection" {
		free[path] = true
	}
	for name, inner := range s.Properties {
		closed(t, inner, strings.TrimPrefix(path+"."+name, "."), free)
	}
}

// leaves are the paths of all values that are no object with keys of the chart.
func leaves(values map[string]any, prefix string, free map[string]bool) (all []string) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		path := strings.TrimPrefix(prefix+"."+name, ".")
		if inner, is := values[name].(map[string]any); is && !free[path] {
			all = append(all, leaves(inner, path, free)...)
			continue
		}
		all = append(all, path)
	}
	return all
}

// TestUnusedKeys looks for each key of the values in the templates.
func TestUnusedKeys(t *testing.T) {
	var values map[string]any
	if err := yaml.Unmarshal([]byte(filetest.Read(t, root, "deploy/helm/rehome/values.yaml")), &values); err != nil {
		t.Fatal(err)
	}
	all := templates(t)
	for name := range values {
		if !strings.Contains(all, ".Values."+name) && !strings.Contains(all, "$v."+name) && !strings.Contains(all, `"`+name+`"`) {
			t.Errorf("%s: no template reads it", name)
		}
	}
}
