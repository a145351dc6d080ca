package maintenance

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/rehome-dev/rehome/maintenance/plan"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
	"github.com/rehome-dev/rehome/test/kit/scene"
)

// invariants checks the invariants after every change of the nodes, the pods, the budgets, and the maintenance that the API server
// reports.
type invariants struct {
	*maintenanceScene
	atOnce int

	mu        sync.Mutex
	marked    map[string]bool // nodes with the mark of a maintenance
	maxMarked int             // the largest number of marked nodes at once
	places    map[types.UID]string
	healthy   map[string]bool // budgets that had the pods that they want
	stages    map[string]v1alpha1.NodeStage
}

// watchInvariants watches until the scene ends. atOnce is the largest number of nodes in maintenance at a time.
func (u *maintenanceScene) watchInvariants(atOnce int) *invariants {
	u.T.Helper()
	o := &invariants{
		maintenanceScene: u, atOnce: atOnce, marked: map[string]bool{}, places: map[types.UID]string{}, healthy: map[string]bool{},
		stages: map[string]v1alpha1.NodeStage{},
	}
	ctx, cancel := context.WithCancel(u.T.Context())
	core, all := u.Client.CoreV1(), metav1.ListOptions{}
	var watching sync.WaitGroup
	for _, w := range []struct {
		begin func() (watch.Interface, error)
		see   func(any, bool)
	}{
		{func() (watch.Interface, error) {
			return core.Nodes().Watch(ctx, metav1.ListOptions{LabelSelector: "scene=" + u.Namespace})
		}, seen(o.node)},
		{func() (watch.Interface, error) { return core.Pods(u.Namespace).Watch(ctx, all) }, seen(o.pod)},
		{func() (watch.Interface, error) {
			return u.Client.PolicyV1().PodDisruptionBudgets(u.Namespace).Watch(ctx, all)
		},
			seen(o.budget)},
		{func() (watch.Interface, error) {
			return u.kinds.Get().Resource(v1alpha1.NodeMaintenances).Param("watch", "true").Watch(ctx)
		}, seen(o.maintenance)},
	} {
		changes, err := w.begin()
		u.T.Must(err)
		watching.Go(func() {
			for e := range changes.ResultChan() {
				if ctx.Err() == nil {
					w.see(e.Object, e.Type != watch.Deleted)
				}
			}
			if ctx.Err() == nil {
				u.T.Error("a watch ended too early")
			}
		})
	}
	u.T.Cleanup(func() { // the watches end with ctx
		cancel()
		watching.Wait()
	})
	return o
}

// mostAtOnce returns the largest number of nodes that were marked at a time.
func (o *invariants) mostAtOnce() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.maxMarked
}

// seen calls a function only for objects of its type.
func seen[T any](see func(object *T, there bool)) func(any, bool) {
	return func(object any, there bool) {
		if o, is := object.(*T); is {
			see(o, there)
		}
	}
}

// node checks that at most atOnce nodes are marked, and that each marked node is cordoned and was claimed before.
func (o *invariants) node(n *corev1.Node, there bool) {
	text, is := n.Annotations[schemas.AnnotationMaintenance]
	is = is && there
	o.mu.Lock()
	was := o.marked[n.Name]
	if o.marked[n.Name] = is; !is {
		delete(o.marked, n.Name)
	}
	o.maxMarked = max(o.maxMarked, len(o.marked))
	if len(o.marked) > o.atOnce {
		o.T.Errorf("%d nodes are marked at a time, want at most %d: %v", len(o.marked), o.atOnce, slices.Sorted(maps.Keys(o.marked)))
	}
	o.mu.Unlock()
	if is && !n.Spec.Unschedulable {
		o.T.Errorf("node %s has a mark and is not cordoned", n.Name)
	}
	if is && !was {
		o.claimed(n.Name, text)
	}
}

// claimed checks that the status of the maintenance claimed the node before the maintenance marked it.
func (o *invariants) claimed(node, text string) {
	var mark schemas.CordonMark
	var m v1alpha1.NodeMaintenance
	err := json.Unmarshal([]byte(text), &mark)
	if err == nil {
		err = o.kinds.Get().Resource(v1alpha1.NodeMaintenances).Name(mark.Name).Do(o.T.Context()).Into(&m)
	}
	begun := slices.ContainsFunc(m.Status.Nodes, func(s v1alpha1.NodeStatus) bool { return s.Name == node && s.Start != nil })
	if !begun && o.T.Context().Err() == nil {
		o.T.Errorf("node %s was cordoned and is not claimed: %v", node, err)
	}
}

// pod records the node of the pod.
func (o *invariants) pod(p *corev1.Pod, _ bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if p.Spec.NodeName != "" {
		o.places[p.UID] = p.Spec.NodeName
	}
}

// budget checks that a satisfied budget stays satisfied.
func (o *invariants) budget(b *policyv1.PodDisruptionBudget, there bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	enough := b.Status.CurrentHealthy >= b.Status.DesiredHealthy
	if there && o.healthy[b.Name] && !enough {
		o.T.Errorf("budget %s has %d healthy pods and wants %d", b.Name, b.Status.CurrentHealthy, b.Status.DesiredHealthy)
	}
	o.healthy[b.Name] = o.healthy[b.Name] || enough && b.Status.ExpectedPods > 0
}

// maintenance checks that the status claims at most atOnce nodes, and that it matches the nodes.
func (o *invariants) maintenance(m *v1alpha1.NodeMaintenance, there bool) {
	if m.Name != o.Namespace || !there {
		return
	}
	var working []string
	for _, n := range m.Status.Nodes {
		o.blocked(n)
		o.mu.Lock()
		was := o.stages[n.Name]
		o.stages[n.Name] = n.Stage
		o.mu.Unlock()
		if plan.InProgress(n.Stage) {
			working = append(working, n.Name)
		}
		if n.Stage == was {
			continue
		}
		switch n.Stage {
		case v1alpha1.IsDrained:
			o.empty(n.Name)
		case v1alpha1.Returned:
			o.unmarked(n.Name)
		}
	}
	o.reached(m)
	if len(working) > o.atOnce {
		o.T.Errorf("%d nodes are worked on at a time, want at most %d: %v", len(working), o.atOnce, working)
	}
}

// reached checks that the summary counts drained nodes, including earlier ones, until all are returned, and that the
// drain counts as reached only when every node is drained.
func (o *invariants) reached(m *v1alpha1.NodeMaintenance) {
	wanted := m.Status.Stages
	if len(wanted) == 0 || wanted[len(wanted)-1].Stage != v1alpha1.Drain {
		return
	}
	done := 0
	for _, n := range m.Status.Nodes {
		goes := n.Stage == v1alpha1.Returning || n.Stage == v1alpha1.Returned
		if n.Stage == v1alpha1.IsDrained || goes && n.DrainedAt != nil {
			done++
		}
	}
	if got, want := m.Status.Summary.Nodes, fmt.Sprintf("%d/%d", done, len(m.Status.Nodes)); got != want {
		o.T.Errorf("the summary says %s, want %s: %v", got, want, inStage(m))
	}
	said := strings.HasPrefix(conditionsOf(m)[v1alpha1.Progressing], "False "+v1alpha1.ReasonReached)
	if said && done < len(m.Status.Nodes) {
		o.T.Errorf("the drain is reported as reached, but the nodes are %v", inStage(m))
	}
}

// blocked checks that pods blocked by a budget have the budget in the status. Budgets have the names of their workloads.
func (o *invariants) blocked(n v1alpha1.NodeStatus) {
	for _, b := range n.Blocked {
		if b.Reason != string(schemas.ReasonDisruptionBudget) {
			continue
		}
		prefix := "poddisruptionbudget/" + o.Namespace + "/"
		if name, is := strings.CutPrefix(b.By, prefix); !is || !strings.HasPrefix(b.Name, name+"-") {
			o.T.Errorf("pod %s is blocked by %q, want the budget of its workload", b.Name, b.By)
		}
	}
}

// empty checks that a drained node has no pod that should have moved.
func (o *invariants) empty(node string) {
	if left, err := o.movable(node); (err != nil || len(left) > 0) && o.T.Context().Err() == nil {
		o.T.Errorf("node %s is reported as drained, but has %v; %v", node, left, err)
	}
}

// movable returns the pods on a node without DaemonSet pods.
func (u *maintenanceScene) movable(node string) (names []string, err error) {
	list, err := u.Client.CoreV1().Pods("").List(u.T.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	if err != nil {
		return nil, err
	}
	for _, p := range list.Items {
		if owner := metav1.GetControllerOf(&p); owner == nil || owner.Kind != "DaemonSet" {
			names = append(names, p.Name)
		}
	}
	return names, nil
}

// unmarked checks that a returned node has no mark.
func (o *invariants) unmarked(node string) {
	n, err := o.Client.CoreV1().Nodes().Get(o.T.Context(), node, metav1.GetOptions{})
	if err != nil {
		if o.T.Context().Err() == nil {
			o.T.Errorf("node %s is reported as returned: %v", node, err)
		}
		return
	}
	if mark, is := n.Annotations[schemas.AnnotationMaintenance]; is {
		o.T.Errorf("node %s is reported as returned, but has the mark %s", node, mark)
	}
}

// checkEvictions checks that every evicted pod was evicted once, and from one of these nodes.
func (o *invariants) checkEvictions(nodes []string) {
	o.T.Helper()
	list := o.Evictions()
	if pods := scene.UIDs(list); len(pods) != len(list) {
		o.T.Errorf("%d evictions of %d pods: some were evicted twice", len(list), len(pods))
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, e := range list {
		if !slices.Contains(nodes, o.places[e.UID]) {
			o.T.Errorf("pod %s was evicted off node %s, which was not maintained", e.Pod, o.places[e.UID])
		}
	}
}
