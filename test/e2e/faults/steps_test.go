package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
	"github.com/rehome-dev/rehome/test/cluster"
)

// The steps of a restart and of a maintenance. The actuator takes the steps of pods, and the maintenance role takes the steps of nodes.
const (
	recordWritten   = "record written"
	replicaAdded    = "replica added"
	rolloutBegun    = "rollout begun"
	replacementDue  = "waiting for the replacement"
	podEvicted      = "eviction"
	replicaReturned = "replicas returned"
	nodeCordoned    = "cordon"
	nodeDrains      = "drain"
	nodeUncordoned  = "uncordon"
)

// The annotations of a restart, see package restart.
const (
	restartedAt   = "rehome.dev/restarted-at"
	restartUndo   = "rehome.dev/restart-undo"
	surgeReplicas = "rehome.dev/surge-replicas"
	surgeCost     = "rehome.dev/surge-cost-before"
)

// leaseOf returns the lease of the role that takes a step.
func leaseOf(step string) string {
	if step == nodeCordoned || step == nodeDrains || step == nodeUncordoned {
		return maintenanceLease
	}
	return actuatorLease
}

// begun is a step that has begun.
type begun struct {
	step, deployment string
	at               string // of the record
}

// followSteps reports each step that begins, until the end of the test.
func (s *restarts) followSteps() {
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.t.Context()))
	b, err := s.connect(ctx)
	s.must(err)
	all := informers.NewSharedInformerFactory(s.cluster.Client(), 0)
	_, err1 := all.Apps().V1().Deployments().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(before, after any) { s.deploymentChanged(before.(*appsv1.Deployment), after.(*appsv1.Deployment)) }})
	_, err2 := all.Core().V1().Nodes().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(before, after any) { s.nodeChanged(before.(*corev1.Node), after.(*corev1.Node)) }})
	_, err3 := all.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(p any) { s.podChanged(p.(*corev1.Pod), p.(*corev1.Pod)) },
		UpdateFunc: func(before, after any) { s.podChanged(before.(*corev1.Pod), after.(*corev1.Pod)) },
		DeleteFunc: func(p any) { s.podChanged(p.(*corev1.Pod), &corev1.Pod{}) }})
	s.must(errors.Join(err1, err2, err3))
	var following sync.WaitGroup
	following.Go(func() {
		seen := map[string]bool{}
		_ = b.Ledger().Follow(ctx, "", func(key string, value []byte) { s.recordsChanged(key, value, seen) })
	})
	s.t.Cleanup(func() {
		cancel()
		all.Shutdown()
		following.Wait()
		b.Close()
	})
	all.Start(ctx.Done())
	all.WaitForCacheSync(ctx.Done())
}

// begins reports a step, if it is one and a fault waits.
func (s *restarts) begins(is bool, b begun) {
	if is {
		select {
		case s.begun <- b:
		default:
		}
	}
}

// recordsChanged reports a new restart in a ledger record, or in the records that have no key of their own yet.
func (s *restarts) recordsChanged(key string, value []byte, seen map[string]bool) {
	list := map[string]move.Record{}
	if key != "begun" || json.Unmarshal(value, &list) != nil {
		return
	}
	for _, r := range list {
		state, err := move.Decode[struct{ At string }](r.State)
		if err == nil && move.IsPlanned(r.State) && !seen[state.At] {
			seen[state.At] = true
			s.begins(true, begun{recordWritten, r.Workload.Name, state.At})
		}
	}
}

func (s *restarts) deploymentChanged(before, after *appsv1.Deployment) {
	step := restartStep(after)
	s.begins(step != "" && step != restartStep(before), begun{step: step, deployment: after.Name})
	s.begins(before.Annotations[surgeReplicas] != "" && after.Annotations[surgeReplicas] == "", begun{step: replicaReturned})
}

// restartStep returns the current step of a restart of a Deployment, or "".
func restartStep(d *appsv1.Deployment) string {
	surges, unseen := d.Annotations[surgeReplicas] != "", d.Status.ObservedGeneration < d.Generation
	switch {
	case !surges && d.Annotations[restartUndo] == "":
		return ""
	case unseen && surges:
		return replicaAdded
	case unseen:
		return rolloutBegun
	}
	return replacementDue
}

func (s *restarts) nodeChanged(before, after *corev1.Node) {
	s.begins(!before.Spec.Unschedulable && after.Spec.Unschedulable, begun{step: nodeCordoned})
	s.begins(before.Spec.Unschedulable && !after.Spec.Unschedulable, begun{step: nodeUncordoned})
	drains := func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeDrainInProgress && c.Status == corev1.ConditionTrue
	}
	did := slices.ContainsFunc(before.Status.Conditions, drains)
	s.begins(!did && slices.ContainsFunc(after.Status.Conditions, drains), begun{step: nodeDrains})
}

// podChanged also counts the ready pods of a Deployment. Only Rehome stops pods.
func (s *restarts) podChanged(before, after *corev1.Pod) {
	name := workloadOf(before.Name)
	least := int(deployments[name].least)
	if before.Namespace != namespace || least == 0 {
		return
	}
	evicted := func(c corev1.PodCondition) bool { return c.Type == corev1.DisruptionTarget }
	was := slices.ContainsFunc(before.Status.Conditions, evicted)
	s.begins(!was && slices.ContainsFunc(after.Status.Conditions, evicted), begun{step: podEvicted})
	s.readiness.Lock()
	defer s.readiness.Unlock()
	switch ready := s.up[name]; {
	case cluster.IsReady(after):
		ready[before.UID] = true
	case ready[before.UID]:
		delete(ready, before.UID)
		if len(ready) < least {
			s.low[before.UID] = fmt.Sprintf("%s: pod %s went: %d ready pods are left, want %d", time.Now().Format(clock), before.Name, len(ready), least)
		}
	}
}

// maintain drains nodes, some at once, returns each when no pod is left on it, and completes the maintenance.
func (s *restarts) maintain(name string, nodes []string, atOnce int) error {
	m := &v1alpha1.NodeMaintenance{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.NodeMaintenanceSpec{
		Nodes: v1alpha1.NodeSet{Names: nodes}, Stage: v1alpha1.Drain, Reason: "faults", AtOnce: new(intstr.FromInt(atOnce)),
	}}
	do := func(r *rest.Request) error { return r.Resource(v1alpha1.NodeMaintenances).Do(s.t.Context()).Into(m) }
	err := do(s.kinds.Post().Body(m))
	err = errors.Join(err, s.await("maintenance "+name+" completes", quietLimit, func(ctx context.Context) error {
		err := do(s.kinds.Get().Name(name))
		if meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.Completed) {
			return err
		}
		returned := 0
		for _, n := range m.Status.Nodes {
			switch n.Stage {
			case v1alpha1.Returned:
				returned++
			case v1alpha1.IsDrained:
				mark := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, schemas.AnnotationMaintained, name)
				if err = errors.Join(err, s.empty(ctx, []string{n.Name})); err == nil {
					err = s.cluster.PatchNode(ctx, n.Name, mark)
				}
			}
		}
		if returned == len(nodes) {
			err = errors.Join(err, do(s.kinds.Patch(types.MergePatchType).Name(name).Body([]byte(`{"spec":{"stage":"Complete"}}`))))
		}
		return errors.Join(err, fmt.Errorf("%s: %+v", m.Status.Summary.Message, m.Status.Nodes))
	}))
	for _, n := range nodes {
		node, getErr := s.cluster.Client().CoreV1().Nodes().Get(s.t.Context(), n, metav1.GetOptions{})
		if err = errors.Join(err, getErr); getErr == nil && (node.Spec.Unschedulable || node.Annotations[schemas.AnnotationMaintenance] != "") {
			err = errors.Join(err, fmt.Errorf("maintenance %s is completed, and node %s is cordoned: %v", name, n, node.Annotations))
		}
	}
	return errors.Join(err, s.kinds.Delete().Resource(v1alpha1.NodeMaintenances).Name(name).Do(s.t.Context()).Error())
}
