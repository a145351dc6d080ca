package crds

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/rehome-dev/rehome/schemas/v1alpha1"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// inNamespace creates the namespace of an object.
func inNamespace(t *testing.T, o *unstructured.Unstructured) {
	t.Helper()
	if o.GetNamespace() == "" || o.GetNamespace() == metav1.NamespaceDefault {
		return
	}
	namespaces := shared.Cluster(t).Client().CoreV1().Namespaces()
	if _, err := namespaces.Get(t.Context(), o.GetNamespace(), metav1.GetOptions{}); err == nil {
		return
	}
	_, err := namespaces.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: o.GetNamespace()}}, metav1.CreateOptions{})
	expect.Must(t, err)
}

func TestExamplesAccepted(t *testing.T) {
	for _, example := range examples(t) {
		inNamespace(t, example)
		_, remove := stored(t, example)
		remove()
	}
}

func TestDefaults(t *testing.T) {
	for _, test := range []struct{ kind, spec, want string }{
		{"NodeMaintenance", "{nodes: {names: [a]}, reason: r}", "{nodes: {names: [a]}, reason: r, stage: Idle, atOnce: 1}"},
		{"NodeMaintenance", with("stage: null, atOnce: null"), with("stage: Idle, atOnce: 1")},
		{"NodeMaintenance", with("plan: [{}, {type: DaemonSet}]"), with("stage: Idle, atOnce: 1, plan: [{type: Default}, {type: DaemonSet}]")},
		{"NodeMaintenance", with("plan: [{type: DaemonSet}, {}]"), with("stage: Idle, atOnce: 1, plan: [{type: DaemonSet}, {type: Default}]")},
		{"NodeMaintenance", schedule("cron: 0 22 * * 6, duration: 6h"),
			with("stage: Idle, atOnce: 1, window: {schedule: {cron: 0 22 * * 6, duration: 6h, timeZone: UTC}}")},
		{"DrainRule", "{behavior: Skip}", "{behavior: Skip, order: 0}"},
		{"ClusterDrainRule", "{behavior: Skip}", "{behavior: Skip, order: 0}"},
	} {
		o := object(t, test.kind, "defaults", test.spec)
		made, err := in(admin(t), o).Create(t.Context(), o, tried)
		expect.Must(t, err)
		if got, want := made.Object["spec"], object(t, test.kind, "", test.want).Object["spec"]; !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n got %v\nwant %v", test.spec, got, want)
		}
	}
}

// TestAcceptedObjectsDecodeInGo tests values at the limits of JSON Schema, because one object that Go cannot decode would stop
// every program that lists them. One accepted value changes when Go encodes it, because the API server has no time to check all
// expressions of 32 steps: an empty list of values in a plan.
func TestAcceptedObjectsDecodeInGo(t *testing.T) {
	for _, test := range []struct {
		name, spec string
		taken      bool
	}{
		{"a time with a small t", window("start: '2026-12-01t10:00:00Z'"), false},
		{"a time with a small z", window("start: '2026-12-01T10:00:00z'"), false},
		{"a time with a comma", window("start: '2026-12-01T10:00:00,5Z'"), true},
		{"a time with more digits than nanoseconds", window("start: '2026-12-01T10:00:00.123456789123Z'"), true},
		{"a time in a zone that is too far away", window("start: '2026-12-01T10:00:00+25:00'"), false},
		{"a leap second", window("start: '2026-06-30T23:59:60Z'"), false},
		{"the hour 24", window("start: '2026-06-30T24:00:00Z'"), false},
		{"the year 0", window("start: '0000-12-01T10:00:00Z'"), true},
		{"a whole number with a point", with("atOnce: 2.0"), true},
		{"half a node", with("atOnce: 2.5"), false},
		{"the largest number of nodes", with("atOnce: 1000000"), true},
		{"a priority that is too large", with("plan: [{priority: 2147483648}]"), false},
		{"the largest priority", with("plan: [{priority: 2147483647}]"), true},
		{"the lowest priority", with("plan: [{priority: -2147483648}]"), true},
		{"hours with a point", with("deadline: 1.5h"), true},
		{"hours twice", with("deadline: 1h1h"), true},
		{"the longest deadline", with("deadline: 999999h999999h99999h"), true},
		{"a deadline that is longer than Go can count", with("deadline: 9999999h"), false},
		{"a deadline of many digits", with("deadline: 0.1234567891s"), false},
		{"a deadline in numbers", with("deadline: 5"), false},
		{"an empty part of the selector of nodes", "{nodes: {selector: {matchLabels: {a: b}, matchExpressions: []}}, reason: r}", false},
		{"an empty list of values", "{nodes: {selector: {matchExpressions: [{key: a, operator: Exists, values: []}]}}, reason: r}", false},
		{"an empty part of a selector of pods", with("plan: [{pods: {matchLabels: {a: b}, matchExpressions: []}}]"), false},
		{"an unknown operator", with("plan: [{pods: {matchExpressions: [{key: a, operator: Is, values: [b]}]}}]"), true},
		{"a step with everything", with("plan: [{pods: {matchLabels: {a: ''}}, namespaces: {matchExpressions: [{key: a, operator: In, values: ['']}]}, priority: 0}]"), true},
		{"nothing", with("window: null, plan: null, gates: null, topology: null"), true},
	} {
		o := maintenance(t, "edge", test.spec)
		made, err := in(admin(t), o).Create(t.Context(), o, tried)
		if taken := err == nil; taken != test.taken {
			t.Errorf("%s: taken %t, want %t: %v", test.name, taken, test.taken, err)
		}
		if err != nil {
			continue
		}
		var read v1alpha1.NodeMaintenance
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(made.Object, &read); err != nil {
			t.Errorf("%s: taken, and cannot be read: %v", test.name, err)
			continue
		}
		written, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&read)
		expect.Must(t, err)
		// A program that reads and writes an object must not change immutable fields.
		spec, again := made.Object["spec"].(map[string]any), written["spec"].(map[string]any)
		got, want := []any{again["nodes"], again["plan"]}, []any{spec["nodes"], spec["plan"]}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: nodes and plan after they were read and written:\n got %v\nwant %v", test.name, got, want)
		}
	}
}
