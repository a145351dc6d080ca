package simulate

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	schedulingv1 "k8s.io/component-helpers/scheduling/corev1"

	"github.com/rehome-dev/rehome/actuator/move/eviction"
	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/fit"
	"github.com/rehome-dev/rehome/fit/score"
	"github.com/rehome-dev/rehome/schemas"
)

// world has the objects between two rounds. It does the work of the controllers and of the scheduler.
type world struct {
	Config
	objects   []metav1.Object
	scheduler *score.Profile
	// beginning has the original pods.
	beginning map[types.UID]bool
	// fit is new in each round.
	fit *fit.Cluster
}

func newWorld(c Config, objects []metav1.Object) (*world, error) {
	w := &world{Config: c, objects: slices.Clone(objects), beginning: map[types.UID]bool{}}
	for _, o := range objects {
		w.beginning[o.GetUID()] = true
	}
	var err error
	w.scheduler, err = c.Policy.Scheduler.Load()
	return w, err
}

func fixed(now time.Time) func() time.Time { return func() time.Time { return now } }

// apply removes one pod after another, and places its replacement before the next one moves, like the actuator. Pods
// without a node are placed last, by priority.
func (w *world) apply(moves []Move) []Placement {
	if len(moves) == 0 {
		return nil
	}
	gone := map[types.UID]*corev1.Pod{}
	for _, m := range moves {
		gone[m.Pod.UID] = nil
	}
	w.fit = fit.New()
	w.fit.MinorVersion = w.MinorVersion
	var waiting []*corev1.Pod
	w.objects = slices.DeleteFunc(w.objects, func(o metav1.Object) bool {
		p, isPod := o.(*corev1.Pod)
		if isPod && p.Spec.NodeName == "" && p.DeletionTimestamp == nil && !schemas.Ended(p) {
			waiting = append(waiting, p)
		}
		if _, moves := gone[o.GetUID()]; isPod && moves {
			gone[o.GetUID()] = p
		}
		w.fit.Set(o)
		return gone[o.GetUID()] != nil
	})
	for i := range moves {
		old := gone[moves[i].Pod.UID]
		w.healthy(old, -1)
		w.fit.Remove(old)
		if next := replacement(old, w.Now()); next != nil {
			moves[i].Replacement = next.Name
			moves[i].Pending = w.place(next)
			moves[i].To = next.Spec.NodeName
			w.objects = append(w.objects, next)
			w.moveLoad(old, next)
		}
	}
	slices.SortStableFunc(waiting, func(a, b *corev1.Pod) int {
		return cmp.Compare(schedulingv1.PodPriority(b), schedulingv1.PodPriority(a))
	})
	var placed []Placement
	for _, p := range waiting {
		if w.place(p) == "" {
			placed = append(placed, Placement{schemas.PodRef{Namespace: p.Namespace, Name: p.Name, UID: p.UID}, p.Spec.NodeName})
		}
	}
	return placed
}

// replacement returns the pod that the owner of a deleted pod creates, or nil. Only a StatefulSet replaces a pod that
// has ended: other owners did so before.
func replacement(old *corev1.Pod, now time.Time) *corev1.Pod {
	statefulSet := strings.HasPrefix(workload(old), "StatefulSet ")
	if len(old.OwnerReferences) == 0 || schemas.Ended(old) && !statefulSet {
		return nil
	}
	p := &corev1.Pod{ObjectMeta: *old.ObjectMeta.DeepCopy(), Spec: *old.Spec.DeepCopy()}
	p.UID, p.CreationTimestamp, p.Finalizers = types.UID(successor(string(old.UID))), metav1.NewTime(now), nil
	if !statefulSet {
		p.Name = successor(old.Name)
	}
	p.Spec.NodeName, p.Spec.EphemeralContainers = "", nil
	p.Status.Phase = corev1.PodPending
	return p
}

// successor returns a name with the next number.
func successor(name string) string {
	name, last, _ := strings.Cut(name, "~")
	number, _ := strconv.Atoi(last) // 0 for the first
	return fmt.Sprintf("%s~%d", name, number+1)
}

// place binds a pod to the node that the scheduler chooses, and lets it run there. Otherwise it returns the reason why
// there is none.
func (w *world) place(p *corev1.Pod) (pending string) {
	q := w.fit.Ask(p)
	nodes := score.Predict(q, w.scheduler, cluster.IsReady)
	if len(nodes) == 0 {
		switch found := q.Elsewhere(fit.Search{Allowed: cluster.IsReady}); {
		case !found.Judged:
			return "not judged: " + string(found.Reason)
		case len(found.Refused) == 0:
			return "there is no ready node"
		default:
			return cluster.Reasons(found.Refused)
		}
	}
	now := metav1.NewTime(w.Now())
	p.Spec.NodeName = nodes[0].Name
	p.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, StartTime: &now,
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
	}
	w.fit.Set(p)
	w.healthy(p, 1)
	return ""
}

// healthy adds a number of pods like this one to the healthy pods of its budgets, if it is ready.
func (w *world) healthy(p *corev1.Pod, n int32) {
	if !cluster.PodReady(p) {
		return
	}
	for _, o := range w.objects {
		b, ok := o.(*policyv1.PodDisruptionBudget)
		if !ok || len(eviction.Matching(p, []policyv1.PodDisruptionBudget{*b})) == 0 {
			continue
		}
		s := &b.Status
		if s.CurrentHealthy += n; n > 0 && s.DisruptionsAllowed == 0 {
			s.DisruptionsAllowed = max(0, s.CurrentHealthy-s.DesiredHealthy)
		} else {
			s.DisruptionsAllowed = max(0, s.DisruptionsAllowed+n)
		}
	}
}

// moveLoad moves the measured load of a pod to the node of its replacement.
func (w *world) moveLoad(old, next *corev1.Pod) {
	name := types.NamespacedName{Namespace: old.Namespace, Name: old.Name}
	load, known := w.Loads.Pods[name]
	if !known {
		return
	}
	delete(w.Loads.Pods, name)
	if next.Spec.NodeName != "" {
		w.Loads.Pods[types.NamespacedName{Namespace: next.Namespace, Name: next.Name}] = load
	}
	add := func(node string, change func(*resource.Quantity, resource.Quantity)) {
		if w.Loads.Nodes[node] == nil {
			return
		}
		sum := w.Loads.Nodes[node].DeepCopy()
		for resource, quantity := range load {
			total := sum[resource]
			change(&total, quantity)
			sum[resource] = total
		}
		w.Loads.Nodes[node] = sum
	}
	add(old.Spec.NodeName, (*resource.Quantity).Sub)
	add(next.Spec.NodeName, (*resource.Quantity).Add)
}
