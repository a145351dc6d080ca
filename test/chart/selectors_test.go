package chart

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/manifesttest"
)

// podLabels are the labels of the pods of everything that has pods made, by its kind and name.
func (all objects) podLabels(t *testing.T) map[string]labels.Set {
	t.Helper()
	of := map[string]labels.Set{}
	for _, o := range all {
		path := []string{"spec", "template", "metadata", "labels"}
		if o.GetKind() == "CronJob" {
			path = append([]string{"spec", "jobTemplate"}, path...)
		}
		set, found, err := unstructured.NestedStringMap(o.Object, path...)
		expect.Must(t, err)
		if found {
			of[o.GetKind()+"/"+o.GetName()] = set
		}
	}
	return of
}

// selectors returns the pod selectors of an object by their path.
func selectors(t *testing.T, o *unstructured.Unstructured) map[string]labels.Set {
	t.Helper()
	found := map[string]labels.Set{}
	add := func(at string, fields map[string]any, path ...string) {
		set, is, err := unstructured.NestedStringMap(fields, path...)
		expect.Must(t, err)
		if is {
			found[at] = set
		}
	}
	switch o.GetKind() {
	case "ServiceMonitor": // which chooses Services
	case "Service":
		add("selector", o.Object, "spec", "selector")
	default:
		add("selector", o.Object, "spec", "selector", "matchLabels")
	}
	add("podSelector", o.Object, "spec", "podSelector", "matchLabels")
	constraints, _, err := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "topologySpreadConstraints")
	expect.Must(t, err)
	for i, c := range constraints {
		add(fmt.Sprintf("topologySpreadConstraints[%d]", i), c.(map[string]any), "labelSelector", "matchLabels")
	}
	return found
}

// A selector must select the pods of one Deployment or StatefulSet with the name of the object, and no pods of Knative Services.
func TestSelectors(t *testing.T) {
	for name, file := range combinations(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := rendered(t, "moving", "--values", file, "--set", "networkPolicy.enabled=true,podDisruptionBudget.enabled=true")
			pods := all.podLabels(t)
			for _, o := range all {
				for at, selector := range selectors(t, o) {
					var selected []string
					for owner, set := range pods {
						if labels.SelectorFromSet(selector).Matches(set) {
							selected = append(selected, owner)
						}
					}
					means := func(owner string) bool {
						return slices.Equal(selected, []string{owner + "/" + strings.TrimSuffix(o.GetName(), "-egress")}) ||
							o.GetName() == "moving-rehome-requests" && len(selected) == 1 && strings.HasPrefix(selected[0], owner+"/moving-rehome")
					}
					if !means("Deployment") && !means("StatefulSet") {
						t.Errorf("%s %s, %s: it selects %q", o.GetKind(), o.GetName(), at, selected)
					}
				}
			}
		})
	}
}

// asked are the parts whose Service the Job of helm test asks.
func asked(t *testing.T, all objects) (parts []string, test batchv1.Job) {
	t.Helper()
	test = manifesttest.Typed[batchv1.Job](t, all.one(t, "Job", "rehome-test"))
	for _, c := range test.Spec.Template.Spec.Containers {
		parts = append(parts, c.Name)
	}
	return parts, test
}

func TestHelmTestSkipsScaledToZero(t *testing.T) {
	for set, want := range map[string][]string{
		"mode=all-in-one": {"all"},
		"mode=distributed,nats.enabled=true,dispatcher.enabled=true":              {"watcher", "actuator", "maintenance", "functions", "dispatcher"},
		"mode=distributed,nats.enabled=true,keda.enabled=true":                    {"watcher", "actuator", "maintenance"},
		"mode=distributed,nats.enabled=true,keda.enabled=true,keda.minReplicas=1": {"watcher", "actuator", "maintenance", "functions"},
	} {
		if got, _ := asked(t, rendered(t, "rehome", "--set", set)); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", set, got, want)
		}
	}
}

// TestHelmTestPassesNetworkPolicy allows scrapes from no pod, or from other pods.
func TestHelmTestPassesNetworkPolicy(t *testing.T) {
	for _, values := range []string{
		`{}`, `{"networkPolicy":{"monitoring":[{"namespaceSelector":{"matchLabels":{"team":"a"}}}]}}`,
	} {
		all := rendered(t, "rehome", "--set", "mode=distributed,nats.enabled=true,networkPolicy.enabled=true", "--set-json", values)
		parts, test := asked(t, all)
		for _, part := range parts {
			policy := manifesttest.Typed[networkingv1.NetworkPolicy](t, all.one(t, "NetworkPolicy", "rehome-"+part))
			if !slices.ContainsFunc(policy.Spec.Ingress[0].From, func(p networkingv1.NetworkPolicyPeer) bool {
				selector, err := metav1.LabelSelectorAsSelector(p.PodSelector)
				return err == nil && p.NamespaceSelector == nil && selector.Matches(labels.Set(test.Spec.Template.Labels))
			}) {
				t.Errorf("%s: %s lets in %+v, not pods with %v", values, part, policy.Spec.Ingress[0].From, test.Spec.Template.Labels)
			}
		}
	}
}
