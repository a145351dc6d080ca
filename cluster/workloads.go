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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas"
)

// Pod is the summary of a pod. The zero value is no pod.
type Pod struct {
	Ref schemas.PodRef
	// Workload is the pod's controller, or the Deployment behind its ReplicaSet. The zero value: it has none.
	Workload schemas.ObjectRef
	Node     string // empty: none yet
	Created  time.Time
	// Ready: it is ready and is not being deleted.
	Ready bool
	// Leaving: it is being deleted. Ended: it has succeeded or failed.
	Leaving, Ended bool
	// Why it has no node or is not ready, from its conditions. Empty: unknown.
	Why string
	// Priority is 0 for a pod that says nothing.
	Priority int32
	QoS      corev1.PodQOSClass
	// Budgeted: a PodDisruptionBudget selects it.
	Budgeted bool
}

// Tally is how a workload is now.
type Tally struct {
	// Wanted is spec.replicas where the workload has that, else the number of its pods that have not ended.
	Wanted int
	// Ready is how many of its pods are ready and not being deleted.
	Ready int
}

// Change says what changed: a workload or a node.
type Change struct {
	// Workload is the UID of a workload with a different [Tally], or with a [Pod] that came, went, or changed.
	Workload types.UID
	// Pod is that pod. Empty: any pod of the workload may have changed.
	Pod types.UID
	// Node is the name of a node that came, went, or changed in what [Node] says.
	Node string
}

// Workloads knows pods by the workloads that they belong to, which budgets select them, and when nodes became tainted. Changes
// of several objects may come in any order: the result is the same. All methods may be called from many goroutines. Callers own
// the results.
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

// member is a pod, and what only this view knows of it.
type member struct {
	pod  *corev1.Pod
	of   *group // nil: it has no controller
	seen uint64
}

// group is the pods of one controller.
type group struct {
	ref schemas.ObjectRef // the controller
	// workload is the controller, or the Deployment behind it.
	workload schemas.ObjectRef
	pods     []*member // sorted by age
	// ready and there are how many of the pods are ready, and have not ended.
	ready, there int
}

func newWorkloads(now func() time.Time) *Workloads {
	return &Workloads{
		now: now, pods: map[types.UID]*member{}, owners: map[types.UID]int{}, controllers: map[types.UID]*controller{},
		groups: map[schemas.ObjectRef]*group{}, workloads: map[types.UID][]*group{},
		budgets: map[string]map[string]labels.Selector{}, nodes: nodes{},
	}
}

// OnChange calls f for every change, including changes of the first list, from several goroutines at once. Call it before the
// cache runs. f must return quickly. It may ask the view, which can be ahead of the change.
func (w *Workloads) OnChange(f func(Change)) { w.changed = append(w.changed, f) }

// Pod is the pod with that UID, and whether it is known.
func (w *Workloads) Pod(uid types.UID) (Pod, bool) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	m, known := w.pods[uid]
	if !known {
		return Pod{}, false
	}
	return w.show(m), true
}

// Pods lists the pods of a workload, including terminating and ended pods, by creation time and then by name.
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

// Tally says how a workload is. The zero value for one that is not known, and for a ReplicaSet of a Deployment, which is no
// workload of its own.
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

// Node is the node of that name, and whether it is known.
func (w *Workloads) Node(name string) (Node, bool) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	n, known := w.nodes[name]
	return n.Node, known
}

// Seen numbers the pods from 1 in the order in which the cache learned of them. Unlike creation times, the numbers do not depend
// on clocks. 0: the pod is not known.
func (w *Workloads) Seen(uid types.UID) uint64 {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if m := w.pods[uid]; m != nil {
		return m.seen
	}
	return 0
}

// Latest is the number that [Workloads.Seen] gave last. 0: no pod became known yet.
func (w *Workloads) Latest() uint64 {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.seen
}

// Version returns the resource version of a pod in the cache; empty: the pod is not known.
func (w *Workloads) Version(uid types.UID) string {
	if p := w.object(uid); p != nil {
		return p.ResourceVersion
	}
	return ""
}

func (w *Workloads) object(uid types.UID) *corev1.Pod {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if m := w.pods[uid]; m != nil {
		return m.pod
	}
	return nil
}

func (w *Workloads) replicas(owner types.UID) int {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.owners[owner]
}

// budgeted says whether a budget of its namespace selects the pod.
func (w *Workloads) budgeted(p *corev1.Pod) bool {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.selects(p)
}

// The methods below need mu.

func (w *Workloads) selects(p *corev1.Pod) bool {
	for _, selector := range w.budgets[p.Namespace] {
		if selector.Matches(labels.Set(p.Labels)) {
			return true
		}
	}
	return false
}

func (w *Workloads) show(m *member) Pod {
	p := m.pod
	shown := Pod{
		Ref:  schemas.PodRef{Namespace: p.Namespace, Name: p.Name, UID: p.UID},
		Node: p.Spec.NodeName, Created: p.CreationTimestamp.Time, Ready: isReady(p), Leaving: p.DeletionTimestamp != nil,
		Ended: schemas.Ended(p), Why: why(p), QoS: p.Status.QOSClass, Budgeted: w.selects(p),
	}
	if p.Spec.Priority != nil {
		shown.Priority = *p.Spec.Priority
	}
	if m.of != nil {
		shown.Workload = m.of.workload
	}
	return shown
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

// tell tells of changes of workloads, each once. pod is the only pod that changed; empty: there may be others. The caller does
// not hold mu.
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

// podChanged takes one change of a pod into account. old or new is nil where there is none; they have one UID.
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
	for uid := range ownerUIDs(m.pod) {
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
	for uid := range ownerUIDs(m.pod) {
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
	if isReady(p) {
		g.ready += by
	}
	if !schemas.Ended(p) {
		g.there += by
	}
}

// detach takes a group from its workload.
func (w *Workloads) detach(g *group) {
	uid := g.workload.UID
	rest := slices.DeleteFunc(w.workloads[uid], func(other *group) bool { return other == g })
	if len(rest) == 0 {
		delete(w.workloads, uid)
		return
	}
	w.workloads[uid] = rest
}

// workloadBehind is the Deployment of a ReplicaSet that is known, else the controller itself.
func (w *Workloads) workloadBehind(owner schemas.ObjectRef) schemas.ObjectRef {
	if c := w.controllers[owner.UID]; c != nil && c.ref == owner && c.deployment.UID != "" {
		return c.deployment
	}
	return owner
}

// controllerChanged takes one change of a controller into account. old or new is nil where there is none; they have one UID.
func (w *Workloads) controllerChanged(old, new *controller) {
	at := cmp.Or(new, old)
	w.mu.Lock()
	before := w.tally(at.ref.UID)
	if new == nil {
		delete(w.controllers, at.ref.UID)
	} else {
		w.controllers[at.ref.UID] = new
	}
	var touched []types.UID
	if g := w.groups[at.ref]; g != nil {
		if behind := w.workloadBehind(at.ref); behind != g.workload {
			touched = append(touched, g.workload.UID, behind.UID)
			w.detach(g)
			g.workload = behind
			w.workloads[behind.UID] = append(w.workloads[behind.UID], g)
		}
	}
	if w.tally(at.ref.UID) != before {
		touched = append(touched, at.ref.UID)
	}
	w.mu.Unlock()
	w.tell("", touched...)
}

// budgetChanged takes one change of a budget into account.
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

// budgetedIn says of each pod of a workload in a namespace whether a budget selects it.
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

// nodeChanged takes one change of a node into account.
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

// byAge puts the oldest pod first. The UID tells two pods apart that had the same name in the same second.
func byAge(a, b *member) int {
	return cmp.Or(
		a.pod.CreationTimestamp.Compare(b.pod.CreationTimestamp.Time), strings.Compare(a.pod.Name, b.pod.Name),
		cmp.Compare(a.pod.UID, b.pod.UID),
	)
}

// ownerUIDs are the UIDs of the owners of a pod.
func ownerUIDs(p *corev1.Pod) map[types.UID]bool {
	uids := make(map[types.UID]bool, len(p.OwnerReferences))
	for i := range p.OwnerReferences {
		uids[p.OwnerReferences[i].UID] = true
	}
	return uids
}

// controllerOf is the controller of an object, if it is of the kind, or of any for an empty one. Else the zero reference.
func controllerOf(m metav1.Object, kind string) schemas.ObjectRef {
	owner := metav1.GetControllerOfNoCopy(m)
	if owner == nil || kind != "" && (owner.Kind != kind || !strings.HasPrefix(owner.APIVersion, "apps/")) {
		return schemas.ObjectRef{}
	}
	return schemas.ObjectRef{Kind: owner.Kind, Namespace: m.GetNamespace(), Name: owner.Name, UID: owner.UID}
}

func podCondition(p *corev1.Pod, of corev1.PodConditionType) *corev1.PodCondition {
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == of {
			return c
		}
	}
	return nil
}

func isTrue(c *corev1.PodCondition) bool { return c != nil && c.Status == corev1.ConditionTrue }

func isReady(p *corev1.Pod) bool {
	return p.DeletionTimestamp == nil && !schemas.Ended(p) && isTrue(podCondition(p, corev1.PodReady))
}

// why says why a pod has no node or is not ready.
func why(p *corev1.Pod) string {
	if p.Spec.NodeName == "" {
		return message(podCondition(p, corev1.PodScheduled))
	}
	ready := podCondition(p, corev1.PodReady)
	if isTrue(ready) {
		return ""
	}
	for _, statuses := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for i := range statuses {
			if w := statuses[i].State.Waiting; w != nil {
				return cut(strings.TrimSuffix(w.Reason+": "+w.Message, ": "))
			}
		}
	}
	return message(ready)
}

// message returns the message of a condition, or its reason if it has no message.
func message(c *corev1.PodCondition) string {
	if c == nil {
		return ""
	}
	return cmp.Or(c.Message, c.Reason)
}

// controller is the part of a ReplicaSet, Deployment, StatefulSet, or ReplicationController that the cache keeps.
type controller struct {
	metav1.ObjectMeta
	ref      schemas.ObjectRef
	replicas int
	// deployment is what controls a ReplicaSet, if it is a Deployment, else the zero reference.
	deployment schemas.ObjectRef
}

func newController(kind string, m metav1.Object, replicas *int32) *controller {
	c := &controller{ref: schemas.ObjectRef{Kind: kind, Namespace: m.GetNamespace(), Name: m.GetName(), UID: m.GetUID()}, replicas: 1}
	c.Namespace, c.Name, c.UID, c.ResourceVersion = m.GetNamespace(), m.GetName(), m.GetUID(), m.GetResourceVersion()
	if replicas != nil {
		c.replicas = int(*replicas)
	}
	if kind == "ReplicaSet" {
		c.deployment = controllerOf(m, "Deployment")
	}
	return c
}
