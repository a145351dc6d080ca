package plan

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// world is a small cluster with maintenances, a watcher with a delayed view, an actuator that holds the locks, and
// users.
type world struct {
	*testing.T
	r       *rand.Rand
	now     time.Time
	nodes   map[string]*machine
	objects map[types.UID]*object
	pods    int // made so far
	uids    int
	pending []answer // decided and not carried out
	// calm means that everything is seen at once, nothing is blocked, and only the tested object changes.
	calm bool
	// everMeant has the nodes that a maintenance ever selected.
	everMeant map[types.UID]map[types.UID]bool
	// writes counts the changes of statuses.
	writes int
	log    []string
}

// machine is a node.
type machine struct {
	node  corev1.Node
	mark  *schemas.CordonMark
	human bool // a user changed spec.unschedulable last
	// wish is whether users want it cordoned.
	wish bool
	pods []inhabitant
	seen *machine // the watcher's view, or nil
	at   time.Time
}

// inhabitant is a pod.
type inhabitant struct {
	pod      corev1.Pod
	kind     string
	step     string // a label that a plan selects
	order    int32
	until    time.Time // the time at which a budget allows its eviction
	guarded  bool      // a rule of the policy protects it
	held     *LastVerdict
	finished time.Time // when it ends by itself
}

// object is a stored maintenance.
type object struct {
	m       v1alpha1.NodeMaintenance
	version int
	open    bool // its window
	seen    *v1alpha1.NodeMaintenance
	at      time.Time
}

// answer is a pending decision.
type answer struct {
	uid     types.UID
	intents []schemas.Intent
	steps   Decision
}

func (w *world) say(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf("%s ", w.now.Format("15:04:05"))+fmt.Sprintf(format, args...))
}

func (w *world) fail(format string, args ...any) {
	w.Helper()
	for _, line := range w.log[max(0, len(w.log)-60):] {
		w.Log(line)
	}
	w.Fatalf(format, args...)
}

func (w *world) chance(of int) bool { return w.r.IntN(of) == 0 }

func pick[E any](r *rand.Rand, list ...E) E { return list[r.IntN(len(list))] }

func newWorld(t *testing.T, r *rand.Rand) *world {
	w := &world{
		T: t, r: r, now: time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC), nodes: map[string]*machine{},
		objects: map[types.UID]*object{}, everMeant: map[types.UID]map[types.UID]bool{},
	}
	for i := range 2 + r.IntN(4) {
		w.join(fmt.Sprint("n", i))
	}
	w.join("outside") // of no pool, so that nothing means all nodes
	delete(w.nodes["outside"].node.Labels, "pool")
	return w
}

func (w *world) uid() types.UID { w.uids++; return types.UID("uid-" + strconv.Itoa(w.uids)) }

func (w *world) join(name string) {
	m := &machine{node: corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: w.uid(), Labels: map[string]string{
		"pool": "web", "zone": pick(w.r, "a", "b"),
	}}}}
	if w.chance(4) {
		m.node.Labels["node-role.kubernetes.io/control-plane"] = ""
	}
	m.node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	if w.chance(5) {
		m.node.Spec.Unschedulable, m.human, m.wish = true, true, true
	}
	w.nodes[name] = m
	for range w.r.IntN(5) {
		m.pods = append(m.pods, w.pod(name, pick(w.r, "plain", "plain", "plain", "daemon", "mirror", "skip", "tolerant", "eager", "batch")))
	}
}

func (w *world) pod(node, kind string) inhabitant {
	w.pods++
	p := inhabitant{kind: kind, pod: corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: fmt.Sprintf("p%03d", w.pods), UID: w.uid(), Labels: map[string]string{}, CreationTimestamp: metav1.NewTime(w.now),
		},
		Spec: corev1.PodSpec{NodeName: node},
	}}
	cordon := corev1.Toleration{Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}
	yes := true
	switch kind {
	case "daemon":
		p.pod.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Name: "d", Controller: &yes}}
		p.pod.Spec.Tolerations = []corev1.Toleration{cordon}
	case "mirror":
		p.pod.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
	case "skip":
		p.pod.Labels[pick(w.r, "rule", LabelDrainOfClusterAPI, v1alpha1.LabelDrain)] = "skip"
	case "tolerant":
		p.pod.Spec.Tolerations = []corev1.Toleration{pick(w.r, cordon, corev1.Toleration{Operator: corev1.TolerationOpExists})}
	case "eager":
		p.pod.Spec.Tolerations, p.pod.Labels["rule"] = []corev1.Toleration{cordon}, "drain"
	case "batch":
		p.pod.Namespace, p.finished = "batch", w.now.Add(time.Duration(w.r.IntN(600))*time.Second)
	case "plain":
		if p.step = pick(w.r, "", "a", "b"); p.step != "" {
			p.pod.Labels["step"] = p.step
		}
		if w.chance(4) {
			p.pod.Labels["rule"], p.order = "late", 5
		}
		p.guarded = !w.calm && w.chance(8)
		if w.chance(4) {
			p.until = w.now.Add(time.Duration(w.r.IntN(300)) * time.Second)
		}
	}
	return p
}

// worldRules returns the drain rules of every world.
func worldRules() []Rule {
	rule := func(namespace, name, value string, behavior v1alpha1.Behaviour, order int32) Rule {
		return Rule{Namespace: namespace, Name: name, Spec: v1alpha1.ClusterDrainRuleSpec{DrainRuleSpec: v1alpha1.DrainRuleSpec{
			Pods: &metav1.LabelSelector{MatchLabels: map[string]string{"rule": value}}, Behavior: behavior, Order: order,
		}}}
	}
	batch := Rule{Name: "batch", Spec: v1alpha1.ClusterDrainRuleSpec{
		DrainRuleSpec: v1alpha1.DrainRuleSpec{Behavior: v1alpha1.WaitCompleted},
		Namespaces:    &metav1.LabelSelector{MatchLabels: map[string]string{"kind": "batch"}},
	}}
	return []Rule{
		rule("shop", "late", "late", v1alpha1.DrainPods, 5), rule("shop", "skip", "skip", v1alpha1.SkipPods, 0), batch,
		rule("", "drain", "drain", v1alpha1.DrainPods, 0),
	}
}

// maintain creates a random maintenance.
func (w *world) maintain(name string) *object {
	m := v1alpha1.NodeMaintenance{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: w.uid(), Generation: 1, CreationTimestamp: metav1.NewTime(w.now.Truncate(time.Second)),
	}, Spec: v1alpha1.NodeMaintenanceSpec{
		Nodes: v1alpha1.NodeSet{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "web"}}}, Reason: "because",
		Stage: pick(w.r, "", v1alpha1.Idle, v1alpha1.Cordon, v1alpha1.Drain), OnDeadline: pick(w.r, "", v1alpha1.Hold, v1alpha1.Release),
		Force: []v1alpha1.Guard{v1alpha1.ControlPlane},
	}}
	if w.chance(3) {
		m.Spec.Nodes = v1alpha1.NodeSet{Names: []string{"n0", "n1", "n2", "missing"}}
	}
	if w.chance(2) {
		most := intstr.FromInt32(int32(1 + w.r.IntN(3)))
		m.Spec.AtOnce = &most
	}
	if w.chance(3) {
		m.Spec.Topology = "zone"
	}
	if w.chance(3) {
		m.Spec.Deadline = &metav1.Duration{Duration: time.Duration(1+w.r.IntN(10)) * time.Minute}
	}
	a, b := step1("a"), step1("b")
	m.Spec.Plan = pick(w.r, nil, []v1alpha1.DrainStep{a, b}, []v1alpha1.DrainStep{a, {Type: v1alpha1.DaemonSetPods}})
	if w.chance(4) {
		m.Spec.Window = &v1alpha1.Window{}
	}
	if w.chance(10) {
		m.Spec.Plan = []v1alpha1.DrainStep{a, a} // is refused
	}
	o := &object{m: m, version: 1, open: true}
	w.objects[m.UID] = o
	w.everMeant[m.UID] = map[types.UID]bool{}
	return o
}

func step1(value string) v1alpha1.DrainStep {
	return v1alpha1.DrainStep{Pods: &metav1.LabelSelector{MatchLabels: map[string]string{"step": value}}}
}

// order of the maintenances by their UID, so that a seed repeats a run.
func (w *world) all() []*object {
	var list []*object
	for _, uid := range slices.Sorted(maps.Keys(w.objects)) {
		list = append(list, w.objects[uid])
	}
	return list
}

func (w *world) names() []string { return slices.Sorted(maps.Keys(w.nodes)) }

// look updates the watcher's view, sometimes, and always if it is old.
func (w *world) look() {
	stale := func(at time.Time) bool { return w.calm || w.now.Sub(at) > 8*time.Second || w.chance(5) }
	for _, name := range w.names() {
		if m := w.nodes[name]; stale(m.at) {
			seen := machine{node: *m.node.DeepCopy(), pods: slices.Clone(m.pods), mark: m.mark}
			m.seen, m.at = &seen, w.now
		}
	}
	for _, o := range w.all() {
		if stale(o.at) {
			seen := expect.CopyJSON(w, o.m)
			seen.ResourceVersion = strconv.Itoa(o.version)
			o.seen, o.at = &seen, w.now
		}
	}
}

// scope returns the facts about a maintenance in the watcher's view.
func (w *world) scope(o *object) Facts {
	s := Facts{
		Now: w.now, Cluster: ClusterFacts{ControlPlane: map[string]bool{}},
		Maintenance: *o.seen, InWindow: o.open || o.m.Spec.Window == nil, Rules: worldRules(),
		Namespaces: map[string]map[string]string{"shop": {}, "batch": {"kind": "batch"}},
	}
	if !s.InWindow {
		s.NextWindow = w.now.Add(time.Hour)
	}
	stored := map[string]v1alpha1.NodeStage{}
	for _, n := range o.seen.Status.Nodes {
		stored[n.Name] = n.Stage
	}
	for _, name := range w.names() {
		m := w.nodes[name].seen
		if m == nil {
			continue
		}
		s.Cluster.Nodes++
		if ControlPlane(&m.node) {
			s.Cluster.ControlPlane[name] = true
			if InService(&m.node) {
				s.Cluster.ControlPlaneReady++
			}
		}
		meant := Selector(o.m.Spec.Nodes)(&m.node)
		if meant {
			w.everMeant[o.m.UID][m.node.UID] = true
		}
		if _, known := stored[name]; !known && !meant && !OnNode(&o.m, &m.node, m.mark) {
			continue
		}
		n := NodeFacts{Node: m.node, Selected: meant, Mark: m.mark}
		if InProgress(stored[name]) {
			for _, p := range m.pods {
				n.Pods = append(n.Pods, w.maintained(p))
			}
		}
		s.Nodes = append(s.Nodes, n)
	}
	for _, other := range w.all() {
		if other != o && other.seen != nil {
			s.Others = append(s.Others, *other.seen)
		}
	}
	return s
}

func (w *world) maintained(p inhabitant) PodFacts {
	m := PodFacts{ScopedPod: schemas.ScopedPod{Pod: p.pod}, LastVerdict: p.held}
	if p.guarded {
		m.Protected = []schemas.Protection{{Rule: "PodsWithPVC", Detail: "has a volume"}}
	}
	return m
}

// carryOut acts as the actuator: it writes the status with the lock, then the nodes if the preconditions of the steps
// hold, then moves the pods.
func (w *world) carryOut(a answer) {
	o := w.objects[a.uid]
	if o == nil || a.steps.ResourceVersion != strconv.Itoa(o.version) {
		w.say("%s: outdated", a.steps.Name)
		return
	}
	if !same(o.m.Status, a.steps.Status) {
		o.m.Status = expect.CopyJSON(w, a.steps.Status)
		o.version++
		w.writes++
	}
	if !w.calm && w.chance(10) {
		return // the actuator ended in the middle
	}
	if has := slices.Contains(o.m.Finalizers, schemas.MaintenanceFinalizer); has != a.steps.Finalizer {
		if o.m.DeletionTimestamp != nil && !has {
			w.fail("%s: a finalizer cannot be added to a terminating object", o.m.Name)
		}
		o.m.Finalizers = nil
		if a.steps.Finalizer {
			o.m.Finalizers = []string{schemas.MaintenanceFinalizer}
		}
		o.version++
	}
	if o.m.DeletionTimestamp != nil && len(o.m.Finalizers) == 0 {
		w.say("%s is gone", o.m.Name)
		delete(w.objects, o.m.UID)
	}
	if !w.calm && w.chance(6) {
		return // the actuator ended in the middle
	}
	for _, s := range a.steps.Nodes {
		w.step(a.steps.Name, s)
	}
	for _, i := range a.intents {
		w.evict(o, i)
	}
}

func (w *world) step(who string, s NodeStep) {
	m := w.nodes[s.Name]
	if m == nil || m.node.UID != s.UID {
		return
	}
	if s.Action != schemas.NodeMark && (m.node.Spec.Unschedulable != s.Unschedulable || !bytes.Equal(expect.ToJSON(w, m.mark), expect.ToJSON(w, s.Marked))) {
		w.say("%s: %s of %s is outdated", who, s.Action, s.Name)
		return
	}
	w.say("%s: %s %s %v", who, s.Action, s.Name, s.Mark.CordonedBefore)
	switch s.Action {
	case schemas.NodeCordon:
		if m.mark == nil || m.mark.UID != s.Mark.UID {
			delete(m.node.Annotations, schemas.AnnotationMaintained)
		}
		mark := s.Mark
		m.mark = &mark
		if !m.node.Spec.Unschedulable {
			m.node.Spec.Unschedulable, m.human = true, false
		}
	case schemas.NodeReturn:
		if m.mark == nil || m.mark.UID != s.Mark.UID {
			w.fail("%s gives back %s, which it has not cordoned", who, s.Name)
		}
		if m.node.Spec.Unschedulable && !m.human {
			m.node.Spec.Unschedulable = m.mark.CordonedBefore
		}
		m.mark = nil
		delete(m.node.Annotations, schemas.AnnotationMaintained)
	case schemas.NodeMark:
	}
	for _, c := range s.Conditions {
		i := slices.IndexFunc(m.node.Status.Conditions, func(is corev1.NodeCondition) bool { return is.Type == c.Type })
		if i < 0 {
			m.node.Status.Conditions = append(m.node.Status.Conditions, c)
			continue
		}
		m.node.Status.Conditions[i] = c
	}
}

// evict tries to move a pod, within its budget.
func (w *world) evict(o *object, i schemas.Intent) {
	m := w.nodes[i.Node]
	if m == nil {
		return
	}
	at := slices.IndexFunc(m.pods, func(p inhabitant) bool { return p.pod.UID == i.Pod.UID })
	if at < 0 {
		return
	}
	p := &m.pods[at]
	if !w.everMeant[o.m.UID][m.node.UID] {
		w.fail("%s moves %s off %s, which it does not mean", o.m.Name, i.Pod, i.Node)
	}
	switch {
	case p.pod.DeletionTimestamp != nil:
	case w.now.Before(p.until):
		if p.held == nil {
			p.held = &LastVerdict{Outcome: schemas.Deferred, Reason: schemas.ReasonDisruptionBudget, Message: "no", Since: w.now}
		}
	case w.chance(2):
		p.pod.DeletionTimestamp = &metav1.Time{Time: w.now.Add(30 * time.Second).Truncate(time.Second)}
	default:
		w.leave(i.Node, at)
	}
}

// leave removes a pod from its node. Its owner creates another one, on this node unless the cordon prevents it.
func (w *world) leave(node string, at int) {
	m := w.nodes[node]
	kind := m.pods[at].kind
	m.pods = slices.Delete(m.pods, at, at+1)
	switch kind {
	case "daemon", "eager":
		m.pods = append(m.pods, w.pod(node, kind))
	case "batch":
	default:
		for _, name := range w.names() {
			if other := w.nodes[name]; !other.node.Spec.Unschedulable && w.chance(2) {
				other.pods = append(other.pods, w.pod(name, kind))
				return
			}
		}
	}
}

// tick advances the time.
func (w *world) tick(most time.Duration) {
	w.now = w.now.Add(time.Duration(w.r.Int64N(int64(most))) + time.Millisecond)
	for _, name := range w.names() {
		m := w.nodes[name]
		for i, p := range slices.Backward(m.pods) {
			dead := m.unreachable()
			ended := !p.finished.IsZero() && !w.now.Before(p.finished)
			if !dead && (ended || p.pod.DeletionTimestamp != nil && !w.now.Before(p.pod.DeletionTimestamp.Time)) {
				w.leave(name, i)
			}
		}
	}
}

func (m *machine) unreachable() bool {
	return slices.ContainsFunc(m.node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeUnreachable })
}

// people makes a random change as a user.
func (w *world) people() {
	name := pick(w.r, w.names()...)
	m := w.nodes[name]
	switch w.r.IntN(12) {
	case 0:
		w.say("somebody cordons %s", name)
		m.node.Spec.Unschedulable, m.human, m.wish = true, true, true
	case 1:
		w.say("somebody uncordons %s", name)
		m.node.Spec.Unschedulable, m.human, m.wish = false, true, false
	case 2:
		if name != "outside" {
			w.say("%s leaves", name)
			delete(w.nodes, name)
		}
	case 3:
		if name := fmt.Sprint("n", w.r.IntN(9)); w.nodes[name] == nil {
			w.say("%s joins", name)
			w.join(name)
		}
	case 4:
		if name != "outside" {
			w.say("%s changes its pool", name)
			m.node.Labels["pool"] = pick(w.r, "web", "db")
		}
	case 5:
		m.node.Spec.Taints = nil
		if w.chance(2) {
			m.node.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute}}
		}
	case 6:
		m.node.Status.Conditions[0].Status = pick(w.r, corev1.ConditionTrue, corev1.ConditionFalse)
	case 7:
		if o := w.any(); o != nil {
			m.node.Annotations = map[string]string{schemas.AnnotationMaintained: o.m.Name}
			w.say("the work of %s on %s is done", o.m.Name, name)
		}
	case 8, 9:
		if o := w.any(); o != nil {
			w.further(o)
		}
	case 10:
		if o := w.any(); o != nil {
			o.open = !o.open
		}
	case 11:
		if o := w.any(); o != nil && w.chance(6) {
			w.remove(o)
		}
	}
}

func (w *world) any() *object {
	list := w.all()
	if len(list) == 0 {
		return nil
	}
	return pick(w.r, list...)
}

// further advances the stage.
func (w *world) further(o *object) {
	i := max(0, slices.Index(stages(), o.m.Spec.Stage))
	if i+1 < len(stages()) && (stages()[i+1] != v1alpha1.Complete || w.chance(4)) {
		o.m.Spec.Stage = stages()[i+1]
		o.m.Generation++
		o.version++
		w.say("%s is to %s", o.m.Name, o.m.Spec.Stage)
	}
}

func (w *world) remove(o *object) {
	if o.m.DeletionTimestamp != nil {
		return
	}
	w.say("%s is deleted", o.m.Name)
	if len(o.m.Finalizers) == 0 {
		delete(w.objects, o.m.UID)
		return
	}
	o.m.DeletionTimestamp = &metav1.Time{Time: w.now.Truncate(time.Second)}
	o.version++
}
