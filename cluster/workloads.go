package cluster

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas"
)

// Tally is the state of a workload.
type Tally struct {
	// Wanted is spec.replicas if the workload has that, else the number of its pods that have not ended.
	Wanted int
	// Ready is the number of its pods that are ready and not terminating.
	Ready int
}

// Change names a changed workload or node.
type Change struct {
	// Workload is the UID of a workload with a changed [Tally], or with an added, deleted, or changed [Pod].
	Workload types.UID
	// Pod is that pod. Empty means that any pod of the workload may have changed.
	Pod types.UID
	// Node is the name of an added or deleted node, or of one whose [Node] changed.
	Node string
}

// Workloads maps pods to their workloads, and knows which pods budgets select and when nodes became tainted. The order of changes
// of several objects does not affect the result. All methods are safe for concurrent use. Callers own the results.
type Workloads struct {
	now func() time.Time
	// changed are the functions of OnChange.
	changed []func(Change)

	mu          sync.RWMutex
	pods        map[types.UID]*member
	owners      map[types.UID]int // how many pods name each owner
	controllers map[types.UID]*controller
	// groups are the pods of each controller that has any, as the pods name it.
	groups map[schemas.ObjectRef]*group
	// workloads are the groups of each workload that has any pod.
	workloads map[types.UID][]*group
	budgets   map[string]map[string]labels.Selector // by namespace, then by name
	nodes     nodes
	seen      uint64 // how many pods became known
}

// member is a pod, with the data that only this view has.
type member struct {
	pod  *corev1.Pod
	of   *group // nil without a controller
	seen uint64
}

// group is the pods of one controller.
type group struct {
	ref schemas.ObjectRef // the controller
	// workload is the controller, or the Deployment behind it.
	workload schemas.ObjectRef
	pods     []*member // sorted by age
	// ready and there are the numbers of ready pods, and of pods that have not ended.
	ready, there int
}

func newWorkloads(now func() time.Time) *Workloads {
	return &Workloads{
		now: now, pods: map[types.UID]*member{}, owners: map[types.UID]int{}, controllers: map[types.UID]*controller{},
		groups: map[schemas.ObjectRef]*group{}, workloads: map[types.UID][]*group{},
		budgets: map[string]map[string]labels.Selector{}, nodes: nodes{},
	}
}

// OnChange calls f for every change, including changes of the first list, from several goroutines at once. Call it
// before the cache runs. f must return quickly. It may query the view, which can be ahead of the change.
func (w *Workloads) OnChange(f func(Change)) { w.changed = append(w.changed, f) }

// Pod returns the pod with that UID, and whether it is known.
func (w *Workloads) Pod(uid types.UID) (Pod, bool) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	m, known := w.pods[uid]
	if !known {
		return Pod{}, false
	}
	return w.show(m), true
}

// Pods returns the pods of a workload, including terminating and ended pods, by creation time and then by name.
func (w *Workloads) Pods(workload types.UID) []Pod {
	w.mu.RLock()
	defer w.mu.RUnlock()
	var found []*member
	for _, g := range w.workloads[workload] {
		found = append(found, g.pods...)
	}
	if len(w.workloads[workload]) > 1 {
		slices.SortFunc(found, byAge)
	}
	var list []Pod
	for _, m := range found {
		list = append(list, w.show(m))
	}
	return list
}

// Tally returns the state of a workload. It is zero for an unknown workload, and for a ReplicaSet of a Deployment,
// which is not a workload of its own.
func (w *Workloads) Tally(workload types.UID) Tally {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.tally(workload)
}

// Nodes lists all nodes, sorted by name.
func (w *Workloads) Nodes() []Node {
	w.mu.RLock()
	defer w.mu.RUnlock()
	list := make([]Node, 0, len(w.nodes))
	for _, name := range slices.Sorted(maps.Keys(w.nodes)) {
		list = append(list, w.nodes[name].Node)
	}
	return list
}

// Node returns the node of that name, and whether it is known.
func (w *Workloads) Node(name string) (Node, bool) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	n, known := w.nodes[name]
	return n.Node, known
}

// Seen numbers the pods from 1 in the order of their arrival in the cache. Unlike creation times, the numbers do not depend on
// clocks. 0 means that the pod is unknown.
func (w *Workloads) Seen(uid types.UID) uint64 {
	return w.find(uid).seen
}

// Latest returns the latest number of [Workloads.Seen], or 0 if there is none.
func (w *Workloads) Latest() uint64 {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.seen
}

// Object returns a pod of the cache, or nil if the pod is unknown. It must not be changed.
func (w *Workloads) Object(uid types.UID) *corev1.Pod { return w.find(uid).pod }

// find returns the pod with that UID, without a pod if it is unknown.
func (w *Workloads) find(uid types.UID) member {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if m := w.pods[uid]; m != nil {
		return *m
	}
	return member{}
}

func (w *Workloads) replicas(owner types.UID) int {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.owners[owner]
}

// budgeted reports whether a budget of its namespace selects the pod.
func (w *Workloads) budgeted(p *corev1.Pod) bool {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.selects(p)
}

// The caller of the methods below holds mu.

func (w *Workloads) selects(p *corev1.Pod) bool {
	for _, selector := range w.budgets[p.Namespace] {
		if selector.Matches(labels.Set(p.Labels)) {
			return true
		}
	}
	return false
}

func (w *Workloads) tally(workload types.UID) Tally {
	var t Tally
	for _, g := range w.workloads[workload] {
		t.Ready += g.ready
		t.Wanted += g.there
	}
	if c := w.controllers[workload]; c != nil && c.deployment.UID == "" {
		t.Wanted = c.replicas
	}
	return t
}

// tell reports changes of workloads, each once. pod is the only changed pod; empty means that there may be others. The
// caller does not hold mu.
func (w *Workloads) tell(pod types.UID, workloads ...types.UID) {
	slices.Sort(workloads)
	for _, uid := range slices.Compact(workloads) {
		for _, f := range w.changed {
			if uid != "" {
				f(Change{Workload: uid, Pod: pod})
			}
		}
	}
}

// podChanged handles a change of a pod. old or new may be nil; else they have one UID.
func (w *Workloads) podChanged(old, new *corev1.Pod) {
	w.mu.Lock()
	var before, after Pod
	var seen uint64
	if old != nil {
		if m := w.pods[old.UID]; m != nil {
			before, seen = w.show(m), m.seen
			w.remove(m)
		}
	}
	if new != nil {
		if seen == 0 {
			w.seen++
			seen = w.seen
		}
		m := &member{pod: new, seen: seen}
		w.insert(m)
		after = w.show(m)
	}
	w.mu.Unlock()
	if before != after {
		w.tell(uidOf(old, new), before.Workload.UID, after.Workload.UID)
	}
}

func uidOf(old, new *corev1.Pod) types.UID {
	if new != nil {
		return new.UID
	}
	return old.UID
}

func (w *Workloads) insert(m *member) {
	w.pods[m.pod.UID] = m
	for uid := range Owners(m.pod) {
		w.owners[uid]++
	}
	owner := controllerOf(m.pod, "")
	if owner.UID == "" {
		return
	}
	g := w.groups[owner]
	if g == nil {
		g = &group{ref: owner, workload: w.workloadBehind(owner)}
		w.groups[owner] = g
		w.workloads[g.workload.UID] = append(w.workloads[g.workload.UID], g)
	}
	m.of = g
	at, _ := slices.BinarySearchFunc(g.pods, m, byAge)
	g.pods = slices.Insert(g.pods, at, m)
	g.count(m.pod, 1)
}

func (w *Workloads) remove(m *member) {
	delete(w.pods, m.pod.UID)
	for uid := range Owners(m.pod) {
		if w.owners[uid]--; w.owners[uid] == 0 {
			delete(w.owners, uid)
		}
	}
	g := m.of
	if g == nil {
		return
	}
	if at, found := slices.BinarySearchFunc(g.pods, m, byAge); found {
		g.pods = slices.Delete(g.pods, at, at+1)
		g.count(m.pod, -1)
	}
	if len(g.pods) == 0 {
		delete(w.groups, g.ref)
		w.detach(g)
	}
}

func (g *group) count(p *corev1.Pod, by int) {
	if PodReady(p) {
		g.ready += by
	}
	if !schemas.Ended(p) {
		g.there += by
	}
}

// detach removes a group from its workload.
func (w *Workloads) detach(g *group) {
	uid := g.workload.UID
	rest := slices.DeleteFunc(w.workloads[uid], func(other *group) bool { return other == g })
	if len(rest) == 0 {
		delete(w.workloads, uid)
		return
	}
	w.workloads[uid] = rest
}

// budgetChanged handles a change of a budget.
func (w *Workloads) budgetChanged(old, new *policyv1.PodDisruptionBudget) {
	if old != nil && new != nil && equality.Semantic.DeepEqual(old.Spec.Selector, new.Spec.Selector) {
		return // only its status, as happens all the time
	}
	b := cmp.Or(new, old)
	w.mu.Lock()
	before := w.budgetedIn(b.Namespace)
	if new == nil {
		delete(w.budgets[b.Namespace], b.Name)
		if len(w.budgets[b.Namespace]) == 0 {
			delete(w.budgets, b.Namespace)
		}
	} else {
		if w.budgets[b.Namespace] == nil {
			w.budgets[b.Namespace] = map[string]labels.Selector{}
		}
		w.budgets[b.Namespace][b.Name] = BudgetSelector(new)
	}
	var touched []types.UID
	for m, was := range before {
		if w.selects(m.pod) != was {
			touched = append(touched, m.of.workload.UID)
		}
	}
	w.mu.Unlock()
	w.tell("", touched...)
}

// budgetedIn records for each pod of a workload in a namespace whether a budget selects it.
func (w *Workloads) budgetedIn(namespace string) map[*member]bool {
	all := map[*member]bool{}
	for ref, g := range w.groups {
		if ref.Namespace != namespace {
			continue
		}
		for _, m := range g.pods {
			all[m] = w.selects(m.pod)
		}
	}
	return all
}

// nodeChanged handles a change of a node.
func (w *Workloads) nodeChanged(old, new *corev1.Node, initial bool) {
	w.mu.Lock()
	name := w.nodes.change(old, new, initial, w.now())
	w.mu.Unlock()
	for _, f := range w.changed {
		if name != "" {
			f(Change{Node: name})
		}
	}
}

// byAge sorts the oldest pod first. The UID distinguishes two pods that had the same name in the same second.
func byAge(a, b *member) int {
	return cmp.Or(
		a.pod.CreationTimestamp.Compare(b.pod.CreationTimestamp.Time), strings.Compare(a.pod.Name, b.pod.Name),
		cmp.Compare(a.pod.UID, b.pod.UID),
	)
}

// Owners returns the UIDs of the owners of a pod, or none for nil.
func Owners(p *corev1.Pod) map[types.UID]bool {
	if p == nil {
		return nil
	}
	uids := make(map[types.UID]bool, len(p.OwnerReferences))
	for i := range p.OwnerReferences {
		uids[p.OwnerReferences[i].UID] = true
	}
	return uids
}
