package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/cluster"
	"github.com/rehome-dev/rehome/test/expect"
	"github.com/rehome-dev/rehome/test/filetest"
)

func TestDeltaKinds(t *testing.T) {
	s := newScene(t, 2)
	dir := filetest.ShortDir(t)
	s.rehome(s.policy("deltas: All"), dir).evaluated(s) // an earlier change has no delta
	events := record(t, at(dir))

	// Each change waits for its delta, so two changes do not become one update.
	added, err := s.cluster.AddNodes(t.Context(), 1, func(n *corev1.Node) { n.Labels["scene"] = s.namespace })
	s.t.Must(err)
	node := added[0]
	s.nodes = append(s.nodes, node)
	events.delta(schemas.NodeAdded, node)
	events.delta(schemas.NodeReady, node)
	s.changeNode(node, func(n *corev1.Node) { n.Labels["disk"] = "ssd" })
	events.delta(schemas.NodeLabels, node)
	s.taint(node, "dedicated")
	events.delta(schemas.NodeTaints, node)
	s.changeNode(node, func(n *corev1.Node) { n.Spec.Unschedulable = true })
	events.delta(schemas.NodeUnschedulable, node)
	s.untaint(node)
	s.allocatable(node, "8")
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
	deadline := time.After(expect.Patience)
	for {
		list := payloads[schemas.Delta](r)
		if slices.ContainsFunc(list, func(d schemas.Delta) bool { return d.Kind == kind && d.Object.Name == name }) {
			return
		}
		select {
		case <-r.more:
		case <-deadline:
			r.t.Fatalf("not within %v: %s of %s; deltas: %v", expect.Patience, kind, name, list)
		}
	}
}

// allocatable changes the allocatable resources of a node.
func (s *scene) allocatable(node, cpu string) {
	s.t.Helper()
	patch := fmt.Sprintf(`{"status":{"allocatable":{"cpu":%q}}}`, cpu)
	s.t.Must(s.cluster.PatchNode(s.t.Context(), node, patch, "status"))
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
