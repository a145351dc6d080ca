package plan

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/randtest"
)

func TestMaintenanceInvariants(t *testing.T) {
	r := randtest.New(t)
	for range 150 {
		w := newWorld(t, r)
		w.maintain("m0")
		for i := range 100 {
			if i == 10 && w.chance(2) {
				w.maintain("m1")
			}
			w.goOn()
		}
		w.end()
	}
}

func TestSerialControlPlaneNodes(t *testing.T) {
	r := randtest.New(t)
	for range 60 {
		w := newWorld(t, r)
		for i := range 4 {
			w.join(fmt.Sprint("n", i))
			w.nodes[fmt.Sprint("n", i)].node.Labels["node-role.kubernetes.io/control-plane"] = ""
		}
		for i := range 3 {
			o := w.maintain(fmt.Sprint("m", i))
			o.m.Spec.Stage, o.m.Spec.Window, o.m.Spec.Nodes = v1alpha1.Drain, nil, v1alpha1.NodeSet{Names: []string{fmt.Sprint("n", i)}}
		}
		for range 60 {
			w.goOn()
		}
		w.end()
	}
}

// goOn lets some time pass with random changes.
func (w *world) goOn() {
	w.tick(pick(w.r, time.Second, time.Second, 10*time.Second))
	if w.chance(2) {
		w.people()
	}
	w.look()
	if o := w.any(); o != nil {
		w.pending = append(w.pending, w.decide(o))
	}
	for len(w.pending) > 0 && !w.chance(3) { // in any order, some twice, some never
		at := w.r.IntN(len(w.pending))
		a := w.pending[at]
		if !w.chance(5) {
			w.pending = slices.Delete(w.pending, at, at+1)
		}
		w.carryOut(a)
		w.hold()
	}
}

func TestUnblockedDrainCompletes(t *testing.T) {
	r := randtest.New(t)
	for range 40 {
		w := newWorld(t, r)
		o := w.maintain("m0")
		o.m.Spec.Stage, o.m.Spec.Window, o.m.Spec.Topology, o.m.Spec.AtOnce, o.m.Spec.Deadline = v1alpha1.Drain, nil, "", nil, nil
		if w.chance(2) || o.m.Spec.Nodes.Names != nil { // it would wait for names without a node
			o.m.Spec.Nodes = v1alpha1.NodeSet{Names: []string{"n1"}}
		}
		if len(Validate(o.m.Spec)) > 0 {
			continue
		}
		w.free()
		for _, m := range w.nodes { // or they would block those of the control plane
			m.node.Spec.Unschedulable = false
		}
		done := func() bool {
			return slices.ContainsFunc(o.m.Status.Conditions, func(c metav1.Condition) bool {
				return c.Type == v1alpha1.Drained && c.Status == metav1.ConditionTrue
			})
		}
		for i := 0; !done(); i++ {
			if i > 600 {
				w.fail("not drained: %s", expect.ToJSON(t, o.m.Status))
			}
			w.tick(10 * time.Second)
			w.look()
			w.carryOut(w.decide(o))
			w.hold()
			for _, n := range o.m.Status.Nodes { // the work on a drained node takes no time
				if n.Stage == v1alpha1.IsDrained && w.chance(2) {
					w.nodes[n.Name].node.Annotations = map[string]string{schemas.AnnotationMaintained: "m0"}
				}
			}
		}
	}
}

// free removes everything that blocks pods forever.
func (w *world) free() {
	w.calm = true
	for _, m := range w.nodes {
		m.node.Spec.Taints = nil
		m.node.Status.Conditions[0].Status = corev1.ConditionTrue
		for i := range m.pods {
			m.pods[i].guarded = false
		}
	}
}

// end completes all maintenances, and compares the world with its original state.
func (w *world) end() {
	w.free()
	w.pending = nil
	for _, o := range w.all() {
		if w.chance(2) {
			w.remove(o)
			continue
		}
		o.m.Spec.Stage = v1alpha1.Complete
		o.m.Generation++
		o.version++
	}
	var last map[types.UID]answer
	for quiet, i := 0, 0; quiet < 12; i++ {
		if i > 400 {
			w.fail("it does not end")
		}
		w.tick(30 * time.Second)
		w.look()
		before := w.writes
		last = map[types.UID]answer{}
		touched := false
		for _, o := range w.all() {
			a := w.decide(o)
			last[o.m.UID] = a
			touched = touched || len(a.steps.Nodes) > 0
			w.carryOut(a)
			w.hold()
		}
		if quiet++; touched || before != w.writes {
			quiet = 0
		}
	}
	for _, o := range w.all() {
		w.settled(o, last[o.m.UID])
	}
	for name, m := range w.nodes {
		if m.mark != nil || m.node.Spec.Unschedulable != m.wish {
			w.fail("%s: cordoned is %v, people want %v; mark %+v", name, m.node.Spec.Unschedulable, m.wish, m.mark)
		}
		for _, c := range m.node.Status.Conditions[1:] {
			if c.Status == corev1.ConditionTrue {
				w.fail("%s: condition %s is left: %s", name, c.Type, c.Message)
			}
		}
	}
}

// settled checks that a maintenance has nothing left to do and reports that.
func (w *world) settled(o *object, last answer) {
	if o.m.DeletionTimestamp != nil || len(o.m.Finalizers) > 0 {
		w.fail("%s is kept: %s", o.m.Name, expect.ToJSON(w, o.m.Status))
	}
	for _, n := range o.m.Status.Nodes {
		if n.Stage != v1alpha1.Returned && n.Stage != v1alpha1.Gone {
			w.fail("%s: node %s is %s in the end", o.m.Name, n.Name, n.Stage)
		}
	}
	if len(last.intents) > 0 || len(last.steps.Nodes) > 0 || last.steps.Finalizer {
		w.fail("%s: something is left to do: %+v", o.m.Name, last)
	}
	if got := expect.ToJSON(w, last.steps.Status); !bytes.Equal(got, expect.ToJSON(w, o.m.Status)) {
		w.fail("%s: the status is never the same:\n%s\n%s", o.m.Name, got, expect.ToJSON(w, o.m.Status))
	}
}

// same compares times by the moment, as the API server does.
func same(a, b any) bool { return equality.Semantic.DeepEqual(a, b) }

// decide decides on a maintenance, and checks everything that follows from facts and decision alone.
func (w *world) decide(o *object) answer {
	data := expect.ToJSON(w, w.scope(o))
	scope, twin := expect.FromJSON[Facts](w, data), expect.FromJSON[Facts](w, data)
	intents, steps := Decide(scope)
	again, stepsAgain := Decide(twin)
	if !reflect.DeepEqual(scope, twin) {
		w.fail("deciding changed the scope")
	}
	if !reflect.DeepEqual(intents, again) || !reflect.DeepEqual(steps, stepsAgain) {
		w.fail("decided otherwise the second time:\n%s\n%s", expect.ToJSON(w, steps), expect.ToJSON(w, stepsAgain))
	}
	w.truth(scope, intents, steps)
	if !same(steps.Status, scope.Maintenance.Status) {
		var stages []string
		for _, n := range steps.Status.Nodes {
			stages = append(stages, n.Name+" "+string(n.Stage))
		}
		w.say("%s %s: %s", o.m.Name, steps.Status.Summary.Message, strings.Join(stages, ", "))
	}
	return answer{o.m.UID, intents, steps}
}

// hold checks the invariants.
func (w *world) hold() {
	holders := map[string]string{}
	w.holdControlPlane()
	for _, o := range w.all() {
		taken := map[string]bool{}
		for _, n := range o.m.Status.Nodes {
			if InProgress(n.Stage) && w.nodes[n.Name] != nil {
				taken[n.Name] = true
			}
			if m := w.nodes[n.Name]; m != nil && m.node.UID == n.UID && Holds(n.Stage) && n.Stage != v1alpha1.Claimed {
				if other := holders[n.Name]; other != "" {
					w.fail("%s is worked on by %s and %s", n.Name, other, o.m.Name)
				}
				holders[n.Name] = o.m.Name
			}
		}
		for name, m := range w.nodes {
			if m.mark != nil && m.mark.UID == o.m.UID {
				taken[name] = true
				if !w.everMeant[o.m.UID][m.node.UID] {
					w.fail("%s has cordoned %s, which it never meant", o.m.Name, name)
				}
			}
		}
		most := 1
		if o.m.Spec.AtOnce != nil {
			most = o.m.Spec.AtOnce.IntValue()
		}
		if len(taken) > most {
			w.fail("%s works on %v, at most %d at a time are allowed: %s", o.m.Name, taken, most, expect.ToJSON(w, o.m.Status.Nodes))
		}
	}
}

// holdControlPlane checks that no two control plane nodes are in progress at a time, over all maintenances. A claimed
// one may still be given up.
func (w *world) holdControlPlane() {
	at := map[string]string{}
	for _, o := range w.all() {
		for _, n := range o.m.Status.Nodes {
			m := w.nodes[n.Name]
			if m == nil || m.node.UID != n.UID || !ControlPlane(&m.node) {
				continue
			}
			marked := m.mark != nil && m.mark.UID == o.m.UID
			if Holds(n.Stage) && (n.Stage != v1alpha1.Claimed || marked) {
				at[n.Name] = o.m.Name
			}
		}
	}
	if len(at) > 1 {
		w.fail("nodes of the control plane are worked on at a time: %v", at)
	}
}

// truth compares a decision with the model's knowledge of the same facts.
func (w *world) truth(scope Facts, intents []schemas.Intent, steps Decision) {
	moving := map[types.UID]bool{}
	for _, i := range intents {
		moving[i.Pod.UID] = true
	}
	was := map[string]v1alpha1.NodeStatus{}
	for _, n := range scope.Maintenance.Status.Nodes {
		was[n.Name] = n
	}
	refused := steps.Status.Conditions[0].Status == metav1.ConditionFalse
	claimedCP := 0
	for _, n := range steps.Status.Nodes {
		in := slices.IndexFunc(scope.Nodes, func(m NodeFacts) bool { return m.Node.Name == n.Name })
		if in < 0 {
			if n.Stage != v1alpha1.Gone {
				w.fail("%s is %s and not there", n.Name, n.Stage)
			}
			continue
		}
		m := scope.Nodes[in]
		begun := n.Stage == v1alpha1.Claimed && was[n.Name].Stage != v1alpha1.Claimed
		mine := m.Mark != nil && m.Mark.UID == scope.Maintenance.UID
		if begun && !mine && (refused || !m.Selected || !scope.InWindow) {
			w.fail("%s is begun: refused %v, meant %v, window open %v", n.Name, refused, m.Selected, scope.InWindow)
		}
		if InProgress(n.Stage) && ControlPlane(&m.Node) && !mine {
			claimedCP++
		}
		if n.Stage == v1alpha1.Cordoned && was[n.Name].Stage == v1alpha1.Claimed && (!mine || !m.Node.Spec.Unschedulable) {
			w.fail("%s is called Cordoned and is not", n.Name)
		}
		w.podsOf(scope, m, n, was[n.Name], moving)
	}
	if claimedCP > 1 {
		w.fail("%d nodes of the control plane are claimed at a time", claimedCP)
	}
	for _, s := range steps.Nodes {
		if scope.Maintenance.Status.Nodes == nil || s.Action != schemas.NodeReturn && !slices.Contains(scope.Maintenance.Finalizers, schemas.MaintenanceFinalizer) {
			w.fail("%s of %s before it is known that it is meant to be", s.Action, s.Name)
		}
	}
}

// podsOf compares the counts of a node, and the order of its pods, with the kinds of its pods.
func (w *world) podsOf(scope Facts, m NodeFacts, n, was v1alpha1.NodeStatus, moving map[types.UID]bool) {
	if n.Pods == nil {
		return
	}
	type place struct {
		step  int
		order int32
	}
	var left, staying int32
	first := place{99, 0}
	places := map[types.UID]place{}
	began := was.Start.Time // the drain of the node
	for _, s := range scope.Maintenance.Status.Stages {
		if s.Stage == v1alpha1.Drain && s.Start.After(began) {
			began = s.Start.Time
		}
	}
	for _, p := range w.nodes[n.Name].seen.pods {
		at := place{stepIn(scope.Maintenance.Spec.Plan, p), p.order}
		overdue := p.pod.DeletionTimestamp != nil && scope.Now.Sub(p.pod.DeletionTimestamp.Time) >= time.Minute
		switch stay := stays0(scope.Maintenance.Spec.Plan, p, began); {
		case stay:
			staying++
			if moving[p.pod.UID] {
				w.fail("%s of kind %s is asked to move", p.pod.Name, p.kind)
			}
		case overdue && w.nodes[n.Name].seen.unreachable():
		default:
			left++
			places[p.pod.UID] = at
			if at.step < first.step || at.step == first.step && at.order < first.order {
				first = at
			}
		}
	}
	for uid, at := range places {
		if moving[uid] && (at != first || n.Stage != v1alpha1.Draining || m.Node.Spec.Unschedulable == false) {
			w.fail("%s moves in %+v, and %+v is on; the node is %s", uid, at, first, n.Stage)
		}
	}
	if n.Pods.Left != left || n.Pods.Staying != staying || int(n.Pods.Blocked) != len(n.Blocked)+int(n.More) {
		w.fail("%s: got %+v with %d blocked, want %d left, %d staying", n.Name, *n.Pods, len(n.Blocked), left, staying)
	}
	if n.Stage == v1alpha1.IsDrained && was.Stage == v1alpha1.Draining && left > 0 {
		w.fail("%s is called drained with %d pods", n.Name, left)
	}
}

// stepIn returns the number of the step of the plan for a kind of pod.
func stepIn(plan []v1alpha1.DrainStep, p inhabitant) int {
	switch {
	case len(plan) == 0:
		return 0
	case p.kind == "daemon" && plan[1].Type == v1alpha1.DaemonSetPods:
		return 1
	case p.step == "a":
		return 0
	case p.step == "b" && plan[1].Type != v1alpha1.DaemonSetPods:
		return 1
	}
	return len(plan)
}

// stays0 reports whether a pod of that kind must stay on a node whose drain began at a time.
func stays0(plan []v1alpha1.DrainStep, p inhabitant, began time.Time) bool {
	new := p.pod.CreationTimestamp.Truncate(time.Second).After(began)
	switch p.kind {
	case "mirror", "skip", "tolerant":
		return true
	case "daemon":
		return len(plan) == 0 || plan[1].Type != v1alpha1.DaemonSetPods || new
	case "eager":
		return new
	}
	return false
}
