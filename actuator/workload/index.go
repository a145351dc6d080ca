package workload

import (
	"cmp"
	"slices"
	"strings"
	"unique"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas"
)

// index knows the pods by their workloads. What it is told of one object comes in order; of several it may come in any:
// what it knows in the end is the same. It is not for use by several goroutines.
type index struct {
	pods        map[types.UID]*keptPod
	controllers map[types.UID]*keptController
	// groups are the pods of each controller that has any, as the pods name it.
	groups map[unique.Handle[schemas.ObjectRef]]*group
	// workloads are the groups of each workload that has any pod.
	workloads map[types.UID][]*group
	spaces    map[unique.Handle[string]]*space
	seen      uint64 // how many pods became known
}

// group is the pods of one controller.
type group struct {
	// workload is the controller, or the Deployment behind it.
	workload schemas.ObjectRef
	pods     []*keptPod // sorted by age
	// ready and there are how many of the pods are ready, and have not ended.
	ready, there int
}

// touched are the UIDs of workloads about which something else is said than before, each once.
type touched []types.UID

func (t *touched) add(uid types.UID) {
	if uid != "" && !slices.Contains(*t, uid) {
		*t = append(*t, uid)
	}
}

func newIndex() index {
	return index{
		pods: map[types.UID]*keptPod{}, controllers: map[types.UID]*keptController{},
		groups:    map[unique.Handle[schemas.ObjectRef]]*group{},
		workloads: map[types.UID][]*group{}, spaces: map[unique.Handle[string]]*space{},
	}
}

// byAge puts the oldest pod first. Of two with the same age and name one is a pod that was made anew in the same
// second.
func byAge(a, b *keptPod) int {
	return cmp.Or(a.created.Compare(b.created), strings.Compare(a.name, b.name), cmp.Compare(a.uid, b.uid))
}

// pod is what is known of a pod, and whether anything is.
func (x *index) pod(uid types.UID) (Pod, bool) {
	p, known := x.pods[uid]
	if !known {
		return Pod{}, false
	}
	return x.show(p), true
}

func (x *index) show(p *keptPod) Pod {
	shown := Pod{
		Ref:  schemas.PodRef{Namespace: p.namespace.Value(), Name: p.name, UID: p.uid},
		Node: p.node.Value(), Created: p.created, Ready: p.ready, Leaving: p.leaving, Ended: p.ended, Why: p.why.Value(),
		Priority: p.priority, QoS: p.qos.Value(), Budgeted: x.spaces[p.namespace].looks[p.labels].budgeted,
	}
	if g := x.groups[p.owner]; g != nil {
		shown.Workload = g.workload
	}
	return shown
}

// podsOf lists the pods of a workload, oldest first.
func (x *index) podsOf(workload types.UID) []Pod {
	var found []*keptPod
	groups := x.workloads[workload]
	for _, g := range groups {
		found = append(found, g.pods...)
	}
	if len(groups) > 1 {
		slices.SortFunc(found, byAge)
	}
	var list []Pod
	for _, p := range found {
		list = append(list, x.show(p))
	}
	return list
}

func (x *index) tally(workload types.UID) Tally {
	var t Tally
	for _, g := range x.workloads[workload] {
		t.Ready += g.ready
		t.Wanted += g.there
	}
	if c := x.controllers[workload]; c != nil && c.deployment.UID == "" {
		t.Wanted = c.replicas
	}
	return t
}

// number gives a pod that became known the next number.
func (x *index) number(old, new *keptPod) {
	switch {
	case new == nil:
	case old != nil:
		new.seen = old.seen
	default:
		x.seen++
		new.seen = x.seen
	}
}

// learnPod takes one change of a pod into account. old or new is nil where there is none; they have one UID.
func (x *index) learnPod(old, new *keptPod) touched {
	var before, after Pod
	x.number(old, new)
	if new != nil {
		x.space(new.namespace).enter(new) // before the old one leaves: what they have in common stays
	}
	if old != nil {
		before, _ = x.pod(old.uid)
		x.remove(old)
	}
	if new != nil {
		x.insert(new)
		after = x.show(new)
	}
	var t touched
	if before != after {
		t.add(before.Workload.UID)
		t.add(after.Workload.UID)
	}
	return t
}

// insert adds a pod that has entered its namespace.
func (x *index) insert(p *keptPod) {
	x.pods[p.uid] = p
	owner := p.owner.Value()
	if owner.UID == "" {
		return
	}
	g := x.groups[p.owner]
	if g == nil {
		g = &group{workload: x.workloadBehind(owner)}
		x.groups[p.owner] = g
		x.workloads[g.workload.UID] = append(x.workloads[g.workload.UID], g)
		x.spaces[p.namespace].groups[g] = struct{}{}
	}
	at, _ := slices.BinarySearchFunc(g.pods, p, byAge)
	g.pods = slices.Insert(g.pods, at, p)
	g.count(p, 1)
}

// remove takes a pod out of its group and its namespace.
func (x *index) remove(p *keptPod) {
	delete(x.pods, p.uid)
	s := x.spaces[p.namespace]
	s.leave(p)
	defer x.tidy(p.namespace)
	g := x.groups[p.owner]
	if g == nil {
		return
	}
	if at, found := slices.BinarySearchFunc(g.pods, p, byAge); found {
		g.pods = slices.Delete(g.pods, at, at+1)
		g.count(p, -1)
	}
	if len(g.pods) == 0 {
		delete(x.groups, p.owner)
		delete(s.groups, g)
		x.detach(g)
	}
}

func (g *group) count(p *keptPod, by int) {
	if p.ready {
		g.ready += by
	}
	if !p.ended {
		g.there += by
	}
}

// detach takes a group from its workload.
func (x *index) detach(g *group) {
	uid := g.workload.UID
	rest := slices.DeleteFunc(x.workloads[uid], func(other *group) bool { return other == g })
	if len(rest) == 0 {
		delete(x.workloads, uid)
		return
	}
	x.workloads[uid] = rest
}

// workloadBehind is the Deployment of a ReplicaSet that is known, else the controller itself.
func (x *index) workloadBehind(controller schemas.ObjectRef) schemas.ObjectRef {
	if c := x.controllers[controller.UID]; c != nil && c.ref == controller && c.deployment.UID != "" {
		return c.deployment
	}
	return controller
}

// learnController takes one change of a controller into account. old or new is nil where there is none; they have one
// UID.
func (x *index) learnController(old, new *keptController) touched {
	at := new
	if new == nil {
		at = old
	}
	before := x.tally(at.uid)
	if new == nil {
		delete(x.controllers, at.uid)
	} else {
		x.controllers[at.uid] = new
	}
	var t touched
	if g := x.groups[unique.Make(at.ref)]; g != nil {
		if now := x.workloadBehind(at.ref); now != g.workload {
			t.add(g.workload.UID)
			x.detach(g)
			g.workload = now
			x.workloads[now.UID] = append(x.workloads[now.UID], g)
			t.add(now.UID)
		}
	}
	if x.tally(at.uid) != before {
		t.add(at.uid)
	}
	return t
}
