package cluster

import (
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// noon returns the default creation time.
func noon() time.Time { return time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC) }

// world is a view of workloads that gets objects like from informers, with its reports.
type world struct {
	*Workloads
	cache   *Cache
	t       *testing.T
	changes []Change
	time    time.Time
}

func newWorld(t *testing.T) *world {
	t.Helper()
	c, err := NewOffline(WorkloadKinds()...)
	expect.Must(t, err)
	w := &world{t: t, cache: c, Workloads: c.Workloads(), time: noon()}
	w.OnChange(func(c Change) { w.changes = append(w.changes, c) })
	w.now = func() time.Time { return w.time }
	return w
}

// initially adds objects of the first list.
func (w *world) initially(objects ...metav1.Object) { w.put(true, objects...) }

// set adds or changes objects.
func (w *world) set(objects ...metav1.Object) { w.put(false, objects...) }

func (w *world) put(initial bool, objects ...metav1.Object) {
	w.t.Helper()
	// The cache prunes its objects.
	each(w.t, func(o any) error { return w.cache.set(o.(runtime.Object).DeepCopyObject(), initial) }, objects)
}

// gone removes objects.
func (w *world) gone(objects ...metav1.Object) {
	w.t.Helper()
	each(w.t, w.cache.Remove, objects)
}

// each calls do for each object, without an error.
func each(t *testing.T, do func(any) error, objects []metav1.Object) {
	t.Helper()
	for _, o := range objects {
		expect.Must(t, do(o))
	}
}

// told returns the reports since the last call, sorted.
func (w *world) told() []string {
	var list []string
	for _, c := range w.changes {
		switch {
		case c.Node == "":
			list = append(list, "workload "+string(c.Workload))
		case c.Workload == "":
			list = append(list, "node "+c.Node)
		default:
			w.t.Errorf("two fields are set: %+v", c)
		}
	}
	w.changes = nil
	slices.Sort(list)
	return list
}

func meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name), CreationTimestamp: metav1.Time{Time: noon()}}
}

// by returns the reference of an object to its controller, which has its UID as its name.
func by(kind, name string) metav1.OwnerReference {
	version := "apps/v1"
	if kind == "ReplicationController" {
		version = "v1"
	}
	return metav1.OwnerReference{APIVersion: version, Kind: kind, Name: name, UID: types.UID(name), Controller: new(true)}
}

func ref(kind, name string) schemas.ObjectRef {
	return schemas.ObjectRef{Kind: kind, Namespace: "shop", Name: name, UID: types.UID(name)}
}

// ready returns a pod that runs on node-1 and is ready.
func ready(name string, changes ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: meta(name), Spec: corev1.PodSpec{NodeName: "node-1"},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, QOSClass: corev1.PodQOSBurstable, Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: corev1.ConditionTrue},
		}},
	}
	for _, change := range changes {
		change(p)
	}
	return p
}

// costOf returns the cost of moving a pod with a priority, nil for none, and a quality of service.
func costOf(priority *int32, quality corev1.PodQOSClass) int64 {
	return policy.MoveCost(&corev1.Pod{Spec: corev1.PodSpec{Priority: priority}, Status: corev1.PodStatus{QOSClass: quality}})
}

// shown returns the expected summary of [ready].
func shown(name string, changes ...func(*Pod)) Pod {
	p := Pod{
		Ref: schemas.PodRef{Namespace: "shop", Name: name, UID: types.UID(name)}, Node: "node-1", Created: noon(), Ready: true,
		Cost: costOf(nil, corev1.PodQOSBurstable),
	}
	for _, change := range changes {
		change(&p)
	}
	return p
}

func in(kind, name string) func(*Pod) { return func(p *Pod) { p.Workload = ref(kind, name) } }

func budgeted(p *Pod) { p.Budgeted = true }

func owned(kind, name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.OwnerReferences = append(p.OwnerReferences, by(kind, name)) }
}

func labelled(pairs ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Labels = map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			p.Labels[pairs[i]] = pairs[i+1]
		}
	}
}

func born(seconds int) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.CreationTimestamp.Time = noon().Add(time.Duration(seconds) * time.Second) }
}

func leaving(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: noon()} }

func ended(p *corev1.Pod) {
	p.Status.Phase = corev1.PodSucceeded
	unready("")(p)
}

// unready returns a pod that is not ready, with the message of its condition.
func unready(message string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		c := podCondition(p, corev1.PodReady)
		c.Status, c.Message = corev1.ConditionFalse, message
	}
}

func waiting(reason, message string) corev1.ContainerStatus {
	return corev1.ContainerStatus{State: corev1.ContainerState{
		Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message},
	}}
}

func running() corev1.ContainerStatus {
	return corev1.ContainerStatus{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
}

func deployment(name string, replicas int32) *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: meta(name), Spec: appsv1.DeploymentSpec{Replicas: &replicas}}
}

func replicaSet(name string, replicas int32, owners ...metav1.OwnerReference) *appsv1.ReplicaSet {
	s := &appsv1.ReplicaSet{ObjectMeta: meta(name), Spec: appsv1.ReplicaSetSpec{Replicas: &replicas}}
	s.OwnerReferences = owners
	return s
}

func budget(name string, selector *metav1.LabelSelector) *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{ObjectMeta: meta(name), Spec: policyv1.PodDisruptionBudgetSpec{Selector: selector}}
}
