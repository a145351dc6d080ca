package cluster

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/randtest"
)

// shop is a changing cluster.
type shop struct {
	*rand.Rand
	objects map[string]metav1.Object
	made    int
	steady  bool // no unseen replacements, which are reported as a deletion and an addition
}

func (s *shop) name(kind string) string { return fmt.Sprint(kind, s.IntN(4)) }

// place puts an object into one of two namespaces, with its usual UID or sometimes a new one.
func (s *shop) place(m *metav1.ObjectMeta) {
	m.Namespace = fmt.Sprint("team", s.IntN(2))
	m.UID = types.UID(m.Namespace + "/" + m.Name)
	if !s.steady && s.IntN(10) == 0 {
		s.made++
		m.UID = types.UID(fmt.Sprint(m.UID, "/", s.made))
	}
	m.CreationTimestamp.Time = noon()
	for i := range m.OwnerReferences {
		m.OwnerReferences[i].UID = types.UID(m.Namespace + "/" + m.OwnerReferences[i].Name)
	}
}

// owner is perhaps a controller of one of the kinds.
func (s *shop) owner(kinds ...string) []metav1.OwnerReference {
	at := s.IntN(len(kinds) + 1)
	if at == len(kinds) {
		return nil
	}
	return []metav1.OwnerReference{by(kinds[at], s.name(kinds[at]))}
}

func (s *shop) object() metav1.Object {
	replicas := new(int32(s.IntN(4)))
	switch s.IntN(10) {
	case 0:
		d := &appsv1.Deployment{ObjectMeta: meta(s.name("Deployment")), Spec: appsv1.DeploymentSpec{Replicas: replicas}}
		s.place(&d.ObjectMeta)
		return d
	case 1, 2:
		r := replicaSet(s.name("ReplicaSet"), *replicas, s.owner("Deployment", "Rollout", "Deployment")...)
		s.place(&r.ObjectMeta)
		return r
	case 3:
		r := &appsv1.StatefulSet{ObjectMeta: meta(s.name("StatefulSet")), Spec: appsv1.StatefulSetSpec{Replicas: replicas}}
		s.place(&r.ObjectMeta)
		return r
	case 4:
		b := budget(s.name("budget"), [...]*metav1.LabelSelector{nil, {}, selecting("app", "a"), selecting("app", "b"), selecting("app", "c")}[s.IntN(5)])
		s.place(&b.ObjectMeta)
		return b
	default:
		return s.pod()
	}
}

func (s *shop) pod() *corev1.Pod {
	p := ready(fmt.Sprint("pod", s.IntN(20)), labelled("app", string(rune('a'+s.IntN(4))), "n", fmt.Sprint(s.IntN(2))))
	p.OwnerReferences = s.owner("ReplicaSet", "StatefulSet", "ReplicaSet", "Job", "ReplicaSet", "Deployment")
	s.place(&p.ObjectMeta)
	born(len(p.Name) + int(p.Name[len(p.Name)-1])%3)(p)
	for _, change := range []func(*corev1.Pod){leaving, ended, unready("no")} {
		if s.IntN(4) == 0 {
			change(p)
		}
	}
	return p
}

// step changes one object of a world.
func (s *shop) step(w *world) {
	o := s.object()
	key := fmt.Sprintf("%T %s/%s", o, o.GetNamespace(), o.GetName())
	if old, known := s.objects[key]; known && s.IntN(3) == 0 {
		delete(s.objects, key)
		w.gone(old)
		return
	}
	s.objects[key] = o
	w.set(o)
}

// told is the complete view of a workload.
type told struct {
	Pods  []Pod
	Tally Tally
}

// all is the complete view, by UID.
type all struct {
	Pods      map[types.UID]Pod
	Workloads map[types.UID]told
}

// ask queries a view for objects and everything that they name.
func (s *shop) ask(v *Workloads) all {
	said := all{map[types.UID]Pod{}, map[types.UID]told{}}
	for _, o := range s.objects {
		if p, known := v.Pod(o.GetUID()); known {
			said.Pods[o.GetUID()] = p
		}
		uids := []types.UID{o.GetUID()}
		for _, owner := range o.GetOwnerReferences() {
			uids = append(uids, owner.UID)
		}
		for _, uid := range uids {
			if now := (told{v.Pods(uid), v.Tally(uid)}); now.Pods != nil || now.Tally != (Tally{}) {
				said.Workloads[uid] = now
			}
		}
	}
	return said
}

// expected computes the complete view from all objects.
func (s *shop) expected() all {
	want := all{map[types.UID]Pod{}, map[types.UID]told{}}
	byUID := map[types.UID]metav1.Object{}
	for _, o := range s.objects {
		byUID[o.GetUID()] = o
	}
	for _, o := range byUID {
		if p, ok := o.(*corev1.Pod); ok {
			s.expectPod(want, byUID, p)
		}
	}
	for uid, w := range want.Workloads {
		slices.SortFunc(w.Pods, func(a, b Pod) int { // no two are called the same here
			if a.Created.Equal(b.Created) && a.Ref.Name < b.Ref.Name || a.Created.Before(b.Created) {
				return -1
			}
			return 1
		})
		want.Workloads[uid] = w
	}
	for uid, o := range byUID {
		w := want.Workloads[uid]
		switch c := o.(type) {
		case *appsv1.Deployment:
			w.Tally.Wanted = int(*c.Spec.Replicas)
		case *appsv1.StatefulSet:
			w.Tally.Wanted = int(*c.Spec.Replicas)
		case *appsv1.ReplicaSet:
			if owner := metav1.GetControllerOf(c); owner == nil || owner.Kind != "Deployment" {
				w.Tally.Wanted = int(*c.Spec.Replicas)
			}
		default:
			continue
		}
		if delete(want.Workloads, uid); w.Pods != nil || w.Tally != (Tally{}) {
			want.Workloads[uid] = w
		}
	}
	return want
}

func (s *shop) expectPod(want all, byUID map[types.UID]metav1.Object, p *corev1.Pod) {
	said := shown(p.Name, func(said *Pod) {
		said.Ref.Namespace, said.Ref.UID, said.Created = p.Namespace, p.UID, p.CreationTimestamp.Time
		said.Leaving, said.Ended = p.DeletionTimestamp != nil, p.Status.Phase == corev1.PodSucceeded
		said.Ready = !said.Leaving && p.Status.Conditions[1].Status == corev1.ConditionTrue
		said.Why = p.Status.Conditions[1].Message
		for _, o := range s.objects {
			if b, ok := o.(*policyv1.PodDisruptionBudget); ok && b.Namespace == p.Namespace {
				selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
				said.Budgeted = said.Budgeted || err == nil && selector.Matches(labels.Set(p.Labels))
			}
		}
	})
	if owner := metav1.GetControllerOf(p); owner != nil {
		if set, ok := byUID[owner.UID].(*appsv1.ReplicaSet); ok && owner.Kind == "ReplicaSet" {
			if above := metav1.GetControllerOf(set); above != nil && above.Kind == "Deployment" {
				owner = above
			}
		}
		said.Workload = ref(owner.Kind, owner.Name)
		said.Workload.Namespace, said.Workload.UID = p.Namespace, owner.UID
		w := want.Workloads[owner.UID]
		w.Pods = append(w.Pods, said)
		if said.Ready {
			w.Tally.Ready++
		}
		if !said.Ended {
			w.Tally.Wanted++
		}
		want.Workloads[owner.UID] = w
	}
	want.Pods[p.UID] = said
}

// remembered returns the size of a view.
func remembered(w *world) [6]int {
	return [6]int{len(w.pods), len(w.controllers), len(w.groups), len(w.workloads), len(w.budgets), len(w.owners)}
}

func TestRandomChangesGiveSameView(t *testing.T) {
	s := &shop{Rand: randtest.New(t), objects: map[string]metav1.Object{}}
	w := newWorld(t)
	for i := range 3000 {
		s.step(w)
		if i%10 != 0 {
			continue
		}
		want := s.expected()
		expect.Equal(t, fmt.Sprint("after step ", i), s.ask(w.Workloads), want)
		keys := slices.Sorted(maps.Keys(s.objects))
		s.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
		anew := newWorld(t)
		for _, key := range keys {
			anew.initially(s.objects[key])
		}
		expect.Equal(t, fmt.Sprint("in one go after step ", i), s.ask(anew.Workloads), want)
		expect.Equal(t, "what is remembered", remembered(w), remembered(anew))
		if t.Failed() {
			return
		}
	}
	for _, o := range s.objects {
		w.gone(o)
	}
	s.objects = nil
	expect.Equal(t, "state of an empty view", remembered(w), [6]int{})
}

func TestRandomChangeReports(t *testing.T) {
	s := &shop{Rand: randtest.New(t), objects: map[string]metav1.Object{}, steady: true}
	w := newWorld(t)
	before := all{}
	for i := range 1500 {
		s.step(w)
		now := s.ask(w.Workloads)
		var want []string
		for _, workloads := range []map[types.UID]told{before.Workloads, now.Workloads} {
			for uid := range workloads {
				if fmt.Sprintf("%+v", before.Workloads[uid]) != fmt.Sprintf("%+v", now.Workloads[uid]) {
					want = append(want, "workload "+string(uid))
				}
			}
		}
		slices.Sort(want)
		expect.Equal(t, fmt.Sprint("told by step ", i), slices.Compact(w.told()), slices.Compact(want))
		if before = now; t.Failed() {
			return
		}
	}
}
