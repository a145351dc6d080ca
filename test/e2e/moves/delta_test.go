package moves

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/cluster"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
	"github.com/rehome-dev/rehome/test/kit/scene"
)

func TestDeltaKinds(t *testing.T) {
	s := scene.New(t, 2)
	dir := filetest.ShortDir(t)
	s.StartRun(s.Policy("deltas: All"), dir).WaitEvaluated(s) // an earlier change has no delta
	events := scene.Record(t, scene.BusIn(dir))

	// Each change waits for its delta, so two changes do not become one update.
	s.AddNodes(1)
	node := s.Nodes[2]
	waitDelta(events, schemas.NodeAdded, node)
	waitDelta(events, schemas.NodeReady, node)
	s.LabelNode(node, "disk", "ssd")
	waitDelta(events, schemas.NodeLabels, node)
	s.Taint(node, "dedicated")
	waitDelta(events, schemas.NodeTaints, node)
	s.ChangeNode(node, func(n *corev1.Node) { n.Spec.Unschedulable = true })
	waitDelta(events, schemas.NodeUnschedulable, node)
	s.Untaint(node)
	s.T.Must(s.Cluster.PatchNode(t.Context(), node, `{"status":{"allocatable":{"cpu":"8"}}}`, "status"))
	waitDelta(events, schemas.NodeAllocatable, node)

	held := map[string]string{cluster.HoldAnnotation: "true"}
	s.CreatePod("worker", s.Nodes[0], held)
	waitDelta(events, schemas.PodScheduled, "worker")
	s.PatchPod("worker", `{"metadata":{"labels":{"tier":"back"}}}`)
	waitDelta(events, schemas.PodLabels, "worker")
	s.PatchPod("worker", `{"status":{"containerStatuses":[{"name":"main","image":"none","imageID":"","ready":true,"restartCount":1}]}}`, "status")
	waitDelta(events, schemas.PodRestarted, "worker")
	s.PatchPod("worker", `{"status":{"phase":"Failed","reason":"Evicted"}}`, "status")
	waitDelta(events, schemas.PodFailed, "worker")
	s.T.Must(s.Client.CoreV1().Pods(s.Namespace).Delete(t.Context(), "worker", metav1.DeleteOptions{}))
	waitDelta(events, schemas.PodDeleted, "worker")
	s.T.Must(s.Client.CoreV1().Nodes().Delete(t.Context(), node, metav1.DeleteOptions{}))
	s.Nodes = s.Nodes[:2]
	waitDelta(events, schemas.NodeRemoved, node)
}

// waitDelta waits for a delta of that kind about the object.
func waitDelta(r *scene.Recording, kind schemas.DeltaKind, name string) {
	r.T.Helper()
	expect.EventuallyWithState(r.T, fmt.Sprintf("there is a delta %s of %s", kind, name), func() (bool, string) {
		list := scene.Payloads[schemas.Delta](r)
		return slices.ContainsFunc(list, func(d schemas.Delta) bool { return d.Kind == kind && d.Object.Name == name }), fmt.Sprint(list)
	})
}
