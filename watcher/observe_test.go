package watcher

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

func node(change ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "node-uid", Labels: map[string]string{"zone": "a"}}}
	for _, c := range change {
		c(n)
	}
	return n
}

func pod(change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "api", UID: "pod-uid", Labels: map[string]string{"app": "api"}},
		Spec:       corev1.PodSpec{NodeName: "n1"},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for _, c := range change {
		c(p)
	}
	return p
}

func tainted(keys ...string) func(*corev1.Node) {
	return func(n *corev1.Node) {
		for _, k := range keys {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: k, Effect: corev1.TaintEffectNoSchedule})
		}
	}
}

func allocatable(cpu string) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse("1Gi")}
	}
}

func restarted(init, main int32) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "i", RestartCount: init}}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", RestartCount: main}}
	}
}

// inState gives a pod a waiting container, a terminated one, and two conditions, one of them True.
func inState(waiting, terminated string, ready corev1.ConditionStatus) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{
			{Name: "main", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: waiting}}},
			{Name: "side", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: terminated}}},
		}
		p.Status.Conditions = []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: ready},
		}
	}
}

// ended gives a pod a container that terminated with that exit code.
func ended(code int32) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{
			{Name: "main", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Error", ExitCode: code}}},
		}
	}
}

// debugged gives a pod an ephemeral container that has terminated or is running.
func debugged(ended *corev1.ContainerStateTerminated) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		s := corev1.ContainerStatus{Name: "debugger", State: corev1.ContainerState{Terminated: ended}}
		if ended == nil {
			s.State.Running = &corev1.ContainerStateRunning{}
		}
		p.Status.EphemeralContainerStatuses = []corev1.ContainerStatus{s}
	}
}

// resizing gives a pod a resize condition with that reason.
func resizing(reason string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: reason}}
	}
}

func TestObserveNode(t *testing.T) {
	ref := schemas.ObjectRef{Kind: "Node", Name: "n1", UID: "node-uid"}
	yes, no := true, false
	taint := func(keys ...string) *schemas.State {
		return &schemas.State{Taints: node(tainted(keys...)).Spec.Taints}
	}
	for _, c := range []struct {
		name     string
		old, new *corev1.Node
		want     []schemas.Delta
	}{
		{"a node that joins is added", nil, node(), []schemas.Delta{{Kind: schemas.NodeAdded, Object: ref}}},
		{"a node that is gone is removed", node(), nil, []schemas.Delta{{Kind: schemas.NodeRemoved, Object: ref}}},
		{"a node that was replaced under its name is removed and added",
			node(func(n *corev1.Node) { n.UID = "old" }), node(),
			[]schemas.Delta{
				{Kind: schemas.NodeRemoved, Object: schemas.ObjectRef{Kind: "Node", Name: "n1", UID: "old"}},
				{Kind: schemas.NodeAdded, Object: ref},
			}},
		{"nothing is no delta", nil, nil, nil},
		{"a heartbeat is no delta",
			node(conditioned(corev1.ConditionTrue)),
			node(conditioned(corev1.ConditionTrue), func(n *corev1.Node) {
				n.ResourceVersion = "2"
				n.Status.Conditions[0].LastHeartbeatTime = metav1.Now()
			}), nil},
		{"a node that becomes ready", node(conditioned(corev1.ConditionFalse)), node(conditioned(corev1.ConditionTrue)),
			[]schemas.Delta{{
				Kind: schemas.NodeReady, Object: ref,
				Before: &schemas.State{Ready: corev1.ConditionFalse}, After: &schemas.State{Ready: corev1.ConditionTrue},
			}}},
		{"a node that is ready for the first time was of unknown readiness", node(), node(conditioned(corev1.ConditionTrue)),
			[]schemas.Delta{{
				Kind: schemas.NodeReady, Object: ref,
				Before: &schemas.State{Ready: corev1.ConditionUnknown}, After: &schemas.State{Ready: corev1.ConditionTrue},
			}}},
		{"label deltas contain only the changed labels",
			node(func(n *corev1.Node) { n.Labels = map[string]string{"zone": "a", "gone": "1", "changed": "x"} }),
			node(func(n *corev1.Node) { n.Labels = map[string]string{"zone": "a", "new": "", "changed": "y"} }),
			[]schemas.Delta{{
				Kind: schemas.NodeLabels, Object: ref,
				Before: &schemas.State{Labels: map[string]string{"gone": "1", "changed": "x"}},
				After:  &schemas.State{Labels: map[string]string{"new": "", "changed": "y"}},
			}}},
		{"a first taint has nothing before", node(), node(tainted("a")), []schemas.Delta{{Kind: schemas.NodeTaints, Object: ref, After: taint("a")}}},
		{"a last taint has nothing after", node(tainted("a")), node(), []schemas.Delta{{Kind: schemas.NodeTaints, Object: ref, Before: taint("a")}}},
		{"taint deltas contain all taints", node(tainted("a", "b")), node(tainted("b")),
			[]schemas.Delta{{Kind: schemas.NodeTaints, Object: ref, Before: taint("a", "b"), After: taint("b")}}},
		{"a cordoned node", node(), node(func(n *corev1.Node) { n.Spec.Unschedulable = true }),
			[]schemas.Delta{{
				Kind: schemas.NodeUnschedulable, Object: ref,
				Before: &schemas.State{Unschedulable: &no}, After: &schemas.State{Unschedulable: &yes},
			}}},
		{"allocatable deltas contain only the changed resources", node(allocatable("2")), node(allocatable("4")),
			[]schemas.Delta{{
				Kind: schemas.NodeAllocatable, Object: ref,
				Before: &schemas.State{Allocatable: corev1.ResourceList{"cpu": resource.MustParse("2")}},
				After:  &schemas.State{Allocatable: corev1.ResourceList{"cpu": resource.MustParse("4")}},
			}}},
		{"the same quantity written otherwise is no delta", node(allocatable("1")), node(allocatable("1000m")), nil},
		{"two aspects in one update are two deltas, in the order of the kinds",
			node(), node(tainted("a"), conditioned(corev1.ConditionTrue)),
			[]schemas.Delta{
				{
					Kind: schemas.NodeReady, Object: ref,
					Before: &schemas.State{Ready: corev1.ConditionUnknown}, After: &schemas.State{Ready: corev1.ConditionTrue},
				},
				{Kind: schemas.NodeTaints, Object: ref, After: taint("a")},
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			expect.Equal(t, "deltas", ObserveNode(c.old, c.new), c.want)
		})
	}
}

func TestObservePod(t *testing.T) {
	delta := func(kind schemas.DeltaKind, before, after *schemas.State) []schemas.Delta {
		return []schemas.Delta{{
			Kind: kind, Object: schemas.ObjectRef{Kind: "Pod", Namespace: "web", Name: "api", UID: "pod-uid"},
			Node: "n1", Before: before, After: after,
		}}
	}
	unbound := func(p *corev1.Pod) { p.Spec.NodeName = "" }
	failed := func(p *corev1.Pod) { p.Status.Phase, p.Status.Reason = corev1.PodFailed, "Evicted" }
	three, five := int32(3), int32(5)
	for _, c := range []struct {
		name     string
		old, new *corev1.Pod
		want     []schemas.Delta
	}{
		{"a pod without a node is no delta", nil, pod(unbound), nil},
		{"a pod that gets its node", pod(unbound), pod(), delta(schemas.PodScheduled, nil, nil)},
		{"labels that change before a pod has its node, or with it, are no delta of their own",
			pod(unbound), pod(func(p *corev1.Pod) { p.Labels = map[string]string{"app": "web"} }),
			delta(schemas.PodScheduled, nil, nil)},
		{"a pod that comes with its node", nil, pod(), delta(schemas.PodScheduled, nil, nil)},
		{"a pod that is gone", pod(), nil, delta(schemas.PodDeleted, nil, nil)},
		{"nothing is no delta", nil, nil, nil},
		{"labels that differ", pod(), pod(func(p *corev1.Pod) { p.Labels = map[string]string{"app": "web"} }),
			delta(schemas.PodLabels,
				&schemas.State{Labels: map[string]string{"app": "api"}}, &schemas.State{Labels: map[string]string{"app": "web"}})},
		{"restarts of all containers together", pod(restarted(1, 2)), pod(restarted(2, 3)),
			delta(schemas.PodRestarted, &schemas.State{Restarts: &three}, &schemas.State{Restarts: &five})},
		{"a restart count that falls is no delta", pod(restarted(0, 3)), pod(restarted(0, 0)), nil},
		{"a pod that fails", pod(), pod(failed),
			append(
				delta(schemas.PodFailed, &schemas.State{Phase: corev1.PodRunning},
					&schemas.State{Phase: corev1.PodFailed, Reason: "Evicted"}),
				delta(schemas.PodStatus, &schemas.State{Phase: corev1.PodRunning},
					&schemas.State{Phase: corev1.PodFailed, Reason: "Evicted"})...)},
		{"status deltas contain only the changed fields", pod(inState("a", "x", corev1.ConditionFalse)), pod(inState("b", "x", corev1.ConditionTrue)),
			delta(schemas.PodStatus,
				&schemas.State{
					Containers: map[string]string{"main": "Waiting:a"},
					Conditions: map[corev1.PodConditionType]corev1.ConditionStatus{corev1.PodReady: corev1.ConditionFalse},
				},
				&schemas.State{
					Containers: map[string]string{"main": "Waiting:b"},
					Conditions: map[corev1.PodConditionType]corev1.ConditionStatus{corev1.PodReady: corev1.ConditionTrue},
				})},
		{"the end of an ephemeral container, and an exit code that differs", pod(ended(1), debugged(nil)), pod(ended(2), debugged(&corev1.ContainerStateTerminated{Reason: "Error", ExitCode: 3})),
			delta(schemas.PodStatus,
				&schemas.State{Containers: map[string]string{"main": "Terminated:Error:1", "debugger": "Running"}},
				&schemas.State{Containers: map[string]string{"main": "Terminated:Error:2", "debugger": "Terminated:Error:3"}})},
		{"the reason of a condition", pod(resizing("Deferred")), pod(resizing("Infeasible")),
			delta(schemas.PodStatus,
				&schemas.State{Conditions: map[corev1.PodConditionType]corev1.ConditionStatus{corev1.PodResizePending: corev1.ConditionTrue}},
				&schemas.State{Conditions: map[corev1.PodConditionType]corev1.ConditionStatus{corev1.PodResizePending: corev1.ConditionTrue}})},
		{"the time and the message of a condition are no delta", pod(resizing("Deferred")), pod(resizing("Deferred"), func(p *corev1.Pod) {
			p.Status.Conditions[0].Message, p.Status.Conditions[0].LastTransitionTime = "new", metav1.Now()
		}), nil},
		{"a pod that stays failed is no delta", pod(failed), pod(failed), nil},
		{"a pod that was replaced under its name is deleted and scheduled",
			pod(func(p *corev1.Pod) { p.UID = "old" }), pod(),
			append([]schemas.Delta{{
				Kind: schemas.PodDeleted, Object: schemas.ObjectRef{Kind: "Pod", Namespace: "web", Name: "api", UID: "old"}, Node: "n1",
			}}, delta(schemas.PodScheduled, nil, nil)...)},
	} {
		t.Run(c.name, func(t *testing.T) {
			expect.Equal(t, "deltas", ObservePod(c.old, c.new), c.want)
		})
	}
}

func TestPruningKeepsObservedFields(t *testing.T) {
	full := pod(restarted(1, 2), func(p *corev1.Pod) {
		p.UID = types.UID("pod-uid")
		p.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
		p.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: "{}", "kept": "yes"}
		p.Spec.Containers = []corev1.Container{{Name: "c", Image: "i", Command: []string{"sh"}, Env: []corev1.EnvVar{{Name: "E"}}}}
		p.Spec.Volumes = []corev1.Volume{
			{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}},
		}
	})
	pruned := cached(t, full.DeepCopy())
	if got := ObservePod(full, pruned); got != nil {
		t.Errorf("pruning is observed as %+v", got)
	}
	want := pod(restarted(1, 2), func(p *corev1.Pod) {
		p.Annotations = map[string]string{"kept": "yes"}
		p.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
		p.Spec.Volumes = full.Spec.Volumes[:1]
	})
	expect.Equal(t, "pruned", pruned, want)
	if again := cached(t, pruned.DeepCopy()); !reflect.DeepEqual(again, want) {
		t.Errorf("pruning again: got %+v", again)
	}
}

// cached returns a pod as the cache stores it.
func cached(t *testing.T, p *corev1.Pod) *corev1.Pod {
	t.Helper()
	c := offline(t)
	put(t, c, p)
	return c.Pod(p.Namespace, p.Name)
}
