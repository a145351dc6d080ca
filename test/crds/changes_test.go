package crds

import (
	"context"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/rehome-dev/rehome/test/kit/expect"
)

// stored creates an object, and returns a function that deletes it.
func stored(t *testing.T, o *unstructured.Unstructured) (made *unstructured.Unstructured, remove func()) {
	t.Helper()
	objects := in(admin(t), o)
	made, err := objects.Create(t.Context(), o, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
	expect.Must(t, err)
	return made, func() {
		if err := objects.Delete(context.Background(), o.GetName(), metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}
}

// changed returns the errors of giving a stored object another spec.
func changed(t *testing.T, before *unstructured.Unstructured, spec string) []string {
	t.Helper()
	after := object(t, before.GetKind(), before.GetName(), spec)
	after.SetResourceVersion(before.GetResourceVersion())
	_, err := in(admin(t), after).Update(t.Context(), after, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
	return causes(t, err)
}

func TestStageMovesForward(t *testing.T) {
	backwards := func(from, to string) []string {
		return []string{`spec.stage: Invalid value: "` + to + `": the stage cannot go from ` + from + ` to ` + to +
			", only forwards: Idle, Cordon, Drain, Complete"}
	}
	for from, after := range map[string]map[string][]string{
		"Idle":     {"Idle": nil, "Cordon": nil, "Drain": nil, "Complete": nil},
		"Cordon":   {"Idle": backwards("Cordon", "Idle"), "Cordon": nil, "Drain": nil, "Complete": nil},
		"Drain":    {"Idle": backwards("Drain", "Idle"), "Cordon": backwards("Drain", "Cordon"), "Drain": nil, "Complete": nil},
		"Complete": {"Idle": backwards("Complete", "Idle"), "Cordon": backwards("Complete", "Cordon"), "Drain": backwards("Complete", "Drain"), "Complete": nil},
	} {
		before, remove := stored(t, maintenance(t, "stage", with("stage: "+from)))
		for to, want := range after {
			if got := changed(t, before, with("stage: "+to)); !slices.Equal(got, want) {
				t.Errorf("from %s to %s:\n got %q\nwant %q", from, to, got, want)
			}
		}
		// An empty stage is Idle.
		if got, want := changed(t, before, with("topology: zone")), after["Idle"]; !slices.Equal(got, want) {
			t.Errorf("from %s to none:\n got %q\nwant %q", from, got, want)
		}
		remove()
	}
}

func TestImmutableNodesAndPlan(t *testing.T) {
	nodes := []string{"spec.nodes: Invalid value: the nodes cannot be changed: delete the maintenance and make another"}
	plan := []string{"spec.plan: Invalid value: the plan cannot be changed: delete the maintenance and make another"}
	for _, test := range []struct {
		name, before, after string
		want                []string
	}{
		{"a node is not added", "{nodes: {names: [a]}, reason: r}", "{nodes: {names: [a, b]}, reason: r}", nodes},
		{"a node is not taken away", "{nodes: {names: [a, b]}, reason: r}", "{nodes: {names: [a]}, reason: r}", nodes},
		{"a node is not replaced", "{nodes: {names: [a, b]}, reason: r}", "{nodes: {names: [a, c]}, reason: r}", nodes},
		{"names do not become a selector", "{nodes: {names: [a]}, reason: r}", "{nodes: {selector: {matchLabels: {a: b}}}, reason: r}", nodes},
		{"a selector is not changed", "{nodes: {selector: {matchLabels: {a: b}}}, reason: r}",
			"{nodes: {selector: {matchLabels: {a: c}}}, reason: r}", nodes},
		{"the order of the nodes may change", "{nodes: {names: [a, b]}, reason: r}", "{nodes: {names: [b, a]}, reason: r}", nil},
		{"a step is not added", with("plan: [{priority: 1}]"), with("plan: [{priority: 1}, {}]"), plan},
		{"a step is not taken away", with("plan: [{priority: 1}, {}]"), with("plan: [{priority: 1}]"), plan},
		{"a step is not changed", with("plan: [{priority: 1}]"), with("plan: [{priority: 2}]"), plan},
		{"the order of the steps does not change", with("plan: [{priority: 1}, {}]"), with("plan: [{}, {priority: 1}]"), plan},
		{"a plan is not added", with("stage: Idle"), with("plan: [{}]"), plan},
		{"a plan is not taken away", with("plan: [{}]"), with("stage: Idle"), plan},
		{"an empty plan is invalid", with("plan: []"), with("stage: Idle"), nil},
		{"none is an empty plan", with("stage: Idle"), with("plan: []"), nil},
		{"everything else may change", with("stage: Idle"), "{nodes: {names: [worker-1]}, reason: r, window: {end: '2027-01-01T00:00:00Z'}, " +
			"atOnce: 2, topology: zone, deadline: 1h, onDeadline: Release, gates: [{name: a, query: up}], force: [SingleNode]}", nil},
	} {
		before, remove := stored(t, maintenance(t, "unchanged", test.before))
		if got := changed(t, before, test.after); !slices.Equal(got, test.want) {
			t.Errorf("%s:\n got %q\nwant %q", test.name, got, test.want)
		}
		remove()
	}
}
