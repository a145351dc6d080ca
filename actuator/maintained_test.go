package actuator

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/actuator/maintenance"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/schematest"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// testMaintenance takes one answer of a maintenance from its steps to the verdict on a pod that no eviction could ever move.
func testMaintenance(p *place) {
	p.must(p.c.AddKinds(p.Context()))
	kinds, err := maintenance.NewClient(p.c.RESTConfig())
	p.must(err)
	pod := p.pods(1)[0]
	p.budget("api", 1)
	node, err := p.client.CoreV1().Nodes().Get(p.Context(), pod.Spec.NodeName, metav1.GetOptions{})
	p.must(err)
	m := &v1alpha1.NodeMaintenance{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion().String(), Kind: "NodeMaintenance"},
		ObjectMeta: metav1.ObjectMeta{Name: "kernel"},
		Spec: v1alpha1.NodeMaintenanceSpec{
			Nodes: v1alpha1.NodeSet{Names: []string{node.Name}}, Stage: v1alpha1.Drain, Reason: "new kernel",
		},
	}
	p.must(kinds.Post().Resource(v1alpha1.NodeMaintenances).Body(m).Do(p.Context()).Into(m))
	bus := newMemory()
	stop := p.lead(p.actuator(func(c *Config) { c.Bus, c.Kinds = bus, kinds }))
	defer stop()
	answer := p.maintain(m, node, pod)
	bus.put(answer)
	p.until(bus, 1, false)

	v, err := schemas.Decode[schemas.Verdict](bus.published[0])
	p.must(err)
	check(p.T, "verdict", []string{string(v.Outcome), string(v.Method), v.Intent.Reason},
		[]string{"restarted", string(schemas.MethodRestart), "maintenance kernel drains node " + node.Name + ": new kernel"})
	check(p.T, "eviction calls", p.evictions(), nil)
	node, err = p.client.CoreV1().Nodes().Get(p.Context(), node.Name, metav1.GetOptions{})
	p.must(err)
	check(p.T, "cordoned", node.Spec.Unschedulable, true)
	p.must(kinds.Get().Resource(v1alpha1.NodeMaintenances).Name(m.Name).Do(p.Context()).Into(m))
	check(p.T, "stage in the status", m.Status.Nodes[0].Stage, v1alpha1.Draining)
	p.toldOfMaintenance(bus, m, answer)
	p.tells([]string{
		"Node/" + node.Name + " NodeCordoned: cordoned: new kernel (maintenance kernel)",
		"NodeMaintenance/kernel NodeCordoned: node " + node.Name + ": cordoned: new kernel",
		"NodeMaintenance/kernel StageBegun: Drain begins: new kernel",
	})
	_, err = p.client.CoreV1().Nodes().Patch(p.Context(), node.Name, types.MergePatchType, []byte(`{"spec":{"unschedulable":null}}`),
		metav1.PatchOptions{})
	p.must(err)
}

// toldOfMaintenance checks that one event tells of the maintenance as it is stored.
func (p *place) toldOfMaintenance(bus *memory, m *v1alpha1.NodeMaintenance, answer schemas.Event) {
	p.Helper()
	told := bus.told()
	if len(told) != 1 {
		p.Fatalf("%d events of the maintenance, want one: %+v", len(told), told)
	}
	schematest.Check(p.T, told...)
	got, err := schemas.Decode[schemas.Maintenance](told[0])
	p.must(err)
	check(p.T, "told", got, schemas.Maintenance{
		Name: m.Name, UID: m.UID, Generation: m.Generation, Stage: v1alpha1.Drain, Reason: m.Spec.Reason,
		Stages: m.Status.Stages, Nodes: m.Status.Nodes, Whole: true,
	})
	check(p.T, "cause", told[0].CausationID, answer.ID)
}

// maintain is the answer that cordons the node and moves the pod.
func (p *place) maintain(m *v1alpha1.NodeMaintenance, node *corev1.Node, pod corev1.Pod) schemas.Event {
	p.Helper()
	intent := p.open(pod).Intent
	intent.Reason = "maintenance kernel drains node " + node.Name + ": new kernel"
	e, err := schemas.NewEvent("/test/functions", schemas.Intents{
		Profile: "default", Strategy: schemas.MaintenanceStrategy, Intents: []schemas.Intent{intent},
		Scope: schemas.ScopeRef{Kind: schemas.MaintenanceKind, Key: m.Name, Event: "scope", Sequence: 1, Since: time.Now()},
		Maintenance: &schemas.MaintenanceSteps{
			Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion, Finalizer: true,
			Status: v1alpha1.NodeMaintenanceStatus{
				ObservedGeneration: m.Generation,
				Stages:             []v1alpha1.StageTime{{Stage: v1alpha1.Drain, Start: metav1.NewTime(time.Now().Truncate(time.Second))}},
				Nodes:              []v1alpha1.NodeStatus{{Name: node.Name, UID: node.UID, Stage: v1alpha1.Draining}},
			},
			Nodes: []schemas.NodeStep{{Name: node.Name, UID: node.UID, Action: schemas.NodeCordon,
				Mark: schemas.CordonMark{Name: m.Name, UID: m.UID, At: time.Now().UTC()}}},
		},
	}, time.Now(), schemas.Event{})
	p.must(err)
	return e
}

// tells waits until these Kubernetes Events are there, on objects of the whole cluster.
func (p *place) tells(want []string) {
	p.Helper()
	var got []string
	for late := time.Now().Add(time.Minute); time.Now().Before(late); time.Sleep(100 * time.Millisecond) {
		list, err := p.client.EventsV1().Events(metav1.NamespaceDefault).List(p.Context(), metav1.ListOptions{
			FieldSelector: "reportingController=rehome",
		})
		p.must(err)
		got = nil
		for _, e := range list.Items {
			if isOfMaintenance(e) {
				got = append(got, fmt.Sprintf("%s/%s %s: %s", e.Regarding.Kind, e.Regarding.Name, e.Reason, e.Note))
			}
		}
		slices.Sort(got)
		if slices.Equal(got, want) {
			return
		}
	}
	p.Errorf("Kubernetes Events\n got %q\nwant %q", got, want)
}

func isOfMaintenance(e eventsv1.Event) bool {
	return e.Action == maintainAction || e.Reason == stageBegun
}
