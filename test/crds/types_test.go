package crds

import (
	"reflect"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"

	"github.com/rehome-dev/rehome/schemas/v1alpha1"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// typed returns a client of the administrator that reads and writes the Go types.
func typed(t *testing.T) *rest.RESTClient {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	config := shared.Cluster(t).RESTConfig()
	config.APIPath = "/apis"
	config.GroupVersion = new(v1alpha1.GroupVersion())
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.RESTClientFor(config)
	expect.Must(t, err)
	return client
}

// full returns a maintenance that uses every field of its spec and of its status, as the API server gives it back.
func full() v1alpha1.NodeMaintenance {
	at := metav1.NewTime(time.Date(2026, 12, 1, 22, 0, 0, 0, time.UTC).Local())
	later := metav1.NewTime(at.Add(time.Hour))
	selector := &metav1.LabelSelector{
		MatchLabels:      map[string]string{"a": "b"},
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "c", Operator: metav1.LabelSelectorOpIn, Values: []string{"d"}}},
	}
	return v1alpha1.NodeMaintenance{
		ObjectMeta: metav1.ObjectMeta{Name: "full"},
		Spec: v1alpha1.NodeMaintenanceSpec{
			Nodes: v1alpha1.NodeSet{Selector: selector}, Stage: v1alpha1.Drain, Reason: "new disk",
			Window: &v1alpha1.Window{Start: &at, End: &later, Schedule: &v1alpha1.Schedule{
				Cron: "0 22 * * 6", Duration: metav1.Duration{Duration: 90 * time.Minute}, TimeZone: "Europe/Berlin",
			}},
			AtOnce: new(intstr.FromString("10%")), Topology: "topology.kubernetes.io/zone",
			Deadline: &metav1.Duration{Duration: time.Hour}, OnDeadline: v1alpha1.Release,
			Plan: []v1alpha1.DrainStep{{Pods: selector, Namespaces: selector, Priority: new(int32(7)), Type: v1alpha1.DaemonSetPods}},
			Gates: []v1alpha1.Gate{
				{Name: "a", Condition: &v1alpha1.ConditionGate{Type: "RackPower", Status: metav1.ConditionTrue}},
				{Name: "b", Annotation: &v1alpha1.AnnotationGate{Key: "example.com/moved", Value: "yes"}},
				{Name: "c", Query: "up"},
			},
			Force: []v1alpha1.Guard{v1alpha1.AllNodes, v1alpha1.ControlPlane, v1alpha1.SingleNode},
		},
		Status: v1alpha1.NodeMaintenanceStatus{
			ObservedGeneration: 1,
			Stages:             []v1alpha1.StageTime{{Stage: v1alpha1.Idle, Start: at}, {Stage: v1alpha1.Drain, Start: later}},
			Nodes: []v1alpha1.NodeStatus{{
				Name: "worker-1", UID: "u", Stage: v1alpha1.Draining, Start: &at, End: &later, DrainedAt: &later, CordonedBefore: true,
				Pods: &v1alpha1.PodCounts{Moved: 1, Left: 2, Blocked: 1, Staying: 3},
				Blocked: []v1alpha1.BlockedPod{{
					Namespace: "shop", Name: "cart-0", Reason: "DisruptionBudget", By: "poddisruptionbudget/shop/cart", Message: "m", Since: &at,
				}},
				More: 1, Message: "waits",
			}},
			Summary: v1alpha1.Summary{Nodes: "0/1", PodsLeft: 2, PodsBlocked: 1, Message: "waits"},
			Conditions: []metav1.Condition{{
				Type: v1alpha1.Accepted, Status: metav1.ConditionTrue, ObservedGeneration: 1, LastTransitionTime: at, Reason: "Accepted", Message: "m",
			}},
		},
	}
}

// without returns an object without what the API server adds to it.
func without(m v1alpha1.NodeMaintenance) v1alpha1.NodeMaintenance {
	m.ObjectMeta = metav1.ObjectMeta{Name: m.Name}
	return m
}

func TestMaintenanceRoundTrip(t *testing.T) {
	client, want := typed(t), full()
	var made v1alpha1.NodeMaintenance
	if err := client.Post().Resource(v1alpha1.NodeMaintenances).Body(&want).Do(t.Context()).Into(&made); err != nil {
		t.Fatal(err)
	}
	defer client.Delete().Resource(v1alpha1.NodeMaintenances).Name(want.Name).Do(t.Context())
	onlySpec := full()
	onlySpec.Status = v1alpha1.NodeMaintenanceStatus{}
	if got := without(made); !reflect.DeepEqual(got, onlySpec) {
		t.Errorf("a new object has no status:\n got %+v\nwant %+v", got, onlySpec)
	}

	// The status is written with a spec that says something else, which does not count.
	update := made
	update.Status = full().Status
	update.Spec.Reason, update.Spec.Nodes = "another", v1alpha1.NodeSet{Names: []string{"worker-1"}}
	var got v1alpha1.NodeMaintenance
	if err := client.Put().Resource(v1alpha1.NodeMaintenances).Name(want.Name).SubResource("status").Body(&update).
		Do(t.Context()).Into(&got); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(without(got), want) {
		t.Errorf("a status changes the status alone:\n got %+v\nwant %+v", without(got), want)
	}
	if got.Generation != made.Generation {
		t.Errorf("a status makes generation %d of %d", got.Generation, made.Generation)
	}

	// And a spec with a status that says something else.
	update = got
	update.Spec.Reason, update.Status = "two new disks", v1alpha1.NodeMaintenanceStatus{}
	want.Spec.Reason = "two new disks"
	if err := client.Put().Resource(v1alpha1.NodeMaintenances).Name(want.Name).Body(&update).Do(t.Context()).Into(&got); err != nil {
		t.Fatal(err)
	}
	var list v1alpha1.NodeMaintenanceList
	if err := client.Get().Resource(v1alpha1.NodeMaintenances).Param("fieldSelector", "metadata.name=full").Do(t.Context()).Into(&list); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 1 || !reflect.DeepEqual(without(list.Items[0]).Spec, want.Spec) || !reflect.DeepEqual(list.Items[0].Status, want.Status) {
		t.Errorf("a spec changes the spec alone:\n got %+v\nwant one with %+v", list.Items, want)
	}
}

func TestRulesRoundTrip(t *testing.T) {
	client := typed(t)
	spec := v1alpha1.DrainRuleSpec{Pods: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}, Behavior: v1alpha1.WaitCompleted, Order: -3}
	rule := v1alpha1.DrainRule{ObjectMeta: metav1.ObjectMeta{Name: "rule", Namespace: "default"}, Spec: spec}
	var got v1alpha1.DrainRule
	err := client.Post().Resource(v1alpha1.DrainRules).Namespace("default").Body(&rule).Param("dryRun", "All").Do(t.Context()).Into(&got)
	if err != nil || !reflect.DeepEqual(got.Spec, spec) {
		t.Errorf("DrainRule: %v\n got %+v\nwant %+v", err, got.Spec, spec)
	}
	clusterSpec := v1alpha1.ClusterDrainRuleSpec{DrainRuleSpec: spec, Namespaces: spec.Pods}
	clusterRule := v1alpha1.ClusterDrainRule{ObjectMeta: metav1.ObjectMeta{Name: "rule"}, Spec: clusterSpec}
	var clusterGot v1alpha1.ClusterDrainRule
	err = client.Post().Resource(v1alpha1.ClusterDrainRules).Body(&clusterRule).Param("dryRun", "All").Do(t.Context()).Into(&clusterGot)
	if err != nil || !reflect.DeepEqual(clusterGot.Spec, clusterSpec) {
		t.Errorf("ClusterDrainRule: %v\n got %+v\nwant %+v", err, clusterGot.Spec, clusterSpec)
	}
}
