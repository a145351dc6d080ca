package e2e

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/cluster"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
)

func TestDeltaKinds(t *testing.T) {
	s := newScene(t, 2)
	dir := filetest.ShortDir(t)
	s.rehome(s.policy("deltas: All"), dir).evaluated(s) // an earlier change has no delta
	events := record(t, at(dir))

	// Each change waits for its delta, so two changes do not become one update.
	s.addNodes(1)
	node := s.nodes[2]
	events.delta(schemas.NodeAdded, node)
	events.delta(schemas.NodeReady, node)
	s.label(node, "disk", "ssd")
	events.delta(schemas.NodeLabels, node)
	s.taint(node, "dedicated")
	events.delta(schemas.NodeTaints, node)
	s.changeNode(node, func(n *corev1.Node) { n.Spec.Unschedulable = true })
	events.delta(schemas.NodeUnschedulable, node)
	s.untaint(node)
	s.t.Must(s.cluster.PatchNode(t.Context(), node, `{"status":{"allocatable":{"cpu":"8"}}}`, "status"))
	events.delta(schemas.NodeAllocatable, node)

	held := map[string]string{cluster.HoldAnnotation: "true"}
	s.create(s.nodes[0], "worker", held)
	events.delta(schemas.PodScheduled, "worker")
	s.patchPod("worker", `{"metadata":{"labels":{"tier":"back"}}}`)
	events.delta(schemas.PodLabels, "worker")
	s.patchPod("worker", `{"status":{"containerStatuses":[{"name":"main","image":"none","imageID":"","ready":true,"restartCount":1}]}}`, "status")
	events.delta(schemas.PodRestarted, "worker")
	s.patchPod("worker", `{"status":{"phase":"Failed","reason":"Evicted"}}`, "status")
	events.delta(schemas.PodFailed, "worker")
	s.t.Must(s.client.CoreV1().Pods(s.namespace).Delete(t.Context(), "worker", metav1.DeleteOptions{}))
	events.delta(schemas.PodDeleted, "worker")
	s.t.Must(s.client.CoreV1().Nodes().Delete(t.Context(), node, metav1.DeleteOptions{}))
	s.nodes = s.nodes[:2]
	events.delta(schemas.NodeRemoved, node)
}

// delta waits for a delta of that kind about the object.
func (r *recording) delta(kind schemas.DeltaKind, name string) {
	r.t.Helper()
	expect.EventuallyWithState(r.t, fmt.Sprintf("there is a delta %s of %s", kind, name), func() (bool, string) {
		list := payloads[schemas.Delta](r)
		return slices.ContainsFunc(list, func(d schemas.Delta) bool { return d.Kind == kind && d.Object.Name == name }), fmt.Sprint(list)
	})
}

// create creates a pod on a node without waiting for it.
func (s *scene) create(node, name string, annotations map[string]string) {
	s.t.Helper()
	_, err := s.client.CoreV1().Pods(s.namespace).Create(s.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations, Labels: map[string]string{"app": name}},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "main", Image: "none"}}},
	}, metav1.CreateOptions{})
	s.t.Must(err)
}

func (s *scene) patchPod(name, patch string, subresources ...string) {
	s.t.Helper()
	_, err := s.client.CoreV1().Pods(s.namespace).Patch(s.t.Context(), name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
	s.t.Must(err)
}
